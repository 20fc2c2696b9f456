//! The forwarding of a request to a server, and of the server's answer to the client.

use crate::client::Client;
use crate::clock;
use crate::descriptors::DescriptorReserve;
use crate::intake::head::Target;
use crate::intake::peer;
use crate::listen::Peer;
use crate::proxy::answer::location::WayBack;
use crate::proxy::answer::upstream_answer::UpstreamAnswer;
use crate::proxy::bodies::body::Body;
use crate::proxy::bodies::kept_body::KeptShare;
use crate::proxy::bodies::request_body;
use crate::proxy::bodies::request_body::{RequestBody, Upload};
use crate::proxy::bodies::response_body::{BodyBringer, BodyCarrier, BodyStart, UpstreamBody};
use crate::proxy::error::ProxyError;
use crate::proxy::exchange::Exchange;
use crate::proxy::server::hop::Switch;
use crate::proxy::server::server_part::ServerPart;
use crate::proxy::server::upstream_call::{AddedLines, UpstreamCall};
use crate::proxy::server::upstream_request::OnwardHead;
use crate::proxy::server::{first_frame, hop, server_key, upstream_call, upstream_request};
use crate::proxy::worker_snapshot::WorkerSnapshot;
use crate::proxy::{Reply, Worker, upgrade};
use crate::upstream::balance::Balancer;
use crate::upstream::failure::UpstreamError;
use crate::upstream::{Purpose, UnaskedUpgrade, shared_connection};
use http::request::Parts;
use http::{HeaderMap, Response, StatusCode, Version};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::Instant;

impl Worker {
    /// Sends the request upstream and relays the answer.
    pub(super) async fn forward(
        &self,
        target: &Target,
        parts: &mut Parts,
        incoming: &mut Option<Incoming>,
        peer: &Peer,
        descriptor: Option<DescriptorReserve<'_>>,
        exchange: &mut Exchange,
    ) -> Result<Reply, ProxyError> {
        let local = Rc::clone(&exchange.local);
        let service = exchange.decided.route.map(|route| local.service(route));
        let Some((service, upstream)) = service.and_then(|one| Some((one, one.upstream?))) else {
            // The request was checked against the limits for every request.
            return Err(ProxyError::NoRoute);
        };
        first_frame::look(parts, incoming, exchange).await?;
        let balancer = local.balancer(upstream, &self.pools);
        let key = local.snapshot.hash_keys[upstream].as_ref();
        let key = key.and_then(|key| server_key::server_key(key, service, target, parts, exchange));
        let way_back = way_back(&local, target, &parts.headers, exchange);
        let down = wanted_upgrade(parts);
        let OnwardHead {
            request: head,
            forwarded,
        } = upstream_request::head(target, parts, down.is_some(), peer, exchange)?;
        let started = clock::now();
        let body = self.body(incoming.take(), peer, started, exchange);
        let wait = exchange.sets_out(started, service.timeout, self.pace.idle)?;
        let call = UpstreamCall {
            request: head.map(|()| body),
            added: AddedLines::new(forwarded.as_deref(), &exchange.arrived.id),
            descriptor,
            purpose: match down {
                Some(_) => Purpose::Tunnel,
                None => Purpose::Exchange,
            },
            at: started,
            reservation: exchange.decided.reservation.clone(),
            key,
            notes: &exchange.call.notes,
            part: server_part(way_back.as_deref(), exchange),
        };
        let sent = {
            let sending = pin!(upstream_call::send(balancer, call));
            wait.bound(sending, peer).await
        };
        let mut answer = match sent {
            Ok(answer) => answer,
            Err(error) => return Err(failed_call(error, balancer, exchange)),
        };
        let arrival = note_arrival(&mut answer, started, balancer, exchange);
        way_back.iter().for_each(|back| back.restore(&mut answer));
        let kind = match answer_kind(&mut answer, down) {
            Ok(kind) => kind,
            Err(error) => return Err(arrival.note_invalid(error, balancer, exchange)),
        };
        arrival.counts(balancer, exchange);
        Ok(self.relay(answer, kind, arrival.took, peer, exchange))
    }

