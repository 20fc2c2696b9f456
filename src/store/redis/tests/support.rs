//! Limits and servers for the tests of this room.
use crate::key::{KeyTemplate, Missing};
use crate::limit::rate::{Cost, Rate};
use crate::limit::token_bucket::TokenBucket;
use crate::limit::{Limit, Rule};
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;

pub(crate) fn rate(count: u32, period: u64) -> Rate {
    Rate {
        count: NonZeroU32::new(count).unwrap(),
        period: NonZeroU64::new(period).unwrap(),
    }
}

pub(crate) fn token_bucket(count: u32, period: u64, burst: u32) -> (Rate, Rule) {
    let rate = rate(count, period);
    let burst = NonZeroU32::new(burst).unwrap();
    (rate, Rule::TokenBucket(TokenBucket::new(rate, burst)))
}

pub(crate) fn limit(name: &str, (rate, rule): (Rate, Rule)) -> Arc<Limit> {
    let by = KeyTemplate {
        parts: Vec::new(),
        missing: Missing::Refuse,
    };
    Arc::new(Limit::new(name.into(), by, rate, rule, Cost::ONE))
}
