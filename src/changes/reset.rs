//! A counter is emptied: in the store first, then the other gateways learn of it, then the operator has an answer.

use super::change::{ALONE, Circumstances, OperatorChange};
use super::counters::{CounterChoice, NamedCounter, numbers_of};
use super::errors::ChangeError;
use super::ledger::LedgerEntry;
use super::payload::ChangePayload;
use super::request::{Author, CounterBefore, ResetReach, ResetRequest};
use super::{ChangeBook, OperatorChanges};
use crate::clock::{self, Timestamp};
use crate::limit::rate::Cost;
use crate::limit::{Limit, Scope};
use crate::store::changes::{
    Acceptance, ChangeEntry, ChangeId, ChangeKind, ChangeRequest, Coverage, PollReply,
};
use crate::store::{Check, SharedStore, Store, StoreDecision, StoreError};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};

/// The time for which a reset is kept as a message for the other gateways.
const MESSAGE: Duration = Duration::from_mins(10);
/// The longest time for the store, and the longest wait for the other gateways.
const STORE: Duration = Duration::from_secs(2);
const OTHERS: Duration = Duration::from_secs(2);
/// The longest time of one call, and the pause before the next attempt, or the next look.
const CALL: Duration = Duration::from_millis(700);
const PAUSE: Duration = Duration::from_millis(50);
/// A version that no store has: the answer to it has all entries.
const NO_VERSION: u64 = 1;

/// An entry that the store has taken.
struct KeptEntry {
    version: u64,
    entry: ChangeEntry,
    repeated: bool,
}

impl ResetRequest {
    pub(super) fn choice(&self) -> CounterChoice<'_> {
        CounterChoice {
            limit: &self.limit,
            key: &self.key,
            group: self.group.as_deref(),
            window: self.window.as_deref(),
        }
    }
}

impl OperatorChanges {
    /// Empties counters of this process, which has no others.
    pub(super) fn reset_here(
        &self,
        book: &Mutex<ChangeBook>,
        request: &ResetRequest,
        author: &Author,
    ) -> Result<OperatorChange, ChangeError> {
        let id = request.checked_id()?;
        let counters = request.choice().find(&self.parts.snapshots.load())?;
        // The book stays locked, so that a repeat finds the counters as the first request leaves them.
        let mut book = book.lock();
        let before = counters.first().and_then(|counter| {
            let check = [counter.look()];
            before_of(&counter.limit, &self.parts.memory.decide(&check))
        });
        let payload = ChangePayload::new(id, request, author, before);
        let answer = book.change(clock::wall(), &entry_of(&payload));
        let foreign = |_| ChangeError::StoreAway("the changes of this process are damaged".into());
        let answer = Acceptance::read(&answer.map_err(foreign)?);
        let taken = taken(answer.map_err(away)?, &payload)?;
        if !taken.repeated {
            for counter in &counters {
                self.parts.memory.reset(&counter.limit, &counter.key);
            }
            let made = LedgerEntry::of(taken.entry.clone());
            self.note(made);
        }
        Ok(self.shown(&taken, ALONE))
    }

    /// Empties counters in Redis and at every gateway.
    pub(super) async fn reset_everywhere(
        &self,
        store: &Store,
        shared: &SharedStore,
        request: &ResetRequest,
        author: &Author,
    ) -> Result<OperatorChange, ChangeError> {
        let id = request.checked_id()?;
        let counters = request.choice().find(&self.parts.snapshots.load())?;
        if request.reach == ResetReach::Here {
            return Ok(
                self.reset_fallback(&counters, ChangePayload::new(id, request, author, None))
            );
        }
        let by = clock::now() + STORE;
        let before = match counters.first() {
            Some(counter) => counter.before(store, by).await.map_err(away)?,
            None => None,
        };
        let payload = ChangePayload::new(id, request, author, before);
        let of_store: Vec<&NamedCounter> = counters
            .iter()
            .filter(|counter| counter.limit.scope == Scope::Cluster)
            .collect();
        let taken = if shared.redis.is_lone() {
            self.empty_in_one_call(shared, &payload, &of_store, by)
                .await?
        } else {
            self.empty_by_slots(shared, &payload, &of_store, by).await?
        };
        self.learn(&taken.entry);
        let coverage = if request.leaves_at_once {
            self.read_changes(&shared.redis).await;
            ALONE
        } else {
            self.await_others(shared, &taken).await
        };
        Ok(self.shown(&taken, coverage))
    }

