//! One worker: a thread with a single-threaded runtime that owns its connections, pools and connection to the store.

use super::GatewayState;
use crate::admin::{PeekRequest, answer_peeks};
use crate::descriptors::DescriptorShare;
use crate::listen::ListenSettings;
use crate::listen::arrival::Arrivals;
use crate::listen::connection_register::ConnectionRegister;
use crate::listen::dispatch::{Dispatcher, WorkerTask};
use crate::listen::encrypted_peers::EncryptedPeers;
use crate::listen::keep_alive::KeepAlive;
use crate::listen::service::ConnectionService;
use crate::proxy::{self, Worker};
use crate::store::redis::RedisStore;
use crate::store::{self, Backend, SharedStore, Store, WorkerCache};
use crate::telemetry::access_log::AccessLog;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::sync::{mpsc, oneshot};

/// The interval at which a worker tidies its pools.
const TIDY: Duration = Duration::from_secs(1);

/// The parts that a worker is built from.
#[derive(Debug)]
pub(super) struct WorkerSetup {
    /// The worker's number.
    pub(super) index: usize,
    /// The source of its connections.
    pub(super) dispatcher: Arc<Dispatcher>,
    pub(super) incoming: mpsc::Receiver<WorkerTask>,
    /// Its share of the descriptors that are not used for clients.
    pub(super) descriptors: DescriptorShare,
    pub(super) shared: GatewayState,
    pub(super) log: AccessLog,
    pub(super) listen: ListenSettings,
    pub(super) store: store::StoreSettings,
    /// The sender that the worker drops once its store has answered.
    pub(super) store_ready: mpsc::Sender<()>,
    /// Peeks at counters, for the one worker that answers them.
    pub(super) peeks: Option<mpsc::Receiver<PeekRequest>>,
}

/// A worker's thread, as the control thread sees it.
#[derive(Debug)]
pub(super) struct WorkerThread {
    end: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl WorkerThread {
    pub(super) fn start(equipment: WorkerSetup) -> io::Result<Self> {
        let (end, ended) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name(format!("worker-{}", equipment.index))
            .spawn(move || work(equipment, ended))?;
        Ok(Self { end, thread })
    }

    /// Ends the worker with its connections, and waits for the thread.
    pub(super) fn end(self) {
        let _ = self.end.send(());
        if self.thread.join().is_err() {
            tracing::error!("a worker panicked");
        }
    }
}

fn work(equipment: WorkerSetup, ended: oneshot::Receiver<()>) {
    match Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())
    {
        Ok(runtime) => until_over(runtime, serve(equipment, ended)),
        // The acceptor finds the worker's channel closed and stops: an unready gateway is better than a gateway with
        // half of its workers.
        Err(error) => tracing::error!("a worker cannot start: {error}"),
    }
}

/// Runs the worker's task, and then drops all tasks on its runtime, with their handles of the access log. Other threads
/// may continue: the lookup of a name's addresses, or of a socket's path, may block a thread for ever, and the process
/// must end nevertheless.
fn until_over(runtime: LocalRuntime, serving: impl Future<Output = ()>) {
    runtime.block_on(serving);
    runtime.shutdown_background();
}

async fn serve(equipment: WorkerSetup, ended: oneshot::Receiver<()>) {
    let WorkerSetup {
        index,
        dispatcher,
        incoming,
        descriptors,
        shared,
        log,
        listen,
        store,
        store_ready,
        peeks,
    } = equipment;
    let (metrics, snapshots) = (shared.metrics.worker(), Arc::clone(&shared.snapshots));
    let store = connect(&store, &shared);
    start_store_tasks(&store, &shared, store_ready);
    if let Some(peeks) = peeks {
        let answering = answer_peeks(store.clone(), Arc::clone(&snapshots), peeks);
        tokio::task::spawn_local(answering);
    }
    let worker = Rc::new(Worker::new(proxy::Equipment {
        store,
        snapshots: Arc::clone(&snapshots),
        holds: shared.holds,
        drain: shared.drain.clone(),
        pace: listen.rate_bound(),
        descriptors: descriptors.clone(),
        challenges: shared.challenges.clone(),
        access: log.worker(),
        metrics: metrics.clone(),
    }));
    tokio::task::spawn_local(worker.flushing());
    let register = dispatcher.register(index, shared.drain);
    tokio::task::spawn_local(register.clone().wake_for_drain());
    let keep_alive = listen.keep_alive.clone();
    tokio::task::spawn_local(tidy(Rc::clone(&worker), register.clone(), keep_alive));
    let service = Rc::new(ConnectionService {
        handler: Rc::clone(&worker),
        arrivals: Arrivals {
            dispatcher: Arc::clone(&dispatcher),
            trust: snapshots,
            register,
            within: listen.handshake,
            metrics: shared.metrics,
            challenges: shared.challenges,
            refused_chains: shared.refused_chains,
            encrypted: EncryptedPeers::watched(),
        },
        settings: listen,
        descriptors,
        metrics,
        index,
    });
    obey(&service, incoming, ended).await;
    worker.settle().await;
}

