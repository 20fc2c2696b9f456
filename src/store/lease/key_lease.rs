//! Permits in hand for one key: what the last call has brought, what is left of it, and what the next one is to ask for.

#[cfg(test)]
mod tests;

use super::{TAIL, demand, since};
use crate::clock::Timestamp;
use crate::limit::BucketState;
use crate::limit::leaky_bucket::LeakyBucket;
use crate::limit::rate::Cost;
use crate::limit::token_bucket::TokenBucket;
use crate::limit::verdict::{Measurement, Verdict, VerdictOutcome, Wait};
use crate::limit::{LeaseTerms, Limit, Rule, State};
use crate::store::answers::Answers;
use crate::store::check::Check;
use crate::store::invalidation::Invalidation;
use smallvec::SmallVec;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// A bucket that fills within so many microseconds can spare what is lost of it while it is not half used up.
const SOON: u64 = 10_000_000;
/// Part of a bucket's rate that one worker may lose.
const LOST: f64 = 100.0;
/// Calls of which something is to go back at once; of more the oldest is lost.
const MOST_OWED: usize = 8;

/// Permits for one key.
#[derive(Debug)]
pub(super) struct KeyLease {
    pub(super) hash: u64,
    /// The limit as it was asked: after a reload it is another, and its numbers may be.
    pub(super) limit: Arc<Limit>,
    pub(super) key: SmallVec<[u8; 16]>,
    /// Not used yet, and until when they may be.
    pub(super) permits: u32,
    pub(super) until: Instant,
    /// Charged for those who waited when the call was sent.
    pub(super) due: u32,
    /// Calls so far.
    pub(super) turn: u64,
    /// A call is under way, or is about to be.
    pub(super) asking: bool,
    /// It has been sent: who comes now is not charged by it.
    pub(super) sent: bool,
    /// The last call failed.
    pub(super) failed: bool,
    /// Wait for the next call.
    pub(super) waiting: u32,
    /// How long the last call took.
    pub(super) took: Duration,
    /// Units of a bucket that may yet be lost, as of that instant.
    spare: (f64, Instant),
    /// Nobody asks before that: too little would have come back.
    pub(super) paused: Instant,
    pub(super) last: Option<LeaseCall>,
    /// Of an earlier call, as the news count its time: not used, and not to be used any more.
    pub(super) left: SmallVec<[(u64, u32); 2]>,
    pub(super) answered: Rc<Notify>,
}

/// The last answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct LeaseCall {
    /// When it was asked, by the worker's clock and as the news count time.
    pub(super) sent: Instant,
    pub(super) asked: u64,
    /// When the answer was here: who is told a wait is told it from then on, so that it is never too short.
    told: Instant,
    pub(super) at: Timestamp,
    pub(super) measured: Measurement,
    /// Units that it charged, and what was left then.
    pub(super) charged: u32,
    pub(super) verdict: Verdict,
}

impl KeyLease {
    pub(super) fn new(hash: u64, check: &Check<'_>, now: Instant) -> Self {
        Self {
            hash,
            limit: Arc::clone(check.limit),
            key: SmallVec::from_slice(check.key),
            permits: 0,
            until: now,
            due: 0,
            turn: 0,
            asking: false,
            sent: false,
            failed: false,
            waiting: 0,
            took: Duration::ZERO,
            // One worker's share, as soon as that is known.
            spare: (f64::INFINITY, now),
            paused: now,
            last: None,
            left: SmallVec::new(),
            answered: Rc::default(),
        }
    }

    pub(super) fn is_of(&self, hash: u64, check: &Check<'_>) -> bool {
        self.hash == hash && self.limit.id == check.limit.id && *self.key == *check.key
    }

    /// Nothing of a counter that was reset is in hand, nor under numbers that are others now.
    pub(super) fn renew(&mut self, check: &Check<'_>, news: &Invalidation, now: Instant) {
        let is_reset = |last: &LeaseCall| news.is_reset(self.hash, last.asked);
        if self.last.as_ref().is_some_and(is_reset) {
            (self.permits, self.last, self.paused) = (0, None, now);
        }
        if !Arc::ptr_eq(&self.limit, check.limit) {
            self.leave();
            self.limit = Arc::clone(check.limit);
            (self.due, self.last, self.paused) = (0, None, now);
        }
    }

