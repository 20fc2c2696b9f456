//! The questions of one request: one for each slot with counters of its limits.

use super::pending_decision::PendingReply;
use crate::limit::verdict::INLINE_LIMITS;
use crate::store::answers::{Answers, UnknownCause};
use crate::store::check::{Check, Checks};
use crate::store::decider::Decider;
use crate::store::error::StoreError;
use crate::store::redis::link::reply;
use crate::store::redis::wire::slot::{Slot, slot_of};
use crate::store::reservation::Reservation;
use smallvec::SmallVec;

/// The limits of a request whose counters are in one slot.
pub(crate) struct SlotQuestionLimits {
    pub(crate) slot: Slot,
    /// Positions among the limits of the request.
    positions: SmallVec<[usize; INLINE_LIMITS]>,
}

/// A request's limits by the slots of their counters.
pub(crate) fn by_slot(checks: &[Check<'_>]) -> SmallVec<[SlotQuestionLimits; INLINE_LIMITS]> {
    let mut slots: SmallVec<[SlotQuestionLimits; INLINE_LIMITS]> = SmallVec::new();
    for (position, check) in checks.iter().enumerate() {
        let slot = slot_of(check.limit, check.key);
        match slots.iter_mut().find(|limits| limits.slot == slot) {
            Some(limits) => limits.positions.push(position),
            None => slots.push(SlotQuestionLimits {
                slot,
                positions: SmallVec::from_slice(&[position]),
            }),
        }
    }
    slots
}

impl SlotQuestionLimits {
    /// The checks among `checks` of these limits.
    pub(crate) fn checks<'a>(&self, checks: &[Check<'a>]) -> Checks<'a> {
        let positions = self.positions.iter();
        let chosen = positions.filter_map(|position| checks.get(*position));
        chosen.copied().collect()
    }
}

/// One question of a request, and its outcome.
pub(crate) struct SlotQuestion {
    limits: SlotQuestionLimits,
    state: QuestionState,
}

enum QuestionState {
    Pending(PendingReply),
    Answered(Result<Box<Answers>, StoreError>),
}

impl SlotQuestion {
    /// A question about `limits`: its pending reply, or the cause for which it could not be sent.
    pub(crate) fn new(limits: SlotQuestionLimits, asked: Result<PendingReply, StoreError>) -> Self {
        let state = match asked {
            Ok(reply) => QuestionState::Pending(reply),
            Err(error) => QuestionState::Answered(Err(error)),
        };
        Self { limits, state }
    }

    /// The only question of a request.
    pub(crate) fn only(checks: &[Check<'_>], reply: PendingReply) -> Self {
        let limits = SlotQuestionLimits {
            slot: Slot::default(),
            positions: (0..checks.len()).collect(),
        };
        Self::new(limits, Ok(reply))
    }

    /// Waits for the answer, if it has not arrived yet. May be dropped and called again.
    pub(crate) async fn conclude(&mut self, checks: &[Check<'_>]) {
        if let QuestionState::Pending(reply) = &mut self.state {
            (&mut *reply).await;
            let chosen = self.limits.checks(checks);
            let answers = reply.read(|reply| reply::answers(reply, &chosen));
            self.state = QuestionState::Answered(answers.unwrap_or(Err(StoreError::Down)));
        }
    }

    /// The charges of the slot, separate from the other slots.
    pub(crate) fn charged(&self, checks: &[Check<'_>]) -> Vec<Reservation> {
        match &self.state {
            QuestionState::Answered(Ok(answers)) => {
                answers.reservations(&self.limits.checks(checks))
            }
            QuestionState::Answered(Err(_)) | QuestionState::Pending(_) => Vec::new(),
        }
    }
}

/// The answers of all questions in the order of the limits, each with its own node's instant.
///
/// # Errors
/// If no slot has answered.
pub(crate) fn combine(
    checks: &[Check<'_>],
    questions: &[SlotQuestion],
) -> Result<Box<Answers>, StoreError> {
    let mut all = Box::new(Answers::unknown(checks, Decider::Open, UnknownCause::Away));
    all.by = Decider::Redis;
    let (mut why, mut silent) = (None, 0);
    for question in questions {
        match &question.state {
            QuestionState::Answered(Ok(answers)) => {
                all.at = all.at.max(answers.at);
                all.replace(answers);
            }
            QuestionState::Answered(Err(error)) => {
                silent += 1;
                why.get_or_insert_with(|| error.clone());
            }
            QuestionState::Pending(_) => silent += 1,
        }
    }
    if silent == questions.len() {
        return Err(why.unwrap_or(StoreError::Down));
    }
    all.outage = why.map(Box::new);
    Ok(all)
}
