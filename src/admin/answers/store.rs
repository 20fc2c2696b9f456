//! `GET /v1/store`, and the store in the status.

use crate::telemetry::metrics::StoreStatus;
use serde::Serialize;

/// Where the counters are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StoreAnswer {
    /// `memory` or `redis`.
    pub kind: &'static str,
    /// Do all workers reach all of it?
    pub up: bool,
    /// Workers, each with its own connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers: Option<usize>,
    /// Workers that reach all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reaching: Option<usize>,
    /// Workers that reach a part of a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partly: Option<usize>,
    /// Gateways that count together, this one included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateways: Option<u64>,
}

impl StoreAnswer {
    /// The store of a gateway; `None` for the memory of its process.
    #[must_use]
    pub fn of(shared: Option<StoreStatus>) -> Self {
        let Some(shared) = shared else {
            return Self {
                kind: "memory",
                up: true,
                workers: None,
                reaching: None,
                partly: None,
                gateways: None,
            };
        };
        Self {
            kind: "redis",
            up: shared.is_up(),
            workers: Some(shared.workers),
            reaching: Some(shared.reaching),
            partly: Some(shared.partly),
            gateways: Some(shared.gateways),
        }
    }
}
