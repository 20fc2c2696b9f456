//! The admin listener: metrics, health, the state of the gateway and changes of it, on addresses of its own.
//!
//! In: a connection to an admin address. Out: metrics, health, limits, routes, upstreams, counters. What the file says
//! comes from the program, through [`RunningFile`].
//!
//! ```text
//! server      accepts and serves: few connections, none for long
//! endpoints   the table of calls
//! call        a request that has been let in, and its answer
//! call/paging  a page of a list
//! door        which clients may read and change, and how often
//! answers     the answers as types
//! open_pages  metrics, health and readiness, for everybody
//! health      is this gateway ready for traffic?
//! status      `/v1/status`: the gateway in short, in one sentence too
//! limits      `/v1/limits`
//! routing     `/v1/routes`, `/v1/upstreams`
//! settings    `/v1/config`, `/v1/reload`, `/v1/openapi.json`
//! peek        `/v1/peek`: the units left on counters, charged nothing
//! changes     `/v1/reset`, `/v1/changes`: what operators change
//! running     what is asked of the file in force
//! openapi     a test: the document of all calls
//! openapi/samples  a test: samples of every answer
//! ```

pub mod answers;
mod call;
mod changes;
mod door;
mod endpoints;
mod health;
mod limits;
mod open_pages;
#[cfg(test)]
mod openapi;
mod peek;
mod routing;
mod running;
mod server;
mod settings;
mod status;
#[cfg(test)]
mod tests;

pub use door::{AccessRules, AccessToken, Door, LEAST_TOKEN, ReadAccess, Role, TokenDigest};
pub use health::{Phase, Readiness};
pub use peek::{PATH as PEEK, PeekRequest, PeekSender, answer_peeks, peek_channel};
pub use running::{Reloading, RunningFacts, RunningFile};
pub use server::serve;

use crate::changes::OperatorChanges;
use crate::listen::listener::ListenAddress;
use crate::snapshot::Snapshot;
use crate::telemetry::metrics::Metrics;
use arc_swap::ArcSwap;
use std::sync::Arc;

/// The addresses of the admin listener and its rules, absent without `[admin]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminSettings {
    /// The listener's addresses; port 0 is any free port.
    pub listen: Vec<ListenAddress>,
    /// The rights on the file of a Unix socket.
    pub mode: u32,
    /// The gateway's name, if the file gives one.
    pub name: Option<Box<str>>,
    /// The rules for readers and operators.
    pub access: Arc<AccessRules>,
}

/// The state that the admin listener shows.
#[derive(Debug, Clone)]
pub struct AdminState {
    /// The gateway's name.
    pub name: Arc<str>,
    /// A random number, new with each start.
    pub id: u64,
    /// The metrics that `/metrics` shows.
    pub metrics: Arc<Metrics>,
    /// The current snapshot, whose upstreams are shown.
    pub snapshots: Option<Arc<ArcSwap<Snapshot>>>,
    /// The phase that `/readyz` shows.
    pub readiness: Readiness,
    /// The channel that carries peeks at counters to a worker.
    pub peeks: Option<PeekSender>,
    /// The rules for readers and operators.
    pub door: Arc<Door>,
    /// The file in force.
    pub file: Arc<dyn RunningFile>,
    /// What operators change.
    pub changes: Option<Arc<OperatorChanges>>,
}
