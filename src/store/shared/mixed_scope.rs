//! One decision over two kinds of counters: limits that each gateway counts by itself, and limits that all gateways
//! share.
//!
//! 1. This gateway's own limits are checked and charged first, under their locks.
//! 2. Their charge is cancelled if the shared limits refuse, or if the request leaves before the answer.
//! 3. If the own limits refuse, the shared limits are checked without a charge: the answer names the longest wait of
//!    all, and gives the state of every limit.
//! 4. A cached refusal of the shared limits needs no call, and no charge is made.

use super::SharedStore;
use super::charges::Provision;
use crate::limit::Limit;
use crate::limit::verdict::Ruling;
use crate::store::answers::{Answers, UnknownCause};
use crate::store::check::{Check, Checks, Intent, replace_limits};
use crate::store::decider::Decider;
use crate::store::decision::StoreDecision;
use crate::store::error::StoreError;
use crate::store::lease::Grants;

impl SharedStore {
    /// Decides `checks`, some of which only this gateway counts.
    pub(super) async fn decide_mixed(
        &self,
        checks: &[Check<'_>],
    ) -> Result<(Option<StoreDecision>, Decider), StoreError> {
        let (local, shared): (Checks<'_>, Checks<'_>) =
            checks.iter().copied().partition(|check| check.is_local());
        if shared.is_empty() {
            return Ok((Some(self.decide_local(checks)), Decider::Memory));
        }
        if let Some(refusal) = self.remembered(&shared) {
            return Ok(self.decide_remembered(checks, &local, &refusal));
        }
        // Other requests may be charged between this charge and its cancellation.
        let with_history = replace_limits(&local, Limit::with_history);
        let answers = self
            .local
            .measure(&with_history, Intent::Charge, Decider::Memory);
        let intent = if answers.admit(&local) {
            Intent::Charge
        } else {
            Intent::Peek
        };
        let mut provision = Provision {
            store: self,
            checks: &with_history,
            answers,
            grants: Grants::new(),
            stays: false,
        };
        let answers = match self.answer(&shared, intent).await {
            // The refusal was unknown when the own limits were charged.
            Ok(refusal) if refusal.by == Decider::Remembered => {
                drop(provision);
                return Ok(self.decide_remembered(checks, &local, &refusal));
            }
            Ok(answers) => answers,
            // The own limits refuse, for any answers of the shared limits.
            Err(_) if intent == Intent::Peek => {
                let unknown = Answers::unknown(&shared, Decider::Closed, UnknownCause::Away);
                Box::new(unknown)
            }
            Err(error) => return Err(error),
        };
        let by = answers.by;
        let answers = join(checks, &provision.answers, Some(&answers));
        let decided = StoreDecision::of(checks, answers);
        provision.stays = matches!(decided.decision.ruling, Ruling::Admit { .. });
        Ok((Some(decided), by))
    }

    /// The decision of a request with own limits only.
    fn decide_local(&self, checks: &[Check<'_>]) -> StoreDecision {
        let mut limits = checks.iter().map(|check| check.limit);
        if !limits.any(|limit| limit.is_asked_with_history()) {
            return *self.local.decide(checks);
        }
        // A check without the history would make the counter lose its history.
        let with_history = replace_limits(checks, Limit::with_history_if_asked);
        *self.local.decide(&with_history)
    }

    /// The decision by a remembered refusal of the shared limits, beside the `local` limits, which are charged nothing.
    fn decide_remembered(
        &self,
        checks: &[Check<'_>],
        local: &[Check<'_>],
        refusal: &Answers,
    ) -> (Option<StoreDecision>, Decider) {
        let local = self.local.measure(local, Intent::Peek, Decider::Memory);
        let answers = join(checks, &local, Some(refusal));
        (
            Some(StoreDecision::of(checks, answers)),
            Decider::Remembered,
        )
    }
}

/// The answers of all of `checks`: of this gateway's `own` limits, and of the shared limits, which may be unknown.
pub(super) fn join(checks: &[Check<'_>], local: &Answers, shared: Option<&Answers>) -> Answers {
    let mut all = Answers::unknown(checks, Decider::Remembered, UnknownCause::Unasked);
    all.at = local.at;
    if let Some(shared) = shared {
        if !matches!(shared.by, Decider::Open | Decider::Closed) {
            all.at = shared.at;
        }
        all.by = shared.by;
        all.replace(shared);
    }
    all.replace(local);
    all
}
