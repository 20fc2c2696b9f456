//! The running gateway: builds every part from a compiled file, runs them, drains them.

mod banner;
mod worker;

use crate::admin::{self, AdminState, Phase, Readiness};
use crate::clock::Clock;
use crate::config::diff::{Outline, diff};
use crate::config::{Boot, Compiled, Files};
use crate::descriptors::{self, Budget};
use crate::listen::accept::{Trusted, accept, left_for_upstreams, most_connections};
use crate::listen::bind;
use crate::listen::house::{Accepted, Bounds, House};
use crate::proxy::Holds;
use crate::reload::{self, Watcher};
use crate::shutdown::{Drain, DrainSwitch, Request, Signals, drain};
use crate::snapshot::Snapshot;
use crate::store::{Fleet, Invalidation, MemoryStore};
use crate::telemetry::access_log::AccessLog;
use crate::telemetry::metrics::Metrics;
use crate::upstream;
use crate::upstream::{Server, demo};
use arc_swap::ArcSwap;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;
use worker::{Equipment, WorkerThread};

/// One shard of the memory store is swept at each tick.
const SWEEP: Duration = Duration::from_millis(50);
/// Clients are let in when the store has answered, or after this without it.
const STORE_WITHIN: Duration = Duration::from_secs(2);
/// What the log writer gets to write out its last lines.
const LAST_LINES: Duration = Duration::from_secs(2);

/// Why the gateway did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address cannot be listened on.
    #[error(
        "cannot listen on {address}: {source}; choose another address with `listen` or --listen"
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The system refused something else.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
}

/// What workers and the control thread share.
#[derive(Debug, Clone)]
struct Shared {
    snapshots: Arc<ArcSwap<Snapshot>>,
    memory: Arc<MemoryStore>,
    fleet: Arc<Fleet>,
    news: Invalidation,
    holds: Arc<Holds>,
    metrics: Arc<Metrics>,
    drain: Drain,
}

/// Runs the gateway until it is told to stop and has finished what was begun.
///
/// # Errors
/// When it cannot start.
pub fn run(compiled: Compiled, file: Option<PathBuf>) -> Result<(), StartError> {
    let control = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    control.block_on(async { Gateway::start(compiled, file).await?.until_stopped().await })
}

struct Gateway {
    boot: Boot,
    switch: DrainSwitch,
    readiness: Readiness,
    house: Arc<House>,
    workers: Vec<WorkerThread>,
    log: AccessLog,
    signals: Signals,
    /// It was told to stop before it had begun.
    is_stopped: bool,
    reload: reload::Trigger,
}

impl Gateway {
    async fn start(compiled: Compiled, file: Option<PathBuf>) -> Result<Self, StartError> {
        let Compiled {
            boot,
            mut snapshot,
            outline,
            files,
            ..
        } = compiled;
        snapshot.generation = 1;
        let mut signals = Signals::install()?;
        let claimed = claim_all(&boot.listen.addresses)?;
        let admin = boot
            .admin
            .map(|admin| open_all(&[admin.listen], claim_all(&[admin.listen])?))
            .transpose()?;
        start_demo(&snapshot).await?;

        let (switch, drain) = drain();
        let clock = Clock::system();
        let metrics = Metrics::new();
        metrics.started(snapshot.generation);
        let memory = Arc::new(MemoryStore::new(clock, boot.store.max_keys));
        memory.keep_room_for(snapshot.limits());
        let shared = Shared {
            snapshots: Arc::new(ArcSwap::from_pointee(snapshot)),
            memory,
            fleet: Arc::default(),
            news: Invalidation::default(),
            holds: Arc::default(),
            metrics: Arc::clone(&metrics),
            drain: drain.clone(),
        };
        let log = AccessLog::stdout(boot.log.access, &metrics)?;
        let (questions, asked) = admin::questions();
        let (open_files, count) = (descriptors::raise(), count_workers(&boot));
        let bounds = Bounds {
            most: most_taken(boot.listen.max_connections, open_files),
            per_client: boot.listen.max_connections_per_client,
        };
        let (house, incoming) = House::new(count, bounds, &metrics);
        let descriptors = Budget::new(left_for_upstreams(bounds.most, open_files), count);
        let housed = (&house, incoming, &descriptors);
        let (meets, met) = mpsc::channel(1);
        let workers = start_workers(&boot, &shared, &log, housed, (asked, meets))?;

        let readiness = Readiness::default();
        let admin_address = start_admin(admin, &metrics, &readiness, questions)?;
        tokio::spawn(sweep(shared.clone()));
        let install = Install {
            boot: boot.clone(),
            outline,
            shared: shared.clone(),
        };
        let reload = start_reload(file, files, install);
        let is_stopped = until_met(met, &mut signals, &reload).await;

        let trusted = trusted(&shared.snapshots);
        let mut addresses = Vec::new();
        for listener in open_all(&boot.listen.addresses, claimed)? {
            addresses.push(listener.local_addr()?);
            let listener = tokio::net::TcpListener::from_std(listener)?;
            let (house, trusted) = (Arc::clone(&house), Arc::clone(&trusted));
            tokio::spawn(accept(listener, house, trusted, drain.clone()));
        }
        banner::print(&boot, &shared.snapshots.load(), &addresses, admin_address);
        readiness.set(Phase::Ready);
        Ok(Self {
            boot,
            switch,
            readiness,
            house,
            workers,
            log,
            signals,
            is_stopped,
            reload,
        })
    }

