//! Requests that leave while their decision is under way. It is made all the same; what only a request that goes on can
//! use, or its limit gives back to those who leave, comes back when the answer is there.

use super::batcher::QueuedDecision;
use super::cluster::Route;
use super::node::NodeCore;
use super::reply::ScriptReply;
use crate::clock::Timestamp;
use crate::key::RepeatId;
use crate::limit::Limit;
use crate::limit::rate::Cost;
use crate::store::check::{Charge, Check, Refund};
use crate::store::shadow::{Charges, Groups, groups};
use std::cell::{Cell, OnceCell, RefCell};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// Who takes over a place in a queue that was granted to a request that has left, so long before its turn.
pub(super) type AbandonedTicketHandler = Box<dyn Fn(Charge, Duration)>;

/// Those who have left while their decision was under way, by their question's number.
#[derive(Default)]
pub(super) struct Abandonments {
    /// Questions asked so far.
    asked: Cell<u64>,
    left: RefCell<hashbrown::HashMap<u64, AbandonedRequest, foldhash::fast::RandomState>>,
    /// Gives places back in their order; without, each goes back by itself, if nobody stands behind it by then.
    pub(super) heir: OnceCell<AbandonedTicketHandler>,
}

impl Abandonments {
    /// The number of the next question.
    pub(super) fn number(&self) -> u64 {
        let number = self.asked.get();
        self.asked.set(number.wrapping_add(1));
        number
    }

    /// The question is not asked.
    pub(super) fn forget(&self, number: u64) {
        self.left.borrow_mut().remove(&number);
    }
}

/// Waits for the answer to one question. Dropping it before the answer was taken leaves word of what is to come back.
pub(super) struct PendingAnswer<'a> {
    pub(super) shared: &'a NodeCore,
    pub(super) checks: &'a [Check<'a>],
    pub(super) clock: Option<Timestamp>,
    pub(super) number: u64,
    pub(super) receiver: oneshot::Receiver<ScriptReply>,
    /// The answer was taken, or nothing will be charged.
    pub(super) done: bool,
}

/// What a request that has left may have been charged.
pub(super) struct AbandonedRequest {
    clock: Option<Timestamp>,
    /// Of all limits of the question.
    groups: Groups,
    charges: Vec<OwnedCheck>,
}

/// A check without anybody who waits for it.
pub(super) struct OwnedCheck {
    /// Position among the limits of the question.
    index: usize,
    limit: Arc<Limit>,
    key: Box<[u8]>,
    cost: Cost,
    id: Option<RepeatId>,
}

impl OwnedCheck {
    pub(super) fn of(index: usize, check: &Check<'_>) -> Self {
        Self {
            index,
            limit: Arc::clone(check.limit),
            key: Box::from(check.key),
            cost: check.cost,
            id: check.id,
        }
    }

    pub(super) fn check(&self) -> Check<'_> {
        Check {
            limit: &self.limit,
            key: &self.key,
            cost: self.cost,
            id: self.id,
        }
    }
}

impl Drop for PendingAnswer<'_> {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let charges: Vec<OwnedCheck> = self
            .checks
            .iter()
            .enumerate()
            .filter(|(_, check)| comes_back(check.limit))
            .map(|(index, check)| OwnedCheck::of(index, check))
            .collect();
        if charges.is_empty() {
            return;
        }
        let left = AbandonedRequest {
            clock: self.clock,
            groups: groups(self.checks),
            charges,
        };
        let shared = self.shared;
        match self.receiver.try_recv() {
            Ok(told) => shared.take_back(&left, told),
            Err(oneshot::error::TryRecvError::Empty) => {
                shared.leavers.left.borrow_mut().insert(self.number, left);
            }
            Err(oneshot::error::TryRecvError::Closed) => {}
        }
    }
}

/// A slot or a place in a queue is of no use to who has left; of other charges the limit says so.
pub(super) fn comes_back(limit: &Limit) -> bool {
    limit.rule.holds().is_some() || limit.rule.queues() || limit.refund_on.cancels
}

impl NodeCore {
    /// Tells a request its answer. One that has left is given back what it cannot use.
    pub(super) fn tell(&self, asked: QueuedDecision, told: ScriptReply) {
        let number = asked.number;
        if let Err(told) = asked.answer.send(told) {
            let left = self.leavers.left.borrow_mut().remove(&number);
            if let Some(left) = left {
                self.take_back(&left, told);
            }
        }
    }

    fn take_back(&self, left: &AbandonedRequest, told: ScriptReply) {
        let Ok((at, measured)) = told else {
            return;
        };
        let charged = Charges::by(&left.groups, &measured, false);
        for owned in &left.charges {
            let check = owned.check();
            let measured = measured
                .get(owned.index)
                .filter(|_| charged.has(owned.index));
            if let Some(ticket) = measured.and_then(|measured| check.ticket(at, *measured)) {
                let Check { limit, key, .. } = check;
                let heir = self.leavers.heir.get();
                if let Some(heir) = heir.filter(|_| limit.rule.queues() && left.clock.is_none()) {
                    let charge = Charge {
                        limit: Arc::clone(limit),
                        key: Box::from(key),
                        ticket,
                        by: None,
                    };
                    let turn =
                        measured.map_or(Duration::ZERO, |measured| check.turn(at, *measured));
                    heir(charge, turn);
                    continue;
                }
                self.return_home(left.clock, Refund { limit, key, ticket });
            }
        }
    }

    fn return_home(&self, clock: Option<Timestamp>, refund: Refund<'_>) {
        match &self.member {
            None => self.give_back(clock, (Route::default(), None), refund),
            Some(member) => member.give_back(clock, refund),
        }
    }
}
