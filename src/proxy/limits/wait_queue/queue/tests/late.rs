//! A gateway that is paused while turns pass: a late request is released in turn and at the rate, or is refused if that
//! takes longer than the longest wait. A machine's ordinary lateness changes no turn.

use crate::proxy::limits::wait_queue::queue::tests::*;

/// The longest wait in these tests, in microseconds.
const LONG: u64 = 60_000_000;

/// The requests that one gateway releases, by a clock that the test moves.
struct Gate {
    store: MemoryStore,
    limit: Arc<Limit>,
    spacing: u64,
    began: Instant,
    /// Microseconds since then.
    passed: u64,
    line: WaitQueue,
    /// The waiting requests, by number.
    held: Vec<(usize, Arc<Waiter>)>,
    arrived: usize,
    /// The time at which each request was released.
    went: Vec<(u64, usize)>,
    refused: Vec<(usize, Duration)>,
}

impl Gate {
    fn new(spacing: u64, burst: u64, max_wait: u64) -> Self {
        let rate = Rate {
            count: NonZeroU64::MIN,
            period: NonZeroU64::new(spacing).unwrap(),
        };
        let burst = NonZeroU64::new(burst).unwrap();
        let rule = Rule::LeakyBucket(LeakyBucket::new(rate, burst, 200, max_wait));
        let by = limit().by.clone();
        Self {
            store: MemoryStore::new(Clock::manual(Timestamp::from_micros(1_000_000)), 100),
            limit: Arc::new(Limit::new(Policy::new("queue".into(), by, rate), rule)),
            spacing,
            began: Instant::now(),
            passed: 0,
            line: WaitQueue::default(),
            held: Vec::new(),
            arrived: 0,
            went: Vec::new(),
            refused: Vec::new(),
        }
    }

    fn now(&self) -> Instant {
        self.began + Duration::from_micros(self.passed)
    }

    /// Adds a request. It joins the queue if it must wait or if there is a queue.
    fn comes(&mut self) {
        let check = Check::new(&self.limit, KEY);
        let at = Timestamp::from_micros(1_000_000 + self.passed);
        let decided = self.store.at(at).decide(&[check]);
        let Ruling::Admit { delay } = decided.decision.ruling else {
            return;
        };
        let (number, now) = (self.arrived, self.now());
        self.arrived += 1;
        if delay == 0 && self.line.is_empty(now) {
            self.went.push((self.passed, number));
            return;
        }
        let charge = decided.reservation(0, &check).unwrap();
        let until = now + Duration::from_micros(delay);
        let (place, spot) = Position::taken(now, until, charge, false);
        self.line.forget_passed(now);
        self.line.join(place, now);
        self.held.push((number, spot));
        self.wakes(|_| 0);
    }

    /// Every request checks its turn, in any order in which workers wake.
    fn wakes(&mut self, mut which: impl FnMut(usize) -> usize) {
        let now = self.now();
        loop {
            let looks = |spot: &Waiter| spot.over().is_some() || spot.until() <= now;
            let due: Vec<usize> = (0..self.held.len())
                .filter(|at| looks(&self.held[*at].1))
                .collect();
            if due.is_empty() {
                return;
            }
            let at = due[which(due.len())];
            let (number, spot) = (self.held[at].0, Arc::clone(&self.held[at].1));
            if let Some(retry_after) = spot.over() {
                self.refused.push((number, retry_after));
                self.held.remove(at);
                self.line.leave(&spot, now);
            } else if self.line.turn(&spot, now).is_some_and(|turn| turn <= now) {
                assert!(self.line.used(&spot, now).is_some());
                self.went.push((self.passed, number));
                self.held.remove(at);
            }
        }
    }

    /// Moves the clock to `until`; requests check their turn at each `step`.
    fn runs(&mut self, until: u64, step: u64) {
        while self.passed < until {
            self.passed += step;
            self.wakes(|_| 0);
        }
    }

    /// Over any time T no more than B + N (T + lateness of a machine) / P requests are released.
    fn check_the_law(&self, burst: u64, seed: u64) {
        let late = u64::try_from(JITTER.as_micros()).unwrap();
        for (first, (from, _)) in self.went.iter().enumerate() {
            for (last, (to, _)) in self.went.iter().enumerate().skip(first) {
                let count = (last - first + 1) as u64;
                // Both ends of the interval count; whole microseconds are rounded.
                assert!(
                    count * self.spacing <= burst * self.spacing + (to - from) + late + 2,
                    "seed {seed}: {count} within {} us, {} us apart: {:?}",
                    to - from,
                    self.spacing,
                    self.went
                );
            }
        }
    }
}

#[test]
fn over_any_time_no_more_go_on_than_the_rate_whatever_the_machine_does() {
    let mut stops = 0;
    for seed in 0..60 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (spacing, burst) = (rng.u64(2_000..120_000), rng.u64(1..5));
        let max_wait = [LONG, 800_000][rng.usize(..2)];
        let mut gate = Gate::new(spacing, burst, max_wait);
        for _ in 0..150 {
            match rng.u8(..16) {
                0..=5 => (0..rng.u8(1..4)).for_each(|_| gate.comes()),
                6 if !gate.held.is_empty() => {
                    let (_, spot) = gate.held.remove(rng.usize(..gate.held.len()));
                    let now = gate.now();
                    gate.line.leave(&spot, now);
                }
                // The gateway is paused, or very busy.
                7 => {
                    gate.passed += rng.u64(..2_000_000);
                    stops += 1;
                }
                8 => gate.passed += rng.u64(..40_000),
                _ => {
                    let until = gate.passed + rng.u64(..2 * spacing);
                    while gate.passed < until {
                        gate.passed += rng.u64(1..5_000);
                        gate.wakes(|due| rng.usize(..due));
                    }
                }
            }
            if rng.bool() {
                gate.wakes(|due| rng.usize(..due));
            }
        }
        gate.check_the_law(burst, seed);
        // In the end every request was released, or refused for its long wait.
        let end = gate.passed + LONG;
        while !gate.held.is_empty() && gate.passed < end {
            gate.passed += 1_000;
            gate.wakes(|due| rng.usize(..due));
        }
        assert!(gate.held.is_empty(), "seed {seed}");
        gate.check_the_law(burst, seed);
    }
    assert!(stops > 50, "{stops}");
}

