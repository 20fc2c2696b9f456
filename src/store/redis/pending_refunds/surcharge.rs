//! Charges that nobody asks whether they fit, and nobody waits for: what a request has cost beyond its estimate.

use super::{KEPT, MOST_TIMES, REPEATED, UpdateKind};
use crate::clock::Timestamp;
use crate::store::error::StoreError;
use crate::store::redis::batcher::{MOST_WAITING, QueuedDecision};
use crate::store::redis::cluster::Route;
use crate::store::redis::node::NodeCore;
use crate::store::redis::question::Question;
use crate::store::redis::reply::ReplyError;
use crate::telemetry::metrics::CallOutcome;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// What is known of a charge that nobody asks whether it fits, and nobody waits for.
#[derive(Debug, Clone, Copy)]
pub(in crate::store::redis) struct Surcharge {
    until: Instant,
    /// When it was sent first.
    since: Option<Instant>,
    /// How often it has been sent in vain.
    times: u8,
}

impl Surcharge {
    pub(in crate::store::redis) fn new() -> Self {
        Self {
            until: Instant::now() + KEPT,
            since: None,
            times: 0,
        }
    }

    /// The same after a call that had no answer.
    fn sent(self) -> Self {
        Self {
            since: self.since.or_else(|| Some(Instant::now())),
            times: self.times + 1,
            ..self
        }
    }

    fn is_over(&self) -> bool {
        let in_vain = self.since.is_some_and(|since| since.elapsed() >= REPEATED);
        self.until <= Instant::now() || in_vain || self.times >= MOST_TIMES
    }
}

impl NodeCore {
    /// Charges what nobody asks about, soon or when Redis is back.
    pub(in crate::store::redis) fn owe_debt(
        &self,
        clock: Option<Timestamp>,
        (question, route): (Question, Route),
        debt: Surcharge,
    ) {
        let is_down = self.health.is_down();
        let queued = if is_down {
            self.owed.debts.borrow().len()
        } else {
            self.decisions.borrow().len()
        };
        let must_go = is_down && clock.is_some();
        if must_go || debt.is_over() || queued >= MOST_WAITING / 2 {
            return self.count(UpdateKind::Settlement, CallOutcome::Lost, Duration::ZERO);
        }
        if is_down {
            self.count(UpdateKind::Settlement, CallOutcome::Down, Duration::ZERO);
            let mut debts = self.owed.debts.borrow_mut();
            debts.push_back((question, route, debt));
        } else {
            self.charge(clock, (question, route), debt);
            self.wake();
        }
    }

    fn charge(
        &self,
        clock: Option<Timestamp>,
        (question, route): (Question, Route),
        debt: Surcharge,
    ) {
        self.decisions.borrow_mut().push_back(QueuedDecision {
            number: self.leavers.number(),
            question,
            clock,
            arrived: Instant::now(),
            kept: Some(debt),
            route,
            answer: oneshot::channel().0,
        });
    }

    /// Nobody has decided `asked`, though it may have been `sent`. What is charged whoever asks is charged later.
    pub(in crate::store::redis) fn forsake(
        &self,
        asked: QueuedDecision,
        why: &StoreError,
        sent: bool,
    ) {
        let Some(debt) = asked.kept else {
            return self.tell(asked, Err(ReplyError::Store(why.clone())));
        };
        let debt = if sent { debt.sent() } else { debt };
        let is_full = self.owed.debts.borrow().len() >= MOST_WAITING / 2;
        if is_full || debt.is_over() || asked.clock.is_some() {
            return self.count(UpdateKind::Settlement, CallOutcome::Lost, Duration::ZERO);
        }
        let mut debts = self.owed.debts.borrow_mut();
        debts.push_back((asked.question, asked.route.afresh(), debt));
        self.owed.put_off.notify_one();
    }

    /// Charges what has waited.
    pub(super) fn charge_all(&self) {
        for (question, route, debt) in self.owed.debts.take() {
            self.charge(None, (question, route), debt);
        }
    }
}
