//! The gateway starts in stages: it takes over sockets and data, builds its parts, waits for the store, and serves.

use super::accepting::{Accepting, start_admin};
use super::certificates::CertificateOrders;
use super::handover::bequest::Bequest;
use super::handover::program::Program;
use super::key_sets::KeyFollower;
use super::lifecycle::{Gateway, SignalDesk};
use super::predecessor::Predecessor;
use super::service_manager::{self, ServiceState};
use super::snapshot_installer::running_file::{FileInForce, RunningConfiguration};
use super::snapshot_installer::{ServerFollower, SnapshotInstaller, start_demo, start_reload};
use super::sockets::{BoundSockets, KeptSockets, OpenedSocket};
use super::tls_listeners::{TlsListeners, numbered};
use super::worker::WorkerThread;
use super::workers::{WorkerChannels, start_workers};
use super::{GatewayState, StartError, banner};
use crate::acme::HandedCertificate;
use crate::admin::{self, AdminState, Door, Phase, Readiness, RunningFile};
use crate::config::{Boot, Compiled};
use crate::listen::dispatch::Dispatcher;
use crate::listen::handed_sockets::HandedSockets;
use crate::listen::listener::ListenAddress;
use crate::reload;
use crate::shutdown::{DrainSwitch, Signals, drain};
use crate::store::Backend;
use crate::store::redis::warn_of_eviction;
use crate::telemetry::access_log::AccessLog;
use crate::telemetry::metrics::Metrics;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// The interval of sweeping: each tick sweeps one shard of the memory store.
const SWEEP: Duration = Duration::from_millis(50);
/// The longest wait for the store's first answer before clients are accepted.
const STORE_WITHIN: Duration = Duration::from_secs(2);

/// Sockets, and the data that a predecessor hands over beside them.
struct Inheritance {
    predecessor: Option<Predecessor>,
    bequest: Bequest,
    sockets: BoundSockets,
    kept: KeptSockets,
    admin: Vec<Vec<OpenedSocket>>,
}

/// The state that all parts share.
struct SharedParts {
    shared: GatewayState,
    switch: DrainSwitch,
    log: AccessLog,
}

/// The parts that answer clients: the workers, and the admin listener.
struct Frontend {
    dispatcher: Arc<Dispatcher>,
    workers: Vec<WorkerThread>,
    readiness: Readiness,
    /// The addresses of the admin listener.
    admin: Vec<ListenAddress>,
    /// Notified when the admin listener may answer.
    serves: watch::Sender<bool>,
    /// Closed when every worker's store has answered once.
    store_ready: Option<mpsc::Receiver<()>>,
}

/// What the admin listener shows of the file, and to whom.
struct ShownFile {
    door: Arc<Door>,
    running: Arc<RunningConfiguration>,
    /// Makes the gateway read its file again.
    trigger: reload::Trigger,
}

impl ShownFile {
    fn of(compiled: &Compiled, has_file: bool) -> Self {
        let trigger = reload::Trigger::default();
        let file = FileInForce::of(compiled, compiled.snapshot.generation);
        let access = compiled.boot.admin.as_ref().map(|admin| &admin.access);
        Self {
            door: Door::new(access.map(Arc::clone).unwrap_or_default()),
            running: RunningConfiguration::new(file, has_file.then(|| trigger.clone())),
            trigger,
        }
    }
}

/// A gateway that does not serve clients yet.
struct UnopenedGateway {
    boot: Boot,
    program: Program,
    parts: SharedParts,
    frontend: Frontend,
    tls: Arc<TlsListeners>,
    orders: Arc<CertificateOrders>,
    signals: SignalDesk,
}

