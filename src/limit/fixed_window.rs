//! Fixed window: at most N in each window of P; the window starts with its first admitted request.
//! Twin: `lua/fixed_window.lua`.

use super::rate::{Cost, Rate, Span};
use super::verdict::{Measurement, Verdict, Wait};
use super::{Change, Refund, State, WindowState};
use crate::clock::Timestamp;

/// A fixed window's numbers, ready to compute with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FixedWindow {
    /// N: the quota of one window.
    pub limit: u32,
    /// P: its length in microseconds.
    pub window: u64,
}

impl FixedWindow {
    /// `rate.count` in each `rate.period`.
    #[must_use]
    pub fn new(rate: Rate) -> Self {
        Self {
            limit: rate.count.get(),
            window: rate.period.get(),
        }
    }

    /// Would `cost` be admitted at `now`, and what would then be stored?
    #[inline]
    #[must_use]
    pub fn check(
        &self,
        state: Option<WindowState>,
        now: Timestamp,
        cost: Cost,
    ) -> (Measurement, Option<Change>) {
        let (current, mended) = self.current(state, now);
        let left = Timestamp::from_micros(current.start)
            .plus(self.window)
            .since(now);
        if u64::from(current.count) + u64::from(cost.units()) > u64::from(self.limit)
            && cost != Cost::ZERO
        {
            let wait = if cost.units() > self.limit {
                Wait::Never
            } else {
                Wait::Micros(left)
            };
            let mended = mended && wait != Wait::Never;
            let change = mended.then(|| self.change(current));
            return (
                Measurement::refused(wait, Self::measure(left, current.count)),
                change,
            );
        }
        let next = WindowState {
            start: current.start,
            count: current.count.saturating_add(cost.units()),
        };
        let change = (cost != Cost::ZERO).then(|| self.change(next));
        (
            Measurement::admitted(Self::measure(left, next.count)),
            change,
        )
    }

    /// What the reply of either store means. `charged` is false when another limit of the request refused.
    #[must_use]
    pub fn verdict(&self, measured: Measurement, cost: Cost, charged: bool) -> Verdict {
        verdict(self.limit, measured, cost, charged)
    }

    /// Takes `cost` back out of the window that starts at `start`, if it is still the current one.
    #[must_use]
    pub fn refund(&self, state: WindowState, start: u64, cost: Cost, now: Timestamp) -> Refund {
        let end = Timestamp::from_micros(start).plus(self.window).micros();
        refund(state, start, end, cost, now)
    }

    /// The window at `now`, and whether the stored one had to be brought back from the future: then the clock
    /// stepped back, and the nearest possible window is the one that starts now.
    fn current(&self, state: Option<WindowState>, now: Timestamp) -> (WindowState, bool) {
        match state {
            Some(state) if state.start > now.micros() => (
                WindowState {
                    start: now.micros(),
                    ..state
                },
                true,
            ),
            Some(state) if now.micros() - state.start < self.window => (state, false),
            _ => (
                WindowState {
                    start: now.micros(),
                    count: 0,
                },
                false,
            ),
        }
    }

    fn measure(left: u64, count: u32) -> Span {
        Span {
            whole: left,
            part: count,
        }
    }

    fn change(&self, state: WindowState) -> Change {
        let ends = Timestamp::from_micros(state.start).plus(self.window);
        Change::put(State::Window(state), ends)
    }
}

/// What the reply about a window of `limit` means, wherever windows start.
pub(super) fn verdict(limit: u32, measured: Measurement, cost: Cost, charged: bool) -> Verdict {
    let count = measured.held(cost, charged);
    Verdict {
        outcome: measured.outcome(),
        remaining: u64::from(limit.saturating_sub(count)),
        reset: if count == 0 { 0 } else { measured.span.whole },
    }
}

/// Takes `cost` back out of the window from `start` to `end`, if it is still the current one. A window with nothing
/// left in it is no window: it never started.
pub(super) fn refund(
    state: WindowState,
    start: u64,
    end: u64,
    cost: Cost,
    now: Timestamp,
) -> Refund {
    let same = state.start == start && state.count >= cost.units();
    if now.micros() >= end || !same || cost == Cost::ZERO {
        return Refund::Nothing;
    }
    match state.count - cost.units() {
        0 => Refund::Gone,
        count => {
            let left = State::Window(WindowState { start, count });
            Refund::Left(Change::put(left, Timestamp::from_micros(end)))
        }
    }
}
