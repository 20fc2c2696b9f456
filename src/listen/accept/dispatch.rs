//! The distribution of new connections to workers: the bound for all connections, the bound for one client, and the
//! connection that is evicted if there is no room.
//!
//! The control thread distributes. It knows of each worker's register only the connection that would be evicted first.
//! A new connection that needs room is given to the worker of that connection, so that no count changes.

use super::connection_register::{ClientWait, ConnectionRegister, EvictionBoard, EvictionRank};
use super::{KnownPeer, ListenerFacts};
use crate::client::{Client, spelled};
use crate::clock;
use crate::listen::ListenerSettings;
use crate::shutdown::Drain;
use crate::telemetry::log::Throttles;
use crate::telemetry::metrics::{Eviction, Metrics, Rejection};
use std::collections::HashMap;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

/// The most queued connections of one worker.
const ON_THE_WAY: usize = 1024;
/// Connections beyond the bound while others are being evicted.
const MOST_OVER: usize = 64;
/// The number up to which clients without a connection are remembered.
const MOST_GONE: usize = 1024;
/// The part of all connections that one client may have if the file sets no bound.
const SHARE: usize = 10;
/// The least time between two log lines of one kind of event.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// An accepted connection, in the queue of a worker.
#[derive(Debug)]
pub struct NewConnection {
    /// The socket, not yet registered with any runtime.
    pub tcp: TcpStream,
    /// The address of the peer, which has none on a Unix socket.
    pub from: Option<SocketAddr>,
    /// The time at which it was accepted.
    pub since: Instant,
    /// The peer represents many clients: it has no bound of its own.
    pub is_trusted: bool,
    /// The facts about the connection from its listener.
    pub facts: ListenerSettings,
    /// The peer names the connection's client in its first bytes. The connection counts as that client's from then on.
    pub is_proxied: bool,
    /// Counts the connection as open until dropped.
    pub open: OpenGuard,
    /// The connections that may be evicted for it; `None` if there is room.
    evicts: Option<EvictionScope>,
    /// Workers that have been tried for an eviction.
    tried: usize,
}

/// A command of the dispatcher for a worker.
#[derive(Debug)]
pub enum WorkerTask {
    /// A connection to serve.
    Serve(NewConnection),
    /// A connection of another worker needs the place of an idle connection of its client.
    Evict(EvictionRequest),
}

/// The request of one worker to another to evict an idle connection of a client.
#[derive(Debug)]
pub struct EvictionRequest {
    client: Client,
    is_evicted: oneshot::Sender<bool>,
}

impl EvictionRequest {
    /// Evicts a connection of `register`, the worker's own, and answers.
    pub fn obey(self, register: &ConnectionRegister) {
        let evicted = register.evict_of_client(self.client);
        // The requesting connection may have ended.
        let _ = self.is_evicted.send(evicted.is_some());
    }
}

/// The connections that may be evicted for a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EvictionScope {
    /// All connections that wait for their client.
    All,
    /// The idle connections of the new connection's client.
    Client,
}

/// The bounds on open connections.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionBounds {
    /// The most connections at once.
    pub most: usize,
    /// The most connections of one client at once. Without a number, the bound is a tenth of all while more than half
    /// of all are open.
    pub per_client: Option<usize>,
}

impl ConnectionBounds {
    /// The bound for one client while `open` connections are open.
    #[must_use]
    pub fn of_client(self, open: usize) -> usize {
        match self.per_client {
            Some(most) => most,
            None if open > self.most / 2 => (self.most / SHARE).max(1),
            None => usize::MAX,
        }
    }
}

/// One worker, as seen by the control thread.
#[derive(Debug)]
struct WorkerQueue {
    tasks: mpsc::Sender<WorkerTask>,
    open: Arc<AtomicUsize>,
    board: Arc<EvictionBoard>,
}

