//! Failures of servers that a client can bring about by holding its body back: they give no charge back and eject
//! nobody.

use crate::clock;
use crate::proxy::error::ProxyError;
use crate::proxy::exchange::Exchange;
use crate::telemetry::metrics::Failure;
use crate::upstream::failure::UpstreamError;
use crate::upstream::owed_time::{OwedTime, UploadState as _};
use http::StatusCode;

impl Exchange {
    /// The time that its server owes, where the request has a body.
    fn owed(&self) -> Option<&OwedTime> {
        self.call.upload.as_ref().map(|upload| upload.owed())
    }

    /// Does the client hold its body back? Or is a time over that the server of a call was told, by the client's doing?
    #[cold]
    pub(super) fn is_out_of_time(&self) -> bool {
        self.owed().is_some_and(OwedTime::is_held_back)
            || self
                .call
                .grpc
                .as_ref()
                .is_some_and(|call| call.is_out_of_time(clock::now()))
    }

    /// Has the server ended the connection, or the stream, since its patience with the client was at its end?
    #[cold]
    pub(in crate::proxy) fn is_break_of_client(&self, error: &ProxyError) -> bool {
        let ProxyError::Upstream(UpstreamError::Answer(error)) = error else {
            return false;
        };
        error.failure() == Failure::Reset && !error.is_refused() && self.is_out_of_time()
    }

    /// Does an error that the server tells say that its patience with the client was at its end? Whatever it tells
    /// while the client holds the body back. Behind the body it is 503, 504 and what gRPC has for these, where the
    /// client has held the body back for longer than the server has had its end.
    #[cold]
    #[inline(never)]
    pub(in crate::proxy) fn is_end_of_patience(&self, status: Option<StatusCode>) -> bool {
        let is_impatient = match (&self.call.grpc, status) {
            (_, Some(StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT)) => true,
            (Some(call), _) => call.is_impatient(),
            (None, _) => false,
        };
        self.is_out_of_time() || is_impatient && self.owed().is_some_and(OwedTime::was_held_back)
    }
}
