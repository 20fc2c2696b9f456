//! The service for clients' connections: the trait of the service that answers requests, and of its bodies.

use crate::listen::Peer;
use crate::listen::socket::minimum_rate::Lateness;
use crate::telemetry::h2_refusals::RefusedStream;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use hyper::body::{Body, Incoming};
use std::error::Error as StdError;
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

/// The most fields in a head, without the pseudo-fields of HTTP/2. In HTTP/1.1 hyper's own bound is equally high:
/// setting it there would make hyper allocate for each head.
pub(crate) const MOST_REQUEST_FIELDS: usize = 100;
/// The most bytes in a head. h2 answers a head beyond h2's own bound without reporting it to the gateway, so that h2's
/// bound is higher.
pub(crate) const MOST_REQUEST_HEAD: usize = 64 * 1024;

/// Answers requests. The program passes the handler in; this room does not know its type.
pub trait Handler: 'static {
    /// Body of the responses.
    type Body: ResponseBody;

    /// Answers one request.
    fn answer(
        self: Rc<Self>,
        request: Request<Incoming>,
        peer: Rc<Peer>,
    ) -> impl Future<Output = Response<Self::Body>> + 'static;

    /// Notes a head that did not become a request. Returns the bytes of the answer over HTTP/1.1, the last on their
    /// connection.
    fn rejected(&self, head: &RejectedHead<'_>, peer: &Peer) -> Vec<u8>;
}

/// A body that is notified, over HTTP/2, of its fate. Over HTTP/1.1 it is complete when all of it has been polled.
pub trait ResponseBody:
    Body<Data = Bytes, Error: Into<Box<dyn StdError + Send + Sync>>> + Unpin + 'static
{
    /// Must the client take the body at the minimum rate? A body that may be silent by its nature has no minimum rate.
    fn has_minimum_rate(&self) -> bool;

    /// The time for which the client may take nothing of the body, if it differs from the listener's.
    fn route_idle(&self) -> Option<Duration>;

    /// The client has taken the whole body. A body that is dropped before this call has lost its client.
    fn taken(&mut self);

    /// The client has taken nothing of the body for the idle time, or too little.
    fn stalled(&mut self, how: Lateness);
}

/// A head that was rejected before it became a request.
#[derive(Debug, Clone, Copy)]
pub enum RejectedHead<'a> {
    /// A head of HTTP/1.1 that hyper refuses, or that is late.
    Http1 {
        /// The status of the answer: 400, 408, 414 or 431.
        status: StatusCode,
        /// The received beginning of the head, as far as kept.
        beginning: &'a [u8],
    },
    /// A head of HTTP/2 that is late. There is no stream yet for an answer.
    LateHttp2,
    /// A head of HTTP/2 that the library refuses. It has reset the stream, or ended the connection.
    Http2(&'a RefusedStream),
}
