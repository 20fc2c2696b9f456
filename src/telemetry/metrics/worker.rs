//! The handles with which a worker counts: resolved once for each name, then a few stores for each event.

use super::instrument::Counter;
use super::label::{
    AnswerSource, ClientUnnamed, Combination, CostReport, DecidedBy, DecisionLabel, EndedBy,
    Failure, Flow, Handshake, Labels, ModeLabel, RefusedHead, RetryResult, class_position,
};
use super::worker_cells::{
    CallCells, CombinationTimes, CostSilence, DecisionCells, DecisionKey, GRPC_STATUSES,
    LimitCells, RouteCells, SILENT_FOR, ServerCells, UpstreamCells, WorkerCells,
};
use std::cell::{OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[allow(
    clippy::redundant_allocation,
    reason = "the Rc binds the cells to the thread that writes them, and its clones are no atomic operations"
)]
type Handle<C> = Rc<Arc<C>>;

/// One worker's handle to its numbers. It stays on the thread that created it.
///
/// Handles for routes, limits and upstreams are resolved when a snapshot arrives. The same name resolves to the same
/// cells.
#[derive(Debug, Clone)]
pub struct WorkerMetrics(pub(super) Handle<WorkerCells>);

impl WorkerMetrics {
    /// The handle of a route; [`NO_ROUTE`](super::NO_ROUTE) is the name for requests that no route matched.
    #[must_use]
    pub fn route(&self, name: &str) -> RouteMetrics {
        RouteMetrics(Rc::new(RouteHandle {
            cells: self.0.routes.resolve(Labels::of("route", name)),
            seen: RefCell::default(),
            calls: OnceCell::new(),
            worker: Rc::clone(&self.0),
            name: name.into(),
        }))
    }

    /// The handle of a limit in a mode on a route.
    #[must_use]
    pub fn limit(&self, mode: ModeLabel, limit: &str, route: &str) -> LimitMetrics {
        let limit = Labels::of("limit", limit);
        let labels = limit.clone().and("route", route.to_owned());
        LimitMetrics(Rc::new(LimitHandle {
            silence: self.0.silences.resolve(limit.clone()),
            cells: self.0.limits.resolve(limit),
            decisions: self.0.decisions.resolve(DecisionKey { labels, mode }),
        }))
    }

    /// The handle of an upstream.
    #[must_use]
    pub fn upstream(&self, name: &str) -> UpstreamMetrics {
        let labels = Labels::of("upstream", name);
        UpstreamMetrics {
            cells: Rc::new(self.0.upstreams.resolve(labels)),
            worker: Rc::clone(&self.0),
            name: name.into(),
        }
    }

    /// The handle of one of an upstream's servers.
    #[must_use]
    pub fn server(&self, upstream: &str, server: &str) -> ServerMetrics {
        let labels = Labels::of("upstream", upstream).and("server", server.to_owned());
        ServerMetrics(Rc::new(self.0.servers.resolve(labels)))
    }

    /// Notes that a client's connection was accepted; it counts as open until the guard is dropped.
    #[must_use]
    pub fn connected(&self) -> Connected {
        self.0.totals.accepted.add(1);
        self.0.totals.connections.add(1);
        Connected(Rc::clone(&self.0))
    }

    /// Notes that a request is in flight until the guard is dropped.
    #[must_use]
    pub fn in_flight(&self) -> InFlightGauge {
        self.0.totals.in_flight.add(1);
        InFlightGauge(Rc::clone(&self.0))
    }

    /// Notes the bytes of received request bodies and of sent response bodies.
    pub fn bodies(&self, received: u64, sent: u64) {
        self.0.totals.received.add(received);
        self.0.totals.sent.add(sent);
    }

    /// Notes that a request found no descriptor left for a connection to its upstream.
    pub fn busy(&self) {
        self.0.totals.busy.add(1);
    }

    /// Notes a head that was refused before it was a request.
    pub fn refused_head(&self, cause: RefusedHead) {
        self.0.totals.refused_heads[cause as usize].add(1);
    }

    /// Notes fields of a request that were dropped because of their names.
    pub fn dropped_fields(&self, many: u64) {
        self.0.totals.dropped_fields.add(many);
    }

    /// Notes that a request was refused since the keys of its token were never read.
    #[cold]
    pub fn keys_unread(&self) {
        self.0.totals.keys_unread.add(1);
    }

    /// Notes that a trusted peer has named no client of a request.
    pub fn client_unnamed(&self, cause: ClientUnnamed) {
        self.0.totals.clients_unnamed[cause as usize].add(1);
    }

    /// Notes that a WebSocket has ended, or an incomplete answer.
    #[cold]
    pub fn ended(&self, kind: Flow, by: EndedBy) {
        self.0.totals.ended[kind as usize][by as usize].add(1);
    }

    /// Notes the time that the gateway itself added to a forwarded request: its whole time without the upstream's and
    /// the hold.
    pub fn overhead(&self, time: Duration) {
        self.0.overhead.observe(time);
    }
}

/// An open connection of a client, which ends when the guard is dropped.
#[derive(Debug)]
pub struct Connected(Handle<WorkerCells>);

impl Connected {
    /// Notes the end of the connection's handshake. `identity` is the name of the chosen identity, `version` the
    /// version of TLS that both sides agreed on; `None` if the handshake did not get there.
    pub fn handshake(&self, identity: Option<&str>, version: Option<&'static str>, end: Handshake) {
        let labels = Labels::of("identity", identity.unwrap_or("none"));
        let labels = labels.and("version", version.unwrap_or("none"));
        self.0.handshakes.resolve(labels).0[end as usize].add(1);
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.totals.connections.add(-1);
    }
}

/// A request in flight, which ends when the guard is dropped.
#[derive(Debug)]
pub struct InFlightGauge(Handle<WorkerCells>);

impl Drop for InFlightGauge {
    fn drop(&mut self) {
        self.0.totals.in_flight.add(-1);
    }
}

/// Counts the requests of one route.
#[derive(Debug, Clone)]
pub struct RouteMetrics(Rc<RouteHandle>);

#[derive(Debug)]
struct RouteHandle {
    cells: Arc<RouteCells>,
    /// The combinations that this worker has seen, in the order of their first occurrence: they are few, so that the
    /// search begins at the front.
    seen: RefCell<Vec<CombinationTimes>>,
    /// The route's gRPC calls, resolved at the first of them: most routes have none.
    calls: OnceCell<Arc<CallCells>>,
    worker: Handle<WorkerCells>,
    name: Box<str>,
}

impl RouteMetrics {
    /// Notes that a request was answered. Takes a lock only for a combination of method, status and source that is new
    /// here.
    pub fn request(
        &self,
        method: &http::Method,
        status: u16,
        source: AnswerSource,
        time: Duration,
    ) {
        let wanted = Combination::new(method, status, source);
        let mut seen = self.0.seen.borrow_mut();
        if let Some((_, times)) = seen.iter().find(|(known, _)| *known == wanted) {
            return times.observe(time);
        }
        let (counted_as, times) = self.0.cells.see(wanted);
        times.observe(time);
        if counted_as == wanted {
            seen.push((wanted, times));
        }
    }

    /// Notes the end of a gRPC call, with the status that the client got.
    #[cold]
    pub fn call(&self, status: Option<u16>) {
        let route = &self.0;
        let labels = || Labels::of("route", &route.name);
        let cells = route
            .calls
            .get_or_init(|| route.worker.calls.resolve(labels()));
        let place = status.map_or(GRPC_STATUSES, usize::from);
        cells.0[place.min(GRPC_STATUSES)].add(1);
    }
}

/// Counts the decisions of one limit on one route.
#[derive(Debug, Clone)]
pub struct LimitMetrics(Rc<LimitHandle>);

#[derive(Debug)]
struct LimitHandle {
    silence: Arc<CostSilence>,
    cells: Arc<LimitCells>,
    decisions: Arc<DecisionCells>,
}

impl LimitMetrics {
    /// Notes a decision of the limit.
    pub fn decided(&self, decision: DecisionLabel, by: DecidedBy) {
        self.0.decisions.0[decision as usize][by as usize].add(1);
    }

    /// Notes that a block of a key has begun.
    #[cold]
    pub fn blocked(&self) {
        self.0.cells.blocks.add(1);
    }

    /// Notes the report of a response about the cost of its request to the limit.
    pub fn cost_reported(&self, cost_reported: CostReport) {
        self.0.cells.costs[cost_reported as usize].add(1);
    }

    /// Notes whether an answer that should have a cost had one. Returns the number of consecutive answers without one
    /// if the log is due to report it: once, until an answer has a cost.
    #[must_use]
    pub fn cost_said(&self, said: bool) -> Option<u32> {
        self.0.silence.heard(said).then_some(SILENT_FOR)
    }

    /// Notes that a request has waited for this limit since `since`, and counts the delay when the guard is dropped.
    #[must_use]
    pub fn hold(&self, since: Instant) -> HeldRequest {
        self.0.cells.held.0.add(1);
        HeldRequest(Rc::clone(&self.0), since)
    }
}

/// A request that has been held since the instant; dropping it ends the wait, for any cause of the end.
#[derive(Debug)]
pub struct HeldRequest(Rc<LimitHandle>, Instant);

impl Drop for HeldRequest {
    fn drop(&mut self) {
        self.0.cells.held.0.add(-1);
        self.0.cells.delays.observe(self.1.elapsed());
    }
}

/// Counts the connections, answers and failures of one upstream.
#[derive(Debug, Clone)]
pub struct UpstreamMetrics {
    cells: Handle<UpstreamCells>,
    /// Rare counters are looked up when needed.
    worker: Handle<WorkerCells>,
    name: Rc<str>,
}

impl UpstreamMetrics {
    /// Notes that a request was retried after `cause`, or was to be, with this result.
    #[cold]
    pub fn retried(&self, cause: &'static str, result: RetryResult) {
        let labels = Labels::of("upstream", &self.name);
        let labels = labels.and("reason", cause).and("result", result.as_str());
        self.worker.retries.resolve(labels).add(1);
    }

    /// Notes that a request has waited for this time for a free server.
    #[cold]
    pub fn queued(&self, time: Duration) {
        let labels = Labels::of("upstream", &self.name);
        self.worker.queues.resolve(labels).observe(time);
    }

    /// Notes that a connection to one of the upstream's servers was opened.
    pub fn opened(&self) {
        self.cells.opened.add(1);
    }

    /// Notes that the head of an answer came `time` after the request was forwarded.
    pub fn answered(&self, status: u16, time: Duration) {
        self.cells.answers[class_position(status)].observe(time);
    }

    /// Notes that a request could not be answered.
    pub fn failed(&self, reason: Failure) {
        self.cells.failures[reason as usize].add(1);
    }
}

/// Counts the requests of one server of an upstream.
#[derive(Debug, Clone)]
pub struct ServerMetrics(Handle<ServerCells>);

impl ServerMetrics {
    /// Notes that the server accepted no connection.
    pub fn unreached(&self) {
        self.0.unreached.add(1);
    }

    /// Notes that a request was sent to the server.
    #[inline]
    pub fn entered(&self) {
        self.0.in_flight.add(1);
    }

    /// Notes that the answer of such a request has ended.
    #[inline]
    pub fn left(&self) {
        self.0.in_flight.add(-1);
    }

    /// Notes the status of an answer.
    #[inline]
    pub fn answered(&self, status: u16) {
        self.0.answers[class_position(status)].add(1);
    }
}
