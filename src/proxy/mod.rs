//! The request path: from a head that hyper has read to a response that hyper writes.

mod attempts;
mod authority_challenge;
pub mod body;
mod body_failure;
mod body_prefix;
pub mod call_notes;
mod descriptor_reserve;
pub mod error;
pub mod exchange;
pub mod fields;
pub mod forwarded;
pub mod grpc;
mod handshake_facts;
mod head_rejection;
pub mod header_value;
pub mod hold;
pub mod hop;
pub mod https_redirect;
mod identity_fields;
mod json_probe;
mod limit_check;
mod location;
pub mod reply;
pub mod request;
mod request_body;
pub mod request_id;
mod reservation;
mod response_body;
mod response_cost;
mod route_caller;
pub mod route_members;
pub mod route_request;
mod server_key;
pub mod server_part;
pub mod soft_timeout;
pub mod static_reply;
pub mod trailers;
pub mod upgrade;
pub mod upstream_answer;
pub mod upstream_call;
pub mod upstream_request;
pub mod wait_queue;
pub mod worker_snapshot;

pub use body::Body;
pub use hold::Holds;

use crate::admission::stripped_fields::{self, FieldTrust};
use crate::clock;
use crate::descriptors::{DescriptorReserve, DescriptorShare};
use crate::listen::handler::{Handler, RejectedHead};
use crate::listen::minimum_rate::RateBound;
use crate::listen::{FramingFault, Peer};
use crate::route::{host_key, path};
use crate::shutdown::Drain;
use crate::snapshot::{Snapshot, StaticReply};
use crate::store::Store;
use crate::telemetry::access_log::AccessWriter;
use crate::telemetry::metrics::WorkerMetrics;
use crate::tls::AuthorityChallenges;
use crate::upstream::Purpose;
use crate::upstream::balance::Balancer;
use crate::upstream::failure::UpstreamError;
use crate::upstream::pool::Pools;
use crate::upstream::shared_connection;
use arc_swap::ArcSwap;
use body_prefix::{PrefixBudget, ReadAhead};
use error::ProxyError;
use exchange::Exchange;
use forwarded::Hops;
use hop::Switch;
use http::request::Parts;
use http::{HeaderMap, Request, Response, Uri, Version};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use location::WayBack;
use request::{BadRequest, Target};
use request_body::{RequestBody, Upload};
use response_body::{BodyBringer, BodyStart, Carrier, UpstreamBody};
use route_members::RouteMembers;
use route_request::RouteRequest;
use server_part::ServerPart;
use std::borrow::Cow;
use std::cell::RefCell;
use std::mem;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use upstream_answer::UpstreamAnswer;
use upstream_call::{AddedLines, UpstreamCall};
use upstream_request::OnwardHead;
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
        // A future that is named before it is awaited is moved.
        let outcome = self.carry(&mut parts, incoming, &peer, &mut exchange).await;
        let response = match outcome {
            Ok(Reply::Response(mut response)) => {
                exchange.stamp(response.headers_mut());
                response
            }
            Ok(Reply::Tunnel(tunnel)) => {
                let idle = exchange.own_idle().unwrap_or(self.pace.idle);
                return tunnel.begin(exchange, peer, idle);
            }
            Err(error) => exchange.fail(&error).map(Body::own),
        };
        exchange.replied(response.status());
        response.map(|body| body.carrying(exchange))
    }

    fn rejected(&self, head: &RejectedHead<'_>, peer: &Peer) {
        head_rejection::note(self, head, peer);
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
        mut incoming: Incoming,
        peer: &Peer,
        exchange: &mut Exchange,
    ) -> Result<Reply, ProxyError> {
        let target = self.read(parts, exchange)?;
        if target.is_asterisk()
            || forwarded::count_hop(&parts.method, &mut parts.headers) == Hops::Spent
        {
            return Ok(reply_here());
        }
        // An authority is answered before anything that the file says of requests.
        if self.challenges.has_texts()
            && authority_challenge::looks(parts)
            // The future is boxed: no other request needs room for it.
            && let Some(text) =
                Box::pin(authority_challenge::text(&self.challenges, &target, parts)).await
        {
            return Ok(challenged(&text, incoming, parts, exchange));
        }
        // No route and no limit is looked at.
        if peer.redirects {
            return redirected(&target, incoming, parts, exchange);
        }
        if !peer.may_serve(|| host_key(target.host())) {
            return Err(turned_away(
                ProxyError::Misdirected,
                incoming,
                parts,
                exchange,
            ));
        }
        if let Some(onward) = self.find(&target, parts, exchange)? {
            parts.uri = onward;
        }
        if let Some(identity) = exchange.identity() {
            identity.strip(&mut parts.headers);
        }
        // The descriptor comes first, so that no request is charged that could not be forwarded.
        let promise = match self.promise(exchange) {
            Ok(promise) => promise,
            Err(busy) => return Err(turned_away(busy, incoming, parts, exchange)),
        };
        if exchange.has_limits() {
            let outcome = self
                .hold_to_limits(&target, parts, &mut incoming, peer, exchange)
                .await;
            if let Err(refused) = outcome {
                return Err(turned_away(refused, incoming, parts, exchange));
            }
        }
        let local = Rc::clone(&exchange.local);
        let service = exchange.route.map(|route| local.service(route));
        if let Some(own) = service.and_then(|service| service.own.as_ref()) {
            return Ok(answered_by_route(own, incoming, parts, exchange));
        }
        self.forward(&target, parts, incoming, peer, promise, exchange)
            .await
    }

    /// Holds a request to its limits, and waits where they make it.
    async fn hold_to_limits(
        &self,
        target: &Target,
        parts: &Parts,
        incoming: &mut Incoming,
        peer: &Peer,
        exchange: &mut Exchange,
    ) -> Result<(), ProxyError> {
        if exchange.wants_prefix() {
            Box::pin(self.read_ahead(incoming, &parts.headers, exchange)).await?;
        }
        if let Some((places, permit)) = self.admit(target, parts, exchange).await? {
            Box::pin(self.hold(places, permit, peer, exchange)).await?;
        }
        // This check comes last: the request counts on the limits that can be asked, and waits where they make it.
        exchange.lacks_nothing()
    }

    /// Is it a request that may be forwarded, and which host does it address?
    fn read(&self, parts: &mut Parts, exchange: &mut Exchange) -> Result<Target, ProxyError> {
        if let Some(&found) = parts.extensions.get::<FramingFault>() {
            return Err(BadRequest::from(found).into());
        }
        let target = Target::read(
            &parts.method,
            &parts.uri,
            parts.version,
            exchange.peer.scheme,
            &parts.headers,
        )?;
        exchange.read_deadline(&parts.headers)?;
        let believed = FieldTrust::of(&exchange.local.snapshot, exchange.peer.address);
        stripped_fields::tidy(&mut parts.headers, &believed);
        hop::drop_named(&mut parts.headers)?;
        exchange.host = target.authority().cloned();
        Ok(target)
    }

    /// Which route is the request for? Returns the upstream's target where it is another than the request's: the path in
    /// the form that was matched.
    fn find(
        &self,
        target: &Target,
        parts: &Parts,
        exchange: &mut Exchange,
    ) -> Result<Option<Uri>, ProxyError> {
        let path = path::normalize(parts.uri.path()).map_err(BadRequest::from)?;
        let table = &exchange.local.snapshot.table;
        let host = if table.asks_for_hosts() {
            host_key(target.host())
        } else {
            Cow::Borrowed("")
        };
        let shown = || exchange.tls.as_deref().and_then(handshake_facts::shown);
        let members = RouteMembers::of(&exchange.local.snapshot, parts, exchange.client, shown);
        let coming = RouteRequest {
            parts,
            target,
            peer: exchange.peer,
            trust: &exchange.local.snapshot.trust,
            members: members.as_deref(),
        };
        let found = table.find(&host, path.to_match(), &parts.method, &coming);
        if let Some(members) = &members {
            members.are_known()?;
        }
        let route = found
            .or(exchange.local.snapshot.unrouted)
            .ok_or(ProxyError::NoRoute)?;
        let onward = if request::is_forward_target(&parts.uri, &path) {
            None
        } else {
            Some(request::forward_target(&parts.uri, &path)?)
        };
        let reading = members.and_then(|members| members.reading());
        exchange.matched(route, reading);
        Ok(onward.map(Uri::from))
    }

    /// Reads the beginning of the body, where a limit tells repeats by it.
    async fn read_ahead(
        &self,
        incoming: &mut Incoming,
        fields: &HeaderMap,
        exchange: &mut Exchange,
    ) -> Result<(), ProxyError> {
        let Some(service) = exchange.service() else {
            return Ok(());
        };
        let reading = self
            .prefixes
            .read_ahead(incoming, fields, service, exchange.client);
        match reading.await {
            Ok(Some(ReadAhead { content, prefix })) => {
                exchange.content = content;
                exchange.prefix = Some(prefix);
                Ok(())
            }
            Ok(None) => Ok(()),
            Err(failure) => Err(exchange.broken(failure)),
        }
    }

    /// Sends the request upstream and relays the answer.
    async fn forward(
        &self,
        target: &Target,
        parts: &mut Parts,
        incoming: Incoming,
        peer: &Peer,
        descriptor: Option<DescriptorReserve<'_>>,
        exchange: &mut Exchange,
    ) -> Result<Reply, ProxyError> {
        let local = Rc::clone(&exchange.local);
        let service = exchange.route.map(|route| local.service(route));
        let Some((service, upstream)) = service.and_then(|one| Some((one, one.upstream?))) else {
            // The request has been held to the limits that hold everywhere.
            return Err(ProxyError::NoRoute);
        };
        let balancer = local.balancer(upstream, &self.pools);
        let key = local.snapshot.hash_keys[upstream].as_ref();
        let key = key.and_then(|key| server_key::of(key, service, target, parts, exchange));
        let way_back = way_back(&local, target, &parts.headers, exchange);
        let down = wanted_upgrade(parts);
        let OnwardHead {
            request: head,
            beside,
        } = upstream_request::head(target, parts, down.is_some(), peer, exchange)?;
        let prefix = exchange.prefix.take();
        let (pace, identity) = (exchange.pace(self.pace, peer), exchange.identity().cloned());
        let (body, upload) = RequestBody::new(prefix, incoming, pace, identity);
        exchange.upload.clone_from(&upload);

        let started = clock::now();
        let allowed = exchange.sets_out(started, service.timeout)?;
        let call = UpstreamCall {
            request: head.map(|()| body),
            added: AddedLines::new(beside.as_deref(), &exchange.id),
            descriptor,
            purpose: match down {
                Some(_) => Purpose::Tunnel,
                None => Purpose::Exchange,
            },
            at: started,
            reservation: exchange.reservation.clone(),
            key,
            notes: &exchange.call,
            own: server_part(way_back.as_deref(), exchange),
        };
        let sent = {
            let sending = pin!(upstream_call::send(balancer, call));
            upstream_call::within(sending, started, allowed, peer).await
        };
        let mut answer = match sent {
            Ok(answer) => answer,
            Err(error) => return Err(unanswered(error, balancer, exchange)),
        };
        let took = came(&mut answer, started, balancer, exchange);
        way_back.iter().for_each(|back| back.restore(&mut answer));
        self.relay(answer, took, down, peer, exchange)
            .inspect_err(|error| upstream_call::count_failure(&balancer.metrics, error))
    }

    /// Relays the upstream's answer, or prepares the tunnel that the upstream has agreed to.
    fn relay(
        &self,
        mut answer: UpstreamAnswer,
        took: Duration,
        down: Option<OnUpgrade>,
        peer: &Peer,
        exchange: &mut Exchange,
    ) -> Result<Reply, ProxyError> {
        let (status, fields) = (answer.response.status(), answer.response.headers());
        match (hop::switch(down.is_some(), status, fields), down) {
            (Switch::Unasked, _) | (Switch::WebSocket, None) => {
                Err(UpstreamError::UnaskedUpgrade.into())
            }
            (Switch::WebSocket, Some(down)) => {
                exchange.answered(status, fields, took);
                Ok(Reply::Tunnel(upgrade::prepare(answer, down)))
            }
            (Switch::None, _) => {
                let start = answer.start()?;
                exchange.answered(status, answer.response.headers(), took);
                let upload = exchange.upload.clone();
                let idle = exchange.own_idle().unwrap_or(self.pace.idle);
                let response = turn_round(answer, start, upload, idle, peer);
                Ok(Reply::Response(response))
            }
        }
    }
}

