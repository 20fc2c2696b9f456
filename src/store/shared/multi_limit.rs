//! A request with several limits, of some of which a permit is in hand: the others are asked first, all at once. Whoever
//! they admit takes the permits; where one has gone meanwhile, its limit is asked, too, and the others get back what they
//! were charged if that refuses.

use super::{CachedRefusal, SharedAnswer, ask};
use crate::clock::Timestamp;
use crate::limit::verdict::INLINE_LIMITS;
use crate::store::Store;
use crate::store::answers::{Answers, TentativeCharge};
use crate::store::check::{Charge, Check, StoreDecision};
use crate::store::decider::Decider;
use crate::store::error::StoreError;
use crate::store::lease::{self, Grants};
use crate::store::redis::RedisStore;
use crate::store::shadow::Charges;
use crate::store::worker_cache::WorkerCache;
use crate::telemetry::metrics::StoreMetrics;
use smallvec::SmallVec;

/// Some of a request's checks.
type Positions = SmallVec<[usize; INLINE_LIMITS]>;

/// Decides `checks`.
pub(super) async fn decide(
    store: &Store,
    (near, shared, metrics): (&WorkerCache, &RedisStore, &StoreMetrics),
    checks: &[Check<'_>],
) -> Result<SharedAnswer, StoreError> {
    if let Some(recalled) = near.recall(shared, checks) {
        return Ok(SharedAnswer::RefusalCache(recalled));
    }
    let seen = match near.leases.look(checks) {
        Ok(seen) => seen,
        Err(refused) => return Ok(SharedAnswer::Told(Some(*refused), Decider::Remembered)),
    };
    let order = || {
        for check in checks.iter().filter(|check| lease::may_take(check)) {
            if near.leases.runs_short(check) {
                lease::spawn(near, (shared, metrics), check);
            }
        }
    };
    if seen.is_empty() {
        let told = ask(store, checks, false).await?;
        if let SharedAnswer::Told(Some(half), Decider::Redis) = &told
            && admits(checks, half)
        {
            order();
        }
        return Ok(told);
    }
    let mut answer = GatheredAnswers::none(checks);
    let rest: Positions = (0..checks.len()).filter(|at| !has(&seen, *at)).collect();
    if let Some(recalled) = answer.ask(store, checks, &rest).await? {
        return Ok(known(recalled, checks, &rest));
    }
    if !admits(checks, &answer.half) {
        return Ok(answer.beside(&seen));
    }
    let mut drawn = GrantReservation::of(store, near, (checks, &seen));
    let gone: Positions = seen
        .iter()
        .map(|(at, _)| *at)
        .filter(|at| !has(&drawn.hand, *at))
        .collect();
    if !gone.is_empty() {
        drawn.charged = answer.charges(checks, &rest);
        if let Some(recalled) = answer.ask(store, checks, &gone).await? {
            return Ok(known(recalled, checks, &gone));
        }
        if !admits(checks, &answer.half) {
            return Ok(answer.beside(&drawn.hand));
        }
    }
    drawn.stays = true;
    order();
    Ok(answer.beside(&drawn.hand))
}

fn admits(checks: &[Check<'_>], half: &Answers) -> bool {
    Charges::of(checks, &half.measured, false).admitted
}

fn has(hand: &Grants, position: usize) -> bool {
    hand.iter().any(|(at, _)| *at == position)
}

fn known(recalled: CachedRefusal, checks: &[Check<'_>], positions: &Positions) -> SharedAnswer {
    SharedAnswer::RefusalCache(recalled.among(checks, |at| positions.contains(&at)))
}

/// What has been said so far.
struct GatheredAnswers {
    half: Answers,
    /// Who was asked first, if anybody was.
    by: Option<Decider>,
}

impl GatheredAnswers {
    fn none(checks: &[Check<'_>]) -> Self {
        let nothing = checks.iter().map(Check::nobody).collect();
        Self {
            half: Answers::whole(Timestamp::default(), nothing),
            by: None,
        }
    }

    /// Asks about the checks at these positions, if there are any. Answers refusals that are remembered instead.
    async fn ask(
        &mut self,
        store: &Store,
        checks: &[Check<'_>],
        positions: &Positions,
    ) -> Result<Option<CachedRefusal>, StoreError> {
        if positions.is_empty() {
            return Ok(None);
        }
        let picked = positions.iter().filter_map(|at| checks.get(*at).copied());
        let picked: SmallVec<[Check<'_>; INLINE_LIMITS]> = picked.collect();
        let (half, by) = match ask(store, &picked, false).await? {
            SharedAnswer::RefusalCache(recalled) => return Ok(Some(recalled)),
            SharedAnswer::Told(half, by) => (half, by),
        };
        // All of them may pass while the store is away.
        let half = half.unwrap_or_else(|| Answers {
            others: (0..picked.len()).map(|at| (at, Decider::Open)).collect(),
            ..Answers::whole(self.half.at, picked.iter().map(Check::nobody).collect())
        });
        self.add(
            half.among(checks, |at| positions.contains(&at)),
            positions,
            by,
        );
        Ok(None)
    }

    /// Adds what `half` says of the checks at these positions.
    fn add(&mut self, mut half: Answers, positions: &Positions, by: Decider) {
        let Some(first) = self.by else {
            (self.half, self.by) = (half, Some(by));
            return;
        };
        for at in positions {
            self.half.measured[*at] = half.measured[*at];
            let is_told = half.others.iter().any(|(other, _)| other == at);
            if !is_told && by != first {
                half.others.push((*at, by));
            }
        }
        self.half.others.append(&mut half.others);
        self.half.said.append(&mut half.said);
    }

    /// What the checks at these positions were charged, and by whom.
    fn charges(
        &self,
        checks: &[Check<'_>],
        positions: &Positions,
    ) -> Vec<(TentativeCharge, Decider)> {
        let decided = StoreDecision::of_half(checks, self.half.clone());
        let charged = positions.iter().filter_map(|position| {
            let check = checks.get(*position)?;
            let charge = Charge::of(&decided, *position, check)?;
            let at = self.half.instant(*position);
            let turn = check.turn(at, self.half.measured[*position]);
            Some((TentativeCharge { charge, at, turn }, self.by?))
        });
        charged.collect()
    }

    /// The same beside what permits say.
    fn beside(mut self, hand: &Grants) -> SharedAnswer {
        let by = self.by.unwrap_or(Decider::Lease);
        if let (None, Some((_, permit))) = (self.by, hand.first()) {
            self.half.at = permit.at;
        }
        for (at, permit) in hand {
            self.half.said.push((*at, permit.verdict));
            if permit.by != by {
                self.half.others.push((*at, permit.by));
            }
        }
        SharedAnswer::Told(Some(self.half), by)
    }
}

/// Permits that a request has taken, and what its other limits were charged: given back when dropped, unless it is admitted.
struct GrantReservation<'a> {
    store: &'a Store,
    near: &'a WorkerCache,
    checks: &'a [Check<'a>],
    hand: Grants,
    charged: Vec<(TentativeCharge, Decider)>,
    stays: bool,
}

impl<'a> GrantReservation<'a> {
    fn of(
        store: &'a Store,
        near: &'a WorkerCache,
        (checks, seen): (&'a [Check<'a>], &Grants),
    ) -> Self {
        Self {
            store,
            near,
            checks,
            hand: near.leases.draw(checks, seen),
            charged: Vec::new(),
            stays: false,
        }
    }
}

impl Drop for GrantReservation<'_> {
    fn drop(&mut self) {
        if self.stays {
            return;
        }
        self.near.leases.put_back(self.checks, &self.hand);
        for (tentative, by) in self.charged.drain(..) {
            let TentativeCharge { charge, .. } = &tentative;
            match (self.store, charge.by.unwrap_or(by)) {
                (Store::Redis { shared, .. }, Decider::Redis) => {
                    self.near.returns(&charge.limit, &charge.key);
                    shared.undo(&[tentative]);
                }
                _ => {
                    // All of it, whoever was counted here meanwhile.
                    let TentativeCharge { charge, at, .. } = tentative;
                    let ticket = charge.limit.abandoned(charge.ticket, at);
                    self.store.refund(Charge { ticket, ..charge }, by);
                }
            }
        }
    }
}
