//! The choice of an upstream's server for a request: in turn, and the next one while a server takes no connection.

use super::endpoint::{Endpoint, PooledConnection};
use super::pool::Pools;
use super::{ConnectError, OutgoingBody, Upstream};
use crate::telemetry::metrics::{UpstreamMetrics, WorkerMetrics};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

/// Endpoints that are tried for one request while none takes a connection.
const MOST_ENDPOINTS: usize = 3;

/// The endpoints of an upstream, as one worker uses them.
#[derive(Debug)]
pub struct Balancer<B: OutgoingBody> {
    endpoints: Vec<Endpoint<B>>,
    /// The position of the endpoint that was chosen last.
    last: Cell<usize>,
    connect_timeout: Duration,
    /// Counts the upstream's connections, answers and failures.
    pub metrics: UpstreamMetrics,
}

impl<B: OutgoingBody> Balancer<B> {
    /// The endpoints of `upstream`, with their pools among `pools`.
    #[must_use]
    pub fn new(upstream: &Upstream, pools: &Pools<B>, metrics: &WorkerMetrics) -> Self {
        let endpoints = upstream.servers.iter().map(|server| {
            let metrics = metrics.server(&upstream.name, &server.to_string());
            Endpoint::new(server, pools, metrics)
        });
        Self {
            endpoints: endpoints.collect(),
            // Workers begin at different servers, or a quiet gateway would favour the first.
            last: Cell::new(fastrand::usize(..upstream.servers.len().max(1))),
            connect_timeout: upstream.connect_timeout,
            metrics: metrics.upstream(&upstream.name),
        }
    }

    /// Chooses the next endpoint, by its position.
    #[must_use]
    pub fn next(&self) -> usize {
        let next = self.last.get() + 1;
        self.last
            .set(if next < self.endpoints.len() { next } else { 0 });
        self.last.get()
    }

    /// The endpoint at `position`.
    #[must_use]
    pub fn at(&self, position: usize) -> &Endpoint<B> {
        &self.endpoints[position]
    }

    /// A new connection to the endpoint that was chosen last, or to the next one that takes a connection. No byte has
    /// been sent yet. Each position is noted in `tried` before its endpoint is tried.
    ///
    /// # Errors
    /// The last failure; nothing where the upstream has no server.
    pub async fn connect(
        &self,
        tried: &Cell<usize>,
    ) -> Result<PooledConnection<B>, Option<ConnectError>> {
        let (last, many) = (self.last.get(), self.endpoints.len());
        let mut failure = None;
        for position in (last..many).chain(0..last).take(MOST_ENDPOINTS) {
            tried.set(position);
            let endpoint = self.at(position);
            match endpoint.connect(self.connect_timeout).await {
                Ok(connection) => {
                    self.metrics.opened();
                    return Ok((connection, Rc::clone(&endpoint.pool)));
                }
                Err(error) => failure = Some(error),
            }
            // A server that takes no new connection may still answer on an idle one.
            if let Some(connection) = endpoint.pool.take_open() {
                return Ok((connection, Rc::clone(&endpoint.pool)));
            }
        }
        Err(failure)
    }
}
