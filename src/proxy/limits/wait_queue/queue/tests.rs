//! Random histories of a queue: a held request moves up and never back, no request gets another's turn, and when all
//! requests have left, the queue is as empty as if none had arrived.

mod late;

use super::*;
use crate::clock::{Clock, Timestamp};
use crate::key::{KeyCase, KeyTemplate, MissingKey};
use crate::limit::leaky_bucket::LeakyBucket;
use crate::limit::rate::Rate;
use crate::limit::verdict::Ruling;
use crate::limit::{Limit, Policy, Rule, State};
use crate::store::{Amendment, Check, MemoryStore, RefundOutcome, Reservation};
use std::num::NonZeroU64;
use std::time::Duration;

const KEY: &[u8] = b"k";
/// The time between two turns, in microseconds.
const APART: u64 = 1_000;
const QUEUE: u32 = 12;

/// One gateway's queue before a store that others may share.
struct World {
    store: MemoryStore,
    limit: Arc<Limit>,
    began: Instant,
    /// Microseconds since `start`.
    passed: u64,
    line: WaitQueue,
    /// The requests held here, in the order of their arrival, with the last turn of each.
    held: Vec<(Arc<Waiter>, Instant)>,
    /// The requests that another gateway holds until their turn or until they leave.
    others: Vec<(Instant, Reservation)>,
    rng: fastrand::Rng,
}

fn limit() -> Arc<Limit> {
    let rate = Rate {
        count: NonZeroU64::MIN,
        period: NonZeroU64::new(APART).unwrap(),
    };
    let rule = LeakyBucket::new(rate, NonZeroU64::MIN, QUEUE, 1_000_000);
    let by = KeyTemplate {
        parts: Vec::new(),
        missing: MissingKey::Shared,
        unknown: None,
        case: KeyCase::Sensitive,
    };
    let rule = Rule::LeakyBucket(rule);
    Arc::new(Limit::new(Policy::new("queue".into(), by, rate), rule))
}

impl World {
    fn new(seed: u64) -> Self {
        let clock = Clock::manual(Timestamp::from_micros(1_000_000));
        Self {
            store: MemoryStore::new(clock, 100),
            limit: limit(),
            began: Instant::now(),
            passed: 0,
            line: WaitQueue::default(),
            held: Vec::new(),
            others: Vec::new(),
            rng: fastrand::Rng::with_seed(seed),
        }
    }

    fn at(&self) -> Timestamp {
        Timestamp::from_micros(1_000_000 + self.passed)
    }

    fn now(&self) -> Instant {
        self.began + Duration::from_micros(self.passed)
    }

    /// Checks a request with the store. Returns its turn and its position, if it is to be held.
    fn asks(&mut self) -> Option<(Instant, Reservation)> {
        let check = Check::new(&self.limit, KEY);
        let decided = self.store.at(self.at()).decide(&[check]);
        let Ruling::Admit { delay: delay @ 1.. } = decided.decision.ruling else {
            return None;
        };
        let charge = decided.reservation(0, &check).unwrap();
        Some((self.now() + Duration::from_micros(delay), charge))
    }

    fn joins(&mut self) {
        if let Some((until, charge)) = self.asks() {
            self.stands(until, charge);
        }
    }

    fn stands(&mut self, until: Instant, charge: Reservation) {
        let (place, spot) = Position::taken(self.now(), until, charge, false);
        self.line.forget_passed(self.now());
        self.line.join(place, self.now());
        self.held.push((spot, until));
        self.gives_back();
    }

    fn leaves(&mut self, index: usize) {
        let (spot, _) = self.held.remove(index);
        self.line.leave(&spot, self.now());
        self.gives_back();
    }

    /// Refunds free positions, as a worker does after each of these steps.
    fn gives_back(&mut self) {
        loop {
            let (last, mut any) = (self.line.take_last(), false);
            if last.is_empty() {
                return;
            }
            for place in last {
                if self.refunds(&place.charge) {
                    any = true
                } else {
                    self.line.keep(place)
                }
            }
            if any {
                self.line.retry(usize::MAX);
            }
        }
    }

    fn refunds(&self, charge: &Reservation) -> bool {
        let store = self.store.at(self.at());
        let outcome = store.amend(charge, Amendment::Refund);
        matches!(outcome, RefundOutcome::Refunded)
    }

    fn sweeps(&mut self) {
        self.line.forget_passed(self.now());
        self.line.retry(1);
        self.gives_back();
    }

    fn passes(&mut self, micros: u64) {
        self.passed += micros;
        let now = self.now();
        let due = |(spot, _): &(Arc<Waiter>, Instant)| spot.until() <= now;
        while let Some(index) = self.held.iter().position(due) {
            let (spot, _) = self.held.remove(index);
            assert!(self.line.used(&spot, now).is_some());
        }
        self.others.retain(|(until, _)| *until > now);
    }

