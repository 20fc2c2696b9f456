//! A descriptor for the connection that a request may need, reserved before its limits are checked: a request that
//! cannot be forwarded is not charged.

use crate::descriptors::DescriptorReserve;
use crate::proxy::Worker;
use crate::proxy::error::ProxyError;
use crate::telemetry::log::Throttle;
use std::time::Duration;

/// The least time between two log lines about missing descriptors.
const TOLD: Duration = Duration::from_secs(10);

impl Worker {
    /// A descriptor for the connection to the upstream that the request may need.
    #[inline]
    pub(in crate::proxy) fn open_file(&self) -> Result<DescriptorReserve<'_>, ProxyError> {
        match self.descriptors.reserve() {
            None => self.last_open_file(),
            Some(reserve) => Ok(reserve),
        }
    }

    /// All descriptors are taken: an idle connection to a server may be closed for it.
    #[cold]
    fn last_open_file(&self) -> Result<DescriptorReserve<'_>, ProxyError> {
        static BUSY: Throttle = Throttle::every(TOLD);
        if self.pools.close_idle()
            && let Some(reserve) = self.descriptors.reserve()
        {
            return Ok(reserve);
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
