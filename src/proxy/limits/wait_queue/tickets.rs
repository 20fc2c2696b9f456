//! The positions of one request, in one queue or in several: its turn is the last of them, and it is released from all
//! at once.

use crate::clock;
use crate::limit::Limit;
use crate::proxy::limits::wait_queue::queue::{Position, Waiter};
use crate::proxy::limits::wait_queue::{
    QueueKey, QueueShard, WaitQueues, WorkerQueues, lock, name,
};
use crate::store::Reservation;
use smallvec::SmallVec;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;
use tokio::time::Instant;

/// The position of a held request in one queue.
#[derive(Debug)]
struct Ticket {
    name: QueueKey,
    spot: Arc<Waiter>,
    limit: Arc<Limit>,
}

/// The tickets of one request, given back when dropped: a request that leaves before it is forwarded frees them.
#[derive(Debug)]
pub struct Tickets {
    queues: Rc<WorkerQueues>,
    tickets: Vec<Ticket>,
    due: Instant,
    /// The request was released.
    used: Cell<bool>,
}

/// A request would wait longer than its limit allows.
#[derive(Debug)]
pub struct WaitTooLong {
    /// The limit whose queue contains the request.
    pub limit: Arc<Limit>,
    /// The time after which a new request would not wait too long.
    pub retry_after: Duration,
}

impl Ticket {
    fn over(&self) -> Option<WaitTooLong> {
        Some(WaitTooLong {
            limit: Arc::clone(&self.limit),
            retry_after: self.spot.over()?,
        })
    }
}

impl Tickets {
    /// Takes a ticket for each of `places` of a request that arrived at `arrival` and is `due` then. A request with
    /// positions in several queues does not move in any, and its turn is the last of them.
    #[must_use]
    pub fn new(
        queues: &Rc<WorkerQueues>,
        places: Vec<Reservation>,
        arrival: Instant,
        due: Instant,
    ) -> Self {
        let of_several = places.len() > 1;
        let join = |charge: Reservation| {
            let (name, limit) = (name(&charge), Arc::clone(&charge.limit));
            let (place, spot) = Position::taken(arrival, due, charge, of_several);
            queues.desk.join(&name, place);
            Ticket { name, spot, limit }
        };
        Self {
            tickets: places.into_iter().map(join).collect(),
            queues: Rc::clone(queues),
            due,
            used: Cell::new(false),
        }
    }

    /// Releases the request from all of its queues, if its turn has come and it need not wait for requests in front.
    /// Returns the used charges, if it is released.
    ///
    /// # Errors
    /// If its turn would come too late.
    pub fn go_on(&self, now: Instant) -> Result<Option<Vec<Reservation>>, WaitTooLong> {
        let (desk, standing) = (&self.queues.desk, &self.tickets);
        if let Some(over) = standing.iter().find_map(Ticket::over) {
            return Err(over);
        }
        if standing.iter().any(|one| one.spot.until() > now) {
            return Ok(None);
        }
        let mut lines = desk.all.together(standing);
        let turn = lines.turn(standing, now);
        let mut used = Vec::new();
        for one in standing {
            let Some(shard) = lines.shard(&one.name) else {
                continue;
            };
            let Some(line) = shard.get_mut(&one.name) else {
                continue;
            };
            match turn {
                Some(turn) if turn <= now => used.extend(line.used(&one.spot, now)),
                Some(turn) if standing.len() > 1 => line.put_off(&one.spot, turn, now),
                Some(_) | None => {}
            }
            desk.give_back(&one.name, line);
            desk.all.forget_empty(shard, &one.name, now);
        }
        if let Some(over) = standing.iter().find_map(Ticket::over) {
            return Err(over);
        }
        self.used.set(turn.is_none_or(|turn| turn <= now));
        Ok(self.used.get().then_some(used))
    }

    /// Did the request's turn pass while the gateway was paused, so that it waits for another?
    #[must_use]
    pub fn are_put_off(&self) -> bool {
        self.tickets.iter().any(|one| one.spot.is_put_off())
    }

    /// The current time of the request's turn.
    #[must_use]
    pub fn until(&self) -> Instant {
        let turns = self.tickets.iter().map(|one| one.spot.until());
        turns.max().unwrap_or(self.due)
    }

    /// Resolves when the request has moved up, or no longer waits. A request with several positions does not move: its
    /// wait is the longest of them, and moving up in one queue would not shorten it.
    pub async fn changed(&self) {
        match &*self.tickets {
            [alone] => alone.spot.changed().await,
            _ => std::future::pending().await,
        }
    }
}

impl Drop for Tickets {
    fn drop(&mut self) {
        if self.used.get() {
            return;
        }
        // Later requests move up, and the last position is refunded.
        let desk = &self.queues.desk;
        for Ticket { name, spot, .. } in &self.tickets {
            desk.with(name, |line| line.leave(spot, clock::now()));
        }
    }
}

/// Several queues, locked.
struct LockedQueues<'a> {
    all: &'a WaitQueues,
    shards: SmallVec<[(usize, MutexGuard<'a, QueueShard>); 2]>,
}

impl LockedQueues<'_> {
    fn shard(&mut self, name: &QueueKey) -> Option<&mut QueueShard> {
        let number = self.all.number(name);
        let mut shards = self.shards.iter_mut();
        Some(&mut *shards.find(|(of, _)| *of == number)?.1)
    }

    /// The time at which a request in all of these queues may be released.
    fn turn(&mut self, standing: &[Ticket], now: Instant) -> Option<Instant> {
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
    /// Locks all shards of these queues at once, in the one order that all callers use.
    fn together(&self, standing: &[Ticket]) -> LockedQueues<'_> {
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
