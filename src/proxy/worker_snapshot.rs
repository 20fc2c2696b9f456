//! A worker's half of a snapshot: handles and pools resolved once, so that a request looks nothing up.

use super::body::RequestBody;
use super::error::ProxyError;
use super::{fields, upstream_call};
use crate::limit::{Limit, Mode};
use crate::snapshot::{Service, Snapshot};
use crate::telemetry::metrics::{
    self, LimitMetrics, NO_ROUTE, RouteMetrics, ServerMetrics, UpstreamMetrics, WorkerMetrics,
};
use crate::upstream::pool::{Pool, Pools};
use http::HeaderValue;
use std::cell::{Cell, OnceCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// The snapshot as one worker holds it. Replaced whole when a newer one is seen.
#[derive(Debug)]
pub struct WorkerSnapshot {
    /// What all workers share.
    pub snapshot: Arc<Snapshot>,
    /// Made when a route is first used, so that a reload of ten thousand routes costs a worker nothing at once.
    routes: Vec<OnceCell<RouteHandles>>,
    upstreams: Vec<OnceCell<Servers>>,
    /// Counts what matched no route.
    pub unrouted: RouteMetrics,
}

/// A route's handles.
#[derive(Debug)]
pub struct RouteHandles {
    /// Counts its requests.
    pub metrics: RouteMetrics,
    /// Count its limits' decisions, in the service's order.
    pub limits: Vec<LimitMetrics>,
    /// `RateLimit-Policy` when all limits apply.
    pub policy: Option<HeaderValue>,
}

/// As the metrics call it.
fn mode(mode: Mode) -> metrics::Mode {
    match mode {
        Mode::Enforce => metrics::Mode::Enforce,
        Mode::Shadow => metrics::Mode::Shadow,
        Mode::Candidate => metrics::Mode::Candidate,
    }
}

/// Those of them that decide.
fn deciding(limits: &[Arc<Limit>]) -> impl Iterator<Item = &Arc<Limit>> {
    limits.iter().filter(|limit| limit.mode.decides())
}

/// The servers of an upstream, each with this worker's pool.
#[derive(Debug)]
pub struct Servers {
    all: Vec<Server>,
    turn: Cell<usize>,
    /// Longest time to wait for a connection.
    pub connect_timeout: Duration,
    /// Counts what the upstream does.
    pub metrics: UpstreamMetrics,
}

/// One of them.
#[derive(Debug)]
pub struct Server {
    /// This worker's connections to it.
    pub pool: Rc<Pool<RequestBody>>,
    /// Counts what it does.
    pub metrics: ServerMetrics,
}

impl WorkerSnapshot {
    /// Nothing is resolved yet.
    #[must_use]
    pub fn new(snapshot: Arc<Snapshot>, metrics: &WorkerMetrics) -> Self {
        let routes = snapshot.services.iter().map(|_| OnceCell::new()).collect();
        let upstreams = snapshot.upstreams.iter().map(|_| OnceCell::new()).collect();
        Self {
            snapshot,
            routes,
            upstreams,
            unrouted: metrics.route(NO_ROUTE),
        }
    }

    /// What route `index` leads to.
    #[must_use]
    pub fn service(&self, index: usize) -> &Service {
        &self.snapshot.services[index]
    }

    /// The handles of route `index`.
    #[must_use]
    pub fn route(&self, index: usize, metrics: &WorkerMetrics) -> &RouteHandles {
        self.routes[index].get_or_init(|| {
            let service = self.service(index);
            let label = service.route().unwrap_or(NO_ROUTE);
            RouteHandles {
                metrics: metrics.route(label),
                limits: service
                    .limits
                    .iter()
                    .map(|limit| metrics.limit_in(mode(limit.mode), &limit.name, label))
                    .collect(),
                policy: fields::policy(deciding(&service.limits)),
            }
        })
    }

    /// The servers of upstream `index`.
    #[must_use]
    pub fn servers(
        &self,
        index: usize,
        pools: &Pools<RequestBody>,
        metrics: &WorkerMetrics,
    ) -> &Servers {
        self.upstreams[index].get_or_init(|| {
            let upstream = &self.snapshot.upstreams[index];
            Servers {
                all: upstream
                    .servers
                    .iter()
                    .map(|server| Server {
                        pool: pools.of(server),
                        metrics: metrics.server(&upstream.name, &server.to_string()),
                    })
                    .collect(),
                // Workers begin at different servers, or a quiet gateway would favour the first.
                turn: Cell::new(fastrand::usize(..upstream.servers.len().max(1))),
                connect_timeout: upstream.connect_timeout,
                metrics: metrics.upstream(&upstream.name),
            }
        })
    }
}

impl Servers {
    /// Counts an upstream's failure, if `error` is one.
    pub fn count(&self, error: &ProxyError) {
        if let Some(failure) = upstream_call::failure(error) {
            self.metrics.failed(failure);
        }
    }

    /// Whose turn it is.
    #[must_use]
    pub fn turn(&self) -> usize {
        let next = self.turn.get() + 1;
        self.turn.set(if next < self.all.len() { next } else { 0 });
        self.turn.get()
    }

    /// The server at that position.
    #[must_use]
    pub fn at(&self, position: usize) -> &Server {
        &self.all[position]
    }

    /// All positions, beginning with the one whose turn it was last.
    pub fn from_last_turn(&self) -> impl Iterator<Item = usize> + use<> {
        let (turn, many) = (self.turn.get(), self.all.len());
        (turn..many).chain(0..turn)
    }
}
