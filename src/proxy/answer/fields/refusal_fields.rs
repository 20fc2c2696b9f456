//! The fields of a limit's refusals, learned from the first of them: later ones differ in a few values only.
//!
//! To copy ten fields and to overwrite their values takes a quarter of the instructions of hashing their names and
//! inserting them.

use crate::clock::Timestamp;
use crate::limit::Limit;
use crate::limit::verdict::Decision;
use crate::proxy::answer::fields::{
    RATELIMIT, RETRY_AFTER_MS, X_LIMIT, X_REMAINING, X_REQUEST_ID, X_RESET, reported_limit,
    seconds, shown, standing,
};
use crate::proxy::answer::header_value::usual_number;
use crate::snapshot::ResetForm;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use std::cell::RefCell;
use std::sync::Arc;

/// The number of cached values of `RateLimit`, one for each second of a minute: a power of two.
const REMEMBERED: usize = 64;

/// The facts in which two refusals differ, if one limit of a route refuses alone and all the route's limits apply.
#[derive(Debug, Clone, Copy)]
pub struct RefusalValues<'a, 'l> {
    /// The request's id.
    pub request_id: &'a HeaderValue,
    /// The time after which the client may retry, in microseconds.
    pub wait: u64,
    /// The same in milliseconds.
    pub millis: &'a HeaderValue,
    /// The limits that apply.
    pub limits: &'a [&'l Arc<Limit>],
    /// The store's answer.
    pub decision: &'a Decision,
    /// The meaning of `X-RateLimit-Reset`.
    pub reset: ResetForm,
    /// The wall clock.
    pub now: Timestamp,
}

/// The fields of a refusal, without the values that differ.
#[derive(Debug)]
pub struct RefusalFields {
    pattern: HeaderMap,
    /// The source of each value, in the order of the fields.
    values: Box<[FieldSource]>,
    /// Cached values of `RateLimit`, each at the place of its second, if one limit applies: most refusals leave no
    /// units, so that they differ only in the second of their reset.
    standings: RefCell<Vec<RateLimitValue>>,
}

/// A value of `RateLimit`, and the numbers in it.
#[derive(Debug, Clone)]
struct RateLimitValue {
    left: u64,
    reset: u64,
    value: HeaderValue,
}

/// The source of a field's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FieldSource {
    Pattern,
    RetryAfter,
    RetryAfterMillis,
    RequestId,
    Standing,
    Quota,
    Remaining,
    Reset,
}

impl FieldSource {
    fn of(name: &HeaderName) -> Self {
        match name {
            name if *name == header::RETRY_AFTER => Self::RetryAfter,
            name if *name == RETRY_AFTER_MS => Self::RetryAfterMillis,
            name if *name == X_REQUEST_ID => Self::RequestId,
            name if *name == RATELIMIT => Self::Standing,
            name if *name == X_LIMIT => Self::Quota,
            name if *name == X_REMAINING => Self::Remaining,
            name if *name == X_RESET => Self::Reset,
            _ => Self::Pattern,
        }
    }
}

impl RefusalFields {
    /// The fields of refusals like the one with `fields`, each of them once.
    #[must_use]
    pub fn like(fields: &HeaderMap) -> Self {
        let mut pattern = fields.clone();
        let values: Box<[_]> = fields.keys().map(FieldSource::of).collect();
        for (source, value) in values.iter().zip(pattern.values_mut()) {
            if *source != FieldSource::Pattern {
                // A kept value would keep the whole block from which it was cut.
                *value = HeaderValue::from_static("");
            }
        }
        Self {
            pattern,
            values,
            standings: RefCell::default(),
        }
    }

    /// The fields of one refusal.
    #[must_use]
    pub fn with(&self, of: &RefusalValues<'_, '_>) -> HeaderMap {
        let mut fields = self.pattern.clone();
        let reported = reported_limit(of.limits, of.decision);
        for (source, value) in self.values.iter().zip(fields.values_mut()) {
            let written = match source {
                FieldSource::Pattern => None,
                FieldSource::RequestId => Some(of.request_id.clone()),
                FieldSource::RetryAfter => Some(usual_number(seconds(of.wait))),
                FieldSource::RetryAfterMillis => Some(of.millis.clone()),
                FieldSource::Standing => self.standing(of),
                FieldSource::Quota => reported.map(|(limit, _)| usual_number(limit.quota)),
                FieldSource::Remaining => {
                    reported.map(|(limit, verdict)| usual_number(shown(limit, verdict)))
                }
                FieldSource::Reset => reported
                    .map(|(_, verdict)| usual_number(super::reset_at(verdict, of.reset, of.now))),
            };
            if let Some(written) = written {
                *value = written;
            }
        }
        fields
    }

