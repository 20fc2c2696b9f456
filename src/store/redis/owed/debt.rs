//! Charges that nobody asks whether they fit, and nobody waits for: what a request has cost beyond its estimate.

use super::{Duty, KEPT, MOST_TIMES, REPEATED};
use crate::clock::Timestamp;
use crate::store::error::StoreError;
use crate::store::redis::cluster::Route;
use crate::store::redis::gather::{Asked, MOST_WAITING};
use crate::store::redis::node::Shared;
use crate::store::redis::question::Question;
use crate::store::redis::reply::Wrong;
use crate::telemetry::metrics::CallOutcome;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// What is known of a charge that nobody asks whether it fits, and nobody waits for.
#[derive(Debug, Clone, Copy)]
pub(in crate::store::redis) struct Debt {
    until: Instant,
    /// When it was sent first.
    since: Option<Instant>,
    /// How often it has been sent in vain.
    times: u8,
}

impl Debt {
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

impl Shared {
    /// Charges what nobody asks about, soon or when Redis is back.
    pub(in crate::store::redis) fn owe_debt(
        &self,
        clock: Option<Timestamp>,
        (question, route): (Question, Route),
        debt: Debt,
    ) {
        let is_down = self.health.is_down();
        let queued = match is_down {
            true => self.owed.debts.borrow().len(),
            false => self.decisions.borrow().len(),
        };
        let must_go = is_down && clock.is_some();
        if must_go || debt.is_over() || queued >= MOST_WAITING / 2 {
            return self.count(Duty::Settlement, CallOutcome::Lost, Duration::ZERO);
        }
        match is_down {
            true => {
                self.count(Duty::Settlement, CallOutcome::Down, Duration::ZERO);
                let mut debts = self.owed.debts.borrow_mut();
                debts.push_back((question, route, debt));
            }
            false => {
                self.charge(clock, (question, route), debt);
                self.wake();
            }
        }
    }

    fn charge(&self, clock: Option<Timestamp>, (question, route): (Question, Route), debt: Debt) {
        self.decisions.borrow_mut().push_back(Asked {
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
    pub(in crate::store::redis) fn forsake(&self, asked: Asked, why: &StoreError, sent: bool) {
        let Some(debt) = asked.kept else {
            return self.tell(asked, Err(Wrong::Store(why.clone())));
        };
        let debt = match sent {
            true => debt.sent(),
            false => debt,
        };
        let is_full = self.owed.debts.borrow().len() >= MOST_WAITING / 2;
        if is_full || debt.is_over() || asked.clock.is_some() {
            return self.count(Duty::Settlement, CallOutcome::Lost, Duration::ZERO);
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
