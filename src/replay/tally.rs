//! The effect of one file on the requests of a trace, in numbers.

use super::policy_side::{PolicySide, ReplayOutcome, ShadowAnswer};
use super::wait_histogram::WaitHistogram;
use crate::limit::verdict::VerdictOutcome;
use serde::Serialize;
use std::sync::Arc;

/// Microseconds in a minute.
const MINUTE: u64 = 60_000_000;

/// One file's numbers.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// Refused requests.
    pub refused: u64,
    /// Requests that were held before they proceeded.
    pub delayed: u64,
    /// Requests that no route matches.
    pub no_route: u64,
    /// Requests that were refused since too many others were held already.
    pub too_many_held: u64,
    /// The refusals and delays of each limit, in the order of the limits' first ones.
    pub limits: Vec<ByLimit>,
    /// The refusals and delays that limits that do not decide would have made, in the same order.
    pub shadows: Vec<ByLimit>,
    waits: WaitHistogram,
    minute: u64,
    in_minute: u64,
    worst: Option<Minute>,
}

/// The refusals and delays of one limit, or the ones that it would have made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ByLimit {
    /// The limit's name.
    pub limit: Arc<str>,
    /// Requests whose refusal named the limit, or that it would have refused.
    pub refused: u64,
    /// Requests that the limit held, or would have held.
    pub delayed: u64,
}

/// A minute of the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Minute {
    /// The beginning of the minute, in microseconds since the epoch.
    #[serde(rename = "start_us")]
    pub start: u64,
    /// Requests refused in the minute.
    pub refused: u64,
}

/// The waits of the requests that were held, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct WaitQuantiles {
    /// The wait that half of the waits do not exceed.
    pub p50: u64,
    /// The wait that 99 of 100 waits do not exceed.
    pub p99: u64,
    /// The longest wait.
    pub max: u64,
}

impl Tally {
    /// A tally without requests. Limits that do not decide are listed from the start, since the absence of refusals is
    /// a result, too.
    pub(super) fn of_side(side: &PolicySide) -> Self {
        let mut tally = Self::default();
        for limit in side.limits().filter(|limit| !limit.mode.decides()) {
            named(&mut tally.shadows, limit.shown());
        }
        tally
    }

    /// Adds a request at the instant `at`, in microseconds.
    pub(super) fn add(&mut self, at: u64, outcome: &ReplayOutcome) {
        match outcome {
            ReplayOutcome::Admit => {}
            ReplayOutcome::NoRoute => self.no_route += 1,
            ReplayOutcome::Delay { wait, limit } => {
                self.delayed += 1;
                named(&mut self.limits, limit).delayed += 1;
                self.waits.add(*wait);
            }
            ReplayOutcome::Refuse { limit, .. } => {
                named(&mut self.limits, limit).refused += 1;
                self.refuse(at / MINUTE);
            }
            ReplayOutcome::TooManyHeld => {
                self.too_many_held += 1;
                self.refuse(at / MINUTE);
            }
        }
    }

    /// Counts a refusal in `minute`. Time never decreases, so that only the last minute has to be kept open.
    fn refuse(&mut self, minute: u64) {
        self.refused += 1;
        if minute != self.minute {
            self.worst = self.worst();
            (self.minute, self.in_minute) = (minute, 0);
        }
        self.in_minute += 1;
    }

    /// The minute with the most refusals; of several the first.
    #[must_use]
    pub fn worst(&self) -> Option<Minute> {
        let this = Minute {
            start: self.minute * MINUTE,
            refused: self.in_minute,
        };
        let best = self.worst.map_or(0, |minute| minute.refused);
        if this.refused > best {
            Some(this)
        } else {
            self.worst
        }
    }

    /// The waits of the requests that were held; `None` if no request was.
    #[must_use]
    pub fn wait_quantiles(&self) -> Option<WaitQuantiles> {
        Some(WaitQuantiles {
            p50: self.waits.quantile(500)?,
            p99: self.waits.quantile(990)?,
            max: self.waits.quantile(1_000)?,
        })
    }

    /// Adds the answers that limits that do not decide gave to the request just judged. Of several rates of one limit,
    /// the strictest answer counts.
    pub(super) fn add_shadows(&mut self, side: &PolicySide) {
        if self.shadows.is_empty() {
            return;
        }
        let mut shadows = side.shadows().peekable();
        while let Some(ShadowAnswer {
            limit, mut outcome, ..
        }) = shadows.next()
        {
            while let Some(other) = shadows.next_if(|other| limit.is_sibling_of(other.limit)) {
                outcome = outcome.max(other.outcome);
            }
            let by = named(&mut self.shadows, limit.shown());
            match outcome {
                VerdictOutcome::Admit { delay: 0 } => {}
                VerdictOutcome::Admit { .. } => by.delayed += 1,
                VerdictOutcome::Refuse(_) => by.refused += 1,
            }
        }
    }
}

/// The entry of `limit`, which is added if there is none.
fn named<'a>(all: &'a mut Vec<ByLimit>, limit: &Arc<str>) -> &'a mut ByLimit {
    let at = all.iter().position(|by| by.limit == *limit);
    let at = at.unwrap_or_else(|| {
        all.push(ByLimit {
            limit: Arc::clone(limit),
            refused: 0,
            delayed: 0,
        });
        all.len() - 1
    });
    &mut all[at]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_minute_is_the_first_of_the_worst() {
        let mut tally = Tally::default();
        assert_eq!(tally.worst(), None);
        let refused = ReplayOutcome::Refuse {
            wait: None,
            limit: "a".into(),
            window: None,
        };
        for (minute, times) in [(0, 2), (1, 5), (2, 5), (9, 4)] {
            for second in 0..times {
                tally.add(minute * MINUTE + second, &refused);
            }
        }
        assert_eq!(
            tally.worst(),
            Some(Minute {
                start: MINUTE,
                refused: 5
            })
        );
        for _ in 0..2 {
            tally.add(9 * MINUTE + 59_999_999, &refused);
        }
        assert_eq!(
            tally.worst(),
            Some(Minute {
                start: 9 * MINUTE,
                refused: 6
            })
        );
        assert_eq!((tally.refused, tally.limits[0].refused), (18, 18));
    }
}
