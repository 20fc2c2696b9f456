//! The slots that a request in flight holds of limits on what is in flight. They are renewed in Redis while the request
//! lives, counted wherever requests are admitted meanwhile, and free again when it ends.

use crate::clock;
use crate::store::{Amendment, Decider, Reservation, SlotNews, Store};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use tokio::task::AbortHandle;
use tokio::time::timeout_at;

/// The slots of one request.
#[derive(Debug)]
pub(super) struct HeldSlots {
    slots: Rc<RefCell<Vec<HeldSlot>>>,
    /// The task that renews the slots in Redis, and has them counted elsewhere. Slots of this process alone need neither.
    task: Option<AbortHandle>,
}

/// One slot, which counts in one place, or in two from an outage on.
#[derive(Debug, Default)]
struct HeldSlot {
    in_redis: Option<Reservation>,
    here: Option<Reservation>,
}

impl HeldSlots {
    /// Keeps the slots that `charges` have taken, if there are any. The call is made on a worker's own thread.
    pub(super) fn keep(store: &Store, charges: Vec<Reservation>) -> Option<Self> {
        let rules = charges
            .iter()
            .filter_map(|charge| charge.limit.rule.holds());
        let shortest = rules.map(|rule| rule.ttl).min()?;
        let is_shared = charges.iter().any(|charge| charge.by != Decider::Memory);
        let mut slots: Vec<HeldSlot> = Vec::with_capacity(charges.len());
        for charge in charges {
            take_up(&mut slots, charge);
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
    pub(super) fn free(self, store: &Store) {
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
    let is_half = |slot: &HeldSlot| {
        let (own, other) = if is_redis {
            (&slot.in_redis, &slot.here)
        } else {
            (&slot.here, &slot.in_redis)
        };
        own.is_none() && other.as_ref().is_some_and(is_same)
    };
    let place = slots.iter().position(is_half);
    let place = place.unwrap_or_else(|| {
        slots.push(HeldSlot::default());
        slots.len() - 1
    });
    let slot = &mut slots[place];
    let own = if is_redis {
        &mut slot.in_redis
    } else {
        &mut slot.here
    };
    *own = Some(charge);
}

/// Has the slots held for longer each `pause`, and counted where requests are admitted from now on.
async fn follow(store: Store, slots: Rc<RefCell<Vec<HeldSlot>>>, pause: Duration) {
    let mut due = clock::now() + pause;
    // The news that Redis has gone away may have come before this task was there.
    for slot in slots.borrow_mut().iter_mut() {
        slot.count_here(&store);
    }
    loop {
        let news = timeout_at(due, store.slot_news()).await.ok();
        if news.is_none() {
            // From now on: a process that stood still has no missed renewals to make up for.
            due = clock::now() + pause;
        }
        for slot in slots.borrow_mut().iter_mut() {
            slot.follow(&store, news);
        }
    }
}

impl HeldSlot {
    /// Takes over the news, or without any is held for longer.
    fn follow(&mut self, store: &Store, news: Option<SlotNews>) {
        // In a cluster a part may go away while another comes back.
        self.count_here(store);
        let amendment = match news {
            None => Amendment::Renewal,
            Some(SlotNews::Away) => return,
            Some(SlotNews::Back) => {
                let HeldSlot { in_redis, here } = self;
                let beside = |here: &Reservation| store.count_beside(here, SlotNews::Back);
                *in_redis = in_redis.take().or_else(|| here.as_ref().and_then(beside));
                Amendment::Registration
            }
        };
        if let Some(slot) = &self.in_redis {
            store.amend(slot, amendment);
        }
    }

    /// Counts the slot in this process too, where the Redis that gave it is away.
    fn count_here(&mut self, store: &Store) {
        let HeldSlot { in_redis, here } = self;
        let beside = |slot: &Reservation| store.count_beside(slot, SlotNews::Away);
        *here = here.take().or_else(|| in_redis.as_ref().and_then(beside));
    }
}