/// The answer of a server, as the client gets it: its body may be silent for `idle`.
fn turn_round(
    answer: UpstreamAnswer,
    start: BodyStart,
    upload: Option<Rc<Upload>>,
    idle: Duration,
    peer: &Peer,
) -> Response<Body> {
    let UpstreamAnswer {
        response,
        carrier,
        pool,
    } = answer;
    let (mut parts, ()) = response.into_parts();
    let left = carrier.left(&start);
    let source = match (carrier, upload) {
        (Carrier::Tunnel(body), _) => BodyBringer::Tunnel(body),
        (Carrier::Connection(connection), Some(upload)) if connection.is_writing() => {
            let abandoned = request_body::abandoned(peer.watch.clone(), upload);
            BodyBringer::Shared(shared_connection::share(connection, pool, idle, abandoned))
        }
        (Carrier::Connection(connection), _) => BodyBringer::Connection((connection, pool)),
    };
    // Each hop writes its own version (RFC 9110 section 2.5). Otherwise a client would be held to the limits of an
    // older upstream: no kept connection, and no chunks that mark the end of a body.
    parts.version = Version::HTTP_11;
    hop::strip_response(parts.status, &mut parts.headers);
    let download = UpstreamBody::new(source, start, left, idle, &peer.watch);
    Response::from_parts(parts, Body::upstream(download))
}

