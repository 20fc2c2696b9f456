//! Gateways with leases in front of one counter, on a simulated clock: requests arrive at random, and calls take time.

use crate::clock::{Clock, Timestamp};
use crate::key::{KeyCase, KeyTemplate, MissingKey};
use crate::limit::rate::{Cost, Rate};
use crate::limit::{LeaseSetting, Limit, Policy, Rule};
use crate::store::answers::Answers;
use crate::store::check::{Check, Checks, Intent};
use crate::store::decider::Decider;
use crate::store::invalidation::Invalidation;
use crate::store::lease::{Grants, LeaseCall, LeaseOrder, LeaseStep, Leases, may_take};
use crate::store::memory::MemoryStore;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;

/// The instant at which a world begins.
pub(super) const NOON: u64 = 1_790_000_000_000_000;
/// The number of times that a request tries the lease before it makes its own call, as in `shared/lease_call`.
const PATIENCE: u32 = 4;
/// The longest delivery time of an answer to a request when the permits end.
const LONGEST: u64 = 50_000;
/// The longest one-way time of a call, in microseconds.
const FAR: u64 = 3_000;
const NEAR: u64 = 200;

enum Event {
    /// One request, and the next after a random pause of this number of microseconds on average.
    Request(Option<u64>),
    /// A request of this client, whose other limits are checked in addition to these permits.
    Asked([u8; 8], Grants),
    /// The call for permits of the limit at this position.
    Sent(usize),
    Counted(usize, LeaseOrder),
    Answered(usize, LeaseOrder, Box<Answers>),
    Ended(usize, LeaseCall),
}

/// A request that waits for a call: its number, and the number of its tries.
type Waiting = (Option<u64>, u32);

pub(super) struct World {
    clock: Clock,
    limits: Rc<[Arc<Limit>]>,
    clients: u64,
    way: u64,
    counter: MemoryStore,
    gateways: Vec<(Leases, Vec<Waiting>)>,
    events: BTreeMap<(u64, u64), (usize, Event)>,
    /// Draws the instants and clients of requests.
    arrivals: fastrand::Rng,
    /// Draws the times of calls.
    ways: fastrand::Rng,
    numbers: u64,
    now: u64,
    /// The instants at which requests were admitted.
    pub(super) admitted: Vec<u64>,
    /// The number of admitted requests of each client.
    pub(super) of_client: HashMap<[u8; 8], u64>,
    pub(super) refused: u64,
    /// Requests that took permits alone.
    pub(super) by_lease: u64,
    pub(super) calls: u64,
}

/// A limit of this name, which counts each client if the name says so.
pub(super) fn limit(name: &str, rule: (Rate, Rule), leasing: LeaseSetting) -> Arc<Limit> {
    let by = KeyTemplate {
        parts: Vec::new(),
        missing: MissingKey::Shared,
        unknown: None,
        case: KeyCase::Sensitive,
    };
    let policy = Policy {
        leasing,
        ..Policy::new(name.into(), by, rule.0)
    };
    Arc::new(Limit::new(policy, rule.1))
}

impl World {
    /// A world of this number of gateways, whose requests have these limits.
    pub(super) fn new(gateways: usize, limits: &[Arc<Limit>], seed: u64) -> Self {
        let clock = Clock::manual(Timestamp::from_micros(NOON));
        let leases = || Leases::new(Invalidation::default(), clock.clone());
        Self {
            limits: limits.into(),
            clients: 1,
            way: FAR,
            counter: MemoryStore::new(clock.clone(), usize::MAX),
            gateways: (0..gateways).map(|_| (leases(), Vec::new())).collect(),
            clock,
            events: BTreeMap::new(),
            arrivals: fastrand::Rng::with_seed(seed),
            ways: fastrand::Rng::with_seed(seed),
            numbers: 0,
            now: NOON,
            admitted: Vec::new(),
            of_client: HashMap::new(),
            refused: 0,
            by_lease: 0,
            calls: 0,
        }
    }

    /// A world of this number of clients; each request has one of them.
    pub(super) fn with_clients(self, clients: u64) -> Self {
        Self { clients, ..self }
    }

