//! The running gateway: builds every part from a compiled file, runs the parts, and drains them.
//!
//! In: a compiled file. Out: a running gateway, until it has drained.
//!
//! ```text
//! start               builds the parts, stage by stage
//! banner              the lines printed at the start
//! sockets             listening sockets: taken over or bound, opened when all is ready, kept for a successor
//! accepting           connections are accepted on the listeners and on admin's
//! workers             a thread for each worker, with its share of connections and open files
//! worker              one worker: its connections, its pools, its way to the store
//! lifecycle           serves until a signal, hands over, leaves, drains
//! snapshot_installer  a new file takes effect: its snapshot, with what outlives one
//! snapshot_installer/running_file  the file in force, as the admin listener shows it
//! tls_listeners       listeners with TLS: new offers at a reload, ordered certificates as they come
//! certificates        starts and ends the task that orders certificates
//! key_sets            keys that issuers publish, read beside requests
//! handover            starts a successor and has it serve
//! handover/program    the path and arguments by which it is started
//! handover/channel    the connection with it, a line each way at a time
//! handover/bequest    what it gets beside sockets
//! predecessor         the successor's side
//! service_manager     systemd hears of each step
//! ```

mod accepting;
mod banner;
mod certificates;
mod handover;
pub mod key_sets;
mod lifecycle;
mod predecessor;
mod service_manager;
mod snapshot_installer;
mod sockets;
mod start;
mod tls_listeners;
mod worker;
mod workers;

use crate::changes::{ChangeParts, OperatorChanges};
use crate::clock::Clock;
use crate::config::{Boot, Compiled};
use crate::listen::handed_sockets::HandedSockets;
use crate::listen::listener::ListenAddress;
use crate::listen::refused_chains::RefusedChains;
use crate::proxy::Holds;
use crate::shutdown::Drain;
use crate::snapshot::Snapshot;
use crate::store::{Backend, Fleet, Invalidation, MemoryStore};
use crate::telemetry::metrics::Metrics;
use crate::tls::AuthorityChallenges;
use arc_swap::ArcSwap;
use lifecycle::Gateway;
pub use sockets::SocketRole;
use std::io;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Time in which the log writer writes its last lines.
const LAST_LINES: Duration = Duration::from_secs(2);

/// Causes for which the gateway does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The system refuses to listen on an address.
    #[error("cannot listen on {address}: {source}; {}", advice(*.role, .address, .source))]
    Listen {
        /// The part of the gateway that was to listen there.
        role: SocketRole,
        /// The address.
        address: ListenAddress,
        /// The system's error.
        source: io::Error,
    },
    /// The system refuses another operation.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
    /// The gateway was stopped.
    #[error("a signal to stop came before this gateway had taken over")]
    Stopped,
}

/// Advice for an operator if an address is not available.
fn advice(role: SocketRole, address: &ListenAddress, source: &io::Error) -> String {
    // Systems other than Linux, and containers, have another first port that needs no privilege.
    let port = address.socket_address().map(|address| address.port());
    let needs_right = source.kind() == io::ErrorKind::PermissionDenied;
    if let Some(port) = port.filter(|port| needs_right && *port < 1024) {
        return format!(
            "a port below 1024 takes the capability CAP_NET_BIND_SERVICE: give it to the service \
             (`AmbientCapabilities=CAP_NET_BIND_SERVICE` in its unit, `--cap-add=NET_BIND_SERVICE` for a container) \
             or to the program (`setcap cap_net_bind_service=+ep`), or choose another port than {port} with {}",
            role.setting()
        );
    }
    format!("choose another address with {}", role.setting())
}

/// The state that workers and the control thread share.
#[derive(Debug, Clone)]
struct GatewayState {
    snapshots: Arc<ArcSwap<Snapshot>>,
    memory: Arc<MemoryStore>,
    fleet: Arc<Fleet>,
    clock: Clock,
    invalidation: Invalidation,
    holds: Arc<Holds>,
    challenges: AuthorityChallenges,
    refused_chains: Arc<RefusedChains>,
    metrics: Arc<Metrics>,
    drain: Drain,
    changes: Arc<OperatorChanges>,
}

impl GatewayState {
    /// `gateways` is the number of gateways that count together, if the predecessor knew it.
    fn new(
        boot: &Boot,
        snapshot: Snapshot,
        metrics: Arc<Metrics>,
        drain: Drain,
        gateways: Option<NonZeroU32>,
    ) -> Self {
        metrics.started(snapshot.generation);
        let clock = Clock::system();
        let memory = Arc::new(MemoryStore::new(clock.clone(), boot.store.max_keys));
        memory.keep_room_for(snapshot.limits());
        if let Backend::Redis(target) = &boot.store.source {
            target.try_for(snapshot.limits());
        }
        let snapshots = Arc::new(ArcSwap::from_pointee(snapshot));
        let fleet = Arc::new(Fleet::knowing(clock.clone(), gateways));
        let invalidation = Invalidation::default();
        let parts = ChangeParts {
            snapshots: Arc::clone(&snapshots),
            memory: Arc::clone(&memory),
            invalidation: invalidation.clone(),
            fleet: Arc::clone(&fleet),
            clock: clock.clone(),
            metrics: Arc::clone(&metrics),
        };
        let is_shared = matches!(boot.store.source, Backend::Redis(_));
        Self {
            changes: OperatorChanges::new(parts, is_shared),
            snapshots,
            memory,
            fleet,
            clock,
            invalidation,
            holds: Arc::default(),
            challenges: AuthorityChallenges::default(),
            refused_chains: Arc::default(),
            metrics,
            drain,
        }
    }
}

/// Runs the gateway, on `handed` if those sockets are its own, until a signal stops it and current requests are
/// finished.
///
/// # Errors
/// If the gateway cannot start.
pub fn run(
    compiled: Compiled,
    file: Option<PathBuf>,
    handed: HandedSockets,
) -> Result<(), StartError> {
    let control = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let ended = control.block_on(async {
        let gateway = Gateway::start(compiled, file, handed).await?;
        gateway.until_stopped().await;
        Ok(())
    });
    // A lookup of a name's addresses may still block a thread.
    control.shutdown_background();
    ended
}
