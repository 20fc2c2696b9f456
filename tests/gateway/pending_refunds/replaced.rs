//! A master that dies while slots are taken and costs are unsettled: the replica goes on with all data that it has
//! received.

use super::three::Three;
use crate::support::{PATIENCE, Redis, Sentinel, eventually};

/// The number of slots that are taken in `redis`.
async fn taken(redis: &Redis) -> usize {
    let keys = redis.keys().await;
    match keys.iter().find(|key| key.contains(":slots:")) {
        Some(key) => redis.command(&["ZCARD", key]).await,
        None => 0,
    }
}

#[tokio::test]
async fn a_master_that_is_replaced_locks_no_slot_and_settles_once() {
    let mut master = Redis::start().await;
    let of = master.port().to_string();
    let replica = Redis::start_with(&[
        "--replicaof",
        "127.0.0.1",
        &of,
        "--repl-diskless-sync-delay",
        "0",
    ])
    .await;
    let sentinel = Sentinel::start(master.port()).await;
    let urls = [sentinel.url(), sentinel.url(), sentinel.url()];
    let mut three = Three::of(replica, Vec::new(), &urls).await;
    let waiting = three.fill().await;
    eventually(PATIENCE, "the replica has heard of all", async || {
        taken(&three.redis).await == waiting.len()
    })
    .await;
    master.kill().await;
    // These requests find out that Redis does not answer, and the others then know it.
    three.answer(waiting.len() / 2);
    three.are("away").await;
    three.answer(waiting.len());
    three.finish(waiting).await;
    three.are("up").await;
    three.owe_nothing().await;
    // As many requests may be in flight again.
    let waiting = three.fill().await;
    three.answer(waiting.len());
    three.finish(waiting).await;
    three.owe_nothing().await;
    three.have_lost_nothing().await;
}
