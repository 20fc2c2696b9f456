//! The request path: from a head that hyper has read to a response that hyper writes.
//!
//! In: a head that hyper has read, with its connection. Out: an answer, metrics, one line of the access log. Here are
//! `answer` (reads the worker's snapshot once) and `carry` (the stages below).
//!
//! ```text
//! request                what stands between a head and its plan: refused heads, the intake and its stops, early answers
//! limits                 the one question to the store, holds, queues, and charges that are not final
//! forwarding             from the route's upstream to the client's answer
//! server                 the head that a server gets, the choice of it, and further attempts
//! bodies                 both bodies, streamed
//! grpc                   a call of gRPC on its way: its deadline and its status
//! grpc/call_answer       the gateway's own answers to calls
//! grpc/timeout           the deadline that a server gets
//! upgrade                a WebSocket: the two connections are joined
//! upgrade/tunnel         both directions, until one side ends
//! upgrade/direction      one direction
//! upgrade/frame_tracker  where its frames end
//! upgrade/lookout        an end that is seen behind unread bytes
//! answer                 the answer: a server's, the route's, or the gateway's own, and its fields
//! exchange               all that is learned of one request; its end becomes metrics and a log line
//! exchange/decisions     each limit's decision, for metrics and log
//! exchange/account       the account of what the limits did
//! exchange/slow_client   failures that clients bring about give nothing back and eject no server
//! exchange/answer        the gateway's fields on every answer
//! exchange/stream_end    the cause of the end of a WebSocket or an answer
//! error                  every cause, made a status
//! worker_snapshot        a worker's half of a snapshot: metric handles and pools
//! ```

pub mod answer;
pub mod bodies;
pub mod error;
pub mod exchange;
mod forwarding;
pub mod grpc;
pub mod limits;
pub mod request;
pub mod server;
pub mod upgrade;
pub mod worker_snapshot;

pub use bodies::body::Body;
pub use limits::hold::Holds;

use crate::descriptors::DescriptorShare;
use crate::listen::Peer;
use crate::listen::handler::{Handler, RejectedHead};
use crate::listen::minimum_rate::RateBound;
use crate::shutdown::Drain;
use crate::snapshot::Snapshot;
use crate::store::Store;
use crate::telemetry::access_log::AccessWriter;
use crate::telemetry::metrics::WorkerMetrics;
use crate::tls::AuthorityChallenges;
use crate::upstream::pool::Pools;
use arc_swap::ArcSwap;
use bodies::body_prefix::PrefixBudget;
use bodies::kept_body::KeptBodyBytes;
use bodies::request_body::RequestBody;
use bytes::Bytes;
use error::ProxyError;
use exchange::Exchange;
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, header};
use hyper::body::Incoming;
use limits::wait_queue::WorkerQueues;
use request::early_reply::answered_by_route;
use request::intake_stops::Unplanned;
use std::cell::RefCell;
use std::mem;
use std::rc::Rc;
use std::sync::Arc;
use worker_snapshot::WorkerSnapshot;

/// The parts with which one worker answers requests. It stays on its thread.
#[derive(Debug)]
pub struct Worker {
    snapshots: Arc<ArcSwap<Snapshot>>,
    local: RefCell<Rc<WorkerSnapshot>>,
    store: Store,
    pools: Pools<RequestBody>,
    holds: Arc<Holds>,
    queues: Rc<WorkerQueues>,
    drain: Drain,
    pace: RateBound,
    descriptors: DescriptorShare,
    /// The kept beginnings of bodies.
    prefixes: Rc<PrefixBudget>,
    /// The kept bytes of bodies in transfer, for servers that may not have begun with their requests.
    kept: Rc<KeptBodyBytes>,
    challenges: AuthorityChallenges,
    metrics: WorkerMetrics,
    access: AccessWriter,
}

/// The parts that a worker needs.
#[derive(Debug)]
pub struct Equipment {
    /// The current snapshot.
    pub snapshots: Arc<ArcSwap<Snapshot>>,
    /// The handle to the counters.
    pub store: Store,
    /// Requests held by all workers.
    pub holds: Arc<Holds>,
    /// Reports that the gateway stops.
    pub drain: Drain,
    /// The longest pause inside a body, and the minimum rate of a client's body.
    pub pace: RateBound,
    /// The worker's share of the open files that are not its clients' connections.
    pub descriptors: DescriptorShare,
    /// The answers that certification authorities find when they check whether we control a host.
    pub challenges: AuthorityChallenges,
    /// The worker's metrics.
    pub metrics: WorkerMetrics,
    /// The worker's writer of the access log.
    pub access: AccessWriter,
}

impl Handler for Worker {
    type Body = Body;

