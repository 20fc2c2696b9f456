//! Refusals that still hold: who is over a limit, and knows no better than to come again, costs no call.
//!
//! A refusal says how the counter stood, and for how long nothing of that cost will fit. Until then the counter can only
//! be fuller, unless somebody gives something back or resets it: so nothing is refused here that asking would have
//! admitted, but for what other gateways give back ([`MOST`] at the longest).
//! What a refused request's other limits would have said is not known, and not said.
//!
//! How the counter stands is known for as long as nothing that a request may cost would fit: while a cheaper one may be
//! admitted, by whichever gateway, less may remain than was said, and the wait be longer. Then it is asked.

mod single_flight;
#[cfg(test)]
mod tests;

use super::answers::{Answers, Measurements};
use super::check::{Check, StoreDecision};
use super::invalidation::Invalidation;
use crate::clock::Timestamp;
use crate::limit::BucketState;
use crate::limit::WindowState;
use crate::limit::leaky_bucket::LeakyBucket;
use crate::limit::rate::Cost;
use crate::limit::token_bucket::TokenBucket;
use crate::limit::verdict::{INLINE_LIMITS, Measurement, Wait};
use crate::limit::{Limit, LimitId, Rule, State};
use hashbrown::HashTable;
use hashbrown::hash_table::Entry as Slot;
pub(super) use single_flight::Flight;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Refusals that one worker remembers.
const ROOM: usize = 16_384;
/// No refusal is taken at its word for longer: what other gateways give back or reset is seen by then.
const MOST: Duration = Duration::from_mins(1);
/// Likewise in a cluster, where a counter may be full of what a request that another slot refuses gives back in a moment.
const MOST_APART: Duration = Duration::from_millis(250);

/// What one worker remembers.
#[derive(Debug)]
pub(super) struct RefusalCache {
    refusals: RefCell<HashTable<Refusal>>,
    news: Invalidation,
}

#[derive(Debug)]
struct Refusal {
    hash: u64,
    /// The limit as it was asked: after a reload it is another, and its numbers may be.
    limit: Arc<Limit>,
    key: SmallVec<[u8; 16]>,
    cost: Cost,
    /// When the store said so, by its clock.
    at: Timestamp,
    measured: Measurement,
    /// When it was asked, as the news count time; and when the answer was here.
    asked: u64,
    told: Instant,
    until: Instant,
    /// It has ended, and somebody asks anew.
    again: Option<Rc<Notify>>,
}

/// What is known of a request that will be refused.
#[derive(Debug)]
pub(super) struct CachedRefusal {
    /// As if it had been asked now; what is not known is so measured that nobody reads it.
    pub(super) half: Answers,
    /// The limits of which something is known.
    pub(super) known: SmallVec<[LimitId; INLINE_LIMITS]>,
    /// Is something known of all that decide?
    whole: bool,
}

