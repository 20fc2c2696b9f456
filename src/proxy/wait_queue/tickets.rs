//! What one request has in lines, which may be several: its turn is the last of theirs, and it goes on in all at once.

use super::queue::{Position, Waiter};
use super::{QueueKey, QueueShard, WaitQueues, WorkerQueues, lock, name};
use crate::clock;
use crate::limit::Limit;
use crate::store::Reservation;
use smallvec::SmallVec;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;
use tokio::time::Instant;

/// Where a held request stands in one line.
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
    /// The request has gone on.
    used: Cell<bool>,
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
    fn over(&self) -> Option<WaitTooLong> {
        Some(WaitTooLong {
            limit: Arc::clone(&self.limit),
            again: self.spot.over()?,
        })
    }
}

impl Tickets {
    /// Takes a ticket for each of `places` of a request that came at `arrival` and may go on when it is `due`. One with places
    /// in several queues stands still in each, and its turn is the last of theirs.
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

    /// Its turn has come: the request goes on in all of its lines, unless it has to wait for those in front. Returns the places
    /// that it has used up, if it does.
    ///
    /// # Errors
    /// When its turn would come too late.
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

    /// Did its turn pass while the gateway stood still, so that it waits for another?
    #[must_use]
    pub fn are_put_off(&self) -> bool {
        self.tickets.iter().any(|one| one.spot.is_put_off())
    }

    /// When its turn is, as things stand.
    #[must_use]
    pub fn until(&self) -> Instant {
        let turns = self.tickets.iter().map(|one| one.spot.until());
        turns.max().unwrap_or(self.due)
    }

    /// Resolves when it has moved up, or waits no more. With several places it stands still: its wait is the longest of
    /// theirs, and moving up in one line would not shorten it.
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
        // Everyone behind takes the place in front, and the last one is given back.
        let desk = &self.queues.desk;
        for Ticket { name, spot, .. } in &self.tickets {
            desk.with(name, |line| line.leave(spot, clock::now()));
        }
    }
}

/// Several lines, locked.
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

    /// When a request may go on that stands in all of these.
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
    /// All shards of these lines at once, in the one order in which they are locked.
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
