//! The gateway's own answer to an exchange, and its fields on every answer.

use crate::admission::RefusalCause;
use crate::clock;
use crate::limit::Limit;
use crate::limit::verdict::{Decision, Ruling, Verdict, VerdictOutcome, Wait};
use crate::proxy::answer::fields::{RefusalFields, RefusalValues, X_REQUEST_ID};
use crate::proxy::answer::reply::{ProblemDetails, RefusalText, Violations};
use crate::proxy::answer::{fields, reply};
use crate::proxy::bodies::body_rest;
use crate::proxy::bodies::body_rest::BodyRest;
use crate::proxy::error::ProxyError;
use crate::proxy::exchange::Exchange;
use crate::proxy::grpc::call_answer;
use crate::proxy::worker_snapshot::UsualRefusal;
use crate::snapshot::FieldStyle;
use crate::snapshot::errors::ErrorBody;
use crate::telemetry::access_log::Reason;
use crate::telemetry::metrics::AnswerSource;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, Version, header};
use hyper::body::{Body as _, Incoming};
use std::sync::Arc;
use tokio::task::spawn_local;

impl Exchange {
    /// Writes the whole answer to an error.
    pub fn fail(&mut self, error: &ProxyError) -> Response<Bytes> {
        let status = self.note_failure(error);
        let usual = self.usual(error);
        if let Some(answer) = usual.and_then(|usual| self.usual_refusal(status, usual)) {
            return answer;
        }
        let mut answer = self.unusual(error);
        self.stamp(&mut answer);
        if let Some(usual) = self.usual(error) {
            let learnt = || RefusalFields::like(answer.headers());
            usual.fields.get_or_init(learnt);
        }
        answer
    }

    /// Notes the cause, and gives the status of the answer.
    fn note_failure(&mut self, error: &ProxyError) -> StatusCode {
        let row = error.row();
        self.outcome.source = AnswerSource::Gateway;
        self.outcome.status = row.status.as_u16();
        self.outcome.reason = row.reason;
        let wait = row.retry_after;
        self.outcome.retry_after = wait.map(|wait| spread(wait, self.local.snapshot.jitter));
        if matches!(error, ProxyError::TooManyHeld | ProxyError::Draining) {
            // The request was charged for a wait that was not completed, and the charge was refunded.
            self.decided.delayed = 0;
        }
        if self.outcome.reason == Reason::KeysUnread {
            self.worker.metrics.keys_unread();
        }
        if let Some(limit) = error.limit() {
            self.outcome.limit = Some(Arc::clone(&limit.name));
        }
        if is_answered_in_grpc(error)
            && let Some(call) = &mut self.call.grpc
        {
            call.status = Some(error.grpc_status());
        }
        if let Some(reservation) = &self.decided.reservation {
            let status = self.final_status(self.outcome.status);
            reservation.failed(error, status, self.is_break_of_client(error));
        }
        row.status
    }

    /// Writes an answer field by field, except for those that are stamped on it afterwards.
    #[inline(never)]
    fn unusual(&mut self, error: &ProxyError) -> Response<Bytes> {
        let mut spare = self.outcome.spare.take().unwrap_or_default();
        spare.clear();
        let violated = self.violated();
        let details = ProblemDetails {
            error: error.shown(),
            violated: &violated,
            wait: self.outcome.retry_after,
            prepared: self.prepared(&violated),
            request_id: &self.arrived.id,
            host: self.arrived.host.as_ref(),
        };
        if self.call.grpc.is_some() && is_answered_in_grpc(error) {
            call_answer::refusal(&details, spare)
        } else {
            reply::to(
                &details,
                &self.local.snapshot.errors,
                self.arrived.form,
                spare,
            )
        }
    }

    /// A refusal with the usual fields, once there was one to learn them from.
    fn usual_refusal(&self, status: StatusCode, usual: &UsualRefusal) -> Option<Response<Bytes>> {
        let (fields, text) = (usual.fields.get()?, usual.text.get()?);
        let (service, wait) = (self.service()?, self.outcome.retry_after?);
        let body = text.body(wait, self.arrived.id.as_bytes());
        let values = RefusalValues {
            request_id: &self.arrived.id,
            wait,
            millis: &body.millis,
            limits: &self.decided.plan.limits(service),
            decision: &self.store_decision()?.decision,
            reset: self.local.snapshot.fields.reset,
            now: clock::wall_at(self.decided.seen),
        };
        Some(reply::with(status, fields.with(&values), body.text))
    }

