//! The running gateway: builds every part from a compiled file, runs them, drains them.

mod banner;
mod certificates;
mod handover;
pub mod key_sets;
mod lifecycle;
mod predecessor;
mod service_manager;
mod snapshot_installer;
mod sockets;
mod tls_listeners;
mod worker;

use crate::admin::{self, AdminState, Phase, Readiness};
use crate::clock::Clock;
use crate::config::{Boot, Compiled};
use crate::descriptors::{self, Budget};
use crate::key::client_ip::Trust;
use crate::listen::accept::{
    KnownPeer, ListenerFacts, ListeningSocket, PeerLookup, left_for_upstreams, most_connections,
};
use crate::listen::bind::AcceptSocket;
use crate::listen::dispatch::{ConnectionBounds, Dispatcher};
use crate::listen::handed_sockets::HandedSockets;
use crate::listen::listener::ListenAddress;
use crate::proxy::Holds;
use crate::shutdown::{Drain, Signals, drain};
use crate::snapshot::Snapshot;
use crate::store::redis::warn_of_eviction;
use crate::store::{Backend, Fleet, Invalidation, MemoryStore};
use crate::telemetry::access_log::AccessLog;
use crate::telemetry::metrics::Metrics;
use crate::tls::AuthorityChallenges;
use arc_swap::ArcSwap;
use banner::OpenAddress;
use certificates::CertificateOrders;
use handover::bequest::Bequest;
use handover::program::Program;
use key_sets::KeyFollower;
use lifecycle::{Gateway, SignalDesk};
use predecessor::Predecessor;
use service_manager::ServiceState;
use snapshot_installer::{ServerFollower, SnapshotInstaller, start_demo, start_reload};
pub use sockets::Role;
use sockets::{BoundSockets, KeptSockets, OpenedSocket};
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tls_listeners::TlsListeners;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use worker::{WorkerSetup, WorkerThread};

/// The interval of sweeping: each tick sweeps one shard of the memory store.
const SWEEP: Duration = Duration::from_millis(50);
/// The longest wait for the store's first answer before clients are accepted.
const STORE_WITHIN: Duration = Duration::from_secs(2);
/// Time in which the log writer writes its last lines.
const LAST_LINES: Duration = Duration::from_secs(2);

/// Causes for which the gateway does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The system refuses to listen on an address.
    #[error("cannot listen on {address}: {source}; {}", advice(*.role, .address, .source))]
    Listen {
        /// The part of the gateway that was to listen there.
        role: Role,
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

/// What to do where an address cannot be had.
fn advice(role: Role, address: &ListenAddress, source: &io::Error) -> String {
    // Other systems than Linux, and containers, have another first port that takes no right.
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
    news: Invalidation,
    holds: Arc<Holds>,
    challenges: AuthorityChallenges,
    metrics: Arc<Metrics>,
    drain: Drain,
}

impl GatewayState {
    /// `gateways` is the number of those that count together, where the gateway before this one knew it.
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
        Self {
            snapshots: Arc::new(ArcSwap::from_pointee(snapshot)),
            memory,
            fleet: Arc::new(Fleet::knowing(clock.clone(), gateways)),
            clock,
            news: Invalidation::default(),
            holds: Arc::default(),
            challenges: AuthorityChallenges::default(),
            metrics,
            drain,
        }
    }
}

/// Runs the gateway, on `handed` where those are its sockets, until a signal stops it and the requests under way are finished.
///
/// # Errors
/// When the gateway cannot start.
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
    // A question for a name's addresses may still hold a thread.
    control.shutdown_background();
    ended
}

