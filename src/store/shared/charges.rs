//! Charges of shared limits after the decision: refunded, settled, renewed, or handed over to a queue.

use super::SharedStore;
use crate::limit::Scope;
use crate::limit::rate::Cost;
use crate::store::answers::LimitAnswer;
use crate::store::check::Check;
use crate::store::decider::Decider;
use crate::store::refund::{PendingRefund, RefundOutcome};
use crate::store::reservation::{Charge, Refund, Reservation};
use crate::store::settlement::{Correction, surcharge};

impl SharedStore {
    /// Refunds a charge that was decided `by` that, as far as no other charge counts on it.
    pub(in crate::store) fn refund(&self, charge: &Charge, by: Decider) -> RefundOutcome {
        match self.payee(charge, by) {
            Decider::Memory | Decider::Local { .. } => self.local.refund_charge(charge),
            Decider::Redis => {
                self.cache.refund_pending(&charge.limit, &charge.key);
                let answer = self.redis.refund_one(Refund::from(charge));
                answer.map_or(RefundOutcome::Lost, |answer| {
                    RefundOutcome::Pending(PendingRefund(answer))
                })
            }
            Decider::Lease | Decider::Remembered | Decider::Open | Decider::Closed => {
                RefundOutcome::Lost
            }
        }
    }

    /// Makes a charge, decided `by` that, one of `truth`.
    pub(in crate::store) fn settle_charge(&self, charge: &Charge, truth: Cost, by: Decider) {
        match self.payee(charge, by) {
            by @ (Decider::Memory | Decider::Local { .. }) => {
                self.local.settle_charge(charge, truth, by.gateways());
            }
            Decider::Redis => match charge.correction(truth) {
                Some(Correction::Less(ticket)) => {
                    let Charge { limit, key, .. } = charge;
                    self.cache.refund_pending(limit, key);
                    self.redis.correct([Refund { limit, key, ticket }]);
                }
                Some(Correction::More(overdraft, cost)) => {
                    self.redis.charge(&surcharge(overdraft, &charge.key, cost));
                }
                None => {}
            },
            Decider::Lease | Decider::Remembered | Decider::Open | Decider::Closed => {}
        }
    }

    /// Renews the slots that a charge holds.
    pub(in crate::store) fn renew(&self, charge: &Charge, by: Decider) {
        // In this process a slot is taken until it is refunded.
        if self.payee(charge, by) == Decider::Redis {
            self.redis.renew([Refund::from(charge)]);
        }
    }

    /// Refunds all of a charge whose request does not go on.
    pub(super) fn cancel(&self, reservation: &Reservation) {
        let Charge { limit, key, by, .. } = &reservation.charge;
        if *by == Some(Decider::Redis) {
            self.cache.refund_pending(limit, key);
            self.redis.cancel(std::slice::from_ref(reservation));
        } else {
            let charge = reservation.cancelled();
            self.refund(&charge, by.unwrap_or(Decider::Memory));
        }
    }

    /// Hands a place in an own queue over that cannot be refunded now, if the wait queue takes it.
    pub(super) fn hand_over(&self, answer: &LimitAnswer, check: &Check<'_>) {
        if let Some((heir, reserved)) = self
            .redis
            .abandoned_ticket_handler()
            .zip(answer.reservation(check))
        {
            heir(reserved.charge, reserved.turn);
        }
    }

    /// The decider that was paid. Limits of this gateway alone are counted in its memory, whatever decided about the rest.
    fn payee(&self, charge: &Charge, by: Decider) -> Decider {
        match charge.limit.scope {
            Scope::Gateway => Decider::Memory,
            Scope::Cluster => charge.by.unwrap_or(by),
        }
    }
}
