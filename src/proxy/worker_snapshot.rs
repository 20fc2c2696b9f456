//! A worker's part of a snapshot: handles and pools resolved once, so that a request needs no lookup.

use crate::limit::{Limit, Mode};
use crate::proxy::answer::fields;
use crate::proxy::answer::fields::RefusalFields;
use crate::proxy::answer::reply::RefusalText;
use crate::proxy::bodies::request_body::RequestBody;
use crate::snapshot::{Service, Snapshot};
use crate::telemetry::metrics::{self, LimitMetrics, NO_ROUTE, RouteMetrics, WorkerMetrics};
use crate::upstream::balance::Balancer;
use crate::upstream::pool::Pools;
use http::HeaderValue;
use std::cell::OnceCell;
use std::sync::Arc;

/// The snapshot in one worker's form. Replaced whole when a newer one is seen.
#[derive(Debug)]
pub struct WorkerSnapshot {
    /// The snapshot that all workers share.
    pub snapshot: Arc<Snapshot>,
    /// Handles of routes, each created when its route is first used. A reload of ten thousand routes thus costs a
    /// worker nothing at first.
    routes: Vec<OnceCell<RouteHandles>>,
    upstreams: Vec<OnceCell<Balancer<RequestBody>>>,
    /// Counts the requests that no route matched.
    pub unrouted: RouteMetrics,
    metrics: WorkerMetrics,
}

/// A route's handles.
#[derive(Debug)]
pub struct RouteHandles {
    /// Counts the route's requests.
    pub metrics: RouteMetrics,
    /// Counts the decisions of the route's limits, in the service's order.
    pub limits: Vec<LimitMetrics>,
    /// The shared parts of each limit's refusals, in the service's order.
    pub refusals: Vec<UsualRefusal>,
    /// The `RateLimit-Policy` for requests to which all limits apply.
    pub policy: Option<HeaderValue>,
}

/// The shared parts of one limit's refusals, if it refuses alone. Each part is created at the first refusal that needs
/// it.
#[derive(Debug, Default)]
pub struct UsualRefusal {
    /// The body.
    pub text: OnceCell<RefusalText>,
    /// The fields of an HTTP refusal, if all limits of the route apply.
    pub fields: OnceCell<RefusalFields>,
}

/// The mode in the metrics.
fn mode(mode: Mode) -> metrics::ModeLabel {
    match mode {
        Mode::Enforce => metrics::ModeLabel::Enforce,
        Mode::Shadow => metrics::ModeLabel::Shadow,
        Mode::Candidate => metrics::ModeLabel::Candidate,
    }
}

/// The limits that decide.
fn deciding(limits: &[Arc<Limit>]) -> impl Iterator<Item = &Arc<Limit>> {
    limits.iter().filter(|limit| limit.mode.decides())
}

impl WorkerSnapshot {
    /// A worker's part of `snapshot`, with nothing resolved yet.
    #[must_use]
    pub fn new(snapshot: Arc<Snapshot>, metrics: &WorkerMetrics) -> Self {
        let routes = snapshot.services.iter().map(|_| OnceCell::new()).collect();
        let upstreams = snapshot.upstreams.iter().map(|_| OnceCell::new()).collect();
        Self {
            snapshot,
            routes,
            upstreams,
            unrouted: metrics.route(NO_ROUTE),
            metrics: metrics.clone(),
        }
    }

    /// The service of route `index`.
    #[must_use]
    pub fn service(&self, index: usize) -> &Service {
        &self.snapshot.services[index]
    }

    /// The handles of route `index`.
    #[must_use]
    pub fn route(&self, index: usize) -> &RouteHandles {
        self.routes[index].get_or_init(|| {
            let metrics = &self.metrics;
            let service = self.service(index);
            let label = service.route().unwrap_or(NO_ROUTE);
            RouteHandles {
                metrics: metrics.route(label),
                limits: service
                    .limits
                    .iter()
                    .map(|limit| metrics.limit(mode(limit.mode), &limit.name, label))
                    .collect(),
                refusals: service
                    .limits
                    .iter()
                    .map(|_| UsualRefusal::default())
                    .collect(),
                policy: fields::policy(deciding(&service.limits)),
            }
        })
    }

    /// The endpoints of upstream `index`.
    #[must_use]
    pub fn balancer(&self, index: usize, pools: &Pools<RequestBody>) -> &Balancer<RequestBody> {
        self.upstreams[index]
            .get_or_init(|| Balancer::new(&self.snapshot.upstreams[index], pools, &self.metrics))
    }
}
