//! The current requests of an HTTP/1.1 connection: the service under hyper passes each request on with the fault of its
//! head, and counts current ones.

use super::handler::Handler;
use crate::clock;
use crate::listen::Peer;
use crate::listen::socket::SocketProbe;
use http::{HeaderValue, Request, Response, StatusCode, header};
use hyper::body::{Body, Incoming};
use hyper::service::Service;
use hyper::upgrade::OnUpgrade;
use std::cell::Cell;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use tokio::time::Instant;

/// Answers the requests of one connection.
pub(super) struct H1Service<A> {
    pub(in crate::listen) handler: Rc<A>,
    pub(in crate::listen) peer: Rc<Peer>,
    pub(in crate::listen) open: Rc<OpenRequests>,
    pub(in crate::listen) probe: SocketProbe,
}

/// The number of current requests of a connection, and the time since which there is none.
#[derive(Debug)]
pub(super) struct OpenRequests {
    /// The number of requests that have begun.
    begun: Cell<u64>,
    count: Cell<u32>,
    since: Cell<Instant>,
}

impl OpenRequests {
    pub(in crate::listen) fn new() -> Rc<Self> {
        Rc::new(Self {
            begun: Cell::new(0),
            count: Cell::new(0),
            since: Cell::new(clock::now()),
        })
    }

    /// Is there no current request?
    pub(super) fn is_idle(&self) -> bool {
        self.count.get() == 0
    }

    /// The time at which the last request ended, or the connection began.
    pub(in crate::listen) fn since(&self) -> Instant {
        self.since.get()
    }
}

/// One current request.
struct OpenRequest(Rc<OpenRequests>);

impl OpenRequest {
    fn new(open: &Rc<OpenRequests>) -> Self {
        open.begun.set(open.begun.get() + 1);
        open.count.set(open.count.get() + 1);
        Self(Rc::clone(open))
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.0.count.set(self.0.count.get().saturating_sub(1));
        self.0.since.set(clock::now());
    }
}

/// A response body that keeps its request counted as open until its end.
pub(super) struct CountedBody<B> {
    body: B,
    _open: OpenRequest,
}

impl<B: Body + Unpin> Body for CountedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}

impl<A: Handler> Service<Request<Incoming>> for H1Service<A> {
    type Response = Response<CountedBody<A::Body>>;
    type Error = Infallible;
    // The future is boxed, because hyper reserves room for it for the life of the connection: an idle connection must
    // stay small.
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>>>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        let (handler, peer) = (Rc::clone(&self.handler), Rc::clone(&self.peer));
        self.peer.registration.set_busy();
        let open = OpenRequest::new(&self.open);
        // Requests and their heads arrive in sequence.
        let fault = self.probe.begin(self.open.begun.get());
        if let Some(fault) = fault {
            request.extensions_mut().insert(fault);
        }
        let upgrading = request.extensions().get::<OnUpgrade>().is_some();
        let upgrading = upgrading.then(|| self.probe.clone());
        let client = Rc::clone(&peer);
        // The future is built directly inside the box: it is large, and moving it would cost as much as a system call.
        // `Box::pin` would move it.
        let future = Box::write(Box::new_uninit(), async move {
            let mut response = handler.answer(request, peer).await;
            if fault.is_some() || is_last(&client, response.status()) {
                let fields = response.headers_mut();
                fields.insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            if let Some(probe) = upgrading
                && response.status() == StatusCode::SWITCHING_PROTOCOLS
            {
                probe.begin_tunnel();
            }
            Ok(response.map(|body| CountedBody { body, _open: open }))
        });
        Box::into_pin(future)
    }
}

/// Is the client asked to reconnect elsewhere? An upgrade ends the protocol by itself. A refusal because draining has
/// just begun is the last answer too: hyper learns of draining later and would announce a persistent connection.
fn is_last(client: &Peer, status: StatusCode) -> bool {
    let registration = &client.registration;
    (registration.is_leaving() && status != StatusCode::SWITCHING_PROTOCOLS)
        || (status == StatusCode::SERVICE_UNAVAILABLE && registration.is_draining())
}
