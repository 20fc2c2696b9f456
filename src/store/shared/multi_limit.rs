//! A request with several limits, some of which have an available permit. The limits without a permit are checked
//! first, all at once; an admitted request then takes the permits. If a permit is no longer available by then, its
//! limit is checked, too. If that limit refuses, the other limits refund their charges.

use super::SharedStore;
use super::charges::Provision;
use crate::clock;
use crate::limit::verdict::INLINE_LIMITS;
use crate::store::answers::{Answers, UnknownCause};
use crate::store::check::{Check, Checks, Intent};
use crate::store::decider::Decider;
use crate::store::error::StoreError;
use crate::store::lease::{self, Grants};
use smallvec::SmallVec;
use tokio::time::Instant;

/// Positions among a request's checks.
type Positions = SmallVec<[usize; INLINE_LIMITS]>;

impl SharedStore {
    /// Answers for several limits, some of which may have leases.
    pub(super) async fn ask_with_leases(
        &self,
        checks: &[Check<'_>],
    ) -> Result<Box<Answers>, StoreError> {
        if let Some(refusal) = self.remembered(checks) {
            return Ok(refusal);
        }
        let seen = match self.cache.leases.look(checks) {
            Ok(seen) => seen,
            Err(refusal) => return Ok(refusal),
        };
        if seen.is_empty() {
            let answers = self.ask(checks, Intent::Charge, None).await?;
            if answers.by == Decider::Redis && answers.admit(checks) {
                self.order_permits(checks);
            }
            return Ok(answers);
        }
        let mut answers = LeasedAnswers::none(self, checks);
        let rest = positions(checks, |index| !has(&seen, index));
        if let Some(refusal) = answers.ask(&rest).await? {
            return Ok(refusal);
        }
        if !answers.all.admit(checks) {
            return Ok(answers.with(&seen));
        }
        let grants = self.cache.leases.draw(checks, &seen);
        let gone = positions(checks, |index| has(&seen, index) && !has(&grants, index));
        if !gone.is_empty() {
            let mut provision = Provision {
                store: self,
                checks,
                answers: answers.all.clone(),
                grants: grants.clone(),
                stays: false,
            };
            if let Some(refusal) = answers.ask(&gone).await? {
                return Ok(refusal);
            }
            if !answers.all.admit(checks) {
                return Ok(answers.with(&grants));
            }
            provision.stays = true;
        }
        self.order_permits(checks);
        Ok(answers.with(&grants))
    }

    /// Orders permits for the next requests, if few are left.
    fn order_permits(&self, checks: &[Check<'_>]) {
        for check in checks.iter().filter(|check| lease::may_take(check)) {
            if self.cache.leases.runs_short(check) {
                self.spawn_lease_call(check);
            }
        }
    }
}

fn positions(checks: &[Check<'_>], are: impl Fn(usize) -> bool) -> Positions {
    (0..checks.len()).filter(|index| are(*index)).collect()
}

fn has(grants: &Grants, index: usize) -> bool {
    grants.iter().any(|grant| grant.index == index)
}

/// The answers so far of a request with leases.
struct LeasedAnswers<'a> {
    store: &'a SharedStore,
    checks: &'a [Check<'a>],
    all: Answers,
    /// No store was called yet.
    is_first: bool,
    /// The instant by which all calls together must be answered.
    until: Instant,
}

impl<'a> LeasedAnswers<'a> {
    fn none(store: &'a SharedStore, checks: &'a [Check<'a>]) -> Self {
        Self {
            store,
            checks,
            all: Answers::unknown(checks, Decider::Lease, UnknownCause::Unasked),
            is_first: true,
            until: clock::now() + store.redis.timeout(),
        }
    }

    /// Checks the limits at these positions, if there are any. Returns a cached refusal, which ends the checks.
    async fn ask(&mut self, positions: &Positions) -> Result<Option<Box<Answers>>, StoreError> {
        if positions.is_empty() {
            return Ok(None);
        }
        let picked = positions.iter().filter_map(|index| self.checks.get(*index));
        let picked: Checks<'_> = picked.copied().collect();
        let until = (!self.is_first).then_some(self.until);
        let answers = self.store.ask(&picked, Intent::Charge, until).await?;
        if answers.by == Decider::Remembered {
            let cause = UnknownCause::Unasked;
            let refusal = Answers::unknown(self.checks, Decider::Remembered, cause);
            let mut refusal = Box::new(refusal);
            refusal.at = answers.at;
            refusal.replace(&answers);
            return Ok(Some(refusal));
        }
        if std::mem::take(&mut self.is_first) {
            (self.all.at, self.all.by) = (answers.at, answers.by);
        }
        self.all.replace(&answers);
        Ok(None)
    }

    /// Adds the permits' answers to these.
    fn with(mut self, grants: &Grants) -> Box<Answers> {
        if let (true, Some(grant)) = (self.is_first, grants.first()) {
            self.all.at = grant.answer.at;
        }
        for grant in grants {
            self.all.replace(&[grant.answer]);
        }
        Box::new(self.all)
    }
}
