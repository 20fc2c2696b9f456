//! An update of one counter that no request waits for: a refund, a settlement, a renewal, a release of slots. A cost
//! beyond the estimate is charged like a decision, by another script, under an id by which a repeat is recognised.
//!
//! A call that gives charges back leaves a marker in Redis, which shows that the call was applied. A marker is a name
//! and the number of a call. Successive calls use the same name, each only after the previous one is answered and will
//! not be repeated (`answered_calls`).

use super::question::Question;
use super::slot::CallRoute;
use crate::clock::{self, Timestamp};
use crate::limit::Limit;
use crate::store::error::StoreError;
use crate::store::reservation::Amendment;
use crate::telemetry::metrics::Operation;
use std::cell::RefCell;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Time for which an unsent update is kept.
pub(crate) const KEPT: Duration = Duration::from_hours(1);

/// Time for which a call that may have been applied is repeated. Its marker lasts longer.
pub(crate) const REPEATED: Duration = Duration::from_mins(2);

/// Receives the script's byte.
pub(crate) type UpdateSender = oneshot::Sender<Result<u8, StoreError>>;

/// The kind of an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UpdateKind {
    /// Slots are freed.
    Release {
        /// The pause before the slots are looked up a second time. `Some` if the call that requested the slots had no
        /// answer: it may take them yet.
        recheck: Option<Duration>,
    },
    /// Slots are renewed. A lost renewal is followed by the next.
    Renewal,
    /// Slots of a request in flight are registered with a server that may not know them.
    Registration,
    /// A charge is refunded.
    Refund,
    /// A charge was too high: its surplus is refunded.
    Settlement,
    /// A charge was too low: the difference is charged.
    Surcharge,
    /// The counter is deleted, and the caller waits for the answer.
    Reset,
}

/// One update, with everything that a repeated call needs.
#[derive(Debug)]
pub(crate) struct CounterUpdate {
    pub(crate) kind: UpdateKind,
    pub(crate) question: Question,
    pub(crate) clock: Option<Timestamp>,
    pub(crate) route: CallRoute,
    /// The instant from which the update is of no use.
    pub(crate) until: Instant,
    /// The number of failed attempts to send the update.
    pub(crate) tries: u8,
    /// The marker of the call that carried the update.
    pub(crate) marker: Option<AppliedMarker>,
    /// The sender of the answer, if a caller waits.
    pub(crate) answer: Option<UpdateSender>,
    /// The instant of the refunded charge, by the clock of the master that made it, if known.
    pub(crate) charged: Option<Timestamp>,
    /// Has a master already answered it that may have been replaced?
    pub(crate) is_repeat: bool,
}

impl UpdateKind {
    /// The operation in metrics, if they count this kind.
    pub(crate) fn operation(self) -> Option<Operation> {
        Some(match self {
            Self::Release { .. } => Operation::Release,
            Self::Refund => Operation::Refund,
            Self::Settlement | Self::Surcharge => Operation::Settle,
            Self::Renewal | Self::Registration | Self::Reset => return None,
        })
    }

    /// The kind of an amendment that gives something back to `limit`.
    pub(crate) fn of_refund(limit: &Limit, amendment: Amendment) -> Self {
        match amendment {
            Amendment::Settlement(_) => Self::Settlement,
            _ if limit.rule.concurrency().is_some() => Self::Release { recheck: None },
            _ => Self::Refund,
        }
    }
}

impl CounterUpdate {
    /// A new update. Slots that lapse after `lasts` need no update from then on.
    pub(crate) fn new(kind: UpdateKind, question: Question, lasts: Option<Duration>) -> Self {
        Self {
            kind,
            question,
            clock: None,
            route: CallRoute::default(),
            until: clock::now() + lasts.unwrap_or(KEPT),
            tries: 0,
            marker: None,
            answer: None,
            charged: None,
            is_repeat: false,
        }
    }

    /// An update of a counter of `limit`. Slots that are not renewed lapse, and need no update from then on.
    pub(crate) fn of(kind: UpdateKind, limit: &Limit, question: Question) -> Self {
        let slots = limit.rule.concurrency();
        let lasts = slots.map(|rule| Duration::from_micros(rule.ttl));
        Self::new(kind, question, lasts)
    }

    /// Can both updates go in one call?
    pub(crate) fn goes_with(&self, other: &Self) -> bool {
        let is_surcharge = |update: &Self| update.kind == UpdateKind::Surcharge;
        self.clock == other.clock
            && self.marker == other.marker
            && is_surcharge(self) == is_surcharge(other)
    }

    /// Is the update kept while Redis is unavailable? With a clock of the caller nothing waits.
    pub(crate) fn is_kept(&self) -> bool {
        self.clock.is_none() && self.kind.operation().is_some()
    }

    /// Would the update take effect twice if it were sent twice?
    pub(crate) fn adds_up(&self) -> bool {
        use UpdateKind::{Refund, Settlement, Surcharge};
        matches!(self.kind, Refund | Settlement | Surcharge)
    }

    /// Can the update be sent again although it may have been applied?
    pub(crate) fn is_repeatable(&self) -> bool {
        let is_marked = self
            .marker
            .is_some_and(|marker| clock::now() - marker.since < REPEATED);
        self.is_kept() && (is_marked || !self.adds_up())
    }

    /// Is the update of no use any more, or could Redis no longer recognise that it was applied?
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        self.until <= now || (self.tries > 0 && !self.is_repeatable())
    }

    /// Answers a waiting caller with an error. Mostly no caller waits.
    pub(crate) fn fail(&mut self, why: &StoreError) {
        if let Some(answer) = self.answer.take() {
            let _ = answer.send(Err(why.clone()));
        }
    }

    /// Notes that the last call did not apply the update. If no other call carried it either, it may go with another
    /// call.
    pub(crate) fn unmark(&mut self) {
        if self.tries == 0 {
            self.marker = None;
        }
    }
}

/// The marker of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AppliedMarker {
    pub(crate) name: u64,
    pub(crate) number: u64,
    /// The instant at which the call was first sent.
    pub(crate) since: Instant,
}

/// Marker names that no call uses at present, with the last number of each.
#[derive(Debug, Default)]
pub(crate) struct MarkerNames(RefCell<Vec<(u64, u64)>>);

impl MarkerNames {
    /// A marker for a new call.
    pub(crate) fn next(&self) -> AppliedMarker {
        let free = self.0.borrow_mut().pop();
        let (name, last) = free.unwrap_or_else(|| (fastrand::u64(..), 0));
        AppliedMarker {
            name,
            number: last + 1,
            since: clock::now(),
        }
    }

    /// Releases the name of an answered call for the next call.
    pub(crate) fn release(&self, marker: AppliedMarker) {
        self.0.borrow_mut().push((marker.name, marker.number));
    }
}
