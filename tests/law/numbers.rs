//! Limits that are built from plain numbers, in units and microseconds.

use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;
use tollgate::clock::Timestamp;
use tollgate::key::{KeyCase, KeyTemplate, MissingKey};
use tollgate::limit::calendar::Calendar;
use tollgate::limit::clock_window::ClockWindow;
use tollgate::limit::concurrency::Concurrency;
use tollgate::limit::fixed_window::FixedWindow;
use tollgate::limit::leaky_bucket::LeakyBucket;
use tollgate::limit::rate::{Cost, Rate};
use tollgate::limit::sliding_log::SlidingLog;
use tollgate::limit::sliding_window::SlidingWindow;
use tollgate::limit::token_bucket::TokenBucket;
use tollgate::limit::{Limit, Policy, Rule};
use tollgate::store::Check;

/// The beginning of histories. It is in this century, so that instants are as large as those of a real clock.
pub(super) const NOON: Timestamp = Timestamp::from_micros(1_790_000_000_000_000);

/// One second.
pub(super) const SECOND: u64 = 1_000_000;

/// The rate N per P.
pub(super) fn rate(count: u64, period: u64) -> Rate {
    Rate {
        count: NonZeroU64::new(count).unwrap(),
        period: NonZeroU64::new(period).unwrap(),
    }
}

/// A token bucket of `burst`.
pub(super) fn token_bucket(count: u64, period: u64, burst: u64) -> (Rate, Rule) {
    let rate = rate(count, period);
    assert!(burst <= rate.most_units());
    let burst = NonZeroU64::new(burst).unwrap();
    (rate, Rule::TokenBucket(TokenBucket::new(rate, burst)))
}

/// A leaky bucket that lets `burst` requests go at once, and holds `queue` requests behind them for `max_wait`. A meter
/// has neither a queue nor a wait.
pub(super) fn leaky_bucket(
    (count, period): (u64, u64),
    burst: u64,
    queue: u64,
    max_wait: u64,
) -> (Rate, Rule) {
    let rate = rate(count, period);
    assert!(burst + queue <= rate.most_units());
    let burst = NonZeroU64::new(burst).unwrap();
    let rule = match queue {
        0 => LeakyBucket::meter(rate, burst),
        _ => LeakyBucket::new(rate, burst, u32::try_from(queue).unwrap(), max_wait),
    };
    (rate, Rule::LeakyBucket(rule))
}

/// A fixed window.
pub(super) fn fixed_window(count: u64, period: u64) -> (Rate, Rule) {
    let rate = rate(count, period);
    (rate, Rule::FixedWindow(FixedWindow::new(rate)))
}

/// A window that starts at `offset` after whole multiples of its length.
pub(super) fn clock_window(count: u64, period: u64, offset: u64) -> (Rate, Rule) {
    let rate = rate(count, period);
    (rate, Rule::ClockWindow(ClockWindow::by_clock(rate, offset)))
}

/// A window of the calendar: a number of days or months in a time zone.
pub(super) fn calendar(count: u64, calendar: Calendar) -> (Rate, Rule) {
    let rule = ClockWindow::by_calendar(count, Arc::new(calendar));
    (rate(count, 86_400 * SECOND), Rule::ClockWindow(rule))
}

/// A sliding window seen in `parts`.
pub(super) fn sliding_window(count: u64, period: u64, parts: u64, strict: bool) -> (Rate, Rule) {
    let rate = rate(count, period);
    assert_eq!(period % (1000 * parts), 0);
    assert!(count <= SlidingWindow::most(period / 1000 / parts));
    let parts = NonZeroU32::new(u32::try_from(parts).unwrap()).unwrap();
    let rule = SlidingWindow::new(rate, parts, strict);
    (rate, Rule::SlidingWindow(rule))
}

/// A sliding log.
pub(super) fn sliding_log(count: u64, period: u64) -> (Rate, Rule) {
    let rate = rate(count, period);
    (rate, Rule::SlidingLog(SlidingLog::new(rate)))
}

/// At most `max` in flight, with leases of `ttl`.
pub(super) fn concurrency(max: u64, ttl: u64) -> (Rate, Rule) {
    let most = NonZeroU32::new(u32::try_from(max).unwrap()).unwrap();
    let rule = Concurrency { max: most, ttl };
    (rate(max, ttl), Rule::Concurrency(rule))
}

/// The limit `name`. The test chooses its key.
pub(super) fn limit(name: &str, (rate, rule): (Rate, Rule)) -> Arc<Limit> {
    let by = KeyTemplate {
        parts: Vec::new(),
        missing: MissingKey::Refuse,
        unknown: None,
        case: KeyCase::Sensitive,
    };
    Arc::new(Limit::new(Policy::new(name.into(), by, rate), rule))
}

/// One limit of each algorithm, of `size` units in `seconds`. Buckets hold `size` units, which come back evenly.
pub(super) fn every(size: u64, seconds: u64) -> [Arc<Limit>; 9] {
    let period = seconds * SECOND;
    [
        limit("tokens", token_bucket(size, period, size)),
        limit("meter", leaky_bucket((size, period), size, 0, 0)),
        limit("queue", leaky_bucket((size, period), 1, size - 1, period)),
        limit("window", fixed_window(size, period)),
        limit("clock", clock_window(size, period, 0)),
        limit("sliding", sliding_window(size, period, 1, false)),
        limit("strict", sliding_window(size, period, 10, true)),
        limit("log", sliding_log(size, period)),
        limit("flight", concurrency(size, period)),
    ]
}

/// The question about `cost` of `limit`, from the client of most stories.
pub(super) fn ask(limit: &Arc<Limit>, cost: u64) -> Check<'_> {
    Check {
        limit,
        key: CLIENT,
        cost: Cost::new(cost),
        id: None,
    }
}

/// The key of the client, except in stories with several clients.
pub(super) const CLIENT: &[u8] = b"10.0.0.1";
