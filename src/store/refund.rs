//! Charges that are given back by somebody who wants to know whether they went.

use super::check::{Charge, Check, Refund};
use super::decider::Decider;
use super::error::StoreError;
use super::{MemoryStore, Store};
use crate::clock::Timestamp;
use crate::limit::Scope;
use crate::limit::verdict::Measurement;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// What has become of a charge that was to go back.
#[derive(Debug)]
pub enum RefundOutcome {
    /// It has been refunded, whole or in part.
    Refunded,
    /// Nothing was refunded: another charge counts on it, or it has passed. It can be tried again.
    Declined,
    /// The store did not answer, or it can never be refunded.
    Lost,
    /// The store has not said yet.
    Pending(PendingRefund),
}

/// A store's answer that is to come.
#[derive(Debug)]
pub struct PendingRefund(oneshot::Receiver<Result<u8, StoreError>>);

impl PendingRefund {
    /// Waits for it: as long as the store's calls may take.
    pub async fn outcome(self) -> RefundOutcome {
        match self.0.await {
            Ok(Ok(0)) => RefundOutcome::Declined,
            Ok(Ok(1 | 2)) => RefundOutcome::Refunded,
            // What may have been done is not tried again.
            Ok(Ok(_) | Err(_)) | Err(_) => RefundOutcome::Lost,
        }
    }
}

impl Store {
    /// Has `heir` take over the places in queues of requests that leave before they hear of them, with how long it is
    /// until their turn. In memory nobody can leave so early.
    pub fn bequeath(&self, heir: impl Fn(Charge, Duration) + 'static) {
        if let Self::Redis { shared, .. } = self {
            shared.bequeath(Box::new(heir));
        }
    }

    /// Hands a place over that cannot go back by itself now, if somebody takes it.
    pub(super) fn leave_behind(&self, check: &Check<'_>, at: Timestamp, measured: Measurement) {
        let Self::Redis { shared, .. } = self else {
            return;
        };
        if let Some((heir, ticket)) = shared.heir().zip(check.ticket(at, measured)) {
            let charge = Charge {
                limit: Arc::clone(check.limit),
                key: Box::from(check.key),
                ticket,
                by: None,
            };
            heir(charge, check.turn(at, measured));
        }
    }

    /// Gives a charge back to whoever took it, as far as nobody counts on it, and tells what has become of it.
    pub fn give_back(&self, charge: &Charge, by: Decider) -> RefundOutcome {
        let Charge { limit, key, .. } = charge;
        let memory = |memory: &MemoryStore| match memory.refund(limit, key, charge.ticket) {
            true => RefundOutcome::Refunded,
            false => RefundOutcome::Declined,
        };
        match (self, charge.by.unwrap_or(by)) {
            (Self::Redis { local, .. }, _) if limit.scope == Scope::Gateway => memory(local),
            (
                Self::Memory(local) | Self::Redis { local, .. },
                Decider::Memory | Decider::Local { .. },
            ) => memory(local),
            (Self::Redis { shared, near, .. }, Decider::Redis) => {
                near.returns(limit, key);
                let told = shared.give_back(Refund::from(charge));
                told.map_or(RefundOutcome::Lost, |told| {
                    RefundOutcome::Pending(PendingRefund(told))
                })
            }
            (Self::Memory(_), Decider::Redis)
            | (_, Decider::Lease | Decider::Remembered | Decider::Open | Decider::Closed) => {
                RefundOutcome::Lost
            }
        }
    }
}
