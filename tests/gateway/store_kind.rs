//! The place of counters, as a parameter, so that one test covers both stores.

use crate::support::{File, Gateway, Redis};

/// The place of a test's counters.
pub(super) struct Place {
    redis: Option<Redis>,
}

impl Place {
    pub(super) fn memory() -> Self {
        Self { redis: None }
    }

    pub(super) async fn redis() -> Self {
        Self {
            redis: Some(Redis::start().await),
        }
    }

    /// Are refusals remembered here? If so, answers lack the numbers of limits that were not asked again.
    pub(super) fn remembers(&self) -> bool {
        self.redis.is_some()
    }

    /// Forgets all counters of gateways that have ended. Counters in memory have ended with them.
    pub(super) async fn empty(&self) {
        if let Some(redis) = &self.redis {
            redis.command::<()>(&["FLUSHALL"]).await;
        }
    }

    /// Starts a gateway that counts here. Its timeouts are long, since a loaded machine must not look like a lost
    /// Redis.
    pub(super) async fn gateway(&self, file: File) -> Gateway {
        let file = match &self.redis {
            Some(redis) => file.redis(redis, "timeout = \"2s\"\non_down = \"closed\""),
            None => file,
        };
        Gateway::start(&file).await
    }
}

/// Runs each story with the memory store, and then with Redis.
macro_rules! on_both_stores {
    ($($story:ident)*) => {
        mod memory {
            $(#[tokio::test] async fn $story() { super::$story(crate::gateway::store_kind::Place::memory()).await; })*
        }
        mod redis {
            $(#[tokio::test] async fn $story() { super::$story(crate::gateway::store_kind::Place::redis().await).await; })*
        }
    };
}
pub(super) use on_both_stores;
