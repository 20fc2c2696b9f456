//! One file's answer to each request: route, keys, one question, one decision, as the gateway goes about it.

mod identity;
mod origin;
mod outcome;
mod shadow;

use identity::write_logged;
use outcome::{outcome, refusal};
pub(super) use shadow::ShadowAnswer;

use super::Fault;
use super::counters::{Counters, Detail};
use super::request::LoggedRequest;
use super::reservations::OpenReservations;
use super::route_cache::{RouteCache, RouteMatch};
use super::waiting_requests::WaitingRequests;
use crate::admission::destination::Destination;
use crate::admission::stripped_fields::{FieldTrust, tidy};
use crate::admission::{Admission, LoggedValues, OpenCharges, Plan, RequestEnd};
use crate::clock::Timestamp;
use crate::key::cookie::Cookies;
use crate::key::{Caller, Content, Location};
use crate::limit::Limit;
use crate::limit::rate::Cost;
use crate::route::{RequestView, host_key};
use crate::snapshot::{Service, Snapshot};
use crate::store::{Amendment, Decider, StoreDecision, StoreError};
use http::{HeaderMap, Method};
use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// The client of all lines that name none.
const NO_CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// A file with its counters.
#[derive(Debug)]
pub(super) struct PolicySide {
    snapshot: Snapshot,
    counters: Counters,
    route_cache: RouteCache,
    /// The route, the plan and the decision of the last request: kept here, since they are large.
    route: Option<usize>,
    plan: Plan,
    admission: Admission,
    /// Was the last request's plan one that a store was asked?
    asked: bool,
    /// What requests under way hold and may give back; nothing where no limit does.
    reservations: Option<OpenReservations>,
    waiting: WaitingRequests,
    /// Limits that count by something else than they did when the log was written.
    moved: Vec<Arc<str>>,
}

/// What becomes of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ReplayOutcome {
    /// It goes on at once.
    Admit,
    /// It goes on after so many microseconds.
    Delay {
        /// At least 1.
        wait: u64,
        /// The limit that holds it.
        limit: Arc<str>,
    },
    /// It is refused.
    Refuse {
        /// Microseconds until it would not be, if it ever would.
        wait: Option<u64>,
        /// The limit that refuses.
        limit: Arc<str>,
        /// Which of its rates, where it has a list of them.
        window: Option<Arc<str>>,
    },
    /// It would have to wait, and too many do.
    TooManyHeld,
    /// No route takes it.
    NoRoute,
}

/// What of a request both files look at, read once.
#[derive(Debug, Default)]
pub(super) struct LoggedHead {
    method: Method,
    fields: HeaderMap,
}

impl LoggedHead {
    /// Reads what is not plain text in the line.
    pub(super) fn read(&mut self, request: &LoggedRequest<'_>) -> Result<(), Fault> {
        if *self.method.as_str().as_bytes() != *request.method {
            self.method =
                Method::from_bytes(&request.method).map_err(|_| Fault::BadMember("method"))?;
        }
        if !self.fields.is_empty() {
            self.fields.clear();
        }
        request.fields(&mut self.fields)?;
        if !self.fields.is_empty() {
            tidy(&mut self.fields, &FieldTrust::all());
        }
        Ok(())
    }
}

impl PolicySide {
    /// The side of a file. `before` is the side of the file whose traffic the log shows, if that is another file.
    pub(super) fn new(snapshot: Snapshot, counters: Counters, before: Option<&Self>) -> Self {
        let limits = |snapshot: &Snapshot| -> Vec<_> {
            let services = snapshot.services.iter();
            services
                .flat_map(|service| service.limits.clone())
                .collect()
        };
        let then = before
            .map(|side| limits(&side.snapshot))
            .unwrap_or_default();
        let moved = limits(&snapshot)
            .into_iter()
            .filter(|limit| {
                let same = then.iter().find(|other| other.name == limit.name);
                // Keys of no group are in the log, too.
                let by = |limit: &Limit| (limit.by.parts.clone(), limit.by.missing);
                same.is_some_and(|other| by(other) != by(limit))
            })
            .map(|limit| Arc::clone(&limit.name))
            .collect();
        let holds = limits(&snapshot)
            .iter()
            .any(|limit| limit.rule.holds().is_some() || limit.holds_back() || limit.may_correct());
        Self {
            snapshot,
            counters,
            route_cache: RouteCache::new(),
            route: None,
            plan: Plan::default(),
            admission: Admission {
                decided: None,
                by: Decider::Memory,
            },
            asked: false,
            reservations: holds.then(OpenReservations::default),
            waiting: WaitingRequests::default(),
            moved,
        }
    }

