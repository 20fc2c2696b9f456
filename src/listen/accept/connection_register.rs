//! The register of one worker's connections: the connections that wait for their client, the event that each waits for,
//! the order of their eviction for new ones, and their wakeup when the gateway drains.
//!
//! The connections are linked in rings, so that a request that begins or ends moves its connection by a few writes to
//! the worker's own memory. The control thread sees only the time of the first connection in each ring.

use crate::client::Client;
use crate::clock;
use crate::shutdown::Drain;
use crate::telemetry::metrics::Eviction;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::time::Instant;

/// The time without bytes after which a connection counts as silent. Most clients send their first bytes with the end
/// of the TCP handshake, and these may be read a moment after the connection is accepted.
const SILENT_AFTER: Duration = Duration::from_millis(20);
/// No position in the table.
const NONE: u32 = u32::MAX;
/// No time.
const NEVER: u64 = u64::MAX;
/// Links in the ring of all connections with one [`ClientWait`].
const AMONG_ALL: usize = 0;
/// Links in the ring of one client's idle connections.
const AMONG_OWN: usize = 1;

/// The client's next action, for which a connection waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientWait {
    /// The client sends another request.
    Idle,
    /// The client sends the first byte of the connection.
    Silent,
    /// The client sends the rest of a head.
    HalfHead,
}

impl ClientWait {
    const ALL: [Self; 3] = [Self::Idle, Self::Silent, Self::HalfHead];

    /// The kind of an eviction in the metrics.
    #[must_use]
    pub fn metric(self) -> Eviction {
        match self {
            Self::Idle => Eviction::Idle,
            Self::Silent => Eviction::Silent,
            Self::HalfHead => Eviction::HalfHead,
        }
    }

    /// The connection with the lowest rank is evicted first; times in microseconds.
    fn rank(self, since: u64, now: u64) -> u8 {
        let yet = u64::try_from(SILENT_AFTER.as_micros()).unwrap_or(NEVER);
        match self {
            Self::Idle => 0,
            Self::Silent if now.saturating_sub(since) >= yet => 1,
            Self::HalfHead => 2,
            Self::Silent => 3,
        }
    }
}

/// The order of eviction over all workers: the connection with the least rank is evicted first.
pub(super) type EvictionRank = (u8, u64);

/// The times since which the first connection of each ring waits, for the control thread to read.
#[derive(Debug)]
#[repr(align(128))]
pub(in crate::listen) struct EvictionBoard {
    /// The instant from which times are counted.
    from: Instant,
    firsts: [AtomicU64; ClientWait::ALL.len()],
}

impl EvictionBoard {
    /// A board on which no connection waits. `from` must be equal for all boards that are compared.
    pub(in crate::listen) fn new(from: Instant) -> Arc<Self> {
        Arc::new(Self {
            from,
            firsts: std::array::from_fn(|_| AtomicU64::new(NEVER)),
        })
    }

    /// The connection that would be evicted first at `now`.
    pub(in crate::listen) fn first(&self, now: Instant) -> Option<(EvictionRank, ClientWait)> {
        let now = self.micros(now);
        let waiting = ClientWait::ALL.into_iter().filter_map(|waiting| {
            let since = self.firsts[waiting as usize].load(Ordering::Relaxed);
            (since != NEVER).then(|| ((waiting.rank(since, now), since), waiting))
        });
        waiting.min_by_key(|(rank, _)| *rank)
    }

    fn post(&self, waiting: ClientWait, since: Option<Instant>) {
        let since = since.map_or(NEVER, |since| self.micros(since));
        self.firsts[waiting as usize].store(since, Ordering::Relaxed);
    }

    fn micros(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.from).as_micros()).unwrap_or(NEVER - 1)
    }
}

/// The register. It stays on its worker's thread.
#[derive(Debug, Clone)]
pub struct ConnectionRegister(Rc<RegisterState>);

