//! The rules of an upstream, together.

use super::balance_rule::{BalanceRule, NoneLeft, QueueRule};
use super::ejection::EjectionRule;
use super::probe_rule::ProbeRule;
use super::retry_rule::RetryRule;
use std::time::Duration;

/// The rules of an upstream.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UpstreamRules {
    /// How a server is chosen.
    pub balance: BalanceRule,
    /// The probes of its servers.
    pub health: Option<ProbeRule>,
    /// When a server that fails requests gets none.
    pub eject: Option<EjectionRule>,
    /// Which requests are sent once more.
    pub retry: Option<RetryRule>,
    /// The requests that wait for a server with a bound.
    pub queue: QueueRule,
    /// The time in which the share of a server that is back grows to the whole.
    pub ramp: Option<Duration>,
    /// What becomes of requests while no server is available.
    pub none_left: NoneLeft,
}