/// Connections of all workers.
#[derive(Debug)]
pub struct Dispatcher {
    workers: Vec<WorkerQueue>,
    bounds: ConnectionBounds,
    /// The number of connections of each client. The control thread locks it for one access at a time, and so does a
    /// worker when a proxy has named a client.
    clients: Mutex<HashMap<Client, Arc<AtomicUsize>, foldhash::fast::RandomState>>,
    turn: AtomicUsize,
    metrics: Arc<Metrics>,
}

/// Counts one connection until it is dropped.
#[derive(Debug)]
pub struct OpenGuard {
    of_worker: Arc<AtomicUsize>,
    of_client: Arc<AtomicUsize>,
}

impl OpenGuard {
    fn new(of_worker: &Arc<AtomicUsize>, of_client: Arc<AtomicUsize>) -> Self {
        of_worker.fetch_add(1, Ordering::Relaxed);
        of_client.fetch_add(1, Ordering::Relaxed);
        Self {
            of_worker: Arc::clone(of_worker),
            of_client,
        }
    }

    /// Counts the connection as another client's.
    fn give_to(&mut self, client: Arc<AtomicUsize>) {
        client.fetch_add(1, Ordering::Relaxed);
        self.of_client.fetch_sub(1, Ordering::Relaxed);
        self.of_client = client;
    }

    fn move_to(&mut self, worker: &Arc<AtomicUsize>) {
        worker.fetch_add(1, Ordering::Relaxed);
        self.of_worker.fetch_sub(1, Ordering::Relaxed);
        self.of_worker = Arc::clone(worker);
    }
}

impl Drop for OpenGuard {
    fn drop(&mut self) {
        self.of_worker.fetch_sub(1, Ordering::Relaxed);
        self.of_client.fetch_sub(1, Ordering::Relaxed);
    }
}

/// No worker is left to give a connection to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NoWorkers;

impl Dispatcher {
    /// A dispatcher for `workers` workers, and the queue of connections of each.
    #[must_use]
    pub fn new(
        workers: usize,
        bounds: ConnectionBounds,
        metrics: &Arc<Metrics>,
    ) -> (Arc<Self>, Vec<mpsc::Receiver<WorkerTask>>) {
        let from = clock::now();
        let queue = |_| {
            let (tasks, incoming) = mpsc::channel(ON_THE_WAY);
            let queue = WorkerQueue {
                tasks,
                open: Arc::default(),
                board: EvictionBoard::new(from),
            };
            (queue, incoming)
        };
        let (workers, incoming) = (0..workers).map(queue).unzip();
        let dispatcher = Self {
            workers,
            bounds,
            clients: Mutex::default(),
            turn: AtomicUsize::new(0),
            metrics: Arc::clone(metrics),
        };
        (Arc::new(dispatcher), incoming)
    }

    /// The register of a worker, made on its thread.
    #[must_use]
    pub fn register(&self, worker: usize, drain: Drain) -> ConnectionRegister {
        ConnectionRegister::new(Arc::clone(&self.workers[worker].board), drain)
    }

    /// The number of open connections.
    #[must_use]
    pub fn open(&self) -> usize {
        let open = self.workers.iter();
        open.map(|worker| worker.open.load(Ordering::Relaxed)).sum()
    }

    /// Is room being made for the most connections that may wait for it?
    pub(super) fn is_overfull(&self) -> bool {
        self.open() >= self.bounds.most.saturating_add(MOST_OVER)
    }

