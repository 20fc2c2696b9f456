//! The request path: from a head that hyper has read to a response that hyper writes.
//!
//! In: a head that hyper has read, with its connection. Out: an answer, metrics, one line of the access log. Here are
//! `answer` (reads the worker's snapshot once) and `carry` (the stages below).
//!
//! ```text
//! head_rejection            heads refused before they were requests: counted, logged, answered
//! head_rejection/beginning  what is known of such a head
//! exchange                  all that is learned of one request; its end becomes metrics and a log line
//! request_id                one name for the request, in answer, log and upstream
//! unnamed_client            the client, where a trusted peer should name one
//! intake_stops              the walk to the plan of the limits (room `intake`), and what is waited for on it
//! handshake_facts           what limits and the log learn of the handshake
//! authority_challenge       the answer to an authority that looks whether a host is ours
//! grpc                      is the request a call of gRPC?
//! grpc/timeout              the deadline of a call
//! early_reply               answers to requests that are not forwarded
//! descriptor_reserve        an open file for the server's connection. Else 503
//! body_prefix               the beginning of the body, for limits that tell repeats by it. Else 400, 408
//! limit_check               all limits in one question. Else 429, 503, then 400, 401
//! exchange/decisions        each limit's decision, for metrics and log
//! exchange/account          the account of what the limits did
//! reservation               charges that are not final: they come back or are settled
//! held_slots                slots of requests in flight, free at the request's end
//! hold                      a leaky bucket's wait. Else 429, 499, 503
//! wait_queue                requests that wait, all workers together; those behind a leaver move up
//! wait_queue/queue          one queue
//! wait_queue/tickets        the places of one request in all its queues
//! wait_queue/leak           late requests go on in turn, at the rate
//! static_reply              a redirect or a text, where the route has no upstream
//! forwarding                from the route's upstream to the client's answer
//! first_frame               an empty frame that ends a stream: no body
//! upstream_request          the head that the server gets
//! hop                       fields of one connection end here, both ways
//! header_value              values cut from shared blocks
//! forwarded                 the fields that name the request's origin
//! forwarded/hops            `Via`. Else 508
//! forwarded/lines           the gateway's own fields as bytes
//! identity_fields           fields that tell servers about the client
//! known_caller              the client, read once more behind its limits
//! upstream_call             a server, a connection, the head of the answer. Else 502, 503, 504
//! server_key                the key that the server is chosen by
//! server_part               what each server is sent of its own
//! call_notes                what is noted of the way to a server
//! attempts                  the next server after a failure
//! answer_wait               how long the answer's head may take
//! request_body              the body, streamed up, with an idle deadline and a least rate
//! kept_body                 its beginning, for a server that has not begun
//! soft_timeout              patience with a pause in a body
//! body_failure              the failures of bodies, on either side
//! exchange/slow_client      failures that clients bring about give nothing back and eject no server
//! upstream_answer           an answer whose head has come
//! location                  addresses in it, back to those that the client knows
//! response_cost             costs that the response states
//! json_probe                one number in JSON that passes by
//! upgrade                   a WebSocket: the two connections are joined
//! upgrade/tunnel            both directions, until one side ends
//! upgrade/direction         one direction
//! upgrade/frame_tracker     where its frames end
//! upgrade/lookout           an end that is seen behind unread bytes
//! response_body             the answer's body, with an idle deadline
//! trailers                  which trailers are relayed
//! body                      the body as the client gets it; the exchange ends with it
//! error                     every cause, made a status
//! reply                     every answer of the gateway's own
//! reply/format              its form: the file's, and the client's choice
//! reply/problem             its content: a problem and a sentence
//! reply/refusal_text        a refusal's body, written once
//! reply/grpc                own answers to calls of gRPC
//! body_rest                 the rest of a body behind an own answer
//! fields                    `RateLimit` and its older relatives
//! fields/refusal_fields     the fields of refusals, after the pattern of the first
//! fields/merge              an upstream's fields stay beside the gateway's
//! exchange/answer           the gateway's fields on every answer
//! exchange/stream_end       the cause of the end of a WebSocket or an answer
//! worker_snapshot           a worker's half of a snapshot: metric handles and pools
//! ```

mod answer_wait;
mod attempts;
mod authority_challenge;
pub mod body;
mod body_failure;
pub(crate) mod body_prefix;
mod body_rest;
pub mod call_notes;
mod descriptor_reserve;
mod early_reply;
pub mod error;
pub mod exchange;
pub mod fields;
mod first_frame;
pub mod forwarded;
mod forwarding;
pub mod grpc;
mod handshake_facts;
mod head_rejection;
pub mod header_value;
mod held_slots;
pub mod hold;
pub mod hop;
mod identity_fields;
mod intake_stops;
mod json_probe;
pub(crate) mod kept_body;
mod known_caller;
mod limit_check;
mod location;
pub mod reply;
mod request_body;
pub mod request_id;
mod reservation;
mod response_body;
mod response_cost;
mod server_key;
pub mod server_part;
pub mod soft_timeout;
pub mod static_reply;
pub mod trailers;
mod unnamed_client;
pub mod upgrade;
pub mod upstream_answer;
pub mod upstream_call;
pub mod upstream_request;
pub mod wait_queue;
pub mod worker_snapshot;

