//! Charges that are given back by somebody who wants to know whether they went.

use super::batch::{Charge, Check, Refund};
use super::decided_by::DecidedBy;
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
pub enum Given {
    /// It has gone back, whole or in part.
    Back,
    /// Nothing has: somebody counts on it, or it has passed. It can be tried again.
    Kept,
    /// Nobody knows, or it never can.
    Lost,
    /// The store has not said yet.
    Soon(GivenSoon),
}

/// A store's answer that is to come.
#[derive(Debug)]
pub struct GivenSoon(oneshot::Receiver<Result<u8, StoreError>>);

impl GivenSoon {
    /// Waits for it: as long as the store's calls may take.
    pub async fn told(self) -> Given {
        match self.0.await {
            Ok(Ok(0)) => Given::Kept,
            Ok(Ok(1 | 2)) => Given::Back,
            // What may have been done is not tried again.
            Ok(Ok(_) | Err(_)) | Err(_) => Given::Lost,
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
    pub fn give_back(&self, charge: &Charge, by: DecidedBy) -> Given {
        let Charge { limit, key, .. } = charge;
        let memory = |memory: &MemoryStore| match memory.refund(limit, key, charge.ticket) {
            true => Given::Back,
            false => Given::Kept,
        };
        match (self, charge.by.unwrap_or(by)) {
            (Self::Redis { local, .. }, _) if limit.scope == Scope::Gateway => memory(local),
            (
                Self::Memory(local) | Self::Redis { local, .. },
                DecidedBy::Memory | DecidedBy::Local { .. },
            ) => memory(local),
            (Self::Redis { shared, near, .. }, DecidedBy::Redis) => {
                near.returns(limit, key);
                let told = shared.give_back(Refund::from(charge));
                told.map_or(Given::Lost, |told| Given::Soon(GivenSoon(told)))
            }
            (Self::Memory(_), DecidedBy::Redis)
            | (_, DecidedBy::Lease | DecidedBy::Remembered | DecidedBy::Open | DecidedBy::Closed) => {
                Given::Lost
            }
        }
    }
}
