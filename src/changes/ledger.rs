//! The changes that this gateway knows, as it last read them.

use super::change::{ChangeView, Circumstances, OperatorChange, rfc3339};
use super::payload::ChangePayload;
use crate::clock::Timestamp;
use crate::store::changes::{ChangeEntry, ChangeKind, ChangeReading};
use std::collections::VecDeque;

/// Most changes that are shown after their end, and for how long, in microseconds.
const MOST_ENDED: usize = 255;
const ENDED: u64 = 3_600_000_000;

/// A change that this gateway knows.
#[derive(Debug, Clone)]
pub(super) struct LedgerEntry {
    pub(super) entry: ChangeEntry,
    /// `None` if the entry has a form of another version of the program.
    pub(super) payload: Option<ChangePayload>,
}

/// All changes that this gateway knows.
#[derive(Debug)]
pub(super) struct Ledger {
    /// The version that this gateway has.
    version: u64,
    /// Does the store know that?
    pub(super) is_confirmed: bool,
    /// The instant of the last reading by the store's clock, and by the gateway's.
    read: (Timestamp, Timestamp),
    changes: Vec<LedgerEntry>,
    ended: VecDeque<LedgerEntry>,
}

/// What a reading brings.
#[derive(Debug, Default)]
pub(super) struct LedgerUpdate {
    /// OperatorChanges that this gateway did not know.
    pub(super) new: Vec<LedgerEntry>,
    /// OperatorChanges that the store no longer has, though they have not ended.
    pub(super) lost: Vec<LedgerEntry>,
}

impl LedgerEntry {
    pub(super) fn of(entry: ChangeEntry) -> Self {
        let payload = entry.payload.as_deref().and_then(ChangePayload::read);
        let is_readable = !matches!(entry.kind, ChangeKind::Unknown(_));
        Self {
            payload: payload.filter(|_| is_readable),
            entry,
        }
    }

    fn is(&self, other: &Self) -> bool {
        (self.entry.id, self.entry.born) == (other.entry.id, other.entry.born)
    }
}

impl Ledger {
    pub(super) fn new(now: Timestamp) -> Self {
        Self {
            version: 0,
            is_confirmed: true,
            read: (Timestamp::default(), now),
            changes: Vec::new(),
            ended: VecDeque::new(),
        }
    }

    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// The store's present time, as far as the last reading and the gateway's clock show it.
    fn store_time(&self, now: Timestamp) -> Timestamp {
        self.read.0.plus(now.since(self.read.1))
    }

    /// Takes a change over that this gateway has made itself, at the present instant of the store's clock.
    pub(super) fn add(&mut self, made: LedgerEntry, now: Timestamp) -> bool {
        if self.changes.iter().any(|change| change.is(&made)) {
            return false;
        }
        if self.read.0 < made.entry.born {
            self.read = (made.entry.born, now);
        }
        self.changes.push(made);
        true
    }

    /// Takes over what another version of the store's entries says.
    pub(super) fn take(&mut self, reading: ChangeReading, now: Timestamp) -> LedgerUpdate {
        let mut update = LedgerUpdate::default();
        let there: Vec<LedgerEntry> = reading.entries.into_iter().map(LedgerEntry::of).collect();
        let known = std::mem::take(&mut self.changes);
        for before in known.iter().cloned() {
            if there.iter().any(|change| change.is(&before)) {
                continue;
            }
            if before.entry.ends <= reading.at {
                self.end(before);
            } else if before.entry.born <= reading.at {
                update.lost.push(before.clone());
                self.end(before);
            } else {
                // This gateway has made it after the reading.
                self.changes.push(before);
            }
        }
        let is_known =
            |change: &LedgerEntry, all: &[LedgerEntry]| all.iter().any(|one| one.is(change));
        for change in there {
            if !is_known(&change, &known) {
                update.new.push(change.clone());
            }
            self.changes.push(change);
        }
        self.version = reading.version;
        self.is_confirmed = false;
        self.read = (reading.at, now);
        update
    }

    fn end(&mut self, change: LedgerEntry) {
        if change.payload.is_some() {
            self.ended.push_back(change);
        }
        if self.ended.len() > MOST_ENDED {
            self.ended.pop_front();
        }
    }

    /// Moves what has ended by now.
    fn sweep(&mut self, now: Timestamp) {
        let at = self.store_time(now);
        for change in std::mem::take(&mut self.changes) {
            if change.entry.ends <= at {
                self.end(change);
            } else {
                self.changes.push(change);
            }
        }
        self.ended
            .retain(|change| at.since(change.entry.ends) < ENDED);
    }

    /// The number of changes of a kind that hold.
    pub(super) fn active(&mut self, kind: ChangeKind, now: Timestamp) -> i64 {
        self.sweep(now);
        let of_kind = self
            .changes
            .iter()
            .filter(|change| change.entry.kind == kind);
        i64::try_from(of_kind.count()).unwrap_or(i64::MAX)
    }

    /// What is shown of it all.
    pub(super) fn view(&mut self, scope: &'static str, now: Timestamp) -> ChangeView {
        self.sweep(now);
        let version = self.version;
        let shown = |change: &LedgerEntry, has_ended: bool| {
            let payload = change.payload.as_ref()?;
            let circumstances = Circumstances {
                // A version is the instant of its change, unless two changes share an instant.
                version: change.entry.born.micros(),
                coverage: None,
                scope,
                repeated: false,
            };
            let mut shown = OperatorChange::of(&change.entry, payload, circumstances);
            if has_ended {
                shown.state = "ended";
                shown.ended = Some(rfc3339(change.entry.ends));
            }
            Some(shown)
        };
        let holds = self
            .changes
            .iter()
            .filter_map(|change| shown(change, false));
        let ended = self.ended.iter().rev();
        let ended = ended.filter_map(|change| shown(change, true));
        ChangeView {
            version,
            changes: holds.chain(ended).collect(),
            suspended: Vec::new(),
        }
    }
}
