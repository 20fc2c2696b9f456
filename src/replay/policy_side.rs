//! One file's answer to each request: route, keys, one question, one decision, as the gateway goes about it.

mod identity;
mod origin;
mod outcome;
mod shadow;

use identity::write_logged;
use outcome::{outcome, turned_away};
pub(super) use shadow::ShadowAnswer;

use super::counters::{Counters, Detail};
use super::line::{Fault, LoggedRequest};
use super::reservations::OpenReservations;
use super::route_cache::{RouteCache, RouteMatch};
use super::waiting_requests::WaitingRequests;
use crate::clock::Timestamp;
use crate::key::cookie::Cookies;
use crate::key::{Caller, Content, Location};
use crate::limit::Limit;
use crate::limit::rate::Cost;
use crate::proxy::admit::Plan;
use crate::proxy::destination::Destination;
use crate::proxy::stripped_fields::{FieldTrust, tidy};
use crate::route::{RequestView, host_key};
use crate::snapshot::{Service, Snapshot};
use crate::store::{Charge, StoreDecision, StoreError};
use http::{HeaderMap, Method};
use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// Who asks where a line names nobody.
const NOBODY: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// A file with its counters.
#[derive(Debug)]
pub(super) struct PolicySide {
    snapshot: Snapshot,
    counters: Counters,
    route_cache: RouteCache,
    /// What the last request was asked, by position of its route, and what the limits said: kept here, since it is large.
    route: Option<usize>,
    plan: Plan,
    decided: Option<StoreDecision>,
    /// Was the last request's plan one that a store was asked?
    asked: bool,
    /// What requests under way hold and may give back; nothing where no limit does.
    slots: Option<OpenReservations>,
    held: WaitingRequests,
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
    /// A file that nothing has been asked of. `before` is the file whose traffic the log shows, if that is another.
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
                // What nobody knows is looked for in logged keys too.
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
            decided: None,
            asked: false,
            slots: holds.then(OpenReservations::default),
            held: WaitingRequests::default(),
            moved,
        }
    }

    /// Decides one request at the instant `now`. What its limits said one by one is known afterwards where somebody
    /// is told.
    pub(super) fn judge(
        &mut self,
        request: &LoggedRequest<'_>,
        head: &LoggedHead,
        now: Timestamp,
        detail: Detail,
    ) -> Result<ReplayOutcome, StoreError> {
        if let Some(slots) = &mut self.slots {
            slots.pass(&mut self.counters, now)?;
        }
        self.decided = None;
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
            address: self.address(request, head).unwrap_or(NOBODY),
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
            // No log says so.
            content: Content::Absent,
        };
        let given = |limit: &Limit| {
            let logged = || request.logged_cost(&limit.name);
            let cost = match limit.price {
                // As the gateway takes it: what is more than the most is the most.
                Some(ref price) => {
                    let said = request.cost.or_else(logged);
                    said.map(|cost| cost.min(price.max))
                }
                // A repeat that went free has no id in the log, but took nothing.
                None => logged().filter(|cost| *cost == 0),
            };
            cost.map(Cost::new)
        };
        let moved = &self.moved;
        self.plan.refill(service, &caller, given, |limit, out| {
            !moved.contains(&limit.name) && write_logged(request, limit, out)
        });
        // What the gateway answers where the limits that it asks do not refuse.
        let otherwise = self.plan.lack().map(turned_away);
        if self.plan.is_empty() {
            return Ok(otherwise.unwrap_or(ReplayOutcome::Admit));
        }
        self.asked = true;
        let checks = self.plan.checks(service);
        let detail = if self.slots.is_some() {
            Detail::Verdicts
        } else {
            detail
        };
        self.counters
            .decide(&checks, now, detail, &mut self.decided)?;
        let Some(decided) = &self.decided else {
            return Ok(otherwise.unwrap_or(ReplayOutcome::Admit));
        };
        let outcome = outcome(decided, &self.plan, service);
        let wait = match &outcome {
            ReplayOutcome::Delay { wait, .. } => *wait,
            _ => 0,
        };
        let ends = now.plus(request.duration);
        let has_left = request.left_within(wait);
        if wait > 0 {
            let until = if has_left { ends } else { now.plus(wait) };
            if !self
                .held
                .enter(caller.address, now, until, self.snapshot.holds)
            {
                // Refused after having been charged: what belongs to the wait goes back at once.
                for (index, check) in checks.iter().enumerate() {
                    let limit = check.limit;
                    let back = limit.refund_on.cancels
                        || limit.holds_back()
                        || limit.rule.holds().is_some();
                    if let Some(charge) = Charge::of(decided, index, check).filter(|_| back) {
                        self.counters.give_back(&charge, now)?;
                    }
                }
                return Ok(ReplayOutcome::TooManyHeld);
            }
        }
        if let Some(slots) = &mut self.slots {
            for (index, check) in checks.iter().enumerate() {
                let (gives, rule) = (check.limit.refund_on, &check.limit.rule);
                let is_queued = wait > 0 && check.limit.holds_back();
                // A place in a queue comes back with who leaves it.
                let left = has_left && (gives.cancels || is_queued && wait > request.duration);
                let failed = request.failed() && gives.errors;
                if (rule.holds().is_some() || left || failed)
                    && let Some(charge) = Charge::of(decided, index, check)
                {
                    slots.hold(charge, now, ends);
                } else if let Some(meter) = &check.limit.meter
                    && let Some(truth) = given_later(request, &check.limit.name)
                    && let Some(charge) = Charge::of(decided, index, check)
                {
                    // As the gateway takes it, however much the line says.
                    let most = Cost::new(truth.units().min(meter.max));
                    slots.settle(charge, most, ends);
                }
            }
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
        let (Some(decided), Some(service)) = (&self.decided, self.service()) else {
            return 1;
        };
        let of_those_that_decide = decided.measured.iter().zip(&decided.decision.verdicts);
        let measured = of_those_that_decide.map(|(measured, _)| measured);
        let asked = || self.plan.keys().zip(measured.clone());
        let partial = asked().find(|((at, ..), _)| service.limits[*at].partial);
        let least = partial.map(|((.., cost), measured)| measured.granted.unwrap_or(cost).units());
        let greatest = || asked().map(|((.., cost), _)| cost.units()).max();
        least.or_else(greatest).unwrap_or(1)
    }

    /// What the limits said to it one by one; nothing where none was asked.
    pub(super) fn decided(&self) -> Option<&StoreDecision> {
        self.decided.as_ref()
    }

    /// Where it counts.
    pub(super) fn counters(&self) -> &Counters {
        &self.counters
    }
}

/// What the response told `limit` that the request has cost.
fn given_later(request: &LoggedRequest<'_>, limit: &str) -> Option<Cost> {
    let told = request.cost.or_else(|| request.logged_cost(limit));
    told.map(Cost::new)
}

/// Where a request goes, as its line tells it; read as text when a limit asks.
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

/// A request as conditions of routes look at it. Nobody vouches for a scheme but the target in the line.
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

/// The host that a request is for, as the line tells it; the one that its target names goes first.
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