/// Applies the dispatcher's commands to the service, until the worker ends.
async fn obey(
    service: &Rc<ConnectionService<Worker>>,
    mut incoming: mpsc::Receiver<WorkerTask>,
    mut ended: oneshot::Receiver<()>,
) {
    loop {
        tokio::select! {
            _ = &mut ended => break,
            Some(task) = incoming.recv() => service.obey(task),
        }
    }
}

/// Starts the tasks that a shared store needs, and reports the store's first answer.
fn start_store_tasks(store: &Store, shared: &GatewayState, store_ready: mpsc::Sender<()>) {
    if let Store::Shared(SharedStore {
        redis,
        cache,
        metrics,
        ..
    }) = store
    {
        cache.follow(redis, metrics);
        tokio::task::spawn_local(Arc::clone(&shared.fleet).keep(redis.clone()));
        tokio::task::spawn_local(Arc::clone(&shared.changes).keep(redis.clone()));
        if let Some(jobs) = shared.changes.jobs() {
            let changes = Arc::clone(&shared.changes);
            tokio::task::spawn_local(changes.serve(store.clone(), jobs));
        }
        let redis = redis.clone();
        tokio::task::spawn_local(async move {
            redis.met().await;
            // The last worker whose store has answered closes the channel.
            drop(store_ready);
        });
    }
}

fn connect(settings: &store::StoreSettings, shared: &GatewayState) -> Store {
    match &settings.source {
        Backend::Memory => Store::Memory(Arc::clone(&shared.memory)),
        Backend::Redis(target) => Store::Shared(SharedStore {
            redis: RedisStore::new(target, settings),
            local: Arc::clone(&shared.memory),
            on_down: settings.on_down,
            fleet: Arc::clone(&shared.fleet),
            metrics: shared.metrics.store(),
            cache: WorkerCache::new(
                shared.invalidation.clone(),
                settings.timeout,
                shared.clock.clone(),
            ),
        }),
    }
}

/// Periodic maintenance of the worker. Idle connections learn here of a changed idle time.
async fn tidy(worker: Rc<Worker>, register: ConnectionRegister, keep_alive: KeepAlive) {
    let mut ticks = tokio::time::interval(TIDY);
    let mut known = keep_alive.get();
    loop {
        ticks.tick().await;
        worker.sweep();
        let newest = keep_alive.get();
        if std::mem::replace(&mut known, newest) != newest {
            register.wake_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    /// The attack: a team's socket is on a disk that never answers, and the process must be able to end.
    #[test]
    fn a_look_at_a_disk_that_does_not_answer_keeps_no_worker() {
        let (_answers, answer) = channel::<()>();
        let (over, is_over) = channel();
        std::thread::spawn(move || {
            let runtime = Builder::new_current_thread().build_local(LocalOptions::default());
            until_over(runtime.unwrap(), async {
                let (begins, begun) = oneshot::channel();
                drop(tokio::task::spawn_blocking(move || {
                    let _ = begins.send(());
                    answer.recv()
                }));
                begun.await.unwrap();
            });
            over.send(()).unwrap();
        });
        is_over.recv_timeout(Duration::from_secs(10)).unwrap();
    }
}