    /// The request's body towards its server; the exchange counts its progress.
    #[inline]
    fn body(
        &self,
        incoming: Option<Incoming>,
        peer: &Peer,
        started: Instant,
        exchange: &mut Exchange,
    ) -> RequestBody {
        let prefix = exchange.call.prefix.take();
        let (pace, identity) = (exchange.pace(self.pace, peer), exchange.identity());
        let share = || KeptShare::new(&self.kept, Client::of(exchange.arrived.client));
        let (body, upload) = RequestBody::new(prefix, incoming, pace, identity, started, share);
        exchange.call.upload = upload;
        body
    }

    /// Relays the upstream's answer, or prepares the tunnel that the upstream has agreed to.
    #[inline]
    fn relay(
        &self,
        answer: UpstreamAnswer,
        kind: AnswerKind,
        took: Duration,
        peer: &Peer,
        exchange: &mut Exchange,
    ) -> Reply {
        exchange.answered(answer.response.status(), answer.response.headers(), took);
        match kind {
            AnswerKind::Tunnel(down) => Reply::Tunnel(upgrade::prepare(answer, down)),
            AnswerKind::Body(start) => {
                let upload = exchange.call.upload.clone();
                let idle = exchange.route_idle().unwrap_or(self.pace.idle);
                Reply::Response(switch_protocols(answer, start, upload, idle, peer))
            }
        }
    }
}

/// The kind of an answer towards the client.
enum AnswerKind {
    /// A WebSocket, with the client's half of it.
    Tunnel(OnUpgrade),
    /// A body with this beginning.
    Body(BodyStart),
}

/// The kind of `answer`, depending on whether the client has requested a tunnel.
///
/// # Errors
/// With 502, if the answer after its head is invalid.
#[inline]
fn answer_kind(
    answer: &mut UpstreamAnswer,
    down: Option<OnUpgrade>,
) -> Result<AnswerKind, ProxyError> {
    let (status, fields) = (answer.response.status(), answer.response.headers());
    match (hop::switch(down.is_some(), status, fields), down) {
        (Switch::Unasked, down) => {
            let switch = UnaskedUpgrade::of(down.is_some(), fields);
            Err(UpstreamError::UnaskedUpgrade(switch).into())
        }
        (Switch::WebSocket, None) => {
            let switch = UnaskedUpgrade::of(false, fields);
            Err(UpstreamError::UnaskedUpgrade(switch).into())
        }
        (Switch::WebSocket, Some(down)) => Ok(AnswerKind::Tunnel(down)),
        (Switch::None, _) => answer.start().map(AnswerKind::Body),
    }
}

/// The answer of a server in the form for the client: its body may be silent for `idle`.
fn switch_protocols(
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
        (BodyCarrier::Tunnel(body), _) => BodyBringer::Tunnel(body),
        (BodyCarrier::Connection(connection), Some(upload)) if connection.is_writing() => {
            let abandoned = request_body::abandoned(peer.watch.clone(), upload);
            BodyBringer::Shared(shared_connection::share(connection, pool, idle, abandoned))
        }
        (BodyCarrier::Connection(connection), _) => BodyBringer::Connection((connection, pool)),
    };
    // Each hop writes its own version (RFC 9110 section 2.5). Otherwise the limitations of an older upstream would
    // apply to a client: no kept connection, and no chunks that mark the end of a body.
    parts.version = Version::HTTP_11;
    hop::strip_response(parts.status, &mut parts.headers);
    let download = UpstreamBody::new(source, start, left, idle, &peer.watch);
    Response::from_parts(parts, Body::upstream(download))
}

/// The client's half of the tunnel that it requests.
#[inline]
fn wanted_upgrade(parts: &mut Parts) -> Option<OnUpgrade> {
    hop::wants_websocket(&parts.method, parts.version, &parts.headers)
        .then(|| parts.extensions.remove::<OnUpgrade>())
        .flatten()
}

/// The mapping from addresses in the answer to the client's addresses, if the servers receive another `Host`.
#[inline]
fn way_back<'l>(
    local: &'l WorkerSnapshot,
    target: &Target,
    fields: &HeaderMap,
    exchange: &Exchange,
) -> Option<Box<WayBack<'l>>> {
    let change = local
        .service(exchange.decided.route?)
        .host_change
        .as_ref()?;
    let (trust, peer) = (&local.snapshot.trust, exchange.arrived.peer);
    let scheme = peer::client_scheme(trust, peer, fields, target);
    Some(WayBack::of(change, target, scheme))
}

