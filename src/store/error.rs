//! Causes for which a store could not decide. For each of them, the limit's `on_down` decides instead.

use crate::telemetry::log::Throttle;
use std::sync::Arc;
use std::time::Duration;

/// Throttles warnings about unreadable counters and a wrong clock: both last until an operator acts.
pub(super) static UNREADABLE: Throttle = Throttle::every(Duration::from_secs(10));

/// Causes for which a store could not decide.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The store is known to be unavailable: it was not called, and no request waited.
    #[error("the store is away")]
    Down,
    /// The store was called and did not answer in time. It may have charged nevertheless, so that the call is never
    /// repeated.
    #[error("no answer from the store within {after:?}")]
    Timeout {
        /// The longest time that a decision may take.
        after: Duration,
    },
    /// The store was not called: too many decisions wait, or this one has waited too long.
    #[error("more decisions wait for the store than it answers in time")]
    Overloaded,
    /// No connection.
    #[error("cannot reach the store: {0}")]
    Unreachable(Arc<str>),
    /// The connection broke during the call, which may have charged.
    #[error("lost the connection to the store: {0}")]
    Lost(Arc<str>),
    /// The store answered that it cannot serve. Causes: loading, read-only, out of memory, not permitted.
    #[error("the store refused: {0}")]
    Refused(Arc<str>),
    /// The store forbids its user a command, or does not know it; the words name the command and the remedy.
    #[error("{0}")]
    Unpermitted(Arc<str>),
    /// The store's answer does not have the form of a script's answer.
    #[error("the store's answer makes no sense: {0}")]
    Protocol(&'static str),
    /// This request alone cannot be decided: one of its keys holds another value.
    #[error("limit `{limit}` cannot be counted: {reason}")]
    Answer {
        /// The limit of that key.
        limit: Arc<str>,
        /// The error in the words of the store.
        reason: Arc<str>,
    },
    /// This request alone cannot be decided: the store's clock is more than a window away from the gateway's.
    #[error("limit `{limit}` follows the calendar, and the store's clock is a whole window off")]
    Clock {
        /// The limit with a calendar.
        limit: Arc<str>,
    },
    /// The request has more limits than a call can name.
    #[error("a request has {0} limits, more than one decision can hold")]
    TooMany(usize),
}

impl StoreError {
    /// Does one limit of the request alone cause the error, so that the other limits may be decided?
    pub(super) const fn is_of_one_limit(&self) -> bool {
        matches!(self, Self::Answer { .. } | Self::Clock { .. })
    }

    /// Warns of a cause that an operator can fix.
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