    /// The shared parts of the error's answers, if it is an ordinary refusal of a limit: the limit refuses alone, all
    /// limits of the route apply with their own numbers, and nothing else shows in the answer.
    fn usual(&self, error: &ProxyError) -> Option<&UsualRefusal> {
        let ProxyError::Refused(RefusalCause::Limited { limit, .. }) = error else {
            return None;
        };
        let (service, decided) = (self.service()?, self.store_decision()?);
        let Ruling::Refuse { by, .. } = decided.decision.ruling else {
            return None;
        };
        let verdicts = decided.decision.verdicts.iter();
        let refuses = |verdict: &&Verdict| matches!(verdict.outcome, VerdictOutcome::Refuse(_));
        let is_usual = verdicts.filter(refuses).count() == 1
            && self.call.grpc.is_none()
            && self.decided.delayed == 0
            && self.outcome.retry_after.is_some()
            && *self.local.snapshot.errors.of_refusal(&limit.name) == ErrorBody::Problem
            && service.response_fields.is_none()
            && decided.is_whole()
            && self.decided.plan.is_whole(service)
            && !service.hides_limits
            && !self.closes();
        let at = self.decided.plan.positions().nth(by).filter(|_| is_usual)?;
        Some(&self.local.route(self.decided.route?).refusals[at])
    }

    /// The gateway's own answer that is not an error, in the form for the request's client.
    pub(in crate::proxy) fn spoken(&mut self, answer: Response<Bytes>) -> Response<Bytes> {
        let Some(call) = &mut self.call.grpc else {
            return answer;
        };
        let (status, answer) = call_answer::of_http(&answer);
        call.status = Some(status);
        answer
    }

    /// Puts the gateway's own fields on a response, including responses of the upstream.
    pub fn stamp<T>(&self, answer: &mut Response<T>) {
        if self.closes() && self.arrived.version == Version::HTTP_10 {
            // hyper would write `keep-alive` after `close` for a client that requests it.
            *answer.version_mut() = Version::HTTP_10;
        }
        let fields = answer.headers_mut();
        let service = self.service();
        if let Some(changes) = service.and_then(|service| service.response_fields.as_ref()) {
            match self.outcome.reason {
                // The answer is the upstream's, or the route's own.
                Reason::Ok | Reason::Repeat | Reason::LimitDelayed | Reason::Upgraded => {
                    changes.apply(fields);
                }
                _ => changes.complete(fields),
            }
        }
        fields::set(fields, X_REQUEST_ID, self.arrived.id.clone());
        if self.closes() {
            fields.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        if self.decided.delayed > 0
            && let Some((position, _)) = self.delaying()
            && let Some(limit) = service.and_then(|service| service.limits.get(position))
        {
            fields::delayed(fields, limit.public_name(), self.decided.delayed);
        }
        self.stamp_limits(fields);
    }

    /// Drops or drains the rest of the request's body, `incoming` or the part that no server has taken, if the answer
    /// is the gateway's own. Every such answer passes through here.
    #[inline]
    pub(in crate::proxy) fn discard_body(&mut self, incoming: Option<Incoming>) {
        let is_whole = incoming.as_ref().is_some_and(Incoming::is_end_stream);
        if !is_whole && self.outcome.source == AnswerSource::Gateway {
            self.discard_rest(incoming);
        }
    }

    /// The body is drained, or the answer ends the connection.
    #[cold]
    #[inline(never)]
    fn discard_rest(&mut self, incoming: Option<Incoming>) {
        let upload = self.call.upload.as_ref();
        let is_broken = upload.is_some_and(|upload| upload.broken.get().is_some());
        let rest = incoming.or_else(|| upload?.take_left());
        let Some(rest) = rest.filter(|_| !is_broken) else {
            // A server may still be reading the rest.
            self.outcome.closes = is_broken || upload.is_some_and(|upload| !upload.done.get());
            return;
        };
        match (self.arrived.version, self.call.rest) {
            // A gRPC call may be a stream that stays open: a reset after the answer tells its client that its messages
            // are not read (RFC 9113, section 8.1).
            (Version::HTTP_2, BodyRest::Heard | BodyRest::Ends) if self.call.grpc.is_none() => {
                spawn_local(body_rest::hear_stream_out(rest));
            }
            (Version::HTTP_2, _) => {}
            (_, BodyRest::Heard) => {
                let drain = self.worker.drain.clone();
                spawn_local(body_rest::hear_out(rest, drain));
            }
            (_, BodyRest::Ends | BodyRest::Unasked) => self.outcome.closes = true,
        }
    }

    /// Notes that the gateway's own answer ends the connection.
    pub(in crate::proxy) fn is_last(&mut self) {
        self.outcome.closes = true;
    }

    /// Does the gateway's own answer end the connection? In HTTP/2 only a stream ends.
    fn closes(&self) -> bool {
        self.outcome.closes
            && self.outcome.source == AnswerSource::Gateway
            && self.arrived.version != Version::HTTP_2
    }

    /// The limits that refuse the request, and the one that is named.
    pub(super) fn violated(&self) -> Violations<'_> {
        let (Some(service), Some(decided)) = (self.service(), self.store_decision()) else {
            return Violations::default();
        };
        let limits = self.decided.plan.limits(service);
        let Ruling::Refuse { by, .. } = decided.decision.ruling else {
            return self.outwaited(&limits);
        };
        let refusing = limits
            .iter()
            .zip(&decided.decision.verdicts)
            .filter(|(_, verdict)| matches!(verdict.outcome, VerdictOutcome::Refuse(_)));
        Violations {
            named: limits.get(by).copied(),
            all: refusing.map(|(limit, _)| &**limit.policy_name()).collect(),
        }
    }

