//! Tells Redis that this gateway lives, and hears how many do.

use super::RedisStore;
use super::layout::gateways_key;
use super::node::Shared;
use super::pool::Connection;
use super::reply;
use crate::store::error::StoreError;
use bb8_redis::redis::{Value, cmd};
use std::time::Duration;
use tokio::time::timeout;

/// Sent whole each time: it is short, goes every few seconds, and is then not among the scripts that decide.
const BEAT: &str = include_str!("../../../lua/beat.lua");

/// What a gateway tells of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sign {
    /// It is there.
    There,
    /// It goes.
    Goes,
}

impl RedisStore {
    /// Tells that `me` is there, or goes; says how many gateways have told so within `life`. Takes twice the settings'
    /// `timeout` at most.
    ///
    /// # Errors
    /// When Redis did not say.
    pub async fn beat(&self, me: u64, sign: Sign, life: Duration) -> Result<u32, StoreError> {
        let shared = &*self.first().await?;
        let era = shared.health.era();
        let told = match timeout(shared.timeout, shared.connections.take()).await {
            Ok(Ok(mut connection)) => {
                let told = timeout(
                    shared.timeout,
                    shared.tell_life(&mut connection, me, (sign, life)),
                );
                let told = told.await;
                if !matches!(told, Ok(Ok(_))) {
                    connection.condemn();
                }
                told
            }
            Ok(Err(error)) => Ok(Err(error)),
            Err(late) => Err(late),
        };
        let told = told.unwrap_or(Err(StoreError::Timeout {
            after: shared.timeout,
        }));
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
        StoreError::Timeout { .. } | StoreError::Lost(_) => true,
        StoreError::Refused(reason) => reply::server_wide(reason),
        _ => false,
    }
}

impl Shared {
    async fn tell_life(
        &self,
        connection: &mut Connection,
        me: u64,
        (sign, life): (Sign, Duration),
    ) -> Result<u32, StoreError> {
        let mut command = cmd("EVAL");
        command.arg(BEAT).arg(1).arg(gateways_key(&self.prefix));
        let life = life.as_micros().to_string();
        command.arg(&me.to_be_bytes()).arg(life).arg(match sign {
            Sign::There => "1",
            Sign::Goes => "0",
        });
        let wrong = StoreError::Protocol("not a number of gateways");
        match connection.send(&command).await? {
            Value::BulkString(bytes) => match <[u8; 4]>::try_from(&*bytes) {
                Ok(count) => Ok(u32::from_be_bytes(count)),
                Err(_) => Err(wrong),
            },
            _ => Err(wrong),
        }
    }
}
