//! The exchange: the facts gathered about one request, which become metrics and a log line at its end.

mod account;
mod answer;
mod decisions;
mod slow_client;
mod stream_end;

use crate::admission::{Admission, Plan, RequestEnd};
use crate::clock::{self, Timestamp};
use crate::intake::peer::ConnectionPeer;
use crate::intake::stripped_fields;
use crate::key::token::TokenReading;
use crate::key::{Content, CustomerReading, FinalStatus, IdentityFields};
use crate::listen::Peer;
use crate::listen::minimum_rate::Lateness;
use crate::listen::socket::{SocketWatch, StallFlag};
use crate::proxy::Worker;
use crate::proxy::answer::reply::ReplyFormat;
use crate::proxy::bodies::body_failure::UploadFailure;
use crate::proxy::bodies::body_prefix::BodyPrefix;
use crate::proxy::bodies::body_rest::BodyRest;
use crate::proxy::bodies::request_body::Upload;
use crate::proxy::error::ProxyError;
use crate::proxy::grpc::GrpcCall;
use crate::proxy::limits::reservation::Reservations;
use crate::proxy::request::{request_id, unnamed_client};
use crate::proxy::server::call_notes::CallNotes;
use crate::proxy::worker_snapshot::WorkerSnapshot;
use crate::shutdown::Drain;
use crate::snapshot::Service;
use crate::telemetry::access_log::Reason;
use crate::telemetry::metrics::{AnswerSource, EndedBy, Failure, InFlightGauge};
use crate::tls::TlsSession;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Version, header};
use std::cell::OnceCell;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The end of an exchange, as its body reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExchangeEnd {
    /// The last byte was handed on.
    Complete,
    /// The upstream failed during the answer.
    Upstream(Failure),
    /// The client left before the end.
    ClientGone,
    /// The client took no byte of the answer for too long, or too few.
    ClientStalled(Lateness),
}

/// One request and its response.
#[derive(Debug)]
pub struct Exchange {
    worker: Rc<Worker>,
    /// The snapshot that the request uses.
    pub local: Rc<WorkerSnapshot>,
    /// The request as it arrived.
    pub arrived: Arrived,
    /// The results of route and limits.
    pub(super) decided: Decided,
    /// The request's call to a server.
    pub call: ServerCall,
    outcome: Outcome,
    _in_flight: InFlightGauge,
}

/// The request as it arrived. Except for the host, which is known a little later, nothing here changes.
#[derive(Debug)]
pub struct Arrived {
    began: Timestamp,
    started: Instant,
    method: Method,
    /// The target as received, for the log.
    target: Option<PathAndQuery>,
    version: Version,
    user_agent: Option<HeaderValue>,
    /// The form of refusals for a request without gRPC.
    form: ReplyFormat,
    /// The request's id.
    pub id: HeaderValue,
    /// The request's host, once it is known to be valid.
    pub host: Option<HeaderValue>,
    /// The far end of the request's connection.
    pub peer: ConnectionPeer,
    /// The handshake of the request's connection; `None` in clear text.
    pub tls: Option<Rc<TlsSession>>,
    /// The client's address, after trusted hops.
    pub client: Option<IpAddr>,
}

/// The decisions about a request.
#[derive(Debug)]
pub(super) struct Decided {
    /// The latest time that was read for the request.
    pub(super) seen: Instant,
    pub(super) route: Option<usize>,
    /// The result of the verification of its token, if it is needed again.
    pub(super) token: Option<TokenReading>,
    /// The customer of the request, where one was asked for.
    pub(super) customer: OnceCell<Rc<CustomerReading>>,
    /// The limits that apply, with their keys: written in place, because a plan is large.
    pub(super) plan: Plan,
    /// The plan's limits have been checked, or none of them decides.
    is_planned: bool,
    /// The store's answer.
    admission: Option<Admission>,
    /// The hold, in microseconds.
    delayed: u64,
    /// The charges of its limits that may be refunded.
    pub(super) reservation: Option<Rc<Reservations>>,
}

