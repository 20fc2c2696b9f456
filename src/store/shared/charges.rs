//! Charges of shared limits after the decision: amended in the store that made them, or cancelled for a request that is
//! not forwarded.

use super::SharedStore;
use crate::store::answers::Answers;
use crate::store::check::Check;
use crate::store::decider::Decider;
use crate::store::lease::Grants;
use crate::store::reservation::{Amendment, RefundOutcome, Reservation};

impl SharedStore {
    /// Amends a charge in the store that made it.
    pub(in crate::store) fn amend(
        &self,
        reservation: &Reservation,
        amendment: Amendment,
    ) -> RefundOutcome {
        match reservation.by {
            Decider::Memory | Decider::Local { .. } => self.local.amend(reservation, amendment),
            Decider::Redis => {
                if reservation.comes_back(amendment) {
                    let Reservation { limit, key, .. } = reservation;
                    self.cache.refund_pending(limit, key);
                } else if matches!(amendment, Amendment::Settlement(_))
                    && self.cache.is_charged_before_reset(reservation)
                {
                    // The counter has begun anew, and what an older request costs is none of it.
                    return RefundOutcome::Lost;
                }
                self.redis.amend(reservation, amendment)
            }
            Decider::Lease | Decider::Remembered | Decider::Open | Decider::Closed => {
                RefundOutcome::Lost
            }
        }
    }

    /// Cancels a charge. A place in a queue is passed to the wait queue if other requests are after it.
    fn cancel(&self, reservation: &Reservation) {
        let outcome = self.amend(reservation, Amendment::Cancellation);
        if matches!(outcome, RefundOutcome::Declined) {
            self.redis.hand_over(reservation);
        }
    }
}

/// Charges of some limits of a request before the other limits are checked, and permits that the request has taken. All
/// of it is given back when this value is dropped, unless the request proceeds.
pub(super) struct Provision<'a> {
    pub(super) store: &'a SharedStore,
    pub(super) checks: &'a [Check<'a>],
    pub(super) answers: Answers,
    pub(super) grants: Grants,
    pub(super) stays: bool,
}

impl Drop for Provision<'_> {
    fn drop(&mut self) {
        if self.stays {
            return;
        }
        self.store.cache.leases.put_back(self.checks, &self.grants);
        for reservation in self.answers.reservations(self.checks) {
            self.store.cancel(&reservation);
        }
    }
}
