//! Why there is no change, with the code and the status that an answer of HTTP has.

/// Most counters of one change.
pub(super) const MOST: usize = 64;

/// A change that was not made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// A part of the request has no meaning.
    #[error("{0}")]
    Invalid(String),
    /// There is no such limit, or it has no such window or group.
    #[error("there is no limit {0}")]
    UnknownLimit(String),
    /// The key has more counters than one call empties.
    #[error("this key has more than {MOST} counters: name one with `window` or `group`")]
    TooManyCounters,
    /// There are too many changes.
    #[error(
        "255 changes, or 64 KB of them, hold already: end some of them, or wait until they end"
    )]
    TooManyChanges,
    /// The change is too long for the store.
    #[error("key and note are too long: a change has at most 1 KB")]
    TooLong,
    /// Another version stands in the store than the caller has seen.
    #[error("another change was made meanwhile: the version is {version}")]
    ChangedMeanwhile {
        /// The present version.
        version: u64,
    },
    /// Slots are held by requests in flight.
    #[error("the limit counts requests in flight, and its slots end with them")]
    SlotsEndByThemselves,
    /// Redis does not answer, or refuses.
    #[error("the store cannot be asked: {0}")]
    StoreAway(String),
    /// The counters are empty, and the other gateways have not heard of it.
    #[error(
        "the counters are empty; other gateways may refuse for up to 60 s more (in a cluster 250 ms); the same id completes it: {0}"
    )]
    HalfDone(String),
}

impl ChangeError {
    /// The stable code.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Invalid(_) => "bad_request",
            Self::UnknownLimit(_) => "unknown_limit",
            Self::TooManyCounters => "too_many_counters",
            Self::TooManyChanges => "too_many_changes",
            Self::TooLong => "too_long",
            Self::ChangedMeanwhile { .. } => "changed_meanwhile",
            Self::SlotsEndByThemselves => "slots_end_by_themselves",
            Self::StoreAway(_) => "store_away",
            Self::HalfDone(_) => "half_done",
        }
    }

    /// The HTTP status.
    #[must_use]
    pub const fn status(&self) -> u16 {
        match self {
            Self::Invalid(_) => 400,
            Self::UnknownLimit(_) => 404,
            Self::TooLong => 422,
            Self::TooManyCounters
            | Self::TooManyChanges
            | Self::ChangedMeanwhile { .. }
            | Self::SlotsEndByThemselves => 409,
            Self::StoreAway(_) | Self::HalfDone(_) => 503,
        }
    }
}
