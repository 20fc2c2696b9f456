//! The account of the limits' effect on a request: for its answer, the metrics and the log.

use crate::admission::{Admission, RequestEnd};
use crate::key::{CustomerReading, FinalStatus, GrpcStatus};
use crate::limit::{Limit, Mode};
use crate::listen::Peer;
use crate::listen::minimum_rate::RateBound;
use crate::proxy::bodies::body_failure::UploadFailure;
use crate::proxy::error::ProxyError;
use crate::proxy::exchange::{Exchange, ExchangeEnd};
use crate::proxy::grpc::call_answer;
use crate::proxy::limits::reservation::{BodyEnd, Reservations};
use crate::proxy::limits::response_cost::ResponseCost;
use crate::proxy::request::handshake_facts;
use crate::proxy::server::answer_wait::AnswerWait;
use crate::snapshot::{AnswerTimeout, Service};
use crate::telemetry::access_log::{AccessRecord, Charge, NumbersOf, Reason};
use crate::telemetry::metrics::{AnswerSource, Failure, RouteMetrics};
use crate::upstream::http1::AnswerError;
use crate::upstream::owed_time::UploadState;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Version};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

impl Exchange {
    /// Is the request refused for something that it lacks, though its limits admit it?
    ///
    /// # Errors
    /// The cause, at the first call only.
    pub(in crate::proxy) fn lacks_nothing(&mut self) -> Result<(), ProxyError> {
        self.decided
            .plan
            .take_lack()
            .map_or(Ok(()), |cause| Err(cause.into()))
    }

    /// The longest silence of the route's bodies, if the route sets one.
    pub(in crate::proxy) fn route_idle(&self) -> Option<Duration> {
        self.service()?.idle
    }

    /// The bound on the slowness of the client: the route's idle time, if set, and for gRPC the idle time without a
    /// rate, in both directions.
    pub(in crate::proxy) fn pace(&self, allowed: RateBound, peer: &Peer) -> RateBound {
        let idle_of_route = self.route_idle();
        peer.has_idle(idle_of_route, self.arrived.version == Version::HTTP_2);
        let allowed = idle_of_route.map_or(allowed, |idle| allowed.over(idle));
        if self.is_silent_by_nature() {
            peer.watch.idle_alone();
            allowed.idle_alone()
        } else {
            allowed
        }
    }

    /// May the client be silent by its nature? A field alone does not prove it, since any client can write it.
    pub(in crate::proxy) fn is_silent_by_nature(&self) -> bool {
        self.call.grpc.is_some() && self.arrived.method == Method::POST
    }

    /// An incomplete answer ends in a reset in HTTP/1.0, which has no chunks. Without a length, an orderly end of the
    /// connection would be the end of the body (RFC 9112 section 8).
    pub(super) fn tell_old_client(&self) {
        if let Some(client) = &self.outcome.old_client
            && self.outcome.status != 0
            && self.outcome.ending != ExchangeEnd::Complete
        {
            client.end_in_reset();
        }
    }

    /// Notes that all of the answer has been handed on, while the client takes it at its own pace: the limits do not
    /// wait for that.
    pub(in crate::proxy) fn handed_on(&mut self) {
        self.call.notes.leave();
        if let Some(reservation) = &self.decided.reservation {
            reservation.free_slots();
            reservation.over(BodyEnd::Whole);
        }
        if self.outcome.source == AnswerSource::Gateway {
            // The cause of the gateway's answer is more informative than the client's leaving before reading it.
            self.outcome.ending = ExchangeEnd::Complete;
        }
    }

    /// Notes that the trailers of a call's answer are handed on.
    pub(in crate::proxy) fn trailed(&mut self, trailers: &HeaderMap) {
        if let Some(call) = &mut self.call.grpc {
            call.ended(trailers);
            self.call_ends();
        }
    }

    /// Notes that no more of a call's answer will arrive: its status, or the lack of one, counts for its server and for
    /// the limits.
    #[cold]
    #[inline(never)]
    pub(super) fn call_ends(&mut self) {
        let Some(call) = &mut self.call.grpc else {
            return;
        };
        if !call.close() {
            return;
        }
        let (is_error, is_unavailable) = (call.is_server_error(), call.is_unavailable());
        let status = call.status;
        let is_clients = is_error && self.is_end_of_patience(None);
        if let Some(reservation) = &self.decided.reservation {
            reservation.call_ended(end_of_call(status, is_clients));
        }
        if let Some(upstream) = self.service().and_then(|service| service.upstream) {
            let balancer = self.local.balancer(upstream, &self.worker.pools);
            if is_clients {
                self.call.notes.excused(self.outcome.status);
            } else {
                self.call
                    .notes
                    .answered(balancer, self.outcome.status, is_unavailable);
            }
        }
    }

