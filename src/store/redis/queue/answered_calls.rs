//! Updates that a master has answered in the last seconds. A new master may lack them: the former master continues to
//! answer until it learns that it was replaced, and all updates that it answers in this time are lost. So recently
//! answered updates are sent again to a new master. They are also sent again to a master that has returned, since it
//! may have lost the updates of its last second. Two calls with the same update must have the effect of one:
//!
//! - Slots are freed by their numbers, which no other slots have.
//! - A charge is given back under the marker of its first call. Until then no other call uses the marker's name.
//! - A cost beyond the estimate is charged under its id.
//!
//! A charge is given back again only if it is older than these seconds. The new master may not know a younger one, and
//! a charge of another request would be given back instead.

use crate::clock::{self, Timestamp};
use crate::store::redis::MOST_IN_CALL;
use crate::store::redis::wire::counter_update::{
    AppliedMarker, CounterUpdate, REPEATED, UpdateKind,
};
use crate::store::redis::wire::question::Question;
use crate::store::redis::wire::slot::{CallRoute, Slot};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::time::Duration;
use tokio::time::Instant;

/// The time for which answered updates are kept. Sentinels name a new master up to a second after its promotion,
/// gateways query them every second and connect, and a busy machine is late with each of these steps.
const LATELY: Duration = Duration::from_secs(5);

/// Most bytes of updates that one worker keeps for one Redis: 20,000 releases a second, for more than three seconds.
/// Beyond that the oldest ones are dropped, which a new master is most likely to have.
const MOST_BYTES: usize = 8 << 20;

/// The number of calls that fit into a nearly empty list.
const LITTLE: usize = 16;

/// One worker's updates that one Redis has answered.
#[derive(Debug, Default)]
pub(crate) struct AnsweredCalls {
    lately: RefCell<CallList>,
    /// Calls that are to be repeated.
    retries: RefCell<CallList>,
    /// The last instant of the master's clock.
    now: Cell<Timestamp>,
}

/// Calls, the oldest first, and their bytes.
#[derive(Debug, Default)]
struct CallList {
    calls: VecDeque<AnsweredCall>,
    bytes: usize,
}

/// The kept updates of one call.
#[derive(Debug)]
pub(crate) struct AnsweredCall {
    /// The instant of the answer.
    at: Instant,
    /// In a cluster, the slot of all of its counters.
    slot: Slot,
    marker: Option<AppliedMarker>,
    /// The number of updates, and their concatenated form (`put`).
    count: usize,
    updates: Vec<u8>,
}

impl CallList {
    /// Adds a call. Returns the markers of calls that no longer fit.
    fn add(&mut self, call: AnsweredCall) -> Vec<AppliedMarker> {
        self.bytes += call.size();
        self.calls.push_back(call);
        self.forget(|list| list.bytes > MOST_BYTES)
    }

    fn pop(&mut self) -> Option<AnsweredCall> {
        let call = self.calls.pop_front()?;
        self.bytes -= call.size();
        Some(call)
    }

    /// Drops the oldest call as long as `is_over`. Returns the markers of the dropped calls.
    fn forget(&mut self, is_over: impl Fn(&Self) -> bool) -> Vec<AppliedMarker> {
        let mut markers = Vec::new();
        while is_over(self) {
            let Some(call) = self.pop() else { break };
            markers.extend(call.marker);
        }
        markers
    }

    /// Drops the calls that were answered so long before `now` that every master has them. Returns their markers.
    fn forget_old(&mut self, now: Instant) -> Vec<AppliedMarker> {
        self.forget(|list| {
            let oldest = list.calls.front();
            oldest.is_some_and(|call| call.at + LATELY < now)
        })
    }
}

impl AnsweredCalls {
    /// Is there no call to be repeated?
    pub(crate) fn is_empty(&self) -> bool {
        self.retries.borrow().calls.is_empty()
    }

    /// Has the master answered any in the last seconds?
    pub(crate) fn has_any(&self) -> bool {
        !self.lately.borrow().calls.is_empty()
    }

