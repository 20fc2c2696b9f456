//! The admin listener: metrics, health and a look at counters, on an address of its own.
//!
//! In: a connection to the admin address. Out: metrics, health, counters, upstreams. The room gets a trigger for
//! reloads.
//!
//! ```text
//! server      accepts and serves: few connections, none for long
//! host_check  the names under which the listener answers
//! endpoints   the paths: metrics, health, readiness, the store's state
//! health      is this gateway ready for traffic?
//! peek        `POST /v1/peek`: the units left on counters, charged nothing
//! upstreams   `GET /v1/upstreams`: the servers as they are now
//! ```

mod endpoints;
mod health;
mod host_check;
mod peek;
mod server;
#[cfg(test)]
mod tests;
mod upstreams;

pub use health::{Phase, Readiness};
pub use peek::{PATH as PEEK, PeekRequest, PeekSender, answer_peeks, peek_channel};
pub use server::serve;

use crate::listen::listener::ListenAddress;
use crate::snapshot::Snapshot;
use crate::telemetry::metrics::Metrics;
use arc_swap::ArcSwap;
use std::sync::Arc;

/// The place of the admin listener, absent without `[admin]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminSettings {
    /// The listener's address; port 0 is any free port.
    pub listen: ListenAddress,
    /// The rights on the file of a Unix socket.
    pub mode: u32,
}

/// The state that the admin listener shows.
#[derive(Debug, Clone)]
pub struct AdminState {
    /// The metrics that `/metrics` shows.
    pub metrics: Arc<Metrics>,
    /// The current snapshot, whose upstreams are shown.
    pub snapshots: Option<Arc<ArcSwap<Snapshot>>>,
    /// The phase that `/readyz` shows.
    pub readiness: Readiness,
    /// The channel that carries peeks at counters to a worker.
    pub peeks: Option<PeekSender>,
}