#[test]
fn whoever_is_late_goes_on_in_order_and_apart_and_newcomers_behind() {
    let mut gate = Gate::new(50_000, 1, LONG);
    (0..10).for_each(|_| gate.comes());
    // All turns pass; the last worker wakes first.
    gate.passed = 1_000_000;
    gate.wakes(|due| due - 1);
    gate.runs(1_010_000, 1_000);
    // The store's time advanced, so that the store gives the request no wait.
    gate.comes();
    gate.runs(2_000_000, 1_000);
    let went = gate.went.iter().map(|(at, number)| (*at, *number));
    let expected = (0..10).map(|n| (1_000_000 + n * 50_000, n as usize + 1));
    assert!(
        went.eq([(0, 0)].into_iter().chain(expected)),
        "{:?}",
        gate.went
    );
}

#[test]
fn whoever_comes_before_those_who_are_late_have_woken_stands_behind_them() {
    let mut gate = Gate::new(50_000, 1, LONG);
    (0..4).for_each(|_| gate.comes());
    gate.passed = 1_000_000;
    gate.comes();
    gate.runs(2_000_000, 1_000);
    let order: Vec<usize> = gate.went.iter().map(|(_, number)| *number).collect();
    assert_eq!(order, [0, 1, 2, 3, 4]);
    gate.check_the_law(1, 0);
}

#[test]
fn after_the_last_of_those_who_were_late_the_next_keeps_its_distance() {
    let mut gate = Gate::new(50_000, 1, LONG);
    (0..3).for_each(|_| gate.comes());
    gate.passed = 1_000_000;
    gate.wakes(|_| 0);
    gate.runs(1_051_000, 1_000);
    assert_eq!(gate.went.len(), 3);
    gate.comes();
    gate.runs(2_000_000, 1_000);
    assert_eq!(gate.went.last(), Some(&(1_100_000, 3)));
}

#[test]
fn a_burst_still_goes_at_once() {
    let mut gate = Gate::new(50_000, 3, LONG);
    (0..9).for_each(|_| gate.comes());
    gate.passed = 1_000_000;
    gate.wakes(|_| 0);
    assert_eq!(gate.went.len(), 3 + 3);
    gate.runs(2_000_000, 1_000);
    let late: Vec<u64> = gate.went[6..].iter().map(|(at, _)| *at).collect();
    assert_eq!(late, [1_050_000, 1_100_000, 1_150_000]);
}

#[test]
fn ordinary_lateness_moves_nobody() {
    for spacing in [1_000, 20_000] {
        let mut gate = Gate::new(spacing, 1, LONG);
        (0..150).for_each(|_| gate.comes());
        let mut rng = fastrand::Rng::with_seed(spacing);
        for n in 1..150 {
            // Timers are late by up to five milliseconds, each by a different time.
            let at = n * spacing + rng.u64(..5_000);
            gate.passed = gate.passed.max(at);
            gate.wakes(|_| 0);
            assert!(gate.went.len() as u64 > n, "{spacing}: {n}");
        }
    }
}

#[test]
fn whoever_would_wait_too_long_is_refused_and_takes_nobodys_turn() {
    let mut gate = Gate::new(100_000, 1, 1_000_000);
    // The first request is released at once, the next ten wait up to a second.
    (0..11).for_each(|_| gate.comes());
    gate.runs(100_000, 1_000);
    assert_eq!((gate.went.len(), gate.held.len()), (2, 9));
    // The time is half a second later than it would have been.
    gate.passed = 650_000;
    gate.wakes(|_| 0);
    gate.runs(3_000_000, 1_000);
    let went: Vec<usize> = gate.went.iter().map(|(_, number)| *number).collect();
    // These requests had their turns 0.65, 0.75, 0.85, 0.95 and 1.05 s after their arrival; a merely busy machine is as
    // late.
    assert_eq!(went, [0, 1, 2, 3, 4, 5, 6]);
    let refused: Vec<usize> = gate.refused.iter().map(|(number, _)| *number).collect();
    assert_eq!(refused, [7, 8, 9, 10]);
    // A request that arrives a turn later finds room.
    assert!(
        gate.refused
            .iter()
            .all(|(_, retry_after)| retry_after.as_millis() == 100)
    );
    gate.check_the_law(1, 0);
}

#[test]
fn all_are_refused_after_longer_than_anybody_waits() {
    let mut gate = Gate::new(100_000, 1, 500_000);
    (0..6).for_each(|_| gate.comes());
    gate.passed = 2_000_000;
    gate.wakes(|due| due - 1);
    assert_eq!((gate.went.len(), gate.refused.len()), (1, 5));
    gate.comes();
    assert_eq!(gate.went.last(), Some(&(2_000_000, 6)));
}