    /// Notes the instant of an answer by the master's clock.
    pub(crate) fn answered_at(&self, now: Timestamp) {
        self.now.set(now);
    }

    /// Keeps the updates of `batch`, one call, that another master may lack. The script has answered a byte for each. A
    /// call that was answered on an outdated connection, perhaps by a former master, is to be repeated at once. Returns
    /// the markers whose names other calls may use from now on.
    pub(crate) fn keep(
        &self,
        batch: &[CounterUpdate],
        is_done: impl Fn(usize) -> bool,
        is_outdated: bool,
    ) -> Vec<AppliedMarker> {
        let now = clock::now();
        let mut lately = self.lately.borrow_mut();
        let mut free = lately.forget_old(now);
        let marker = batch.first().and_then(|first| first.marker);
        let kept = |(index, update): &(usize, &CounterUpdate)| {
            is_done(*index) && self.may_be_missing(update)
        };
        let all = batch.iter().enumerate().filter(kept);
        let size = all
            .clone()
            .map(|(_, update)| PUT + update.question.packed_size());
        let (size, count) = (size.sum(), all.clone().count());
        let is_marked = all.clone().any(|(_, update)| update.adds_up());
        free.extend(marker.filter(|_| !is_marked));
        if count == 0 {
            return free;
        }
        let mut updates = Vec::with_capacity(size);
        for (_, update) in all {
            if let Some(kind) = KeptKind::of(update.kind) {
                put(&mut updates, kind, update, now);
            }
        }
        let call = AnsweredCall {
            at: now,
            slot: batch.first().map_or(0, |first| first.route.slot),
            marker: marker.filter(|_| is_marked),
            count,
            updates,
        };
        free.extend(if is_outdated {
            self.retries.borrow_mut().add(call)
        } else {
            lately.add(call)
        });
        free
    }

    /// Drops, and frees the memory of, calls that no other master can lack any more: also for a worker that has become
    /// idle. Returns the markers whose names other calls may use from now on.
    pub(super) fn forget_old(&self) -> Vec<AppliedMarker> {
        let mut lately = self.lately.borrow_mut();
        let free = lately.forget_old(clock::now());
        let most = lately.calls.len().max(LITTLE) * 2;
        lately.calls.shrink_to(most);
        free
    }

    /// May a new master lack the effect of this update, and would a repetition be correct there?
    fn may_be_missing(&self, update: &CounterUpdate) -> bool {
        let lately = clock::micros(LATELY);
        let is_old = |charged: Timestamp| charged.plus(lately) <= self.now.get();
        update.clock.is_none()
            && match KeptKind::of(update.kind) {
                Some(KeptKind::Release | KeptKind::Surcharge) => true,
                Some(KeptKind::Refund | KeptKind::Settlement) => update.charged.is_some_and(is_old),
                None => false,
            }
    }

    /// Repeats the calls that were answered in the last seconds before `since`: since then the master may have changed.
    pub(crate) fn repeat(&self, since: Instant) {
        let now = clock::now();
        let mut retries = self.retries.borrow_mut();
        let calls = std::mem::take(&mut *self.lately.borrow_mut()).calls;
        let is_new = |call: &AnsweredCall| call.at + LATELY >= since && call.is_known(now);
        for call in calls.into_iter().filter(is_new) {
            // The names of dropped calls are used no more.
            retries.add(call);
        }
    }

    /// The updates of repeated calls, as many as fit into one call.
    pub(crate) fn next(&self) -> Vec<CounterUpdate> {
        let mut retries = self.retries.borrow_mut();
        let now = clock::now();
        let mut batch = Vec::new();
        while let Some(call) = retries.calls.front() {
            let fits = batch.is_empty()
                || (call.marker.is_none() && batch.len() + call.count <= MOST_IN_CALL);
            if !fits {
                break;
            }
            let Some(call) = retries.pop() else { break };
            if call.is_known(now) {
                batch.extend(call.updates().filter(|update| !update.is_over(now)));
            }
            if call.marker.is_some() && !batch.is_empty() {
                break;
            }
        }
        batch
    }