    /// Gives a new connection of `peer` on a listener to a worker, or closes it.
    pub(super) async fn dispatch(
        &self,
        tcp: TcpStream,
        peer: KnownPeer,
        listener: &ListenerFacts,
    ) -> Result<(), NoWorkers> {
        let since = clock::now();
        let KnownPeer { from, is_trusted } = peer;
        let is_proxied = listener.is_proxied(peer);
        let open = self.open();
        let client = Client::of(from.map(|from| from.ip()));
        let of_client = self.count_of(client, open);
        let held = of_client.load(Ordering::Relaxed);
        let is_bounded = !is_trusted && !is_proxied;
        let evicts = if is_bounded && held >= self.bounds.of_client(open) {
            Some(EvictionScope::Client)
        } else {
            (open >= self.bounds.most).then_some(EvictionScope::All)
        };
        let worker = match evicts {
            Some(EvictionScope::All) => self.first_to_evict(),
            Some(EvictionScope::Client) | None => self.emptiest(),
        };
        let Some(worker) = worker else {
            self.reject(EvictionScope::All, from);
            return Ok(());
        };
        let new = NewConnection {
            tcp,
            from,
            since,
            is_trusted,
            facts: listener.of_connection(),
            is_proxied,
            open: OpenGuard::new(&worker.open, of_client),
            evicts,
            tried: 0,
        };
        let dealt = worker.tasks.send(WorkerTask::Serve(new)).await;
        dealt.map_err(|_| NoWorkers)
    }

    /// Makes room for a connection that was given to the worker of `register`. Returns `None` if no connection could be
    /// evicted: the new one was passed on or closed.
    #[must_use]
    pub fn evict_for(
        &self,
        mut new: NewConnection,
        worker: usize,
        register: &ConnectionRegister,
    ) -> Option<NewConnection> {
        let Some(scope) = new.evicts else {
            return Some(new);
        };
        let evicted = match scope {
            EvictionScope::All => {
                let evicted = register.evict_first(clock::now());
                evicted.map(ClientWait::metric)
            }
            EvictionScope::Client => {
                let client = Client::of(new.from.map(|from| from.ip()));
                let evicted = register.evict_of_client(client);
                evicted.map(|_| Eviction::Own)
            }
        };
        if let Some(what) = evicted {
            self.metrics.evicted(what);
            self.log_eviction(what, new.from);
            return Some(new);
        }
        // The connection to be evicted has a request meanwhile, or another worker evicted it first.
        let next = match scope {
            EvictionScope::All => self.first_to_evict(),
            EvictionScope::Client => self.workers.get((worker + 1) % self.workers.len()),
        };
        let from = new.from;
        new.tried += 1;
        let next = next.filter(|_| new.tried < self.workers.len());
        let passed_on = next.is_some_and(|next| {
            new.open.move_to(&next.open);
            next.tasks.try_send(WorkerTask::Serve(new)).is_ok()
        });
        if !passed_on {
            self.reject(scope, from);
        }
        None
    }

    /// Counts the connection of `open` at the worker of `register` as one of the client at `named`: the client that a
    /// proxy has named, or the proxy itself if it has named none. Returns false if the client has the most connections
    /// that it may have and none of them is idle: the connection must then be closed.
    pub(in crate::listen) async fn name(
        &self,
        open: &mut OpenGuard,
        named: SocketAddr,
        is_trusted: bool,
        register: &ConnectionRegister,
    ) -> bool {
        let client = Client::of(named.ip());
        let all = self.open();
        let count = self.count_of(client, all);
        let is_counted = usize::from(Arc::ptr_eq(&open.of_client, &count));
        let held = count.load(Ordering::Relaxed) - is_counted;
        open.give_to(count);
        if is_trusted || held < self.bounds.of_client(all) {
            return true;
        }
        let evicted = register.evict_of_client(client).is_some();
        if !evicted && !self.evict_elsewhere(client, &open.of_worker).await {
            self.reject(EvictionScope::Client, Some(named));
            return false;
        }
        self.metrics.evicted(Eviction::Own);
        self.log_eviction(Eviction::Own, Some(named));
        true
    }

    /// Has another worker than the one that counts in `except` evict an idle connection of `client`.
    async fn evict_elsewhere(&self, client: Client, except: &Arc<AtomicUsize>) -> bool {
        let others = self.workers.iter();
        for worker in others.filter(|worker| !Arc::ptr_eq(&worker.open, except)) {
            let (is_evicted, evicted) = oneshot::channel();
            let request = EvictionRequest { client, is_evicted };
            let sent = worker.tasks.try_send(WorkerTask::Evict(request));
            if sent.is_ok() && evicted.await == Ok(true) {
                return true;
            }
        }
        false
    }

