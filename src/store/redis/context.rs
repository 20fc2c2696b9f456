//! What the nodes of one worker share: the target, and the names of the counters.

use super::LONGEST;
use super::abandonment::Abandonments;
use super::layout;
use super::question::{self, DecisionRequest, Question};
use super::stats::Stats;
use crate::limit::{Limit, LimitId, wire};
use crate::store::reservation::Refund;
use crate::store::settings::{RedisTarget, StoreSettings};
use crate::store::shadow;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// What the nodes of one worker share.
pub(super) struct StoreContext {
    pub(super) target: RedisTarget,
    /// Longest a decision may take.
    pub(super) timeout: Duration,
    /// First part of every key.
    pub(super) prefix: Arc<str>,
    pub(super) stats: Arc<Stats>,
    pub(super) abandonments: Abandonments,
    prefixes: RefCell<hashbrown::HashMap<LimitId, Rc<[u8]>, foldhash::fast::RandomState>>,
}

impl StoreContext {
    pub(super) fn new(target: &RedisTarget, settings: &StoreSettings) -> Self {
        Self {
            target: target.clone(),
            timeout: settings.timeout.min(LONGEST),
            prefix: settings.prefix.clone(),
            stats: Arc::default(),
            abandonments: Abandonments::default(),
            prefixes: RefCell::default(),
        }
    }

    /// The question that decides `request`.
    pub(super) fn decision(&self, request: DecisionRequest<'_>) -> Question {
        let mut question = Question::default();
        let groups = shadow::groups(request.checks);
        for (check, group) in request.checks.iter().zip(groups) {
            question.shadow(group);
            question.check(&self.prefix_of(check.limit), check, request.clock);
        }
        if let Some(first) = request.checks.first().filter(|_| request.refused) {
            let prefix = self.prefix_of(first.limit);
            question.push(&prefix, first.key, &wire::refused());
        }
        question
    }

    /// What gives one charge back, if the limit's present numbers allow it.
    pub(super) fn refund(&self, refund: Refund<'_>) -> Option<Question> {
        let Refund { limit, key, ticket } = refund;
        let block = question::refund_block(limit, ticket)?;
        let mut question = Question::default();
        question.refund(&self.prefix_of(limit), key, &block, ticket);
        Some(question)
    }

    /// What does the update of `block` to one counter.
    pub(super) fn update(&self, limit: &Limit, key: &[u8], block: &[u8]) -> Question {
        let mut question = Question::default();
        question.push(&self.prefix_of(limit), key, block);
        question
    }

    /// The names of a limit's counters up to the key, built when it is first asked for. A name costs its length for
    /// good; there are as many as the file has ever had.
    fn prefix_of(&self, limit: &Limit) -> Rc<[u8]> {
        self.prefixes
            .borrow_mut()
            .entry(limit.id)
            .or_insert_with(|| layout::key_prefix(&self.prefix, limit).into())
            .clone()
    }
}
