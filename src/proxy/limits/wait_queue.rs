//! The held requests of a gateway wait in queues, all workers together: when one leaves, later ones move up, and only
//! the last position is refunded.
//!
//! A position in the middle cannot be given back to the store: the wait of every later request depends on it. Inside
//! one gateway the waits can be recomputed. Several gateways share one queue in Redis, and the last position of one
//! gateway may be before another's. Such a position is kept, and its refund is tried every second until its turn.
//!
//! A request may be late because the gateway was paused. It is then released in turn as well: after the requests in
//! front of it, at the queue's rate. It is refused if that takes longer than the longest wait. The same applies to a
//! request that arrives while the queue is behind.
//!
//! Workers share the queues under locks. Only held requests take the locks, and they wait anyway. While there are
//! queues, a request that its limit admits at once also looks for a queue of its key.

mod leak;
mod queue;
mod tickets;

pub use tickets::{Tickets, WaitTooLong};

use crate::clock;
use crate::limit::LimitId;
use crate::store::{Amendment, Decider, PendingRefund, RefundOutcome, Reservation, Store};
use queue::{Position, WaitQueue};
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::mem;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};

/// The number of locks; with this number busy queues hardly ever wait for each other.
const SHARDS: usize = 16;
/// The time between two attempts to refund the positions that the store has kept.
const AGAIN: Duration = Duration::from_millis(900);
/// The longest time for which an ending worker waits for refunds.
const LAST: Duration = Duration::from_secs(1);

/// The name of a queue: one for each limit and key, and for each store that counts them.
type QueueKey = (LimitId, Box<[u8]>, Decider);

type QueueShard = HashMap<QueueKey, WaitQueue>;

/// All queues of a gateway.
#[derive(Debug)]
pub struct WaitQueues {
    shards: [Mutex<QueueShard>; SHARDS],
    hasher: RandomState,
    /// The number of queues.
    count: AtomicUsize,
    swept: Mutex<Option<Instant>>,
}

/// One worker's handle to the queues.
#[derive(Debug)]
pub struct WorkerQueues {
    desk: Rc<RefundDesk>,
    task: Option<AbortHandle>,
}

/// The part of a worker that refunds positions.
#[derive(Debug)]
struct RefundDesk {
    all: Arc<WaitQueues>,
    store: Store,
    /// Refunds whose answers are awaited, in order.
    groups: RefCell<VecDeque<RefundBatch>>,
    /// The number of unfinished batches.
    open: Cell<usize>,
    work: Notify,
    quiet: Notify,
}

/// Positions of one queue that are being refunded. If the batch is dropped without an answer, the positions are lost,
/// and the queue continues.
#[derive(Debug)]
struct RefundBatch {
    all: Arc<WaitQueues>,
    name: QueueKey,
    places: Vec<(Position, PendingRefund)>,
    is_answered: bool,
}

impl Default for WaitQueues {
    fn default() -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            hasher: RandomState::new(),
            count: AtomicUsize::new(0),
            swept: Mutex::default(),
        }
    }
}

impl WaitQueues {
    fn number(&self, name: &QueueKey) -> usize {
        usize::try_from(self.hasher.hash_one(name) % SHARDS as u64).unwrap_or_default()
    }