    /// Checks the invariants.
    fn check(&mut self) {
        let now = self.now();
        let mut turns: Vec<Instant> = Vec::new();
        for (spot, last) in &mut self.held {
            let until = spot.until();
            assert!(until <= *last, "it waits longer than it was told");
            assert!(until > now && turns.last().is_none_or(|front| *front < until));
            *last = until;
            turns.push(until);
        }
        turns.extend(self.others.iter().map(|(until, _)| *until));
        turns.sort();
        let spacing = Duration::from_micros(APART);
        assert!(
            turns.windows(2).all(|two| two[1] - two[0] >= spacing),
            "{turns:?}"
        );
    }

    /// The wait of the next request.
    fn wait(&self) -> u64 {
        match self.store.stored(&self.limit, KEY) {
            Some(State::Bucket(state)) => state.at.saturating_sub(self.at().micros()),
            _ => 0,
        }
    }
}

#[test]
fn alone_a_gateway_loses_no_place() {
    for seed in 0..300 {
        let mut world = World::new(seed);
        for _ in 0..200 {
            match world.rng.u8(..8) {
                0..=3 => world.joins(),
                4..=6 if !world.held.is_empty() => {
                    let index = world.rng.usize(..world.held.len());
                    world.leaves(index);
                }
                _ => {
                    let micros = world.rng.u64(..2 * APART);
                    world.passes(micros);
                }
            }
            world.check();
            // The held requests and the last released one are the whole content of the bucket.
            let (most, held) = (world.wait(), world.held.len() as u64);
            assert!(
                most <= (held + 1) * APART,
                "seed {seed}: {most} us, {held} held"
            );
        }
    }
}

#[test]
fn beside_another_gateway_nobody_has_anothers_turn_and_all_comes_back() {
    for seed in 0..300 {
        let mut world = World::new(seed);
        // Requests that are decided, but not yet in the queue.
        let mut on_their_way: Vec<(Instant, Reservation)> = Vec::new();
        for _ in 0..200 {
            match world.rng.u8(..12) {
                0..=2 => world.joins(),
                3 => on_their_way.extend(world.asks()),
                4 if !on_their_way.is_empty() => {
                    let (until, charge) = on_their_way.remove(0);
                    if until > world.now() {
                        world.stands(until, charge);
                        // Requests are ordered by the store, not by their arrival.
                        world.held.sort_by_key(|(spot, _)| spot.until());
                    }
                }
                5 => {
                    let asked = world.asks();
                    world.others.extend(asked);
                }
                6 if !world.others.is_empty() => {
                    // The other gateway moves its own requests up, so that its last position is freed.
                    if let Some((until, charge)) = world.others.pop()
                        && !world.refunds(&charge)
                    {
                        world.others.push((until, charge));
                    }
                }
                7..=9 if !world.held.is_empty() => {
                    let index = world.rng.usize(..world.held.len());
                    world.leaves(index);
                }
                10 => world.sweeps(),
                _ => {
                    let micros = world.rng.u64(..APART);
                    world.passes(micros);
                }
            }
            world.check();
        }
    }
}

#[test]
fn a_place_behind_which_another_gateway_stood_comes_back_when_it_has_left() {
    let mut world = World::new(0);
    world.joins();
    for _ in 0..3 {
        world.joins();
    }
    let other = world.asks().unwrap();
    for index in [1, 0, 0] {
        world.leaves(index);
    }
    assert_eq!(world.wait(), 5 * APART, "the other's turn is what it was");
    assert!(world.refunds(&other.1));
    assert_eq!(world.wait(), 4 * APART);
    world.sweeps();
    assert_eq!(world.wait(), APART);
    assert!(world.line.is_empty(world.now()));
}

#[test]
fn who_joins_behind_a_place_that_was_kept_moves_up_into_it() {
    let mut world = World::new(0);
    world.joins();
    world.joins();
    // The store's answer is pending when the request in front leaves.
    let (until, charge) = world.asks().unwrap();
    world.leaves(0);
    assert_eq!(world.wait(), 3 * APART);
    world.stands(until, charge);
    let moved = world.held[0].0.until();
    assert_eq!(until - moved, Duration::from_micros(APART));
    assert_eq!(world.wait(), 2 * APART);
}

#[test]
fn who_waits_in_several_queues_stands_still_and_blocks_only_until_it_leaves() {
    let mut world = World::new(0);
    world.joins();
    world.joins();
    let (until, charge) = world.asks().unwrap();
    let (place, spot) = Position::taken(world.now(), until, charge, true);
    world.line.join(place, world.now());
    world.joins();
    world.leaves(0);
    assert_eq!(spot.until(), until);
    assert_eq!(world.wait(), 4 * APART, "two stand behind the free place");
    world.leaves(0);
    assert_eq!(world.wait(), 3 * APART);
    world.line.leave(&spot, world.now());
    world.gives_back();
    assert_eq!(world.wait(), APART);
    assert!(world.line.is_empty(world.now()));
}
