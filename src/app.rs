//! The running gateway: builds every part from a compiled file, runs them, drains them.

mod banner;
mod certificates;
mod sockets;
mod tls_listeners;
mod worker;

use crate::admin::{self, AdminState, Phase, Readiness};
use crate::clock::{self, Clock};
use crate::config::diff::{Outline, diff};
use crate::config::{Boot, Compiled, Files, Identities};
use crate::descriptors::{self, Budget};
use crate::listen::accept::{
    ListenerFacts, ListeningSocket, TrustedPeers, left_for_upstreams, most_connections,
};
use crate::listen::bind::AcceptSocket;
use crate::listen::dispatch::{ConnectionBounds, Dispatcher};
use crate::listen::handed_sockets::HandedSockets;
use crate::listen::listener::{ListenAddress, Listener};
use crate::proxy::Holds;
use crate::reload::{self, Watcher};
use crate::shutdown::{Drain, DrainSwitch, SignalRequest, Signals, drain};
use crate::snapshot::Snapshot;
use crate::store::{Fleet, Invalidation, MemoryStore};
use crate::telemetry::access_log::AccessLog;
use crate::telemetry::metrics::Metrics;
use crate::tls::AuthorityChallenges;
use crate::upstream;
use crate::upstream::{Server, demo};
use arc_swap::ArcSwap;
use banner::OpenAddress;
use certificates::CertificateOrders;
use sockets::{BoundSockets, KeptSockets};
use std::io;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tls_listeners::TlsListeners;
use tokio::sync::mpsc;
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
    #[error(
        "cannot listen on {address}: {source}; choose another address with `listen` or --listen"
    )]
    Listen {
        /// The address.
        address: ListenAddress,
        /// The system's error.
        source: io::Error,
    },
    /// The system refuses another operation.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
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
    fn new(boot: &Boot, snapshot: Snapshot, drain: Drain) -> Self {
        let metrics = Metrics::new();
        metrics.started(snapshot.generation);
        let clock = Clock::system();
        let memory = Arc::new(MemoryStore::new(clock.clone(), boot.store.max_keys));
        memory.keep_room_for(snapshot.limits());
        Self {
            snapshots: Arc::new(ArcSwap::from_pointee(snapshot)),
            memory,
            fleet: Arc::new(Fleet::new(clock.clone())),
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
    control.block_on(async {
        Gateway::start(compiled, file, handed)
            .await?
            .until_stopped()
            .await
    })
}

struct Gateway {
    boot: Boot,
    switch: DrainSwitch,
    readiness: Readiness,
    dispatcher: Arc<Dispatcher>,
    workers: Vec<WorkerThread>,
    log: AccessLog,
    signals: Signals,
    /// A signal to stop came before the gateway had begun.
    is_stopped: bool,
    reload: reload::Trigger,
    orders: Arc<CertificateOrders>,
    /// Dropped last: the files go with the gateway.
    _kept: KeptSockets,
}

impl Gateway {
    async fn start(
        compiled: Compiled,
        file: Option<PathBuf>,
        handed: HandedSockets,
    ) -> Result<Self, StartError> {
        let Compiled {
            boot,
            mut snapshot,
            outline,
            files,
            identities,
            offers,
            orders,
            ..
        } = compiled;
        snapshot.generation = 1;
        let mut signals = Signals::install()?;
        let mut sockets = BoundSockets::bind(&boot, handed)?;
        let mut kept = KeptSockets::default();
        let admin = sockets.open_admin(&mut kept)?;
        start_demo(&snapshot).await?;

        let (switch, drain) = drain();
        let shared = GatewayState::new(&boot, snapshot, drain);
        let log = AccessLog::stdout(boot.log.access, &shared.metrics)?;
        let (peek_sender, peeks) = admin::peek_channel();
        let (store_ready_sender, store_ready) = mpsc::channel(1);
        let worker_channels = WorkerChannels {
            peeks: Some(peeks),
            store_ready: store_ready_sender,
        };
        let (dispatcher, workers) = start_workers(&boot, &shared, &log, worker_channels)?;

        let readiness = Readiness::default();
        let admin = start_admin(&boot, admin, &shared.metrics, &readiness, &peek_sender)?;
        tokio::spawn(sweep(shared.clone()));
        let tls = TlsListeners::new(&boot, offers, Arc::clone(&identities), &shared.metrics);
        tokio::spawn(Arc::clone(&tls).watch_ends());
        let orders = CertificateOrders::new(orders, &tls);
        let installer = SnapshotInstaller {
            boot: boot.clone(),
            outline,
            shared: shared.clone(),
            tls: Arc::clone(&tls),
            orders: Arc::clone(&orders),
        };
        let reload = start_reload(file, files, identities, installer);
        let is_stopped = until_store_ready(store_ready, &mut signals, &reload).await;

        let trusted = trusted(&shared.snapshots);
        let open = sockets.open_server(&mut kept)?;
        let addresses = start_accepting(&boot, open, &tls, &dispatcher, &trusted, &shared.drain)?;
        banner::print(&boot, &shared.snapshots.load(), &addresses, &admin);
        let (challenges, metrics) = (&shared.challenges, &shared.metrics);
        orders.start(challenges, &boot.store, metrics).await;
        readiness.set(Phase::Ready);
        Ok(Self {
            boot,
            switch,
            readiness,
            dispatcher,
            workers,
            log,
            signals,
            is_stopped,
            reload,
            orders,
            _kept: kept,
        })
    }

    async fn until_stopped(mut self) -> Result<(), StartError> {
        while !self.is_stopped && self.signals.next().await == SignalRequest::Reload {
            self.reload.pull();
        }
        self.readiness.set(Phase::Draining);
        let grace = self.boot.drain;
        tracing::info!("stopping: no new connections, {grace:?} for requests under way");
        self.switch.pull(grace);
        let deadline = clock::now() + grace;
        // Another process may order from now on.
        let ended = async { tokio::join!(finished(&self.dispatcher), self.orders.stop()) };
        tokio::select! {
            _ = ended => tracing::info!("stopped: all connections have ended"),
            () = tokio::time::sleep_until(deadline) => {
                match self.dispatcher.open() {
                    1 => tracing::warn!("stopped: 1 connection was cut"),
                    cut => tracing::warn!("stopped: {cut} connections were cut"),
                }
            }
            () = second_stop(&mut self.signals) => tracing::warn!("stopped at once: a second signal came"),
        }
        self.switch.cut();
        for worker in self.workers {
            worker.end();
        }
        self.log.shutdown(LAST_LINES);
        Ok(())
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

/// Resolves when the last connection has ended. Those that wait to be accepted when draining begins are let in first.
async fn finished(dispatcher: &Dispatcher) {
    loop {
        tokio::time::sleep(Duration::from_millis(10)).await;
        if dispatcher.open() == 0 {
            return;
        }
    }
}

/// The test for trusted peers, by the snapshot in force.
fn trusted(snapshots: &Arc<ArcSwap<Snapshot>>) -> TrustedPeers {
    let snapshots = Arc::clone(snapshots);
    Arc::new(move |peer| snapshots.load().trust.believes(peer))
}

async fn second_stop(signals: &mut Signals) {
    while signals.next().await == SignalRequest::Reload {}
}

/// Waits until every worker's store has answered, which closes `store_ready`, for [`STORE_WITHIN`] at most: the first
/// clients are then counted in the shared store. True when a signal to stop has come in the meantime.
async fn until_store_ready(
    mut store_ready: mpsc::Receiver<()>,
    signals: &mut Signals,
    reload: &reload::Trigger,
) -> bool {
    let mut within = pin!(tokio::time::sleep(STORE_WITHIN));
    loop {
        tokio::select! {
            _ = store_ready.recv() => return false,
            () = &mut within => return false,
            request = signals.next() => match request {
                SignalRequest::Reload => reload.pull(),
                SignalRequest::Stop => return true,
            }
        }
    }
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

/// Accepts connections on the listeners. Returns their addresses.
fn start_accepting(
    boot: &Boot,
    sockets: Vec<Vec<AcceptSocket>>,
    tls: &TlsListeners,
    dispatcher: &Arc<Dispatcher>,
    trusted: &TrustedPeers,
    drain: &Drain,
) -> io::Result<Vec<OpenAddress>> {
    let start = |(listener, socket): (&Listener, AcceptSocket)| {
        let address = shown(&socket, &listener.address)?;
        let socket = socket.register()?;
        let (dispatcher, trusted) = (Arc::clone(dispatcher), Arc::clone(trusted));
        let facts = ListenerFacts {
            offer: tls.offer(&listener.address),
            listener: listener.clone(),
        };
        let listening = ListeningSocket { socket, facts };
        tokio::spawn(listening.accept(dispatcher, trusted, drain.clone()));
        let has_tls = listener.tls.is_some();
        Ok(OpenAddress { address, has_tls })
    };
    let listeners = boot.listen.listeners.iter().zip(sockets);
    let each = listeners.flat_map(|(listener, sockets)| {
        let sockets = sockets.into_iter();
        sockets.map(move |socket| (listener, socket))
    });
    each.map(start).collect()
}

fn start_admin(
    boot: &Boot,
    sockets: Vec<AcceptSocket>,
    metrics: &Arc<Metrics>,
    readiness: &Readiness,
    peeks: &admin::PeekSender,
) -> io::Result<Vec<ListenAddress>> {
    let Some(settings) = &boot.admin else {
        return Ok(Vec::new());
    };
    let start = |socket: AcceptSocket| {
        let address = shown(&socket, &settings.listen)?;
        let socket = socket.register()?;
        let state = AdminState {
            metrics: Arc::clone(metrics),
            readiness: readiness.clone(),
            peeks: Some(peeks.clone()),
        };
        // The admin listener answers to the end, so that draining can be watched.
        tokio::spawn(admin::serve(socket, state, std::future::pending()));
        Ok(address)
    };
    sockets.into_iter().map(start).collect()
}

/// The address of a socket, with the port that the system has chosen where the file left it open.
fn shown(socket: &AcceptSocket, written: &ListenAddress) -> io::Result<ListenAddress> {
    let bound = socket.address()?;
    Ok(bound.map_or_else(|| written.clone(), ListenAddress::Tcp))
}

/// Watches the file and the files that it names, if there is one.
fn start_reload(
    file: Option<PathBuf>,
    files: Files,
    identities: Arc<Identities>,
    installer: SnapshotInstaller,
) -> reload::Trigger {
    let trigger = reload::Trigger::default();
    if let Some(file) = file {
        tokio::spawn(Watcher::new(file, files, identities, trigger.clone()).run(installer));
    }
    trigger
}

/// Puts a new file in force.
struct SnapshotInstaller {
    boot: Boot,
    outline: Arc<Outline>,
    shared: GatewayState,
    tls: Arc<TlsListeners>,
    orders: Arc<CertificateOrders>,
}

impl reload::ReloadTarget for SnapshotInstaller {
    async fn apply(&mut self, compiled: Compiled) {
        let Compiled {
            boot,
            mut snapshot,
            outline,
            identities,
            offers,
            orders,
            ..
        } = compiled;
        let generation = self.shared.snapshots.load().generation + 1;
        snapshot.generation = generation;
        if let Err(error) = start_demo(&snapshot).await {
            tracing::warn!("the demo upstream cannot start: {error}");
        }
        let changes = diff(&self.outline, &outline, &self.boot);
        self.outline = outline;
        self.boot.store.rotate(&boot.store);
        self.shared.memory.keep_room_for(snapshot.limits());
        self.shared.snapshots.store(Arc::new(snapshot));
        self.tls.install(&boot.listen.listeners, offers, identities);
        self.shared.metrics.reloaded(generation);
        tracing::info!("reloaded: generation {generation} is in force");
        for change in changes {
            tracing::info!("  {change}");
        }
        self.orders.want(orders).await;
    }

    fn refused(&mut self) {
        self.shared.metrics.reload_failed();
    }
}

async fn start_demo(snapshot: &Snapshot) -> io::Result<()> {
    let asked_for = |upstream: &Arc<upstream::Upstream>| upstream.servers.contains(&Server::Demo);
    if snapshot.upstreams.iter().any(asked_for) {
        demo::start().await?;
    }
    Ok(())
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
