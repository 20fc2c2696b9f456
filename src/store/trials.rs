//! The needs of a gateway's limits in Redis, and the servers where all of them have been tried: once for each gateway,
//! rather than for each worker or connection.

use crate::limit::{Limit, Rule, Scope};
use crate::store::error::StoreError;
use std::collections::HashMap;
use std::ops::{BitOr, BitOrAssign};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// The kinds of counters that limits have, and the operations on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CounterUses(u8);

impl CounterUses {
    /// Counters with one value: buckets and windows.
    pub(in crate::store) const STATES: Self = Self(1);
    /// Counters that are lists of instants.
    pub(in crate::store) const LOGS: Self = Self(2);
    /// Counters that are sets of slots, which are taken, renewed and freed.
    pub(in crate::store) const SLOTS: Self = Self(4);
    /// Charges of buckets and windows are refunded.
    pub(in crate::store) const RETURNED_STATES: Self = Self(8);
    /// Charges of logs are refunded.
    pub(in crate::store) const RETURNED_LOGS: Self = Self(16);
    /// Ids are charged once.
    pub(in crate::store) const IDS: Self = Self(32);
    /// Costs are settled.
    pub(in crate::store) const SETTLEMENTS: Self = Self(64);

    /// The needs of these limits, in a cluster or in one Redis.
    pub fn of<'l>(limits: impl Iterator<Item = &'l Arc<Limit>>, is_cluster: bool) -> Self {
        let limits = limits.filter(|limit| limit.scope == Scope::Cluster);
        let limits: Vec<&Arc<Limit>> = limits.collect();
        let is_leased = limits.iter().any(|limit| limit.leases().is_some());
        // If a part of a request's limits refuses, the charges of the others are given back.
        let is_separate = limits.len() > 1 && (is_cluster || is_leased);
        let mut uses = Self::default();
        for limit in limits {
            let give_back = limit.leases().is_some_and(|leases| leases.give_back());
            let returns = is_separate || give_back || limit.may_correct() || limit.rule.queues();
            uses |= match (&limit.rule, returns) {
                (Rule::Concurrency(_), _) => Self::SLOTS,
                (Rule::SlidingLog(_), false) => Self::LOGS,
                (Rule::SlidingLog(_), true) => Self::LOGS | Self::RETURNED_LOGS,
                (_, false) => Self::STATES,
                (_, true) => Self::STATES | Self::RETURNED_STATES,
            };
            if limit.dedupe.is_some() {
                uses |= Self::IDS | Self::STATES;
            }
            if limit.meter.is_some() {
                uses |= Self::SETTLEMENTS | Self::STATES | Self::RETURNED_STATES;
            }
        }
        uses
    }

    /// Do these uses include all of `other`?
    pub(in crate::store) fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for CounterUses {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for CounterUses {
    fn bitor_assign(&mut self, other: Self) {
        *self = *self | other;
    }
}

/// The trials of one gateway at one Redis, whose workers share them by clones.
#[derive(Debug, Clone, Default)]
pub struct Trials(Arc<TrialBook>);

#[derive(Debug, Default)]
struct TrialBook {
    /// The needs of the current file, and the number of requested trials.
    wanted: watch::Sender<(CounterUses, u64)>,
    /// The uses that were tried successfully, by the name of the server.
    passed: Mutex<HashMap<String, CounterUses>>,
    /// Locked by the worker that tries the server of this name. A server that hangs does not block the trial of
    /// another.
    turns: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

impl PartialEq for Trials {
    /// Trials are not part of a file: two of them are always equal.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Trials {}

impl Trials {
    /// Requests the trial of each server of this Redis for these uses from now on, if it has not been tried yet.
    pub fn want(&self, uses: CounterUses) {
        self.0.wanted.send_if_modified(|(wanted, _)| {
            let is_other = *wanted != uses;
            *wanted = uses;
            is_other
        });
    }

    /// The uses that are wanted.
    pub(in crate::store) fn wanted(&self) -> CounterUses {
        self.0.wanted.borrow().0
    }

    /// Notifies when a server is to be tried: for other uses, or since it refuses a command.
    pub(in crate::store) fn follow(&self) -> watch::Receiver<(CounterUses, u64)> {
        self.0.wanted.subscribe()
    }

    fn passed(&self) -> MutexGuard<'_, HashMap<String, CounterUses>> {
        self.0.passed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the server of this name passed the trial of all requested uses?
    pub(in crate::store) fn have_passed(&self, server: &str) -> bool {
        let wanted = self.wanted();
        let passed = self.passed();
        wanted == CounterUses::default() || passed.get(server).is_some_and(|uses| uses.has(wanted))
    }

    /// Makes the trial, unless the server of this name has already passed it. One worker tries a server at a time; the
    /// others wait for it.
    ///
    /// # Errors
    /// If the trial fails.
    pub(in crate::store) async fn pass(
        &self,
        server: &str,
        trial: impl AsyncFnOnce(CounterUses) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        if self.have_passed(server) {
            return Ok(());
        }
        let turn = self.turn_at(server);
        let _turn = turn.lock().await;
        if self.have_passed(server) {
            return Ok(());
        }
        let uses = self.wanted();
        trial(uses).await?;
        self.passed().insert(server.to_owned(), uses);
        Ok(())
    }

    fn turn_at(&self, server: &str) -> Arc<tokio::sync::Mutex<()>> {
        let turns = self.0.turns.lock();
        let mut turns = turns.unwrap_or_else(PoisonError::into_inner);
        // Servers change; a turn that no worker holds or waits for is created anew.
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        Arc::clone(turns.entry(server.to_owned()).or_default())
    }

    /// Notes that the server of this name must be tried again, since it refuses a command, or may. Every worker is
    /// notified.
    pub(in crate::store) fn forget(&self, server: &str) {
        if self.passed().remove(server).is_some() {
            self.0.wanted.send_modify(|(_, calls)| *calls += 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;
    use std::time::Duration;
    use tokio::time::timeout;

    #[tokio::test]
    async fn a_server_that_hangs_keeps_no_other_from_its_trial() {
        let trials = Trials::default();
        trials.want(CounterUses::STATES);
        let hangs = trials.pass("one", async |_| pending().await);
        let mut hangs = std::pin::pin!(hangs);
        let waits = timeout(Duration::from_millis(5), &mut hangs).await;
        assert!(waits.is_err());
        let passes = trials.pass("two", async |_| Ok(()));
        let passed = timeout(Duration::from_secs(5), passes).await;
        assert_eq!(passed, Ok(Ok(())));
        assert!(trials.have_passed("two") && !trials.have_passed("one"));
    }
}