    /// Decides one request at the instant `now`. The verdicts of its limits are known afterwards where `detail` asks for
    /// them.
    pub(super) fn judge(
        &mut self,
        request: &LoggedRequest<'_>,
        head: &LoggedHead,
        now: Timestamp,
        detail: Detail,
    ) -> Result<ReplayOutcome, StoreError> {
        if let Some(reservations) = &mut self.reservations {
            reservations.pass(&mut self.counters, now)?;
        }
        self.admission.decided = None;
        self.asked = false;
        self.route = match self.find(request, head) {
            RouteMatch::Found(route) => Some(route),
            RouteMatch::Missing => self.snapshot.unrouted,
            RouteMatch::BadRequest => None,
        };
        let Some(route) = self.route else {
            return Ok(ReplayOutcome::NoRoute);
        };
        let outcome = self.ask(route, request, head, now, detail)?;
        let is_routed = self.snapshot.services[route].has_end();
        Ok(match outcome {
            // The limits that hold everywhere have been asked.
            ReplayOutcome::Admit | ReplayOutcome::Delay { .. } if !is_routed => {
                ReplayOutcome::NoRoute
            }
            outcome => outcome,
        })
    }

    /// Asks the limits of one route.
    fn ask(
        &mut self,
        route: usize,
        request: &LoggedRequest<'_>,
        head: &LoggedHead,
        now: Timestamp,
        detail: Detail,
    ) -> Result<ReplayOutcome, StoreError> {
        let service = &self.snapshot.services[route];
        let caller = Caller {
            address: self.address(request, head).unwrap_or(NO_CLIENT),
            route: &service.name,
            method: &head.method,
            fields: &head.fields,
            location: &LoggedLocation {
                request,
                head,
                service,
            },
            cookies: &Cookies::of(&head.fields),
            identity: request,
            // No log has the body.
            content: Content::Absent,
        };
        let moved = &self.moved;
        let values = LoggedValues {
            cost: |limit: &Limit| logged_cost(request, limit),
            key: |limit: &Limit, out: &mut Vec<u8>| {
                !moved.contains(&limit.name) && write_logged(request, limit, out)
            },
        };
        self.plan.refill(service, &caller, &values);
        // What the gateway answers where the limits that it asks do not refuse.
        let otherwise = self.plan.lack().map(refusal);
        if self.plan.is_empty() {
            return Ok(otherwise.unwrap_or(ReplayOutcome::Admit));
        }
        self.asked = true;
        let checks = self.plan.checks(service);
        // Reservations are made of the verdicts.
        let detail = self
            .reservations
            .as_ref()
            .map_or(detail, |_| Detail::Verdicts);
        self.counters
            .decide(&checks, now, detail, &mut self.admission.decided)?;
        if self.admission.decided.is_none() {
            return Ok(otherwise.unwrap_or(ReplayOutcome::Admit));
        }
        let outcome = outcome(&self.admission, &self.plan, service);
        let stay = Stay::of(request, now, &outcome);
        let open = |queues_exist| {
            self.admission
                .open_charges(&self.plan, service, queues_exist)
        };
        if stay.wait > 0 {
            let (client, bounds) = (caller.address, self.snapshot.holds);
            if !self.waiting.enter(client, now, stay.wait_ends(), bounds) {
                refund_wait(&mut self.counters, &open(true), now)?;
                return Ok(ReplayOutcome::TooManyHeld);
            }
        }
        if let Some(reservations) = &mut self.reservations {
            reserve(reservations, open(false), &stay);
        }
        Ok(match outcome {
            ReplayOutcome::Admit | ReplayOutcome::Delay { .. } => otherwise.unwrap_or(outcome),
            outcome => outcome,
        })
    }