#[derive(Debug)]
struct RegisterState {
    table: RefCell<ConnectionTable>,
    board: Arc<EvictionBoard>,
    drain: Drain,
    /// Draining has begun, as noted by the worker. A check of `drain` at every wakeup of every connection would mean a
    /// lock shared between workers.
    is_draining: Cell<bool>,
    /// Clients are asked to reconnect elsewhere, as noted by the worker.
    is_leaving: Cell<bool>,
}

#[derive(Debug, Default)]
struct ConnectionTable {
    entries: Vec<ConnectionEntry>,
    free: Vec<u32>,
    rings: [Ring; ClientWait::ALL.len()],
    /// The position of each client's chain.
    clients: HashMap<Client, u32, foldhash::fast::RandomState>,
    chains: Vec<ClientChain>,
    free_chains: Vec<u32>,
}

#[derive(Debug)]
struct ConnectionEntry {
    links: [RingLink; 2],
    chain: u32,
    waiting: Option<(ClientWait, Instant)>,
    evicted: bool,
    waker: Option<Waker>,
}

#[derive(Debug, Clone, Copy)]
struct RingLink {
    before: u32,
    after: u32,
}

/// Connections in the order in which their waits began.
#[derive(Debug, Clone, Copy)]
struct Ring {
    first: u32,
    last: u32,
}

/// The connections of one client at this worker.
#[derive(Debug)]
struct ClientChain {
    client: Client,
    members: u32,
    idle: Ring,
}

impl Default for Ring {
    fn default() -> Self {
        Self {
            first: NONE,
            last: NONE,
        }
    }
}

impl Ring {
    /// Appends a connection. Returns true if the connection is also the first one of the ring.
    fn join(&mut self, entries: &mut [ConnectionEntry], which: usize, at: u32) -> bool {
        entries[at as usize].links[which] = RingLink {
            before: self.last,
            after: NONE,
        };
        match self.last {
            NONE => self.first = at,
            last => entries[last as usize].links[which].after = at,
        }
        self.last = at;
        self.first == at
    }

    /// Removes a connection. Returns true if the connection was the first.
    fn leave(&mut self, entries: &mut [ConnectionEntry], which: usize, at: u32) -> bool {
        let RingLink { before, after } = entries[at as usize].links[which];
        match before {
            NONE => self.first = after,
            before => entries[before as usize].links[which].after = after,
        }
        match after {
            NONE => self.last = before,
            after => entries[after as usize].links[which].before = before,
        }
        before == NONE
    }
}

impl ConnectionRegister {
    pub(in crate::listen) fn new(board: Arc<EvictionBoard>, drain: Drain) -> Self {
        Self(Rc::new(RegisterState {
            table: RefCell::default(),
            board,
            is_draining: Cell::new(drain.deadline().is_some()),
            is_leaving: Cell::new(false),
            drain,
        }))
    }

    /// Wakes every connection when the gateway begins to leave, and when draining begins. The future is spawned once on
    /// the worker's runtime.
    pub async fn wake_for_drain(self) {
        self.0.drain.leaving().await;
        self.0.is_leaving.set(true);
        self.wake_all();
        self.0.drain.begun().await;
        self.0.is_draining.set(true);
        self.wake_all();
    }

    /// Wakes every connection, since a time that it waits for has changed.
    pub fn wake_all(&self) {
        for entry in &mut self.0.table.borrow_mut().entries {
            if let Some(waker) = entry.waker.take() {
                waker.wake();
            }
        }
    }

    /// Adds a connection that waits for no event yet.
    #[must_use]
    pub fn enter(&self, client: Client) -> Registration {
        Registration {
            register: self.clone(),
            at: self.0.table.borrow_mut().enter(client),
            waiting: Cell::new(None),
            exempt: Cell::new(false),
        }
    }

