//! One file's answer to each request: a route, the keys, one call and one decision, in the gateway's order.

mod identity;
mod line_facts;
mod origin;
mod outcome;
mod shadow;

use line_facts::{LineFacts, LineNotes};
use outcome::{outcome, refusal};
pub(super) use shadow::ShadowAnswer;

use super::counters::{Counters, Detail};
use super::request::LoggedRequest;
use super::reservations::OpenReservations;
use super::route_cache::RouteCache;
use super::timeline::OutcomeKind;
use super::waiting_requests::WaitingRequests;
use crate::admission::{Admission, OpenCharges, Plan, RequestEnd};
use crate::clock::Timestamp;
use crate::intake::{RequestWalk, Stop};
use crate::key::MeterPlace;
use crate::limit::Limit;
use crate::limit::rate::Cost;
use crate::snapshot::{Service, Snapshot};
use crate::store::{Amendment, Decider, StoreDecision, StoreError};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// The client of all lines without a client.
const NO_CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// A file with its counters.
#[derive(Debug)]
pub(super) struct PolicySide {
    snapshot: Snapshot,
    counters: Counters,
    route_cache: RouteCache,
    /// The positions of the routes by their names.
    names: HashMap<Arc<str>, usize>,
    /// Requests whose line names a route that the file lacks, or a route that would not match the request.
    strays: u64,
    /// The route, the plan and the decision of the last request. They are large, so that they are stored rather than
    /// returned.
    route: Option<usize>,
    plan: Plan,
    admission: Admission,
    /// Was the store called for the last request's plan?
    asked: bool,
    /// The reservations of unfinished requests; `None` if no limit makes any.
    reservations: Option<OpenReservations>,
    waiting: WaitingRequests,
    /// Limits that count by another key than when the log was written.
    moved: Vec<Arc<str>>,
}

/// The outcome of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ReplayOutcome {
    /// The request proceeds at once.
    Admit,
    /// The request is held, and then proceeds.
    Delay {
        /// The wait in microseconds, at least 1.
        wait: u64,
        /// The limit that holds the request.
        limit: Arc<str>,
    },
    /// The request is refused.
    Refuse {
        /// The microseconds until the request would be admitted; `None` if it never would.
        wait: Option<u64>,
        /// The limit that refuses.
        limit: Arc<str>,
        /// The rate that refuses, if the limit has a list of rates.
        window: Option<Arc<str>>,
    },
    /// The request would have to wait, and too many others wait already.
    TooManyHeld,
    /// No route takes the request, or the gateway answered it before any limit was asked.
    NoRoute,
}

impl ReplayOutcome {
    pub(super) fn kind(&self) -> OutcomeKind {
        match self {
            Self::Admit | Self::NoRoute => OutcomeKind::Admitted,
            Self::Delay { .. } => OutcomeKind::Delayed,
            Self::Refuse { .. } | Self::TooManyHeld => OutcomeKind::Refused,
        }
    }
}

