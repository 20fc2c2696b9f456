//! A request whose limits live in several slots: one question for each slot, asked at once. When any refuses, what the
//! others were charged goes back, and no request waits for it: never too much is admitted, and for about a round trip other
//! requests may find a little less than there is.

use super::Cluster;
use crate::clock::Timestamp;
use crate::limit::Limit;
use crate::limit::verdict::INLINE_LIMITS;
use crate::store::answers::{Answers, PartialOutage, UnknownCause};
use crate::store::check::{Check, apart};
use crate::store::decider::Decider;
use crate::store::error::StoreError;
use crate::store::redis::abandonment::{Abandonments, OwnedCheck, comes_back};
use crate::store::redis::context::StoreContext;
use crate::store::redis::node::answers;
use crate::store::redis::question::DecisionRequest;
use crate::store::redis::reply::ScriptReply;
use crate::store::redis::router::{Router, slot_of};
use crate::store::redis::slot::CallRoute;
use crate::store::redis::slot::Slot;
use crate::store::reservation::{Refund, Reservation};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::rc::Rc;
use tokio::sync::Notify;
use tokio::sync::oneshot::Receiver;

/// The limits of a request whose counters live in one slot.
pub(super) struct SlotLimits {
    pub(super) slot: Slot,
    /// Positions among the limits of the request.
    positions: SmallVec<[usize; INLINE_LIMITS]>,
}

/// A request's limits by the slots of their counters.
pub(super) fn by_slot(checks: &[Check<'_>]) -> SmallVec<[SlotLimits; INLINE_LIMITS]> {
    let mut slots: SmallVec<[SlotLimits; INLINE_LIMITS]> = SmallVec::new();
    for (position, check) in checks.iter().enumerate() {
        let slot = slot_of(check.limit, check.key);
        match slots.iter_mut().find(|limits| limits.slot == slot) {
            Some(limits) => limits.positions.push(position),
            None => slots.push(SlotLimits {
                slot,
                positions: SmallVec::from_slice(&[position]),
            }),
        }
    }
    slots
}

/// One question of a request, and what became of it.
struct SlotQuestion {
    limits: SlotLimits,
    state: QuestionState,
}

#[allow(
    clippy::large_enum_variant,
    reason = "it lives in a list that is made once, and nearly always becomes the large one"
)]
enum QuestionState {
    Pending(Receiver<ScriptReply>),
    Answered(Result<Answers, StoreError>),
}

impl SlotQuestion {
    fn checks<'a>(&self, checks: &[Check<'a>]) -> SmallVec<[Check<'a>; INLINE_LIMITS]> {
        let positions = self.limits.positions.iter();
        let own = positions.filter_map(|position| checks.get(*position));
        own.copied().collect()
    }

    /// Waits for the answer, if it is not there yet. May be dropped and begun again.
    async fn conclude(&mut self, checks: &[Check<'_>]) {
        if let QuestionState::Pending(receiver) = &mut self.state {
            let reply = receiver.await;
            self.state = QuestionState::Answered(answers(reply, &self.checks(checks)));
        }
    }
}

impl Cluster {
    /// Asks about limits that live in several slots.
    pub(super) async fn ask_slots(
        &self,
        request: DecisionRequest<'_>,
        slots: SmallVec<[SlotLimits; INLINE_LIMITS]>,
    ) -> Result<Answers, StoreError> {
        let DecisionRequest { clock, refused, .. } = request;
        let checks = &apart(request.checks, Limit::with_history)[..];
        let questions = slots.into_iter().map(|limits| {
            let mut question = SlotQuestion {
                limits,
                state: QuestionState::Answered(Err(StoreError::Down)),
            };
            let own = &question.checks(checks);
            let own = DecisionRequest {
                checks: own,
                ..request
            };
            let slot = question.limits.slot;
            let asked = self
                .router
                .at(slot)
                .and_then(|handle| handle.node.enqueue(own, CallRoute::to(slot)));
            question.state = match asked {
                Ok((_, receiver)) => QuestionState::Pending(receiver),
                Err(error) => QuestionState::Answered(Err(error)),
            };
            question
        });
        let mut pending = PendingAnswers {
            queue: &self.abandoned,
            checks,
            clock,
            questions: questions.collect(),
            done: refused,
        };
        for question in &mut pending.questions {
            question.conclude(checks).await;
        }
        pending.done = true;
        let mut whole = combine(checks, &pending.questions, false)?;
        if refused {
            // Nothing was to be charged.
            whole.charged.clear();
        } else if whole.refused {
            self.context.abandonments.cancel(clock, &whole.charged);
        }
        Ok(whole.answers(checks, &pending.questions))
    }
}

