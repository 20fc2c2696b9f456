//! A store by the pure functions alone: what Redis and the scripts are held against.

use crate::clock::Timestamp;
use crate::limit::rate::Cost;
use crate::limit::verdict::{Measured, Wait};
use crate::limit::{Change, Limit, Refunded, State, Ticket};
use crate::store::batch::Measurements;
use std::collections::HashMap;
use std::sync::Arc;

/// What the store should be, by the pure functions.
#[derive(Default)]
pub(super) struct Model {
    pub(super) stored: HashMap<Vec<u8>, (Vec<u8>, u64)>,
}

impl Model {
    fn state(&self, key: &[u8], limit: &Limit) -> Option<State> {
        let (bytes, _) = self.stored.get(key)?;
        State::decode(&limit.rule, bytes)
    }

    fn keep(&mut self, key: &[u8], limit: &Limit, now: Timestamp, change: Change) {
        let life = change.ends.since(now).div_ceil(1000);
        assert!(life > 0, "a state that is stored matters");
        let before = self.state(key, limit);
        let bytes = change.update.after(before).encode().to_vec();
        self.stored.insert(key.to_vec(), (bytes, life));
    }

    /// All of them checked, charged when all admit.
    pub(super) fn decide(
        &mut self,
        now: Timestamp,
        checks: &[(Vec<u8>, Arc<Limit>, Cost)],
    ) -> Measurements {
        let checked: Vec<(Measured, Option<Change>)> = checks
            .iter()
            .map(|(key, limit, cost)| {
                let state = self.state(key, limit);
                limit.check(state.as_ref(), now, *cost)
            })
            .collect();
        let admitted = |measured: &Measured| measured.wait == Wait::Micros(0);
        let charged = checked.iter().all(|(measured, _)| admitted(measured));
        let mut all = Measurements::new();
        for ((key, limit, _), (measured, change)) in checks.iter().zip(checked) {
            if let Some(change) = change.filter(|_| charged || !admitted(&measured)) {
                self.keep(key, limit, now, change);
            }
            all.push(measured);
        }
        all
    }

    /// The byte that the script answers with.
    pub(super) fn refund(
        &mut self,
        now: Timestamp,
        key: &[u8],
        limit: &Limit,
        ticket: Ticket,
        renew: bool,
    ) -> u8 {
        let state = self.state(key, limit);
        let refunded = match renew {
            true => limit.rule.renew(state.as_ref(), now, ticket),
            false => limit.rule.refund(state.as_ref(), now, ticket),
        };
        match refunded {
            Refunded::Nothing => 0,
            Refunded::Left(change) => {
                self.keep(key, limit, now, change);
                1
            }
            Refunded::Gone => {
                self.stored.remove(key);
                2
            }
        }
    }
}
