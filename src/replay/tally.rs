//! What one file did to the requests of a trace, in numbers.

use super::policy_side::{PolicySide, ReplayOutcome, ShadowAnswer};
use super::wait_histogram::WaitHistogram;
use crate::limit::verdict::VerdictOutcome;
use std::sync::Arc;

/// Microseconds in a minute.
const MINUTE: u64 = 60_000_000;

/// One file's numbers.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// Refused requests.
    pub refused: u64,
    /// Requests that were held first.
    pub delayed: u64,
    /// Requests that no route takes.
    pub no_route: u64,
    /// Those refused because too many were held already.
    pub too_many_held: u64,
    /// What each limit refused and delayed, in the order in which they first did.
    pub limits: Vec<ByLimit>,
    /// What limits would have done that do not decide, in the order in which they first would have.
    pub shadows: Vec<ByLimit>,
    waits: WaitHistogram,
    minute: u64,
    in_minute: u64,
    worst: Option<Minute>,
}

/// One limit's part in it, or what it would have been.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ByLimit {
    /// Its name.
    pub limit: Arc<str>,
    /// Requests it was named for refusing, or would have refused.
    pub refused: u64,
    /// Requests it held, or would have held.
    pub delayed: u64,
}

/// A minute of the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Minute {
    /// When it began, in microseconds since the epoch.
    pub start: u64,
    /// Requests refused in it.
    pub refused: u64,
}

/// How long requests were held, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitQuantiles {
    /// Half of them no longer than this.
    pub p50: u64,
    /// 99 of 100 no longer than this.
    pub p99: u64,
    /// None longer than this.
    pub max: u64,
}

impl Tally {
    /// No requests yet. Limits that do not decide are listed from the start: no refusal is an answer, too.
    pub(super) fn of_side(side: &PolicySide) -> Self {
        let mut tally = Self::default();
        for limit in side.limits().filter(|limit| !limit.mode.decides()) {
            named(&mut tally.shadows, limit.shown());
        }
        tally
    }

    /// Adds a request at `at`.
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

    /// Time never runs back, so that one minute is counted at a time.
    fn refuse(&mut self, minute: u64) {
        self.refused += 1;
        if minute != self.minute {
            self.worst = self.worst();
            (self.minute, self.in_minute) = (minute, 0);
        }
        self.in_minute += 1;
    }

    /// The minute with the most refusals, the first of equals.
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

    /// How long requests were held; nothing where none was.
    #[must_use]
    pub fn wait_quantiles(&self) -> Option<WaitQuantiles> {
        Some(WaitQuantiles {
            p50: self.waits.quantile(500)?,
            p99: self.waits.quantile(990)?,
            max: self.waits.quantile(1_000)?,
        })
    }

    /// Adds the answers of limits that do not decide to the request just judged. Of several rates of one limit the worst
    /// counts.
    pub(super) fn add_shadows(&mut self, side: &PolicySide) {
        if self.shadows.is_empty() {
            return;
        }
        let mut shadows = side.shadows().peekable();
        while let Some(ShadowAnswer {
            limit, mut outcome, ..
        }) = shadows.next()
        {
            while let Some(other) = shadows.next_if(|other| limit.is_rate_beside(other.limit)) {
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

/// The one of that name, which is new if there was none.
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
