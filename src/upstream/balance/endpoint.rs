//! One server of an upstream, as used by one worker: the connections to it, and its metrics.

use super::pool::{Pool, Pools};
use crate::telemetry::metrics::ServerMetrics;
use crate::upstream::state::upstream_state::{Member, RequestSlot};
use crate::upstream::transport::connection::Connection;
use crate::upstream::{ConnectError, Destination, OutgoingBody, Purpose, Upstream};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// A server, with this worker's connections to it. A server that is a name has one endpoint for each of its addresses.
#[derive(Debug)]
pub struct Endpoint<B: OutgoingBody> {
    /// The server, with its weight, its bounds and its state.
    pub member: Member,
    /// This worker's connections to the server.
    pub pool: Rc<Pool<B>>,
    /// Counts the server's requests.
    pub(in crate::upstream) metrics: ServerMetrics,
}

/// A connection, and the pool that it returns to.
pub type PooledConnection<B> = (Connection<B>, Rc<Pool<B>>);

impl<B: OutgoingBody> Endpoint<B> {
    /// The endpoint of a member of `upstream`, with its pool among `pools`.
    pub(in crate::upstream) fn new(
        upstream: &Upstream,
        member: &Member,
        pools: &Pools<B>,
        metrics: ServerMetrics,
    ) -> Self {
        Self {
            pool: pools.of(
                &Destination::of(upstream, member),
                &member.state.connections,
            ),
            member: member.clone(),
            metrics,
        }
    }

    /// Are both the same server, though one endpoint may have been created anew?
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.member.state, &other.member.state)
    }

    /// The server's name in the log.
    #[must_use]
    pub fn shown(&self) -> &str {
        &self.member.state.shown
    }

    /// Counts an answer with `status` that has no significance for the server.
    #[cold]
    pub fn excused(&self, status: u16) {
        self.metrics.answered(status);
    }

    /// A new connection. The attempt is counted if the server accepts none.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub(in crate::upstream) async fn connect(
        &self,
        purpose: Purpose,
        within: Duration,
    ) -> Result<Connection<B>, ConnectError> {
        let connected = self.pool.connect(purpose, within).await;
        connected.inspect_err(|_| self.metrics.unreached())
    }
}

/// A server with a current request, which counts until [`Self::leave`] or the drop.
#[derive(Debug)]
pub struct Occupied<B: OutgoingBody> {
    /// The server.
    pub endpoint: Rc<Endpoint<B>>,
    /// The slot, if requests are counted over all workers.
    slot: Option<RequestSlot>,
    is_over: bool,
}

impl<B: OutgoingBody> Occupied<B> {
    /// Notes a request at `endpoint`.
    #[inline]
    pub(in crate::upstream) fn new(endpoint: Rc<Endpoint<B>>, slot: Option<RequestSlot>) -> Self {
        endpoint.metrics.entered();
        Self {
            endpoint,
            slot,
            is_over: false,
        }
    }

    /// Frees the slot for another request, since the answer is over.
    #[inline]
    pub fn leave(&mut self) {
        if !self.is_over {
            self.is_over = true;
            self.endpoint.metrics.left();
            self.slot = None;
        }
    }
}

impl<B: OutgoingBody> Drop for Occupied<B> {
    fn drop(&mut self) {
        self.leave();
    }
}
