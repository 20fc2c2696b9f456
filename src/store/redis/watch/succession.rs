//! The switch to another master, which may lack the last moments of the former one. Before it is used for checks, this
//! worker's requests are registered with it, and the former one's last answered updates are sent to it again.
//!
//! Other workers and gateways learn of the new master at about the same time, and register their requests. A check
//! before that would find room that does not exist. So checks wait for a moment that is long enough for all, and much
//! shorter than `timeout`.

use crate::clock;
use crate::store::error::StoreError;
use crate::store::redis::batcher::Lane;
use crate::store::redis::link::connection::CONNECT_WITHIN;
use crate::store::redis::node::Node;
use std::convert::Infallible;
use tokio::time::{sleep_until, timeout_at};

/// Switches to the new master; no lane makes calls meanwhile. Decisions that use up their time are rejected.
///
/// # Errors
/// If the master cannot be reached for that.
pub(super) async fn go_over(lane: &Lane) -> Result<(), StoreError> {
    let node = &*lane.node;
    let change = node.connections.signals.changes();
    let done = bypass_queue(node, tell(lane)).await;
    if done.is_ok() {
        node.connections.signals.set_announced(change);
        node.lanes.wake();
    }
    done
}

/// Registers this worker's requests with a Redis that was unavailable, before it is used for checks. Returns the change
/// of masters at that time.
///
/// # Errors
/// If Redis has not returned after all.
pub(super) async fn come_back(lane: &Lane) -> Result<u64, StoreError> {
    let node = &*lane.node;
    let from = clock::now();
    let change = node.connections.signals.changes();
    node.updates.repeat_answered();
    node.updates.register().await;
    lane.pay().await?;
    if node.health.is_down() && node.connections.are_by_sentinels() {
        sleep_until(from + node.context.together()).await;
    }
    Ok(change)
}

/// Does `work`, and meanwhile rejects decisions that have used up their time.
pub(super) async fn bypass_queue<T>(node: &Node, work: impl Future<Output = T>) -> T {
    tokio::select! {
        done = work => done,
        never = turn_away(node) => match never {},
    }
}

async fn tell(lane: &Lane) -> Result<(), StoreError> {
    let node = &*lane.node;
    let from = clock::now();
    // The former master answers its pending calls.
    let ends = from + node.context.timeout;
    while node.lanes.serving.get() > 0 {
        let quiet = node.lanes.quiet.notified();
        if timeout_at(ends, quiet).await.is_err() {
            break;
        }
    }
    node.updates.repeat_answered();
    node.updates.register().await;
    // A late call would take slots of requests that have ended meanwhile.
    lane.pay_within(CONNECT_WITHIN).await?;
    sleep_until(from + node.context.together()).await;
    Ok(())
}

/// Rejects decisions that have used up their time, as long as no lane does so.
async fn turn_away(node: &Node) -> Infallible {
    loop {
        let next = node.queue.expire();
        sleep_until(next.unwrap_or_else(|| clock::now() + node.context.timeout)).await;
    }
}