    /// The trailers for the client of a call whose answer breaks off, if its status was still to come. They are the
    /// gateway's statement, and no server is ejected for them.
    #[cold]
    #[inline(never)]
    pub(in crate::proxy) fn broken_off_trailers(
        &mut self,
        ending: ExchangeEnd,
    ) -> Option<HeaderMap> {
        let ExchangeEnd::Upstream(failure) = ending else {
            return None;
        };
        let damage = self.broken_upload();
        let is_clients = damage.is_some() || self.is_out_of_time();
        let call = self.call.grpc.as_mut()?;
        let (status, message) = match (damage, failure) {
            (Some(Reason::ClientTimeout), _) => (
                GrpcStatus::DEADLINE_EXCEEDED,
                "The client sent nothing for too long.",
            ),
            // A client that has broken its own upload has thereby broken the answer.
            (Some(_), _) => return None,
            (None, Failure::Timeout) => (
                GrpcStatus::DEADLINE_EXCEEDED,
                "The upstream sent nothing for too long.",
            ),
            (None, _) => (GrpcStatus::UNAVAILABLE, "The upstream's answer broke off."),
        };
        if !call.close() {
            return None;
        }
        call.status = Some(status);
        if let Some(reservation) = &self.decided.reservation {
            reservation.call_ended(end_of_call(Some(status), is_clients));
        }
        Some(call_answer::trailers(status, message))
    }

    /// The end of the timeout that the client sets for its call, if any.
    pub(in crate::proxy) fn call_deadline(&self) -> Option<Instant> {
        self.call.grpc.as_ref()?.ends()
    }

    /// Is the timeout that the client sets for its call over at `at`?
    pub(in crate::proxy) fn is_past_deadline(&self, at: Instant) -> bool {
        self.call.grpc.as_ref().is_some_and(|call| call.is_over(at))
    }

    /// Notes that forwarding begins at `now`, on a route with this `timeout`, or with bodies that may be silent for
    /// `idle`. Returns the bounds of the wait for an answer.
    ///
    /// # Errors
    /// If the timeout of the call is over.
    #[inline]
    pub(in crate::proxy) fn sets_out(
        &mut self,
        now: Instant,
        timeout: AnswerTimeout,
        idle: Duration,
    ) -> Result<AnswerWait, ProxyError> {
        let idle = self.route_idle().unwrap_or(idle);
        let wait = AnswerWait::new(now, timeout, idle, self.call.upload.clone());
        match &mut self.call.grpc {
            None => Ok(wait),
            Some(call) => {
                let upload = self.call.upload.as_ref();
                let upload = upload.map(|upload| Rc::clone(upload) as Rc<dyn UploadState>);
                call.sets_out(now, timeout.written(), upload);
                if call.is_over(now) {
                    return Err(ProxyError::DeadlineExceeded);
                }
                Ok(wait.of_call(timeout, idle, call.ends()))
            }
        }
    }

    /// Counts an incomplete answer against its upstream.
    pub(super) fn count_break(&self) {
        match self.outcome.ending {
            ExchangeEnd::Upstream(Failure::Reset) if self.broken_upload().is_some() => {}
            ExchangeEnd::Upstream(failure) => self.count_failure(failure),
            _ => {}
        }
    }

    /// Notes the reason why an answer broke off after its head, if the client's upload was not the cause.
    #[cold]
    pub(in crate::proxy) fn answer_breaks(&self, error: &AnswerError) {
        if self.broken_upload().is_none() {
            self.call.notes.note_fault(&error.fault());
        }
    }

    #[cold]
    #[inline(never)]
    fn count_failure(&self, failure: Failure) {
        if let Some(upstream) = self.service().and_then(|service| service.upstream) {
            let balancer = self.local.balancer(upstream, &self.worker.pools);
            balancer.metrics.failed(failure);
        }
    }

    /// The damage of the client to its upload, and so to the connection of its answer.
    fn broken_upload(&self) -> Option<Reason> {
        match self.call.upload.as_ref()?.broken.get()? {
            UploadFailure::ClientGone => Some(Reason::ClientGone),
            UploadFailure::Stopped | UploadFailure::TooSlow => Some(Reason::ClientTimeout),
            UploadFailure::Malformed => Some(Reason::BadRequest),
        }
    }