    /// Empties what this gateway counts by itself while Redis is away.
    fn reset_fallback(&self, counters: &[NamedCounter], payload: ChangePayload) -> OperatorChange {
        let now = self.parts.clock.now();
        for NamedCounter { limit, key } in counters {
            self.parts.memory.reset(limit, key);
            let there = Timestamp::default();
            self.parts
                .invalidation
                .reset_in_store(limit, key, now, there);
        }
        let (kind, born) = (ChangeKind::Reset, clock::wall());
        let entry = ChangeEntry {
            id: ChangeId::of(&payload.id),
            kind,
            target: payload.target(kind),
            born,
            ends: born,
            payload: None,
        };
        let circumstances = Circumstances {
            version: self.ledger.lock().version(),
            coverage: Some(ALONE),
            scope: "this_gateway",
            repeated: false,
        };
        OperatorChange::of(&entry, &payload, circumstances)
    }

    /// One Redis has everything: one call empties the counters and adds the entry. A call without an answer is repeated
    /// under the same id, which does nothing twice.
    async fn empty_in_one_call(
        &self,
        shared: &SharedStore,
        payload: &ChangePayload,
        counters: &[&NamedCounter],
        by: Instant,
    ) -> Result<KeptEntry, ChangeError> {
        let counters = counters.iter().map(|counter| counter.parts());
        let counters: Vec<(&Limit, &[u8])> = counters.collect();
        let accepted = add(shared, &entry_of(payload), &counters, by).await;
        let (acceptance, is_retry) = accepted.map_err(away)?;
        let mut taken = taken(acceptance, payload)?;
        taken.repeated &= !is_retry;
        Ok(taken)
    }

    /// The counters are in several slots: each is emptied, and then, not before, the entry is added. In the other order
    /// a gateway could forget, ask the old counter, and remember its answer anew.
    async fn empty_by_slots(
        &self,
        shared: &SharedStore,
        payload: &ChangePayload,
        counters: &[&NamedCounter],
        by: Instant,
    ) -> Result<KeptEntry, ChangeError> {
        let entry = entry_of(payload);
        if let Some(known) = self.entry_with(shared, entry.id).await.map_err(away)? {
            return Ok(known);
        }
        let mut done = 0;
        for counter in counters {
            let (limit, key) = counter.parts();
            let late = Err(StoreError::Timeout { after: STORE });
            let reset = timeout_at(by, shared.redis.reset(limit, key)).await;
            match reset.unwrap_or(late) {
                Ok(_) => done += 1,
                Err(error) if done == 0 => return Err(away(error)),
                Err(error) => return Err(ChangeError::HalfDone(error.to_string())),
            }
        }
        let incomplete = |error: StoreError| ChangeError::HalfDone(error.to_string());
        let (acceptance, is_retry) = add(shared, &entry, &[], by).await.map_err(incomplete)?;
        let mut taken = taken(acceptance, payload).map_err(|why| match why {
            ChangeError::StoreAway(why) => ChangeError::HalfDone(why),
            why => ChangeError::HalfDone(why.to_string()),
        })?;
        taken.repeated &= !is_retry;
        Ok(taken)
    }

    /// The entry with this id, if the store has one.
    async fn entry_with(
        &self,
        shared: &SharedStore,
        id: ChangeId,
    ) -> Result<Option<KeptEntry>, StoreError> {
        let me = self.parts.fleet.me();
        let asked = shared.redis.poll_changes(me, NO_VERSION, false, CALL);
        let PollReply::New(reading) = asked.await? else {
            return Ok(None);
        };
        let mut entries = reading.entries.into_iter();
        let entry = entries.find(|entry| entry.id == id && entry.ends > reading.at);
        Ok(entry.map(|entry| KeptEntry {
            version: reading.version,
            entry,
            repeated: true,
        }))
    }

    /// Waits until all gateways have the change, for a while at most.
    async fn await_others(&self, shared: &SharedStore, taken: &KeptEntry) -> Coverage {
        let by = clock::now() + OTHERS;
        let mut coverage = ALONE;
        loop {
            // This gateway says that it has the change, too.
            self.read_changes(&shared.redis).await;
            let (version, born) = (taken.version, taken.entry.born);
            if let Ok(seen) = shared.redis.look_at_changes(version, born, CALL).await {
                // A gateway that is not counted yet has made the change nevertheless.
                coverage = Coverage {
                    taken_by: seen.taken_by.max(1),
                    gateways: seen.gateways.max(1),
                };
                if seen.gateways > 0 && seen.taken_by >= seen.gateways {
                    return coverage;
                }
            }
            if clock::now() + PAUSE >= by {
                return coverage;
            }
            sleep(PAUSE).await;
        }
    }

