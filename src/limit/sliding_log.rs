//! Sliding log: the instant of every unit granted; at most N in any stretch of P, exactly.
//! Twin: `lua/sliding_log.lua`.

use super::rate::{Cost, Rate, Span};
use super::state::Update;
use super::verdict::{Measured, Verdict, Wait};
use super::{Change, Refunded, State};
use crate::clock::Timestamp;
use std::collections::VecDeque;

/// The largest quota a log may have: eight bytes are kept for each unit.
pub const MOST: u32 = 10_000;

/// The instants, microseconds since the epoch, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LogState(pub VecDeque<u64>);

/// What a grant does to a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Growth {
    /// The present instant, microseconds since the epoch.
    pub now: u64,
    /// From this position on instants lie ahead of a clock that has stepped back, and become the present.
    pub ahead: usize,
    /// So many are entered under the present.
    pub enter: u32,
    /// So many of the oldest have left, and go.
    pub drop: usize,
}

impl Growth {
    /// Does it.
    pub fn apply(self, log: &mut LogState) {
        for instant in log.0.range_mut(self.ahead.min(log.0.len())..) {
            *instant = self.now;
        }
        log.0
            .extend(std::iter::repeat_n(self.now, self.enter as usize));
        log.0.drain(..self.drop.min(log.0.len()));
    }
}

/// A sliding log's numbers, ready to compute with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlidingLog {
    /// N: the quota of any stretch of P.
    pub limit: u32,
    /// P in microseconds.
    pub window: u64,
}

impl SlidingLog {
    /// `rate.count` in any stretch of `rate.period`. The caller has checked the count against [`MOST`].
    #[must_use]
    pub fn new(rate: Rate) -> Self {
        Self {
            limit: rate.count.get(),
            window: rate.period.get(),
        }
    }

    /// Would `cost` be admitted at `now`, and what would then be stored?
    #[must_use]
    pub fn check(
        &self,
        state: Option<&LogState>,
        now: Timestamp,
        cost: Cost,
    ) -> (Measured, Option<Change>) {
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
            part: u32::try_from(held).unwrap_or(u32::MAX),
        };
        if cost == Cost::ZERO {
            return (Measured::admitted(standing(held)), None);
        }
        if cost.units() > self.limit {
            return (Measured::refused(Wait::Never, standing(held)), None);
        }
        let grown = held + cost.units() as usize;
        let growth = Growth {
            now: present,
            ahead,
            enter: cost.units(),
            drop: dropped,
        };
        match grown.checked_sub(self.limit as usize) {
            None | Some(0) => (
                Measured::admitted(standing(grown)),
                Some(self.change(growth, now)),
            ),
            Some(excess) => {
                let leaves = log.get(dropped + excess - 1).copied().unwrap_or(present);
                let wait = leaves.min(present) + self.window - present;
                let mended = Growth {
                    enter: 0,
                    drop: 0,
                    ..growth
                };
                (
                    Measured::refused(Wait::Micros(wait), standing(held)),
                    (ahead < log.len()).then(|| self.change(mended, now)),
                )
            }
        }
    }

    /// What the reply of either store means. `charged` is false when another limit of the request refused.
    #[must_use]
    pub fn verdict(&self, measured: Measured, cost: Cost, charged: bool) -> Verdict {
        let taken = charged && measured.wait == Wait::Micros(0) && cost != Cost::ZERO;
        let held = measured.held(cost, charged);
        Verdict {
            outcome: measured.outcome(),
            remaining: u64::from(self.limit.saturating_sub(held)),
            reset: match taken {
                true => self.window,
                false => measured.span.whole,
            },
        }
    }

    /// Takes `cost` back out of what was entered at `instant`, as far as it is still there.
    #[must_use]
    pub fn refund(&self, state: &LogState, instant: u64, cost: Cost, now: Timestamp) -> Refunded {
        let log = &state.0;
        let (from, to) = (
            log.partition_point(|at| *at < instant),
            log.partition_point(|at| *at <= instant),
        );
        let back = (to - from).min(cost.units() as usize);
        if back == 0 || instant.saturating_add(self.window) <= now.micros() {
            return Refunded::Nothing;
        }
        let mut left = log.clone();
        left.drain(to - back..to);
        let Some(newest) = left.back().copied() else {
            return Refunded::Gone;
        };
        let ends = Timestamp::from_micros(newest).plus(self.window);
        match ends > now {
            true => Refunded::Left(Change::put(State::Log(Box::new(LogState(left))), ends)),
            false => Refunded::Gone,
        }
    }

    /// Both what grows and what is mended have their newest instant now.
    fn change(&self, growth: Growth, now: Timestamp) -> Change {
        Change {
            update: Update::Grow(growth),
            ends: now.plus(self.window),
        }
    }
}