    /// Evicts the connection that is first in the eviction order. Returns the event that it waited for.
    pub(super) fn evict_first(&self, now: Instant) -> Option<ClientWait> {
        let (_, waiting) = self.0.board.first(now)?;
        let first = self.0.table.borrow().rings[waiting as usize].first;
        self.evict(first)
    }

    /// Evicts the first idle connection of one client.
    pub(super) fn evict_of_client(&self, client: Client) -> Option<ClientWait> {
        let first = {
            let table = self.0.table.borrow();
            table.chains[*table.clients.get(&client)? as usize]
                .idle
                .first
        };
        self.evict(first)
    }

    fn evict(&self, at: u32) -> Option<ClientWait> {
        let (waiting, waker) = {
            let mut table = self.0.table.borrow_mut();
            let entry = table.entries.get_mut(at as usize)?;
            entry.evicted = true;
            (entry.waiting?.0, entry.waker.take())
        };
        self.move_to(at, None);
        if let Some(waker) = waker {
            waker.wake();
        }
        Some(waiting)
    }

    /// Moves a connection to another ring, or to none.
    fn move_to(&self, at: u32, waiting: Option<(ClientWait, Instant)>) {
        let RegisterState { table, board, .. } = &*self.0;
        let table = &mut *table.borrow_mut();
        if let Some(left) = table.leave(at) {
            board.post(left, table.since(left));
        }
        if let Some((joined, since)) = waiting
            && table.join(at, joined, since)
        {
            board.post(joined, Some(since));
        }
    }
}

impl ConnectionTable {
    fn enter(&mut self, client: Client) -> u32 {
        let chain = self.chain(client);
        self.chains[chain as usize].members += 1;
        let nowhere = RingLink {
            before: NONE,
            after: NONE,
        };
        let entry = ConnectionEntry {
            links: [nowhere; 2],
            chain,
            waiting: None,
            evicted: false,
            waker: None,
        };
        put(&mut self.entries, &mut self.free, entry)
    }

    fn chain(&mut self, client: Client) -> u32 {
        let Self {
            clients,
            chains,
            free_chains,
            ..
        } = self;
        *clients.entry(client).or_insert_with(|| {
            let chain = ClientChain {
                client,
                members: 0,
                idle: Ring::default(),
            };
            put(chains, free_chains, chain)
        })
    }

    fn remove(&mut self, at: u32) {
        let entry = &mut self.entries[at as usize];
        entry.waker = None;
        let chain = &mut self.chains[entry.chain as usize];
        chain.members -= 1;
        if chain.members == 0 {
            self.clients.remove(&chain.client);
            self.free_chains.push(entry.chain);
        }
        self.free.push(at);
    }

    /// Removes a connection from its rings. Returns the event that it waited for, if it was the first of that ring.
    fn leave(&mut self, at: u32) -> Option<ClientWait> {
        let entry = &mut self.entries[at as usize];
        let (waiting, _) = entry.waiting.take()?;
        let chain = &mut self.chains[entry.chain as usize];
        if waiting == ClientWait::Idle {
            chain.idle.leave(&mut self.entries, AMONG_OWN, at);
        }
        let ring = &mut self.rings[waiting as usize];
        let was_first = ring.leave(&mut self.entries, AMONG_ALL, at);
        was_first.then_some(waiting)
    }

    /// Adds a connection to its rings. Returns true if the connection is the first of the ring.
    fn join(&mut self, at: u32, waiting: ClientWait, since: Instant) -> bool {
        let entry = &mut self.entries[at as usize];
        entry.waiting = Some((waiting, since));
        let chain = &mut self.chains[entry.chain as usize];
        if waiting == ClientWait::Idle {
            chain.idle.join(&mut self.entries, AMONG_OWN, at);
        }
        let ring = &mut self.rings[waiting as usize];
        ring.join(&mut self.entries, AMONG_ALL, at)
    }

    /// The time since which the first connection of a ring waits.
    fn since(&self, waiting: ClientWait) -> Option<Instant> {
        let first = self.rings[waiting as usize].first;
        let (_, since) = self.entries.get(first as usize)?.waiting?;
        Some(since)
    }
}