    /// The value of `RateLimit`.
    fn standing(&self, of: &RefusalValues<'_, '_>) -> Option<HeaderValue> {
        let written = || standing(of.limits, &of.decision.verdicts);
        let ([limit], [verdict]) = (of.limits, &of.decision.verdicts[..]) else {
            return written();
        };
        let (left, reset) = (shown(limit, verdict), seconds(verdict.reset));
        let mut standings = self.standings.borrow_mut();
        if standings.is_empty() {
            let value = HeaderValue::from_static("");
            let none = RateLimitValue { left, reset, value };
            standings.resize(REMEMBERED, none);
        }
        let last = standings.len() - 1;
        let held = &mut standings[usize::try_from(reset).unwrap_or(0) & last];
        if (held.left, held.reset) != (left, reset) || held.value.is_empty() {
            // A separate allocation: a value that is cut from a block would keep the whole block.
            let value = Bytes::copy_from_slice(written()?.as_bytes());
            let value = HeaderValue::from_maybe_shared(value).ok()?;
            *held = RateLimitValue { left, reset, value };
        }
        Some(held.value.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{KeyCase, KeyTemplate, MissingKey};
    use crate::limit::fixed_window::FixedWindow;
    use crate::limit::rate::Rate;
    use crate::limit::verdict::{Verdict, VerdictOutcome, Wait};
    use crate::limit::{Policy, Rule};
    use crate::proxy::answer::fields::millis;
    use crate::proxy::answer::fields::policy;
    use crate::proxy::answer::fields::retry_after;
    use crate::proxy::answer::fields::set;
    use crate::proxy::answer::fields::stamp;
    use crate::proxy::answer::header_value::number;
    use crate::snapshot::{FieldStyle, LimitFields};
    use proptest::collection::vec;
    use proptest::prelude::*;
    use std::num::NonZeroU64;

    fn limit(number: usize, count: u64) -> Arc<Limit> {
        let by = KeyTemplate {
            parts: Vec::new(),
            missing: MissingKey::Shared,
            unknown: None,
            case: KeyCase::Sensitive,
        };
        let rate = Rate {
            count: NonZeroU64::new(count).unwrap(),
            period: NonZeroU64::new(60_000_000).unwrap(),
        };
        let rule = Rule::FixedWindow(FixedWindow::new(rate));
        let policy = Policy::new(format!("limit-{number}").as_str().into(), by, rate);
        Arc::new(Limit::new(policy, rule))
    }

    /// One refusal: its wait, its id, and each limit's units and time. The refusing limit is the same in all.
    fn refusal(by: usize, limits: usize) -> impl Strategy<Value = (u64, String, Decision)> {
        // Zero units left is common, and some resets share a place in the cache.
        let left = prop_oneof![Just(0), 0_u64..2_000];
        let reset = prop_oneof![
            0_u64..2_000_000,
            64_000_000_u64..66_000_000,
            0_u64..90_000_000
        ];
        let verdicts = vec((left, reset), limits);
        (1_u64..90_000_000, "[a-z0-9-]{1,36}", verdicts).prop_map(move |(wait, id, numbers)| {
            let verdicts = numbers.into_iter().enumerate();
            let verdicts = verdicts.map(|(at, (remaining, reset))| {
                let outcome = if at == by {
                    VerdictOutcome::Refuse(Wait::Micros(wait))
                } else {
                    VerdictOutcome::Admit { delay: 0 }
                };
                Verdict {
                    outcome,
                    remaining,
                    reset,
                }
            });
            let decision = Decision::of(Timestamp::from_micros(0), verdicts.collect());
            (wait, id, decision)
        })
    }

    fn several_refusals() -> impl Strategy<Value = (Vec<u64>, Vec<(u64, String, Decision)>)> {
        (vec(1_u64..1_000, 1..4), any::<prop::sample::Index>()).prop_flat_map(|(quotas, by)| {
            let (by, count) = (by.index(quotas.len()), quotas.len());
            (Just(quotas), vec(refusal(by, count), 2..12))
        })
    }

    proptest! {
        #[test]
        fn a_later_refusal_has_the_fields_that_it_would_have_as_the_first(
            (quotas, refusals) in several_refusals(),
            style in prop::sample::select(vec![FieldStyle::Both, FieldStyle::Standard, FieldStyle::Legacy, FieldStyle::None]),
            reset in prop::sample::select(vec![ResetForm::Unix, ResetForm::Seconds]),
            now in 0_u64..2_000_000_000_000_000,
        ) {
            let form = LimitFields { style, reset };
            let limits: Vec<_> = quotas.iter().enumerate().map(|(number, count)| limit(number, *count)).collect();
            let (limits, now) = (limits.iter().collect::<Vec<_>>(), Timestamp::from_micros(now));
            let policy = policy(limits.iter().copied());
            let written = |(wait, id, decision): &(u64, String, Decision)| {
                let mut fields = HeaderMap::new();
                set(&mut fields, header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
                retry_after(&mut fields, *wait);
                set(&mut fields, X_REQUEST_ID, HeaderValue::try_from(id).unwrap());
                stamp(&mut fields, form, &limits, decision, policy.as_ref(), now);
                fields
            };
            let learnt = RefusalFields::like(&written(&refusals[0]));
            for refusal @ (wait, id, decision) in &refusals[1..] {
                let values = RefusalValues {
                    request_id: &HeaderValue::try_from(id).unwrap(),
                    wait: *wait,
                    millis: &number(millis(*wait)),
                    limits: &limits,
                    decision,
                    reset,
                    now,
                };
                let found: Vec<_> = learnt.with(&values).into_iter().collect();
                let expected: Vec<_> = written(refusal).into_iter().collect();
                prop_assert_eq!(found, expected);
            }
        }
    }
}
