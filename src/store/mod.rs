//! Where counters live: in this process, or in Redis, with one meaning.

pub mod batch;
pub mod memory;
pub mod settings;

pub use batch::{Check, Decided, DecidedBy};
pub use memory::MemoryStore;
pub use settings::{OnDown, RedisTarget, Secret, Settings, Source};
