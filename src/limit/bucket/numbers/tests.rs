//! Changed numbers against exact fractions, and the law that they keep: random histories, with several gateways that
//! have different files.

use super::*;
use crate::clock::Timestamp;
use crate::limit::rate::{Cost, Rate};
use crate::limit::token_bucket::TokenBucket;
use crate::limit::verdict::{Measurement, Verdict, VerdictOutcome, Wait};
use crate::limit::{Rule, State};

const SECOND: u64 = 1_000_000;
const NOON: u64 = 1_790_000_000 * SECOND;

/// The number of random histories: `most`, or as many as `BUCKET_HISTORIES` says. The long run draws others each time;
/// `BUCKET_SEED` repeats them.
fn histories(most: usize, seed: u64) -> (usize, fastrand::Rng) {
    let number = |name| {
        std::env::var(name)
            .ok()
            .map(|text| text.parse::<u64>().unwrap())
    };
    let many = number("BUCKET_HISTORIES");
    let drawn = many.map_or(seed, |_| fastrand::u64(..1 << 40));
    let seed = number("BUCKET_SEED").unwrap_or(drawn);
    println!("BUCKET_SEED={seed}");
    let many = many.map_or(most, |many| usize::try_from(many).unwrap());
    (many, fastrand::Rng::with_seed(seed))
}

fn tokens(count: u64, period: u64, burst: u64) -> Rule {
    let rate = Rate {
        count: NonZeroU64::new(count).unwrap(),
        period: NonZeroU64::new(period).unwrap(),
    };
    Rule::TokenBucket(TokenBucket::new(rate, NonZeroU64::new(burst).unwrap()))
}

/// One counter, as a store keeps it.
#[derive(Default)]
struct Counter(Option<State>);

impl Counter {
    fn ask(&mut self, rule: &Rule, now: u64, cost: u64) -> (Measurement, Verdict) {
        let (now, cost) = (Timestamp::from_micros(now), Cost::new(cost));
        let (measured, change) = rule.check(self.0.as_ref(), now, cost);
        if let Some(change) = change {
            self.0 = Some(change.update.after(self.0.take()));
        }
        (measured, rule.verdict(measured, now, cost, true))
    }

    fn takes(&mut self, rule: &Rule, now: u64, cost: u64) -> bool {
        self.ask(rule, now, cost).0.wait == Wait::Micros(0)
    }
}

#[test]
fn numbers_are_packed_without_loss_at_every_edge() {
    const TWO_32: u64 = 1 << 32;
    let sizes = [
        1,
        TWO_32 - 1,
        TWO_32,
        TWO_32 + 1,
        3 * TWO_32 - 1,
        MOST_UNITS,
    ];
    for period in [1, 7, LONGEST_OF_LARGE - 1, LONGEST_OF_LARGE, (1 << 53) - 1] {
        for size in sizes {
            let numbers = Numbers::of_parts(period, u32::MAX, size);
            let is_room = size < TWO_32 || period < LONGEST_OF_LARGE;
            assert_eq!(numbers.is_some(), is_room, "{size} in {period}");
            if let Some(numbers) = numbers {
                assert_eq!(numbers.parts(), (period, u32::MAX, size));
                assert_eq!(numbers.is_large(), size >= TWO_32);
            }
        }
    }
    assert_eq!(Numbers::of_parts(1, 1, MOST_UNITS + 1), None);
    assert_eq!(Numbers::of_parts(1 << 53, 1, 1), None);
    assert_eq!(size_of::<Option<Numbers>>(), 16);
}

#[test]
fn a_large_bucket_lowered_and_raised_again_keeps_what_is_used() {
    let large = tokens(6_000_000_000, SECOND, 6_000_000_000);
    let (small, most) = (
        tokens(10, SECOND, 10),
        tokens(60_000_000_000, SECOND, MOST_UNITS),
    );
    let mut counter = Counter::default();
    assert!(counter.takes(&large, NOON, 5_000_000_000));
    assert_eq!(counter.ask(&large, NOON, 0).1.remaining, 1_000_000_000);
    assert_eq!(counter.ask(&small, NOON, 0).1.remaining, 0);
    assert!(!counter.takes(&small, NOON, 1));
    let left = MOST_UNITS - 5_000_000_000;
    assert_eq!(counter.ask(&most, NOON, 0).1.remaining, left);
    assert!(counter.takes(&most, NOON, left));
    assert!(!counter.takes(&most, NOON, 1));
}

