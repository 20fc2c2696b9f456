//! The part of a counter's name besides its key: the limit's name, and the properties that its count depends on.

use std::fmt;

/// Identity of a limit's counters: a hash of its name, [`RuleKind`] and [`Scope`], the same in every process and
/// generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LimitId(pub u64);

impl LimitId {
    /// The identity of the counters of limit `name` under `kind`.
    #[must_use]
    pub fn of(name: &str, kind: RuleKind, scope: Scope) -> Self {
        use std::hash::{BuildHasher, Hasher};
        let mut hasher = foldhash::quality::FixedState::with_seed(0x7011_6a7e).build_hasher();
        hasher.write(name.as_bytes());
        hasher.write_u8(0);
        hasher.write(kind.to_string().as_bytes());
        // A gateway's own count differs from its count while Redis is unavailable.
        hasher.write_u8(u8::from(scope == Scope::Gateway));
        Self(hasher.finish())
    }

    /// The identity of the counters of a limit's tier for a group.
    #[must_use]
    pub fn of_group(self, group: &str) -> Self {
        use std::hash::{BuildHasher, Hasher};
        let mut hasher = foldhash::quality::FixedState::with_seed(self.0).build_hasher();
        hasher.write(group.as_bytes());
        Self(hasher.finish())
    }

    /// The identity of counters under a tag.
    #[must_use]
    pub fn of_tag(self, tag: &str) -> Self {
        // No group's name contains this byte.
        self.of_group(&format!("{{{tag}}}"))
    }

    /// The identity of the counters of a limit's candidate.
    #[must_use]
    pub const fn of_candidate(self) -> Self {
        Self(self.0.rotate_left(29) ^ 0x5bd1_e995_9e37_79b9)
    }
}

/// The gateways that count together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// All gateways that share a store.
    Cluster,
    /// Each gateway separately, in its memory.
    Gateway,
}

/// The properties, besides the limit's name, that a counter's meaning depends on. A change of the kind starts a new
/// counter.
///
/// Written into every key: `tb` and `lb`, or `tbs` and `lbs` where charges are settled or the store is a cluster; `fw`,
/// `sw` and `sl` with the window in microseconds, or its calendar unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RuleKind {
    /// Token bucket: a state names the numbers that it was written with.
    TokenBucket,
    /// Leaky bucket: as a meter like a token bucket; as a queue the instant at which it is empty again has the same
    /// meaning under any numbers.
    LeakyBucket,
    /// A token bucket in a list of rates, which are distinguished by their period.
    TokenBucketOver {
        /// P in microseconds.
        period: u64,
    },
    /// A leaky bucket in a list of rates, which are distinguished by their period.
    LeakyBucketOver {
        /// P in microseconds.
        period: u64,
    },
    /// A token bucket whose charges may come back or be settled: its states have a history.
    SettledTokenBucket {
        /// P in microseconds, in a list of rates.
        period: Option<u64>,
    },
    /// A leaky bucket without a queue whose charges may come back or be settled.
    SettledLeakyBucket {
        /// P in microseconds, in a list of rates.
        period: Option<u64>,
    },
    /// Fixed window, with any anchor: a count has a meaning only in its window.
    FixedWindow {
        /// Length in microseconds.
        window: u64,
    },
    /// Fixed window of this number of days, weeks or months of the calendar.
    Calendar {
        /// Days, weeks or months.
        unit: Unit,
        /// The number of days, weeks or months.
        many: u32,
    },
    /// Sliding window, with any number of parts.
    SlidingWindow {
        /// Length in microseconds.
        window: u64,
    },
    /// Sliding log.
    SlidingLog {
        /// Length in microseconds.
        window: u64,
    },
    /// Requests in flight.
    Concurrency,
}

impl RuleKind {
    /// The kind of a bucket whose states have a history. They are longer than those that an older version knows, and
    /// it would take them for empty buckets.
    #[must_use]
    pub const fn settled(self) -> Self {
        match self {
            Self::TokenBucket => Self::SettledTokenBucket { period: None },
            Self::LeakyBucket => Self::SettledLeakyBucket { period: None },
            other => other,
        }
    }

    /// The kind for one of a list of rates, whose buckets are distinguished by their period.
    #[must_use]
    pub const fn over(self, period: u64) -> Self {
        match self {
            Self::TokenBucket => Self::TokenBucketOver { period },
            Self::LeakyBucket => Self::LeakyBucketOver { period },
            Self::SettledTokenBucket { .. } => Self::SettledTokenBucket {
                period: Some(period),
            },
            Self::SettledLeakyBucket { .. } => Self::SettledLeakyBucket {
                period: Some(period),
            },
            other => other,
        }
    }
}

/// Units of time whose length depends on the calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unit {
    /// A day, from midnight to midnight.
    Day,
    /// A week, from Monday to Sunday (ISO 8601).
    Week,
    /// A month, from its first day to the next month's.
    Month,
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Day => "d",
            Self::Week => "w",
            Self::Month => "month",
        })
    }
}

impl fmt::Display for RuleKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TokenBucket => f.write_str("tb"),
            Self::LeakyBucket => f.write_str("lb"),
            Self::TokenBucketOver { period } => write!(f, "tb{period}"),
            Self::LeakyBucketOver { period } => write!(f, "lb{period}"),
            Self::SettledTokenBucket { period: None } => f.write_str("tbs"),
            Self::SettledLeakyBucket { period: None } => f.write_str("lbs"),
            Self::SettledTokenBucket {
                period: Some(period),
            } => write!(f, "tbs{period}"),
            Self::SettledLeakyBucket {
                period: Some(period),
            } => write!(f, "lbs{period}"),
            Self::FixedWindow { window } => write!(f, "fw{window}"),
            Self::Calendar { unit, many } => write!(f, "fw{many}{unit}"),
            Self::SlidingWindow { window } => write!(f, "sw{window}"),
            Self::SlidingLog { window } => write!(f, "sl{window}"),
            Self::Concurrency => f.write_str("cc"),
        }
    }
}