impl Gateway {
    pub(super) async fn start(
        compiled: Compiled,
        file: Option<PathBuf>,
        handed: HandedSockets,
    ) -> Result<Self, StartError> {
        let program = Program::of_this_process();
        let signals = Signals::install()?;
        let mut inheritance = Inheritance::of(&compiled.boot, handed).await?;
        start_demo(&compiled.snapshot).await?;
        let certificates = std::mem::take(&mut inheritance.bequest.certificates);
        let build = UnopenedGateway::build(program, signals, compiled, file, &mut inheritance);
        let mut built = build.await?;
        built.meet_store(certificates).await;
        built.open(inheritance).await
    }
}

impl Inheritance {
    /// Takes over the handed sockets, and binds the others.
    async fn of(boot: &Boot, mut handed: HandedSockets) -> Result<Self, StartError> {
        let mut predecessor = Predecessor::among(&mut handed)?;
        let bequest = match &mut predecessor {
            Some(predecessor) => predecessor.bequest().await,
            None => Bequest::default(),
        };
        let mut sockets = BoundSockets::bind(boot, handed)?;
        let mut kept = KeptSockets::default();
        let admin = sockets.open_admin(&mut kept)?;
        Ok(Self {
            predecessor,
            bequest,
            sockets,
            kept,
            admin,
        })
    }
}

impl UnopenedGateway {
    async fn build(
        program: Program,
        signals: Signals,
        compiled: Compiled,
        file: Option<PathBuf>,
        inheritance: &mut Inheritance,
    ) -> Result<Self, StartError> {
        let shown = ShownFile::of(&compiled, file.is_some());
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
        let metrics = Metrics::new();
        let mut servers = ServerFollower::new(&metrics);
        servers.prepare(&mut snapshot, &boot).await;
        let mut keys = KeyFollower::new(&metrics);
        keys.prepare(key_sets).await;
        let (numbers, offers) = numbered(&boot, offers);
        snapshot.offers = offers;
        let (switch, drain) = drain();
        let gateways = inheritance.bequest.gateways;
        let shared = GatewayState::new(&boot, snapshot, metrics, drain, gateways);
        let log = AccessLog::stdout(boot.log.access, &shared.metrics)?;
        let frontend = Frontend::start(&boot, &shared, &log, &shown, inheritance)?;
        let tls = TlsListeners::new(numbers, &shared.snapshots, &identities, &shared.metrics);
        let orders = CertificateOrders::new(orders, &tls, &boot.store, &shared);
        let installer = SnapshotInstaller {
            boot: boot.clone(),
            outline,
            files: files.clone(),
            shared: shared.clone(),
            tls: Arc::clone(&tls),
            servers,
            keys,
            orders: Arc::clone(&orders),
            running: shown.running,
            door: shown.door,
        };
        start_reload(file, files, identities, &shown.trigger, installer);
        Ok(Self {
            boot,
            program,
            parts: SharedParts {
                shared,
                switch,
                log,
            },
            frontend,
            tls,
            orders,
            signals: SignalDesk::new(signals, shown.trigger),
        })
    }

    /// Waits for the store, and for certificates that the store keeps or the predecessor has handed over.
    async fn meet_store(&mut self, certificates: Vec<HandedCertificate>) {
        let store_ready = self.frontend.store_ready.take();
        let orders = Arc::clone(&self.orders);
        let met = async {
            let gathered = orders.gather(certificates, STORE_WITHIN);
            tokio::join!(until_store_ready(store_ready), gathered);
        };
        self.signals.during(met).await;
    }

