//! What the connections of clients are served with: the trait of the service that answers requests, and of its bodies.

use super::Peer;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use hyper::body::{Body, Incoming};
use std::error::Error as StdError;
use std::future::Future;
use std::rc::Rc;

/// Most fields in a head, without the pseudo-fields of HTTP/2. In HTTP/1.1 hyper's own bound is as high: setting it there
/// would make hyper allocate for each head.
pub(super) const MOST_FIELDS: usize = 100;
/// Most bytes in a head. h2 answers a head beyond its own bound without a word to the gateway, so that bound is higher.
pub(super) const MOST_HEAD: usize = 64 * 1024;

/// Answers requests. The program hands it in; this room does not know it.
pub trait Handler: 'static {
    /// Body of the responses.
    type Body: ResponseBody;

    /// Answers one request.
    fn answer(
        self: Rc<Self>,
        request: Request<Incoming>,
        peer: Rc<Peer>,
    ) -> impl Future<Output = Response<Self::Body>> + 'static;

    /// Notes a head that was no request and has been answered already.
    fn rejected(&self, head: &RejectedHead<'_>, peer: &Peer);
}

/// A body that learns, over HTTP/2, what became of it. Over HTTP/1.1 it is over when all of it has been polled.
pub trait ResponseBody:
    Body<Data = Bytes, Error: Into<Box<dyn StdError + Send + Sync>>> + Unpin + 'static
{
    /// Does the client have to take it at the minimum rate? A body that may be silent by its nature has none.
    fn has_minimum_rate(&self) -> bool;

    /// The client has taken all of it. A body that is dropped before has lost its client.
    fn taken(&mut self);

    /// The client has taken nothing of it for the idle time, or too little.
    fn stalled(&mut self);
}

/// A head that was rejected before it was a request.
#[derive(Debug, Clone, Copy)]
pub struct RejectedHead<'a> {
    /// The status it was answered with.
    pub status: StatusCode,
    /// Its first line, or the beginning of it that has come and is worth keeping.
    pub line: &'a [u8],
}
