//! One line: the places of a queue that this gateway has been granted, in the queue's order, and who stands in them.
//!
//! Whoever stands behind a place that has come free moves up into it, so that what is free is the end of the line, and
//! can go back to the store place by place, the last one first. A free place in front of somebody who cannot move stays
//! a hole: whoever joins the line may move up into it, and it goes back when all behind it have.

use crate::store::Charge;
use std::collections::VecDeque;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;
use tokio::time::Instant;

/// The places of one limit and key.
#[derive(Debug, Default)]
pub(super) struct Line {
    places: VecDeque<Place>,
    /// Places are on their way back to the store, whose answer is awaited.
    pub(super) is_returning: bool,
}

/// A place in the queue, paid for.
#[derive(Debug)]
pub(super) struct Place {
    /// When its turn is.
    until: Instant,
    pub(super) charge: Charge,
    /// Whose it is has places in other queues too and waits for the last of them, so that `until` is not the turn of this
    /// one but later: it moves nowhere, and nobody moves up into what it leaves.
    of_several: bool,
    taken: Option<Arc<Spot>>,
    /// The store has not taken it back: somebody whom this gateway does not know stands behind it.
    kept: bool,
}

/// A held request's spot in its line.
#[derive(Debug)]
pub(super) struct Spot {
    until: Mutex<Instant>,
    moved: Notify,
}

impl Spot {
    /// When its turn is, as things stand.
    pub(super) fn until(&self) -> Instant {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resolves when it has moved up.
    pub(super) async fn moved(&self) {
        self.moved.notified().await;
    }

    fn move_to(&self, until: Instant) {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = until;
        self.moved.notify_one();
    }
}

impl Place {
    /// A place that is taken from the start, and who has it.
    pub(super) fn taken(until: Instant, charge: Charge, of_several: bool) -> (Self, Arc<Spot>) {
        let spot = Arc::new(Spot {
            until: Mutex::new(until),
            moved: Notify::new(),
        });
        let place = Self {
            until,
            charge,
            of_several,
            taken: Some(Arc::clone(&spot)),
            kept: false,
        };
        (place, spot)
    }

    /// A place whose request has left before it could stand anywhere; its turn is at `until`.
    pub(super) fn left(until: Instant, charge: Charge) -> Self {
        Self {
            until,
            charge,
            of_several: false,
            taken: None,
            kept: false,
        }
    }

    /// Can somebody still move up into it?
    fn is_open(&self, now: Instant) -> bool {
        self.taken.is_none() && !self.of_several && self.until > now
    }

    /// Whoever has `later` takes this one, if that can be.
    fn take_over(&mut self, later: &mut Self) {
        // Places of different lengths do not fit into each other.
        if later.of_several || later.charge.ticket.cost != self.charge.ticket.cost {
            return;
        }
        let Some(spot) = later.taken.take() else {
            return;
        };
        // Of a place that was left before anybody heard of it, the turn is known late.
        self.until = self.until.min(later.until);
        spot.move_to(self.until);
        self.taken = Some(spot);
        // The place is another's now; what is remembered of an id is whose id it is.
        let (mine, theirs) = (&mut self.charge.ticket, &mut later.charge.ticket);
        mem::swap(&mut mine.record, &mut theirs.record);
        later.kept = false;
    }
}

impl Line {
    /// Puts a place where it belongs: answers of a store overtake each other.
    pub(super) fn join(&mut self, place: Place, now: Instant) {
        self.insert(place);
        self.move_up(now);
    }

    fn insert(&mut self, place: Place) {
        let at = place.charge.ticket.mark.order();
        let front = |other: &Place| other.charge.ticket.mark.order() <= at;
        let behind = self.places.iter().rposition(front);
        self.places.insert(behind.map_or(0, |at| at + 1), place);
    }

    /// The request goes on. Returns what it has used up.
    pub(super) fn used(&mut self, spot: &Arc<Spot>) -> Option<Charge> {
        let at = self.position(spot)?;
        Some(self.places.remove(at)?.charge)
    }

    /// The request leaves, and those behind it move up.
    pub(super) fn leave(&mut self, spot: &Arc<Spot>, now: Instant) {
        if let Some(place) = self.position(spot).and_then(|at| self.places.get_mut(at)) {
            place.taken = None;
            place.kept = false;
        }
        self.move_up(now);
    }

    fn position(&self, spot: &Arc<Spot>) -> Option<usize> {
        let is_whose = |place: &Place| {
            let taken = place.taken.as_ref();
            taken.is_some_and(|other| Arc::ptr_eq(other, spot))
        };
        self.places.iter().position(is_whose)
    }

    /// Everyone takes the free place in front, in order: nobody overtakes another.
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

    /// What can go back to the store, the last place first, so that nobody stands behind the one that goes.
    pub(super) fn take_last(&mut self) -> Vec<Place> {
        let mut last = Vec::new();
        while let Some(place) = self.places.pop_back_if(|place| place.can_go_back()) {
            last.push(place);
        }
        last
    }

    /// The store has not taken it back. One that was charged under an id may have been paid for a repeat: it is not asked
    /// about again, nor taken by anybody.
    pub(super) fn keep(&mut self, place: Place) {
        if place.charge.ticket.record.is_none() {
            let kept = true;
            self.insert(Place { kept, ..place });
        }
    }

    /// Somebody stands behind what was kept no more, or may not: it can be tried again.
    pub(super) fn retry(&mut self, most: usize) {
        let free = self.places.iter_mut().rev();
        for place in free.take_while(|place| place.taken.is_none()).take(most) {
            place.kept = false;
        }
    }

    /// Places have come back from the store or not: those who have joined behind one that is kept move up.
    pub(super) fn returned(&mut self, kept: Vec<Place>, any: bool, now: Instant) {
        self.is_returning = false;
        for place in kept {
            self.keep(place);
        }
        self.move_up(now);
        if any {
            self.retry(usize::MAX);
        }
    }

    /// Forgets free places whose turn has passed unused.
    pub(super) fn forget_passed(&mut self, now: Instant) {
        self.places
            .retain(|place| place.taken.is_some() || place.until > now);
    }

    /// Is there nothing to remember?
    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty() && !self.is_returning
    }
}

impl Place {
    fn can_go_back(&self) -> bool {
        self.taken.is_none() && !self.kept
    }
}

#[cfg(test)]
mod tests;
