//! Reports to Redis that this gateway is alive, and reads the number of live gateways.

use crate::store::error::StoreError;
use crate::store::redis::RedisStore;
use crate::store::redis::batcher::call_timer::CallTimer;
use crate::store::redis::link::connection::{CONNECT_WITHIN, within};
use crate::store::redis::link::reply;
use crate::store::redis::node::Node;
use crate::store::redis::wire::layout::gateways_key;
use bb8_redis::redis::{Cmd, Value, cmd};
use std::time::Duration;

/// The script is sent whole each time: it is short and is sent every few seconds. So it is not among the scripts that
/// decide.
const BEAT: &str = include_str!("../../../../lua/heartbeat.lua");

const NO_NUMBER: StoreError = StoreError::Protocol("not a number of gateways");

/// A gateway's report of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// The gateway is alive.
    There,
    /// The gateway leaves.
    Goes,
}

impl RedisStore {
    /// Reports that gateway `me` is alive, or leaves. Returns the number of gateways that have reported within `life`.
    /// The report is sent between current calls, and counts against the server only if no call was answered since. It
    /// takes at most a second and twice the settings' `timeout`.
    ///
    /// # Errors
    /// If Redis did not answer.
    pub async fn beat(
        &self,
        me: u64,
        presence: Presence,
        life: Duration,
    ) -> Result<u32, StoreError> {
        let node = &*self.everyone().await?.node;
        let era = node.health.era();
        let command = command(&node.context.prefix, me, presence, life);
        let counted = node.beat(&command).await;
        if let Err(StoreError::Refused(reason)) = &counted
            && self.router.is_redirected(node, reason)
        {
            // By the next heartbeat, the node that serves the key is known.
            return Err(StoreError::Down);
        }
        if let Err(error) = &counted
            && is_of_server(error)
        {
            // The store becomes unavailable now, so that not even the next request has to detect the outage.
            node.go_down(era, error);
        }
        counted
    }
}

impl Node {
    async fn beat(&self, command: &Cmd) -> Result<u32, StoreError> {
        let mut connection = within(CONNECT_WITHIN, self.connections.take()).await?;
        let window = &self.lanes.window;
        let start = window.send(self.lanes.busy());
        let asking = connection.send(command);
        let mut timer = CallTimer::default();
        let answer = timer.in_time(window.patience(start), asking).await;
        let counted = answer
            .unwrap_or_else(|| Err(self.late()))
            .map_err(|error| explain(error, &self.context.prefix))
            .and_then(count);
        if is_of_connection(&counted) {
            connection.condemn();
        }
        match counted {
            Err(StoreError::Timeout { .. }) if window.lives_since(start) => {
                Err(StoreError::Overloaded)
            }
            counted => counted,
        }
    }
}

fn command(prefix: &str, me: u64, presence: Presence, life: Duration) -> Cmd {
    let mut command = cmd("EVAL");
    command.arg(BEAT).arg(1).arg(gateways_key(prefix));
    let life = life.as_micros().to_string();
    command
        .arg(&me.to_be_bytes())
        .arg(life)
        .arg(match presence {
            Presence::There => "1",
            Presence::Goes => "0",
        });
    command
}

/// The error, with the key if it holds another value.
fn explain(error: StoreError, prefix: &str) -> StoreError {
    match error {
        StoreError::Refused(reason) if reason.contains("WRONGTYPE") => {
            let key = gateways_key(prefix);
            StoreError::Refused(format!("WRONGTYPE: something else lives at {key}").into())
        }
        error => error,
    }
}

/// The number of gateways.
fn count(answer: Value) -> Result<u32, StoreError> {
    let Value::BulkString(bytes) = answer else {
        return Err(NO_NUMBER);
    };
    let bytes = <[u8; 4]>::try_from(&*bytes).map_err(|_| NO_NUMBER)?;
    Ok(u32::from_be_bytes(bytes))
}

/// Would the next request have the same error?
fn is_of_server(error: &StoreError) -> bool {
    match error {
        // If only the connection was lost, the next connection shows whether the server is available.
        StoreError::Timeout { .. } | StoreError::Unreachable(_) => true,
        StoreError::Refused(reason) => reply::server_wide(reason),
        _ => false,
    }
}

/// Is the connection useless after this error? A connection that carries a server's refusal works, unless it leads to a
/// server that is no longer a master.
fn is_of_connection(counted: &Result<u32, StoreError>) -> bool {
    match counted {
        Ok(_) => false,
        Err(StoreError::Refused(reason)) => reply::is_read_only(reason),
        Err(_) => true,
    }
}
