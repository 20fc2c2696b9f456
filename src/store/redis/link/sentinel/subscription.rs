//! The news of a sentinel: it says by itself that another master leads. All gateways that follow it hear of that at the
//! same moment, and count at the same master.
//!
//! Whatever a sentinel says is only a cause to ask it at once. So its words are not read, and a sentinel that lets nobody
//! follow its news is asked every second, no more.

use crate::store::error::StoreError;
use crate::store::redis::link::login::auth;
use crate::store::redis::link::transport::{RedisDestination, RedisStream, dial};
use crate::store::settings::RedisTarget;
use bb8_redis::redis::cmd;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Pause behind news that brought no other master: however much a sentinel says, it is not asked more often.
pub(super) const PAUSE: Duration = Duration::from_millis(20);

/// The news that tell of another master: it has been promoted, and all others follow it.
const CHANNELS: [&str; 2] = ["+promoted-slave", "+switch-master"];

/// Follows the news of the sentinel that is this target.
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

/// Waits for news, or for their end.
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
