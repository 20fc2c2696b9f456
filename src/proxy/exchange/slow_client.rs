//! Failures of servers that a client can bring about by holding its body back: they give no charge back, and eject no server.

use super::Exchange;
use crate::proxy::error::ProxyError;
use crate::telemetry::metrics::Failure;
use crate::upstream::failure::UpstreamError;
use crate::upstream::owed_time::UploadState as _;
use http::StatusCode;
use tokio::time::Instant;

impl Exchange {
    /// Since when the server owes something; nothing while the client's next byte is awaited.
    pub(super) fn server_owes(&self) -> Option<Instant> {
        match &self.upload {
            None => Some(self.started),
            Some(upload) => upload.owed().since(),
        }
    }

    /// Has the server ended the connection, or the stream, while the client's next byte was awaited? Its own patience with the client
    /// may have come to its end.
    #[cold]
    pub(super) fn is_break_of_client(&self, error: &ProxyError) -> bool {
        let ProxyError::Upstream(UpstreamError::Answer(error)) = error else {
            return false;
        };
        error.failure() == Failure::Reset && !error.is_refused() && self.server_owes().is_none()
    }

    /// Does the server say with `status` that a time is over, while the client's next byte is awaited?
    #[cold]
    pub(in crate::proxy) fn is_time_of_client(&self, status: StatusCode) -> bool {
        status == StatusCode::GATEWAY_TIMEOUT && self.server_owes().is_none()
    }
}