impl Gateway {
    async fn start(
        compiled: Compiled,
        file: Option<PathBuf>,
        mut handed: HandedSockets,
    ) -> Result<Self, StartError> {
        let Compiled {
            boot,
            mut snapshot,
            outline,
            files,
            identities,
            offers,
            orders,
            key_sets,
            ..
        } = compiled;
        snapshot.generation = 1;
        let program = Program::of_this_process();
        let signals = Signals::install()?;
        let mut predecessor = Predecessor::among(&mut handed)?;
        let Bequest {
            gateways,
            certificates,
        } = bequest_of(&mut predecessor).await;
        let mut sockets = BoundSockets::bind(&boot, handed)?;
        let mut kept = KeptSockets::default();
        let admin = sockets.open_admin(&mut kept)?;
        start_demo(&snapshot).await?;

        let metrics = Metrics::new();
        let mut servers = ServerFollower::new(&metrics);
        servers.prepare(&mut snapshot, &boot).await;
        let mut keys = KeyFollower::new(&metrics);
        keys.prepare(key_sets).await;
        let (switch, drain) = drain();
        let shared = GatewayState::new(&boot, snapshot, metrics, drain, gateways);
        let log = AccessLog::stdout(boot.log.access, &shared.metrics)?;
        let (peek_sender, peeks) = admin::peek_channel();
        let (store_ready_sender, store_ready) = mpsc::channel(1);
        let worker_channels = WorkerChannels {
            peeks: Some(peeks),
            store_ready: store_ready_sender,
        };
        let (dispatcher, workers) = start_workers(&boot, &shared, &log, worker_channels)?;

        let readiness = Readiness::default();
        // A successor leaves the admin listener, too, to its predecessor until it serves.
        let (serves, may_serve) = watch::channel(predecessor.is_none());
        let admin_state = AdminState {
            metrics: Arc::clone(&shared.metrics),
            snapshots: Some(Arc::clone(&shared.snapshots)),
            readiness: readiness.clone(),
            peeks: Some(peek_sender),
        };
        let admin = start_admin(&boot, admin, &admin_state, &may_serve)?;
        tokio::spawn(sweep(shared.clone()));
        let tls = TlsListeners::new(&boot, offers, Arc::clone(&identities), &shared.metrics);
        tokio::spawn(Arc::clone(&tls).watch_ends());
        look_at_store(&boot);
        let orders = CertificateOrders::new(
            orders,
            &tls,
            &shared.challenges,
            &boot.store,
            &shared.metrics,
        );
        let installer = SnapshotInstaller {
            boot: boot.clone(),
            outline,
            shared: shared.clone(),
            tls: Arc::clone(&tls),
            servers,
            keys,
            orders: Arc::clone(&orders),
        };
        let reload = start_reload(file, files, identities, installer);
        let mut signals = SignalDesk::new(signals, reload);
        let met = async {
            let gathered = orders.gather(certificates, STORE_WITHIN);
            tokio::join!(until_store_ready(store_ready), gathered);
        };
        signals.during(met).await;

        let unused = std::mem::take(&mut sockets.unused);
        let open = sockets.open_server(&mut kept)?;
        let predecessor = released(predecessor, &unused, &mut signals).await?;
        kept.take_over_files();
        serves.send_replace(true);
        let peers = peer_lookup(&shared.snapshots);
        let accepting = Accepting {
            tls: &tls,
            dispatcher: &dispatcher,
            peers: &peers,
            drain: &shared.drain,
        };
        let (acceptors, addresses) = accepting.start(&boot, open)?;
        banner::print(&boot, &shared.snapshots.load(), &addresses, &admin);
        readiness.set(Phase::Ready);
        announce(predecessor).await;
        orders.start().await;
        Ok(Self {
            drain: boot.drain,
            drain_delay: boot.drain_delay,
            successor: None,
            program,
            switch,
            readiness,
            metrics: shared.metrics,
            fleet: shared.fleet,
            dispatcher,
            acceptors,
            workers,
            log,
            signals,
            orders,
            kept,
        })
    }
}

/// What the predecessor, if there is one, hands over beside its sockets.
async fn bequest_of(predecessor: &mut Option<Predecessor>) -> Bequest {
    match predecessor {
        Some(predecessor) => predecessor.bequest().await,
        None => Bequest::default(),
    }
}

