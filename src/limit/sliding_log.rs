//! Sliding log: the instant of every unit granted; at most N in any stretch of P, exactly.
//! Twin: `lua/sliding_log.lua`.

use super::rate::{Cost, Rate, Span, narrow};
use super::state::Update;
use super::verdict::{Measurement, Verdict, Wait};
use super::{Change, LogState, LogUpdate, Refund, State};
use crate::clock::Timestamp;

/// The largest quota that a log may have: eight bytes are stored for each unit.
pub const MOST: u64 = 10_000;

/// A sliding log's numbers, ready to compute with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlidingLog {
    /// N: the quota of any stretch of P, [`MOST`] at most.
    pub limit: u64,
    /// P in microseconds.
    pub window: u64,
}

impl SlidingLog {
    /// A log of `rate.count` in any stretch of `rate.period`. The caller has checked the count against [`MOST`].
    #[must_use]
    pub fn new(rate: Rate) -> Self {
        Self {
            limit: rate.count.get(),
            window: rate.period.get(),
        }
    }

    /// Would `cost` be admitted at `now`, and which change would then be stored?
    #[must_use]
    pub fn check(
        &self,
        state: Option<&LogState>,
        now: Timestamp,
        cost: Cost,
    ) -> (Measurement, Option<Change>) {
        let none = LogState::default();
        let log = &state.unwrap_or(&none).0;
        let present = now.micros();
        let dropped = log.partition_point(|at| at.saturating_add(self.window) <= present);
        let ahead = log.partition_point(|at| *at <= present);
        let held = log.len() - dropped;
        let newest = log.back().map(|at| (*at).min(present));
        let left = match newest {
            Some(newest) if held > 0 => newest + self.window - present,
            _ => 0,
        };
        let standing = |held: usize| Span {
            whole: left,
            part: held as u64,
        };
        if let Some(measured) = Measurement::uncounted(self.limit, cost, standing(held)) {
            return (measured, None);
        }
        // No more than the limit, which is small.
        let enter = narrow(cost.units());
        let grown = held + enter as usize;
        let growth = LogUpdate {
            now: present,
            ahead,
            enter,
            drop: dropped,
        };
        match grown.checked_sub(narrow(self.limit) as usize) {
            None | Some(0) => (
                Measurement::admitted(standing(grown)),
                Some(self.change(growth, now)),
            ),
            Some(excess) => {
                let leaves = log.get(dropped + excess - 1).copied().unwrap_or(present);
                let wait = leaves.min(present) + self.window - present;
                let mended = LogUpdate {
                    enter: 0,
                    drop: 0,
                    ..growth
                };
                (
                    Measurement::refused(Wait::Micros(wait), standing(held)),
                    (ahead < log.len()).then(|| self.change(mended, now)),
                )
            }
        }
    }

    /// Interprets either store's reply. `charged` is false when another limit of the request refused.
    #[must_use]
    pub fn verdict(&self, measured: Measurement, cost: Cost, charged: bool) -> Verdict {
        measured.verdict(self.limit, cost, charged, self.window)
    }

    /// Takes `cost` back out of the entries at `instant`, if they are still present.
    #[must_use]
    pub fn refund(&self, state: &LogState, instant: u64, cost: Cost, now: Timestamp) -> Refund {
        let log = &state.0;
        let (from, to) = (
            log.partition_point(|at| *at < instant),
            log.partition_point(|at| *at <= instant),
        );
        let back = (to - from).min(narrow(cost.units()) as usize);
        if back == 0 || instant.saturating_add(self.window) <= now.micros() {
            return Refund::Nothing;
        }
        let mut left = log.clone();
        left.drain(to - back..to);
        let Some(newest) = left.back().copied() else {
            return Refund::Gone;
        };
        let ends = Timestamp::from_micros(newest).plus(self.window);
        if ends <= now {
            return Refund::Gone;
        }
        Refund::Left(Change::put(State::Log(LogState(left)), ends))
    }

    /// After a grant and after a repair, the newest instant is now.
    fn change(&self, growth: LogUpdate, now: Timestamp) -> Change {
        Change {
            update: Update::Log(growth),
            ends: now.plus(self.window),
        }
    }
}
