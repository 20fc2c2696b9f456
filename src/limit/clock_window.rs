//! Fixed window by the clock or the calendar: at most N in each window. Windows start at times of the clock, not at a
//! request. Twin: `lua/clock_window.lua`.

use super::WindowState;
use super::calendar::Calendar;
use super::fixed_window::CountedWindow;
use super::rate::{Rate, most_counted};
use crate::clock::Timestamp;
use std::sync::Arc;

/// The numbers of a window by the clock, ready to compute with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClockWindow {
    /// N: the quota of one window.
    pub limit: u64,
    /// The starts of windows.
    pub anchor: Anchor,
}

/// The starts of windows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Anchor {
    /// At `offset` after whole multiples of `window` since the epoch, in microseconds.
    Clock {
        /// P: the length of each window.
        window: u64,
        /// The offset, less than `window`.
        offset: u64,
    },
    /// At the boundaries of a calendar.
    Calendar(Arc<Calendar>),
}

/// The window at an instant, in microseconds since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowBounds {
    /// Start of the previous window; it may lie before the epoch.
    pub before: i64,
    /// Start of this window.
    pub start: u64,
    /// End of this window.
    pub end: u64,
    /// End of the next window.
    pub beyond: u64,
}

impl ClockWindow {
    /// Windows of `rate.count` in each `rate.period`, which start at `offset` after whole multiples of the period. The
    /// caller has checked that the offset is less than the period.
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

    /// Windows of `limit` in each window of `calendar`.
    #[must_use]
    pub fn by_calendar(limit: u64, calendar: Arc<Calendar>) -> Self {
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

    /// The start and the end of the window that counted at `at`, `left` before its end. It is the present window, or
    /// the next one if the clock has stepped back.
    #[must_use]
    pub fn window_of(&self, at: Timestamp, left: u64) -> (u64, u64) {
        let bounds = self.bounds(at);
        bounds.counting(at.plus(left).micros() > bounds.end)
    }

    /// The window at `now`.
    #[must_use]
    pub fn counted(&self, state: Option<WindowState>, now: Timestamp) -> CountedWindow {
        let bounds = self.bounds(now);
        // A stored window that overlaps this one counts in it: it had another anchor. A window beyond the next one
        // counts in it, too: the clock has stepped back. A window that began before the epoch is stored with the epoch
        // as its start.
        let held = state.filter(|state| {
            state.start == bounds.start || signed(state.start) > bounds.before.max(0)
        });
        // The clock has stepped back over one boundary: the next window, which has charges, continues to count.
        let (start, end) = bounds.counting(held.is_some_and(|state| state.start == bounds.end));
        CountedWindow {
            start,
            end,
            count: held.map_or(0, |state| state.count.min(most_counted(self.limit))),
            mended: held.is_some_and(|state| state.start != start),
        }
    }
}

impl WindowBounds {
    /// Start and end of this window, or of the next one.
    fn counting(self, next: bool) -> (u64, u64) {
        if next {
            (self.end, self.beyond)
        } else {
            (self.start, self.end)
        }
    }
}

/// An instant is far below the bound of the type.
fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
