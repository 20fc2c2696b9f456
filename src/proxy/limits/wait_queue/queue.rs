//! One wait queue: the positions that the store has granted this gateway for one key, in the store's order, and the
//! requests with these positions.
//!
//! A request after a free position moves up into it. The free positions are therefore at the end of the queue, and are
//! given back to the store one by one, the last one first. A free position before a request that cannot move stays a
//! hole: a request that joins the queue may move up into it, and the hole is given back after all later positions.

use crate::proxy::limits::wait_queue::leak::{GRACE, JITTER, Leak, LeakShare};
use crate::store::Reservation;
use std::collections::VecDeque;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The positions of one limit and key.
#[derive(Debug, Default)]
pub(super) struct WaitQueue {
    places: VecDeque<Position>,
    /// Positions are being refunded, and the store's answer is awaited.
    pub(super) is_returning: bool,
    /// The pace of the released requests.
    pace: Leak,
    /// The time until which the queue is behind the store's turns: the gateway was paused, and a new request is
    /// released after the queued ones.
    behind: Option<Instant>,
}

/// A charged place in the queue.
#[derive(Debug)]
pub(super) struct Position {
    /// The time of its turn.
    until: Instant,
    pub(super) charge: Reservation,
    share: LeakShare,
    /// Its turn passed without its request, and it has another turn.
    put_off: bool,
    /// Its request has positions in other queues too and waits for the last of them, so that the request is released
    /// later than `until`. The position does not move, and no request moves up into it when it becomes free.
    of_several: bool,
    taken: Option<Arc<Waiter>>,
    /// The store has refused the refund: a request of another gateway is after the position.
    kept: bool,
}

/// The state of a held request in its queue.
#[derive(Debug)]
pub(super) struct Waiter {
    /// The end of the request's longest wait.
    patience: Instant,
    turn: Mutex<DueTime>,
    changed: Notify,
}

#[derive(Debug)]
struct DueTime {
    until: Instant,
    put_off: bool,
    /// The request is to be refused, since its turn would come too late; its client may retry after this time.
    over: Option<Duration>,
}

impl Waiter {
    /// The current time of the request's turn.
    pub(super) fn until(&self) -> Instant {
        self.turn().until
    }

    /// Is the request's turn later than the store's, or never?
    pub(super) fn is_put_off(&self) -> bool {
        self.turn().put_off
    }

    /// The time after which a new request would find a turn, if this one has none within the longest wait.
    pub(super) fn over(&self) -> Option<Duration> {
        self.turn().over
    }

    /// Resolves when the request has moved up, or no longer waits.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    fn turn(&self) -> MutexGuard<'_, DueTime> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn move_to(&self, until: Instant) {
        self.turn().until = until;
        self.changed.notify_one();
    }

    /// The waiting request checks again when its old turn comes.
    fn put_off(&self, until: Instant) {
        let mut turn = self.turn();
        (turn.until, turn.put_off) = (until, true);
    }

    fn refuse(&self, retry_after: Duration) {
        let mut turn = self.turn();
        (turn.over, turn.put_off) = (Some(retry_after), true);
        drop(turn);
        self.changed.notify_one();
    }
}

impl Position {
    /// A position with a request that came at `arrived`, and that request's waiter.
    pub(super) fn taken(
        arrived: Instant,
        until: Instant,
        charge: Reservation,
        of_several: bool,
    ) -> (Self, Arc<Waiter>) {
        let place = Self {
            of_several,
            ..Self::left(until, charge)
        };
        let patience = arrived.checked_add(place.share.max_wait);
        let spot = Arc::new(Waiter {
            // A request in several queues waits for the longest of them, which may be longer than this queue's longest
            // wait.
            patience: patience.map_or(until, |patience| patience.max(until)),
            turn: Mutex::new(DueTime {
                until,
                put_off: false,
                over: None,
            }),
            changed: Notify::new(),
        });
        let taken = Some(Arc::clone(&spot));
        (Self { taken, ..place }, spot)
    }

    /// A position whose request has left before it could join the queue; its turn is at `until`.
    pub(super) fn left(until: Instant, charge: Reservation) -> Self {
        Self {
            until,
            share: LeakShare::of(&charge.limit, charge.ticket.cost),
            charge,
            put_off: false,
            of_several: false,
            taken: None,
            kept: false,
        }
    }

