//! What one request has in hand: a permit of each of its limits that had one. Who is refused by another limit, or leaves
//! before the decision, puts them back.

use super::Leases;
use super::held::Held;
use super::since;
use crate::clock::Timestamp;
use crate::limit::OnDown;
use crate::limit::verdict::Verdict;
use crate::store::batch::Check;
use crate::store::beside::Charges;
use crate::store::decided_by::DecidedBy;
use crate::store::half::{Half, Measurements};
use smallvec::SmallVec;
use std::time::Instant;

/// One charge that was made with others.
#[derive(Debug, Clone, Copy)]
pub(super) struct Permit {
    /// What who takes it is told.
    verdict: Verdict,
    /// Whether it was charged for this request, or for whoever comes.
    by: DecidedBy,
    /// What the store's clock shows.
    at: Timestamp,
    /// The call that brought it, as the news count time.
    pub(super) asked: u64,
}

/// That there is none.
#[derive(Debug, Clone, Copy)]
pub(super) struct Refusal {
    verdict: Verdict,
    at: Timestamp,
}

/// The permits that a request has taken: put back when dropped, unless they were spent.
#[derive(Debug)]
pub(in crate::store) struct Hand<'a> {
    leases: &'a Leases,
    permits: SmallVec<[(usize, Check<'a>, Permit); 1]>,
    /// Limits that could be leased and are asked about, beside others.
    lacks: SmallVec<[Check<'a>; 1]>,
}

impl Permit {
    pub(super) fn of(held: &Held, now: Instant, by: DecidedBy) -> Self {
        Self {
            verdict: held.verdict(now, by == DecidedBy::Redis),
            by,
            at: at(held, now),
            asked: held.last.map_or(0, |last| last.asked),
        }
    }
}

impl Refusal {
    pub(super) fn of(held: &Held, now: Instant) -> Self {
        Self {
            verdict: held.refusal(now),
            at: at(held, now),
        }
    }

    /// What is known of `checks`, whose number `index` refuses: of the others nothing.
    pub(super) fn half(self, index: usize, checks: &[Check<'_>]) -> Half {
        let mut half = Half::whole(self.at, checks.iter().map(Check::nobody).collect());
        half.said.push((index, self.verdict));
        let others = (0..checks.len()).filter(|other| *other != index);
        half.others
            .extend(others.map(|other| (other, DecidedBy::Open)));
        half
    }
}

/// What the store's clock shows where nobody asks it.
fn at(held: &Held, now: Instant) -> Timestamp {
    let at = held.last.map(|last| last.at.plus(since(last.sent, now)));
    at.unwrap_or_default()
}

impl<'a> Hand<'a> {
    pub(super) fn empty(leases: &'a Leases) -> Self {
        Self {
            leases,
            permits: SmallVec::new(),
            lacks: SmallVec::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.permits.is_empty()
    }

    pub(super) fn take(&mut self, index: usize, check: &Check<'a>, permit: Permit) {
        self.permits.push((index, *check, permit));
    }

    pub(super) fn lacks(&mut self, check: &Check<'a>) {
        self.lacks.push(*check);
    }

    /// Is there one of the request's check at `index`?
    pub(in crate::store) fn has(&self, index: usize) -> bool {
        self.permits.iter().any(|(other, ..)| *other == index)
    }

    /// Those of `checks` of which there is none.
    pub(in crate::store) fn rest(&self, checks: &[Check<'a>]) -> impl Iterator<Item = Check<'a>> {
        let rest = checks.iter().enumerate();
        rest.filter(|(index, _)| !self.has(*index))
            .map(|(_, check)| *check)
    }

    /// Decides `checks`, of all of which there is one.
    pub(in crate::store) fn spend(mut self, checks: &[Check<'_>]) -> (Half, DecidedBy) {
        let measured: Measurements = checks.iter().map(Check::nobody).collect();
        let at = self.permits.first().map(|(.., permit)| permit.at);
        let mut half = Half::whole(at.unwrap_or_default(), measured);
        let has_asked = |(.., permit): &(_, _, Permit)| permit.by == DecidedBy::Redis;
        let by = match self.permits.iter().any(has_asked) {
            true => DecidedBy::Redis,
            false => DecidedBy::Lease,
        };
        self.show(&mut half, by);
        self.spent();
        (half, by)
    }

    /// Decides `checks`, of which the `rest` was measured, unless all of that may pass while the store is away.
    pub(in crate::store) fn beside(
        mut self,
        (checks, rest): (&[Check<'_>], &[Check<'_>]),
        (half, by): (Option<Half>, DecidedBy),
        open: Option<OnDown>,
    ) -> Option<Half> {
        let refused = |half: &Half| !Charges::of(rest, &half.measured, false).admitted;
        let refused = half.as_ref().is_some_and(refused);
        let whole = match self.permits.first() {
            None => half,
            Some((.., permit)) => {
                let nothing = || Half {
                    open,
                    ..Half::whole(permit.at, rest.iter().map(Check::nobody).collect())
                };
                let half = half.unwrap_or_else(nothing);
                let mut whole = half.among(checks, |index| !self.has(index));
                self.show(&mut whole, by);
                Some(whole)
            }
        };
        if !refused {
            self.spent();
        }
        whole
    }

    /// The request is admitted: nothing comes back.
    fn spent(&mut self) {
        self.permits.clear();
        self.lacks.clear();
    }

    /// Puts what the permits say into what is said of the whole request, which others may have decided.
    fn show(&self, half: &mut Half, by: DecidedBy) {
        for (index, _, permit) in &self.permits {
            half.said.push((*index, permit.verdict));
            if permit.by != by {
                half.others.push((*index, permit.by));
            }
        }
    }
}

impl Drop for Hand<'_> {
    fn drop(&mut self) {
        for (_, check, permit) in self.permits.drain(..) {
            self.leases.put_back(&check, permit);
            self.leases.falls(&check);
        }
        for check in self.lacks.drain(..) {
            self.leases.falls(&check);
        }
    }
}