    async fn answer(self: Rc<Self>, request: Request<Incoming>, peer: Rc<Peer>) -> Response<Body> {
        let mut exchange = Exchange::begin(&self, self.current(), &request, &peer);
        // The parts stay here and are borrowed by all readers: they are large to move.
        let (mut parts, incoming) = request.into_parts();
        let mut incoming = Some(incoming);
        // A future that is bound to a name before it is awaited would be moved.
        let outcome = self
            .carry(&mut parts, &mut incoming, &peer, &mut exchange)
            .await;
        exchange.discard_body(incoming);
        let (logged, response) = match outcome {
            Ok(Reply::Response(mut response)) => {
                exchange.stamp(&mut response);
                (response.status(), response)
            }
            Ok(Reply::Tunnel(tunnel)) => {
                let idle = exchange.route_idle().unwrap_or(self.pace.idle);
                return tunnel.begin(exchange, peer, idle);
            }
            Err(error) => {
                exchange.leave(mem::take(&mut parts.headers));
                let mut response = exchange.fail(&error);
                if parts.method == Method::HEAD {
                    leave_body_out(&mut response);
                }
                let response = response.map(Body::from_bytes);
                (error.logged_as(response.status()), response)
            }
        };
        exchange.replied(logged);
        response.map(|body| body.carrying(exchange))
    }

    fn rejected(&self, head: &RejectedHead<'_>, peer: &Peer) -> Vec<u8> {
        request::head_rejection::answer_rejected(self, head, peer)
    }
}

/// The answer to HEAD: its fields alone, with the length that the body would have (RFC 9110 section 9.3.2). hyper leaves
/// the body out over HTTP/1.1 alone.
#[cold]
#[inline(never)]
fn leave_body_out(response: &mut Response<Bytes>) {
    let body = mem::take(response.body_mut());
    let fields = response.headers_mut();
    fields.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
}

/// The result of carrying a request.
enum Reply {
    /// A response, with its body to come.
    Response(Response<Body>),
    /// A tunnel.
    Tunnel(upgrade::Tunnel),
}

impl Worker {
    /// Creates a worker, on the worker's own thread.
    #[must_use]
    pub fn new(equipment: Equipment) -> Self {
        let Equipment {
            snapshots,
            store,
            holds,
            drain,
            pace,
            descriptors,
            challenges,
            metrics,
            access,
        } = equipment;
        let local = RefCell::new(Rc::new(WorkerSnapshot::new(
            snapshots.load_full(),
            &metrics,
        )));
        let queues = Rc::new(WorkerQueues::new(&holds.queues, &store));
        Self {
            snapshots,
            local,
            store,
            pools: Pools::new(descriptors.clone()),
            holds,
            queues,
            drain,
            pace,
            descriptors,
            prefixes: Rc::default(),
            kept: Rc::default(),
            challenges,
            metrics,
            access,
        }
    }

    /// Periodic maintenance, about once a second.
    pub fn sweep(&self) {
        self.pools.sweep();
        self.queues.sweep();
        self.store.report();
    }

    /// Waits until all pending calls to the store have arrived: the last step of a worker. The store's timeout bounds
    /// it.
    pub async fn settle(&self) {
        self.queues.settle().await;
        self.store.settle().await;
    }

    /// Flushes log queues that wait for more lines. The future is spawned once.
    pub fn flushing(&self) -> impl Future<Output = ()> + 'static {
        self.access.flushing()
    }

    /// The current snapshot in this worker's form.
    fn current(&self) -> Rc<WorkerSnapshot> {
        let newest = self.snapshots.load();
        let mut local = self.local.borrow_mut();
        if !Arc::ptr_eq(&newest, &local.snapshot) {
            *local = Rc::new(WorkerSnapshot::new(Arc::clone(&newest), &self.metrics));
        }
        Rc::clone(&local)
    }

    /// The stages of a request.
    async fn carry(
        &self,
        parts: &mut Parts,
        incoming: &mut Option<Incoming>,
        peer: &Peer,
        exchange: &mut Exchange,
    ) -> Result<Reply, ProxyError> {
        let mut head = self.head(parts, peer, exchange);
        let reserve = match self.take_in(&mut head, incoming, exchange).await {
            Ok(reserve) => reserve,
            Err(Unplanned::Answered(reply)) => return Ok(*reply),
            Err(Unplanned::Failed(error)) => return Err(error),
        };
        let target = head.target;
        if exchange.is_checked() {
            self.check_limits(peer, exchange).await?;
        }
        let local = Rc::clone(&exchange.local);
        let service = exchange.decided.route.map(|route| local.service(route));
        if let Some(static_reply) = service.and_then(|service| service.static_reply.as_ref()) {
            return Ok(answered_by_route(static_reply, parts, exchange));
        }
        self.forward(&target, parts, incoming, peer, reserve, exchange)
            .await
    }

    /// Checks a request against its limits, and waits if they require it.
    async fn check_limits(&self, peer: &Peer, exchange: &mut Exchange) -> Result<(), ProxyError> {
        if let Some((places, permit)) = self.admit(exchange).await? {
            // The future is boxed: no other request needs room for it.
            Box::pin(self.hold(places, permit, peer, exchange)).await?;
        }
        // This check comes last: the request counts on the limits that can be checked, and waits if they require it.
        exchange.lacks_nothing()
    }
}
