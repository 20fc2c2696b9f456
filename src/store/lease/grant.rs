//! Permits of several limits of one request. A request takes permits only if no other limit can refuse it. A refused
//! request takes no permit, orders no permit, and withholds no permit from the admitted requests.

use super::{BRISK, Leases, entry, may_take};
use crate::clock::Timestamp;
use crate::limit::verdict::{VerdictOutcome, Wait};
use crate::store::answers::{Answers, Evidence, LimitAnswer, UnknownCause};
use crate::store::check::Check;
use crate::store::decider::Decider;
use smallvec::SmallVec;

/// The time between two checks whether calls still take long.
const AGAIN: u64 = 1_000_000;

/// A permit that a request has found, or has taken.
#[derive(Debug, Clone, Copy)]
pub(in crate::store) struct LeaseGrant {
    /// The position of its check in the request.
    pub(in crate::store) index: usize,
    /// The answer that the permit gives.
    pub(in crate::store) answer: LimitAnswer,
    /// The instant at which the call for the permit was sent.
    sent: Timestamp,
}

/// The permits of one request.
pub(in crate::store) type Grants = SmallVec<[LeaseGrant; 1]>;

impl Leases {
    /// The permits that are available for `checks` now. The request does not take them yet.
    ///
    /// # Errors
    /// The answers of the request, if one of its limits has no permit for some time. The answers of its other limits
    /// are unknown.
    pub(in crate::store) fn look(&self, checks: &[Check<'_>]) -> Result<Grants, Box<Answers>> {
        let now = self.clock.now();
        let (mut found, mut refused) = (Grants::new(), None::<LimitAnswer>);
        let leased = checks.iter().enumerate();
        for (index, check) in leased.filter(|(_, check)| may_take(check)) {
            self.with(check, |held| {
                held.renew(check, &self.invalidation, now);
                if held.has(now) && held.took <= BRISK {
                    found.push(LeaseGrant {
                        index,
                        answer: held.admission(now, Decider::Lease),
                        sent: held.last.map_or(now, |last| last.sent),
                    });
                } else if now < held.paused {
                    let refusal = held.refusal(now);
                    if refused.is_none_or(|other| wait(&other) < wait(&refusal)) {
                        refused = Some(refusal);
                    }
                }
            });
        }
        let Some(refusal) = refused else {
            return Ok(found);
        };
        let mut answers = Answers::unknown(checks, Decider::Remembered, UnknownCause::Unasked);
        answers.at = refusal.at;
        answers.replace(&[refusal]);
        Err(Box::new(answers))
    }

    /// Takes the permits in `seen`, except permits that are no longer available.
    pub(in crate::store) fn draw(&self, checks: &[Check<'_>], seen: &Grants) -> Grants {
        let now = self.clock.now();
        let drawn = seen.iter().filter_map(|grant| {
            let check = checks.get(grant.index)?;
            let drawn = self.with(check, |held| {
                held.renew(check, &self.invalidation, now);
                held.has(now).then(|| {
                    held.permits -= 1;
                    LeaseGrant {
                        answer: held.admission(now, Decider::Lease),
                        sent: held.last.map_or(now, |last| last.sent),
                        ..*grant
                    }
                })
            });
            drawn.flatten()
        });
        drawn.collect()
    }

    /// Returns unused permits.
    pub(in crate::store) fn put_back(&self, checks: &[Check<'_>], grants: &Grants) {
        let now = self.clock.now();
        for grant in grants {
            if let Some(check) = checks.get(grant.index) {
                self.with(check, |held| held.put_back(grant.sent, now));
            }
        }
    }

    /// Should a call bring permits of this limit for the next requests? The request that needed one was admitted.
    pub(in crate::store) fn runs_short(&self, check: &Check<'_>) -> bool {
        let now = self.clock.now();
        let hash = self.invalidation.hash(check.limit.id, check.key);
        self.rises(check);
        let Some(terms) = check.limit.leases() else {
            return false;
        };
        if !self.demand.borrow().is_busy(hash, now) {
            return false;
        }
        let mut all = self.held.borrow_mut();
        let Some(held) = entry(&mut all, hash, check, true, now) else {
            return false;
        };
        held.renew(check, &self.invalidation, now);
        if held.asking || held.has(now) || now < held.paused {
            return false;
        }
        // Permits that arrived that late would have ended before the other limits of a request admit it.
        let is_slow =
            held.took > BRISK && held.last.is_some_and(|last| now < last.sent.plus(AGAIN));
        held.leave();
        if is_slow || held.spare(terms, now) == 0 {
            return false;
        }
        (held.asking, held.sent, held.waiting) = (true, false, 0);
        true
    }
}

fn wait(answer: &LimitAnswer) -> Wait {
    match answer.evidence {
        Evidence::Verdict(verdict) => match verdict.outcome {
            VerdictOutcome::Refuse(wait) => wait,
            VerdictOutcome::Admit { .. } => Wait::Micros(0),
        },
        Evidence::Measured(measured) => measured.wait,
        Evidence::Unknown(_) => Wait::Micros(0),
    }
}
