//! Which limits of a request are charged, where some of them do not decide: those go by groups of their own, and only with
//! their request. Twin: `lua/shadow.lua`.

use super::answers::{Answers, LimitAnswer};
use super::check::{Check, Intent};
use super::reservation::Reservation;
use crate::limit::verdict::{INLINE_LIMITS, Verdict};
use smallvec::SmallVec;

/// What a limit that does not decide says of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShadowVerdict {
    /// Which of the request's checks it is.
    pub index: usize,
    /// What it would have said; nothing where no store has counted.
    pub verdict: Option<Verdict>,
}

/// For each check its group: 0 for those that decide about the request.
pub(super) type Groups = SmallVec<[u8; INLINE_LIMITS]>;

/// The groups of `checks`.
pub(super) fn groups(checks: &[Check<'_>]) -> Groups {
    let mut last: Option<&Check<'_>> = None;
    let mut group = 0_u8;
    let grouped = checks.iter().map(|check| {
        if check.limit.mode.decides() {
            return 0;
        }
        let is_same = last.is_some_and(|last| last.limit.is_rate_beside(check.limit));
        last = Some(check);
        group = group.saturating_add(u8::from(!is_same));
        group
    });
    grouped.collect()
}

/// Do all decide?
pub(super) fn all_decide(checks: &[Check<'_>]) -> bool {
    checks.iter().all(|check| check.limit.mode.decides())
}

/// Which checks of a request are charged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Charges {
    /// Is the request admitted?
    pub(super) admitted: bool,
    /// One for each check; empty where all go with the request.
    each: SmallVec<[bool; INLINE_LIMITS]>,
}

impl Charges {
    /// Of `checks` as they were answered.
    pub(super) fn of(checks: &[Check<'_>], answers: &[LimitAnswer], intent: Intent) -> Self {
        if all_decide(checks) {
            return Self {
                admitted: intent == Intent::Charge && answers.iter().all(LimitAnswer::admits),
                each: SmallVec::new(),
            };
        }
        // A shadow of which nothing is known is not charged.
        let admits = |index: usize, group: u8| {
            let answer = answers.get(index);
            answer.is_none_or(|answer| answer.admits() && (group == 0 || answer.is_known()))
        };
        let groups = groups(checks);
        let admit = |group: u8| {
            let mut all = groups.iter().enumerate();
            all.all(|(index, other)| *other != group || admits(index, group))
        };
        let admitted = intent == Intent::Charge && admit(0);
        let charged = |group: &u8| admitted && (*group == 0 || admit(*group));
        Self {
            admitted,
            each: groups.iter().map(charged).collect(),
        }
    }

    /// Is the check at `index` charged?
    pub(super) fn has(&self, index: usize) -> bool {
        self.each.get(index).copied().unwrap_or(self.admitted)
    }
}

impl Answers {
    /// Do all limits admit that decide about the request?
    pub(super) fn admit(&self, checks: &[Check<'_>]) -> bool {
        Charges::of(checks, self, Intent::Charge).admitted
    }

    /// What was charged by `checks`, if all that decide admit.
    pub(super) fn reservations(&self, checks: &[Check<'_>]) -> Vec<Reservation> {
        let charges = Charges::of(checks, self, Intent::Charge);
        let all = checks.iter().zip(&self.each).enumerate();
        all.filter(|(index, _)| charges.has(*index))
            .filter_map(|(_, (check, answer))| answer.reservation(check))
            .collect()
    }
}