/// The parts of the request that depend on the server that it is sent to.
#[inline]
fn server_part<'e>(way_back: Option<&WayBack<'_>>, exchange: &'e Exchange) -> ServerPart<'e> {
    ServerPart {
        uses_server_host: way_back.is_some_and(WayBack::is_to_server_host),
        grpc: exchange.call.grpc.as_deref(),
    }
}

/// The head of an answer that has arrived.
struct AnswerArrival {
    /// The time since forwarding began.
    took: Duration,
    status: u16,
    /// Does a gRPC call report that its service is unavailable? `None` if that is not known yet.
    is_unavailable: Option<bool>,
}

impl AnswerArrival {
    /// Counts an answer that is passed on, for its server.
    #[inline]
    fn counts(&self, balancer: &Balancer<RequestBody>, exchange: &Exchange) {
        if let Some(is_unavailable) = self.is_unavailable {
            let call = &exchange.call.notes;
            if (self.status >= 500 || is_unavailable) && self.is_end_of_patience(exchange) {
                call.excused(self.status);
            } else {
                call.answered(balancer, self.status, is_unavailable);
            }
        }
    }

    /// Does the answer mean the end of the server's patience with a slow client?
    #[cold]
    fn is_end_of_patience(&self, exchange: &Exchange) -> bool {
        exchange.is_end_of_patience(StatusCode::from_u16(self.status).ok())
    }

    /// Notes that the answer after its head is invalid, which counts against its server unless the client is the cause.
    #[cold]
    #[inline(never)]
    fn note_invalid(
        &self,
        error: ProxyError,
        balancer: &Balancer<RequestBody>,
        exchange: &Exchange,
    ) -> ProxyError {
        let error = upstream_call::blame(error, exchange.call.upload.as_deref());
        upstream_call::count_failure(&balancer.metrics, &error);
        let is_clients = exchange.is_break_of_client(&error);
        if let ProxyError::Upstream(error) = &error {
            let fault = error.fault();
            if is_clients {
                exchange.call.notes.excused(self.status);
            } else if let (Some(endpoint), Some(asked)) =
                (exchange.call.notes.endpoint(), exchange.call.notes.asked())
            {
                let client = exchange.call.notes.client();
                balancer.invalid(&endpoint, self.status, &fault.to_string(), asked, client);
            }
            exchange.call.notes.note_fault(&fault);
        }
        error
    }
}

/// Notes that the head of an answer has arrived, and counts its content.
#[inline]
fn note_arrival(
    answer: &mut UpstreamAnswer,
    started: Instant,
    balancer: &Balancer<RequestBody>,
    exchange: &mut Exchange,
) -> AnswerArrival {
    let now = clock::now();
    answer.note_arrival(now);
    let took = now.saturating_duration_since(started);
    let status = answer.response.status().as_u16();
    balancer.metrics.answered(status, took);
    let is_unavailable = match &mut exchange.call.grpc {
        None => Some(false),
        Some(call) => call.answered(answer.response.status(), answer.response.headers()),
    };
    exchange.decided.seen = now;
    AnswerArrival {
        took,
        status,
        is_unavailable,
    }
}

/// No server has answered: finds the cause, and counts it against the upstream and the server if it is theirs.
#[cold]
#[inline(never)]
fn failed_call(
    error: ProxyError,
    balancer: &Balancer<RequestBody>,
    exchange: &mut Exchange,
) -> ProxyError {
    exchange.decided.seen = clock::now();
    let upload = exchange.call.upload.as_deref();
    let mut error = upstream_call::blame(error, upload);
    if let ProxyError::Upstream(UpstreamError::Timeout(after)) = error {
        // The timeout of a call is the client's choice, and its end is no failure of a server.
        if exchange.is_past_deadline(exchange.decided.seen) {
            return ProxyError::DeadlineExceeded;
        }
        match (exchange.call.notes.endpoint(), exchange.call.notes.asked()) {
            (Some(endpoint), Some(asked)) => {
                let (why, by) = (
                    format!("no answer within {after:?}"),
                    exchange.call.notes.client(),
                );
                balancer.failed(&endpoint, &why, asked, Some(by));
            }
            // The time was spent in the queue.
            _ => error = UpstreamError::Busy.into(),
        }
    }
    upstream_call::count_failure(&balancer.metrics, &error);
    if error.status() == StatusCode::BAD_GATEWAY
        && let ProxyError::Upstream(error) = &error
    {
        exchange.call.notes.note_fault(&error.fault());
    }
    error
}