#[test]
fn ten_of_ten_raised_to_a_hundred_leave_ninety() {
    let (small, large) = (
        tokens(10, 3600 * SECOND, 10),
        tokens(100, 3600 * SECOND, 100),
    );
    let mut counter = Counter::default();
    assert!(counter.takes(&small, NOON, 10));
    let (_, verdict) = counter.ask(&large, NOON, 0);
    assert_eq!(verdict.remaining, 90);
    assert!(counter.takes(&large, NOON, 90));
    assert!(!counter.takes(&large, NOON, 1));
}

#[test]
fn fifty_of_a_hundred_lowered_to_ten_are_refused_until_they_have_drained() {
    let hour = 3600 * SECOND;
    let (large, small) = (tokens(100, hour, 100), tokens(10, hour, 10));
    let mut counter = Counter::default();
    assert!(counter.takes(&large, NOON, 50));
    let before = counter.0.clone();
    let (measured, verdict) = counter.ask(&small, NOON, 1);
    // 41 units drain at 100 in an hour.
    assert_eq!(measured.wait, Wait::Micros(hour / 100 * 41));
    assert_eq!((verdict.remaining, verdict.reset), (0, hour / 2));
    assert_eq!(counter.0, before, "nothing is written");
    assert!(!counter.takes(&small, NOON + hour / 100 * 41 - 1, 1));
    assert!(counter.takes(&small, NOON + hour / 100 * 41, 1));
    assert!(!counter.takes(&small, NOON + hour / 100 * 41, 1));
}

#[test]
fn a_raised_rate_helps_from_the_first_refusal_on() {
    let day = 86_400 * SECOND;
    let (slow, fast) = (tokens(10, day, 10), tokens(100, day, 10));
    let mut counter = Counter::default();
    assert!(counter.takes(&slow, NOON, 10));
    let (measured, _) = counter.ask(&fast, NOON, 1);
    assert_eq!(measured.wait, Wait::Micros(day / 100));
    assert!(counter.takes(&fast, NOON + day / 100, 1));
}

#[test]
fn a_thousand_charges_of_two_files_in_turn_are_a_thousand_units() {
    let pairs = [
        (tokens(7, 3 * SECOND, 5000), tokens(13, 17_000_001, 9000)),
        (tokens(3, SECOND, 2000), tokens(10_000_000, SECOND, 2000)),
        (
            tokens(1, 2_592_000 * SECOND, 1700),
            tokens(4_294_967_291, SECOND, 1001),
        ),
    ];
    for (one, other) in pairs {
        let mut counter = Counter::default();
        for nth in 0..1000 {
            let rule = if nth % 2 == 0 { &one } else { &other };
            assert!(counter.takes(rule, NOON, 1));
        }
        for rule in [&one, &other] {
            let (_, verdict) = counter.ask(rule, NOON, 0);
            assert_eq!(verdict.remaining, rule.most() - 1000);
        }
    }
}

#[test]
fn only_the_rate_in_lowest_terms_and_the_size_are_numbers() {
    let (second, minute) = (tokens(10, SECOND, 20), tokens(600, 60 * SECOND, 20));
    let numbers = |rule: &Rule| rule.bucket().unwrap().numbers;
    assert_eq!(numbers(&second), numbers(&minute));
    assert_ne!(numbers(&second), numbers(&tokens(10, SECOND, 21)));
}

#[test]
fn a_clock_that_steps_back_mends_to_the_states_own_size() {
    let (large, small) = (
        tokens(100, 3600 * SECOND, 100),
        tokens(10, 3600 * SECOND, 10),
    );
    let mut counter = Counter::default();
    assert!(counter.takes(&large, NOON, 100));
    let earlier = NOON - 3600 * SECOND;
    let (measured, verdict) = counter.ask(&small, earlier, 1);
    assert_eq!(measured.wait, Wait::Micros(36 * SECOND * 91));
    assert_eq!(verdict.reset, 3600 * SECOND);
    let (repeated, _) = counter.ask(&small, earlier, 1);
    assert_eq!(repeated, measured);
    // The gateway with the larger file is not given an empty bucket.
    assert!(!counter.takes(&large, earlier, 1));
    assert!(counter.takes(&large, earlier + 36 * SECOND, 1));
}

/// A bucket by exact fractions: the used units over `DEN`, a multiple of every P.
struct Exact {
    used: i128,
    at: u64,
    numbers: (u64, u64, u64),
    /// The most that the code's bucket may hold beyond this one, for its rounding.
    slack: i128,
}

const PERIODS: [u64; 5] = [SECOND, 3 * SECOND, 60 * SECOND, 7 * SECOND, 86_400 * SECOND];
const DEN: i128 = 7 * 86_400 * 1_000_000;

