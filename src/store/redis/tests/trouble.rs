//! Trouble caused by other clients and operators: an endless script, a slow start, a changed password.

use super::support::{Client, Server, knows_functions, limit, token_bucket, until, until_up};
use crate::limit::Limit;
use crate::store::Secret;
use crate::store::check::Check;
use crate::store::error::StoreError;
use crate::store::redis::tests::support::look;
use crate::store::redis::{Presence, RedisStore};
use crate::store::settings::{Backend, RedisTarget, StoreSettings};
use bb8_redis::redis;
use std::sync::Arc;
use std::time::{Duration, Instant};

const BACK_WITHIN: Duration = Duration::from_secs(5);

fn some_limit() -> Arc<Limit> {
    limit("some", token_bucket(1000, 1_000_000, 1000))
}

async fn decide(store: &RedisStore, limit: &Arc<Limit>) -> Result<(), StoreError> {
    store.decide(&[Check::new(limit, b"a")]).await.map(drop)
}

#[tokio::test(flavor = "local")]
async fn a_script_that_does_not_end_is_waited_for_once() {
    let server = Server::start_with(&["--lua-time-limit", "50"]);
    let store = server.store().await;
    let limit = some_limit();
    let mut other = server.client();
    let endless = std::thread::spawn(move || {
        let mut script = redis::cmd("EVAL");
        other.ask(script.arg("while true do end").arg(0))
    });
    // The server answers until the script runs.
    until(BACK_WITHIN, "a decision has no answer", async || {
        decide(&store, &limit).await.is_err()
    })
    .await;
    assert_eq!(decide(&store, &limit).await, Err(StoreError::Down));
    let said = look(&server.target()).await.unwrap_err().to_string();
    assert!(said.contains("BUSY"), "{said}");
    // The script is killed by hand. A decision that is not answered in time is not sent again.
    let mut killer = Client::of(server.port).expect("who asks is told that it is busy");
    killer.say("SCRIPT KILL");
    assert!(endless.join().unwrap().is_err());
    until_up(&store, BACK_WITHIN).await;
    assert_eq!(decide(&store, &limit).await, Ok(()));
}

#[tokio::test(flavor = "local")]
async fn a_server_that_is_still_loading_is_away_until_it_has_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().display().to_string();
    let server = Server::start_with(&["--dir", &at]);
    if !knows_functions(&mut server.client()) {
        return println!("before version 7 nobody is answered while so little is loaded");
    }
    server.client().raw(&[
        b"EVAL",
        b"for i = 1, 3000 do redis.call('SET', 'other:' .. i, i) end",
        b"0",
    ]);
    server.client().say("SAVE");
    drop(server);

    // Loading takes a millisecond a key, and the server answers a client after each kilobyte.
    let slowly = [
        "--dir",
        &at,
        "--key-load-delay",
        "1000",
        "--loading-process-events-interval-bytes",
        "1024",
    ];
    let server = Server::start_with(&slowly);
    let said = look(&server.target()).await.unwrap_err().to_string();
    assert!(said.contains("LOADING"), "{said}");
    let store = RedisStore::new(&server.target(), &server.settings());
    let limit = some_limit();
    assert!(decide(&store, &limit).await.is_err());
    assert_eq!(decide(&store, &limit).await, Err(StoreError::Down));
    until_up(&store, Duration::from_secs(30)).await;
    assert_eq!(decide(&store, &limit).await, Ok(()));
}

#[tokio::test(flavor = "local")]
async fn a_rotated_password_is_presented_by_the_next_connection() {
    let server = Server::start();
    server
        .client()
        .say("ACL SETUSER gateway on >first ~* &* +@all");
    let settings = |password: &str| StoreSettings {
        source: Backend::Redis(RedisTarget {
            username: Some("gateway".into()),
            password: Some(Secret::new(password)),
            ..server.target()
        }),
        ..StoreSettings::default()
    };
    let mut running = settings("first");
    let Backend::Redis(target) = running.source.clone() else {
        panic!("a Redis");
    };
    let store = RedisStore::new(&target, &running);
    until_up(&store, BACK_WITHIN).await;
    let limit = some_limit();
    // Redis ends no connection when it changes a password; an operator does.
    let mut admin = server.client();
    admin.say("ACL SETUSER gateway resetpass >second");
    assert_eq!(decide(&store, &limit).await, Ok(()));
    admin.say("CLIENT KILL USER gateway");
    let give_up = Instant::now() + BACK_WITHIN;
    let said = loop {
        match store.reach().await {
            Err(StoreError::Refused(said)) => break said,
            other => assert!(Instant::now() < give_up, "{other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    };
    assert!(
        said.contains("does not take the user or the password (WRONGPASS)"),
        "{said}"
    );
    running.rotate(&settings("second"));
    until_up(&store, BACK_WITHIN).await;
    assert_eq!(decide(&store, &limit).await, Ok(()));
}

/// Without requests: the gateway's own heartbeat is refused, and the next request would be, too.
#[tokio::test(flavor = "local")]
async fn a_sign_of_life_notices_a_demoted_master() {
    let server = Server::start();
    let store = server.store().await;
    let life = Duration::from_secs(10);
    assert_eq!(store.beat(1, Presence::There, life).await, Ok(1));
    let dead_port = super::support::free_port();
    let mut client = server.client();
    client.say(&format!("REPLICAOF 127.0.0.1 {dead_port}"));
    let refused = store.beat(1, Presence::There, life).await.unwrap_err();
    assert!(refused.to_string().contains("READONLY"), "{refused}");
    assert_eq!(decide(&store, &some_limit()).await, Err(StoreError::Down));
    server.client().say("REPLICAOF NO ONE");
    until_up(&store, BACK_WITHIN).await;
    assert_eq!(store.beat(1, Presence::There, life).await, Ok(1));
}
