//! The answer of a server, as far as its head has come.

use crate::proxy::bodies::request_body::RequestBody;
use crate::proxy::bodies::response_body::BodyCarrier;
use crate::proxy::bodies::response_body::BodyStart;
use crate::proxy::error::ProxyError;
use crate::upstream::failure::UpstreamError;
use crate::upstream::http1::{AnswerError, coding_fault};
use crate::upstream::pool::Pool;
use http::Response;
use std::rc::Rc;
use tokio::time::Instant;

/// An answer under way, with the connection that brings it.
#[derive(Debug)]
pub struct UpstreamAnswer {
    /// The answer's head.
    pub response: Response<()>,
    /// The carrier of the answer's body.
    pub carrier: BodyCarrier,
    /// The pool of the server that has answered.
    pub pool: Rc<Pool<RequestBody>>,
}

impl UpstreamAnswer {
    /// The head has come at `at`: the time that the connection may rest counts from there.
    pub fn note_arrival(&mut self, at: Instant) {
        if let BodyCarrier::Connection(connection) = &mut self.carrier {
            connection.answered(at, &self.response);
        }
    }

    /// The beginning of the answer's body, as far as it is known. The call comes before any of the answer is passed on.
    ///
    /// # Errors
    /// 502 where the answer has a transfer coding that the gateway did not ask for, or `chunked` twice, or its body has
    /// broken before any of it came.
    pub fn start(&mut self) -> Result<BodyStart, ProxyError> {
        // Elsewhere the head is refused for it.
        if let BodyCarrier::Tunnel(_) = self.carrier
            && let Some((fault, line)) = coding_fault(self.response.headers())
        {
            return Err(UpstreamError::Answer(AnswerError::Head(fault, line)).into());
        }
        let start = BodyStart::of(&mut self.carrier);
        start.map_err(|error| UpstreamError::Answer(error).into())
    }
}