    /// What was not used is not used any more.
    pub(super) fn leave(&mut self) {
        let units = std::mem::take(&mut self.permits);
        self.lose(units);
        if let Some(last) = self.last {
            self.owe(last.asked, units);
        }
    }

    fn lose(&mut self, units: u32) {
        self.spare.0 -= f64::from(units);
    }

    /// So many are not lost, but have gone back.
    pub(super) fn has_returned(&mut self, units: u32) {
        self.spare.0 += f64::from(units);
    }

    /// How many permits may be taken for later, were none of them used. What a window's call brings in vain goes back; of a
    /// bucket it is lost, but for what is left of it after a while: at most a hundredth of its rate, and one worker's share
    /// at once. One that fills within seconds, and is not half used up, has it back before anybody lacks it.
    pub(super) fn spare(&mut self, terms: &LeaseTerms, now: Instant) -> u32 {
        let capacity = u128::from(self.limit.rule.most());
        let period = u128::from(self.limit.rate.period.get());
        let count = u128::from(self.limit.rate.count.get());
        let is_soon_full = capacity * period <= count * u128::from(SOON);
        let has_room = |last: &LeaseCall| u128::from(last.verdict.remaining) * 2 >= capacity;
        if !terms.loses() || is_soon_full && self.last.as_ref().is_some_and(has_room) {
            return u32::MAX;
        }
        let (spare, then) = self.spare;
        let back = since(then, now) as f64 / self.limit.rate.period.get() as f64
            * f64::from(self.limit.rate.count.get())
            / LOST;
        let spare = (spare + back).min(f64::from(terms.most));
        self.spare = (spare, now);
        // A cast from a float stays within the bounds.
        spare.max(0.0) as u32
    }

    /// So many of what was charged in that call are to go back when its time is over.
    pub(super) fn owe(&mut self, asked: u64, units: u32) {
        if units == 0 {
            return;
        }
        if let Some((_, owed)) = self.left.iter_mut().find(|(left, _)| *left == asked) {
            *owed += units;
            return;
        }
        if self.left.len() >= MOST_OWED {
            self.left.remove(0);
        }
        self.left.push((asked, units));
    }

    /// Is there a permit that may be used now?
    pub(super) fn has(&self, now: Instant) -> bool {
        self.permits > 0 && now < self.until
    }

    /// Takes one back that was in hand after that call.
    pub(super) fn put_back(&mut self, asked: u64, now: Instant) {
        let is_last = self.last.is_some_and(|last| last.asked == asked);
        match is_last && now < self.until {
            true => self.permits += 1,
            false => self.owe(asked, 1),
        }
    }

    /// Takes what was not used of the call that was asked at that instant.
    pub(super) fn take(&mut self, asked: u64) -> u32 {
        let mut units = 0;
        if self.last.is_some_and(|last| last.asked == asked) {
            // Who has not come for what was brought for him by now has left.
            units = std::mem::take(&mut self.permits) + std::mem::take(&mut self.due);
            self.lose(units);
        }
        self.left.retain(|(left, more)| {
            let is_it = *left == asked;
            units += if is_it { *more } else { 0 };
            !is_it
        });
        units
    }

    /// What an admitted request is told. Never more than there is: of the permits in hand nobody else takes any, of what
    /// else was left others may have.
    pub(super) fn verdict(&self, now: Instant, by_call: bool) -> Verdict {
        let Some(last) = &self.last else {
            return Verdict {
                outcome: VerdictOutcome::Admit { delay: 0 },
                remaining: 0,
                reset: 0,
            };
        };
        let left = if by_call { last.verdict.remaining } else { 0 };
        Verdict {
            outcome: VerdictOutcome::Admit { delay: 0 },
            remaining: left + u64::from(self.permits),
            reset: last.verdict.reset.saturating_sub(since(last.sent, now)),
        }
    }