impl PolicySide {
    /// The side of a file. `before` is the side of the file whose traffic the log shows, if that is another file.
    pub(super) fn new(snapshot: Snapshot, counters: Counters, before: Option<&Self>) -> Self {
        // Groups are not compared: the log also has the keys that no group knows.
        let by = |limit: &Limit| (limit.by.parts.clone(), limit.by.missing, limit.by.case);
        let is_moved = |limit: &&Arc<Limit>| {
            let mut then = before.into_iter().flat_map(|side| limits(&side.snapshot));
            let same = then.find(|other| other.name == limit.name);
            same.is_some_and(|other| by(other) != by(limit))
        };
        let moved = limits(&snapshot).filter(is_moved);
        let moved = moved.map(|limit| Arc::clone(&limit.name)).collect();
        let holds = limits(&snapshot).any(|limit| {
            limit.rule.concurrency().is_some() || limit.holds_back() || limit.may_correct()
        });
        let names = names(&snapshot);
        Self {
            snapshot,
            counters,
            route_cache: RouteCache::new(),
            names,
            strays: 0,
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

    /// Decides one request at the instant `now`. The verdicts of its limits are available afterwards if `detail`
    /// requires them.
    pub(super) fn judge(
        &mut self,
        request: &LoggedRequest<'_>,
        now: Timestamp,
        detail: Detail,
    ) -> Result<ReplayOutcome, StoreError> {
        if let Some(reservations) = &mut self.reservations {
            reservations.pass(&mut self.counters, now)?;
        }
        self.admission.decided = None;
        self.asked = false;
        self.route = self.walk(request);
        let Some(route) = self.route else {
            return Ok(ReplayOutcome::NoRoute);
        };
        let outcome = self.ask(route, request, now, detail)?;
        let is_routed = self.snapshot.services[route].has_end();
        Ok(match outcome {
            // The limits for every request have been checked.
            ReplayOutcome::Admit | ReplayOutcome::Delay { .. } if !is_routed => {
                ReplayOutcome::NoRoute
            }
            outcome => outcome,
        })
    }

    /// Walks a request to its plan. Returns its route; `None` if no limit is checked.
    fn walk(&mut self, request: &LoggedRequest<'_>) -> Option<usize> {
        if request.had_early_answer() {
            return None;
        }
        let mut facts = LineFacts {
            address: self.address(request).unwrap_or(NO_CLIENT),
            request,
            target: request.target(),
            names: &self.names,
            route_cache: &mut self.route_cache,
            is_stray: false,
            moved: &self.moved,
        };
        let mut notes = LineNotes {
            plan: &mut self.plan,
            route: None,
        };
        notes.plan.clear();
        let mut walk = RequestWalk::of_line();
        let end = loop {
            match walk.go_on(&self.snapshot, &mut facts, &mut notes) {
                Ok(Stop::Planned) => break notes.route,
                Ok(_) => {}
                Err(_) => break None,
            }
        };
        self.strays += u64::from(facts.is_stray);
        end
    }

    /// Checks the planned limits of one route.
    fn ask(
        &mut self,
        route: usize,
        request: &LoggedRequest<'_>,
        now: Timestamp,
        detail: Detail,
    ) -> Result<ReplayOutcome, StoreError> {
        let service = &self.snapshot.services[route];
        // The refusal of a request that lacks a part; it applies if the other limits do not refuse first.
        let otherwise = self.plan.lack().map(refusal);
        if self.plan.is_empty() {
            return Ok(otherwise.unwrap_or(ReplayOutcome::Admit));
        }
        self.asked = true;
        // Reservations are made from the verdicts.
        let detail = self
            .reservations
            .as_ref()
            .map_or(detail, |_| Detail::Verdicts);
        let decided = &mut self.admission.decided;
        self.counters
            .decide(&self.plan.checks(service), now, detail, decided)?;
        if self.admission.decided.is_none() {
            return Ok(otherwise.unwrap_or(ReplayOutcome::Admit));
        }
        let outcome = outcome(&self.admission, &self.plan, service);
        let (client, stay) = (
            self.address(request).unwrap_or(NO_CLIENT),
            Stay::of(request, now, &outcome),
        );
        Ok(match outcome {
            _ if !self.keep(route, client, &stay)? => ReplayOutcome::TooManyHeld,
            ReplayOutcome::Admit | ReplayOutcome::Delay { .. } => otherwise.unwrap_or(outcome),
            outcome => outcome,
        })
    }

    /// Keeps the reservations of a request. Returns false if the request would have to wait while too many others do;
    /// its charges are then refunded.
    fn keep(
        &mut self,
        route: usize,
        client: IpAddr,
        stay: &Stay<'_, '_>,
    ) -> Result<bool, StoreError> {
        let service = &self.snapshot.services[route];
        let open = |queues_exist| {
            self.admission
                .open_charges(&self.plan, service, queues_exist)
        };
        let (begins, ends, bounds) = (stay.begins, stay.wait_ends(), self.snapshot.holds);
        if stay.wait > 0 && !self.waiting.enter(client, begins, ends, bounds) {
            refund_wait(&mut self.counters, &open(true), begins)?;
            return Ok(false);
        }
        if let Some(reservations) = &mut self.reservations {
            reserve(reservations, open(false), stay);
        }
        Ok(true)
    }

    /// The service of the request just judged.
    pub(super) fn service(&self) -> Option<&Service> {
        self.snapshot.services.get(self.route?)
    }

    /// The checks of the request just judged: each limit, with the numbers that applied, and its key.
    pub(super) fn keys(&self) -> impl Iterator<Item = (&Arc<Limit>, &str)> {
        let limits = self.service().into_iter().filter(|_| self.asked);
        let limits = limits.flat_map(|service| self.plan.limits(service));
        limits.zip(self.plan.keys().map(|(_, key, _)| key))
    }

    /// The number of units that the request just judged was granted, if it was admitted: the grant of the limit with
    /// partial grants, else the highest charge of its limits; 1 if it has no limits.
    pub(super) fn granted(&self) -> u64 {
        let (Some(_), Some(service)) = (&self.admission.decided, self.service()) else {
            return 1;
        };
        let most = || self.plan.keys().map(|(.., cost)| cost).max();
        let granted = self.admission.granted(&self.plan, service).or_else(most);
        granted.map_or(1, Cost::units)
    }

    /// The verdicts of the limits; `None` if no limit was checked.
    pub(super) fn decided(&self) -> Option<&StoreDecision> {
        self.admission.decided.as_deref()
    }

    /// The number of requests whose line names a route that the file lacks, or a route that would not match the
    /// request.
    pub(super) fn strays(&self) -> u64 {
        self.strays
    }

    /// The counters of this file.
    pub(super) fn counters(&self) -> &Counters {
        &self.counters
    }
}

/// The positions of a file's routes.
fn names(snapshot: &Snapshot) -> HashMap<Arc<str>, usize> {
    let services = snapshot.services.iter().enumerate();
    let routes = services.filter(|(_, service)| service.route().is_some());
    routes
        .map(|(at, service)| (Arc::clone(&service.name), at))
        .collect()
}

/// The limits of all routes, some of them several times.
fn limits(snapshot: &Snapshot) -> impl Iterator<Item = &Arc<Limit>> {
    let services = snapshot.services.iter();
    services.flat_map(|service| &service.limits)
}

/// The time of a request in the gateway, by its line and by its decision.
struct Stay<'a, 'r> {
    request: &'a LoggedRequest<'r>,
    begins: Timestamp,
    ends: Timestamp,
    /// Microseconds in the queue of a limit.
    wait: u64,
    /// The client leaves before the request is forwarded.
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

/// Refunds a request that was charged and may not wait: its slots, its places in queues, and its charges under limits
/// that refund an abandoned request.
fn refund_wait(
    counters: &mut Counters,
    open: &OpenCharges,
    now: Timestamp,
) -> Result<(), StoreError> {
    let refundable = open.refundable.iter();
    let refundable = refundable.filter(|charge| RequestEnd::Abandoned(None).refunds(&charge.limit));
    let mut charges = open.slots.iter().chain(&open.places).chain(refundable);
    charges.try_for_each(|charge| counters.amend(charge, Amendment::Refund, now))
}

/// Keeps the charges that change when the stay ends: slots, refunds, settlements.
fn reserve(reservations: &mut OpenReservations, mut open: OpenCharges, stay: &Stay<'_, '_>) {
    let request = stay.request;
    if stay.is_abandoned && stay.wait > request.duration {
        // A place in a queue is refunded when its client leaves before its turn.
        open.slots.append(&mut open.places);
    }
    open.leave_queues();
    let mut keep = |charge, amendment| reservations.keep(charge, amendment, stay.begins, stay.ends);
    for charge in open.slots {
        keep(charge, Amendment::Refund);
    }
    for charge in open.refundable {
        let limit = &charge.limit;
        let is_cancelled = stay.is_abandoned && RequestEnd::Abandoned(None).refunds(limit);
        let end = request.end();
        let is_refunded = end.refunds(limit);
        if is_cancelled || is_refunded {
            keep(charge, Amendment::Refund);
        } else if let Some(MeterPlace::Status(costs)) = limit.meter.as_ref().map(|one| &one.place) {
            if let Some(status) = end.status() {
                let cost = Cost::new(costs.of(status));
                keep(charge, Amendment::Settlement(cost));
            }
        } else if let Some(meter) = &limit.meter
            && let Some(cost) = request.cost.or_else(|| request.logged_cost(&limit.name))
        {
            // As in the gateway, a cost above the maximum counts as the maximum.
            let cost = Cost::new(cost.min(meter.max));
            keep(charge, Amendment::Settlement(cost));
        }
    }
}