    /// The reason in the log.
    pub(super) fn final_reason(&self) -> Reason {
        match self.outcome.ending {
            ExchangeEnd::Complete if self.call.notes.is_none_left() => match self.outcome.reason {
                Reason::Ok
                | Reason::ConnectFailed
                | Reason::UpstreamTls
                | Reason::UpstreamReset
                | Reason::UpstreamTimeout => Reason::NoneLeft,
                other => other,
            },
            ExchangeEnd::Complete => self.outcome.reason,
            // The upload's end broke the connection, and with it the answer.
            ExchangeEnd::Upstream(failure @ Failure::Reset) => {
                self.broken_upload().unwrap_or(Reason::from(failure))
            }
            ExchangeEnd::Upstream(failure) => Reason::from(failure),
            ExchangeEnd::ClientGone if self.worker.drain.is_over() => Reason::DrainCut,
            ExchangeEnd::ClientGone if self.outcome.stalled.get().is_some() => {
                Reason::ClientStalled
            }
            ExchangeEnd::ClientStalled(_) => Reason::ClientStalled,
            ExchangeEnd::ClientGone => Reason::ClientGone,
        }
    }

    /// The key and the units that each limit counted.
    pub(super) fn charges<'a>(
        &'a self,
        service: &'a Service,
        reported: &[ResponseCost],
    ) -> Vec<Charge<'a>> {
        let charged = |index, cost| {
            let admission = self.decided.admission.as_ref();
            admission.map_or(cost, |admission| admission.charged_by(index, cost))
        };
        let keys = self.decided.plan.keys().enumerate();
        let mut charges: Vec<_> = keys
            .filter(|(_, (at, ..))| service.limits[*at].mode != Mode::Candidate)
            .map(|(index, (at, key, cost))| Charge {
                limit: &service.limits[at].name,
                key: key.as_bytes(),
                cost: true_cost(reported, &service.limits[at])
                    .unwrap_or_else(|| charged(index, cost).units()),
            })
            .collect();
        // Several rates of one limit count under one key.
        charges.dedup_by_key(|charge| charge.limit);
        charges
    }

    /// Has the client prevented the answer's end? It does so by leaving, or by an upload that broke and ended the
    /// connection of the answer. Without the second case, a body that is announced and never sent would be a way to
    /// leave without cost.
    fn has_left(&self) -> bool {
        match self.outcome.ending {
            ExchangeEnd::Complete => false,
            ExchangeEnd::ClientGone | ExchangeEnd::ClientStalled(_) => true,
            ExchangeEnd::Upstream(_) => self.broken_upload().is_some(),
        }
    }

    /// Settles the costs that the response's body named, and counts them.
    pub(super) fn settled(&self) -> Vec<ResponseCost> {
        match (&self.decided.reservation, self.decided.route) {
            (Some(reservation), Some(route)) => self.settle(reservation, route),
            _ => Vec::new(),
        }
    }

    #[inline(never)]
    fn settle(&self, reservation: &Reservations, route: usize) -> Vec<ResponseCost> {
        let is_whole = self.outcome.ending == ExchangeEnd::Complete;
        reservation.over(if self.has_left() && !self.worker.drain.is_over() {
            BodyEnd::Left
        } else if is_whole {
            BodyEnd::Whole
        } else {
            BodyEnd::Broken
        });
        let reported = reservation.costs();
        let handles = &self.local.route(route).limits;
        let limits = self.local.service(route).limits.iter();
        // The rates of one limit share one answer.
        let mut heard = None;
        for (limit, handle) in limits.zip(handles) {
            let mut reported = reported.iter();
            if let Some(cost) = reported.find(|cost| limit.is(&cost.limit))
                && limit.mode != Mode::Candidate
            {
                handle.cost_reported(cost.report);
                if heard.replace(&limit.name) != Some(&limit.name) && self.is_success() {
                    cost.warn_of_silence(handle);
                }
            }
        }
        reported
    }

    /// Did the request succeed? A failed answer need not state its cost.
    fn is_success(&self) -> bool {
        (200..300).contains(&self.outcome.status)
    }

    pub(super) fn route_metrics(&self) -> &RouteMetrics {
        match self.decided.route {
            Some(route) => &self.local.route(route).metrics,
            None => &self.local.unrouted,
        }
    }

    /// Counts the request, and the bytes of both bodies.
    pub(super) fn count(&self, took: Duration) {
        let worker = &self.worker;
        let metrics = self.route_metrics();
        metrics.request(
            &self.arrived.method,
            self.outcome.status,
            self.outcome.source,
            took,
        );
        worker
            .metrics
            .bodies(self.received_bytes(), self.outcome.sent);
    }

    fn received_bytes(&self) -> u64 {
        self.call
            .upload
            .as_ref()
            .map_or(0, |upload| upload.bytes.get())
    }

    /// Writes the request's line of the access log; `costs` are those that the response named.
    #[inline(never)]
    pub(super) fn log(&self, took: Duration, costs: &[ResponseCost]) {
        let service = self.service();
        let would_refuse = service.map(|service| self.would_refuse(service));
        let charges = service.map(|service| self.charges(service, costs));
        let groups = service.map(|service| self.groups(service));
        let (endpoint, fault) = (self.call.notes.endpoint(), self.call.notes.fault());
        self.worker.access.record(&AccessRecord {
            ts: self.arrived.began.micros(),
            request_id: self.arrived.id.as_bytes(),
            client: self.arrived.client,
            customer: self.customer(),
            peer: self.arrived.peer.address,
            method: Some(self.arrived.method.as_str()),
            host: self.arrived.host.as_ref().map(HeaderValue::as_bytes),
            path: Some(
                self.arrived
                    .target
                    .as_ref()
                    .map_or("", PathAndQuery::path)
                    .as_bytes(),
            ),
            proto: Some(self.arrived.version),
            status: self.outcome.status,
            reason: self.final_reason(),
            route: service.and_then(Service::route),
            limit: self.outcome.limit.as_deref(),
            window: self.window(),
            would_refuse: &would_refuse.unwrap_or_default(),
            charges: &charges.unwrap_or_default(),
            groups: &groups.unwrap_or_default(),
            delay: Duration::from_micros(self.decided.delayed),
            duration: took,
            upstream: endpoint.as_ref().map(|endpoint| endpoint.shown()),
            upstream_time: self.call.upstream_time,
            upstream_fault: fault.as_deref(),
            call: self.call.notes.record(),
            ended_by: self.ended_by(),
            bytes_in: self.received_bytes(),
            bytes_out: self.outcome.sent,
            user_agent: self.arrived.user_agent.as_ref().map(HeaderValue::as_bytes),
            decided_by: self.decided.admission.as_ref().map(Admission::decider),
            retry_after: self.outcome.retry_after.map(Duration::from_micros),
            remaining: self.remaining(),
            grpc_status: self
                .call
                .grpc
                .as_ref()
                .map(|call| call.status.map(|status| status.0)),
            tls: self
                .arrived
                .tls
                .as_deref()
                .map(|tls| handshake_facts::logged(tls, self.arrived.host.as_ref())),
        });
    }

    /// The name of the request's customer, where one was asked for and is known.
    fn customer(&self) -> Option<&str> {
        match &**self.decided.customer.get()? {
            CustomerReading::Named { name, .. } => {
                Some(self.local.snapshot.customers.as_deref()?.text(name))
            }
            _ => None,
        }
    }

    /// The limits that have other numbers for the client, or none: their names, and whose numbers.
    pub(super) fn groups<'a>(&'a self, service: &'a Service) -> Vec<(&'a str, NumbersOf<'a>)> {
        let plan = &self.decided.plan;
        let groups = plan.groups(service);
        let groups = groups.filter(|(at, _)| !plan.has_customer_numbers(*at));
        let mut groups: Vec<_> = groups
            .map(|(at, group)| (&*service.limits[at].name, NumbersOf::Group(group)))
            .collect();
        if self.customer().is_some() {
            let own = plan.positions().filter(|at| plan.has_customer_numbers(*at));
            groups.extend(own.map(|at| (&*service.limits[at].name, NumbersOf::Customer)));
        }
        groups.dedup();
        groups
    }

    /// The units that the limit with partial grants has granted, if the request has such a limit and requested any.
    #[must_use]
    pub fn granted(&self) -> Option<u64> {
        let admission = self.decided.admission.as_ref()?;
        let granted = admission.granted(&self.decided.plan, self.service()?)?;
        Some(granted.units()).filter(|units| *units > 0)
    }

    /// The units left of the tightest limit, for the log.
    pub(super) fn remaining(&self) -> Option<u64> {
        self.decided
            .admission
            .as_ref()?
            .remaining(&self.decided.plan, self.service()?)
    }
}

/// The end of a call with this status in its trailers, or with none. A failure by the client's fault is no status.
fn end_of_call(status: Option<GrpcStatus>, is_clients: bool) -> RequestEnd {
    match status.filter(|_| !is_clients) {
        None => RequestEnd::Kept,
        Some(status) => RequestEnd::Answered(FinalStatus::of_call(status)),
    }
}

/// The cost that the response stated for `limit`, if it stated one.
fn true_cost(reported: &[ResponseCost], limit: &Arc<Limit>) -> Option<u64> {
    let mut reported = reported.iter();
    reported.find(|cost| Arc::ptr_eq(&cost.limit, limit))?.units
}
