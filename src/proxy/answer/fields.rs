//! The fields about limits on a response: the draft's, the older ones, and the time to retry.
//!
//! `RateLimit` and `RateLimit-Policy` follow draft-ietf-httpapi-ratelimit-headers-11: lists of strings. `q` is the
//! limit's quota, `w` the seconds in which the quota returns, `r` the units left, `t` the seconds until all units are
//! available again. A limit on requests in flight has the unit `concurrent-requests` and no times. It is in none of the
//! older fields, which are about rates.

mod merge;
mod refusal_fields;

pub use refusal_fields::{RefusalFields, RefusalValues};

use crate::clock::Timestamp;
use crate::limit::Limit;
use crate::limit::verdict::{Decision, Ruling, Verdict};
use crate::proxy::answer::header_value;
use crate::proxy::answer::header_value::{number, usual_number};
use crate::snapshot::{FieldStyle, LimitFields, ResetForm};
use crate::store::StoreDecision;
use bytes::BytesMut;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use merge::UpstreamFields;
use std::fmt::Write as _;
use std::sync::Arc;

/// The field with the request's id.
pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const X_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");
/// The greatest number of `RateLimit` and its policy, whose numbers have 15 digits at most (RFC 9651, section 3.3.1).
const MOST_OF_FIELD: u64 = 999_999_999_999_999;
/// The fields that a page of another origin may read, if the upstream exposes any at all.
const EXPOSED: &str = "RateLimit, RateLimit-Policy, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, Retry-After, retry-after-ms, Server-Timing, X-Request-Id";

/// The `RateLimit-Policy` of these limits, computed when the file is read.
#[must_use]
pub fn policy<'a>(limits: impl Iterator<Item = &'a Arc<Limit>>) -> Option<HeaderValue> {
    let mut text = BytesMut::new();
    for limit in limits {
        let separator = if text.is_empty() { "" } else { ", " };
        let (name, quota) = (limit.policy_name(), limit.quota.min(MOST_OF_FIELD));
        let _ = write!(text, "{separator}\"{name}\";q={quota}");
        let _ = if has_window(limit) {
            write!(text, ";w={}", seconds(limit.refill))
        } else {
            write!(text, ";qu=\"concurrent-requests\"")
        };
    }
    let value = HeaderValue::from_maybe_shared(text.freeze()).ok();
    value.filter(|value| !value.is_empty())
}

/// Writes the fields of the limits. `policy` is the prepared field for exactly these limits, `now` the wall clock.
pub fn stamp(
    fields: &mut HeaderMap,
    form: LimitFields,
    limits: &[&Arc<Limit>],
    decision: &Decision,
    policy: Option<&HeaderValue>,
    now: Timestamp,
) {
    let style = form.style;
    // The names are searched before our fields are added. A pass over them is cheap, since most differ in length;
    // looking up fields that most responses lack would cost more.
    let (mut is_exposed, mut theirs) = (false, UpstreamFields::default());
    for name in fields.keys() {
        match name.as_str().len() {
            9 => theirs.standard |= *name == RATELIMIT,
            16 => theirs.standard |= *name == RATELIMIT_POLICY,
            21 => theirs.legacy |= *name == X_REMAINING,
            27 => is_exposed |= *name == header::ACCESS_CONTROL_ALLOW_ORIGIN,
            _ => {}
        }
    }
    if matches!(style, FieldStyle::Both | FieldStyle::Standard) {
        if let Some(policy) = policy {
            merge::lead(fields, RATELIMIT_POLICY, policy.clone(), theirs);
        }
        if let Some(value) = standing(limits, &decision.verdicts) {
            merge::lead(fields, RATELIMIT, value, theirs);
        }
    }
    if matches!(style, FieldStyle::Both | FieldStyle::Legacy)
        && let Some((limit, verdict)) = reported_limit(limits, decision)
        && !(theirs.legacy && merge::is_tighter(fields, limit, verdict.remaining))
    {
        set(fields, X_LIMIT, usual_number(limit.quota));
        set(fields, X_REMAINING, usual_number(shown(limit, verdict)));
        set(
            fields,
            X_RESET,
            usual_number(reset_at(verdict, form.reset, now)),
        );
    }
    if is_exposed && style != FieldStyle::None {
        merge::expose(fields, EXPOSED);
    }
}

/// Writes the known numbers if no store counted some of the limits. Those limits get no number, since no number is
/// better than a guessed one.
#[cold]
pub fn stamp_known(
    fields: &mut HeaderMap,
    form: LimitFields,
    limits: &[&Arc<Limit>],
    decided: &StoreDecision,
    now: Timestamp,
) {
    let is_known = |limit: &Limit| decided.is_known(limit);
    stamp_some(fields, form, limits, &decided.decision, is_known, now);
}

/// Writes the known numbers of the limits that the file shows. A hidden limit that refuses is shown alone.
#[cold]
pub fn stamp_shown(
    fields: &mut HeaderMap,
    form: LimitFields,
    limits: &[&Arc<Limit>],
    decision: &Decision,
    is_known: impl Fn(&Limit) -> bool,
    now: Timestamp,
) {
    let hidden = match decision.ruling {
        Ruling::Refuse { by, .. } => limits.get(by).filter(|limit| !limit.answers.is_shown),
        _ => None,
    };
    let is_shown = |limit: &Limit| match hidden {
        Some(hidden) => std::ptr::eq(&raw const ***hidden, limit),
        None => limit.answers.is_shown,
    };
    let is_written = |limit: &Limit| is_shown(limit) && is_known(limit);
    stamp_some(fields, form, limits, decision, is_written, now);
}