pub use body::Body;
pub use hold::Holds;

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
use body_prefix::PrefixBudget;
use early_reply::answered_by_route;
use error::ProxyError;
use exchange::Exchange;
use http::request::Parts;
use http::{Request, Response};
use hyper::body::Incoming;
use intake_stops::Intake;
use kept_body::KeptBytes;
use request_body::RequestBody;
use std::cell::RefCell;
use std::mem;
use std::rc::Rc;
use std::sync::Arc;
use wait_queue::WorkerQueues;
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
    /// The beginnings of bodies, as far as they are kept.
    prefixes: Rc<PrefixBudget>,
    /// The bytes that are kept of bodies on their way, for servers that may not have begun with their requests.
    kept: Rc<KeptBytes>,
    challenges: AuthorityChallenges,
    metrics: WorkerMetrics,
    access: AccessWriter,
}

/// The parts that a worker is made of.
#[derive(Debug)]
pub struct Equipment {
    /// The snapshot in force.
    pub snapshots: Arc<ArcSwap<Snapshot>>,
    /// The way to the counters.
    pub store: Store,
    /// Requests held by all workers.
    pub holds: Arc<Holds>,
    /// Reports that the gateway stops.
    pub drain: Drain,
    /// The longest pause inside a body, and the least rate of a client's body.
    pub pace: RateBound,
    /// The worker's share of the open files that are not its clients' connections.
    pub descriptors: DescriptorShare,
    /// What certification authorities find when they look whether a host is ours.
    pub challenges: AuthorityChallenges,
    /// The worker's metrics.
    pub metrics: WorkerMetrics,
    /// The worker's way to the access log.
    pub access: AccessWriter,
}

impl Handler for Worker {
    type Body = Body;

    async fn answer(self: Rc<Self>, request: Request<Incoming>, peer: Rc<Peer>) -> Response<Body> {
        let mut exchange = Exchange::begin(&self, self.current(), &request, &peer);
        // The parts stay here and are lent to all that read them: they are large to move.
        let (mut parts, incoming) = request.into_parts();
        let mut incoming = Some(incoming);
        // A future that is named before it is awaited is moved.
        let outcome = self
            .carry(&mut parts, &mut incoming, &peer, &mut exchange)
            .await;
        exchange.let_go(incoming);
        let (logged, response) = match outcome {
            Ok(Reply::Response(mut response)) => {
                exchange.stamp(&mut response);
                (response.status(), response)
            }
            Ok(Reply::Tunnel(tunnel)) => {
                let idle = exchange.own_idle().unwrap_or(self.pace.idle);
                return tunnel.begin(exchange, peer, idle);
            }
            Err(error) => {
                exchange.leave(mem::take(&mut parts.headers));
                let response = exchange.fail(&error).map(Body::own);
                (error.logged_as(response.status()), response)
            }
        };
        exchange.replied(logged);
        response.map(|body| body.carrying(exchange))
    }

    fn rejected(&self, head: &RejectedHead<'_>, peer: &Peer) -> Vec<u8> {
        head_rejection::note(self, head, peer)
    }
}

/// The result of carrying a request.
enum Reply {
    /// A response, with its body to come.
    Response(Response<Body>),
    /// A tunnel.
    Tunnel(upgrade::Tunnel),
}

impl Worker {
    /// Equips a worker, on the worker's own thread.
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

    /// Housekeeping, about once a second.
    pub fn sweep(&self) {
        self.pools.sweep();
        self.queues.sweep();
        self.store.report();
    }

    /// Lets everything on its way to the store arrive: the last act of a worker. The store's timeout bounds it.
    pub async fn settle(&self) {
        self.queues.settle().await;
        self.store.settle().await;
    }

    /// Writes out log queues that wait for more lines. The future is spawned once.
    pub fn flushing(&self) -> impl Future<Output = ()> + 'static {
        self.access.flushing()
    }

    /// The snapshot in force, as this worker holds it.
    fn current(&self) -> Rc<WorkerSnapshot> {
        let newest = self.snapshots.load();
        let mut local = self.local.borrow_mut();
        if !Arc::ptr_eq(&newest, &local.snapshot) {
            *local = Rc::new(WorkerSnapshot::new(Arc::clone(&newest), &self.metrics));
        }
        Rc::clone(&local)
    }

    /// A request's way, stage by stage.
    async fn carry(
        &self,
        parts: &mut Parts,
        incoming: &mut Option<Incoming>,
        peer: &Peer,
        exchange: &mut Exchange,
    ) -> Result<Reply, ProxyError> {
        let mut head = self.head(parts, peer, exchange);
        let reserve = match self.take_in(&mut head, incoming, exchange).await? {
            Intake::Answered(reply) => return Ok(reply),
            Intake::Planned(reserve) => reserve,
        };
        let target = head.target;
        if exchange.has_limits() {
            self.hold_to_limits(peer, exchange).await?;
        }
        let local = Rc::clone(&exchange.local);
        let service = exchange.decided.route.map(|route| local.service(route));
        if let Some(own) = service.and_then(|service| service.own.as_ref()) {
            return Ok(answered_by_route(own, parts, exchange));
        }
        self.forward(&target, parts, incoming, peer, reserve, exchange)
            .await
    }

    /// Holds a request to its limits, and waits where they make it.
    async fn hold_to_limits(&self, peer: &Peer, exchange: &mut Exchange) -> Result<(), ProxyError> {
        if let Some((places, permit)) = self.admit(exchange).await? {
            // The future is boxed: no other request needs room for it.
            Box::pin(self.hold(places, permit, peer, exchange)).await?;
        }
        // This check comes last: the request counts on the limits that can be asked, and waits where they make it.
        exchange.lacks_nothing()
    }
}