    fn find(&mut self, request: &LoggedRequest<'_>, head: &LoggedHead) -> RouteMatch {
        let (raw, named) = request.path();
        let host = host(request, head, named);
        let table = &self.snapshot.table;
        let asked = LoggedRouteInput { request, head };
        self.route_cache
            .find(table, &head.method, host, raw, &asked)
    }

    /// The service that the request just judged leads to.
    pub(super) fn service(&self) -> Option<&Service> {
        self.snapshot.services.get(self.route?)
    }

    /// What the request just judged was asked: each limit, with the numbers that held, and its key.
    pub(super) fn keys(&self) -> impl Iterator<Item = (&Arc<Limit>, &str)> {
        let limits = self.service().into_iter().filter(|_| self.asked);
        let limits = limits.flat_map(|service| self.plan.limits(service));
        limits.zip(self.plan.keys().map(|(_, key, _)| key))
    }

    /// How many units it was granted, if it was admitted: by the limit that may grant less, else the most that one of
    /// its limits took; 1 where it has none.
    pub(super) fn granted(&self) -> u32 {
        let (Some(decided), Some(service)) = (&self.admission.decided, self.service()) else {
            return 1;
        };
        let of_those_that_decide = decided.answers.iter().zip(&decided.decision.verdicts);
        let measured = of_those_that_decide.map(|(answer, _)| answer.measured());
        let asked = || self.plan.keys().zip(measured.clone());
        let partial = asked().find(|((at, ..), _)| service.limits[*at].partial);
        let least = partial.map(|((.., cost), measured)| {
            measured.and_then(|one| one.granted).unwrap_or(cost).units()
        });
        let greatest = || asked().map(|((.., cost), _)| cost.units()).max();
        least.or_else(greatest).unwrap_or(1)
    }

    /// The verdicts of the limits; nothing where none was asked.
    pub(super) fn decided(&self) -> Option<&StoreDecision> {
        self.admission.decided.as_ref()
    }

    /// Where it counts.
    pub(super) fn counters(&self) -> &Counters {
        &self.counters
    }
}

/// The cost of a request for a limit that does not compute it, as far as the line has it.
fn logged_cost(request: &LoggedRequest<'_>, limit: &Limit) -> Option<Cost> {
    let logged = || request.logged_cost(&limit.name);
    let cost = match &limit.price {
        // As in the gateway, a cost above the maximum counts as the maximum.
        Some(price) => request.cost.or_else(logged).map(|cost| cost.min(price.max)),
        // The log has no id of a repeat; a repeat is a request that took nothing.
        None => logged().filter(|cost| *cost == 0),
    };
    cost.map(Cost::new)
}

/// How long a request stays in the gateway, by its line and by its decision.
struct Stay<'a, 'r> {
    request: &'a LoggedRequest<'r>,
    begins: Timestamp,
    ends: Timestamp,
    /// Microseconds in the queue of a limit.
    wait: u64,
    /// The client leaves before anything is forwarded.
    is_abandoned: bool,
}

impl<'a, 'r> Stay<'a, 'r> {
    fn of(request: &'a LoggedRequest<'r>, begins: Timestamp, outcome: &ReplayOutcome) -> Self {
        let wait = match outcome {
            ReplayOutcome::Delay { wait, .. } => *wait,
            _ => 0,
        };
        Self {
            request,
            begins,
            ends: begins.plus(request.duration),
            wait,
            is_abandoned: request.left_within(wait),
        }
    }

    fn wait_ends(&self) -> Timestamp {
        if self.is_abandoned {
            self.ends
        } else {
            self.begins.plus(self.wait)
        }
    }
}

