//! Leases of several gateways before one counter, on a simulated clock: no more is admitted than the limit allows, and
//! hardly less.

use super::*;
use crate::key::{KeyTemplate, MissingKey};
use crate::limit::clock_window::ClockWindow;
use crate::limit::rate::Rate;
use crate::limit::token_bucket::TokenBucket;
use crate::limit::{Policy, Rule};
use crate::store::check::Intent;
use crate::store::memory::MemoryStore;
use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroU64};

const SECOND: u64 = 1_000_000;
const NOON: u64 = 1_790_000_000_000_000;
const KEY: &[u8] = b"hot";
const GATEWAYS: usize = 3;
/// The limit's units in a second.
const COUNT: u32 = 2000;
/// How often a request asks its gateway before it asks for itself, as in `shared/lease_call`.
const PATIENCE: u32 = 4;
/// How long an answer may be on its way to a request when the permits end.
const LONGEST: u64 = 50_000;

enum Event {
    Request,
    Sent,
    Counted(LeaseOrder),
    Answered(LeaseOrder, Box<Answers>),
    Ended(LeaseCall),
}

/// A request that waits for a call: its number, and how often the request has asked.
type Waiting = (Option<u64>, u32);

struct World {
    clock: Clock,
    limit: Arc<Limit>,
    counter: MemoryStore,
    gateways: Vec<(Leases, Vec<Waiting>)>,
    events: BTreeMap<(u64, u64), (usize, Event)>,
    random: fastrand::Rng,
    numbers: u64,
    admitted: Vec<u64>,
    refused: u64,
    by_lease: u64,
}

impl World {
    fn new(rule: impl Fn(Rate) -> Rule, seed: u64) -> Self {
        let rate = Rate {
            count: NonZeroU32::new(COUNT).unwrap(),
            period: NonZeroU64::new(SECOND).unwrap(),
        };
        let by = KeyTemplate {
            parts: Vec::new(),
            missing: MissingKey::Shared,
            unknown: None,
        };
        let clock = Clock::manual(Timestamp::from_micros(NOON));
        let leases = || Leases::new(Invalidation::default(), clock.clone());
        Self {
            limit: Arc::new(Limit::new(Policy::new("hot".into(), by, rate), rule(rate))),
            counter: MemoryStore::new(clock.clone(), usize::MAX),
            gateways: (0..GATEWAYS).map(|_| (leases(), Vec::new())).collect(),
            clock,
            events: BTreeMap::new(),
            random: fastrand::Rng::with_seed(seed),
            numbers: 0,
            admitted: Vec::new(),
            refused: 0,
            by_lease: 0,
        }
    }

    fn at(&mut self, time: u64, gateway: usize, event: Event) {
        self.numbers += 1;
        self.events.insert((time, self.numbers), (gateway, event));
    }

    /// Runs for so many seconds, while each gateway has a request every so many microseconds on average.
    fn run(&mut self, seconds: u64, pause: u64) {
        let end = NOON + seconds * SECOND;
        for gateway in 0..GATEWAYS {
            self.at(NOON, gateway, Event::Request);
        }
        while let Some(((now, _), (gateway, event))) = self.events.pop_first() {
            if now >= end {
                break;
            }
            self.clock.set(Timestamp::from_micros(now));
            if let Event::Request = event {
                let next = now + self.random.u64(..pause * 2);
                self.at(next, gateway, Event::Request);
            }
            self.happens(now, gateway, event);
        }
    }