    fn shard(&self, name: &QueueKey) -> MutexGuard<'_, QueueShard> {
        lock(&self.shards[self.number(name)])
    }

    fn forget_empty(&self, shard: &mut QueueShard, name: &QueueKey, now: Instant) {
        if shard.get(name).is_some_and(|line| line.is_empty(now)) {
            shard.remove(name);
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Is it time for another attempt at the positions that the store has kept? Returns true once for all workers.
    fn is_time(&self, now: Instant) -> bool {
        let mut swept = lock(&self.swept);
        let is_time = swept.is_none_or(|last| now.duration_since(last) >= AGAIN);
        if is_time {
            *swept = Some(now);
        }
        is_time
    }
}

impl WorkerQueues {
    /// A worker's handle to `all`, created on the worker's own thread.
    #[must_use]
    pub fn new(all: &Arc<WaitQueues>, store: &Store) -> Self {
        let desk = Rc::new(RefundDesk {
            all: Arc::clone(all),
            store: store.clone(),
            groups: RefCell::default(),
            open: Cell::new(0),
            work: Notify::new(),
            quiet: Notify::new(),
        });
        let weak_desk = Rc::downgrade(&desk);
        store.on_abandoned_ticket(move |charge| {
            if let Some(desk) = weak_desk.upgrade() {
                let until = clock::now() + charge.turn;
                desk.join(&name(&charge), Position::left(until, charge));
            }
        });
        // The memory store answers a refund at once.
        let task = match store {
            Store::Memory(_) => None,
            Store::Shared(_) => {
                let served = Rc::clone(&desk).serve();
                Some(tokio::task::spawn_local(served).abort_handle())
            }
        };
        Self { desk, task }
    }

    /// Is there any queue?
    #[must_use]
    pub fn exist(&self) -> bool {
        self.desk.all.count.load(Ordering::Relaxed) > 0
    }

    /// Is there a queue for any of these charges? A request without a wait passes such a queue only in turn.
    #[must_use]
    pub fn is_any(&self, charges: &[Reservation]) -> bool {
        let mut names = charges.iter().map(name);
        names.any(|name| self.desk.all.shard(&name).contains_key(&name))
    }

    /// Retries the refunds of kept positions, and drops those whose turn has passed. Called about once a second.
    pub fn sweep(&self) {
        let now = clock::now();
        if !self.desk.all.is_time(now) {
            return;
        }
        for shard in &self.desk.all.shards {
            let mut shard = lock(shard);
            for (name, line) in shard.iter_mut() {
                line.forget_passed(now);
                line.retry(1);
                self.desk.give_back(name, line);
            }
            let before = shard.len();
            shard.retain(|_, line| !line.is_empty(now));
            let gone = before - shard.len();
            self.desk.all.count.fetch_sub(gone, Ordering::Relaxed);
            if shard.capacity() > 64 && shard.capacity() / 4 > shard.len() {
                let room = shard.len() * 2;
                shard.shrink_to(room);
            }
        }
    }

    /// Waits, for at most a second, until all refunds are finished.
    pub async fn settle(&self) {
        let settled = async {
            while self.desk.open.get() > 0 {
                self.desk.quiet.notified().await;
            }
        };
        let _ = timeout(LAST, settled).await;
    }
}

impl Drop for WorkerQueues {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl RefundDesk {
    /// Adds a position to its queue, which is created if there is none.
    fn join(&self, name: &QueueKey, place: Position) {
        let mut shard = self.all.shard(name);
        let line = shard.entry(name.clone()).or_insert_with(|| {
            self.all.count.fetch_add(1, Ordering::Relaxed);
            WaitQueue::default()
        });
        let now = clock::now();
        line.forget_passed(now);
        line.join(place, now);
        self.give_back(name, line);
        self.all.forget_empty(&mut shard, name, now);
    }

    /// Does `work` on a queue, if it exists, and refunds the positions that are free afterwards.
    fn with(&self, name: &QueueKey, work: impl FnOnce(&mut WaitQueue)) {
        let mut shard = self.all.shard(name);
        if let Some(line) = shard.get_mut(name) {
            work(line);
            self.give_back(name, line);
            self.all.forget_empty(&mut shard, name, clock::now());
        }
    }

    /// Refunds the free positions at the end of a queue, the last one first. The queue waits for the store's answer
    /// before the next refund; otherwise a position could reach the store before a later position.
    fn give_back(&self, name: &QueueKey, line: &mut WaitQueue) {
        while !line.is_returning {
            let last = line.take_last();
            if last.is_empty() {
                return;
            }
            let (mut places, mut any) = (Vec::new(), false);
            for place in last {
                match self.store.amend(&place.charge, Amendment::Refund) {
                    RefundOutcome::Refunded => any = true,
                    RefundOutcome::Declined => line.keep(place),
                    RefundOutcome::Lost => {}
                    RefundOutcome::Pending(soon) => places.push((place, soon)),
                }
            }
            if any {
                line.retry(usize::MAX);
            }
            if !places.is_empty() {
                line.is_returning = true;
                self.open.set(self.open.get() + 1);
                self.groups.borrow_mut().push_back(RefundBatch {
                    all: Arc::clone(&self.all),
                    name: name.clone(),
                    places,
                    is_answered: false,
                });
                self.work.notify_one();
            }
        }
    }

    /// Processes the answers about positions, until the worker ends.
    async fn serve(self: Rc<Self>) {
        loop {
            let next = self.groups.borrow_mut().pop_front();
            match next {
                Some(group) => {
                    self.hear(group).await;
                    self.open.set(self.open.get() - 1);
                    self.quiet.notify_waiters();
                }
                None => self.work.notified().await,
            }
        }
    }

    async fn hear(&self, mut group: RefundBatch) {
        let (mut kept, mut any) = (Vec::new(), false);
        let mut places = mem::take(&mut group.places).into_iter();
        for (place, soon) in places.by_ref() {
            match soon.outcome().await {
                RefundOutcome::Refunded => any = true,
                RefundOutcome::Declined => kept.push(place),
                RefundOutcome::Lost | RefundOutcome::Pending(_) => {}
            }
        }
        group.is_answered = true;
        self.with(&group.name, |line| line.returned(kept, any, clock::now()));
    }
}

impl Drop for RefundBatch {
    fn drop(&mut self) {
        if self.is_answered {
            return;
        }
        let mut shard = self.all.shard(&self.name);
        if let Some(line) = shard.get_mut(&self.name) {
            line.is_returning = false;
        }
    }
}

fn name(charge: &Reservation) -> QueueKey {
    (charge.limit.id, charge.key.clone(), charge.by)
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
