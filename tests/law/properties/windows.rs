//! Windows and logs compared with a textbook, and the most units in any stretch of their length.

use super::{Counter, arrivals, in_parts, pause, rates};
use crate::law::numbers::{NOON, clock_window, sliding_log, sliding_window};
use proptest::prelude::*;
use tollgate::limit::verdict::{Verdict, VerdictOutcome, Wait};

/// The grants: each has its instant, in microseconds since noon, and its units.
type Granted = Vec<(u64, u64)>;

/// The most units that are granted within any stretch shorter than `period`.
fn densest(granted: &Granted, period: u64) -> u64 {
    let from = |first: usize| {
        let start = granted[first].0;
        let within = granted[first..]
            .iter()
            .take_while(|(at, _)| at - start < period);
        within.map(|(_, units)| units).sum()
    };
    (0..granted.len()).map(from).max().unwrap_or(0)
}

fn refused(wait: u64) -> VerdictOutcome {
    VerdictOutcome::Refuse(Wait::Micros(wait))
}

/// The window of a textbook: it keeps all grants, and counts them anew at each question.
struct Textbook {
    limit: u64,
    /// The length of a part, in milliseconds.
    part: u64,
    parts: u64,
    strict: bool,
    /// The milliseconds since the epoch at which each unit was granted.
    granted: Vec<u64>,
}

impl Textbook {
    /// The units that count at `ms`, multiplied by milliseconds.
    fn used(&self, ms: u64) -> u64 {
        let present = ms / self.part;
        let weigh = |granted: &u64| match present - granted / self.part {
            age if age < self.parts => self.part,
            age if age == self.parts && self.strict => self.part,
            age if age == self.parts => self.part - ms % self.part,
            _ => 0,
        };
        self.granted.iter().map(weigh).sum()
    }

    fn answer(&mut self, micros: u64, cost: u64) -> Verdict {
        let ms = micros / 1000;
        let fits = |ms| self.used(ms) + cost * self.part <= self.limit * self.part;
        let outcome = if cost > self.limit {
            VerdictOutcome::Refuse(Wait::Never)
        } else if cost == 0 || fits(ms) {
            VerdictOutcome::Admit { delay: 0 }
        } else {
            // The counted units only decrease while no request comes: the search halves the time in which they become
            // few enough.
            let (mut early, mut late) = (ms, ms + (self.parts + 1) * self.part);
            while late - early > 1 {
                let middle = early.midpoint(late);
                match fits(middle) {
                    true => late = middle,
                    false => early = middle,
                }
            }
            refused(late * 1000 - micros)
        };
        if matches!(outcome, VerdictOutcome::Admit { .. }) {
            self.granted.extend((0..cost).map(|_| ms));
        }
        let room = (self.limit * self.part).saturating_sub(self.used(ms));
        let newest = self.granted.last().map(|ms| ms / self.part);
        let ends = newest.map_or(0, |part| (part + self.parts + 1) * self.part * 1000);
        Verdict {
            outcome,
            remaining: room / self.part,
            reset: ends.saturating_sub(micros),
        }
    }
}