/// Waits for the answers. Dropping it before all are there leaves them to [`conclude_abandoned`].
struct PendingAnswers<'a> {
    queue: &'a AbandonedQueue,
    checks: &'a [Check<'a>],
    clock: Option<Timestamp>,
    questions: Vec<SlotQuestion>,
    /// Nothing is to be given back.
    done: bool,
}

impl Drop for PendingAnswers<'_> {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let checks = self.checks.iter().enumerate();
        self.queue.requests.borrow_mut().push(AbandonedQuestions {
            clock: self.clock,
            checks: checks
                .map(|(index, check)| OwnedCheck::of(index, check))
                .collect(),
            questions: std::mem::take(&mut self.questions),
        });
        self.queue.arrived.notify_one();
    }
}

/// Requests whose client left before all of their slots had answered.
#[derive(Default)]
pub(super) struct AbandonedQueue {
    requests: RefCell<Vec<AbandonedQuestions>>,
    arrived: Notify,
}

impl AbandonedQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.requests.borrow().is_empty()
    }
}

struct AbandonedQuestions {
    clock: Option<Timestamp>,
    checks: Vec<OwnedCheck>,
    questions: Vec<SlotQuestion>,
}

/// Gives back what abandoned requests were charged: all of it where they were refused, and where they were admitted what
/// only a request that goes on can use.
pub(super) async fn conclude_abandoned(
    router: Rc<Router>,
    context: Rc<StoreContext>,
    queue: Rc<AbandonedQueue>,
) {
    loop {
        queue.arrived.notified().await;
        let requests = queue.requests.take();
        router.underway.set(router.underway.get() + requests.len());
        for mut request in requests {
            request.conclude(&context.abandonments).await;
            router.underway.set(router.underway.get() - 1);
        }
    }
}

impl AbandonedQuestions {
    async fn conclude(&mut self, abandonments: &Abandonments) {
        let checks: Vec<Check<'_>> = self.checks.iter().map(OwnedCheck::check).collect();
        for question in &mut self.questions {
            question.conclude(&checks).await;
        }
        let Ok(whole) = combine(&checks, &self.questions, true) else {
            return;
        };
        let is_admitted = !whole.refused && whole.why.is_none();
        if !is_admitted {
            return abandonments.cancel(self.clock, &whole.charged);
        }
        for reservation in &whole.charged {
            if comes_back(&reservation.charge.limit)
                && !abandonments.hand_over(self.clock, reservation)
            {
                abandonments.refund(self.clock, Refund::from(&reservation.charge));
            }
        }
    }
}

/// All answers of a request together.
struct CombinedAnswer {
    /// What the slots were charged, each for itself.
    charged: Vec<Reservation>,
    /// Does any limit refuse that decides?
    refused: bool,
    /// Why a slot did not answer, if one did not.
    why: Option<StoreError>,
}

/// Puts the answers together. `abandoned`: the request has left.
///
/// # Errors
/// When no slot has answered.
fn combine(
    checks: &[Check<'_>],
    questions: &[SlotQuestion],
    abandoned: bool,
) -> Result<CombinedAnswer, StoreError> {
    let mut whole = CombinedAnswer {
        charged: Vec::new(),
        refused: false,
        why: None,
    };
    let mut silent = 0;
    for question in questions {
        match &question.state {
            QuestionState::Answered(Ok(answers)) => {
                whole.refused |= !answers.admit(&question.checks(checks));
            }
            QuestionState::Answered(Err(error)) => {
                silent += 1;
                whole.why.get_or_insert_with(|| error.clone());
            }
            QuestionState::Pending(_) => silent += 1,
        }
    }
    if silent == questions.len() {
        return Err(whole.why.unwrap_or(StoreError::Down));
    }
    // Mostly all agree, and everything stays where it is.
    if whole.refused || abandoned || whole.why.is_some() {
        for question in questions {
            if let QuestionState::Answered(Ok(answers)) = &question.state {
                let charged = answers.reservations(&question.checks(checks));
                whole.charged.extend(charged);
            }
        }
    }
    Ok(whole)
}

impl CombinedAnswer {
    /// The answers in the order of the limits, each with its own node's instant.
    fn answers(self, checks: &[Check<'_>], questions: &[SlotQuestion]) -> Answers {
        let mut all = Answers::unknown(checks, Decider::Open, UnknownCause::Away);
        all.by = Decider::Redis;
        for question in questions {
            if let QuestionState::Answered(Ok(answers)) = &question.state {
                all.at = all.at.max(answers.at);
                all.replace(answers);
            }
        }
        let charged = if self.refused {
            Vec::new()
        } else {
            self.charged
        };
        all.outage = self.why.map(|why| Box::new(PartialOutage { charged, why }));
        all
    }
}
