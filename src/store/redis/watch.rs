//! The tasks of one node: its lanes, and the watch that brings it up, guards it, and brings it up again.

use super::batcher::Lane;
use super::call_window::NEAR;
use super::connection::{CONNECT_WITHIN, within};
use super::node::{Node, NodeHandle};
use super::router::Router;
use super::trial;
use crate::clock;
use crate::store::error::StoreError;
use crate::telemetry::log::Throttle;
use std::rc::{Rc, Weak};
use std::time::Duration;
use tokio::task::spawn_local;
use tokio::time::sleep;

/// Pause between two attempts to bring a node up, in milliseconds; jittered, or all gateways would ask at once.
const PAUSE: std::ops::Range<u64> = 100..250;
/// A node that stays up for less than this is unstable. It is tried again more slowly, though at least this often.
const STEADY: Duration = Duration::from_secs(1);

/// Limits the lines about a replaced master: every worker finds out by itself.
static REPLACED: Throttle = Throttle::every(Duration::from_secs(5));

/// Starts the tasks of a node. To be called in a worker's own runtime, where tasks need not be `Send`.
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

/// Sends updates again when their time has come, until the worker ends.
async fn remind(node: Rc<Node>) {
    loop {
        node.updates.remind().await;
    }
}

/// Brings the node up, watches over it, and brings it up again, until the worker ends.
async fn watch(lane: Lane) {
    let node = &*lane.node;
    let mut brink = Duration::ZERO;
    loop {
        sleep(brink).await;
        while !node.health.is_up() {
            let era = node.health.era();
            let back = match attempt(&lane).await {
                Ok(()) => {
                    node.updates.repeat_answered();
                    lane.pay().await
                }
                away => away,
            };
            match back {
                Ok(()) => node.come_up(),
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
        watch_over(node).await;
        brink = if clock::now() - up < STEADY {
            (brink * 2).clamp(Duration::from_millis(PAUSE.start), STEADY)
        } else {
            Duration::ZERO
        };
    }
}

/// Makes a trial decision, on a new connection if there is no other.
async fn attempt(lane: &Lane) -> Result<(), StoreError> {
    let node = &*lane.node;
    let mut connection = within(CONNECT_WITHIN, node.connections.take()).await?;
    let tag = node.probe_tag.borrow().clone();
    let start = node.lanes.window.send(0);
    let tried = trial::decide(&mut connection, &node.context.prefix, tag.as_deref());
    match within(node.context.timeout, tried).await {
        Ok(()) => {
            node.lanes.window.answer(start);
            Ok(())
        }
        // The node serves, even if other slots than the map names.
        Err(StoreError::Refused(reason)) if lane.is_redirected(&reason) => Ok(()),
        Err(error) => {
            connection.condemn();
            Err(error)
        }
    }
}

/// Waits until the node is down. A connection that ends while it is idle is replaced at once. Where it cannot be
/// replaced, the node is down, so that not even the first request waits.
async fn watch_over(node: &Node) {
    let connections = &node.connections;
    while !node.health.is_down() {
        tokio::select! {
            () = node.health.fallen.notified() => {}
            master = connections.master_replaced() => {
                connections.renew_for(master);
                master_changed(node);
            }
            () = connections.signals.replaced.notified() => master_changed(node),
            () = connections.signals.lost.notified() => {
                let era = node.health.era();
                if let Err(error) = within(CONNECT_WITHIN, connections.renew()).await {
                    node.go_down(era, &error);
                }
            }
        }
    }
}

/// Notes that the master is another. The last counts of the former one may be missing, and what it answered last is
/// sent again.
fn master_changed(node: &Node) {
    node.context.stats.counters_changed();
    node.updates.repeat_answered();
    if let (Some(master), Some(more)) = (node.connections.master(), REPLACED.pass()) {
        let name = &node.health.outage.name;
        tracing::info!("{name} has another master: {master}{more}");
    }
}
