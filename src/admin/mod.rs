//! The admin listener: metrics, health and a look at counters, on an address of its own.

mod endpoints;
mod health;
mod host_check;
mod peek;
mod server;
#[cfg(test)]
mod tests;

pub use health::{Phase, Readiness};
pub use peek::{PATH as PEEK, PeekRequest, PeekSender, answer_peeks, peek_channel};
pub use server::serve;

use crate::telemetry::metrics::Metrics;
use std::net::SocketAddr;
use std::sync::Arc;

/// Where the admin listener is. Absent without `[admin]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdminSettings {
    /// Its address; port 0 is any free port.
    pub listen: SocketAddr,
}

/// The state that the admin listener shows.
#[derive(Debug, Clone)]
pub struct AdminState {
    /// Shown by `/metrics`.
    pub metrics: Arc<Metrics>,
    /// Shown by `/readyz`.
    pub readiness: Readiness,
    /// Carries peeks at counters to a worker.
    pub peeks: Option<PeekSender>,
}
