//! Leases: several permits taken in one call and spent by the gateway itself. This file has the rules that make leases
//! exact: the limits that allow leases, the number of permits, and their end.
//!
//! A limit with leases admits no more than it would without leases:
//!
//! 1. A permit is charged at the counter when it is taken. A request uses the permit later.
//! 2. If the counter loses no part of the charge between those two instants, its later state is the same as if the
//!    charge had been made when the permit is used. The request is then counted when it arrives, as without leases.
//! 3. A window loses a charge at the end of the window, a sliding window at the end of the charge's part and later.
//!    Permits of a window end before that ([`LeaseTerms::permits`]).
//! 4. A bucket loses a charge only while the bucket would be empty without it. Permits of a bucket last for as long as
//!    the rest of the bucket takes to drain, unused permits not counted. Permits of others raise the level, and do not
//!    shorten that time.
//! 5. Unused permits of a window are given back while the window still has their charge. Permits of a bucket expire.
//! 6. A refund lowers a bucket's level. A bucket with leases refunds only charges of requests that were not forwarded
//!    ([`Limit::abandoned`]). Other limits with refunds allow no leases ([`Limit::why_unleased`]).
//! 7. The bucket without such a charge may have been empty since the charge was made. Permits that were taken while the
//!    charge was present depend on it until they end, at most 100 ms after the refund. So a part of the charge stays:
//!    as much as drains from the instant of the charge until 100 ms after the refund. Only the rest is refunded.
//! 8. A call that takes permits leaves a state without history. If the history of a bucket begins at least 100 ms
//!    before the charge, no permit has been valid since the charge. Step 7 then does not apply, and the whole charge is
//!    refunded.

use super::bucket::Bucket;
use super::clock_window::Anchor;
use super::leaky_bucket::LeakyBucket;
use super::rate::{Cost, Interval, MOST_OF_FOUR_BYTES, Span};
use super::token_bucket::TokenBucket;
use super::verdict::Measurement;
use super::{ChargeKind, Limit, Rule, Scope};
use crate::clock::Timestamp;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

/// Longest life of permits, in microseconds.
pub(super) const LONGEST: u64 = 100_000;
/// Least life of permits: a shorter one is not worth a call.
const SHORTEST: u64 = 5_000;
/// One worker may have the quota divided by this number.
const SHARE: u64 = 100;
/// Least quota for which leases are worthwhile.
const LEAST: u64 = 1000;
/// A worker that found a bucket empty calls again when this number of units have returned, for all its requests
/// together.
const WORTHWHILE: u64 = 100;
/// Margin for clocks: even disciplined clocks run at slightly different speeds.
const MARGIN: u64 = 1_000;

/// The file's setting for leases of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum LeaseSetting {
    /// If a key is busy, as many permits as are used soon.
    #[default]
    Auto,
    /// No leases.
    Off,
    /// Like `Auto`, at most this number of permits.
    Most(NonZeroU32),
}

/// The terms on which a limit gives leases.
#[derive(Debug)]
pub struct LeaseTerms {
    /// The limit for calls about several permits: it grants as many as are available.
    pub asks: Arc<Limit>,
    /// The most permits that one worker has.
    pub most: u32,
    /// The least life of permits, in microseconds. Except for buckets, it is also the longest life.
    pub life: u64,
    /// The pause of a worker that was given fewer permits than requested: units that return gradually are taken in one
    /// call.
    pub pause: u64,
}

impl fmt::Display for LeaseSetting {
    /// The setting as the file writes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Off => f.write_str("off"),
            Self::Most(most) => most.fmt(f),
        }
    }
}

impl Limit {
    /// The terms on which the limit gives leases, if it does.
    #[must_use]
    pub fn leases(&self) -> Option<&LeaseTerms> {
        let terms = self.variants.lease.get_or_init(|| self.make_terms());
        terms.as_ref()
    }

    fn make_terms(&self) -> Option<LeaseTerms> {
        if self.leasing == LeaseSetting::Off || self.why_unleased().is_some() {
            return None;
        }
        let (life, pause) = self.rule.permit_life()?;
        let quota = self.quota();
        let most = match (self.leasing, self.rule.interval()) {
            (LeaseSetting::Most(most), _) => u64::from(most.get()).min(quota / 2),
            (_, Some(interval)) => (quota / SHARE).max(interval.units_in(Span::micros(life))),
            (_, None) => quota / SHARE,
        };
        Some(LeaseTerms {
            asks: self.variant(ChargeKind::Permits, self.rule.clone()),
            most: u32::try_from(most).unwrap_or(u32::MAX),
            life,
            pause,
        })
    }

    /// The units that the limit has at once, or in its period if that is less.
    fn quota(&self) -> u64 {
        self.rule.most().min(self.rate.count.get())
    }