    /// Can a request still move up into this position?
    fn is_open(&self, now: Instant) -> bool {
        self.taken.is_none() && !self.of_several && self.until > now
    }

    /// Moves the request of `later` into this position, if that is possible.
    fn take_over(&mut self, later: &mut Self) {
        // Positions of different costs cannot be exchanged.
        if later.of_several || later.charge.ticket.cost != self.charge.ticket.cost {
            return;
        }
        let Some(spot) = later.taken.take() else {
            return;
        };
        // The turn of a position becomes known late if its request left before its worker had the answer.
        self.until = self.until.min(later.until);
        spot.move_to(self.until);
        self.taken = Some(spot);
        // The position has another request now; the record of an id stays with the request of that id.
        let (mine, theirs) = (&mut self.charge.ticket, &mut later.charge.ticket);
        mem::swap(&mut mine.record, &mut theirs.record);
        later.kept = false;
    }
}

impl WaitQueue {
    /// Inserts a position in its order: answers of a store may overtake each other.
    pub(super) fn join(&mut self, place: Position, now: Instant) {
        let is_taken = place.taken.is_some();
        let at = self.insert(place);
        let stood_still = is_taken && self.stood_still(at, now);
        self.move_up(now);
        if stood_still {
            self.retime(now);
        }
    }

    fn insert(&mut self, place: Position) -> usize {
        let at = place.charge.ticket.mark.order();
        let front = |other: &Position| other.charge.ticket.mark.order() <= at;
        let behind = self.places.iter().rposition(front);
        let at = behind.map_or(0, |at| at + 1);
        self.places.insert(at, place);
        at
    }

    /// Was the gateway paused while turns passed, so that the turn at `at` is not after the turns in front?
    fn stood_still(&self, at: usize, now: Instant) -> bool {
        let mut front = self.places.range(..at).filter(|place| place.has_its_turn());
        let last = front.next_back();
        let first = front.next().or(last);
        self.is_behind(now)
            || first.is_some_and(|place| place.is_late(now))
            || last.is_some_and(|place| place.until > self.places[at].until)
    }

    fn is_behind(&self, now: Instant) -> bool {
        self.behind.is_some_and(|behind| now < behind)
    }

    /// The time at which the request may be released, now or later; `None` if it cannot wait so long.
    pub(super) fn turn(&mut self, spot: &Arc<Waiter>, now: Instant) -> Option<Instant> {
        let place = &self.places[self.position(spot)?];
        if place.until > now {
            return Some(place.until);
        }
        let is_free = !self.counts(place, now) || self.pace.is_free(&place.share, now);
        if is_free && !place.is_late(now) {
            return Some(now);
        }
        self.retime(now);
        Some(self.places[self.position(spot)?].until)
    }

    /// Does the position count in the queue's pace? A request that waits for another queue is released when that queue
    /// allows it, as long as this one is on time.
    fn counts(&self, place: &Position, now: Instant) -> bool {
        !place.of_several || place.put_off || self.is_behind(now)
    }

    /// Notes that the request waits for another queue until `until`.
    pub(super) fn put_off(&mut self, spot: &Arc<Waiter>, until: Instant, now: Instant) {
        if let Some(at) = self.position(spot) {
            self.places[at].put_off_until(until, now);
            self.retime(now);
        }
    }

    /// Recomputes turns, since turns have passed unused: from now on all requests are released in sequence, in their
    /// order, at the queue's rate. A request that would wait too long is refused, and takes no turn.
    fn retime(&mut self, now: Instant) {
        let mut pace = self.pace;
        for place in &mut self.places {
            let waits_elsewhere = place.of_several && !place.put_off && place.until > now;
            if place.taken.is_none() || waits_elsewhere {
                continue;
            }
            let turn = pace.next(&place.share, place.until.max(now));
            if place.put_off_until(turn, now) {
                pace.went(&place.share, turn);
            }
        }
        self.behind = pace.leaked;
    }

