//! Token bucket: a bucket of B tokens, full at first, refilled continuously at N per P. A request takes `n` tokens or
//! is refused. Twin: `lua/token_bucket.lua`.

use super::bucket::Bucket;
use super::rate::Rate;
use std::num::NonZeroU64;

/// A token bucket's numbers, ready to compute with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenBucket {
    /// The number of tokens that the bucket holds.
    pub burst: NonZeroU64,
    /// The tokens as time: the level is the time in which the bucket fills.
    pub bucket: Bucket,
}

impl TokenBucket {
    /// A bucket of `rate` with room for `burst` at once. The caller has checked `burst` against [`Rate::most_units`].
    #[must_use]
    pub fn new(rate: Rate, burst: NonZeroU64) -> Self {
        let bucket = Bucket::new(rate, burst.get());
        Self { burst, bucket }
    }
}
