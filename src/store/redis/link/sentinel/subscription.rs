//! The notifications of a sentinel about a new master. All gateways that subscribe learn of the change at the same
//! moment, and then count at the same master.
//!
//! A notification is only a reason to query the sentinel at once. So its content is not read, and a sentinel that
//! forbids subscriptions is queried every second, no more often.

use crate::store::error::StoreError;
use crate::store::redis::link::login::auth;
use crate::store::redis::link::transport::{RedisDestination, RedisStream, dial};
use crate::store::settings::RedisTarget;
use bb8_redis::redis::cmd;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// The pause after a notification that brought no other master: a sentinel is not queried more often for any number of
/// notifications.
pub(super) const PAUSE: Duration = Duration::from_millis(20);

/// The channels that announce another master: its promotion, and the switch of all others to it.
const CHANNELS: [&str; 2] = ["+promoted-slave", "+switch-master"];

/// Subscribes to the notifications of the sentinel that is this target.
pub(super) async fn follow(sentinel: &RedisTarget) -> Result<RedisStream, StoreError> {
    let mut stream = dial(RedisDestination::of(sentinel)).await?;
    let mut words = Vec::new();
    if let Some(auth) = auth(sentinel) {
        words.extend(auth.get_packed_command());
    }
    words.extend(cmd("SUBSCRIBE").arg(&CHANNELS).get_packed_command());
    let written = stream.write_all(&words).await;
    written.map_err(|error| StoreError::Lost(error.to_string().into()))?;
    Ok(stream)
}

/// Waits for a notification, or for the end of the subscription.
pub(super) async fn next_message(subscription: Option<&mut Option<RedisStream>>) {
    let Some(subscription) = subscription else {
        return std::future::pending().await;
    };
    let Some(stream) = subscription else {
        return std::future::pending().await;
    };
    if !matches!(stream.read(&mut [0; 1024]).await, Ok(1..)) {
        *subscription = None;
    }
}
