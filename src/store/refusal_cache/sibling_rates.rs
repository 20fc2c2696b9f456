//! The other rates of a list, while one of them refuses: their measurements stay true, since no request is charged by
//! any of the list until then. So a refusal shows the same for all rates, whether cached or not.

use crate::clock::Timestamp;
use crate::limit::rate::{Cost, Span};
use crate::limit::verdict::{Measurement, Repeat, Wait};
use crate::limit::{BlockPhase, Limit, Rule};
use crate::store::answers::{Answers, Evidence, LimitAnswer};
use crate::store::check::Check;
use std::sync::Arc;

/// One of the other rates, measured and not charged.
#[derive(Debug)]
pub(super) struct SiblingRate {
    limit: Arc<Limit>,
    cost: Cost,
    /// The instant of the measurement, by the store's clock.
    at: Timestamp,
    wait: Wait,
    /// The content of the counter, without the request's cost.
    span: Span,
}

/// The other rates in the list of `refused` whose answers show their content.
pub(super) fn sibling_rates(
    refused: &Check<'_>,
    checks: &[Check<'_>],
    answers: &Answers,
) -> Box<[SiblingRate]> {
    if refused.limit.window.is_none() {
        return Box::default();
    }
    let all = checks.iter().zip(&answers.each);
    let others = all.filter(|(check, _)| {
        refused.limit.is_sibling_of(check.limit)
            && check.limit.id != refused.limit.id
            && check.key == refused.key
    });
    others
        .filter_map(|(check, answer)| SiblingRate::of(check, answer))
        .collect()
}

/// Adds the known answers of the other rates, at the time `passed` after their measurement, for those without an
/// answer.
#[cold]
pub(super) fn recall(
    siblings: &[SiblingRate],
    checks: &[Check<'_>],
    passed: u64,
    answers: &mut [LimitAnswer],
) {
    for (check, answer) in checks.iter().zip(answers) {
        let known = siblings
            .iter()
            .find(|one| Arc::ptr_eq(&one.limit, check.limit));
        let Some(one) = known.filter(|_| !answer.is_known()) else {
            continue;
        };
        let at = one.at.plus(passed);
        if let Some(measured) = one.measured_at(at, passed, check.cost) {
            (answer.at, answer.evidence) = (at, Evidence::Measured(measured));
        }
    }
}

impl SiblingRate {
    fn of(check: &Check<'_>, answer: &LimitAnswer) -> Option<Self> {
        let measured = answer.measured()?;
        let is_plain = measured.granted.is_none() && measured.repeat == Repeat::No;
        let is_blocked = measured.block != BlockPhase::No;
        if measured.spoilt || !is_plain || is_blocked || measured.drains.is_some() {
            return None;
        }
        let span = match measured.wait {
            Wait::Micros(0) => uncharged(&check.limit.rule, measured.span, check.cost)?,
            _ => measured.span,
        };
        Some(Self {
            limit: Arc::clone(check.limit),
            cost: check.cost,
            at: answer.at,
            wait: measured.wait,
            span,
        })
    }

    /// The measurement for a request of `cost` at `at`.
    fn measured_at(&self, at: Timestamp, passed: u64, cost: Cost) -> Option<Measurement> {
        if let Some(state) = self.limit.rule.state_of(self.at, self.span) {
            return Some(self.limit.check(Some(&state), at, cost).0);
        }
        (cost == self.cost).then(|| self.at_least(passed))
    }

    /// The measurement of a log or of parts of a window, `passed` later. Units that have left since are counted only if
    /// the wait shows it: the shown remainder is too small rather than too large.
    fn at_least(&self, passed: u64) -> Measurement {
        let mut span = Span {
            whole: self.span.whole.saturating_sub(passed),
            ..self.span
        };
        let wait = match self.wait {
            Wait::Never => Wait::Never,
            Wait::Micros(wait) => Wait::Micros(wait.saturating_sub(passed)),
        };
        if wait == Wait::Micros(0) {
            let most = self.limit.rule.most();
            span.part = span.part.saturating_add(self.cost.units()).min(most);
        }
        Measurement::refused(wait, span)
    }
}

/// The content of a counter that admitted `cost`, without that cost.
fn uncharged(rule: &Rule, span: Span, cost: Cost) -> Option<Span> {
    match rule.bucket() {
        Some(bucket) => {
            let charge = bucket.interval.times(cost.units());
            bucket.interval.sub(span, charge)
        }
        None => Some(Span {
            part: span.part.checked_sub(cost.units())?,
            ..span
        }),
    }
}