/// Refunds what belongs to the wait of a request that was charged and may not wait.
fn refund_wait(
    counters: &mut Counters,
    open: &OpenCharges,
    now: Timestamp,
) -> Result<(), StoreError> {
    let refundable = open.refundable.iter();
    let refundable = refundable.filter(|charge| RequestEnd::Abandoned.refunds(&charge.limit));
    let mut charges = open.slots.iter().chain(&open.places).chain(refundable);
    charges.try_for_each(|charge| counters.amend(charge, Amendment::Refund, now))
}

/// Keeps the charges that something is to be done about when the stay ends: slots, refunds, settlements.
fn reserve(reservations: &mut OpenReservations, mut open: OpenCharges, stay: &Stay<'_, '_>) {
    let request = stay.request;
    if stay.is_abandoned && stay.wait > request.duration {
        // A place in a queue is refunded when its client leaves before its turn.
        open.slots.append(&mut open.places);
    }
    open.leave_queues();
    let mut hold = |charge, amendment| reservations.hold(charge, amendment, stay.begins, stay.ends);
    for charge in open.slots {
        hold(charge, Amendment::Refund);
    }
    for charge in open.refundable {
        let limit = &charge.limit;
        let is_cancelled = stay.is_abandoned && RequestEnd::Abandoned.refunds(limit);
        let has_failed = request.failed() && RequestEnd::ServerError.refunds(limit);
        if is_cancelled || has_failed {
            hold(charge, Amendment::Refund);
        } else if let Some(meter) = &limit.meter
            && let Some(cost) = request.cost.or_else(|| request.logged_cost(&limit.name))
        {
            // As in the gateway, a cost above the maximum counts as the maximum.
            let cost = Cost::new(cost.min(meter.max));
            hold(charge, Amendment::Settlement(cost));
        }
    }
}

/// Where a request goes, by its line; read as text when a limit counts by it.
#[derive(Debug)]
struct LoggedLocation<'a, 'r> {
    request: &'a LoggedRequest<'r>,
    head: &'a LoggedHead,
    service: &'a Service,
}

impl LoggedLocation<'_, '_> {
    fn destination(&self) -> Destination<'_> {
        let text = |bytes| str::from_utf8(bytes).unwrap_or_default();
        let (path, named) = self.request.path();
        Destination {
            authority: text(host(self.request, self.head, named)),
            path: text(path),
            query: self.query(),
            pattern: &self.service.path,
        }
    }
}

impl Location for LoggedLocation<'_, '_> {
    fn host(&self) -> Cow<'_, str> {
        let (_, named) = self.request.path();
        let host = host(self.request, self.head, named);
        host_key(str::from_utf8(host).unwrap_or_default())
    }

    fn parameter(&self, name: &str) -> Option<Cow<'_, str>> {
        let taken = self.destination().parameter(name)?.into_owned();
        Some(Cow::Owned(taken))
    }

    fn path(&self) -> Option<Cow<'_, str>> {
        let path = self.destination().path()?.into_owned();
        Some(Cow::Owned(path))
    }

    fn query(&self) -> Option<&str> {
        self.request.query()
    }
}

/// A request as conditions of routes look at it. The scheme is known by the line's target alone.
struct LoggedRouteInput<'a, 'r> {
    request: &'a LoggedRequest<'r>,
    head: &'a LoggedHead,
}

impl RequestView for LoggedRouteInput<'_, '_> {
    fn fields(&self) -> &HeaderMap {
        &self.head.fields
    }

    fn query(&self) -> Option<&str> {
        self.request.query()
    }

    fn is_https(&self) -> bool {
        let said = self
            .request
            .proxy_fields
            .as_ref()
            .is_some_and(|proxy_fields| proxy_fields.is_https);
        said || self.request.target.starts_with(b"https://")
    }
}

/// The host that a request is for; the one in its target goes first.
fn host<'a>(
    request: &'a LoggedRequest<'_>,
    head: &'a LoggedHead,
    named: Option<&'a [u8]>,
) -> &'a [u8] {
    let field = || Some(head.fields.get(http::header::HOST)?.as_bytes());
    match named {
        Some(host) => host,
        None if request.host.is_empty() => field().unwrap_or_default(),
        None => &request.host,
    }
}