    /// What a request is told while nobody asks.
    pub(super) fn refusal(&self, now: Instant) -> Verdict {
        let pause = self.pause_left(now);
        let wait = self
            .last
            .as_ref()
            .map_or(pause, |last| pause.max(self.next(last, now)));
        let of = |last: &LeaseCall| last.verdict.reset.saturating_sub(since(last.sent, now));
        Verdict {
            outcome: VerdictOutcome::Refuse(Wait::Micros(wait.max(1))),
            remaining: 0,
            reset: self.last.as_ref().map_or(0, of),
        }
    }

    /// For how many microseconds from `now` on nobody asks, rounded up.
    pub(super) fn pause_left(&self, now: Instant) -> u64 {
        let left = self.paused.saturating_duration_since(now);
        u64::try_from(left.as_nanos().div_ceil(1000)).unwrap_or(u64::MAX)
    }

    /// When there is room for one more, as of `now`, if nobody takes or gives back anything.
    fn next(&self, last: &LeaseCall, now: Instant) -> u64 {
        let (Rule::TokenBucket(TokenBucket { interval, .. })
        | Rule::LeakyBucket(LeakyBucket { interval, .. })) = &self.limit.rule
        else {
            // How long a window stays full the store has said. That is remembered as well, but for refusals while something
            // may be on its way back.
            return match last.measured.wait {
                Wait::Micros(full) => full.saturating_sub(since(last.told, now)),
                Wait::Never => 0,
            };
        };
        let state = BucketState::at_level(last.at, last.measured.span, *interval);
        let at = last.at.plus(since(last.told, now));
        let (measured, _) = self.limit.check(Some(&State::Bucket(state)), at, Cost::ONE);
        match measured.wait {
            Wait::Micros(wait) => wait,
            Wait::Never => 0,
        }
    }

    /// How much to ask for: for those who wait, and for those who come soon.
    pub(super) fn order(&mut self, terms: &LeaseTerms, demand: u64, now: Instant) -> u32 {
        self.sent = true;
        let soon = demand * terms.hold / demand::SLOT;
        let soon = u32::try_from(soon).unwrap_or(u32::MAX);
        let mut later = soon
            .saturating_sub(self.waiting)
            .min(terms.most)
            .min(self.spare(terms, now));
        if let Some(last) = self.last.filter(|_| !terms.trickles()) {
            let tail = u32::try_from(last.verdict.remaining / TAIL).unwrap_or(u32::MAX);
            later = later.min(tail);
        }
        let padding = match (&self.last, later) {
            (_, 0) => 0,
            (None, _) => terms.padding(0),
            (Some(last), _) => {
                let level = last.measured.span.whole;
                terms.padding(level.saturating_sub(since(last.sent, now)))
            }
        };
        self.waiting.saturating_add(later).saturating_add(padding)
    }

    /// Takes over what a call for `asked` units has brought.
    pub(super) fn fill(
        &mut self,
        terms: &LeaseTerms,
        (last, asked): (LeaseCall, u32),
        now: Instant,
    ) {
        self.due = self.waiting.min(last.charged);
        let rest = last.charged - self.due;
        let (permits, lasting) = terms.permits(rest, last.measured, last.at);
        self.until = last.sent + Duration::from_micros(lasting);
        self.permits = if now < self.until { permits } else { 0 };
        if terms.give_back() {
            self.owe(last.asked, rest - self.permits);
        }
        if self.permits == 0 {
            self.lose(rest);
        }
        // For how long a window stays full its own refusal says, which comes next.
        let is_told = terms.loses() || last.charged == 0;
        if last.charged < asked && terms.trickles() && is_told {
            self.paused = last.sent + Duration::from_micros(terms.pause);
        }
        self.last = Some(last);
    }
}

impl LeaseCall {
    pub(super) fn of(
        check: &Check<'_>,
        terms: &LeaseTerms,
        half: &Answers,
        (sent, asked, told): (Instant, u64, Instant),
    ) -> Option<Self> {
        let measured = *half.measured.first()?;
        let charged = match measured.wait {
            Wait::Micros(0) => measured.granted.unwrap_or(check.cost),
            _ => Cost::ZERO,
        };
        let verdict = terms.asks.rule.verdict(measured, half.at, charged, true);
        Some(Self {
            sent,
            asked,
            told,
            at: half.at,
            measured,
            charged: charged.units(),
            verdict,
        })
    }
}