    /// Notes that the system has no descriptor for a new connection.
    pub(super) fn no_descriptor(&self) {
        self.metrics.rejected(Rejection::Descriptors);
    }

    /// The worker with the fewest connections; among equals, the next in turn.
    fn emptiest(&self) -> Option<&WorkerQueue> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) + 1;
        let (before, after) = self.workers.split_at(turn % self.workers.len().max(1));
        let workers = after.iter().chain(before);
        workers.min_by_key(|worker| worker.open.load(Ordering::Relaxed))
    }

    /// The worker of the connection that is evicted before all others.
    fn first_to_evict(&self) -> Option<&WorkerQueue> {
        let now = clock::now();
        let firsts = self.workers.iter().filter_map(|worker| {
            let (rank, _) = worker.board.first(now)?;
            Some((rank, worker))
        });
        let first = firsts.min_by_key(|(rank, _): &(EvictionRank, _)| *rank);
        first.map(|(_, worker)| worker)
    }

    fn count_of(&self, client: Client, open: usize) -> Arc<AtomicUsize> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        // The cost of a pass over all clients is amortised over the same number of new connections.
        if clients.len() > 2 * open + MOST_GONE {
            clients.retain(|_, count| count.load(Ordering::Relaxed) > 0);
        }
        Arc::clone(clients.entry(client).or_default())
    }

    fn reject(&self, scope: EvictionScope, from: Option<SocketAddr>) {
        static REJECTIONS: Throttles<2> = Throttles::every(LOG_EVERY);
        self.metrics.rejected(match scope {
            EvictionScope::All => Rejection::Full,
            EvictionScope::Client => Rejection::PerClient,
        });
        if let Some(more) = REJECTIONS.pass(scope as usize) {
            let bound = self.reached_bound(scope, from);
            tracing::warn!(
                "{bound}, and none can be closed for a new one: the new connection was closed{more}"
            );
        }
    }

    fn log_eviction(&self, what: Eviction, from: Option<SocketAddr>) {
        static EVICTIONS: Throttles<4> = Throttles::every(LOG_EVERY);
        let (scope, evicted) = match what {
            Eviction::Idle => (EvictionScope::All, "the connection that was idle longest"),
            Eviction::Silent => (EvictionScope::All, "a connection that had sent nothing"),
            Eviction::HalfHead => (EvictionScope::All, "a connection that had sent half a head"),
            Eviction::Own => (EvictionScope::Client, "an idle connection of that client"),
        };
        if let Some(more) = EVICTIONS.pass(what as usize) {
            let bound = self.reached_bound(scope, from);
            tracing::info!("{bound}: {evicted} made room for a new one{more}");
        }
    }

    /// The bound that leaves no room for a connection from `from`, and the key that raises the bound.
    fn reached_bound(&self, scope: EvictionScope, from: Option<SocketAddr>) -> String {
        let most = self.bounds.most;
        match scope {
            EvictionScope::All => format!(
                "all {most} connections are taken (raise `max_connections`, and `ulimit -n` where that bounds it)"
            ),
            EvictionScope::Client => format!(
                "{} has {} connections, as many as one client may (`max_connections_per_client`)",
                spelled(from.map(|from| from.ip())),
                self.bounds.of_client(most)
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_share_of_a_client_holds_while_more_than_half_of_all_connections_are_open() {
        let bounds = |per_client| ConnectionBounds {
            most: 100,
            per_client,
        };
        assert_eq!(bounds(None).of_client(50), usize::MAX);
        assert_eq!(bounds(None).of_client(51), 10);
        assert_eq!(bounds(Some(3)).of_client(0), 3);
        let small = ConnectionBounds {
            most: 4,
            per_client: None,
        };
        assert_eq!(small.of_client(3), 1);
    }
}
