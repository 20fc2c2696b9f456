//! Permits of several limits of one request. A permit is taken when nothing else can refuse the request: who is refused
//! by another of his limits takes none, orders none, and keeps none from those who are served.

use super::key_lease::KeyLease;
use super::{BRISK, Leases, entry, may_take, since};
use crate::clock::Timestamp;
use crate::limit::verdict::{Verdict, VerdictOutcome, Wait};
use crate::store::answers::Answers;
use crate::store::check::Check;
use crate::store::decider::Decider;
use smallvec::SmallVec;
use std::time::{Duration, Instant};

/// When it is tried again whether calls take long still.
const AGAIN: Duration = Duration::from_secs(1);

/// One charge that was made with others.
#[derive(Debug, Clone, Copy)]
pub(in crate::store) struct Grant {
    /// What who takes it is told.
    pub(in crate::store) verdict: Verdict,
    /// Whether it was charged for this request, or for whoever comes.
    pub(in crate::store) by: Decider,
    /// What the store's clock shows.
    pub(in crate::store) at: Timestamp,
    /// The call that brought it, as the news count time.
    asked: u64,
}

/// That there is none, nor will be for a while.
#[derive(Debug, Clone, Copy)]
pub(super) struct LeaseRefusal {
    verdict: Verdict,
    at: Timestamp,
}

/// Permits that a request sees, or has taken, by the positions of its checks.
pub(in crate::store) type Grants = SmallVec<[(usize, Grant); 1]>;

impl Grant {
    pub(super) fn of(held: &KeyLease, now: Instant, by: Decider) -> Self {
        Self {
            verdict: held.verdict(now, by == Decider::Redis),
            by,
            at: at(held, now),
            asked: held.last.map_or(0, |last| last.asked),
        }
    }

    /// What it says of a request with this check alone.
    pub(super) fn half(self, check: &Check<'_>) -> Answers {
        let mut half = Answers::whole(self.at, std::iter::once(check.nobody()).collect());
        half.said.push((0, self.verdict));
        half
    }
}

impl LeaseRefusal {
    pub(super) fn of(held: &KeyLease, now: Instant) -> Self {
        Self {
            verdict: held.refusal(now),
            at: at(held, now),
        }
    }

    fn wait(&self) -> Wait {
        match self.verdict.outcome {
            VerdictOutcome::Refuse(wait) => wait,
            VerdictOutcome::Admit { .. } => Wait::Micros(0),
        }
    }

    /// What is known of `checks`, whose number `index` refuses: of the others nothing.
    pub(super) fn half(self, index: usize, checks: &[Check<'_>]) -> Answers {
        let mut half = Answers::whole(self.at, checks.iter().map(Check::nobody).collect());
        half.said.push((index, self.verdict));
        let others = (0..checks.len()).filter(|other| *other != index);
        half.others
            .extend(others.map(|other| (other, Decider::Open)));
        half
    }
}

/// What the store's clock shows where nobody asks it.
fn at(held: &KeyLease, now: Instant) -> Timestamp {
    let at = held.last.map(|last| last.at.plus(since(last.sent, now)));
    at.unwrap_or_default()
}

impl Leases {
    /// Of which of `checks` there is a permit now. LeaseAnswer is none.
    ///
    /// # Errors
    /// With what is known of the request where one of them has none for a while.
    pub(in crate::store) fn look(&self, checks: &[Check<'_>]) -> Result<Grants, Box<Answers>> {
        let now = Instant::now();
        let (mut found, mut refused) = (Grants::new(), None::<(usize, LeaseRefusal)>);
        for (index, check) in checks
            .iter()
            .enumerate()
            .filter(|(_, check)| may_take(check))
        {
            self.with(check, |held| {
                held.renew(check, &self.news, now);
                if held.has(now) && held.took <= BRISK {
                    found.push((index, Grant::of(held, now, Decider::Lease)));
                } else if now < held.paused {
                    let refusal = LeaseRefusal::of(held, now);
                    if refused.is_none_or(|(_, other)| other.wait() < refusal.wait()) {
                        refused = Some((index, refusal));
                    }
                }
            });
        }
        match refused {
            None => Ok(found),
            Some((index, refusal)) => Err(Box::new(refusal.half(index, checks))),
        }
    }

    /// Takes the permits that were `seen`, but for those that are gone.
    pub(in crate::store) fn draw(&self, checks: &[Check<'_>], seen: &Grants) -> Grants {
        let now = Instant::now();
        let drawn = seen.iter().filter_map(|(index, _)| {
            let check = checks.get(*index)?;
            let permit = self.with(check, |held| {
                held.renew(check, &self.news, now);
                held.has(now).then(|| {
                    held.permits -= 1;
                    Grant::of(held, now, Decider::Lease)
                })
            });
            Some((*index, permit.flatten()?))
        });
        drawn.collect()
    }

    /// Puts back what nobody has used.
    pub(in crate::store) fn put_back(&self, checks: &[Check<'_>], hand: &Grants) {
        let now = Instant::now();
        for (index, permit) in hand {
            if let Some(check) = checks.get(*index) {
                self.with(check, |held| held.put_back(permit.asked, now));
            }
        }
    }

    /// A request was admitted that needed a permit of this one. Should a call bring some for those who come next?
    pub(in crate::store) fn runs_short(&self, check: &Check<'_>) -> bool {
        let now = Instant::now();
        let hash = self.news.hash(check.limit.id, check.key);
        self.rises(check);
        let Some(terms) = check.limit.leases() else {
            return false;
        };
        if !self.demand.borrow().is_busy(hash, now) {
            return false;
        }
        let mut all = self.held.borrow_mut();
        let Some(held) = entry(&mut all, (hash, check), (true, now)) else {
            return false;
        };
        held.renew(check, &self.news, now);
        if held.asking || held.has(now) || now < held.paused {
            return false;
        }
        // Permits that came so late would have ended before whoever sees them is admitted by the others.
        let is_slow = held.took > BRISK && held.last.is_some_and(|last| now < last.sent + AGAIN);
        held.leave();
        if is_slow || held.spare(terms, now) == 0 {
            return false;
        }
        (held.asking, held.sent, held.waiting) = (true, false, 0);
        true
    }
}
