//! Failures of servers that a client can cause by delaying its body: they refund no charge and eject no server.

use crate::clock;
use crate::proxy::error::ProxyError;
use crate::proxy::exchange::Exchange;
use crate::telemetry::metrics::Failure;
use crate::upstream::failure::UpstreamError;
use crate::upstream::owed_time::{OwedTime, UploadState as _};
use http::StatusCode;

impl Exchange {
    /// The time that its server owes, if the request has a body.
    fn owed(&self) -> Option<&OwedTime> {
        self.call.upload.as_ref().map(|upload| upload.owed())
    }

    /// Does the client delay its body? Or has a timeout of the call passed because of the client?
    #[cold]
    pub(super) fn is_out_of_time(&self) -> bool {
        self.owed().is_some_and(OwedTime::is_held_back)
            || self
                .call
                .grpc
                .as_ref()
                .is_some_and(|call| call.is_out_of_time(clock::now()))
    }

    /// Has the server ended the connection, or the stream, because its patience with the client was over?
    #[cold]
    pub(in crate::proxy) fn is_break_of_client(&self, error: &ProxyError) -> bool {
        let ProxyError::Upstream(UpstreamError::Answer(error)) = error else {
            return false;
        };
        error.failure() == Failure::Reset && !error.is_refused() && self.is_out_of_time()
    }

    /// Does the server's error mean that its patience with the client was over? Every error counts while the client
    /// delays the body. After the body, 503, 504 and the gRPC equivalents count, if the client has delayed the body for
    /// longer than the server has had its end.
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