/// The gateway's own answer to `OPTIONS *`, and to a request that may travel no further.
#[cold]
#[inline(never)]
fn reply_here() -> Reply {
    Reply::Response(reply::empty().map(Body::own))
}

/// The answer to an authority that looks whether a host is ours.
#[cold]
#[inline(never)]
fn challenged(text: &str, incoming: Incoming, parts: &Parts, exchange: &mut Exchange) -> Reply {
    exchange.let_go(incoming, parts);
    exchange.challenged();
    Reply::Response(authority_challenge::answer(text, &parts.method).map(Body::own))
}

/// The answer of a listener that sends its requests on to `https`.
#[cold]
#[inline(never)]
fn redirected(
    target: &Target,
    incoming: Incoming,
    parts: &mut Parts,
    exchange: &mut Exchange,
) -> Result<Reply, ProxyError> {
    match https_redirect::answer(target, &parts.uri) {
        Ok(answer) => {
            exchange.let_go(incoming, parts);
            exchange.redirected();
            Ok(Reply::Response(exchange.spoken(answer).map(Body::own)))
        }
        Err(refused) => Err(turned_away(refused, incoming, parts, exchange)),
    }
}

/// The answer of a route that has no upstream.
#[inline(never)]
fn answered_by_route(
    own: &StaticReply,
    incoming: Incoming,
    parts: &Parts,
    exchange: &mut Exchange,
) -> Reply {
    let answer = static_reply::answer(own, &parts.method, &parts.uri);
    exchange.let_go(incoming, parts);
    Reply::Response(exchange.spoken(answer).map(Body::own))
}

