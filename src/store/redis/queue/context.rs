//! The common context of one worker's nodes: the target, and the names of the counters.

use super::abandonment::Abandonments;
use super::shares::Shares;
use super::stats::Stats;
use crate::clock::Timestamp;
use crate::key::RepeatId;
use crate::limit::{Limit, LimitId, wire};
use crate::store::check::{Check, Intent};
use crate::store::redis::LONGEST;
use crate::store::redis::wire::counter_update::{CounterUpdate, UpdateKind};
use crate::store::redis::wire::layout;
use crate::store::redis::wire::question::{self, DecisionRequest, Question};
use crate::store::reservation::{Amendment, Correction, Reservation};
use crate::store::settings::{RedisTarget, StoreSettings};
use crate::store::shadow;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// The longest time in which the others register their requests with a new master. It is at most a quarter of
/// `timeout`, so that a decision that waits for it has time left for its call.
const TOGETHER: Duration = Duration::from_millis(100);

/// The common context of one worker's nodes.
pub(crate) struct StoreContext {
    pub(crate) target: RedisTarget,
    /// Longest time of a decision.
    pub(crate) timeout: Duration,
    /// First part of every key.
    pub(crate) prefix: Arc<str>,
    pub(crate) stats: Arc<Stats>,
    pub(crate) abandonments: Abandonments,
    /// Notified when a server needs the slots of requests in flight once more.
    pub(crate) registration: Notify,
    pub(crate) shares: Shares,
    /// The number of decisions so far.
    decisions: Cell<u64>,
    prefixes: RefCell<hashbrown::HashMap<LimitId, Rc<[u8]>, foldhash::fast::RandomState>>,
}

impl StoreContext {
    pub(crate) fn new(target: &RedisTarget, settings: &StoreSettings) -> Self {
        Self {
            target: target.clone(),
            timeout: settings.timeout.min(LONGEST),
            prefix: settings.prefix.clone(),
            stats: Arc::default(),
            abandonments: Abandonments::default(),
            registration: Notify::new(),
            shares: Shares::default(),
            decisions: Cell::default(),
            prefixes: RefCell::default(),
        }
    }

    /// The time in which other workers and gateways register their requests with a new master.
    pub(crate) fn together(&self) -> Duration {
        TOGETHER.min(self.timeout / 4)
    }

    /// The number of the next decision.
    pub(super) fn next_number(&self) -> u64 {
        let number = self.decisions.get();
        self.decisions.set(number.wrapping_add(1));
        number
    }

    /// The question that decides `request`.
    pub(crate) fn decision(&self, request: DecisionRequest<'_>) -> Question {
        let checks = request.checks.iter();
        let mut question =
            Question::with_room_for(checks.map(|check| check.limit.block.len()).sum());
        let groups = if shadow::all_decide(request.checks) {
            shadow::ShadowGroups::new()
        } else {
            shadow::groups(request.checks)
        };
        for (index, check) in request.checks.iter().enumerate() {
            question.shadow(groups.get(index).copied().unwrap_or_default());
            let prefix = self.prefix_of(check.limit);
            question.check(&prefix, check, request.clock, None);
        }
        if let (Intent::Peek, Some(first)) = (request.intent, request.checks.first()) {
            let prefix = self.prefix_of(first.limit);
            question.push(&prefix, first.key, &wire::refused());
        }
        question
    }

    /// The update that amends a charge, if the limit's present numbers allow one. With a clock of the caller no update
    /// is repeated.
    pub(crate) fn amend(
        &self,
        clock: Option<Timestamp>,
        reservation: &Reservation,
        amendment: Amendment,
    ) -> Option<CounterUpdate> {
        let Reservation { limit, key, .. } = reservation;
        let (kind, question) = match reservation.correction(amendment)? {
            Correction::Less(ticket) => {
                let block = question::refund_block(limit, ticket)?;
                let mut question = Question::default();
                let charged = Some(reservation.at).filter(|_| limit.rule.concurrency().is_none());
                question.refund(&self.prefix_of(limit), key, &block, ticket, charged);
                (UpdateKind::of_refund(limit, amendment), question)
            }
            Correction::Longer(ticket) => {
                let block = question::renew_block(limit, ticket)?;
                let kind = match amendment {
                    Amendment::Registration => UpdateKind::Registration,
                    _ => UpdateKind::Renewal,
                };
                (kind, self.update(limit, key, &block))
            }
            Correction::More(overdraft, cost) => {
                let surcharge = Check {
                    limit: &overdraft,
                    key,
                    cost,
                    id: clock.is_none().then(RepeatId::random),
                };
                let question = self.decision(DecisionRequest {
                    checks: &[surcharge],
                    clock,
                    intent: Intent::Charge,
                });
                (UpdateKind::Surcharge, question)
            }
        };
        let charged = Some(reservation.at).filter(|at| *at != Timestamp::default());
        Some(CounterUpdate {
            clock,
            charged,
            ..CounterUpdate::of(kind, limit, question)
        })
    }

    /// The update with the script block `block` for one counter.
    pub(crate) fn update(&self, limit: &Limit, key: &[u8], block: &[u8]) -> Question {
        let mut question = Question::default();
        question.push(&self.prefix_of(limit), key, block);
        question
    }

    /// The update that deletes one counter, and the block of its key, and marks the instant.
    pub(crate) fn forget(&self, limit: &Limit, key: &[u8]) -> Question {
        let mut question = Question::default();
        question.forget(&self.prefix_of(limit), key, limit.mark_life());
        question
    }

    /// The names of a counter, of the block of its key, and of the mark of its reset.
    pub(crate) fn reset_names(&self, limit: &Limit, key: &[u8]) -> [Vec<u8>; 3] {
        let prefix = self.prefix_of(limit);
        let mut counter = layout::CounterNames::new();
        layout::counter(&mut counter, &prefix, key);
        let block = layout::block(&prefix, key);
        [counter.into_vec(), block, layout::mark(&prefix, key)]
    }

    /// The first part of the names of a limit's counters, up to the key, built at the first use. A part keeps its
    /// memory for ever; there are as many parts as the file has ever had limits.
    fn prefix_of(&self, limit: &Limit) -> Rc<[u8]> {
        self.prefixes
            .borrow_mut()
            .entry(limit.id)
            .or_insert_with(|| layout::key_prefix(&self.prefix, limit).into())
            .clone()
    }
}
