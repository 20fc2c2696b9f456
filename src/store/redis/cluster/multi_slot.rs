//! A request whose limits are in several slots: one call for each slot, made in parallel. If one slot refuses, the
//! charges of the others are given back, and no request waits for that. The admitted number is never too high. For
//! about a round trip, other requests may find slightly fewer units than available.

use crate::limit::Limit;
use crate::limit::verdict::INLINE_LIMITS;
use crate::store::answers::Answers;
use crate::store::check::{Intent, replace_limits};
use crate::store::error::StoreError;
use crate::store::redis::RedisStore;
use crate::store::redis::queue::abandonment::Abandonments;
use crate::store::redis::queue::slot_question::{SlotQuestion, SlotQuestionLimits, combine};
use crate::store::redis::wire::question::DecisionRequest;
use crate::store::redis::wire::slot::CallRoute;
use smallvec::SmallVec;

impl RedisStore {
    /// Checks limits that are in several slots.
    pub(super) async fn ask_slots(
        &self,
        request: DecisionRequest<'_>,
        slots: SmallVec<[SlotQuestionLimits; INLINE_LIMITS]>,
    ) -> Result<Box<Answers>, StoreError> {
        let checks = &replace_limits(request.checks, Limit::with_history)[..];
        let request = DecisionRequest { checks, ..request };
        let questions = slots.into_iter().map(|limits| {
            let slot = limits.slot;
            let home_request = DecisionRequest {
                checks: &limits.checks(checks),
                ..request
            };
            let home = self.router.at(slot);
            let asked = home.and_then(|home| home.node.enqueue(home_request, CallRoute::to(slot)));
            SlotQuestion::new(limits, asked)
        });
        let mut pending = PendingAnswers {
            abandonments: &self.context.abandonments,
            request,
            questions: questions.collect(),
        };
        for question in &mut pending.questions {
            question.conclude(checks).await;
        }
        let questions = std::mem::take(&mut pending.questions);
        let answers = combine(checks, &questions)?;
        if request.intent == Intent::Charge && !answers.admit(checks) {
            for question in &questions {
                self.cancel(&question.charged(checks));
            }
        }
        Ok(answers)
    }
}

/// The wait for the answers. A drop before all have arrived passes them to the abandoned requests.
struct PendingAnswers<'a> {
    abandonments: &'a Abandonments,
    request: DecisionRequest<'a>,
    /// Empty once all answers have arrived.
    questions: Vec<SlotQuestion>,
}

impl Drop for PendingAnswers<'_> {
    fn drop(&mut self) {
        let questions = std::mem::take(&mut self.questions);
        if self.request.intent == Intent::Charge && !questions.is_empty() {
            self.abandonments.push(self.request, questions);
        }
    }
}
