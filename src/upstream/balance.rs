//! The choice of an upstream's server for a request: in turn, and the next one while a server takes no connection.

use super::endpoint::{Endpoint, PooledConnection};
use super::pool::Pools;
use super::{ConnectError, OutgoingBody, Purpose, Upstream};
use crate::telemetry::metrics::{UpstreamMetrics, WorkerMetrics};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Endpoints that are tried for one request while none takes a connection.
const MOST_ENDPOINTS: usize = 3;

/// The endpoints of an upstream, as one worker uses them.
#[derive(Debug)]
pub struct Balancer<B: OutgoingBody> {
    upstream: Arc<Upstream>,
    endpoints: RefCell<Vec<Rc<Endpoint<B>>>>,
    /// The generation of the upstream's members that the endpoints are of.
    generation: Cell<u64>,
    pools: Pools<B>,
    worker: WorkerMetrics,
    /// The position of the endpoint that was chosen last.
    last: Cell<usize>,
    connect_timeout: Duration,
    /// Counts the upstream's connections, answers and failures.
    pub metrics: UpstreamMetrics,
}

/// The endpoint that a request was sent to last, written while it is under way.
pub type Tried<B> = RefCell<Option<Rc<Endpoint<B>>>>;

impl<B: OutgoingBody> Balancer<B> {
    /// The endpoints of `upstream`, with their pools among `pools`.
    #[must_use]
    pub fn new(upstream: &Arc<Upstream>, pools: &Pools<B>, metrics: &WorkerMetrics) -> Self {
        let balancer = Self {
            upstream: Arc::clone(upstream),
            endpoints: RefCell::default(),
            generation: Cell::new(0),
            pools: pools.clone(),
            worker: metrics.clone(),
            last: Cell::new(0),
            connect_timeout: upstream.connect_timeout,
            metrics: metrics.upstream(&upstream.name),
        };
        balancer.refresh();
        balancer
    }

    /// Chooses the next endpoint; nothing where no server has an address.
    #[must_use]
    #[inline]
    pub fn next(&self) -> Option<Rc<Endpoint<B>>> {
        if self.upstream.state.generation() != self.generation.get() {
            self.refresh();
        }
        let endpoints = self.endpoints.borrow();
        let next = self.last.get() + 1;
        self.last.set(if next < endpoints.len() { next } else { 0 });
        endpoints.get(self.last.get()).map(Rc::clone)
    }

    /// Makes the endpoints of the members as they are now. Those of members that stay keep their pools.
    #[cold]
    #[inline(never)]
    fn refresh(&self) {
        let state = &self.upstream.state;
        // The number is read first: a change in between is seen the next time.
        self.generation.set(state.generation());
        let members = state.members();
        let endpoints = members.iter().map(|member| {
            let metrics = self.worker.server(&self.upstream.name, &member.state.shown);
            Rc::new(Endpoint::new(&self.upstream, member, &self.pools, metrics))
        });
        let endpoints: Vec<_> = endpoints.collect();
        // Workers begin at different servers, or a quiet gateway would favour the first.
        self.last.set(fastrand::usize(..endpoints.len().max(1)));
        self.endpoints.replace(endpoints);
    }

    /// The failure of an upstream none of whose servers has an address.
    #[must_use]
    pub fn no_server(&self) -> ConnectError {
        ConnectError::NoServer {
            upstream: Arc::clone(&self.upstream.name),
        }
    }

    /// A new connection to the endpoint that was chosen last, or to the next one that takes a connection. No byte has
    /// been sent yet. Each endpoint is noted in `tried` before it is tried.
    ///
    /// # Errors
    /// The last failure.
    pub async fn connect(
        &self,
        tried: &Tried<B>,
        purpose: Purpose,
    ) -> Result<PooledConnection<B>, ConnectError> {
        let all = self.endpoints.borrow().clone();
        let first = tried.borrow().clone();
        let at = |one: &Rc<Endpoint<B>>| all.iter().position(|other| Rc::ptr_eq(one, other));
        let last = first.as_ref().and_then(at).unwrap_or_default();
        let mut failure = None;
        for position in (last..all.len()).chain(0..last).take(MOST_ENDPOINTS) {
            let endpoint = &all[position];
            tried.replace(Some(Rc::clone(endpoint)));
            match endpoint.connect(purpose, self.connect_timeout).await {
                Ok(connection) => {
                    if !connection.reused {
                        self.metrics.opened();
                    }
                    return Ok((connection, Rc::clone(&endpoint.pool)));
                }
                Err(error) => failure = Some(error),
            }
            // A server that takes no new connection may still answer on an idle one.
            if purpose == Purpose::Exchange
                && let Some(connection) = endpoint.pool.take_open()
            {
                return Ok((connection, Rc::clone(&endpoint.pool)));
            }
        }
        Err(failure.unwrap_or_else(|| self.no_server()))
    }
}
