//! An update of one counter that no request waits for: a refund, a settlement, a renewal, a release of slots. What a request
//! cost beyond its estimate is charged as a decision is, by another script, under an id by which a repeat is recognised.
//!
//! A call that gives charges back leaves a marker in Redis, by which Redis knows that it has applied the call: a name, which
//! one call after the other has, each only when the one before is answered, and the call's number under that name.

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

/// How long an update is kept that has not been sent.
pub(super) const KEPT: Duration = Duration::from_hours(1);

/// How long a call is repeated that may have been applied: for longer than that its marker lasts.
pub(super) const REPEATED: Duration = Duration::from_mins(2);

/// Receives the script's byte.
pub(super) type UpdateSender = oneshot::Sender<Result<u8, StoreError>>;

/// What is to be done to a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UpdateKind {
    /// Slots are freed.
    Release {
        /// The slots may not be taken yet, since the call that asked for them had no answer: so much later they are looked
        /// for again.
        recheck: Option<Duration>,
    },
    /// Slots are held for longer. A renewal that is lost is followed by the next.
    Renewal,
    /// A charge comes back.
    Refund,
    /// A charge was too much.
    Settlement,
    /// A charge was too little.
    Surcharge,
    /// The counter is forgotten, and the caller waits for the answer.
    Reset,
}

/// One update, with what is needed to send it again.
#[derive(Debug)]
pub(super) struct CounterUpdate {
    pub(super) kind: UpdateKind,
    pub(super) question: Question,
    pub(super) clock: Option<Timestamp>,
    pub(super) route: CallRoute,
    /// From then on the update means nothing any more.
    pub(super) until: Instant,
    /// How often the update was sent in vain.
    pub(super) tries: u8,
    /// The marker of the call that it went with.
    pub(super) marker: Option<AppliedMarker>,
    /// Where a caller waits, the sender of its answer.
    pub(super) answer: Option<UpdateSender>,
}

impl UpdateKind {
    /// The operation that metrics count it as, if they do.
    pub(super) fn operation(self) -> Option<Operation> {
        Some(match self {
            Self::Release { .. } => Operation::Release,
            Self::Refund => Operation::Refund,
            Self::Settlement | Self::Surcharge => Operation::Settle,
            Self::Renewal | Self::Reset => return None,
        })
    }

    /// The kind of an amendment by which something comes back to `limit`.
    pub(super) fn of_refund(limit: &Limit, amendment: Amendment) -> Self {
        match amendment {
            Amendment::Settlement(_) => Self::Settlement,
            _ if limit.rule.holds().is_some() => Self::Release { recheck: None },
            _ => Self::Refund,
        }
    }
}

impl CounterUpdate {
    /// Slots that lapse after `lasts` need no update any more.
    pub(super) fn new(kind: UpdateKind, question: Question, lasts: Option<Duration>) -> Self {
        Self {
            kind,
            question,
            clock: None,
            route: CallRoute::default(),
            until: clock::now() + lasts.unwrap_or(KEPT),
            tries: 0,
            marker: None,
            answer: None,
        }
    }

    /// An update of a counter of `limit`. Slots that are not renewed any more lapse, and then need no update.
    pub(super) fn of(kind: UpdateKind, limit: &Limit, question: Question) -> Self {
        let slots = limit.rule.holds();
        let lasts = slots.map(|rule| Duration::from_micros(rule.ttl));
        Self::new(kind, question, lasts)
    }

    /// Can both updates go in one call?
    pub(super) fn goes_with(&self, other: &Self) -> bool {
        let is_surcharge = |update: &Self| update.kind == UpdateKind::Surcharge;
        self.clock == other.clock
            && self.marker == other.marker
            && is_surcharge(self) == is_surcharge(other)
    }

    /// Is the update kept while Redis is away? By a clock of the caller's nothing waits.
    pub(super) fn is_kept(&self) -> bool {
        self.clock.is_none() && self.kind.operation().is_some()
    }

    /// Would the update be done twice if it were sent twice?
    pub(super) fn adds_up(&self) -> bool {
        use UpdateKind::{Refund, Settlement, Surcharge};
        matches!(self.kind, Refund | Settlement | Surcharge)
    }

    /// Can the update be sent again though it may have been done?
    pub(super) fn is_repeatable(&self) -> bool {
        let is_marked = self
            .marker
            .is_some_and(|marker| clock::now() - marker.since < REPEATED);
        self.is_kept() && (is_marked || !self.adds_up())
    }

    /// Does the update mean nothing any more, or can Redis not recognise that it was done?
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.until <= now || (self.tries > 0 && !self.is_repeatable())
    }

    /// Answers a caller that waits with an error. Mostly none waits.
    pub(super) fn fail(&mut self, why: &StoreError) {
        if let Some(answer) = self.answer.take() {
            let _ = answer.send(Err(why.clone()));
        }
    }

    /// The update was not done where it was sent last. If it was not sent anywhere else either, it may go with another call.
    pub(super) fn unmark(&mut self) {
        if self.tries == 0 {
            self.marker = None;
        }
    }
}

/// The marker of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AppliedMarker {
    pub(super) name: u64,
    pub(super) number: u64,
    /// When the call was sent first.
    pub(super) since: Instant,
}

/// Names that no call has just now, with the last number of each.
#[derive(Debug, Default)]
pub(super) struct MarkerNames(RefCell<Vec<(u64, u64)>>);

impl MarkerNames {
    /// A marker for a new call.
    pub(super) fn next(&self) -> AppliedMarker {
        let free = self.0.borrow_mut().pop();
        let (name, last) = free.unwrap_or_else(|| (fastrand::u64(..), 0));
        AppliedMarker {
            name,
            number: last + 1,
            since: clock::now(),
        }
    }

    /// The call is answered: the next may have its name.
    pub(super) fn release(&self, marker: AppliedMarker) {
        self.0.borrow_mut().push((marker.name, marker.number));
    }
}