    /// A world whose counter is as close as a Redis in the same rack.
    pub(super) fn nearby(self) -> Self {
        Self { way: NEAR, ..self }
    }

    pub(super) fn requests(&self) -> u64 {
        self.admitted.len() as u64 + self.refused
    }

    /// Runs for this number of microseconds; each gateway has a request every `pause` microseconds on average.
    pub(super) fn run(&mut self, micros: u64, pause: u64) {
        for gateway in 0..self.gateways.len() {
            self.at(self.now, gateway, Event::Request(Some(pause)));
        }
        self.pass(micros);
    }

    /// Gives this number of requests at one instant to the gateways; then no request arrives for this number of
    /// microseconds.
    pub(super) fn burst(&mut self, requests: usize, micros: u64) {
        for number in 0..requests {
            let gateway = number % self.gateways.len();
            self.at(self.now, gateway, Event::Request(None));
        }
        self.pass(micros);
    }

    fn pass(&mut self, micros: u64) {
        let end = self.now + micros;
        while let Some(((at, number), (gateway, event))) = self.events.pop_first() {
            if at >= end {
                self.events.insert((at, number), (gateway, event));
                break;
            }
            self.now = at;
            self.clock.set(Timestamp::from_micros(at));
            self.happens(gateway, event);
        }
        self.now = end;
    }

    fn at(&mut self, time: u64, gateway: usize, event: Event) {
        self.numbers += 1;
        self.events.insert((time, self.numbers), (gateway, event));
    }

    fn after_a_way(&mut self, gateway: usize, event: Event) {
        let way = self.ways.u64(self.way / 20..self.way);
        self.at(self.now + way, gateway, event);
    }

    fn happens(&mut self, gateway: usize, event: Event) {
        match event {
            Event::Request(pause) => {
                if let Some(pause) = pause {
                    let next = self.now + self.arrivals.u64(..pause * 2);
                    self.at(next, gateway, Event::Request(Some(pause)));
                }
                self.request(gateway);
            }
            Event::Asked(client, seen) => self.decide(gateway, client, &seen),
            Event::Sent(position) => {
                let limit = Arc::clone(&self.limits[position]);
                let check = Check::new(&limit, b"");
                let terms = limit.leases().expect("it is leased");
                let order = self.gateways[gateway].0.order(&check, terms);
                let order = order.expect("the key is known");
                self.after_a_way(gateway, Event::Counted(position, order));
            }
            Event::Counted(position, order) => {
                let limit = Arc::clone(&self.limits[position]);
                let asks = &limit.leases().expect("it is leased").asks;
                let check = Check {
                    cost: Cost::new(u64::from(order.units)),
                    ..Check::new(asks, b"")
                };
                let answers = Box::new(self.measure(&[check]));
                self.after_a_way(gateway, Event::Answered(position, order, answers));
            }
            Event::Answered(position, order, answers) => {
                self.answered(gateway, position, order, &answers);
            }
            Event::Ended(position, call) => {
                let limit = &self.limits[position];
                let check = Check::new(limit, b"");
                if let Some(units) = self.gateways[gateway].0.unused(&check, call) {
                    self.counter.refund(limit, b"", call.ticket(limit, units));
                }
            }
        }
    }

    fn answered(&mut self, gateway: usize, position: usize, order: LeaseOrder, answers: &Answers) {
        let limit = Arc::clone(&self.limits[position]);
        let terms = limit.leases().expect("it is leased");
        let check = Check::new(&limit, b"");
        let asks = Check {
            limit: &terms.asks,
            cost: Cost::new(u64::from(order.units)),
            ..check
        };
        let answered_at = Timestamp::from_micros(self.now);
        let brought = LeaseCall::of(&asks, terms, order, answers, answered_at);
        let leases = &self.gateways[gateway].0;
        let until = leases.called(&check, terms, order, brought, answered_at);
        if let Some(brought) = brought.filter(|_| terms.give_back()) {
            for end in [until.micros(), until.micros() + LONGEST] {
                self.at(end.max(self.now), gateway, Event::Ended(position, brought));
            }
        }
        for waiting in std::mem::take(&mut self.gateways[gateway].1) {
            self.ask(gateway, waiting);
        }
    }

