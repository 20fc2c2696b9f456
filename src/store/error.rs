//! Why a store could not decide. Whatever it is, the limit's `on_down` answers instead.

use crate::telemetry::log::Throttle;
use std::sync::Arc;
use std::time::Duration;

/// For warnings of counters that cannot be read, or of a clock that is off: they stay so until an operator acts.
pub(super) static UNREADABLE: Throttle = Throttle::every(Duration::from_secs(10));

/// Why a store could not decide.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Known to be away: nothing was asked, and no request waited.
    #[error("the store is away")]
    Down,
    /// It was asked, and may have charged nevertheless: the question is never repeated.
    #[error("no answer from the store within {after:?}")]
    Timeout {
        /// The longest a decision may take.
        after: Duration,
    },
    /// Not asked: too many others wait, or too long already.
    #[error("more decisions wait for the store than it answers in time")]
    Overloaded,
    /// No connection.
    #[error("cannot reach the store: {0}")]
    Unreachable(Arc<str>),
    /// The connection broke while the question was under way; it may have been charged.
    #[error("lost the connection to the store: {0}")]
    Lost(Arc<str>),
    /// The store answered that it does not serve: loading, read-only, out of memory, not permitted.
    #[error("the store refused: {0}")]
    Refused(Arc<str>),
    /// An answer that is none of ours.
    #[error("the store's answer makes no sense: {0}")]
    Protocol(&'static str),
    /// This request alone cannot be decided: something else lives at one of its keys.
    #[error("limit `{limit}` cannot be counted: {reason}")]
    Answer {
        /// The limit of that key.
        limit: Arc<str>,
        /// In the store's words.
        reason: Arc<str>,
    },
    /// This request alone cannot be decided: the store's clock is not within a window of ours.
    #[error("limit `{limit}` follows the calendar, and the store's clock is a whole window off")]
    Clock {
        /// The limit with a calendar.
        limit: Arc<str>,
    },
    /// More limits on one request than a call can name.
    #[error("{0} limits on one request are more than one decision holds")]
    TooMany(usize),
}

impl StoreError {
    /// One word for metrics and the access log.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Down => "down",
            Self::Timeout { .. } => "timeout",
            Self::Overloaded => "overloaded",
            Self::Unreachable(_) => "unreachable",
            Self::Lost(_) => "lost",
            Self::Refused(_) => "refused",
            Self::Protocol(_) => "protocol",
            Self::Answer { .. } => "answer",
            Self::Clock { .. } => "clock",
            Self::TooMany(_) => "too_many",
        }
    }

    /// Is it the fault of one limit of the request, so that the others may be decided?
    pub(super) const fn is_of_one_limit(&self) -> bool {
        matches!(self, Self::Answer { .. } | Self::Clock { .. })
    }

    /// Warns of what an operator can mend.
    pub(super) fn warn(&self) {
        let remedy = match self {
            Self::Answer { .. } => "delete that key in Redis",
            Self::Clock { .. } => "set the clocks",
            _ => return,
        };
        if let Some(more) = UNREADABLE.pass() {
            tracing::warn!("{self}; {remedy}{more}");
        }
    }
}
