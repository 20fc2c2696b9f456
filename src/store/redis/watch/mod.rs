//! The tasks of one node: its lanes, and the watch that makes it available, guards it, and makes it available again.
//!
//! In: a node. Out: an available node, or a log line with the reason for its unavailability.
//!
//! ```text
//! trial        is all there that the limits need?
//! succession   the way to another master, which first learns what requests have
//! replication  a worker that ends during a failover waits for replicas
//! probe        a look at a Redis before anything is counted there
//! eviction     servers that forget counters when memory is full
//! heartbeat    this gateway lives; how many others do?
//! ```

pub(super) mod eviction;
pub(super) mod heartbeat;
pub(super) mod probe;
pub(super) mod replication;
mod succession;
mod trial;

use super::batcher::Lane;
use super::cluster::router::Router;
use super::link::connection::{CONNECT_WITHIN, RedisConnection, within};
use super::link::reply;
use super::node::{Node, NodeHandle};
use super::queue::call_window::NEAR;
use crate::clock;
use crate::store::error::{StoreError, UNREADABLE};
use crate::telemetry::log::Throttle;
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::time::Duration;
use succession::bypass_queue;
use tokio::task::spawn_local;
use tokio::time::{Instant, sleep};

/// The pause between two attempts to use a node again, in milliseconds; jittered, since otherwise all gateways would
/// try at once.
const PAUSE: std::ops::Range<u64> = 100..250;
/// A node that stays available for less than this is unstable. It is tried again more slowly, though at least this
/// often.
const STEADY: Duration = Duration::from_secs(1);

/// The longest time of a trial of everything that the limits need: a few round trips.
const TRIED_WITHIN: Duration = Duration::from_secs(3);
/// The least time between two trials for counters that can be neither read nor written.
const AGAIN: Duration = Duration::from_secs(5);

/// Throttles the lines about a replaced master, since every worker detects it separately.
static REPLACED: Throttle = Throttle::every(Duration::from_secs(5));

/// Starts the tasks of a node. Must be called in a worker's own runtime, where tasks need not be `Send`.
pub(super) fn start(node: Rc<Node>, router: Option<Weak<Router>>) -> NodeHandle {
    let lane = Lane {
        node: Rc::clone(&node),
        router,
    };
    let mut tasks = vec![
        spawn_local(watch(lane.clone())),
        spawn_local(remind(Rc::clone(&node))),
        spawn_local(lane.clone().recruit()),
    ];
    for _ in 0..NEAR {
        tasks.push(spawn_local(lane.clone().run()));
    }
    NodeHandle::new(node, tasks)
}

/// Sends postponed updates when they are due, until the worker ends.
async fn remind(node: Rc<Node>) {
    loop {
        node.updates.remind().await;
    }
}

/// Makes the node available, watches it, and makes it available again, until the worker ends.
async fn watch(lane: Lane) {
    let node = &*lane.node;
    let mut brink = Duration::ZERO;
    loop {
        sleep(brink).await;
        while !node.health.is_up() {
            let era = node.health.era();
            let back = match attempt(&lane).await {
                Ok(()) => succession::come_back(&lane).await,
                Err(away) => Err(away),
            };
            match back {
                Ok(change) => node.come_up(change),
                Err(error) => {
                    if node.health.is_down() {
                        node.health.stays_down(&node.connections.explain(&error));
                    } else {
                        node.go_down(era, &error);
                    }
                    sleep(Duration::from_millis(fastrand::u64(PAUSE))).await;
                }
            }
        }
        let up = clock::now();
        watch_over(&lane).await;
        brink = if clock::now() - up < STEADY {
            (brink * 2).clamp(Duration::from_millis(PAUSE.start), STEADY)
        } else {
            Duration::ZERO
        };
    }
}

/// Tries everything that the limits need, if the server has not passed that, on a new connection if there is no other;
/// then makes a trial decision. In this order a command that the server does not know is named: the error about a
/// script's call repeats bytes of the call, which no client can read.
async fn attempt(lane: &Lane) -> Result<(), StoreError> {
    let node = &*lane.node;
    let mut connection = within(CONNECT_WITHIN, node.connections.take()).await?;
    let tag = node.probe_tag.borrow().clone();
    let passed = try_all(lane, &mut connection).await;
    passed.inspect_err(|_| connection.condemn())?;
    let start = node.lanes.window.send(0);
    let tried = trial::decide(&mut connection, &node.context.prefix, tag.as_deref());
    let tried = match within(node.context.timeout, tried).await {
        Ok(()) => {
            node.lanes.window.answer(start);
            Ok(())
        }
        // The node works, even if it serves other slots than the map states.
        Err(StoreError::Refused(reason)) if lane.is_redirected(&reason) => Ok(()),
        // A script that may not call a command may fail without naming it.
        Err(StoreError::Refused(reason)) if !reply::server_wide(&reason) => {
            node.context.target.trials.forget(&node.server());
            let named = try_all(lane, &mut connection).await;
            named.and(Err(StoreError::Refused(reason)))
        }
        Err(error) => Err(error),
    };
    tried.inspect_err(|_| connection.condemn())
}