impl Exact {
    fn drain(&mut self, now: u64) {
        let (count, period, _) = self.numbers;
        let gone = i128::from(now - self.at) * i128::from(count) * (DEN / i128::from(period));
        self.used = (self.used - gone).max(0);
        self.at = now;
    }

    /// Takes over what the code answered, which must be what the exact bucket says, but for its rounding.
    fn follow(&mut self, numbers: (u64, u64, u64), now: u64, cost: u64, admitted: bool) {
        self.drain(now);
        let (count, period, size) = numbers;
        let (was, room) = (self.numbers, i128::from(size) - i128::from(cost));
        let fits = self.used <= room * DEN;
        if admitted {
            assert!(
                fits,
                "admitted {cost} beside {} under {numbers:?}",
                self.used / DEN
            );
        } else {
            let held = self.used + self.slack;
            assert!(
                held > room * DEN,
                "refused {cost} beside {held} under {numbers:?}"
            );
        }
        let is_faster =
            u128::from(count) * u128::from(was.1) > u128::from(was.0) * u128::from(period);
        if was != numbers && (admitted || (is_faster && cost <= size)) {
            // Less than a part of a microsecond, for each change.
            self.slack += DEN / i128::from(period) + 1;
            self.numbers = if admitted {
                numbers
            } else {
                (count, period, size.max(was.2))
            };
        }
        if admitted {
            self.used += i128::from(cost) * DEN;
        }
    }
}

#[test]
fn random_histories_are_those_of_exact_fractions() {
    let (many, mut random) = histories(400, 33);
    let (mut admissions, mut refusals) = (0, 0);
    for _ in 0..many {
        let files: Vec<_> = (0..random.usize(2..5))
            .map(|_| {
                let period = PERIODS[random.usize(..PERIODS.len())];
                (random.u64(1..200), period, random.u64(1..60))
            })
            .collect();
        let mut counter = Counter::default();
        let mut exact = Exact {
            used: 0,
            at: NOON,
            numbers: files[0],
            slack: 0,
        };
        let mut now = NOON;
        for _ in 0..200 {
            now += [0, 1, random.u64(..50_000), random.u64(..3 * SECOND)][random.usize(..4)];
            let file = files[random.usize(..files.len())];
            let rule = tokens(file.0, file.1, file.2);
            let cost = random.u64(1..20);
            let (measured, verdict) = counter.ask(&rule, now, cost);
            let admitted = measured.wait == Wait::Micros(0);
            if admitted {
                admissions += 1;
            } else {
                refusals += 1;
            }
            if let VerdictOutcome::Refuse(Wait::Micros(wait)) = verdict.outcome {
                // The wait is the least: then the same request is admitted, and not before.
                for (early, is_admitted) in [(1, false), (0, true)] {
                    let mut copy = Counter(counter.0.clone());
                    assert_eq!(copy.takes(&rule, now + wait - early, cost), is_admitted);
                }
            }
            exact.follow(file, now, cost, admitted);
        }
    }
    assert!(admissions > many * 25 && refusals > many * 25);
    println!("{many} histories, {admissions} admissions, {refusals} refusals");
}

#[test]
fn no_more_is_admitted_than_the_largest_size_and_the_fastest_rate_allow() {
    let (many, mut random) = histories(300, 7);
    for _ in 0..many {
        let files: Vec<_> = (0..random.usize(2..5))
            .map(|_| {
                (
                    random.u64(1..30),
                    PERIODS[random.usize(..4)],
                    random.u64(1..40),
                )
            })
            .collect();
        let size = files.iter().map(|file| file.2).max().unwrap_or(0);
        let fastest = files
            .iter()
            .max_by(|a, b| {
                let speed = |file: &(u64, u64, u64)| file.0 as f64 / file.1 as f64;
                speed(a).total_cmp(&speed(b))
            })
            .copied()
            .unwrap();
        let mut counter = Counter::default();
        let (mut now, mut grants) = (NOON, Vec::new());
        for _ in 0..150 {
            now += [0, random.u64(..20_000), random.u64(..SECOND)][random.usize(..3)];
            let file = files[random.usize(..files.len())];
            let cost = random.u64(1..6);
            if counter.takes(&tokens(file.0, file.1, file.2), now, cost) {
                grants.push((now, cost));
            }
        }
        for (first, (start, _)) in grants.iter().enumerate() {
            let mut sum = 0;
            for (end, cost) in &grants[first..] {
                sum += cost;
                let gone = u128::from(end - start) * u128::from(fastest.0);
                let least = u128::from(sum.saturating_sub(size));
                assert!(least * u128::from(fastest.1) <= gone, "{files:?}");
            }
        }
    }
}