/// Waits until the predecessor, if there is one, lets this gateway serve.
///
/// # Errors
/// When a signal stops the gateway before: it has taken nothing over.
async fn released(
    predecessor: Option<Predecessor>,
    unused: &[usize],
    signals: &mut SignalDesk,
) -> Result<Option<Predecessor>, StartError> {
    let Some(mut predecessor) = predecessor else {
        return Ok(None);
    };
    if !signals.is_stopped() {
        signals.during(predecessor.released(unused)).await;
    }
    if signals.is_stopped() {
        return Err(StartError::Stopped);
    }
    Ok(Some(predecessor))
}

/// Announces that this gateway serves: to the predecessor, which tells systemd, or to systemd itself.
async fn announce(predecessor: Option<Predecessor>) {
    match predecessor {
        Some(predecessor) => predecessor.leave().await,
        None => service_manager::tell(ServiceState::Ready),
    }
}

/// The bound on connections, logged where it differs from the file's.
fn most_taken(asked: usize, files: Option<u64>) -> usize {
    let most = most_connections(asked, files);
    if let Some(files) = files.filter(|_| most < asked) {
        tracing::info!(
            "the system allows {files} open files: at most {most} connections are held at once, not {asked}; raise the number of files with `ulimit -n`"
        );
    }
    most
}

/// Has the log say where a Redis would forget counters.
fn look_at_store(boot: &Boot) {
    if let Backend::Redis(target) = &boot.store.source {
        tokio::spawn(warn_of_eviction(target.clone()));
    }
}

/// Looks up peers in the snapshot in force.
fn peer_lookup(snapshots: &Arc<ArcSwap<Snapshot>>) -> PeerLookup {
    let snapshots = Arc::clone(snapshots);
    Arc::new(move |from| known_peer(&snapshots.load().trust, from))
}

/// What `trust` says of the peer at an address.
fn known_peer(trust: &Trust, from: Option<SocketAddr>) -> KnownPeer {
    let counted = |from: SocketAddr| SocketAddr::new(trust.counted(from.ip()), from.port());
    let from = from.map(counted);
    KnownPeer {
        from,
        is_trusted: trust.believes(from.map(|from| from.ip())),
    }
}

/// Waits until every worker's store has answered, which closes `store_ready`, for [`STORE_WITHIN`] at most: the first
/// clients are then counted in the shared store.
async fn until_store_ready(mut store_ready: mpsc::Receiver<()>) {
    // A store that does not answer in time is away, which is no reason not to serve.
    let _ = tokio::time::timeout(STORE_WITHIN, store_ready.recv()).await;
}

fn count_workers(boot: &Boot) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    match boot.workers {
        0 => cores,
        asked => asked,
    }
}

/// The channels that workers get beside the gateway's state.
struct WorkerChannels {
    /// Peeks at counters. The first worker answers them: its way to the store is like any other's.
    peeks: Option<mpsc::Receiver<admin::PeekRequest>>,
    /// Closed when every worker's store has answered once.
    store_ready: mpsc::Sender<()>,
}

fn start_workers(
    boot: &Boot,
    shared: &GatewayState,
    log: &AccessLog,
    mut channels: WorkerChannels,
) -> Result<(Arc<Dispatcher>, Vec<WorkerThread>), StartError> {
    let open_files = descriptors::raise();
    let count = count_workers(boot);
    let bounds = ConnectionBounds {
        most: most_taken(boot.listen.max_connections, open_files),
        per_client: boot.listen.max_connections_per_client,
    };
    let (dispatcher, incoming) = Dispatcher::new(count, bounds, &shared.metrics);
    let descriptors = Budget::new(left_for_upstreams(bounds.most, open_files), count);
    let start = |(index, incoming)| {
        WorkerThread::start(WorkerSetup {
            index,
            dispatcher: Arc::clone(&dispatcher),
            incoming,
            descriptors: descriptors.share(),
            shared: shared.clone(),
            log: log.clone(),
            listen: boot.listen.clone(),
            store: boot.store.clone(),
            store_ready: channels.store_ready.clone(),
            peeks: channels.peeks.take(),
        })
    };
    let workers: io::Result<Vec<WorkerThread>> =
        incoming.into_iter().enumerate().map(start).collect();
    Ok((dispatcher, workers?))
}