/// The call of a request and its body to a server.
#[derive(Debug)]
pub struct ServerCall {
    /// The request is a gRPC call: refusals have the gRPC form, and either side may be silent by its nature.
    pub grpc: Option<Box<GrpcCall>>,
    /// The facts known of the request's body before it is forwarded.
    pub content: Content,
    /// The treatment of the rest of the request's body after the gateway's own answer.
    rest: BodyRest,
    /// The frames of the request's body that were read before forwarding.
    pub(super) prefix: Option<Box<BodyPrefix>>,
    /// The progress of the request's body, if it has one.
    pub upload: Option<Rc<Upload>>,
    /// The notes of the call, taken while it proceeds: the client may leave at any time.
    pub(super) notes: CallNotes,
    /// The time that this server took to answer.
    upstream_time: Option<Duration>,
}

/// The answer for the client, and its end.
#[derive(Debug)]
struct Outcome {
    /// The gateway's own answer ends the connection, since the body is not drained. In HTTP/2 only the stream ends.
    closes: bool,
    status: u16,
    source: AnswerSource,
    reason: Reason,
    limit: Option<Arc<str>>,
    retry_after: Option<u64>,
    sent: u64,
    ending: ExchangeEnd,
    /// The cause of the end of its WebSocket.
    tunnel_end: Option<EndedBy>,
    stalled: StallFlag,
    /// The client's connection, if it uses HTTP/1.0.
    old_client: Option<SocketWatch>,
    /// The request's fields, whose memory the fields of the answer may use.
    spare: Option<HeaderMap>,
}

impl Exchange {
    /// Begins the exchange of an arrived request.
    pub fn begin<B: http_body::Body>(
        worker: &Rc<Worker>,
        local: Rc<WorkerSnapshot>,
        request: &Request<B>,
        peer: &Peer,
    ) -> Box<Self> {
        let connection_peer = ConnectionPeer::of(peer);
        let address = connection_peer.address;
        let trusted = connection_peer.is_trusted(&local.snapshot.trust);
        if connection_peer.is_unnamed {
            unnamed_client::by_proxy_header(address, &worker.metrics);
        } else if !trusted {
            stripped_fields::untrusted_proxy(address, request.headers());
        }
        let client = if trusted {
            let trust = &local.snapshot.trust;
            unnamed_client::named_by(trust, address, request.headers(), &worker.metrics)
        } else {
            address.map(|address| address.to_canonical())
        };
        let started = clock::now();
        let began = clock::wall_at(started);
        // Without a log these fields are not read.
        let logged = worker.access.is_on();
        let target = logged.then(|| request.uri().path_and_query().cloned());
        let user_agent = logged.then(|| request.headers().get(header::USER_AGENT).cloned());
        let form = if local.snapshot.errors.ask_accept() {
            ReplyFormat::preferred(request.headers())
        } else {
            ReplyFormat::default()
        };
        let content = if request.body().is_end_stream() {
            Content::Absent
        } else {
            Content::Unread
        };
        let id = request_id::request_id(request.headers(), trusted, began);
        let (method, version, tls) = (
            request.method().clone(),
            request.version(),
            peer.tls().cloned(),
        );
        let (grpc, rest) = (GrpcCall::of(request), BodyRest::of(request));
        let old_client = (version == Version::HTTP_10).then(|| peer.watch.clone());
        let (worker, stalled) = (Rc::clone(worker), peer.watch.stalled());
        let in_flight = worker.metrics.in_flight();
        // `Box::new` would build it elsewhere and move it, and so would a call between the parts.
        Box::write(
            Box::new_uninit(),
            Self {
                worker,
                local,
                arrived: Arrived {
                    began,
                    started,
                    method,
                    target: target.flatten(),
                    version,
                    user_agent: user_agent.flatten(),
                    form,
                    id,
                    host: None,
                    peer: connection_peer,
                    tls,
                    client,
                },
                decided: Decided {
                    seen: started,
                    route: None,
                    token: None,
                    customer: OnceCell::new(),
                    plan: Plan::default(),
                    is_planned: false,
                    admission: None,
                    delayed: 0,
                    reservation: None,
                },
                call: ServerCall {
                    grpc,
                    content,
                    rest,
                    prefix: None,
                    upload: None,
                    notes: CallNotes::of(client),
                    upstream_time: None,
                },
                outcome: Outcome {
                    closes: false,
                    status: 0,
                    source: AnswerSource::Gateway,
                    reason: Reason::Ok,
                    limit: None,
                    retry_after: None,
                    sent: 0,
                    ending: ExchangeEnd::ClientGone,
                    tunnel_end: None,
                    stalled,
                    old_client,
                    spare: None,
                },
                _in_flight: in_flight,
            },
        )
    }

