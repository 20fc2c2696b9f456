//! Slots that count in two places: in Redis, and in this process, which gives them while Redis is unavailable. So no
//! more than `max` requests are in flight when Redis becomes unavailable and after its return, provided that no gateway
//! has more than its share in flight.

use super::charges::Provision;
use super::{SharedStore, decided};
use crate::limit::rate::Cost;
use crate::limit::verdict::Ruling;
use crate::limit::{Mark, OnDown, Ticket};
use crate::store::answers::{Answers, UnknownCause};
use crate::store::check::{Check, Checks, Intent};
use crate::store::decider::Decider;
use crate::store::decision::StoreDecision;
use crate::store::error::StoreError;
use crate::store::lease::Grants;
use crate::store::redis::random_slot;
use crate::store::reservation::Reservation;
use crate::telemetry::metrics;

impl SharedStore {
    /// The same slot counted in this process in addition to Redis, which has given it: whenever this process has to
    /// decide in place of Redis, it knows its requests in flight. `None` if it never has to.
    pub(in crate::store) fn slot_here(&self, slot: &Reservation) -> Option<Reservation> {
        let (limit, key) = (&slot.limit, &*slot.key);
        let decides = limit.mode.decides() && self.on_down(limit) == OnDown::Local;
        if slot.by != Decider::Redis || !decides {
            return None;
        }
        let by = Decider::Local {
            gateways: self.fleet.gateways(),
        };
        self.local.count_slots(limit, key, slot.ticket.cost, by)
    }

    /// The same slot for Redis, in whose place this process has given it.
    pub(in crate::store) fn slot_in_redis(slot: &Reservation) -> Option<Reservation> {
        let Decider::Local { gateways } = slot.by else {
            return None;
        };
        let cost = slot.ticket.cost.units().div_ceil(u64::from(gateways.get()));
        Some(Reservation {
            by: Decider::Redis,
            ticket: Ticket {
                mark: Mark::Slot(random_slot()),
                cost: Cost::new(cost),
                record: None,
                overflow: false,
            },
            ..slot.clone()
        })
    }

    /// Decides `checks` while shares are enforced: a slot is first taken here, and then as usual. Other gateways may
    /// still count separately.
    pub(super) async fn decide_within_share(
        &self,
        checks: &[Check<'_>],
    ) -> Result<(Option<StoreDecision>, Decider), StoreError> {
        let has_share = |check: &Check<'_>| {
            !check.is_local()
                && check.limit.mode.decides()
                && check.limit.rule.concurrency().is_some()
                && self.on_down(check.limit) == OnDown::Local
                && self.redis.keeps_share_of(check.limit, check.key)
        };
        let slots: Checks<'_> = checks.iter().copied().filter(has_share).collect();
        if slots.is_empty() {
            return self.decide_as_ever(checks).await;
        }
        let by = Decider::Local {
            gateways: self.fleet.gateways(),
        };
        let answers = self.local.measure(&slots, Intent::Charge, by);
        if !answers.admit(&slots) {
            self.metrics.fallback(metrics::DecidedBy::Local);
            let mut all = Answers::unknown(checks, by, UnknownCause::Unasked);
            all.at = answers.at;
            all.replace(&answers);
            return Ok((Some(StoreDecision::of(checks, all)), by));
        }
        let mut provision = Provision {
            store: self,
            checks: &slots,
            answers,
            grants: Grants::new(),
            stays: false,
        };
        let (mut decided, by) = self.decide_as_ever(checks).await?;
        if let Some(decided) = &mut decided
            && matches!(decided.decision.ruling, Ruling::Admit { .. })
        {
            // If Redis has become unavailable again, the request already has a slot here.
            let is_redis =
                |slot: &Reservation| decided.decider(&slot.limit) == Some(Decider::Redis);
            let charges = provision.answers.reservations(&slots);
            if charges.iter().all(is_redis) {
                decided.slots = charges;
                provision.stays = true;
            }
        }
        Ok((decided, by))
    }

    /// Decides as usual.
    async fn decide_as_ever(
        &self,
        checks: &[Check<'_>],
    ) -> Result<(Option<StoreDecision>, Decider), StoreError> {
        if checks.iter().any(Check::is_local) {
            return self.decide_mixed(checks).await;
        }
        let answers = self.answer(checks, Intent::Charge).await?;
        Ok(decided(checks, answers))
    }
}
