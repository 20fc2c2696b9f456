//! Slots of limits on what is in flight: renewed while the request lives, given back when it ends, however it ends.

use crate::store::{Charge, Decider, Store};
use std::rc::Rc;
use std::time::Duration;
use tokio::task::AbortHandle;
use tokio::time::sleep;

/// What a request holds. Dropping it gives everything back.
#[derive(Debug)]
pub struct HeldSlots {
    store: Store,
    by: Decider,
    charges: Rc<[Charge]>,
    /// Ends with this. In this process no slot lapses, and nothing is renewed.
    renewal: Option<AbortHandle>,
}

impl HeldSlots {
    /// Holds `charges`, if there are any. On a worker's own thread.
    #[must_use]
    pub fn hold(store: &Store, by: Decider, charges: Vec<Charge>) -> Option<Self> {
        let ttls = charges
            .iter()
            .filter_map(|charge| charge.limit.rule.holds());
        let shortest = ttls.map(|rule| rule.ttl).min()?;
        let charges: Rc<[Charge]> = charges.into();
        let renewal = (by == Decider::Redis).then(|| {
            let (store, charges) = (store.clone(), Rc::clone(&charges));
            let pause = Duration::from_micros(shortest / 3);
            let task = tokio::task::spawn_local(async move {
                loop {
                    sleep(pause).await;
                    for charge in &*charges {
                        store.renew(charge, by);
                    }
                }
            });
            task.abort_handle()
        });
        Some(Self {
            store: store.clone(),
            by,
            charges,
            renewal,
        })
    }
}

impl Drop for HeldSlots {
    fn drop(&mut self) {
        if let Some(renewal) = &self.renewal {
            renewal.abort();
        }
        for charge in &*self.charges {
            self.store.refund(charge.clone(), self.by);
        }
    }
}