    async fn until_stopped(mut self) -> Result<(), StartError> {
        while !self.is_stopped && self.signals.next().await == Request::Reload {
            self.reload.pull();
        }
        self.readiness.set(Phase::Draining);
        let grace = self.boot.drain;
        tracing::info!("stopping: no new connections, {grace:?} for what is under way");
        self.switch.pull(grace);
        let deadline = Instant::now() + grace;
        tokio::select! {
            () = finished(&self.house) => tracing::info!("stopped: everything was finished"),
            () = tokio::time::sleep_until(deadline) => {
                match self.house.open() {
                    1 => tracing::warn!("stopped: 1 connection was cut"),
                    cut => tracing::warn!("stopped: {cut} connections were cut"),
                }
            }
            () = second_stop(&mut self.signals) => tracing::warn!("stopped at once, as asked"),
        }
        self.switch.cut();
        for worker in self.workers {
            worker.end();
        }
        self.log.shutdown(LAST_LINES);
        Ok(())
    }
}

/// The bound on connections, told where it is not the file's.
fn most_taken(asked: usize, files: Option<u64>) -> usize {
    let most = most_connections(asked, files);
    if let Some(files) = files.filter(|_| most < asked) {
        tracing::info!(
            "the system allows {files} open files: at most {most} connections are held at once, not {asked}; raise it with `ulimit -n`"
        );
    }
    most
}

/// Resolves when the last connection has ended.
async fn finished(house: &House) {
    while house.open() > 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Asks the snapshot in force.
fn trusted(snapshots: &Arc<ArcSwap<Snapshot>>) -> Trusted {
    let snapshots = Arc::clone(snapshots);
    Arc::new(move |peer| snapshots.load().trust.believes(peer))
}

async fn second_stop(signals: &mut Signals) {
    while signals.next().await == Request::Reload {}
}

/// Waits until every worker's store has answered, which closes `met`: the first clients are to be counted where all are. Not for
/// long, and not when somebody says stop: was that said?
async fn until_met(
    mut met: mpsc::Receiver<()>,
    signals: &mut Signals,
    reload: &reload::Trigger,
) -> bool {
    let mut within = pin!(tokio::time::sleep(STORE_WITHIN));
    loop {
        tokio::select! {
            _ = met.recv() => return false,
            () = &mut within => return false,
            request = signals.next() => match request {
                Request::Reload => reload.pull(),
                Request::Stop => return true,
            }
        }
    }
}

fn claim_all(addresses: &[SocketAddr]) -> Result<Vec<bind::Claimed>, StartError> {
    let claim = |address: &SocketAddr| bind::claim(*address).map_err(not_at(*address));
    addresses.iter().map(claim).collect()
}

fn open_all(
    addresses: &[SocketAddr],
    claimed: Vec<bind::Claimed>,
) -> Result<Vec<std::net::TcpListener>, StartError> {
    let both = addresses.iter().zip(claimed);
    both.map(|(address, claimed)| claimed.open().map_err(not_at(*address)))
        .collect()
}

fn not_at(address: SocketAddr) -> impl FnOnce(io::Error) -> StartError {
    move |source| StartError::Listen { address, source }
}

fn count_workers(boot: &Boot) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    match boot.workers {
        0 => cores,
        asked => asked,
    }
}

fn start_workers(
    boot: &Boot,
    shared: &Shared,
    log: &AccessLog,
    (house, incoming, descriptors): (&Arc<House>, Vec<mpsc::Receiver<Accepted>>, &Arc<Budget>),
    (asked, meets): (mpsc::Receiver<admin::Question>, mpsc::Sender<()>),
) -> Result<Vec<WorkerThread>, StartError> {
    // Questions about counters go to the first: it has a way to the store as any other.
    let mut asked = Some(asked);
    let start = |(index, incoming)| {
        let equipment = Equipment {
            index,
            house: Arc::clone(house),
            incoming,
            descriptors: descriptors.share(),
            shared: shared.clone(),
            log: log.clone(),
            listen: boot.listen.clone(),
            store: boot.store.clone(),
            meets: meets.clone(),
            asked: asked.take(),
        };
        WorkerThread::start(equipment).map_err(StartError::from)
    };
    incoming.into_iter().enumerate().map(start).collect()
}

fn start_admin(
    listeners: Option<Vec<std::net::TcpListener>>,
    metrics: &Arc<Metrics>,
    readiness: &Readiness,
    questions: admin::Questions,
) -> Result<Option<SocketAddr>, StartError> {
    let Some(listener) = listeners.and_then(|mut listeners| listeners.pop()) else {
        return Ok(None);
    };
    let address = listener.local_addr()?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let state = AdminState {
        metrics: Arc::clone(metrics),
        readiness: readiness.clone(),
        questions: Some(questions),
    };
    // It answers to the last: draining is something to see.
    tokio::spawn(admin::serve(listener, state, std::future::pending()));
    Ok(Some(address))
}

/// Watches the file and what it names, if there is one.
fn start_reload(file: Option<PathBuf>, files: Files, install: Install) -> reload::Trigger {
    let (trigger, pulled) = reload::trigger();
    if let Some(file) = file {
        tokio::spawn(Watcher::new(file, files, pulled).run(install));
    }
    trigger
}

/// Puts a new file in force.
struct Install {
    boot: Boot,
    outline: Arc<Outline>,
    shared: Shared,
}

impl reload::Apply for Install {
    async fn apply(&mut self, compiled: Compiled) {
        let Compiled {
            boot,
            mut snapshot,
            outline,
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
        self.shared.metrics.reloaded(generation);
        tracing::info!("reloaded: generation {generation} is in force");
        for change in changes {
            tracing::info!("  {change}");
        }
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

/// Forgets what has ended, one shard at a time, and reports how full the memory store is.
async fn sweep(shared: Shared) {
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
                    "the memory store is full for a limit that has more keys than were kept room for: its new ones count on one counter together; raise `max_keys`"
                );
            }
            overflowed = now;
        }
    }
}
