//! How the server of a request is chosen.

use std::time::Duration;

/// The way of choosing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BalanceRule {
    /// In turn, by weight.
    #[default]
    RoundRobin,
    /// The one with the fewest requests in flight for its weight.
    LeastRequests,
    /// By chance, by weight.
    Random,
    /// By the request's key: requests of one key go to one server.
    Hash {
        /// The percentage of the average in flight beyond which a server is passed over.
        bounded: Option<u32>,
    },
}

impl BalanceRule {
    /// Does the choice look at how many requests are in flight?
    #[must_use]
    pub fn counts_in_flight(self) -> bool {
        matches!(self, Self::LeastRequests | Self::Hash { bounded: Some(_) })
    }
}

/// What becomes of requests while no server is available.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NoneLeft {
    /// All servers are tried as if all were available.
    #[default]
    TryAll,
    /// The answer is 503 at once.
    Refuse,
}

/// The requests that wait while all servers have as many as they take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueRule {
    /// The most that wait.
    pub max: u32,
    /// The longest wait.
    pub wait: Duration,
}

impl Default for QueueRule {
    fn default() -> Self {
        Self {
            max: 100,
            wait: Duration::from_secs(1),
        }
    }
}