    /// The version of HTTP that the request came in.
    #[must_use]
    pub fn version(&self) -> Version {
        self.arrived.version
    }

    /// Notes that a route matched the request.
    pub fn matched(&mut self, route: usize) {
        self.decided.route = Some(route);
    }

    /// Keeps the result of the token's verification, if the client is read once more after its limits.
    #[cold]
    pub(super) fn keep_token(&mut self, reading: TokenReading) {
        let Some(service) = self.service() else {
            return;
        };
        let identity = service.identity.as_ref();
        let keys = &self.local.snapshot.hash_keys;
        let is_reread = identity.is_some_and(|identity| !identity.fields.is_empty())
            || service
                .upstream
                .is_some_and(|server| keys[server].is_some());
        self.decided.token = Some(reading).filter(|_| is_reread);
    }

    /// The arrival time of its head, if it is a gRPC call.
    #[inline]
    pub(super) fn call_began(&self) -> Option<Instant> {
        self.call.grpc.as_ref().map(|_| self.arrived.started)
    }

    /// Notes that fields were dropped because of their names, on this number of lines.
    pub(super) fn count_misread(&self, lines: u64) {
        self.worker.metrics.dropped_fields(lines);
    }

    /// Notes that no limit is checked, since none that decides applies. Shadow limits may apply, and would refuse the
    /// request because it lacks their key.
    pub(super) fn unasked(&mut self) {
        self.decided.is_planned = true;
        if !self.decided.plan.keyless().is_empty() {
            self.count_keyless();
        }
    }

    /// Notes that the limits have been checked.
    pub(super) fn decided(&mut self, admission: Admission, reservation: Option<Rc<Reservations>>) {
        if admission.has_repeat() {
            self.outcome.reason = Reason::Repeat;
        }
        self.decided.is_planned = true;
        self.decided.admission = Some(admission);
        self.decided.reservation = reservation;
        self.count_decisions();
    }

    /// Notes that the request is held for `micros`, by the limit that delays it.
    pub fn delayed(&mut self, micros: u64) {
        self.decided.delayed = micros;
        self.outcome.reason = Reason::LimitDelayed;
        self.outcome.limit = self.delaying().map(|(_, name)| Arc::clone(name));
    }

    /// Notes that the request was held for `time`: less than its delay if requests in front left, or the hold was cut.
    pub fn held_for(&mut self, time: Duration) {
        let micros = clock::micros(time);
        self.decided.delayed = self.decided.delayed.min(micros);
    }

    /// Notes that the upstream has just answered, at the time `after` its call.
    pub fn answered(&mut self, status: StatusCode, fields: &HeaderMap, after: Duration) {
        self.call.upstream_time = Some(after);
        if let Some(upload) = &self.call.upload {
            upload.answered();
        }
        self.outcome.source = AnswerSource::Upstream;
        self.outcome.status = status.as_u16();
        if let Some(reservation) = &self.decided.reservation {
            let end = self.end_of_answer(status);
            match &self.call.grpc {
                None => reservation.answered(end, fields),
                Some(call) => reservation.call_answered(call, fields, end),
            }
        }
        let others = after + Duration::from_micros(self.decided.delayed);
        let whole = self
            .decided
            .seen
            .saturating_duration_since(self.arrived.started);
        let ours = whole.saturating_sub(others);
        self.worker.metrics.overhead(ours);
    }

    /// The final status of a server's answer, unless it is an error that the client has caused.
    fn end_of_answer(&self, status: StatusCode) -> RequestEnd {
        let end = self.final_status(status.as_u16());
        if end.is_server_error() && self.is_end_of_patience(Some(status)) {
            RequestEnd::Kept
        } else {
            RequestEnd::Answered(end)
        }
    }

