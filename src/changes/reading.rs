//! One worker of a gateway reads what is new in Redis, and takes it over for all of them.

use super::OperatorChanges;
use super::ledger::{LedgerEntry, LedgerUpdate};
use super::reset::remedy;
use crate::clock::{self, Timestamp};
use crate::limit::Scope;
use crate::store::StoreError;
use crate::store::changes::{ChangeEntry, ChangeKind, ChangeReading, PollReply};
use crate::store::redis::RedisStore;
use crate::telemetry::log::Throttle;
use crate::telemetry::metrics::ChangeResult;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::sleep;

/// The pause between two looks, in milliseconds, chosen at random; and above this number of gateways.
const PAUSE: std::ops::Range<u64> = 700..1_000;
const RARE: std::ops::Range<u64> = 1_000..1_500;
const MANY: u32 = 250;
/// The pause after a look that had no answer, in milliseconds.
const AGAIN: u64 = 100;
/// The longest time of a look.
const WITHIN: Duration = Duration::from_millis(500);
/// After so long without a look, resets may have been missed.
const MISSED: Duration = Duration::from_mins(10);
/// What a gateway-wide counter may have counted before a reset that the gateway learns of at its start, in
/// microseconds.
const MARGIN: u64 = 2_000_000;

/// Throttles warnings that the changes cannot be read: an operator has to act.
static UNREAD: Throttle = Throttle::every(Duration::from_secs(300));

impl OperatorChanges {
    /// Looks about once a second whether there is anything new, until the worker ends. One worker looks at a time,
    /// the one whose turn it is.
    pub async fn keep(self: Arc<Self>, redis: RedisStore) {
        loop {
            match self.turn() {
                Some(left) => sleep(left).await,
                None => {
                    if !self.read_changes(&redis).await {
                        self.due.store(self.millis() + AGAIN, Ordering::Relaxed);
                    }
                }
            }
        }
    }

    fn millis(&self) -> u64 {
        clock::uptime() / 1000
    }

    /// The time until the next look. `None` if it is due, and no other worker does it.
    fn turn(&self) -> Option<Duration> {
        let (now, due) = (self.millis(), self.due.load(Ordering::Relaxed));
        if now < due {
            return Some(Duration::from_millis(due - now));
        }
        let many = self.parts.fleet.gateways().get() > MANY;
        let pause = fastrand::u64(if many { RARE } else { PAUSE });
        let taken =
            self.due
                .compare_exchange(due, now + pause, Ordering::Relaxed, Ordering::Relaxed);
        taken.is_err().then_some(Duration::from_millis(AGAIN))
    }

    /// Reads what is new, takes it over, and tells the store so. Returns false if there was no answer.
    pub(super) async fn read_changes(&self, redis: &RedisStore) -> bool {
        // The next look reports what is taken over, and may bring more.
        for _ in 0..3 {
            let (mine, is_new) = {
                let ledger = self.ledger.lock();
                (ledger.version(), !ledger.is_confirmed)
            };
            let me = self.parts.fleet.me();
            match redis.poll_changes(me, mine, is_new, WITHIN).await {
                Ok(PollReply::Same) => {
                    let mut ledger = self.ledger.lock();
                    ledger.is_confirmed |= ledger.version() == mine;
                    drop(ledger);
                    self.was_read();
                    return true;
                }
                Ok(PollReply::New(reading)) => {
                    self.was_read();
                    self.take(reading);
                }
                Err(error) => return self.was_not_read(&error),
            }
        }
        true
    }

    fn was_read(&self) {
        let metrics = &self.parts.metrics;
        if metrics.changes_read_age().is_some_and(|age| age > MISSED) {
            self.forget_all();
        }
        metrics.changes_read(clock::wall());
        let now = self.parts.clock.now();
        let active = self.ledger.lock().active(ChangeKind::Reset, now);
        metrics.changes_active(ChangeKind::Reset.word(), active);
        if self.trouble.lock().take().is_some() {
            tracing::info!("the changes by operators can be read again");
        }
    }