/// Tries everything that the limits need, unless the server has already passed that.
async fn try_all(lane: &Lane, connection: &mut RedisConnection) -> Result<(), StoreError> {
    let node = &*lane.node;
    let (target, prefix) = (&node.context.target, &node.context.prefix);
    let server = node.server();
    node.lacks_rights.set(false);
    if target.trials.have_passed(&server) {
        return Ok(());
    }
    let tag = node.probe_tag.borrow().clone();
    let trial = target.trials.pass(&server, async |uses| {
        let tried = trial::run_trials(connection, target, prefix, tag.as_deref(), uses);
        within(TRIED_WITHIN, tried).await
    });
    match within(TRIED_WITHIN * 2, trial).await {
        Err(StoreError::Refused(reason)) if lane.is_redirected(&reason) => Ok(()),
        tried => {
            let lacks_rights = matches!(tried, Err(StoreError::Unpermitted(_)));
            node.lacks_rights.set(lacks_rights);
            tried
        }
    }
}

/// Tries everything that the limits need while the node is available. A node that refuses becomes unavailable.
async fn try_while_up(lane: &Lane) {
    let node = &*lane.node;
    let era = node.health.era();
    let Ok(mut connection) = within(CONNECT_WITHIN, node.connections.take()).await else {
        return;
    };
    let tried = try_all(lane, &mut connection).await;
    if let Err(error @ (StoreError::Refused(_) | StoreError::Unpermitted(_))) = tried {
        node.go_down(era, &error);
    }
}

/// Waits until the node is unavailable. A connection that ends while it is idle is replaced at once. If it cannot be
/// replaced, the node becomes unavailable, so that not even the first request waits.
async fn watch_over(lane: &Lane) {
    let node = &*lane.node;
    let connections = &node.connections;
    let trials = &node.context.target.trials;
    let mut wanted = trials.follow();
    let mut last = None;
    // It follows a sentinel's notifications, and is not created anew with each turn of the loop.
    let mut master_replaced = pin!(connections.master_replaced());
    while !node.health.is_down() {
        if connections.signals.is_untold() {
            master_changed(lane).await;
            continue;
        }
        if !trials.have_passed(&node.server()) {
            bypass_queue(node, try_while_up(lane)).await;
        }
        tokio::select! {
            () = node.health.fallen.notified() => {}
            _ = wanted.changed() => {}
            line = node.suspicion.wait() => {
                bypass_queue(node, look_at(lane, &line, &mut last)).await;
            }
            master = &mut master_replaced => {
                connections.renew_for(&master);
                master_replaced.set(connections.master_replaced());
            }
            () = connections.signals.replaced.notified() => {}
            () = connections.signals.lost.notified() => {
                let era = node.health.era();
                let renewed = within(CONNECT_WITHIN, connections.renew());
                if let Err(error) = bypass_queue(node, renewed).await {
                    node.go_down(era, &error);
                }
            }
        }
    }
}

/// Tries a node again if a counter could be neither read nor written, unless that was done just now. If the node
/// refuses nothing, the counter's key holds another value, and `line` is logged.
async fn look_at(lane: &Lane, line: &str, last: &mut Option<Instant>) {
    let node = &*lane.node;
    let now = clock::now();
    if last.is_none_or(|last| now - last >= AGAIN) {
        *last = Some(now);
        node.context.target.trials.forget(&node.server());
        try_while_up(lane).await;
    }
    if !node.health.is_down()
        && let Some(more) = UNREADABLE.pass()
    {
        tracing::warn!("{line}{more}");
    }
}

/// Switches to another master. It may lack the last counts of the former one. If the counts cannot be sent to the new
/// master, the master counts as unavailable.
async fn master_changed(lane: &Lane) {
    let node = &*lane.node;
    let era = node.health.era();
    report_master(node);
    if let Err(error) = succession::go_over(lane).await {
        node.go_down(era, &error);
    }
}

/// Notes that the master was replaced: cached refusals may not be valid there.
fn report_master(node: &Node) {
    node.context.stats.counters_changed();
    if let (Some(master), Some(more)) = (node.connections.master(), REPLACED.pass()) {
        let name = &node.health.outage.name;
        tracing::info!("{name} has another master: {master}{more}");
    }
}
