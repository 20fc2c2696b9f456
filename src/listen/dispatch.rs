//! The house: how many connections there are room for, who may have how many, and who gives way when it is full.
//!
//! The control thread lets in, and knows of each worker's register only who would give way first. A new connection for which
//! room is to be made is dealt to the worker of the one that gives way: that one goes and the new one stays, and no count changes.

use super::connection_register::{ConnectionRegister, EvictionBoard, EvictionRank};
use crate::client::Client;
use crate::telemetry::log::Throttle;
use crate::telemetry::metrics::{Eviction, Metrics, Rejection};
use std::collections::HashMap;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Connections on their way to one worker at once.
const ON_THE_WAY: usize = 1024;
/// Connections beyond the bound for which room is being made.
const MOST_OVER: usize = 64;
/// Clients that are remembered although they have no connection, until there are so many.
const MOST_GONE: usize = 1024;
/// Which part of the house one client may have where nothing is written.
const SHARE: usize = 10;
/// How often the same is told.
const TOLD: Duration = Duration::from_secs(10);

/// A connection on its way to a worker.
#[derive(Debug)]
pub struct DealtConnection {
    /// The socket, not yet registered with any runtime.
    pub tcp: TcpStream,
    /// The far end.
    pub from: SocketAddr,
    /// Counts it as open until dropped.
    pub open: OpenGuard,
    place: Placement,
}

/// Where a new connection is to find room.
#[derive(Debug, Clone, Copy)]
enum Placement {
    /// There is some.
    Free,
    /// That of another. Workers were asked so many times.
    InsteadOf(EvictionScope, usize),
}

/// Whose connection gives way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EvictionScope {
    /// The first of all that wait.
    Anybody,
    /// One of the same client that is between requests.
    Own,
}

/// How many connections are taken.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionBounds {
    /// At once.
    pub most: usize,
    /// Of one client, whenever; nothing where a tenth of all is to hold while more than half of the house is taken.
    pub per_client: Option<usize>,
}

impl ConnectionBounds {
    /// How many one client may have while so many are open.
    fn of_client(self, open: usize) -> usize {
        match self.per_client {
            Some(most) => most,
            None if open > self.most / 2 => (self.most / SHARE).max(1),
            None => usize::MAX,
        }
    }
}

/// One worker, as seen by those who deal connections out.
#[derive(Debug)]
struct WorkerSeat {
    connections: mpsc::Sender<DealtConnection>,
    open: Arc<AtomicUsize>,
    board: Arc<EvictionBoard>,
}

/// Connections of all workers.
#[derive(Debug)]
pub struct Dispatcher {
    seats: Vec<WorkerSeat>,
    bounds: ConnectionBounds,
    /// How many connections each client has. The control thread's own; locked for the length of one look.
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

/// There is no worker any more to deal a connection to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NoWorkers;

impl Dispatcher {
    /// A house for so many workers, and each one's connections to come.
    #[must_use]
    pub fn new(
        workers: usize,
        bounds: ConnectionBounds,
        metrics: &Arc<Metrics>,
    ) -> (Arc<Self>, Vec<mpsc::Receiver<DealtConnection>>) {
        let from = Instant::now();
        let seat = |_| {
            let (connections, incoming) = mpsc::channel(ON_THE_WAY);
            let seat = WorkerSeat {
                connections,
                open: Arc::default(),
                board: EvictionBoard::new(from),
            };
            (seat, incoming)
        };
        let (seats, incoming) = (0..workers).map(seat).unzip();
        let house = Self {
            seats,
            bounds,
            clients: Mutex::default(),
            turn: AtomicUsize::new(0),
            metrics: Arc::clone(metrics),
        };
        (Arc::new(house), incoming)
    }

    /// The register of a worker, made on its thread.
    #[must_use]
    pub fn register(&self, worker: usize) -> ConnectionRegister {
        ConnectionRegister::new(Arc::clone(&self.seats[worker].board))
    }

    /// Connections that are open.
    #[must_use]
    pub fn open(&self) -> usize {
        let open = self.seats.iter();
        open.map(|seat| seat.open.load(Ordering::Relaxed)).sum()
    }

    /// Is room being made for as many as may be at once?
    pub(super) fn is_making_room(&self) -> bool {
        self.open() >= self.bounds.most.saturating_add(MOST_OVER)
    }

    /// Deals a new connection to a worker, or closes it. A client that is `trusted` has no bound of its own.
    pub(super) async fn dispatch(
        &self,
        tcp: TcpStream,
        from: SocketAddr,
        trusted: bool,
    ) -> Result<(), NoWorkers> {
        let open = self.open();
        let client = Client::of(from.ip());
        let of_client = self.count_of(client, open);
        let own = of_client.load(Ordering::Relaxed);
        let place = if !trusted && own >= self.bounds.of_client(open) {
            Placement::InsteadOf(EvictionScope::Own, 0)
        } else if open >= self.bounds.most {
            Placement::InsteadOf(EvictionScope::Anybody, 0)
        } else {
            Placement::Free
        };
        let seat = match place {
            Placement::InsteadOf(EvictionScope::Anybody, _) => self.first_to_evict(),
            Placement::Free | Placement::InsteadOf(EvictionScope::Own, _) => self.emptiest(),
        };
        let Some(seat) = seat else {
            self.reject(EvictionScope::Anybody, from);
            return Ok(());
        };
        let accepted = DealtConnection {
            tcp,
            from,
            open: OpenGuard::new(&seat.open, of_client),
            place,
        };
        let dealt = seat.connections.send(accepted).await;
        dealt.map_err(|_| NoWorkers)
    }