    fn happens(&mut self, now: u64, gateway: usize, event: Event) {
        let limit = Arc::clone(&self.limit);
        let terms = limit.leases().expect("it is leased");
        let check = Check::new(&limit, KEY);
        let leases = &self.gateways[gateway].0;
        match event {
            Event::Request => {
                leases.rises(&check);
                self.ask(now, gateway, (None, 0));
            }
            Event::Sent => {
                let order = leases.order(&check, terms).expect("the key is known");
                let way = self.random.u64(100..3_000);
                self.at(now + way, gateway, Event::Counted(order));
            }
            Event::Counted(order) => {
                let asks = Check {
                    limit: &terms.asks,
                    cost: Cost::new(order.units),
                    ..check
                };
                let answers = self
                    .counter
                    .measure(&[asks], Intent::Charge, Decider::Memory);
                let way = self.random.u64(100..3_000);
                self.at(
                    now + way,
                    gateway,
                    Event::Answered(order, Box::new(answers)),
                );
            }
            Event::Answered(order, answers) => {
                let asks = Check {
                    limit: &terms.asks,
                    cost: Cost::new(order.units),
                    ..check
                };
                let told = Timestamp::from_micros(now);
                let brought = LeaseCall::of(&asks, terms, order, &answers, told);
                let until = leases.called(&check, terms, order, brought, told);
                if let Some(brought) = brought.filter(|_| terms.give_back()) {
                    for end in [until.micros(), until.micros() + LONGEST] {
                        self.at(end.max(now), gateway, Event::Ended(brought));
                    }
                }
                for waiting in std::mem::take(&mut self.gateways[gateway].1) {
                    self.ask(now, gateway, waiting);
                }
            }
            Event::Ended(call) => {
                if let Some(units) = leases.unused(&check, call) {
                    self.counter.refund(&limit, KEY, call.ticket(&limit, units));
                }
            }
        }
    }

    fn ask(&mut self, now: u64, gateway: usize, (waited, asked): Waiting) {
        let limit = Arc::clone(&self.limit);
        let check = Check::new(&limit, KEY);
        let step = if asked < PATIENCE {
            self.gateways[gateway].0.step(&check, waited)
        } else {
            LeaseStep::Alone
        };
        let is_admitted = match step {
            LeaseStep::Decided(answer) => {
                self.by_lease += u64::from(answer.by == Decider::Lease);
                answer.admits()
            }
            LeaseStep::Alone => {
                let answers = self
                    .counter
                    .measure(&[check], Intent::Charge, Decider::Memory);
                answers.admits_all()
            }
            LeaseStep::Wait(_, turn) => {
                return self.gateways[gateway].1.push((Some(turn), asked + 1));
            }
            LeaseStep::Call(_, turn) => {
                self.gateways[gateway].1.push((Some(turn), asked + 1));
                let soon = now + self.random.u64(..50);
                return self.at(soon, gateway, Event::Sent);
            }
        };
        if is_admitted {
            self.admitted.push(now);
        } else {
            self.refused += 1;
        }
    }
}

#[test]
fn a_window_is_never_exceeded_by_leases_and_hardly_undershot() {
    for seed in 0..8 {
        let mut world = World::new(
            |rate| Rule::ClockWindow(ClockWindow::by_clock(rate, 0)),
            seed,
        );
        world.run(10, 300);
        let mut windows = BTreeMap::<u64, u32>::new();
        for at in &world.admitted {
            *windows.entry(at / SECOND).or_default() += 1;
        }
        for (window, admitted) in windows {
            assert!(admitted <= COUNT, "{admitted} in {window}, seed {seed}");
            assert!(
                admitted >= COUNT / 100 * 95,
                "{admitted} in {window}, seed {seed}"
            );
        }
        assert!(world.by_lease > 1000, "{}", world.by_lease);
    }
}

#[test]
fn a_bucket_is_never_exceeded_by_leases_and_hardly_undershot() {
    let burst = NonZeroU32::new(COUNT).unwrap();
    for seed in 0..8 {
        let mut world = World::new(
            |rate| Rule::TokenBucket(TokenBucket::new(rate, burst)),
            seed,
        );
        world.run(10, 300);
        // A bucket that is charged at the instant of each admission.
        let (mut level, mut last) = (0, NOON);
        for at in &world.admitted {
            level = u64::saturating_sub(level, (at - last) * u64::from(COUNT)) + SECOND;
            last = *at;
            assert!(level <= SECOND * u64::from(COUNT), "at {at}, seed {seed}");
        }
        let admitted = world.admitted.len();
        assert!(admitted >= 11 * 1900, "{admitted}, seed {seed}");
        assert!(world.by_lease > 1000, "{}", world.by_lease);
    }
}

#[test]
fn a_key_below_its_limit_is_never_refused() {
    let burst = NonZeroU32::new(COUNT).unwrap();
    for seed in 0..8 {
        let mut world = World::new(
            |rate| Rule::TokenBucket(TokenBucket::new(rate, burst)),
            seed,
        );
        // Each gateway has some 500 requests in a second.
        world.run(5, 2_000);
        let admitted = world.admitted.len();
        assert!(
            world.refused == 0 && admitted > 6_000,
            "{admitted}, seed {seed}"
        );
    }
}
