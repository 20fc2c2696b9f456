//! What one request has in lines, which may be several: its turn is the last of theirs, and it goes on in all at once.

use super::queue::Waiter;
use super::{QueueKey, QueueShard, WaitQueues, lock};
use crate::limit::Limit;
use crate::store::Reservation;
use smallvec::SmallVec;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;
use tokio::time::Instant;

/// Where a held request stands.
#[derive(Debug)]
pub struct Ticket {
    pub(super) name: QueueKey,
    pub(super) spot: Arc<Waiter>,
    pub(super) limit: Arc<Limit>,
}

/// A request that is to be held, as its queues see it.
#[derive(Debug, Clone, Copy)]
pub struct QueuedRequest {
    /// When it came.
    pub arrival: Instant,
    /// When it may go on.
    pub due: Instant,
    /// It has places in several queues: it stands still in each, and its turn is the last of theirs.
    pub of_several: bool,
}

/// What a request may do that stands in lines.
#[derive(Debug)]
pub enum Advance {
    /// It goes on, and has used these places up.
    Now(Vec<Reservation>),
    /// It waits on.
    Later,
}

/// A request would wait longer than its limit allows.
#[derive(Debug)]
pub struct WaitTooLong {
    /// Whose queue it stands in.
    pub limit: Arc<Limit>,
    /// After how long one that came then would not.
    pub again: Duration,
}

impl Ticket {
    /// When its turn is, as things stand.
    #[must_use]
    pub fn until(&self) -> Instant {
        self.spot.until()
    }

    /// Did its turn pass while the gateway stood still, so that it waits for another?
    #[must_use]
    pub fn is_put_off(&self) -> bool {
        self.spot.is_put_off()
    }

    /// Resolves when it has moved up, or waits no more.
    pub async fn changed(&self) {
        self.spot.changed().await;
    }

    pub(super) fn over(&self) -> Option<WaitTooLong> {
        Some(WaitTooLong {
            limit: Arc::clone(&self.limit),
            again: self.spot.over()?,
        })
    }
}

/// Several lines, locked.
pub(super) struct LockedQueues<'a> {
    all: &'a WaitQueues,
    shards: SmallVec<[(usize, MutexGuard<'a, QueueShard>); 2]>,
}

impl LockedQueues<'_> {
    pub(super) fn shard(&mut self, name: &QueueKey) -> Option<&mut QueueShard> {
        let number = self.all.number(name);
        let mut shards = self.shards.iter_mut();
        Some(&mut *shards.find(|(of, _)| *of == number)?.1)
    }

    /// When a request may go on that stands in all of these.
    pub(super) fn turn(&mut self, standing: &[Ticket], now: Instant) -> Option<Instant> {
        let mut turn = now;
        for one in standing {
            let line = self.shard(&one.name);
            if let Some(line) = line.and_then(|shard| shard.get_mut(&one.name)) {
                turn = turn.max(line.turn(&one.spot, now)?);
            }
        }
        Some(turn)
    }
}

impl WaitQueues {
    /// All shards of these lines at once, in the one order in which they are locked.
    pub(super) fn together(&self, standing: &[Ticket]) -> LockedQueues<'_> {
        let numbers = standing.iter().map(|one| self.number(&one.name));
        let mut numbers: SmallVec<[usize; 2]> = numbers.collect();
        numbers.sort_unstable();
        numbers.dedup();
        let locked = |number: usize| (number, lock(&self.shards[number]));
        LockedQueues {
            all: self,
            shards: numbers.into_iter().map(locked).collect(),
        }
    }
}