    /// Notes that the request is released. Returns the used charge.
    pub(super) fn used(&mut self, spot: &Arc<Waiter>, now: Instant) -> Option<Reservation> {
        let place = self.places.remove(self.position(spot)?)?;
        if self.counts(&place, now) {
            self.pace.went(&place.share, now);
        }
        if self.is_behind(now) {
            self.behind = self.behind.max(self.pace.leaked);
        }
        Some(place.charge)
    }

    /// Notes that the request leaves, and lets later ones move up.
    pub(super) fn leave(&mut self, spot: &Arc<Waiter>, now: Instant) {
        if let Some(place) = self.position(spot).and_then(|at| self.places.get_mut(at)) {
            place.taken = None;
            place.kept = false;
        }
        self.move_up(now);
    }

    fn position(&self, spot: &Arc<Waiter>) -> Option<usize> {
        let is_of_charge = |place: &Position| {
            let taken = place.taken.as_ref();
            taken.is_some_and(|other| Arc::ptr_eq(other, spot))
        };
        self.places.iter().position(is_of_charge)
    }

    /// Each request takes the free position in front of it, in order: none overtakes another.
    fn move_up(&mut self, now: Instant) {
        let places = self.places.make_contiguous();
        let mut next = 0;
        for at in 0..places.len() {
            if !places[at].is_open(now) {
                continue;
            }
            let (front, behind) = places.split_at_mut(at + 1);
            next = next.max(at + 1);
            while behind
                .get(next - at - 1)
                .is_some_and(|place| place.taken.is_none())
            {
                next += 1;
            }
            let Some(later) = behind.get_mut(next - at - 1) else {
                return;
            };
            front[at].take_over(later);
        }
    }

    /// Removes the positions that can be refunded, the last one first, so that no request is after a refunded one.
    pub(super) fn take_last(&mut self) -> Vec<Position> {
        let mut last = Vec::new();
        while let Some(place) = self.places.pop_back_if(|place| place.can_go_back()) {
            last.push(place);
        }
        last
    }

    /// Keeps a position that the store has not taken back. A position that was charged under an id may also pay for a
    /// repeat: its refund is not retried, and no request takes it.
    pub(super) fn keep(&mut self, place: Position) {
        if place.charge.ticket.record.is_none() {
            let kept = true;
            self.insert(Position { kept, ..place });
        }
    }

    /// Marks kept positions for another attempt: perhaps no request is after them any more.
    pub(super) fn retry(&mut self, most: usize) {
        let free = self.places.iter_mut().rev();
        for place in free.take_while(|place| place.taken.is_none()).take(most) {
            place.kept = false;
        }
    }

    /// Notes the store's answer about positions: requests that have joined after a kept one move up.
    pub(super) fn returned(&mut self, kept: Vec<Position>, any: bool, now: Instant) {
        self.is_returning = false;
        for place in kept {
            self.keep(place);
        }
        self.move_up(now);
        if any {
            self.retry(usize::MAX);
        }
    }

    /// Drops free positions whose turn has passed unused.
    pub(super) fn forget_passed(&mut self, now: Instant) {
        self.places
            .retain(|place| place.taken.is_some() || place.until > now);
    }

    /// Is the queue without positions, pending refunds and late turns?
    pub(super) fn is_empty(&self, now: Instant) -> bool {
        self.places.is_empty() && !self.is_returning && !self.is_behind(now)
    }
}

impl Position {
    /// Does the position have a request that is released when its turn here has come?
    fn has_its_turn(&self) -> bool {
        self.taken.is_some() && !self.of_several
    }

    fn is_late(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.until) > JITTER
    }

    /// Moves the turn to `until`, if that is later. Returns false if `until` is too late for the request, which then
    /// loses its position.
    fn put_off_until(&mut self, until: Instant, now: Instant) -> bool {
        let Some(spot) = &self.taken else {
            return false;
        };
        if until <= self.until {
            return true;
        }
        if until > spot.patience + GRACE {
            spot.refuse(self.share.retry_after(until, now));
            (self.taken, self.kept) = (None, false);
            return false;
        }
        (self.until, self.put_off) = (until, true);
        spot.put_off(until);
        true
    }

    fn can_go_back(&self) -> bool {
        self.taken.is_none() && !self.kept
    }
}

#[cfg(test)]
mod tests;