    /// The text of refusals by one limit alone, with the numbers that the limit has for most requests.
    fn prepared(&self, violated: &Violations<'_>) -> Option<&RefusalText> {
        let (route, named) = (self.decided.route?, violated.named?);
        let handles = self.local.route(route);
        let mut limits = self.local.service(route).limits.iter();
        let at = limits.position(|limit| Arc::ptr_eq(limit, named))?;
        let is_alone = matches!(violated.all[..], [only] if *only == **named.policy_name());
        is_alone.then(|| {
            handles.refusals[at]
                .text
                .get_or_init(|| RefusalText::of(named))
        })
    }

    /// The limit whose queue has admitted the request and would release it too late, since the gateway was paused.
    fn outwaited<'a>(&self, limits: &[&'a Arc<Limit>]) -> Violations<'a> {
        if self.outcome.reason != Reason::LimitRefused {
            return Violations::default();
        }
        let is_it =
            |limit: &Limit| limit.holds_back() && self.outcome.limit.as_ref() == Some(&limit.name);
        let named = limits.iter().find(|limit| is_it(limit)).copied();
        Violations {
            named,
            all: named.iter().map(|limit| &**limit.public_name()).collect(),
        }
    }

    fn stamp_limits(&self, fields: &mut HeaderMap) {
        let form = self.local.snapshot.fields;
        // If no store counted, no number is better than a guessed one.
        let (Some(route), Some(decided)) = (self.decided.route, self.store_decision()) else {
            return;
        };
        if form.style == FieldStyle::None || decided.decision.verdicts.is_empty() {
            return;
        }
        let service = self.local.service(route);
        let limits = self.decided.plan.limits(service);
        let now = clock::wall_at(self.decided.seen);
        if !decided.is_whole() {
            return if service.hides_limits {
                let is_known = |limit: &Limit| decided.is_known(limit);
                fields::stamp_shown(fields, form, &limits, &decided.decision, is_known, now)
            } else {
                fields::stamp_known(fields, form, &limits, decided, now)
            };
        }
        let decision = &decided.decision;
        let outwaited = if self.outcome.reason == Reason::LimitRefused {
            self.refused_in_queue(&limits, decision)
        } else {
            None
        };
        let decision = outwaited.as_ref().unwrap_or(decision);
        let prepared = &self.local.route(route).policy;
        if service.hides_limits {
            let is_known = |_: &Limit| true;
            fields::stamp_shown(fields, form, &limits, decision, is_known, now);
        } else if self.decided.plan.is_whole(service) {
            fields::stamp(fields, form, &limits, decision, prepared.as_ref(), now);
        } else {
            let deciding = limits.iter().filter(|limit| limit.mode.decides());
            let policy = fields::policy(deciding.copied());
            fields::stamp(fields, form, &limits, decision, policy.as_ref(), now);
        }
    }

    /// The decision for the fields if a queue has admitted the request, and refused it later because the gateway was
    /// paused. No unit of that limit is left.
    #[cold]
    fn refused_in_queue(&self, limits: &[&Arc<Limit>], decision: &Decision) -> Option<Decision> {
        if matches!(decision.ruling, Ruling::Refuse { .. }) {
            return None;
        }
        let named = self.outwaited(limits).named?;
        let by = limits.iter().position(|limit| Arc::ptr_eq(limit, named))?;
        let wait = Wait::Micros(self.outcome.retry_after?);
        let mut refusal = decision.clone();
        refusal.ruling = Ruling::Refuse { by, wait };
        refusal.verdicts.get_mut(by)?.remaining = 0;
        Some(refusal)
    }
}

/// Does a gRPC client get the error in the gRPC form? Such a client, too, uses another connection after 421.
fn is_answered_in_grpc(error: &ProxyError) -> bool {
    !matches!(error, ProxyError::Misdirected | ProxyError::Dismissed)
}

/// `wait`, or longer by up to `percent` of it, so that requests that were refused together do not return together.
fn spread(wait: u64, percent: u8) -> u64 {
    match percent {
        0 => wait,
        percent => wait + fastrand::u64(..=wait / 100 * u64::from(percent)),
    }
}
