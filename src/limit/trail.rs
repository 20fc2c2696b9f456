//! A bucket whose charges are settled later: how far it has been drained by itself must be known then.
//!
//! What was too much may come back as far as the bucket would not have been empty without it, at any time since. Its
//! level was never lower than what is left of the charge itself; and as long as nobody found it empty, never lower than
//! what is left of the level right after the charge, less what was given back to others since. So that this can be told,
//! a state says when it was last found empty and how much has been given back since. Twin: `lua/metered.lua`, and
//! `settle` in `lua/refund.lua`.

use super::bucket::BucketState;
use super::rate::{Cost, Interval, MAX_SPAN, Span};
use super::verdict::{Measured, Wait};
use super::{Change, Limit, Mark, State, Ticket, Update};
use crate::clock::Timestamp;

/// What a bucket has gone through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trail {
    /// The last instant at which it was found empty, microseconds since the epoch.
    pub found: u64,
    /// How many microseconds have been given back since, rounded up.
    pub back: u64,
}

/// The state of such a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrailedState {
    /// The bucket's own.
    pub bucket: BucketState,
    /// What stands behind it.
    pub trail: Trail,
}

/// Where a charge that will be settled is to be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrailMark {
    /// The state right after it.
    pub was: BucketState,
    /// When it was made.
    pub at: Timestamp,
    /// How much had been given back until then.
    pub back: u64,
    /// All of it.
    pub cost: Cost,
}

impl Trail {
    /// One that begins at `now`: of what was charged until then nothing is known.
    #[must_use]
    pub fn begun(now: Timestamp) -> Self {
        Self {
            found: now.micros(),
            back: 0,
        }
    }

    /// The same after so much more has been given back at `now`.
    #[must_use]
    pub fn less(self, back: Span, now: Timestamp) -> Self {
        let sum = self.back.saturating_add(back.ceil());
        if sum > MAX_SPAN {
            return Self::begun(now);
        }
        Self { back: sum, ..self }
    }
}

impl TrailMark {
    /// How much of `less`, by which the charge was too much, comes back at `now`.
    #[must_use]
    pub fn back(
        &self,
        less: Span,
        trail: Option<Trail>,
        now: Timestamp,
        interval: Interval,
    ) -> Span {
        let whole = |whole| Span { whole, part: 0 };
        let present = whole(now.micros());
        let of_instant = |instant| interval.sub(instant, present).unwrap_or_default();
        let full = interval.times(u64::from(self.cost.units()));
        let own = of_instant(interval.add(whole(self.at.micros()), full));
        // In the instant of the charge it cannot have been emptied and found empty again: it holds the charge itself.
        let since = |trail: &Trail| self.at.micros() >= trail.found && trail.back >= self.back;
        let beneath = trail.filter(since).map(|trail| {
            let left = of_instant(Span {
                whole: self.was.at,
                part: self.was.part,
            });
            let others = whole(trail.back - self.back);
            interval.sub(left, others).unwrap_or_default()
        });
        own.max(beneath.unwrap_or_default()).min(less)
    }
}

impl State {
    /// What stands behind a bucket's state, if anything.
    #[must_use]
    pub fn trail(&self) -> Option<Trail> {
        match self {
            Self::Trailed(state) => Some(state.trail),
            _ => None,
        }
    }

    /// `bucket`, and `trail` behind it if there is one.
    #[must_use]
    pub fn of_bucket(bucket: BucketState, trail: Option<Trail>) -> Self {
        match trail {
            Some(trail) => Self::Trailed(Box::new(TrailedState { bucket, trail })),
            None => Self::Bucket(bucket),
        }
    }
}

impl Limit {
    /// The same answer where charges are settled later, and what is then stored beside it.
    pub(super) fn trailed(
        &self,
        state: Option<&State>,
        now: Timestamp,
        (mut measured, change): (Measured, Option<Change>),
    ) -> (Measured, Option<Change>) {
        let Some(Change {
            update: Update::Put(State::Bucket(bucket)),
            ends,
        }) = change.clone().filter(|_| self.trails)
        else {
            return (measured, change);
        };
        // Brought to the brim it is another history.
        let goes_on = |held: &BucketState| held.at > now.micros() && bucket.at >= held.at;
        let held = state.and_then(State::bucket).filter(goes_on);
        let trail = held.and_then(|_| state?.trail());
        let trail = trail.unwrap_or(Trail::begun(now));
        if measured.wait == Wait::Micros(0) && measured.granted.is_none() {
            measured.back = trail.back;
        }
        let change = Change::put(State::of_bucket(bucket, Some(trail)), ends);
        (measured, Some(change))
    }

    /// The ticket of an admitted request that was charged `cost`.
    #[must_use]
    pub fn ticket(&self, at: Timestamp, measured: Measured, cost: Cost) -> Ticket {
        let ticket = self.rule.ticket(at, measured, cost);
        match ticket.mark {
            Mark::Bucket(was) if self.trails => Ticket {
                mark: Mark::Trailed(TrailMark {
                    was,
                    at,
                    back: measured.back,
                    cost,
                }),
                ..ticket
            },
            _ => ticket,
        }
    }
}
