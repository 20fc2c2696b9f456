//! A request of which one limit cannot be counted: it is asked again without that one, for nothing was charged; the others
//! are decided where they live, and `on_down` answers for the one alone.

use super::RedisStore;
use super::abandonment::tentative;
use crate::limit::verdict::INLINE_LIMITS;
use crate::store::answers::{Answers, PartialOutage};
use crate::store::check::Check;
use crate::store::error::StoreError;
use crate::store::shadow::Charges;
use smallvec::SmallVec;
use std::sync::Arc;
use std::time::Instant;
use tokio::time::timeout_at;

/// A question that Redis did not answer, for one of its limits.
pub(in crate::store) struct FailedAttempt {
    /// Another limit refused the request already.
    pub(in crate::store) refused: bool,
    /// When it was asked.
    pub(in crate::store) asked: Instant,
    pub(in crate::store) why: StoreError,
}

type Few<T> = SmallVec<[T; INLINE_LIMITS]>;

impl RedisStore {
    /// Decides of `checks`, after an attempt at all of them, those that can be decided: each limit that cannot falls out of
    /// the question once. All of it within the settings' `timeout`.
    ///
    /// # Errors
    /// Where none can be decided, a limit that cannot be `is_shut` meanwhile, or something may have been charged.
    pub(in crate::store) async fn measure_without(
        &self,
        checks: &[Check<'_>],
        attempt: FailedAttempt,
        is_shut: impl Fn(&Check<'_>) -> bool,
    ) -> Result<Answers, StoreError> {
        let FailedAttempt {
            refused,
            asked,
            why,
        } = attempt;
        let deadline = asked + self.context.timeout;
        let mut out: Few<Arc<str>> = Few::new();
        let mut last = why.clone();
        loop {
            match uncounted(&last) {
                // Its rates go together.
                Some(name) if !out.contains(name) => out.push(Arc::clone(name)),
                _ => return Err(last),
            }
            let is_out = |check: &Check<'_>| out.contains(&check.limit.name);
            // A request that is not to pass anyhow charges no limit.
            if checks.iter().any(|check| is_out(check) && is_shut(check)) {
                return Err(last);
            }
            let rest = checks.iter().copied().filter(|check| !is_out(check));
            let rest: Few<Check<'_>> = rest.collect();
            if rest.is_empty() {
                return Err(why);
            }
            let after = self.context.timeout;
            let answers = timeout_at(deadline.into(), self.measure(&rest, refused)).await;
            match answers.unwrap_or(Err(StoreError::Timeout { after })) {
                Ok(answers) => {
                    let partial = PartialAnswers {
                        checks: &rest,
                        answers,
                        refused,
                    };
                    return Ok(partial.among(checks, why));
                }
                Err(error) => last = error,
            }
        }
    }
}

/// The limit that could not be read while nothing was written yet. What is refused for another reason may have been
/// refused at a write, with another limit's before it.
fn uncounted(error: &StoreError) -> Option<&Arc<str>> {
    match error {
        StoreError::Answer { limit, reason } if reason.contains("WRONGTYPE") => Some(limit),
        StoreError::Clock { limit } => Some(limit),
        _ => None,
    }
}

/// What was measured of some limits of a request.
struct PartialAnswers<'a> {
    checks: &'a [Check<'a>],
    answers: Answers,
    refused: bool,
}

impl PartialAnswers<'_> {
    /// As answers to all of `checks`. The other limits could not be decided, and `why`.
    fn among(self, checks: &[Check<'_>], why: StoreError) -> Answers {
        let Self {
            checks: rest,
            mut answers,
            refused,
        } = self;
        let is_asked =
            |check: &Check<'_>| rest.iter().any(|other| other.limit.id == check.limit.id);
        let asked: Few<usize> = (0..checks.len())
            .filter(|index| is_asked(&checks[*index]))
            .collect();
        let gap = answers.gap.take();
        let mut gap = gap.unwrap_or_else(|| {
            let charges = Charges::of(rest, &answers.measured, refused);
            let measured = rest.iter().zip(&answers.measured).enumerate();
            let charged = measured.filter(|(index, _)| charges.has(*index));
            let charged = charged.filter_map(|(index, (check, measured))| {
                tentative(check, answers.instant(index), *measured)
            });
            Box::new(PartialOutage {
                unknown: Vec::new(),
                charged: charged.collect(),
                refused: !Charges::of(rest, &answers.measured, false).admitted,
                why: why.clone(),
            })
        });
        // Some of the rest may be away as well.
        let away = gap.unknown.iter().filter_map(|index| asked.get(*index));
        let poisoned = (0..checks.len()).filter(|index| !asked.contains(index));
        let mut unknown: Vec<usize> = away.copied().chain(poisoned).collect();
        unknown.sort_unstable();
        gap.unknown = unknown;
        gap.why = why;
        let mut whole = answers.among(checks, |index| asked.contains(&index));
        // The fallback that answers for the others has a clock of its own.
        whole.instants = (0..checks.len())
            .map(|index| whole.instant(index))
            .collect();
        whole.gap = Some(gap);
        whole
    }
}