    /// Makes room for a connection that was dealt to `worker`, whose register that is. Nothing when there is none, and it
    /// was passed on or closed.
    #[must_use]
    pub fn evict_for(
        &self,
        mut accepted: DealtConnection,
        worker: usize,
        register: &ConnectionRegister,
    ) -> Option<DealtConnection> {
        let Placement::InsteadOf(whom, asked) = accepted.place else {
            return Some(accepted);
        };
        let gave_way = match whom {
            EvictionScope::Anybody => register.evict_first().map(|waiting| waiting.gave_way()),
            EvictionScope::Own => {
                let own = register.evict_of_client(Client::of(accepted.from.ip()));
                own.map(|_| Eviction::Own)
            }
        };
        if let Some(what) = gave_way {
            self.metrics.evicted(what);
            self.log_eviction(what, accepted.from);
            return Some(accepted);
        }
        // Who was to give way has a request meanwhile, or another was faster.
        let next = match whom {
            EvictionScope::Anybody => self.first_to_evict(),
            EvictionScope::Own => self.seats.get((worker + 1) % self.seats.len()),
        };
        let from = accepted.from;
        let next = next.filter(|_| asked + 1 < self.seats.len());
        let passed_on = next.is_some_and(|next| {
            accepted.open.move_to(&next.open);
            accepted.place = Placement::InsteadOf(whom, asked + 1);
            next.connections.try_send(accepted).is_ok()
        });
        if !passed_on {
            self.reject(whom, from);
        }
        None
    }

    /// The system gives no descriptor for a new connection.
    pub(super) fn no_descriptor(&self) {
        self.metrics.rejected(Rejection::Descriptors);
    }

    /// The worker with the fewest connections; among equals, the next in turn.
    fn emptiest(&self) -> Option<&WorkerSeat> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) + 1;
        let (before, after) = self.seats.split_at(turn % self.seats.len().max(1));
        let seats = after.iter().chain(before);
        seats.min_by_key(|seat| seat.open.load(Ordering::Relaxed))
    }

    /// The worker of the connection that gives way before all others.
    fn first_to_evict(&self) -> Option<&WorkerSeat> {
        let firsts = self.seats.iter().filter_map(|seat| {
            let (rank, _) = seat.board.first()?;
            Some((rank, seat))
        });
        let first = firsts.min_by_key(|(rank, _): &(EvictionRank, _)| *rank);
        first.map(|(_, seat)| seat)
    }

    fn count_of(&self, client: Client, open: usize) -> Arc<AtomicUsize> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        // Each look at all of them is paid for by as many that came.
        if clients.len() > 2 * open + MOST_GONE {
            clients.retain(|_, count| count.load(Ordering::Relaxed) > 0);
        }
        Arc::clone(clients.entry(client).or_default())
    }

    fn reject(&self, whom: EvictionScope, from: SocketAddr) {
        static FULL: Throttle = Throttle::every(TOLD);
        static PER_CLIENT: Throttle = Throttle::every(TOLD);
        let most = self.bounds.most;
        match whom {
            EvictionScope::Anybody => {
                self.metrics.rejected(Rejection::Full);
                if let Some(more) = FULL.pass() {
                    tracing::warn!(
                        "all {most} connections have a request under way: a new one was closed; raise `max_connections`, and `ulimit -n` where that bounds it{more}"
                    );
                }
            }
            EvictionScope::Own => {
                self.metrics.rejected(Rejection::PerClient);
                if let Some(more) = PER_CLIENT.pass() {
                    let of_client = self.bounds.of_client(most);
                    tracing::warn!(
                        "{} has {of_client} connections, as many as one client may (`max_connections_per_client`), and none is idle: a new one was closed{more}",
                        from.ip().to_canonical()
                    );
                }
            }
        }
    }

    fn log_eviction(&self, what: Eviction, from: SocketAddr) {
        static IDLE: Throttle = Throttle::every(TOLD);
        static SILENT: Throttle = Throttle::every(TOLD);
        static HALF_HEAD: Throttle = Throttle::every(TOLD);
        static OWN: Throttle = Throttle::every(TOLD);
        let (throttle, who) = match what {
            Eviction::Idle => (&IDLE, "the one that was idle longest"),
            Eviction::Silent => (&SILENT, "one that had sent nothing"),
            Eviction::HalfHead => (&HALF_HEAD, "one that had sent half a head"),
            Eviction::Own => (&OWN, "an idle one of its own"),
        };
        let Some(more) = throttle.pass() else {
            return;
        };
        match what {
            Eviction::Own => tracing::info!(
                "{} has {} connections, as many as one client may (`max_connections_per_client`): {who} made room for a new one{more}",
                from.ip().to_canonical(),
                self.bounds.of_client(self.bounds.most)
            ),
            _ => tracing::info!(
                "all {} connections (`max_connections`) are taken: {who} made room for a new one{more}",
                self.bounds.most
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_that_is_not_written_holds_while_half_the_house_is_taken() {
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