/// A request is not forwarded: a little of its body is read, and its fields' room is left to the answer.
#[inline(never)]
fn turned_away(
    refused: ProxyError,
    incoming: Incoming,
    parts: &mut Parts,
    exchange: &mut Exchange,
) -> ProxyError {
    exchange.let_go(incoming, parts);
    exchange.leave(mem::take(&mut parts.headers));
    refused
}

/// The client's half of the tunnel that it asks for.
#[inline]
fn wanted_upgrade(parts: &mut Parts) -> Option<OnUpgrade> {
    hop::wants_websocket(&parts.method, parts.version, &parts.headers)
        .then(|| parts.extensions.remove::<OnUpgrade>())
        .flatten()
}

/// The way from addresses in the answer back to the client's, where the servers are asked for another host.
#[inline]
fn way_back<'l>(
    local: &'l WorkerSnapshot,
    target: &Target,
    fields: &HeaderMap,
    exchange: &Exchange,
) -> Option<Box<WayBack<'l>>> {
    let change = local.service(exchange.route?).host_change.as_ref()?;
    Some(WayBack::of(change, target, fields, exchange))
}

/// What is written into the request for the server that it is sent to.
#[inline]
fn server_part<'e>(way_back: Option<&WayBack<'_>>, exchange: &'e Exchange) -> ServerPart<'e> {
    ServerPart {
        own_host: way_back.is_some_and(WayBack::is_to_own_host),
        grpc: exchange.grpc.as_deref(),
    }
}

/// The head of an answer has come: counts it, and returns the time since the request was `started`.
#[inline]
fn came(
    answer: &mut UpstreamAnswer,
    started: Instant,
    balancer: &Balancer<RequestBody>,
    exchange: &mut Exchange,
) -> Duration {
    let now = clock::now();
    answer.came(now);
    let took = now.saturating_duration_since(started);
    let status = answer.response.status().as_u16();
    balancer.metrics.answered(status, took);
    let is_unavailable = match &mut exchange.grpc {
        None => Some(false),
        Some(call) => call.answered(answer.response.status(), answer.response.headers()),
    };
    if let Some(is_unavailable) = is_unavailable {
        exchange.call.answered(balancer, status, is_unavailable);
    }
    exchange.seen = now;
    took
}

/// No server has answered: the cause is found, and counted against the upstream and the server where it is theirs.
#[cold]
#[inline(never)]
fn unanswered(
    error: ProxyError,
    balancer: &Balancer<RequestBody>,
    exchange: &mut Exchange,
) -> ProxyError {
    exchange.seen = clock::now();
    let upload = exchange.upload.as_deref();
    let mut error = upstream_call::blame(error, upload);
    if let ProxyError::Upstream(UpstreamError::Timeout(after)) = error {
        // How long a call may take is the client's choice, and nothing that a server has failed.
        if exchange.is_past_deadline(exchange.seen) {
            return ProxyError::DeadlineExceeded;
        }
        // A client that is slow with its body may have taken all of the time.
        let is_sent = upload.is_none_or(|upload| upload.done.get());
        match (exchange.call.endpoint(), exchange.call.asked()) {
            (Some(endpoint), Some(asked)) if is_sent => {
                balancer.failed(&endpoint, &format!("no answer within {after:?}"), asked);
            }
            (Some(_), _) => {}
            // The time was spent in the queue.
            (None, _) => error = UpstreamError::Busy.into(),
        }
    }
    upstream_call::count_failure(&balancer.metrics, &error);
    error
}
