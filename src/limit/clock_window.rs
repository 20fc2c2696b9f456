//! Fixed window by the clock or the calendar: at most N in each; windows start where the clock says, not at a request.
//! Twin: `lua/clock_window.lua`.

use super::WindowState;
use super::calendar::Calendar;
use super::fixed_window::CountedWindow;
use super::rate::Rate;
use crate::clock::Timestamp;
use std::sync::Arc;

/// A clock's window's numbers, ready to compute with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClockWindow {
    /// N: the quota of one window.
    pub limit: u32,
    /// Where windows start.
    pub anchor: Anchor,
}

/// Where windows start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Anchor {
    /// At `offset` after whole multiples of `window` since the epoch, in microseconds.
    Clock {
        /// P: the length of each.
        window: u64,
        /// Less than the window.
        offset: u64,
    },
    /// Where a calendar says.
    Calendar(Arc<Calendar>),
}

/// The window at an instant, in microseconds since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowBounds {
    /// Start of the window before; it may lie before the epoch.
    pub before: i64,
    /// Its start.
    pub start: u64,
    /// Its end.
    pub end: u64,
    /// Where the next one ends.
    pub beyond: u64,
}

impl ClockWindow {
    /// `rate.count` in each `rate.period`, which start at `offset` after whole multiples of it. The caller has checked
    /// that the offset is less than the period.
    #[must_use]
    pub fn by_clock(rate: Rate, offset: u64) -> Self {
        let window = rate.period.get();
        Self {
            limit: rate.count.get(),
            anchor: Anchor::Clock {
                window,
                offset: offset % window,
            },
        }
    }

    /// `limit` in each window of `calendar`.
    #[must_use]
    pub fn by_calendar(limit: u32, calendar: Arc<Calendar>) -> Self {
        Self {
            limit,
            anchor: Anchor::Calendar(calendar),
        }
    }

    /// The window at `now`.
    #[must_use]
    pub fn bounds(&self, now: Timestamp) -> WindowBounds {
        match &self.anchor {
            Anchor::Clock { window, offset } => {
                let since = (now.micros() % window + (window - offset)) % window;
                let end = now.plus(window - since);
                WindowBounds {
                    before: signed(end.micros()) - signed(*window).saturating_mul(2),
                    start: end.micros().saturating_sub(*window),
                    end: end.micros(),
                    beyond: end.plus(*window).micros(),
                }
            }
            Anchor::Calendar(calendar) => {
                let [_, before, start, end, beyond, _] = calendar.around(now);
                WindowBounds {
                    before: signed(before),
                    start,
                    end,
                    beyond,
                }
            }
        }
    }

    /// The start and the end of the window that counted at `at`, of which `left` was left: the present one, or the next
    /// where the clock has stepped back.
    #[must_use]
    pub fn window_of(&self, at: Timestamp, left: u64) -> (u64, u64) {
        let bounds = self.bounds(at);
        bounds.counting(at.plus(left).micros() > bounds.end)
    }

    /// The window at `now`.
    #[must_use]
    pub fn counted(&self, state: Option<WindowState>, now: Timestamp) -> CountedWindow {
        let bounds = self.bounds(now);
        // A window that reaches into this one counts in it: it was anchored elsewhere. So does one from further ahead
        // than the next: the clock has stepped back. One that began before the epoch is stored as if it had begun with it.
        let held = state.filter(|state| {
            state.start == bounds.start || signed(state.start) > bounds.before.max(0)
        });
        // The clock has stepped back over one border: the next window, of which some is taken, goes on counting.
        let (start, end) = bounds.counting(held.is_some_and(|state| state.start == bounds.end));
        CountedWindow {
            start,
            end,
            count: held.map_or(0, |state| state.count),
            mended: held.is_some_and(|state| state.start != start),
        }
    }
}

impl WindowBounds {
    /// Start and end of this window, or of the next.
    fn counting(self, next: bool) -> (u64, u64) {
        if next {
            (self.end, self.beyond)
        } else {
            (self.start, self.end)
        }
    }
}

/// Instants fit by far.
fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
