//! One server of an upstream as one worker uses it: the connections to it, and its metrics.

use super::connection::Connection;
use super::pool::{Pool, Pools};
use super::{ConnectError, OutgoingBody, Server};
use crate::telemetry::metrics::ServerMetrics;
use std::rc::Rc;
use std::time::Duration;

/// A server, with this worker's connections to it.
#[derive(Debug)]
pub struct Endpoint<B: OutgoingBody> {
    /// This worker's connections to the server.
    pub pool: Rc<Pool<B>>,
    metrics: ServerMetrics,
}

/// A connection, and the pool that it goes back to.
pub type PooledConnection<B> = (Connection<B>, Rc<Pool<B>>);

impl<B: OutgoingBody> Endpoint<B> {
    /// The endpoint of `server`, with its pool among `pools`.
    pub(super) fn new(server: &Server, pools: &Pools<B>, metrics: ServerMetrics) -> Self {
        Self {
            pool: pools.of(server),
            metrics,
        }
    }

    /// A new connection. The attempt is counted where the server takes none.
    ///
    /// # Errors
    /// When the server cannot be reached.
    pub(super) async fn connect(&self, within: Duration) -> Result<Connection<B>, ConnectError> {
        let connected = self.pool.connect(within).await;
        connected.inspect_err(|_| self.metrics.unreached())
    }
}