impl CachedRefusal {
    /// The decision of the request with these checks.
    pub(super) fn decided(self, checks: &[Check<'_>]) -> StoreDecision {
        let (whole, known) = (self.whole, self.known);
        let decided = StoreDecision::of_half(checks, self.half);
        decided.of_known(whole, known)
    }

    /// The same of all of `checks`, of which these are `mine`: nothing is known of the others.
    pub(super) fn among(self, checks: &[Check<'_>], mine: impl Fn(usize) -> bool) -> Self {
        Self {
            half: self.half.among(checks, mine),
            known: self.known,
            whole: false,
        }
    }

    /// The same beside what this gateway counts by itself.
    pub(super) fn decided_beside(self, checks: &[Check<'_>], own: &Answers) -> StoreDecision {
        let (whole, known) = (self.whole, self.known);
        let decided = StoreDecision::of_halves(checks, (own.at, &own.measured), Some(self.half));
        decided.of_known(whole, known)
    }
}

impl RefusalCache {
    /// Remembers nothing yet.
    pub(super) fn new(news: Invalidation) -> Self {
        Self {
            refusals: RefCell::default(),
            news,
        }
    }

    /// What is known of a request with these limits at `now`: nothing, unless one that decides refuses it. Nor of counters
    /// of which nobody `is_there` who serves them.
    pub(super) fn recall(
        &self,
        checks: &[Check<'_>],
        (now, is_there): (impl Fn() -> Instant, impl Fn(&Check<'_>) -> bool),
    ) -> Option<CachedRefusal> {
        let mut refusals = self.refusals.borrow_mut();
        if refusals.is_empty() {
            return None;
        }
        let now = now();
        let mut known = SmallVec::new();
        let (mut measured, mut at) = (Measurements::new(), None);
        let mut whole = true;
        for check in checks {
            let decides = check.limit.mode.decides();
            let refusal = self.find(&mut refusals, check, now);
            let refusal = refusal.filter(|_| is_there(check));
            whole &= refusal.is_some() || !decides;
            measured.push(match refusal {
                Some((when, refusal)) => {
                    if decides {
                        at.get_or_insert(when);
                    }
                    known.push(check.limit.id);
                    refusal
                }
                None if decides => Measurement::UNKNOWN,
                None => Measurement::SPOILT,
            });
        }
        let half = Answers::whole(at?, measured);
        Some(CachedRefusal { half, known, whole })
    }

    /// The refusal of `check`, with what the store's clock shows by now. One that says nothing any more goes.
    fn find(
        &self,
        refusals: &mut HashTable<Refusal>,
        check: &Check<'_>,
        now: Instant,
    ) -> Option<(Timestamp, Measurement)> {
        let hash = self.news.hash(check.limit.id, check.key);
        let found = refusals
            .find_entry(hash, |refusal| refusal.is_of(hash, check))
            .ok()?;
        let refusal = found.get();
        let elapsed = now.saturating_duration_since(refusal.told);
        let at = refusal.at.plus(micros(elapsed));
        let holds = refusal.is_about(check) && self.news.holds(hash, refusal.asked);
        if holds && now >= refusal.until {
            // Whoever asks next tells those who come meanwhile.
            return None;
        }
        if holds {
            // What repeats an earlier request may go free.
            return match check.repeats() {
                None => refusal
                    .measured_at(at, check.cost)
                    .map(|measured| (at, measured)),
                Some(_) => None,
            };
        }
        found.remove();
        None
    }

    /// Keeps what `half` says of those that refuse, which was asked and told at these instants.
    pub(super) fn remember(
        &self,
        checks: &[Check<'_>],
        half: &Answers,
        (asked, told): (Instant, Instant),
        may_pass: impl Fn(&Limit) -> bool,
    ) {
        for (index, (check, measured)) in checks.iter().zip(&half.measured).enumerate() {
            let Some(wait) = lasting(check, measured) else {
                continue;
            };
            let most = most(may_pass(check.limit));
            // A request that may be granted less is refused what one unit is.
            let cost = match check.limit.partial {
                true => check.cost.min(Cost::ONE),
                false => check.cost,
            };
            self.keep(Refusal {
                hash: self.news.hash(check.limit.id, check.key),
                limit: Arc::clone(check.limit),
                key: SmallVec::from_slice(check.key),
                cost,
                at: half.instant(index),
                measured: *measured,
                asked: self.news.instant(asked),
                told,
                // From before it was asked: nobody is refused for longer than asking would, and told from when it was
                // answered, so that nobody is told a shorter wait.
                until: asked + wait.min(most),
                again: None,
            });
        }
    }

    fn keep(&self, refusal: Refusal) {
        let mut refusals = self.refusals.borrow_mut();
        if refusals.len() >= ROOM {
            make_room(&mut refusals, refusal.told);
        }
        let is_same = |other: &Refusal| {
            other.hash == refusal.hash
                && other.limit.id == refusal.limit.id
                && other.key == refusal.key
        };
        match refusals.entry(refusal.hash, is_same, |other| other.hash) {
            Slot::Vacant(place) => {
                place.insert(refusal);
            }
            // What refuses a smaller cost says more.
            Slot::Occupied(place)
                if place.get().cost < refusal.cost && place.get().stands(refusal.told) => {}
            Slot::Occupied(mut place) => *place.get_mut() = refusal,
        }
    }

    /// Forgets what has ended. Called now and then.
    pub(super) fn sweep(&self) {
        let now = Instant::now();
        let mut refusals = self.refusals.borrow_mut();
        refusals.retain(|refusal| now < refusal.until);
        if refusals.capacity() > 64 && refusals.capacity() / 4 > refusals.len() {
            let room = refusals.len() * 2;
            refusals.shrink_to(room, |refusal| refusal.hash);
        }
    }
}

impl Refusal {
    fn is_of(&self, hash: u64, check: &Check<'_>) -> bool {
        self.hash == hash && self.limit.id == check.limit.id && *self.key == *check.key
    }

    /// Does it say something of that check, while it holds? What takes less may be admitted, and then there is less than
    /// was said.
    fn is_about(&self, check: &Check<'_>) -> bool {
        Arc::ptr_eq(&self.limit, check.limit)
            && (check.cost >= self.cost || check.cost == Cost::ZERO)
    }

    /// Is it still known how the counter stands, `now`?
    fn stands(&self, now: Instant) -> bool {
        let at = self
            .at
            .plus(micros(now.saturating_duration_since(self.told)));
        now < self.until && self.measured_at(at, self.cost).is_some()
    }

    /// What a request of `cost` would be told at `at`, if it would be refused and that can be told from here: nobody can
    /// have been admitted since.
    fn measured_at(&self, at: Timestamp, cost: Cost) -> Option<Measurement> {
        let least = least(&self.limit).min(cost);
        let nobody_passes = least == cost || self.refused_at(at, least).is_some();
        self.refused_at(at, cost).filter(|_| nobody_passes)
    }

    /// The same, had nobody been admitted since.
    fn refused_at(&self, at: Timestamp, cost: Cost) -> Option<Measurement> {
        let state = match &self.limit.rule {
            Rule::TokenBucket(TokenBucket { interval, .. })
            | Rule::LeakyBucket(LeakyBucket { interval, .. }) => {
                let level = self.measured.span;
                State::Bucket(BucketState::at_level(self.at, level, *interval))
            }
            Rule::FixedWindow(rule) => {
                let end = self.at.plus(self.measured.span.whole).micros();
                self.window(end.checked_sub(rule.window)?)
            }
            Rule::ClockWindow(rule) => {
                self.window(rule.counted(self.at, self.measured.span.whole).0)
            }
            Rule::SlidingWindow(_) | Rule::SlidingLog(_) if cost == self.cost => {
                return self.nearer(at);
            }
            Rule::SlidingWindow(_) | Rule::SlidingLog(_) | Rule::Concurrency(_) => return None,
        };
        let (measured, _) = self.limit.check(Some(&state), at, cost);
        (measured.wait != Wait::Micros(0)).then_some(measured)
    }

    fn window(&self, start: u64) -> State {
        let count = self.measured.span.part;
        State::Window(WindowState { start, count })
    }

    /// The same refusal some time later. What has left a log or a window since is not told: less is said to remain than
    /// does.
    fn nearer(&self, at: Timestamp) -> Option<Measurement> {
        let passed = at.since(self.at);
        let wait = match self.measured.wait {
            Wait::Never => Wait::Never,
            Wait::Micros(wait) => Wait::Micros(wait.checked_sub(passed).filter(|left| *left > 0)?),
        };
        let mut measured = Measurement {
            wait,
            ..self.measured
        };
        measured.span.whole = measured.span.whole.saturating_sub(passed);
        Some(measured)
    }
}

/// The least that a request may take from a limit; what asks for nothing takes nothing.
fn least(limit: &Limit) -> Cost {
    match limit.price {
        Some(_) => Cost::ONE,
        None => limit.cost.max(Cost::ONE),
    }
}

/// For how long a refusal holds, if it is one that is worth keeping. A slot may be freed at any time.
fn lasting(check: &Check<'_>, measured: &Measurement) -> Option<Duration> {
    if measured.spoilt || check.limit.rule.holds().is_some() {
        return None;
    }
    match measured.wait {
        Wait::Micros(0) => None,
        Wait::Micros(wait) => Some(Duration::from_micros(wait)),
        Wait::Never => Some(MOST),
    }
}

/// For how long a refusal is taken at its word.
fn most(may_pass: bool) -> Duration {
    match may_pass {
        true => MOST_APART,
        false => MOST,
    }
}

/// What has ended goes, and a quarter of the others if that is not enough.
fn make_room(refusals: &mut HashTable<Refusal>, now: Instant) {
    refusals.retain(|refusal| now < refusal.until);
    if refusals.len() > ROOM / 4 * 3 {
        refusals.retain(|_| fastrand::u8(..4) > 0);
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