    /// Notes a failed look. Returns whether a pause is useful: what needs an operator does not end in a moment.
    fn was_not_read(&self, error: &StoreError) -> bool {
        let StoreError::Refused(why) = error else {
            tracing::debug!("the changes by operators were not read: {error}");
            return false;
        };
        if matches!(&**why, why if why.starts_with("LOADING") || why.starts_with("MASTERDOWN")) {
            return false;
        }
        let remedy = remedy(why);
        *self.trouble.lock() = Some(format!("{why}{remedy}"));
        if let Some(more) = UNREAD.pass() {
            tracing::warn!(
                "the changes by operators cannot be read: {why}; limits go on, and resets do not reach this gateway{remedy}{more}"
            );
        }
        true
    }

    /// Resets may have been missed: forgets all refusals, and what was counted in place of Redis. Slots of requests in
    /// flight stay.
    fn forget_all(&self) {
        let snapshot = self.parts.snapshots.load();
        let here = snapshot
            .limits()
            .filter(|limit| limit.scope == Scope::Gateway || limit.rule.concurrency().is_some());
        let ids = here.flat_map(|limit| {
            let tiers = limit.tiers.iter().map(|tier| tier.limit.id);
            let numbers = limit.customer_numbers.iter();
            let numbers = numbers.flat_map(|numbers| numbers.limits());
            let numbers = numbers.map(|limit| limit.id);
            std::iter::once(limit.id).chain(tiers).chain(numbers)
        });
        self.parts.memory.forget_others(&ids.collect());
        let now = self.parts.clock.now();
        self.parts.invalidation.invalidate_all(now);
        tracing::warn!(
            "the changes by operators were not read for more than ten minutes: remembered refusals, and counts made in place of Redis, are forgotten"
        );
    }

    /// Takes over what another version says.
    fn take(&self, reading: ChangeReading) {
        let (at, now) = (reading.at, self.parts.clock.now());
        let LedgerUpdate { new, lost } = self.ledger.lock().take(reading, now);
        for change in &new {
            if change.payload.is_none() {
                let kind = change.entry.kind.word();
                self.parts.metrics.changed(kind, ChangeResult::Unknown);
                tracing::debug!("a change of an unknown kind or form is ignored");
                continue;
            }
            let age = at.since(change.entry.born);
            self.apply(change, age);
            self.parts
                .metrics
                .changed(change.entry.kind.word(), ChangeResult::Done);
        }
        for change in &lost {
            let kind = change.entry.kind.word();
            self.parts.metrics.changed(kind, ChangeResult::Lost);
        }
        if !lost.is_empty() {
            let names = lost.iter().filter_map(|change| {
                let payload = change.payload.as_ref()?;
                Some(format!("{} of {}", change.entry.kind.word(), payload.limit))
            });
            let mut names: Vec<String> = names.take(20).collect();
            names.dedup();
            let names = names.join(", ");
            tracing::warn!(
                "changes_lost: the store has lost {} changes: {names}",
                lost.len()
            );
        }
    }

    /// Takes over a change that this gateway has made itself.
    pub(super) fn learn(&self, entry: &ChangeEntry) {
        let made = LedgerEntry::of(entry.clone());
        if self.note(made.clone()) {
            self.apply(&made, 0);
        }
    }

    /// Notes a change. Returns whether it was not known.
    pub(super) fn note(&self, made: LedgerEntry) -> bool {
        let now = self.parts.clock.now();
        let mut ledger = self.ledger.lock();
        let is_new = ledger.add(made, now);
        let active = ledger.active(ChangeKind::Reset, now);
        self.parts
            .metrics
            .changes_active(ChangeKind::Reset.word(), active);
        is_new
    }

    /// Takes over a reset that was made so many microseconds ago: what the workers know of its counters is outdated
    /// from now on, their permits are void, and what this gateway counts by itself begins anew.
    fn apply(&self, change: &LedgerEntry, age: u64) {
        let Some(payload) = &change.payload else {
            return;
        };
        let snapshot = self.parts.snapshots.load();
        // Without such a limit there is nothing to forget.
        let Ok(counters) = payload.choice().find(&snapshot) else {
            return;
        };
        let now = self.parts.clock.now();
        let born: Timestamp = change.entry.born;
        let is_newer = age <= clock::uptime().saturating_add(MARGIN);
        for counter in &counters {
            let (limit, key) = (&counter.limit, &counter.key);
            // A gateway that has started since has counted nothing before the reset.
            if is_newer {
                self.parts.memory.reset(limit, key);
            }
            self.parts
                .invalidation
                .reset_in_store(limit, key, now, born);
        }
    }
}
