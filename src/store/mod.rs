//! Where counters live: in this process, or in Redis, with one meaning.

pub mod batch;
pub mod error;
pub mod redis;
pub mod settings;

pub use batch::{Check, Decided, Measurements, Refund};
pub use error::StoreError;
pub use redis::RedisStore;
pub use settings::{OnDown, RedisTarget, Secret, Settings, Source};