    /// Removes the calls about slots that another master serves.
    pub(crate) fn take(&self, is_elsewhere: impl Fn(Slot) -> bool) -> Vec<AnsweredCall> {
        let mut taken = Vec::new();
        for list in [&self.retries, &self.lately] {
            let mut list = list.borrow_mut();
            if !list.calls.iter().any(|call| is_elsewhere(call.slot)) {
                continue;
            }
            for call in std::mem::take(&mut *list).calls {
                if is_elsewhere(call.slot) {
                    taken.push(call);
                } else {
                    list.add(call);
                }
            }
        }
        taken
    }

    /// Adds a call of another node, to be repeated here.
    pub(crate) fn take_over(&self, call: AnsweredCall) {
        self.retries.borrow_mut().add(call);
    }
}

impl AnsweredCall {
    pub(crate) fn slot(&self) -> Slot {
        self.slot
    }

    /// The number of its bytes.
    fn size(&self) -> usize {
        size_of::<Self>() + self.updates.capacity()
    }

    /// Would Redis still recognise the call, if it has run it?
    fn is_known(&self, now: Instant) -> bool {
        self.marker
            .is_none_or(|marker| now - marker.since < REPEATED)
    }

    fn updates(&self) -> impl Iterator<Item = CounterUpdate> + '_ {
        let mut rest = &self.updates[..];
        std::iter::from_fn(move || {
            let (update, more) = take_call(rest, self)?;
            rest = more;
            Some(update)
        })
    }
}

/// Bytes of an update besides its question: its kind, and the number of milliseconds after the answer for which it is
/// of use.
const PUT: usize = 5;

/// The kinds of updates that are kept, each by its byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum KeptKind {
    Release = b'r',
    Refund = b'b',
    Settlement = b's',
    Surcharge = b'm',
}

impl KeptKind {
    const ALL: [Self; 4] = [
        Self::Release,
        Self::Refund,
        Self::Settlement,
        Self::Surcharge,
    ];

    /// The kind, if updates of it are kept.
    fn of(kind: UpdateKind) -> Option<Self> {
        Some(match kind {
            UpdateKind::Release { .. } => Self::Release,
            UpdateKind::Refund => Self::Refund,
            UpdateKind::Settlement => Self::Settlement,
            UpdateKind::Surcharge => Self::Surcharge,
            UpdateKind::Renewal | UpdateKind::Registration | UpdateKind::Reset => return None,
        })
    }

    /// The kind of the update when repeated.
    fn repeated(self) -> UpdateKind {
        match self {
            Self::Release => UpdateKind::Release { recheck: None },
            Self::Refund => UpdateKind::Refund,
            Self::Settlement => UpdateKind::Settlement,
            Self::Surcharge => UpdateKind::Surcharge,
        }
    }
}

/// Appends an update that was answered `now`.
fn put(out: &mut Vec<u8>, kind: KeptKind, update: &CounterUpdate, now: Instant) {
    out.push(kind as u8);
    let lasts = update.until.saturating_duration_since(now).as_millis();
    let lasts = u32::try_from(lasts).unwrap_or(u32::MAX);
    out.extend_from_slice(&lasts.to_be_bytes());
    update.question.pack(out);
}

/// Reads an update of `call`, and returns the rest.
fn take_call<'a>(bytes: &'a [u8], call: &AnsweredCall) -> Option<(CounterUpdate, &'a [u8])> {
    let (byte, rest) = bytes.split_first()?;
    let kind = KeptKind::ALL
        .into_iter()
        .find(|kind| *kind as u8 == *byte)?;
    let (lasts, rest) = rest.split_first_chunk()?;
    let (question, rest) = Question::unpack(rest)?;
    let lasts = Duration::from_millis(u64::from(u32::from_be_bytes(*lasts)));
    let update = CounterUpdate {
        route: CallRoute::to(call.slot),
        until: call.at + lasts,
        marker: call.marker,
        is_repeat: true,
        // It was made long enough before the first answer.
        charged: Some(Timestamp::default()),
        // It may have been applied.
        tries: u8::from(call.marker.is_some()),
        ..CounterUpdate::new(kind.repeated(), question, None)
    };
    Some((update, rest))
}
