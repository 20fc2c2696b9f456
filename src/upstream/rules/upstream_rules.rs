//! The combined rules of an upstream.

use super::balance_rule::{BalanceRule, NoneLeft, QueueRule};
use super::ejection::EjectionRule;
use super::probe_rule::ProbeRule;
use super::retry_rule::RetryRule;
use std::time::Duration;

/// The rules of an upstream.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UpstreamRules {
    /// The choice of a server.
    pub balance: BalanceRule,
    /// The probes of its servers.
    pub health: Option<ProbeRule>,
    /// The conditions for ejecting a failing server.
    pub eject: Option<EjectionRule>,
    /// The requests that are retried.
    pub retry: Option<RetryRule>,
    /// The requests that wait for a server with a bound.
    pub queue: QueueRule,
    /// The time in which the share of a returning server grows to the whole.
    pub ramp: Option<Duration>,
    /// The treatment of requests while no server is available.
    pub none_left: NoneLeft,
}