    fn request(&mut self, gateway: usize) {
        let limits = Rc::clone(&self.limits);
        if let [limit] = &limits[..] {
            self.gateways[gateway].0.rises(&Check::new(limit, b""));
            return self.ask(gateway, (None, 0));
        }
        let client = self.arrivals.u64(..self.clients).to_be_bytes();
        match self.gateways[gateway].0.look(&checks(&limits, &client)) {
            Err(_) => self.refused += 1,
            Ok(seen) if seen.len() == limits.len() => self.decide(gateway, client, &seen),
            Ok(seen) => self.after_a_way(gateway, Event::Asked(client, seen)),
        }
    }

    /// A request with one limit, as in `shared/lease_call`.
    fn ask(&mut self, gateway: usize, (waited, asked): Waiting) {
        let limit = Arc::clone(&self.limits[0]);
        let check = Check::new(&limit, b"");
        let step = if asked < PATIENCE && may_take(&check) {
            self.gateways[gateway].0.step(&check, waited)
        } else {
            LeaseStep::Alone
        };
        let is_admitted = match step {
            LeaseStep::Decided(answer) => {
                self.by_lease += u64::from(answer.by == Decider::Lease);
                answer.admits()
            }
            LeaseStep::Alone => self.measure(&[check]).admits_all(),
            LeaseStep::Wait(_, turn) => {
                return self.gateways[gateway].1.push((Some(turn), asked + 1));
            }
            LeaseStep::Call(_, turn) => {
                self.gateways[gateway].1.push((Some(turn), asked + 1));
                return self.send(gateway, 0);
            }
        };
        self.ends(is_admitted, [0; 8]);
    }

    /// A request with several limits that has found these permits, as in `shared/multi_limit`. The charges of its other
    /// limits are not refunded.
    fn decide(&mut self, gateway: usize, client: [u8; 8], seen: &Grants) {
        let limits = Rc::clone(&self.limits);
        let checks = checks(&limits, &client);
        let without = |grants: &Grants, among: &dyn Fn(usize) -> bool| -> Checks<'_> {
            let granted = |index| grants.iter().any(|grant| grant.index == index);
            let positions = (0..checks.len()).filter(|index| among(*index) && !granted(*index));
            positions.map(|index| checks[index]).collect()
        };
        let rest = without(seen, &|_| true);
        if !rest.is_empty() && !self.measure(&rest).admits_all() {
            return self.ends(false, client);
        }
        let drawn = self.gateways[gateway].0.draw(&checks, seen);
        let gone = without(&drawn, &|index| {
            seen.iter().any(|grant| grant.index == index)
        });
        if !gone.is_empty() && !self.measure(&gone).admits_all() {
            self.gateways[gateway].0.put_back(&checks, &drawn);
            return self.ends(false, client);
        }
        self.by_lease += u64::from(rest.is_empty() && gone.is_empty());
        for (position, check) in checks.iter().enumerate() {
            if may_take(check) && self.gateways[gateway].0.runs_short(check) {
                self.send(gateway, position);
            }
        }
        self.ends(true, client);
    }

    /// Makes the call for permits of the limit at this position.
    fn send(&mut self, gateway: usize, position: usize) {
        let soon = self.ways.u64(..50);
        self.at(self.now + soon, gateway, Event::Sent(position));
    }

    fn measure(&mut self, checks: &[Check<'_>]) -> Answers {
        self.calls += 1;
        self.counter
            .measure(checks, Intent::Charge, Decider::Memory)
    }

    fn ends(&mut self, is_admitted: bool, client: [u8; 8]) {
        if is_admitted {
            self.admitted.push(self.now);
            *self.of_client.entry(client).or_default() += 1;
        } else {
            self.refused += 1;
        }
    }
}

fn checks<'a>(limits: &'a [Arc<Limit>], client: &'a [u8; 8]) -> Checks<'a> {
    let check = |limit: &'a Arc<Limit>| match limit.name.starts_with("each") {
        true => Check::new(limit, client),
        false => Check::new(limit, b""),
    };
    limits.iter().map(check).collect()
}