    fn shown(&self, taken: &KeptEntry, coverage: Coverage) -> OperatorChange {
        let payload = taken.entry.payload.as_deref().and_then(ChangePayload::read);
        let circumstances = Circumstances {
            version: taken.version,
            coverage: Some(coverage),
            scope: self.scope(),
            repeated: taken.repeated,
        };
        OperatorChange::of(&taken.entry, &payload.unwrap_or_default(), circumstances)
    }
}

impl NamedCounter {
    fn parts(&self) -> (&Limit, &[u8]) {
        (&self.limit, &self.key)
    }

    /// The check that takes nothing.
    fn look(&self) -> Check<'_> {
        Check {
            cost: Cost::ZERO,
            ..Check::new(&self.limit, &self.key)
        }
    }

    /// What the counter has now.
    async fn before(
        &self,
        store: &Store,
        by: Instant,
    ) -> Result<Option<CounterBefore>, StoreError> {
        let late = Err(StoreError::Timeout { after: STORE });
        let asked = timeout_at(by, store.peek(&self.limit, &self.key)).await;
        match asked.unwrap_or(late) {
            Ok(decided) => Ok(before_of(&self.limit, &decided)),
            // Another value stands at the key, which a reset mends.
            Err(StoreError::Answer { .. } | StoreError::Clock { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The used units of a counter by a decision about it alone.
fn before_of(limit: &Arc<Limit>, decided: &StoreDecision) -> Option<CounterBefore> {
    let remaining = decided.decision.verdicts.first()?.remaining;
    Some(CounterBefore {
        used: limit.quota.saturating_sub(remaining),
        of: limit.quota,
        rule: numbers_of(limit),
    })
}

fn entry_of(payload: &ChangePayload) -> ChangeRequest {
    ChangeRequest {
        id: ChangeId::of(&payload.id),
        kind: ChangeKind::Reset,
        target: payload.target(ChangeKind::Reset),
        life: MESSAGE,
        payload: payload.bytes(),
        if_version: None,
    }
}

/// Adds an entry, with further attempts after calls without an answer. Returns whether the answer is one to a further
/// attempt.
async fn add(
    shared: &SharedStore,
    entry: &ChangeRequest,
    counters: &[(&Limit, &[u8])],
    by: Instant,
) -> Result<(Acceptance, bool), StoreError> {
    let mut is_retry = false;
    loop {
        let error = match shared.redis.change(entry, counters, CALL).await {
            Ok(acceptance) => return Ok((acceptance, is_retry)),
            Err(error) => error,
        };
        if matches!(error, StoreError::Refused(_)) || clock::now() + PAUSE >= by {
            return Err(error);
        }
        // Without a call nothing was added; after a call without an answer the entry may be there.
        is_retry |= !matches!(error, StoreError::Down);
        sleep(PAUSE).await;
    }
}

/// The entry that the store has taken, by its answer.
fn taken(acceptance: Acceptance, payload: &ChangePayload) -> Result<KeptEntry, ChangeError> {
    match acceptance {
        Acceptance::Done { version, born, .. } => {
            let request = entry_of(payload);
            Ok(KeptEntry {
                version,
                entry: ChangeEntry {
                    id: request.id,
                    kind: request.kind,
                    target: request.target,
                    born,
                    ends: born.plus(clock::micros(MESSAGE)),
                    payload: Some(request.payload),
                },
                repeated: false,
            })
        }
        Acceptance::Same { version, entry } => Ok(KeptEntry {
            version,
            entry: *entry,
            repeated: true,
        }),
        Acceptance::Full => Err(ChangeError::TooManyChanges),
        Acceptance::TooLong => Err(ChangeError::TooLong),
        Acceptance::Changed { version } => Err(ChangeError::ChangedMeanwhile { version }),
    }
}

fn away(error: StoreError) -> ChangeError {
    ChangeError::StoreAway(match error {
        StoreError::Refused(why) => format!("{why}{}", remedy(&why)),
        error => error.to_string(),
    })
}

/// What an operator can do about a refusal.
pub(super) fn remedy(why: &str) -> &'static str {
    if why.contains("WRONGTYPE") || why.contains("FOREIGN") {
        "; delete that key in Redis"
    } else if why.contains("NOPERM") || why.contains("permission") {
        "; let its user call EVAL, EVALSHA, GET, SET and TIME on PREFIX:1:version:*, PREFIX:1:changes:* and PREFIX:1:heard:*"
    } else {
        ""
    }
}