    /// `http` with the status of the call, if the request is one.
    pub(super) fn final_status(&self, http: u16) -> FinalStatus {
        FinalStatus {
            http,
            grpc: self.call.grpc.as_ref().and_then(|call| call.status),
        }
    }

    /// Notes that the exchange has become a tunnel, and returns the drain token for it.
    pub fn upgraded(&mut self) -> Drain {
        self.outcome.reason = Reason::Upgraded;
        self.worker.drain.clone()
    }

    /// Notes that the listener redirects the request to `https`.
    pub fn redirected(&mut self) {
        self.outcome.reason = Reason::ToHttps;
    }

    /// Notes that a certification authority checks whether we control the host.
    pub(super) fn challenged(&mut self) {
        self.outcome.reason = Reason::AcmeChallenge;
    }

    /// Notes that bytes of the response have been handed on.
    pub fn sent(&mut self, bytes: u64) {
        self.outcome.sent += bytes;
    }

    /// Notes that a piece of the upstream's body is handed on.
    pub fn passes(&mut self, piece: &[u8]) {
        self.sent(piece.len() as u64);
        if let Some(reservation) = &self.decided.reservation {
            reservation.passes(piece);
        }
    }

    /// Notes that bytes arrived from the client in a tunnel.
    pub fn received(&mut self, bytes: u64) {
        let upload = self.call.upload.get_or_insert_default();
        upload.bytes.set(upload.bytes.get() + bytes);
    }

    /// The service of the route.
    #[must_use]
    pub fn service(&self) -> Option<&Service> {
        self.decided.route.map(|route| self.local.service(route))
    }

    /// The fields that identify the client to the route's servers.
    #[inline]
    pub(super) fn identity(&self) -> Option<Arc<IdentityFields>> {
        self.service()?.identity.clone()
    }

    /// Hands over the request's fields, which are not read again: the answer's fields use their memory.
    pub fn leave(&mut self, fields: HeaderMap) {
        self.outcome.spare = Some(fields);
    }

    /// Notes that the head of a response is sent, and its body is still to come.
    pub fn replied(&mut self, status: StatusCode) {
        self.outcome.status = status.as_u16();
        if let Some(reservation) = &self.decided.reservation {
            reservation.replied(self.final_status(status.as_u16()));
        }
    }

    /// Do limits apply to the request, or does it lack something that its route requires?
    pub(super) fn is_checked(&self) -> bool {
        let service = self.service();
        service.is_some_and(|service| !service.limits.is_empty())
            || self.decided.plan.lack().is_some()
    }

    /// Notes that the body broke before forwarding.
    pub(super) fn broken(&mut self, failure: UploadFailure) -> ProxyError {
        let upload = self.call.upload.get_or_insert_default();
        upload.broken.set(Some(failure));
        ProxyError::from(failure)
    }

    /// Ends the exchange.
    pub fn end(mut self: Box<Self>, ending: ExchangeEnd) {
        self.outcome.ending = ending;
    }

    /// The status of a request without an answer, because no client was there to read it or no gateway to write it.
    #[cold]
    #[inline(never)]
    fn status_without_answer(&self) -> u16 {
        let end = if self.worker.drain.is_over() {
            ProxyError::Draining
        } else {
            ProxyError::ClientGone
        };
        end.status().as_u16()
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.tell_old_client();
        if self.outcome.status == 0 {
            self.outcome.status = self.status_without_answer();
        }
        if self.call.grpc.is_some() {
            self.call_ends();
        }
        let costs = self.settled();
        self.count_break();
        self.count_end();
        let took = self.arrived.started.elapsed();
        self.count(took);
        if let Some(call) = &self.call.grpc {
            self.route_metrics()
                .call(call.status.map(|status| status.0));
        }
        if self.worker.access.is_on() {
            if !self.decided.is_planned {
                // The store was unavailable, or the client left before the store had answered: no limit has counted the
                // request.
                self.decided.plan = Plan::default();
            }
            self.log(took, &costs);
        }
    }
}

#[cfg(test)]
mod tests;