    /// The cause for which the limit allows no leases even if the file requests them; `None` if it can.
    #[must_use]
    pub fn why_unleased(&self) -> Option<&'static str> {
        let least = match self.leasing {
            LeaseSetting::Most(_) => 4,
            LeaseSetting::Auto | LeaseSetting::Off => LEAST,
        };
        Some(match &self.rule {
            _ if !self.mode.decides() => "a limit that only counts is charged with each request",
            _ if self.scope == Scope::Gateway => "it is counted in this gateway's memory anyhow",
            Rule::Concurrency(_) => "a slot is one request",
            Rule::SlidingLog(_) => "a log enters the instant of each request",
            rule if rule.queues() => "each place in a queue has its own wait",
            _ if self.cost != Cost::ONE || self.price.is_some() => "each permit is one unit",
            _ if self.may_correct() => "charges that come back need a call each",
            _ if self.partial => "the remainder is granted to each request by itself",
            _ if self.blocking.is_some() => "a refusal blocks its key, and must be known at once",
            _ if self.dedupe.is_some() => "ids are remembered with each request",
            _ if self.quota() < least => {
                "it allows so few requests that unused permits would matter"
            }
            rule if rule.permit_life().is_none() => "its time is too short to keep permits in",
            _ => return None,
        })
    }
}

impl LeaseTerms {
    /// The number of units to take in addition to the permits, so that the permits last. A bucket with a level of at
    /// least `level` (in microseconds) drains for that long in any case.
    #[must_use]
    pub fn padding(&self, level: u64) -> u32 {
        let lacks = self.life.saturating_sub(level);
        let units = self.asks.rule.interval().map_or(0, |interval| {
            let units = interval.units_in(Span::micros(lacks));
            units + u64::from(interval.times(units) < Span::micros(lacks))
        });
        u32::try_from(units).unwrap_or(u32::MAX)
    }

    /// The part of `units` that may be used later, and the time for which it may be used, in microseconds from `at`.
    /// The units were charged at `at`, when the counter then held `measured`.
    #[must_use]
    pub fn permits(&self, units: u32, measured: Measurement, at: Timestamp) -> (u32, u64) {
        let (permits, lasting) = match (&self.asks.rule, self.asks.rule.interval()) {
            (_, Some(interval)) => {
                let held = Span::micros(measured.span.whole);
                let free = interval
                    .sub(held, Span::micros(self.life))
                    .unwrap_or_default();
                let fit = interval.units_in(free).min(u64::from(units));
                let rest = interval.sub(held, interval.times(fit)).unwrap_or_default();
                (u32::try_from(fit).unwrap_or(units), rest.whole)
            }
            (Rule::SlidingWindow(rule), _) => {
                let (_, end) = rule.part_at(at);
                (units, end.saturating_sub(at.micros()).min(self.life))
            }
            _ => (units, measured.span.whole.min(self.life)),
        };
        let lasting = lasting.min(LONGEST).saturating_sub(MARGIN);
        (if lasting == 0 { 0 } else { permits }, lasting)
    }

    /// The longest life of permits, in microseconds.
    #[must_use]
    pub fn longest(&self) -> u64 {
        match self.asks.rule.interval() {
            Some(_) => LONGEST,
            None => self.life,
        }
    }

    /// Are unused permits given back? Permits of a bucket expire.
    #[must_use]
    pub fn give_back(&self) -> bool {
        self.asks.rule.interval().is_none()
    }

    /// Does the remainder return gradually, rather than all at once?
    #[must_use]
    pub fn trickles(&self) -> bool {
        self.pause > 0
    }
}

impl Rule {
    /// The life of permits and the pause after a shortage, if leases are possible.
    fn permit_life(&self) -> Option<(u64, u64)> {
        let (life, pause) = match self {
            Self::TokenBucket(TokenBucket { bucket, .. })
            | Self::LeakyBucket(LeakyBucket {
                bucket, queue: 0, ..
            }) => {
                let Bucket {
                    capacity, interval, ..
                } = bucket;
                let pause = interval.times(WORTHWHILE).whole;
                let longest = (capacity.whole / 8).clamp(1, LONGEST / 2);
                let life = (capacity.whole / 16).min(LONGEST / 4);
                (life, pause.clamp(1, longest))
            }
            Self::FixedWindow(rule) => (rule.window / 10, 0),
            Self::ClockWindow(rule) => match rule.anchor {
                Anchor::Clock { window, .. } => (window / 10, 0),
                Anchor::Calendar(_) => (LONGEST, 0),
            },
            Self::SlidingWindow(rule) => {
                let life = rule.part * 1000 / 10;
                (life, life.min(LONGEST / 2))
            }
            Self::LeakyBucket(_) | Self::SlidingLog(_) | Self::Concurrency(_) => return None,
        };
        // The units of one call are counted in four bytes.
        let units = |interval: Interval| interval.units_in(Span::micros(life));
        let units = self.interval().map_or(0, units);
        let is_possible = life >= SHORTEST && units <= MOST_OF_FOUR_BYTES / 2;
        is_possible.then_some((life.min(LONGEST), pause))
    }

    /// One unit's time, if the rule is a bucket.
    fn interval(&self) -> Option<Interval> {
        self.bucket().map(|bucket| bucket.interval)
    }
}
