//! An open file for the connection that a request may need, asked for before its limits: a request that cannot be
//! forwarded is not charged.

use super::Worker;
use super::error::ProxyError;
use super::exchange::Exchange;
use crate::descriptors::DescriptorReserve;
use crate::telemetry::log::Throttle;
use std::time::Duration;

/// The least time between two log lines about missing descriptors.
const TOLD: Duration = Duration::from_secs(10);

impl Worker {
    /// A descriptor for the connection to the upstream that the request may need, where its route has an upstream.
    pub(super) fn promise(
        &self,
        exchange: &Exchange,
    ) -> Result<Option<DescriptorReserve<'_>>, ProxyError> {
        let service = exchange.service();
        if service.is_none_or(|service| service.own.is_some() || service.upstream.is_none()) {
            return Ok(None);
        }
        match self.descriptors.reserve() {
            None => self.promise_at_last().map(Some),
            promise => Ok(promise),
        }
    }

    /// All descriptors are taken: an idle connection to a server may give its own up.
    #[cold]
    fn promise_at_last(&self) -> Result<DescriptorReserve<'_>, ProxyError> {
        static BUSY: Throttle = Throttle::every(TOLD);
        if self.pools.close_idle()
            && let Some(promise) = self.descriptors.reserve()
        {
            return Ok(promise);
        }
        self.metrics.busy();
        if let Some(more) = BUSY.pass() {
            tracing::warn!(
                "all open files that the system allows for connections to upstreams are taken: a request was answered 503 (`busy`); raise `ulimit -n`, or lower `max_connections`{more}"
            );
        }
        Err(ProxyError::Busy)
    }
}
