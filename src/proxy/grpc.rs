//! A call of gRPC on its way: its deadline, its status, and its messages.
//!
//! The form of calls and answers is defined by the page "gRPC over HTTP2" (PROTOCOL-HTTP2 of the gRPC project).

pub mod call_answer;
mod timeout;

use crate::intake::grpc_call::{CallDeadline, has_type};
use crate::key::GrpcStatus;
use crate::upstream::failure::UpstreamError;
use crate::upstream::owed_time::UploadState;
use http::{HeaderMap, HeaderName, Request, StatusCode, Version};
use std::rc::Rc;
use std::time::Duration;
use tokio::time::Instant;

/// The field with the status of a call, mostly among trailers.
pub const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
/// The field with the message of a call that failed, percent-encoded.
pub const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// The last part of a timeout, this fraction of it, counts as its end: servers reserve a little of it for themselves. A
/// body needs no longer in transfer if its client does not delay it.
const LAST_PART: u32 = 10;

/// A request that is a gRPC call.
#[derive(Debug, Default)]
pub struct GrpcCall {
    /// The status that the client gets, if known.
    pub status: Option<GrpcStatus>,
    /// The timeout that the client sets for the call.
    deadline: Option<CallDeadline>,
    /// The route's configured time for the head of an answer, and its end.
    route_time: Option<(Duration, Instant)>,
    /// The progress of the call's messages to a server.
    upload: Option<Rc<dyn UploadState>>,
    /// The answer has begun, and its status comes at its end.
    is_open: bool,
}

impl GrpcCall {
    /// `request` as a gRPC call, if it is one: HTTP/2, with a gRPC content type. Other versions of HTTP have no
    /// trailers that gRPC clients could read.
    #[inline]
    #[must_use]
    pub fn of<B>(request: &Request<B>) -> Option<Box<Self>> {
        (request.version() == Version::HTTP_2 && has_type(request.headers())).then(Box::default)
    }

    /// Sets the timeout of the call.
    #[cold]
    pub fn has_deadline(&mut self, deadline: Option<CallDeadline>) {
        self.deadline = deadline;
    }

    /// Is the client's timeout over at `at`?
    #[must_use]
    pub fn is_over(&self, at: Instant) -> bool {
        self.deadline
            .is_some_and(|deadline| deadline.has_passed(at))
    }

    /// The end of the client's timeout.
    #[must_use]
    pub fn ends(&self) -> Option<Instant> {
        self.deadline.map(|deadline| deadline.at)
    }

    /// Notes that forwarding begins at `now` with the call's messages, on a route that has configured `allowed` for the
    /// head of an answer, or nothing.
    #[cold]
    pub fn sets_out(
        &mut self,
        now: Instant,
        allowed: Option<Duration>,
        upload: Option<Rc<dyn UploadState>>,
    ) {
        self.upload = upload;
        self.route_time = allowed.map(|allowed| (allowed, now + allowed));
    }

    /// Prepares the call for sending at `now`: over HTTP/2 alone, with its remaining time.
    ///
    /// # Errors
    /// If the connection does not use HTTP/2, which alone carries gRPC.
    #[cold]
    pub fn goes_out(
        &self,
        fields: Option<&mut HeaderMap>,
        is_http2: bool,
        now: Instant,
    ) -> Result<(), UpstreamError> {
        if !is_http2 {
            return Err(UpstreamError::NoHttp2);
        }
        if let (Some(deadline), Some(fields)) = (self.deadline, fields) {
            let route_ends = self.route_time.map(|(_, ends)| ends);
            deadline.write(fields, route_ends, now);
        }
        Ok(())
    }

    /// Notes that the head of the answer has arrived. Returns whether the head reports the service as unavailable;
    /// `None` if only the answer's end tells it.
    #[cold]
    pub fn answered(&mut self, status: StatusCode, fields: &HeaderMap) -> Option<bool> {
        self.status = fields.get(GRPC_STATUS).map(GrpcStatus::read);
        self.is_open = self.status.is_none() && status == StatusCode::OK;
        (!self.is_open).then(|| self.is_unavailable())
    }

    /// Does only the end of the answer contain the call's status?
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// Notes that the trailers of the answer have arrived.
    #[cold]
    pub fn ended(&mut self, trailers: &HeaderMap) {
        if let Some(status) = trailers.get(GRPC_STATUS) {
            self.status = Some(GrpcStatus::read(status));
        }
    }

