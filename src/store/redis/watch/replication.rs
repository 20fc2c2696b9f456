//! Shutdown of a worker with a master that sentinels watch. A master that is being replaced answers until the gateways
//! learn of the new one, and its updates since then are lost. A worker that stays sends them to the new one again
//! (`succession`); a worker that ends would learn of it too late. So it checks whether a replica has its last updates.
//! If none has, the worker stays until the sentinels have had time to name another master.

use crate::clock;
use crate::store::redis::link::pool::CONNECTIONS;
use crate::store::redis::node::Node;
use bb8_redis::redis::{Value, cmd};
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Longest wait for a replica: its answer takes a round trip between the two servers.
const ACKNOWLEDGED: Duration = Duration::from_millis(250);
/// Time in which sentinels name another master, once the replica has been promoted.
const NAMED: Duration = Duration::from_secs(2);
/// The interval of checks for another master.
const LOOK: Duration = Duration::from_millis(10);

/// Waits until a server that outlives the master has this worker's last updates, for a few seconds at most.
pub(crate) async fn outlive_master(node: &Node) {
    let is_asked = node.health.is_up() && node.connections.are_by_sentinels();
    if !is_asked || !node.updates.answered.has_any() || is_replicated(node).await {
        return;
    }
    let signals = &node.connections.signals;
    let (change, ends) = (signals.changes(), clock::now() + NAMED);
    while clock::now() < ends {
        if signals.changes() != change && !signals.is_untold() {
            return node.settled().await;
        }
        sleep(LOOK).await;
    }
}

/// Has a replica everything that was written on each of the connections? A user without the permission gets no answer.
async fn is_replicated(node: &Node) -> bool {
    let mut question = cmd("WAIT");
    question.arg(1).arg(ACKNOWLEDGED.as_millis());
    for _ in 0..CONNECTIONS {
        let Ok(Ok(mut connection)) = timeout(ACKNOWLEDGED, node.connections.take()).await else {
            return false;
        };
        // The answer that no replica has it arrives at the end of the time.
        match timeout(ACKNOWLEDGED * 2, connection.send(&question)).await {
            Ok(Ok(Value::Int(0))) | Err(_) => return false,
            Ok(Ok(_) | Err(_)) => {}
        }
    }
    true
}
