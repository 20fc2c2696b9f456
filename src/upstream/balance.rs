//! Which server of an upstream a request goes to: in turn, and to the next one while a server takes no connection.

use super::connection::Connection;
use super::pool::{Pool, Pools};
use super::{ConnectError, Upstream};
use crate::telemetry::metrics::{ServerMetrics, UpstreamMetrics, WorkerMetrics};
use hyper::body::Body;
use std::cell::Cell;
use std::error::Error as StdError;
use std::rc::Rc;
use std::time::Duration;

/// Endpoints that are tried for one request while none takes a connection.
const MOST_ENDPOINTS: usize = 3;

/// The endpoints of an upstream, as one worker uses them.
#[derive(Debug)]
pub struct Balancer<B: Body + 'static> {
    endpoints: Vec<Endpoint<B>>,
    /// The position of the endpoint that was chosen last.
    last: Cell<usize>,
    connect_timeout: Duration,
    /// Counts what the upstream does.
    pub metrics: UpstreamMetrics,
}

/// One server, with this worker's connections to it.
#[derive(Debug)]
pub struct Endpoint<B: Body + 'static> {
    /// This worker's connections to it.
    pub pool: Rc<Pool<B>>,
    metrics: ServerMetrics,
}

/// A connection, and the pool that it goes back to.
pub type PooledConnection<B> = (Connection<B>, Rc<Pool<B>>);

impl<B> Balancer<B>
where
    B: Body + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    /// The endpoints of `upstream`, with their pools among `pools`.
    #[must_use]
    pub fn new(upstream: &Upstream, pools: &Pools<B>, metrics: &WorkerMetrics) -> Self {
        let endpoints = upstream.servers.iter().map(|server| Endpoint {
            pool: pools.of(server),
            metrics: metrics.server(&upstream.name, &server.to_string()),
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

    /// The endpoint at that position.
    #[must_use]
    pub fn at(&self, position: usize) -> &Endpoint<B> {
        &self.endpoints[position]
    }

    /// A new connection to the endpoint that was chosen last, or to the next one that takes a connection: nothing has been
    /// sent yet. Each position is noted in `tried` before its endpoint is tried.
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
            let Endpoint { pool, metrics } = self.at(position);
            match pool.connect(self.connect_timeout).await {
                Ok(connection) => {
                    self.metrics.opened();
                    return Ok((connection, Rc::clone(pool)));
                }
                Err(error) => {
                    metrics.unreached();
                    failure = Some(error);
                }
            }
            // A server that takes no more may still have answered on one that it has.
            if let Some(connection) = pool.take_open() {
                return Ok((connection, Rc::clone(pool)));
            }
        }
        Err(failure)
    }
}