proptest! {
    #[test]
    fn a_sliding_window_answers_as_the_textbook_and_a_strict_one_keeps_its_bound(
        rate in rates(),
        limit in 1..40_u64,
        parts in prop::sample::select(vec![1_u64, 2, 3, 6]),
        strict in any::<bool>(),
        arrivals in arrivals(45),
    ) {
        let period = in_parts(rate.1);
        let mut counter = Counter::of(sliding_window(limit, period, parts, strict));
        let mut textbook = Textbook {
            limit,
            part: period / 1000 / parts,
            parts,
            strict,
            granted: Vec::new(),
        };
        let mut granted = Granted::new();
        for (thousandths, cost) in arrivals {
            counter.at = counter.at.plus(pause(thousandths, (limit, period)));
            let (verdict, _) = counter.take(cost);
            prop_assert_eq!(verdict, textbook.answer(counter.at.micros(), cost));
            if matches!(verdict.outcome, VerdictOutcome::Admit { .. }) {
                granted.push((counter.ago(), cost));
            }
        }
        // With weights a stretch may hold more units, but no row of whole parts may.
        let most = if strict { limit } else { 2 * limit };
        prop_assert!(densest(&granted, period) <= most);
        let part = period / parts;
        let offset = NOON.micros() % part;
        for (at, _) in &granted {
            let start = (at + offset) / part * part;
            let row = granted.iter().filter(|(at, _)| (start..start + period).contains(&(at + offset)));
            prop_assert!(row.map(|(_, units)| units).sum::<u64>() <= limit);
        }
    }

    #[test]
    fn a_log_answers_as_the_textbook_and_keeps_its_bound(
        limit in 1..40_u64,
        period in prop_oneof![1..5_u64, 1..2000_u64, Just(1_000_000_u64)],
        arrivals in arrivals(45),
    ) {
        let mut counter = Counter::of(sliding_log(limit, period));
        let mut granted = Granted::new();
        for (thousandths, cost) in arrivals {
            counter.at = counter.at.plus(pause(thousandths, (limit, period)));
            let now = counter.ago();
            let held = |at: u64| -> u64 {
                let inside = granted.iter().filter(|(then, _)| then + period > at);
                inside.map(|(_, units)| units).sum()
            };
            let fits = |at: u64| held(at) + cost <= limit;
            let outcome = if cost > limit {
                VerdictOutcome::Refuse(Wait::Never)
            } else if cost == 0 || fits(now) {
                VerdictOutcome::Admit { delay: 0 }
            } else {
                // The request fits when one of the held units leaves.
                let leave = granted.iter().map(|(then, _)| then + period);
                refused(leave.filter(|at| *at > now).find(|at| fits(*at)).unwrap() - now)
            };
            let (verdict, _) = counter.take(cost);
            prop_assert_eq!(verdict.outcome, outcome);
            if cost > 0 && matches!(outcome, VerdictOutcome::Admit { .. }) {
                granted.push((now, cost));
            }
            let held: u64 = {
                let inside = granted.iter().filter(|(then, _)| then + period > now);
                inside.map(|(_, units)| units).sum()
            };
            prop_assert_eq!(verdict.remaining, limit - held);
            let newest = granted.last().map_or(0, |(then, _)| then + period);
            prop_assert_eq!(verdict.reset, newest.saturating_sub(now));
        }
        prop_assert!(densest(&granted, period) <= limit);
    }

    #[test]
    fn a_clock_that_steps_back_by_a_window_at_most_lets_no_window_hold_more_than_the_limit(
        limit in 1..40_u64,
        period in prop_oneof![1..5_u64, 1..2000_u64, Just(1_000_000_u64)],
        offset in any::<prop::sample::Index>(),
        arrivals in prop::collection::vec((0..300_u64, any::<bool>(), 0..9_u64), 1..90),
    ) {
        let offset = offset.index(usize::try_from(period).unwrap()) as u64;
        let mut counter = Counter::of(clock_window(limit, period, offset));
        let window = |at: u64| (at + period - offset) / period;
        let first = window(NOON.micros());
        let (mut latest, mut granted) = (first, 0);
        for (hundredths, back, cost) in arrivals {
            let (now, by) = (counter.at.micros(), period * hundredths / 100);
            // The clock never steps back behind the window before the latest one that it has shown.
            let least = ((latest - 1).max(first) * period + offset - period).max(NOON.micros());
            let now = if back { now.saturating_sub(by).max(least) } else { now + by };
            counter.at = tollgate::clock::Timestamp::from_micros(now);
            latest = latest.max(window(now));
            let (verdict, _) = counter.take(cost);
            match verdict.outcome {
                VerdictOutcome::Admit { .. } => granted += cost,
                VerdictOutcome::Refuse(Wait::Micros(wait)) => {
                    // The wait is the shortest possible one.
                    let passes = |at| matches!(counter.would(at, cost).0.outcome, VerdictOutcome::Admit { .. });
                    prop_assert!(!passes(counter.at.plus(wait - 1)) && passes(counter.at.plus(wait)));
                }
                VerdictOutcome::Refuse(Wait::Never) => prop_assert!(cost > limit),
            }
            prop_assert!(granted <= (latest - first + 1) * limit);
        }
    }

    #[test]
    fn a_window_by_the_clock_never_holds_more_than_the_limit_and_refuses_nothing_that_fits(
        limit in 1..40_u64,
        period in prop_oneof![1..5_u64, 1..2000_u64, Just(1_000_000_u64)],
        offset in any::<prop::sample::Index>(),
        arrivals in arrivals(45),
    ) {
        let offset = offset.index(usize::try_from(period).unwrap()) as u64;
        let mut counter = Counter::of(clock_window(limit, period, offset));
        let mut granted = Granted::new();
        for (thousandths, cost) in arrivals {
            counter.at = counter.at.plus(pause(thousandths, (limit, period)));
            let now = counter.at.micros();
            let window = |at: u64| (at + period - offset) / period;
            let taken = |granted: &Granted| -> u64 {
                let here = granted.iter().filter(|(at, _)| window(*at) == window(now));
                here.map(|(_, units)| units).sum()
            };
            let left = (window(now) + 1) * period + offset - period - now;
            let outcome = if cost > limit {
                VerdictOutcome::Refuse(Wait::Never)
            } else if cost == 0 || taken(&granted) + cost <= limit {
                granted.push((now, cost));
                VerdictOutcome::Admit { delay: 0 }
            } else {
                refused(left)
            };
            let taken = taken(&granted);
            let (verdict, _) = counter.take(cost);
            prop_assert_eq!(verdict, Verdict {
                outcome,
                remaining: limit - taken,
                reset: if taken > 0 { left } else { 0 },
            });
        }
    }
}
