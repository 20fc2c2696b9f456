//! The charged checks of a request if some limits do not decide: such limits form separate groups, and are charged only
//! with their request. Twin: `lua/shadow.lua`.

use super::answers::{Answers, LimitAnswer};
use super::check::{Check, Intent};
use super::reservation::Reservation;
use crate::limit::verdict::{INLINE_LIMITS, Verdict};
use smallvec::SmallVec;

/// The verdict of a limit that does not decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShadowVerdict {
    /// The position of the limit among the request's checks.
    pub index: usize,
    /// The verdict; `None` if no store has counted.
    pub verdict: Option<Verdict>,
}

/// The group of each check: 0 for the limits that decide about the request.
pub(super) type ShadowGroups = SmallVec<[u8; INLINE_LIMITS]>;

/// The groups of `checks`.
pub(super) fn groups(checks: &[Check<'_>]) -> ShadowGroups {
    let mut last: Option<&Check<'_>> = None;
    let mut group = 0_u8;
    let grouped = checks.iter().map(|check| {
        if check.limit.mode.decides() {
            return 0;
        }
        let is_same = last.is_some_and(|last| last.limit.is_sibling_of(check.limit));
        last = Some(check);
        group = group.saturating_add(u8::from(!is_same));
        group
    });
    grouped.collect()
}

/// Do all limits of `checks` decide?
pub(super) fn all_decide(checks: &[Check<'_>]) -> bool {
    checks.iter().all(|check| check.limit.mode.decides())
}

/// The charged checks of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Charges {
    /// Is the request admitted?
    pub(super) admitted: bool,
    /// One entry for each check; empty if all checks are charged with the request.
    each: SmallVec<[bool; INLINE_LIMITS]>,
}

impl Charges {
    /// The charges of `checks` by their answers.
    pub(super) fn of(checks: &[Check<'_>], answers: &[LimitAnswer], intent: Intent) -> Self {
        if all_decide(checks) {
            let admits = answers.iter().all(LimitAnswer::admits);
            return Self::of_all(admits && intent == Intent::Charge);
        }
        // A shadow with an unknown answer is not charged.
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

    /// The charges if all checks are charged with the request.
    #[inline]
    pub(super) fn of_all(admitted: bool) -> Self {
        Self {
            admitted,
            each: SmallVec::new(),
        }
    }

    /// Is the check at `index` charged?
    pub(super) fn has(&self, index: usize) -> bool {
        self.each.get(index).copied().unwrap_or(self.admitted)
    }
}

impl Answers {
    /// Do all deciding limits admit the request?
    pub(super) fn admit(&self, checks: &[Check<'_>]) -> bool {
        Charges::of(checks, self, Intent::Charge).admitted
    }

    /// The charges of `checks`, if all deciding limits admit.
    pub(super) fn reservations(&self, checks: &[Check<'_>]) -> Vec<Reservation> {
        let charges = Charges::of(checks, self, Intent::Charge);
        let all = checks.iter().zip(&self.each).enumerate();
        all.filter(|(index, _)| charges.has(*index))
            .filter_map(|(_, (check, answer))| answer.reservation(check))
            .collect()
    }
}
