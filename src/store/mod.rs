//! Where counters live: in this process, or in Redis, with one meaning.

pub mod settings;

pub use settings::{OnDown, RedisTarget, Secret, Settings, Source};