/// Puts `one` at a free position, or a new one.
fn put<T>(items: &mut Vec<T>, free: &mut Vec<u32>, one: T) -> u32 {
    if let Some(at) = free.pop() {
        items[at as usize] = one;
        return at;
    }
    items.push(one);
    // A gateway never has more connections than fit into `u32`.
    u32::try_from(items.len() - 1).unwrap_or(NONE)
}

/// A connection in the register, until dropped.
#[derive(Debug)]
pub struct Registration {
    register: ConnectionRegister,
    at: u32,
    waiting: Cell<Option<ClientWait>>,
    /// The connection is never evicted from now on.
    exempt: Cell<bool>,
}

impl Registration {
    /// Notes that the connection has waited for its client since `since`.
    pub(in crate::listen) fn set_waiting(&self, waiting: ClientWait, since: Instant) {
        if self.waiting.get() != Some(waiting) && !self.exempt.get() {
            self.waiting.set(Some(waiting));
            self.register.move_to(self.at, Some((waiting, since)));
        }
    }

    /// Notes that the connection does not wait: a request is being served.
    pub(in crate::listen) fn set_busy(&self) {
        if self.waiting.take().is_some() {
            self.register.move_to(self.at, None);
        }
    }

    /// Ends the connection, like an eviction, if it waits for its client.
    pub(in crate::listen) fn evict_waiting(&self) {
        if self.is_waiting() {
            self.register.evict(self.at);
        }
    }

    /// Wakes the connection, since it must not continue as before.
    pub(in crate::listen) fn wake(&self) {
        let mut table = self.register.0.table.borrow_mut();
        if let Some(waker) = table.entries[self.at as usize].waker.take() {
            waker.wake();
        }
    }

    /// Notes that the connection ends by itself, or has become a tunnel: it is never evicted from now on.
    pub(in crate::listen) fn exempt(&self) {
        self.set_busy();
        self.exempt.set(true);
    }

    /// Does the connection wait for its client? It is not notified of its eviction here.
    pub(in crate::listen) fn is_waiting(&self) -> bool {
        self.waiting.get().is_some()
    }

    /// Ready once draining has begun. The task that polls [`Self::poll_evicted`] is woken then.
    pub(in crate::listen) fn poll_draining(&self) -> Poll<()> {
        if self.register.0.is_draining.get() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }

    /// Ready once the gateway leaves; for a connection that `is_late`, accepted after the leaving began, once draining
    /// has begun.
    pub(in crate::listen) fn poll_over(&self, is_late: bool) -> Poll<()> {
        if self.is_leaving() && !is_late {
            return Poll::Ready(());
        }
        self.poll_draining()
    }

    /// Is the client asked to reconnect elsewhere?
    pub(in crate::listen) fn is_leaving(&self) -> bool {
        self.register.0.is_leaving.get()
    }

    /// Has draining begun, even if the worker has not been woken for it yet?
    pub(in crate::listen) fn is_draining(&self) -> bool {
        self.register.0.drain.deadline().is_some()
    }

    /// The time at which half of the remaining time for draining is over.
    pub(in crate::listen) fn drain_midpoint(&self) -> Instant {
        let now = clock::now();
        let left = self.register.0.drain.deadline();
        left.map_or(now, |deadline| {
            now + deadline.saturating_duration_since(now) / 2
        })
    }

    /// Ready when the connection must make room.
    pub(in crate::listen) fn poll_evicted(&self, cx: &Context<'_>) -> Poll<()> {
        let mut table = self.register.0.table.borrow_mut();
        let entry = &mut table.entries[self.at as usize];
        if entry.evicted {
            return Poll::Ready(());
        }
        match &mut entry.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        Poll::Pending
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.set_busy();
        self.register.0.table.borrow_mut().remove(self.at);
    }
}

#[cfg(test)]
mod tests;
