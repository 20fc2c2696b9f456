//! The choice of a request's server.

use std::time::Duration;

/// The algorithm of the choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BalanceRule {
    /// In turn, by weight.
    #[default]
    RoundRobin,
    /// The server with the fewest requests in flight for its weight.
    LeastRequests,
    /// Random, by weight.
    Random,
    /// By the request's key: requests of one key go to one server.
    Hash {
        /// The percentage of the average in flight beyond which a server is passed over.
        bounded: Option<u32>,
    },
}

impl BalanceRule {
    /// Does the choice depend on the number of requests in flight?
    #[must_use]
    pub fn counts_in_flight(self) -> bool {
        matches!(self, Self::LeastRequests | Self::Hash { bounded: Some(_) })
    }
}

/// The treatment of requests while no server is available.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NoneLeft {
    /// All servers are tried as if all were available.
    #[default]
    TryAll,
    /// The answer is 503 at once.
    Refuse,
}

/// The requests that wait while all servers have the most requests that they may have.
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
