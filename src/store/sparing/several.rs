//! A request with several limits, of some of which a permit is in hand: the others are asked first, all at once. Whoever
//! they admit takes the permits; where one has gone meanwhile, its limit is asked, too, and the others get back what they
//! were charged if that refuses.

use super::{Recalled, Spared, ask};
use crate::clock::Timestamp;
use crate::limit::verdict::INLINE_LIMITS;
use crate::store::Store;
use crate::store::batch::{Charge, Check, Decided};
use crate::store::beside::Charges;
use crate::store::decided_by::DecidedBy;
use crate::store::error::StoreError;
use crate::store::half::{Half, Tentative};
use crate::store::leases::{self, Hand};
use crate::store::near::Near;
use crate::store::redis::RedisStore;
use crate::telemetry::metrics::StoreMetrics;
use smallvec::SmallVec;

/// Some of a request's checks.
type Positions = SmallVec<[usize; INLINE_LIMITS]>;

/// Decides `checks`.
pub(super) async fn decide(
    store: &Store,
    (near, shared, metrics): (&Near, &RedisStore, &StoreMetrics),
    checks: &[Check<'_>],
) -> Result<Spared, StoreError> {
    if let Some(recalled) = near.recall(shared, checks) {
        return Ok(Spared::Known(recalled));
    }
    let seen = match near.leases.look(checks) {
        Ok(seen) => seen,
        Err(refused) => return Ok(Spared::Told(Some(*refused), DecidedBy::Remembered)),
    };
    let order = || {
        for check in checks.iter().filter(|check| leases::may_take(check)) {
            if near.leases.runs_short(check) {
                leases::spawn(near, (shared, metrics), check);
            }
        }
    };
    if seen.is_empty() {
        let told = ask(store, checks, false).await?;
        if let Spared::Told(Some(half), DecidedBy::Redis) = &told
            && admits(checks, half)
        {
            order();
        }
        return Ok(told);
    }
    let mut answer = Answer::none(checks);
    let rest: Positions = (0..checks.len()).filter(|at| !has(&seen, *at)).collect();
    if let Some(recalled) = answer.ask(store, checks, &rest).await? {
        return Ok(known(recalled, checks, &rest));
    }
    if !admits(checks, &answer.half) {
        return Ok(answer.beside(&seen));
    }
    let mut drawn = Drawn::of(store, near, (checks, &seen));
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

fn admits(checks: &[Check<'_>], half: &Half) -> bool {
    Charges::of(checks, &half.measured, false).admitted
}

fn has(hand: &Hand, position: usize) -> bool {
    hand.iter().any(|(at, _)| *at == position)
}

fn known(recalled: Recalled, checks: &[Check<'_>], positions: &Positions) -> Spared {
    Spared::Known(recalled.among(checks, |at| positions.contains(&at)))
}

/// What has been said so far.
struct Answer {
    half: Half,
    /// Who was asked first, if anybody was.
    by: Option<DecidedBy>,
}

impl Answer {
    fn none(checks: &[Check<'_>]) -> Self {
        let nothing = checks.iter().map(Check::nobody).collect();
        Self {
            half: Half::whole(Timestamp::default(), nothing),
            by: None,
        }
    }

    /// Asks about the checks at these positions, if there are any. Answers refusals that are remembered instead.
    async fn ask(
        &mut self,
        store: &Store,
        checks: &[Check<'_>],
        positions: &Positions,
    ) -> Result<Option<Recalled>, StoreError> {
        if positions.is_empty() {
            return Ok(None);
        }
        let picked = positions.iter().filter_map(|at| checks.get(*at).copied());
        let picked: SmallVec<[Check<'_>; INLINE_LIMITS]> = picked.collect();
        let (half, by) = match ask(store, &picked, false).await? {
            Spared::Known(recalled) => return Ok(Some(recalled)),
            Spared::Told(half, by) => (half, by),
        };
        // All of them may pass while the store is away.
        let half = half.unwrap_or_else(|| Half {
            others: (0..picked.len()).map(|at| (at, DecidedBy::Open)).collect(),
            ..Half::whole(self.half.at, picked.iter().map(Check::nobody).collect())
        });
        self.add(
            half.among(checks, |at| positions.contains(&at)),
            positions,
            by,
        );
        Ok(None)
    }

    /// Adds what `half` says of the checks at these positions.
    fn add(&mut self, mut half: Half, positions: &Positions, by: DecidedBy) {
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
    fn charges(&self, checks: &[Check<'_>], positions: &Positions) -> Vec<(Tentative, DecidedBy)> {
        let decided = Decided::of_half(checks, self.half.clone());
        let charged = positions.iter().filter_map(|position| {
            let check = checks.get(*position)?;
            let charge = Charge::of(&decided, *position, check)?;
            let at = self.half.instant(*position);
            let turn = check.turn(at, self.half.measured[*position]);
            Some((Tentative { charge, at, turn }, self.by?))
        });
        charged.collect()
    }

    /// The same beside what permits say.
    fn beside(mut self, hand: &Hand) -> Spared {
        let by = self.by.unwrap_or(DecidedBy::Lease);
        if let (None, Some((_, permit))) = (self.by, hand.first()) {
            self.half.at = permit.at;
        }
        for (at, permit) in hand {
            self.half.said.push((*at, permit.verdict));
            if permit.by != by {
                self.half.others.push((*at, permit.by));
            }
        }
        Spared::Told(Some(self.half), by)
    }
}

/// Permits that a request has taken, and what its other limits were charged: given back when dropped, unless it is admitted.
struct Drawn<'a> {
    store: &'a Store,
    near: &'a Near,
    checks: &'a [Check<'a>],
    hand: Hand,
    charged: Vec<(Tentative, DecidedBy)>,
    stays: bool,
}

impl<'a> Drawn<'a> {
    fn of(store: &'a Store, near: &'a Near, (checks, seen): (&'a [Check<'a>], &Hand)) -> Self {
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

impl Drop for Drawn<'_> {
    fn drop(&mut self) {
        if self.stays {
            return;
        }
        self.near.leases.put_back(self.checks, &self.hand);
        for (tentative, by) in self.charged.drain(..) {
            let Tentative { charge, .. } = &tentative;
            match (self.store, charge.by.unwrap_or(by)) {
                (Store::Redis { shared, .. }, DecidedBy::Redis) => {
                    self.near.returns(&charge.limit, &charge.key);
                    shared.undo(&[tentative]);
                }
                _ => {
                    // All of it, whoever was counted here meanwhile.
                    let Tentative { charge, at, .. } = tentative;
                    let ticket = charge.limit.abandoned(charge.ticket, at);
                    self.store.refund(Charge { ticket, ..charge }, by);
                }
            }
        }
    }
}