    /// Notes that no more of the answer will arrive. Returns true if its status was still to come.
    pub fn close(&mut self) -> bool {
        std::mem::take(&mut self.is_open)
    }

    /// Does the status mean that the service is unavailable?
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        self.status == Some(GrpcStatus::UNAVAILABLE)
    }

    /// Is the status a server error?
    #[must_use]
    pub fn is_server_error(&self) -> bool {
        self.status.is_some_and(GrpcStatus::is_server_error)
    }

    /// Does the status mean that a time is over, or that the service is unavailable?
    #[must_use]
    pub fn is_impatient(&self) -> bool {
        matches!(
            self.status,
            Some(GrpcStatus::DEADLINE_EXCEEDED | GrpcStatus::UNAVAILABLE)
        )
    }

    /// Is a timeout that the server got over at `now`, because of the client? The server then ends the call by itself,
    /// with any status or reset, and has not failed: otherwise a client with short deadlines would be served for free.
    #[cold]
    #[must_use]
    pub fn is_out_of_time(&self, now: Instant) -> bool {
        let Some(deadline) = self.deadline else {
            return false;
        };
        deadline.has_nearly_passed(now) || self.is_used_up(now)
    }

    /// Is the route's time over at `now`, and did the client use it up, so that the server had only a part of it?
    fn is_used_up(&self, now: Instant) -> bool {
        let Some((allowed, ends)) = self.route_time else {
            return false;
        };
        let Some(upload) = &self.upload else {
            return false;
        };
        let most = allowed - allowed / LAST_PART;
        let owes = upload.owed().since();
        ends <= now + allowed / LAST_PART && owes.is_none_or(|since| now < since + most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::owed_time::OwedTime;
    use http::HeaderValue;

    /// A call that began at `began` with this `grpc-timeout`.
    fn call(timeout: &'static str, began: Instant) -> GrpcCall {
        let mut call = GrpcCall::default();
        let mut fields = HeaderMap::new();
        fields.insert("grpc-timeout", HeaderValue::from_static(timeout));
        call.has_deadline(CallDeadline::read(&fields, began).unwrap());
        call
    }

    #[derive(Debug)]
    struct Messages(OwedTime);

    impl UploadState for Messages {
        fn owed(&self) -> &OwedTime {
            &self.0
        }
    }

    #[test]
    fn a_deadline_of_the_client_is_no_error_of_the_server() {
        let (began, second) = (Instant::now(), Duration::from_secs(1));
        assert!(!GrpcCall::default().is_out_of_time(began + second));
        let mut call = call("1S", began);
        assert!(!call.is_out_of_time(began + second / 2));
        assert!(call.is_out_of_time(began + second));
        // A timer is not exact, and some servers reserve a little time for themselves.
        assert!(call.is_out_of_time(began + second * 95 / 100));
        for (status, is_error) in [(0, false), (2, true), (4, true), (5, false), (14, true)] {
            call.status = Some(GrpcStatus(status));
            assert_eq!(call.is_server_error(), is_error, "{status}");
        }
    }

    #[test]
    fn a_time_that_the_client_has_used_up_is_no_error_of_the_server() {
        let (began, second) = (Instant::now(), Duration::from_secs(1));
        let mut call = call("60S", began);
        for (owes_from, is_clients) in [(20, false), (150, true), (800, true)] {
            let owes_from = began + Duration::from_millis(owes_from);
            let messages = Rc::new(Messages(OwedTime::from(owes_from)));
            call.sets_out(began, Some(second), Some(messages));
            assert_eq!(call.is_out_of_time(began + second), is_clients);
            assert!(!call.is_out_of_time(began + second * 8 / 10), "not over");
        }
        // The call has no messages that its client could delay.
        call.sets_out(began, Some(second), None);
        assert!(!call.is_out_of_time(began + second));
    }

    #[test]
    fn only_http2_has_calls() {
        let mut request = Request::post("/a.B/C")
            .header("content-type", "application/grpc")
            .body(())
            .unwrap();
        assert!(GrpcCall::of(&request).is_none());
        *request.version_mut() = Version::HTTP_2;
        assert!(GrpcCall::of(&request).is_some());
    }
}
