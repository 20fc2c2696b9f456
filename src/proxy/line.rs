//! The held of one worker stand in line: when one leaves, those behind move up, and only the last place is given back.
//!
//! A place in the middle cannot go back to the store: whoever came later was told a wait that counts on it. Inside one
//! worker the waits can be told anew (notes: `algorithms`, section 3.7).

use crate::limit::LimitId;
use crate::store::{Charge, DecidedBy};
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::mem;
use std::rc::Rc;
use tokio::sync::Notify;
use tokio::time::Instant;

/// One line for each limit and key, and for each that counts.
type Name = (LimitId, Box<[u8]>, DecidedBy);

/// All lines of one worker.
#[derive(Debug, Default)]
pub struct Lines(RefCell<HashMap<Name, VecDeque<Rc<Spot>>>>);

/// A held request's spot in its line.
#[derive(Debug)]
pub struct Spot {
    name: Name,
    until: Cell<Instant>,
    charge: RefCell<Charge>,
    moved: Notify,
}

impl Lines {
    /// Takes the spot that `charge` has paid for, due at `until`.
    #[must_use]
    pub fn join(&self, until: Instant, charge: Charge, by: DecidedBy) -> Rc<Spot> {
        let name = (charge.limit.id, charge.key.clone(), by);
        let spot = Rc::new(Spot {
            name: name.clone(),
            until: Cell::new(until),
            charge: RefCell::new(charge),
            moved: Notify::new(),
        });
        let mut lines = self.0.borrow_mut();
        let line = lines.entry(name).or_default();
        // Answers of a store may overtake each other.
        let behind = line.iter().rposition(|other| other.until.get() <= until);
        line.insert(behind.map_or(0, |at| at + 1), Rc::clone(&spot));
        spot
    }

    /// The request goes on: its spot is used up.
    pub fn used(&self, spot: &Rc<Spot>) {
        self.remove(spot);
    }

    /// The request leaves: everyone behind takes the spot in front. Returns the charge that nobody needs any more.
    #[must_use]
    pub fn leave(&self, spot: &Rc<Spot>) -> Charge {
        let behind = self.remove(spot);
        let cost = spot.charge.borrow().ticket.cost;
        if behind
            .iter()
            .any(|later| later.charge.borrow().ticket.cost != cost)
        {
            // Their places are of different lengths, since a reload: nobody moves, and the store decides.
            return spot.charge.borrow().clone();
        }
        let mut until = spot.until.get();
        for later in behind {
            until = later.until.replace(until);
            let (mut left, mut taken) = (spot.charge.borrow_mut(), later.charge.borrow_mut());
            mem::swap(&mut *left, &mut *taken);
            // The place is another's now; what is remembered of an id is whose id it is.
            mem::swap(&mut left.ticket.record, &mut taken.ticket.record);
            later.moved.notify_one();
        }
        spot.charge.borrow().clone()
    }

    /// Takes a spot out of its line; returns those behind it.
    fn remove(&self, spot: &Rc<Spot>) -> Vec<Rc<Spot>> {
        let mut lines = self.0.borrow_mut();
        let Some(line) = lines.get_mut(&spot.name) else {
            return Vec::new();
        };
        let Some(at) = line.iter().position(|other| Rc::ptr_eq(other, spot)) else {
            return Vec::new();
        };
        line.remove(at);
        let behind = line.iter().skip(at).cloned().collect();
        if line.is_empty() {
            lines.remove(&spot.name);
        }
        behind
    }
}

impl Spot {
    /// When its turn is, as things stand.
    #[must_use]
    pub fn until(&self) -> Instant {
        self.until.get()
    }

    /// Its place, when the limit wants it back from who is given up.
    #[must_use]
    pub fn kept(&self) -> Option<Charge> {
        let charge = self.charge.borrow();
        charge.limit.gives_back.cancels.then(|| charge.clone())
    }

    /// Resolves when it has moved up.
    pub async fn moved(&self) {
        self.moved.notified().await;
    }
}