/// Writes the numbers of the limits that `is_written` chooses.
fn stamp_some(
    fields: &mut HeaderMap,
    form: LimitFields,
    limits: &[&Arc<Limit>],
    decision: &Decision,
    is_written: impl Fn(&Limit) -> bool,
    now: Timestamp,
) {
    let mut ruling = decision.ruling;
    if let Ruling::Refuse { by, .. } = &mut ruling {
        let is_written = |limit: &&&Arc<Limit>| is_written(limit);
        *by = match limits.get(*by).filter(is_written) {
            Some(_) => limits.iter().take(*by).filter(is_written).count(),
            // The refusing limit is not among the limits with numbers.
            None => usize::MAX,
        };
    }
    let verdicts = limits.iter().zip(&decision.verdicts);
    let written = verdicts.filter(|(limit, _)| is_written(limit));
    let (limits, verdicts): (Vec<_>, _) =
        written.map(|(limit, verdict)| (*limit, *verdict)).unzip();
    let decision = Decision {
        verdicts,
        ruling,
        at: decision.at,
    };
    let policy = policy(limits.iter().copied());
    stamp(fields, form, &limits, &decision, policy.as_ref(), now);
}

/// Writes the time to retry. `Retry-After` has whole seconds, rounded up and never 0, since every client obeys it; the
/// milliseconds are for clients that read them.
pub fn retry_after(fields: &mut HeaderMap, micros: u64) {
    set(fields, header::RETRY_AFTER, usual_number(seconds(micros)));
    set(fields, RETRY_AFTER_MS, number(millis(micros)));
}

/// The milliseconds of a wait, rounded up and never 0, for programs.
pub(in crate::proxy) fn millis(micros: u64) -> u64 {
    micros.div_ceil(1000).max(1)
}

/// The second of the wall clock at which all units are available again, or the seconds until then.
fn reset_at(verdict: &Verdict, form: ResetForm, now: Timestamp) -> u64 {
    match form {
        ResetForm::Unix => now.plus(verdict.reset).micros().div_ceil(1_000_000),
        ResetForm::Seconds => seconds(verdict.reset),
    }
}

/// Writes the length of the response's delay (Server-Timing, milliseconds).
#[cold]
#[inline(never)]
pub fn delayed(fields: &mut HeaderMap, limit: &str, micros: u64) {
    let millis = micros.div_ceil(1000);
    if let Ok(value) = HeaderValue::try_from(format!("limit;desc=\"{limit}\";dur={millis}")) {
        fields.append(SERVER_TIMING, value);
    }
}

/// Writes one field. The insertion stays one function: copied to each of a refusal's ten places, it would take a tenth
/// of a small instruction cache.
#[inline(never)]
pub(in crate::proxy) fn set(fields: &mut HeaderMap, name: HeaderName, value: HeaderValue) {
    fields.insert(name, value);
}

fn standing(limits: &[&Arc<Limit>], verdicts: &[Verdict]) -> Option<HeaderValue> {
    let write = |text: &mut BytesMut| {
        let mut digits = itoa::Buffer::new();
        for (limit, verdict) in limits.iter().zip(verdicts) {
            let (left, reset) = (shown(limit, verdict), seconds(verdict.reset));
            text.extend_from_slice(if text.is_empty() { b"\"" } else { b", \"" });
            text.extend_from_slice(limit.policy_name().as_bytes());
            text.extend_from_slice(b"\";r=");
            text.extend_from_slice(digits.format(left.min(MOST_OF_FIELD)).as_bytes());
            if has_window(limit) {
                text.extend_from_slice(b";t=");
                text.extend_from_slice(digits.format(reset).as_bytes());
            }
        }
    };
    header_value::written(write).filter(|value| !value.is_empty())
}

/// The limit for the older fields, which have room for one. On a refusal it is the named limit, so that the fields
/// agree with `Retry-After`, else the tightest. A limit without a window is in none of these fields, and if it refuses,
/// no other limit is in them either.
fn reported_limit<'a>(
    limits: &[&'a Arc<Limit>],
    decision: &'a Decision,
) -> Option<(&'a Arc<Limit>, &'a Verdict)> {
    match decision.ruling {
        Ruling::Refuse { by, .. } => {
            let limit = limits.get(by).filter(|limit| has_window(limit))?;
            Some((*limit, decision.verdicts.get(by)?))
        }
        _ => tightest(limits, &decision.verdicts),
    }
}

/// The limit with the smallest fraction of its quota left. Of several, the first in the file is taken.
fn tightest<'a>(
    limits: &[&'a Arc<Limit>],
    verdicts: &'a [Verdict],
) -> Option<(&'a Arc<Limit>, &'a Verdict)> {
    let all = limits.iter().copied().zip(verdicts);
    let timed = all.filter(|(limit, _)| has_window(limit));
    timed.reduce(|best, next| {
        // The fractions left / capacity are compared without dividing.
        let left = |of: (&Arc<Limit>, &Verdict), by: &Arc<Limit>| {
            u128::from(of.1.remaining) * u128::from(by.quota)
        };
        let (theirs, ours) = (left(next, best.0), left(best, next.0));
        if (theirs, next.0.place) < (ours, best.0.place) {
            next
        } else {
            best
        }
    })
}

/// Does the limit count units over a time? A limit on requests in flight does not.
fn has_window(limit: &Limit) -> bool {
    limit.rule.concurrency().is_none()
}

/// The units left of the quota, capped at the quota.
fn shown(limit: &Limit, verdict: &Verdict) -> u64 {
    verdict.remaining.min(limit.quota)
}

/// Whole seconds, rounded up, at least one.
pub(in crate::proxy) fn seconds(micros: u64) -> u64 {
    micros.div_ceil(1_000_000).max(1)
}
