//! Tells Redis that this gateway lives, and hears how many do.

use super::RedisStore;
use super::batcher::in_time;
use super::layout::gateways_key;
use super::node::NodeCore;
use super::pool::{CONNECT_WITHIN, Connection};
use super::reply;
use crate::store::error::StoreError;
use bb8_redis::redis::{Value, cmd};
use std::time::Duration;
use tokio::time::timeout;

/// Sent whole each time: it is short, goes every few seconds, and is then not among the scripts that decide.
const BEAT: &str = include_str!("../../../lua/heartbeat.lua");

/// What a gateway tells of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// It is there.
    There,
    /// It goes.
    Goes,
}

impl RedisStore {
    /// Tells that `me` is there, or goes; says how many gateways have told so within `life`. It goes between the calls that
    /// are under way, and counts against the server only if no call was answered since. Takes a second and twice the
    /// settings' `timeout` at most.
    ///
    /// # Errors
    /// When Redis did not say.
    pub async fn beat(&self, me: u64, sign: Presence, life: Duration) -> Result<u32, StoreError> {
        let shared = &*self.first().await?;
        let era = shared.health.era();
        let told = match timeout(CONNECT_WITHIN, shared.connections.take()).await {
            Ok(Ok(mut connection)) => {
                let sent = shared.pace.send(shared.busy.get());
                let until = shared.pace.patience(sent);
                let told = shared.tell_life(&mut connection, me, (sign, life));
                let told = in_time(until, told).await;
                let told = told.unwrap_or_else(|| Err(shared.late()));
                if is_its_fault(&told) {
                    connection.condemn();
                }
                match told {
                    Err(StoreError::Timeout { .. }) if shared.pace.lives_since(sent) => {
                        Err(StoreError::Overloaded)
                    }
                    told => told,
                }
            }
            Ok(Err(error)) => Err(error),
            Err(_) => Err(StoreError::Timeout {
                after: CONNECT_WITHIN,
            }),
        };
        if let Err(StoreError::Refused(reason)) = &told
            && shared.is_redirected(reason)
        {
            // By the next time it is known who serves it.
            return Err(StoreError::Down);
        }
        if let Err(error) = &told
            && is_of_server(error)
        {
            // Not even the next request has to find that out.
            shared.fall(era, error);
        }
        told
    }
}

/// Would the next request be told the same?
fn is_of_server(error: &StoreError) -> bool {
    match error {
        // Where only the connection was lost, whoever takes the next finds out.
        StoreError::Timeout { .. } | StoreError::Unreachable(_) => true,
        StoreError::Refused(reason) => reply::server_wide(reason),
        _ => false,
    }
}

/// Is the connection of no use after this? One that brings a server's refusal works, unless it leads to a server that is
/// no master any more.
fn is_its_fault(told: &Result<u32, StoreError>) -> bool {
    match told {
        Ok(_) => false,
        Err(StoreError::Refused(reason)) => reply::is_read_only(reason),
        Err(_) => true,
    }
}

impl NodeCore {
    async fn tell_life(
        &self,
        connection: &mut Connection,
        me: u64,
        (sign, life): (Presence, Duration),
    ) -> Result<u32, StoreError> {
        let mut command = cmd("EVAL");
        command.arg(BEAT).arg(1).arg(gateways_key(&self.prefix));
        let life = life.as_micros().to_string();
        command.arg(&me.to_be_bytes()).arg(life).arg(match sign {
            Presence::There => "1",
            Presence::Goes => "0",
        });
        let wrong = StoreError::Protocol("not a number of gateways");
        let answer = connection
            .send(&command)
            .await
            .map_err(|error| match error {
                StoreError::Refused(reason) if reason.contains("WRONGTYPE") => {
                    let key = gateways_key(&self.prefix);
                    StoreError::Refused(format!("WRONGTYPE: something else lives at {key}").into())
                }
                error => error,
            });
        match answer? {
            Value::BulkString(bytes) => match <[u8; 4]>::try_from(&*bytes) {
                Ok(count) => Ok(u32::from_be_bytes(count)),
                Err(_) => Err(wrong),
            },
            _ => Err(wrong),
        }
    }
}
