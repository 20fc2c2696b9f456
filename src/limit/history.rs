//! A bucket whose charges are settled later: its state shows how far the bucket has drained by itself since a charge.
//!
//! A surplus may be given back in so far as the bucket would not have been empty without it, at any time since the
//! charge. Two lower bounds of the bucket's level since then are known:
//!
//! 1. The level was never lower than the rest of the charge itself.
//! 2. As long as no request found the bucket empty, the level was never lower than the rest of the level right after
//!    the charge, less the amounts given back to others since.
//!
//! For the second bound a state holds the instant at which the bucket was last found empty, and the amount given back
//! since. Twin: `lua/settlement.lua`.

use super::bucket;
use super::rate::{Cost, Interval, MAX_SPAN, Span};
use super::verdict::{Measurement, Wait};
use super::{
    BucketState, Change, History, HistoryMark, HistoryState, Limit, Mark, Refund, State, Ticket,
    Update,
};
use crate::clock::Timestamp;

impl History {
    /// A history that begins at `now`, without knowledge of earlier charges.
    #[must_use]
    pub fn begun(now: Timestamp) -> Self {
        Self {
            found: now.micros(),
            back: 0,
        }
    }

    /// The history after `back` was given back at `now`.
    #[must_use]
    pub fn less(self, back: Span, now: Timestamp) -> Self {
        let sum = self.back.saturating_add(back.ceil());
        if sum > MAX_SPAN {
            return Self::begun(now);
        }
        Self { back: sum, ..self }
    }
}

impl HistoryMark {
    /// Gives back the cost of this charge, or its surplus, regardless of later charges.
    pub(super) fn refund(
        &self,
        state: &State,
        now: Timestamp,
        cost: Cost,
        interval: Interval,
    ) -> Refund {
        let is_of_rate = |of| bucket::is_of_rate(of, interval);
        let bucket = state.bucket().filter(|bucket| is_of_rate(*bucket));
        let Some(bucket) = bucket.filter(|_| is_of_rate(self.was)) else {
            return Refund::Nothing;
        };
        // What has drained before the history began, perhaps at another rate, is not known.
        let is_before = |history: History| self.charged.micros() < history.found;
        if state.history().is_some_and(is_before) {
            return Refund::Nothing;
        }
        let unbounded = Span::micros(u64::MAX);
        let level = bucket::level(Some(bucket), now, interval, unbounded).span;
        let less = interval.times(cost.units());
        let back = self.back(less, state.history(), now, interval);
        if level == Span::default() || back == Span::default() {
            return Refund::Nothing;
        }
        let left = interval.sub(level, back).unwrap_or_default();
        let history = state.history().map(|history| history.less(back, now));
        let rest = BucketState::at_level(now, left, interval, bucket.numbers);
        Refund::of_bucket(left, rest, history)
    }

    /// The part of the surplus `less` that is given back at `now`.
    fn back(
        &self,
        less: Span,
        history: Option<History>,
        now: Timestamp,
        interval: Interval,
    ) -> Span {
        let present = Span::micros(now.micros());
        let of_instant = |instant| interval.sub(instant, present).unwrap_or_default();
        let full = interval.times(self.cost.units());
        let alone = of_instant(interval.add(Span::micros(self.at.micros()), full));
        // At the instant of the charge the bucket cannot have been found empty after it, since it holds the charge.
        let since =
            |history: &History| self.at.micros() >= history.found && history.back >= self.back;
        let beneath = history.filter(since).map(|history| {
            let left = of_instant(self.was.span());
            let others = Span::micros(history.back - self.back);
            interval.sub(left, others).unwrap_or_default()
        });
        alone.max(beneath.unwrap_or_default()).min(less)
    }
}

impl State {
    /// The history after a bucket's state, if there is one.
    #[must_use]
    pub fn history(&self) -> Option<History> {
        match self {
            Self::History(state) => Some(state.history),
            _ => None,
        }
    }

    /// `bucket`, followed by `history` if there is one.
    #[must_use]
    pub fn of_bucket(bucket: BucketState, history: Option<History>) -> Self {
        match history {
            Some(history) => Self::History(HistoryState { bucket, history }),
            None => Self::Bucket(bucket),
        }
    }
}

impl Limit {
    /// The answer of a limit whose charges are settled later, and the history that is then stored with the bucket.
    pub(super) fn note_history(
        &self,
        state: Option<&State>,
        now: Timestamp,
        mut measured: Measurement,
        change: Option<Change>,
    ) -> (Measurement, Option<Change>) {
        let Some(Change {
            update: Update::Put(State::Bucket(bucket)),
            ends,
        }) = change.clone().filter(|_| self.history)
        else {
            return (measured, change);
        };
        // A bucket that was set to the debt ceiling begins another history.
        // Under another rate too: how the bucket drained until now says nothing of charges to come.
        let rate = |state: &BucketState| state.numbers.map(|numbers| numbers.interval());
        let goes_on = |held: &BucketState| {
            held.at > now.micros() && bucket.at >= held.at && rate(held) == rate(&bucket)
        };
        let held = state.and_then(State::bucket).filter(goes_on);
        let history = held.and_then(|_| state?.history());
        let history = history.unwrap_or(History::begun(now));
        if measured.wait == Wait::Micros(0) && measured.granted.is_none() {
            measured.back = history.back;
        }
        let change = Change::put(State::of_bucket(bucket, Some(history)), ends);
        (measured, Some(change))
    }

    /// The ticket of an admitted request that was charged `cost`.
    #[must_use]
    pub fn ticket(&self, at: Timestamp, measured: Measurement, cost: Cost) -> Ticket {
        let ticket = self.rule.ticket(at, measured, cost);
        match ticket.mark {
            Mark::Bucket(was) if self.history => Ticket {
                mark: Mark::History(HistoryMark {
                    was,
                    at,
                    charged: at,
                    back: measured.back,
                    cost,
                }),
                ..ticket
            },
            _ => ticket,
        }
    }
}
