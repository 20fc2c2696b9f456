//! The answer of a server, after its head has arrived.

use crate::proxy::bodies::request_body::RequestBody;
use crate::proxy::bodies::response_body::{BodyCarrier, BodyStart};
use crate::proxy::error::ProxyError;
use crate::upstream::failure::UpstreamError;
use crate::upstream::http1::{AnswerError, coding_fault};
use crate::upstream::pool::Pool;
use http::Response;
use std::rc::Rc;
use tokio::time::Instant;

/// An answer that is being received, with its connection.
#[derive(Debug)]
pub struct UpstreamAnswer {
    /// The answer's head.
    pub response: Response<()>,
    /// The source of the answer's body.
    pub carrier: BodyCarrier,
    /// The pool of the server that has answered.
    pub pool: Rc<Pool<RequestBody>>,
}

impl UpstreamAnswer {
    /// Notes that the head arrived at `at`: the idle time of the connection counts from then.
    pub fn note_arrival(&mut self, at: Instant) {
        if let BodyCarrier::Connection(connection) = &mut self.carrier {
            connection.answered(at, &self.response);
        }
    }

    /// The beginning of the answer's body, if known. Must be called before any of the answer is passed on.
    ///
    /// # Errors
    /// With 502, if the answer has a transfer coding that the gateway did not request, or `chunked` twice, or its body
    /// has broken before any of it arrived.
    pub fn start(&mut self) -> Result<BodyStart, ProxyError> {
        // On other connections the head is already refused for it.
        if let BodyCarrier::Tunnel(_) = self.carrier
            && let Some((fault, line)) = coding_fault(self.response.headers())
        {
            return Err(UpstreamError::Answer(AnswerError::Head(fault, line)).into());
        }
        let start = BodyStart::of(&mut self.carrier);
        start.map_err(|error| UpstreamError::Answer(error).into())
    }
}