/// What connections are accepted with, on any listener.
struct Accepting<'a> {
    tls: &'a TlsListeners,
    dispatcher: &'a Arc<Dispatcher>,
    peers: &'a PeerLookup,
    drain: &'a Drain,
}

impl Accepting<'_> {
    /// Accepts connections on the sockets of each listener. Returns the tasks, and the listeners' addresses.
    fn start(
        &self,
        boot: &Boot,
        sockets: Vec<Vec<OpenedSocket>>,
    ) -> io::Result<(JoinSet<()>, Vec<OpenAddress>)> {
        let mut acceptors = JoinSet::new();
        let mut addresses = Vec::new();
        for (listener, sockets) in boot.listen.listeners.iter().zip(sockets) {
            for opened in sockets {
                addresses.push(OpenAddress {
                    address: shown(&opened.socket, &listener.address)?,
                    families: opened.socket.families()?,
                    has_tls: listener.tls.is_some(),
                    redirects: listener.redirects,
                });
                let listening = ListeningSocket {
                    socket: opened.socket.register()?,
                    facts: ListenerFacts {
                        offer: self.tls.offer(&listener.address),
                        listener: listener.clone(),
                    },
                    taken_over: opened.taken_over,
                    given_up: opened.given_up,
                };
                let (dispatcher, peers) = (Arc::clone(self.dispatcher), Arc::clone(self.peers));
                acceptors.spawn(listening.accept(dispatcher, peers, self.drain.clone()));
            }
        }
        Ok((acceptors, addresses))
    }
}

/// Serves the admin listener once `may_serve` says so. Returns its addresses.
fn start_admin(
    boot: &Boot,
    sockets: Vec<OpenedSocket>,
    state: &AdminState,
    may_serve: &watch::Receiver<bool>,
) -> io::Result<Vec<ListenAddress>> {
    let Some(settings) = &boot.admin else {
        return Ok(Vec::new());
    };
    let start = |opened: OpenedSocket| {
        let address = shown(&opened.socket, &settings.listen)?;
        let socket = opened.socket.register()?;
        let (state, mut may_serve) = (state.clone(), may_serve.clone());
        tokio::spawn(async move {
            // A gateway that fails before it serves is dropped with the sender.
            if may_serve.wait_for(|may| *may).await.is_ok() {
                // The admin listener answers to the end, so that draining can be watched, or until a successor answers.
                admin::serve(socket, state, opened.taken_over.notified()).await;
            }
        });
        Ok(address)
    };
    sockets.into_iter().map(start).collect()
}

/// The address of a socket, with the port that the system has chosen where the file left it open.
fn shown(socket: &AcceptSocket, written: &ListenAddress) -> io::Result<ListenAddress> {
    Ok(match (socket.address()?, written) {
        (Some(bound), ListenAddress::EveryAddress(_)) => ListenAddress::EveryAddress(bound.port()),
        (Some(bound), _) => ListenAddress::Tcp(bound),
        (None, written) => written.clone(),
    })
}

/// Removes expired counters, one shard at a time, and reports the number of keys in the memory store.
async fn sweep(shared: GatewayState) {
    let mut ticks = tokio::time::interval(SWEEP);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut overflowed = 0;
    for turn in 0_usize.. {
        ticks.tick().await;
        shared.memory.sweep(turn);
        shared.metrics.memory_keys(shared.memory.len() as u64);
        let now = shared.memory.overflowed();
        if now > overflowed {
            shared.metrics.memory_overflowed(now - overflowed);
            if overflowed == 0 {
                tracing::warn!(
                    "the memory store is full: the new keys of a limit beyond its own part of `max_keys` count on one counter together; raise `max_keys`"
                );
            }
            overflowed = now;
        }
    }
}
