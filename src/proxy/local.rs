//! A worker's half of a snapshot: handles and pools resolved once, so that a request looks nothing up.

use super::body::RequestBody;
use super::error::ProxyError;
use super::{fields, forward};
use crate::limit::{Limit, Mode};
use crate::snapshot::{Service, Snapshot};
use crate::telemetry::metrics::{
    self, LimitMetrics, NO_ROUTE, RouteMetrics, UpstreamMetrics, WorkerMetrics,
};
use crate::upstream::pool::{Pool, Pools};
use http::HeaderValue;
use std::cell::{Cell, OnceCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// The snapshot as one worker holds it. Replaced whole when a newer one is seen.
#[derive(Debug)]
pub struct Local {
    /// What all workers share.
    pub snapshot: Arc<Snapshot>,
    /// Made when a route is first used, so that a reload of ten thousand routes costs a worker nothing at once.
    routes: Vec<OnceCell<LocalRoute>>,
    upstreams: Vec<OnceCell<Servers>>,
    /// Counts what matched no route.
    pub unrouted: RouteMetrics,
}

/// A route's handles.
#[derive(Debug)]
pub struct LocalRoute {
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
    pools: Vec<Rc<Pool<RequestBody>>>,
    turn: Cell<usize>,
    /// Longest time to wait for a connection.
    pub connect_timeout: Duration,
    /// Counts what the upstream does.
    pub metrics: UpstreamMetrics,
}

impl Local {
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
    pub fn route(&self, index: usize, metrics: &WorkerMetrics) -> &LocalRoute {
        self.routes[index].get_or_init(|| {
            let service = self.service(index);
            let label = service.route().unwrap_or(NO_ROUTE);
            LocalRoute {
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
                pools: upstream
                    .servers
                    .iter()
                    .map(|server| pools.of(server))
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
        if let Some(failure) = forward::failure(error) {
            self.metrics.failed(failure);
        }
    }

    /// The server whose turn it is.
    #[must_use]
    pub fn turn(&self) -> &Rc<Pool<RequestBody>> {
        let next = self.turn.get() + 1;
        self.turn
            .set(if next < self.pools.len() { next } else { 0 });
        &self.pools[self.turn.get()]
    }

    /// All servers, beginning with the one whose turn it was last.
    pub fn from_last_turn(&self) -> impl Iterator<Item = &Rc<Pool<RequestBody>>> {
        let (before, after) = self.pools.split_at(self.turn.get());
        after.iter().chain(before)
    }
}