    /// Takes the place of the predecessor, and accepts connections.
    async fn open(mut self, inheritance: Inheritance) -> Result<Gateway, StartError> {
        let Inheritance {
            predecessor,
            mut sockets,
            mut kept,
            ..
        } = inheritance;
        let SharedParts {
            shared,
            switch,
            log,
        } = self.parts;
        let unused = std::mem::take(&mut sockets.unused);
        let open = sockets.open_server(&mut kept)?;
        let predecessor = released(predecessor, &unused, &mut self.signals).await?;
        kept.take_over_files();
        self.frontend.serves.send_replace(true);
        let accepting = Accepting {
            tls: &self.tls,
            dispatcher: &self.frontend.dispatcher,
            peers: shared.snapshots.clone(),
            drain: &shared.drain,
        };
        let (acceptors, addresses) = accepting.start(&self.boot, open)?;
        let snapshots = &shared.snapshots;
        banner::print(
            &self.boot,
            &snapshots.load(),
            &addresses,
            &self.frontend.admin,
        );
        self.frontend.readiness.set(Phase::Ready);
        announce(predecessor).await;
        self.orders.start().await;
        Ok(Gateway {
            drain: self.boot.drain,
            drain_delay: self.boot.drain_delay,
            successor: None,
            program: self.program,
            switch,
            readiness: self.frontend.readiness,
            metrics: shared.metrics,
            fleet: shared.fleet,
            dispatcher: self.frontend.dispatcher,
            acceptors,
            workers: self.frontend.workers,
            log,
            signals: self.signals,
            orders: self.orders,
            kept,
        })
    }
}

impl Frontend {
    fn start(
        boot: &Boot,
        shared: &GatewayState,
        log: &AccessLog,
        shown: &ShownFile,
        inheritance: &mut Inheritance,
    ) -> Result<Self, StartError> {
        let (peek_sender, peeks) = admin::peek_channel();
        let (store_ready_sender, store_ready) = mpsc::channel(1);
        let channels = WorkerChannels {
            peeks: Some(peeks),
            store_ready: store_ready_sender,
        };
        let (dispatcher, workers) = start_workers(boot, shared, log, channels)?;
        tokio::spawn(sweep(shared.clone()));
        look_at_store(boot);
        let readiness = Readiness::default();
        // A successor leaves the admin listener to its predecessor until it serves.
        let (serves, may_serve) = watch::channel(inheritance.predecessor.is_none());
        let name = boot.admin.as_ref().and_then(|admin| admin.name.as_deref());
        let state = AdminState {
            name: name.map_or_else(machine_name, Into::into),
            id: shared.fleet.id(),
            door: Arc::clone(&shown.door),
            file: Arc::clone(&shown.running) as Arc<dyn RunningFile>,
            metrics: Arc::clone(&shared.metrics),
            snapshots: Some(Arc::clone(&shared.snapshots)),
            readiness: readiness.clone(),
            peeks: Some(peek_sender),
            changes: Some(Arc::clone(&shared.changes)),
        };
        let sockets = std::mem::take(&mut inheritance.admin);
        Ok(Self {
            dispatcher,
            workers,
            readiness,
            admin: start_admin(boot, sockets, &state, &may_serve)?,
            serves,
            store_ready: Some(store_ready),
        })
    }
}

/// The machine's name, which names the gateway if the file does not.
fn machine_name() -> Arc<str> {
    rustix::system::uname().nodename().to_string_lossy().into()
}

/// Waits until the predecessor, if there is one, lets this gateway serve.
///
/// # Errors
/// If a signal stops the gateway before: the gateway has taken nothing over.
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

/// Logs a warning if Redis is configured to evict counters.
fn look_at_store(boot: &Boot) {
    if let Backend::Redis(target) = &boot.store.source {
        tokio::spawn(warn_of_eviction(target.clone()));
    }
}

/// Waits until every worker's store has answered, which closes `store_ready`, for [`STORE_WITHIN`] at most: the first
/// clients are then counted in the shared store.
async fn until_store_ready(store_ready: Option<mpsc::Receiver<()>>) {
    let Some(mut store_ready) = store_ready else {
        return;
    };
    // A store that does not answer in time is unavailable, which does not prevent serving.
    let _ = tokio::time::timeout(STORE_WITHIN, store_ready.recv()).await;
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
                    "the memory store is full: a limit that has used up its own part of `max_keys` counts its new keys together on one counter; raise `max_keys`"
                );
            }
            overflowed = now;
        }
    }
}
