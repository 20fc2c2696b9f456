//! The `concurrency` slots of a request in flight. They are renewed in Redis while the request lives, counted in every
//! store that admits requests meanwhile, and freed when the request ends.

use crate::clock;
use crate::store::{Amendment, Decider, Reservation, Store};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use tokio::task::AbortHandle;

/// The slots of one request.
#[derive(Debug)]
pub(in crate::proxy) struct HeldSlots {
    slots: Rc<RefCell<Vec<HeldSlot>>>,
    /// The task that renews the slots in Redis. Slots of this process alone do not lapse, and need no task.
    task: Option<AbortHandle>,
}

/// One slot, which may count in both stores.
#[derive(Debug, Default)]
struct HeldSlot {
    in_redis: Option<Reservation>,
    here: Option<Reservation>,
}

impl HeldSlot {
    /// Makes a slot of Redis count here too, and a slot that was given here since a call to Redis had no answer count
    /// in Redis.
    fn count_elsewhere(&mut self, store: &Store) {
        match (&self.in_redis, &self.here) {
            (Some(slot), None) => self.here = store.slot_here(slot),
            (None, Some(slot)) if store.asks_redis_about(slot) => {
                self.in_redis = Store::slot_in_redis(slot);
                if let Some(slot) = &self.in_redis {
                    store.amend(slot, Amendment::Renewal);
                }
            }
            _ => {}
        }
    }
}

impl HeldSlots {
    /// Keeps the slots that `charges` have taken, if there are any. Must be called on a worker's own thread.
    pub(in crate::proxy) fn keep(store: &Store, charges: Vec<Reservation>) -> Option<Self> {
        let rules = charges
            .iter()
            .filter_map(|charge| charge.limit.rule.concurrency());
        let shortest = rules.map(|rule| rule.ttl).min()?;
        let is_shared = charges.iter().any(|charge| charge.by != Decider::Memory);
        let mut slots: Vec<HeldSlot> = Vec::with_capacity(charges.len());
        for charge in charges {
            take_up(&mut slots, charge);
        }
        for slot in &mut slots {
            slot.count_elsewhere(store);
        }
        let slots = Rc::new(RefCell::new(slots));
        let task = is_shared.then(|| {
            let pause = Duration::from_micros(shortest / 3);
            let following = follow(store.clone(), Rc::clone(&slots), pause);
            tokio::task::spawn_local(following).abort_handle()
        });
        Some(Self { slots, task })
    }

    /// Frees the slots.
    pub(in crate::proxy) fn free(self, store: &Store) {
        if let Some(task) = &self.task {
            task.abort();
        }
        for slot in self.slots.take() {
            for charge in slot.in_redis.iter().chain(&slot.here) {
                store.amend(charge, Amendment::Refund);
            }
        }
    }
}

/// Adds a charge to the slot of the same counter, which may have been taken in two places at once.
fn take_up(slots: &mut Vec<HeldSlot>, charge: Reservation) {
    let is_redis = charge.by == Decider::Redis;
    let is_same =
        |other: &Reservation| other.limit.id == charge.limit.id && other.key == charge.key;
    let lacks_place = |slot: &HeldSlot| {
        let (same, other) = if is_redis {
            (&slot.in_redis, &slot.here)
        } else {
            (&slot.here, &slot.in_redis)
        };
        same.is_none() && other.as_ref().is_some_and(is_same)
    };
    let place = slots.iter().position(lacks_place);
    let place = place.unwrap_or_else(|| {
        slots.push(HeldSlot::default());
        slots.len() - 1
    });
    let slot = &mut slots[place];
    let here = if is_redis {
        &mut slot.in_redis
    } else {
        &mut slot.here
    };
    *here = Some(charge);
}

/// Renews the slots at each interval of `pause`, and reports them to a server that may not know them.
async fn follow(store: Store, slots: Rc<RefCell<Vec<HeldSlot>>>, pause: Duration) {
    let mut due = clock::now() + pause;
    loop {
        let amendment = store.wants_slots(due).await;
        if amendment == Amendment::Renewal {
            // Counted from now: a paused process has no missed renewals to make up for.
            due = clock::now() + pause;
        }
        for HeldSlot { in_redis, here } in slots.borrow_mut().iter_mut() {
            if amendment == Amendment::Registration && in_redis.is_none() {
                *in_redis = here.as_ref().and_then(Store::slot_in_redis);
            }
            if let Some(slot) = in_redis {
                store.amend(slot, amendment);
            }
        }
    }
}
