//! Where counters live: in this process, or in Redis, with one meaning.

pub mod batch;
pub mod error;
pub mod memory;
pub mod redis;
pub mod settings;

pub use batch::{Charge, Check, Decided, DecidedBy};
pub use error::StoreError;
pub use memory::MemoryStore;
pub use settings::{OnDown, RedisTarget, Secret, Settings, Source};

use redis::RedisStore;
use std::sync::Arc;

/// A worker's way to the counters. Cheap to clone; stays on the worker's thread.
#[derive(Debug, Clone)]
pub enum Store {
    /// All in this process.
    Memory(Arc<MemoryStore>),
    /// Shared with other gateways, and what to do without them.
    Redis {
        /// The shared counters.
        shared: RedisStore,
        /// This process's own, for when Redis is away.
        local: Arc<MemoryStore>,
        /// What a limit does then.
        on_down: OnDown,
    },
}

impl Store {
    /// Decides all limits of one request at once. No decision means: let it pass, nobody could say.
    ///
    /// # Errors
    /// When the store is away and `on_down` is `closed`.
    pub async fn decide(&self, checks: &[Check<'_>]) -> Result<(Option<Decided>, DecidedBy), StoreError> {
        let (shared, local, on_down) = match self {
            Self::Memory(memory) => return Ok((Some(memory.decide(checks)), DecidedBy::Memory)),
            Self::Redis { shared, local, on_down } => (shared, local, on_down),
        };
        match (shared.decide(checks).await, on_down) {
            (Ok(decided), _) => Ok((Some(decided), DecidedBy::Redis)),
            (Err(_), OnDown::Local) => Ok((Some(local.decide(checks)), DecidedBy::Local)),
            (Err(_), OnDown::Open) => Ok((None, DecidedBy::Open)),
            (Err(error), OnDown::Closed) => Err(error),
        }
    }

    /// Gives a charge back to whoever took it, as far as nobody counts on it. Nobody waits for it.
    pub fn refund(&self, charge: Charge, by: DecidedBy) {
        match (self, by) {
            (Self::Memory(memory) | Self::Redis { local: memory, .. }, DecidedBy::Memory | DecidedBy::Local) => {
                memory.refund(&charge.limit, &charge.key, charge.ticket);
            }
            (Self::Redis { shared, .. }, DecidedBy::Redis) => shared.refund(charge),
            (Self::Memory(_), DecidedBy::Redis) | (_, DecidedBy::Open) => {}
        }
    }
}
