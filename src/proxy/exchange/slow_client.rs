//! Failures of servers that a client can bring about by holding its body back: they give no charge back.

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

    /// Has the client held its body back, and does so still?
    fn is_held_back(&self) -> bool {
        let upload = self.upload.as_ref();
        upload.is_some_and(|upload| upload.owed().is_held_back())
    }

    /// Has the server ended the connection, or the stream, while the client held its body back? Its own patience with the
    /// client may have come to its end.
    #[cold]
    pub(super) fn is_break_of_client(&self, error: &ProxyError) -> bool {
        let ProxyError::Upstream(UpstreamError::Answer(error)) = error else {
            return false;
        };
        error.failure() == Failure::Reset && !error.is_refused() && self.is_held_back()
    }

    /// Does the server say with `status` that a time is over, while the client holds its body back?
    #[cold]
    pub(in crate::proxy) fn is_time_of_client(&self, status: StatusCode) -> bool {
        status == StatusCode::GATEWAY_TIMEOUT && self.is_held_back()
    }
}
