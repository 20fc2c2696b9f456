//! Fixed window: at most N in each window of P; the window starts with its first admitted request.
//! Twin: `lua/fixed_window.lua`.

use super::rate::{Cost, Rate, Span, most_counted};
use super::verdict::{Measurement, Verdict, Wait};
use super::{Change, Refund, State, WindowState};
use crate::clock::Timestamp;

/// A fixed window's numbers, ready to compute with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FixedWindow {
    /// N: the quota of one window.
    pub limit: u64,
    /// P: its length in microseconds.
    pub window: u64,
}

impl FixedWindow {
    /// Windows of `rate.count` in each `rate.period`.
    #[must_use]
    pub fn new(rate: Rate) -> Self {
        Self {
            limit: rate.count.get(),
            window: rate.period.get(),
        }
    }

    /// The window at `now`. A window in the future was left by a clock that has stepped back: the nearest possible
    /// window is the one that starts now.
    #[inline]
    #[must_use]
    pub fn counted(&self, state: Option<WindowState>, now: Timestamp) -> CountedWindow {
        let present = now.micros();
        let is_over = |state: &WindowState| state.start.saturating_add(self.window) <= present;
        let held = state.filter(|state| !is_over(state));
        let start = held.map_or(present, |state| state.start.min(present));
        CountedWindow {
            start,
            end: Timestamp::from_micros(start).plus(self.window).micros(),
            count: held.map_or(0, |state| state.count.min(most_counted(self.limit))),
            mended: held.is_some_and(|state| state.start > present),
        }
    }
}

/// The count of the window at an instant.
#[derive(Debug, Clone, Copy)]
pub struct CountedWindow {
    /// Its start, microseconds since the epoch.
    pub start: u64,
    /// Its end.
    pub end: u64,
    /// The units taken in it.
    pub count: u64,
    /// Was the stored state impossible under the present numbers or clock? If so, it was set to the nearest possible
    /// one.
    pub mended: bool,
}

impl CountedWindow {
    /// Would `cost` be admitted at `now` in addition to the counted units, and which state would then be stored?
    #[inline]
    #[must_use]
    pub fn check(self, limit: u64, now: Timestamp, cost: Cost) -> (Measurement, Option<Change>) {
        let left = Timestamp::from_micros(self.end).since(now);
        let standing = |count: u64| Span {
            whole: left,
            part: count,
        };
        if let Some(measured) = Measurement::uncounted(limit, cost, standing(self.count)) {
            return (measured, None);
        }
        let change = |count: u64| {
            let start = self.start;
            let state = State::Window(WindowState { start, count });
            Change::put(state, Timestamp::from_micros(self.end))
        };
        match self.count.checked_add(cost.units()) {
            Some(next) if next <= limit => {
                (Measurement::admitted(standing(next)), Some(change(next)))
            }
            _ => (
                Measurement::refused(Wait::Micros(left), standing(self.count)),
                self.mended.then(|| change(self.count)),
            ),
        }
    }
}

/// Interprets a reply about a window of `limit`, with any anchor.
pub(super) fn verdict(limit: u64, measured: Measurement, cost: Cost, charged: bool) -> Verdict {
    let verdict = measured.verdict(limit, cost, charged, measured.span.whole);
    let is_empty = verdict.remaining == limit;
    Verdict {
        reset: if is_empty { 0 } else { verdict.reset },
        ..verdict
    }
}

/// Takes `cost` back out of the window from `start` to `end`, if that is still the current one. A window without
/// charges is removed, as if it had never started.
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
