//! The content of the gateway's own answers: a problem (RFC 9457), and its sentence.

use crate::admission::RefusalCause;
use crate::limit::Limit;
use crate::limit::verdict::Wait;
use crate::proxy::answer::fields;
use crate::proxy::answer::reply::ProblemDetails;
use crate::proxy::error::ProxyError;
use crate::upstream::ConnectError;
use crate::upstream::failure::UpstreamError;
use bytes::{BufMut, Bytes};
use http::StatusCode;
use std::io::Write as _;

/// The problem types that the RateLimit draft registers.
const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";
const REDUCED_CAPACITY: &str =
    "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";
/// The beginning of a refusal's body.
const TOO_MANY: &[u8] = br#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Too many requests","status":"#;
/// The usual length of a body.
const ROOM: usize = 448;

/// The words between a refusal's reason and its wait.
pub(super) const TRY_AGAIN: &[u8] = b". Try again in ";
/// The text before the milliseconds of a wait.
pub(super) const MILLIS: &[u8] = br#","retry_after_ms":"#;

/// Writes a refusal up to the quota of its limit.
pub(super) fn write_beginning(body: &mut Vec<u8>, limit: &Limit, status: StatusCode) {
    body.extend_from_slice(TOO_MANY);
    write_number(body, u64::from(status.as_u16()));
    body.extend_from_slice(br#","detail":""#);
    write_reason(body, limit, br#"\""#);
}

/// Writes the part after a refusal's sentence: its limit's rate, if that is one of several, and the refusing policies.
pub(super) fn write_violated(body: &mut Vec<u8>, limit: &Limit, policies: &[impl AsRef<[u8]>]) {
    body.push(b'"');
    // Each of several rates is a policy with its own name; the limit's name is written in addition.
    if let Some(window) = &limit.window {
        body.extend_from_slice(br#","limit":""#);
        body.extend_from_slice(limit.name.as_bytes());
        body.extend_from_slice(br#"","window":""#);
        body.extend_from_slice(window.as_bytes());
        body.push(b'"');
    }
    write_policies(body, policies);
}

/// Writes the refusing policies as a list; nothing if there are none.
fn write_policies(body: &mut Vec<u8>, policies: &[impl AsRef<[u8]>]) {
    for (index, name) in policies.iter().enumerate() {
        let before: &[u8] = match index {
            0 => br#","violated-policies":[""#,
            _ => br#"",""#,
        };
        body.extend_from_slice(before);
        body.extend_from_slice(name.as_ref());
    }
    if !policies.is_empty() {
        body.extend_from_slice(br#""]"#);
    }
}

/// Writes the request's id, and the end of the body.
pub(super) fn write_end(body: &mut impl BufMut, request_id: &[u8]) {
    body.put_slice(br#","request_id":""#);
    write_id(body, request_id);
    body.put_slice(b"\"}\n");
}

/// The answer as a problem document.
pub(super) fn problem(details: &ProblemDetails<'_, '_>) -> Bytes {
    let is_refusal = matches!(
        details.error,
        ProxyError::Refused(RefusalCause::Limited { .. })
    );
    if let (true, Some(text), Some(wait)) = (is_refusal, details.prepared, details.wait) {
        return text.body(wait, details.request_id.as_bytes()).text;
    }
    Bytes::from(written(details))
}

fn written(details: &ProblemDetails<'_, '_>) -> Vec<u8> {
    let ProblemDetails {
        error,
        violated,
        wait,
        request_id,
        ..
    } = details;
    let status = error.status();
    let mut body = Vec::with_capacity(ROOM);
    // Names of limits and fields are tokens: only the text for people needs escaping below.
    if let (ProxyError::Refused(RefusalCause::Limited { .. }), Some(limit)) =
        (error, violated.named)
    {
        write_beginning(&mut body, limit, status);
        write_chance(&mut body, *wait);
        write_violated(&mut body, limit, &violated.all);
    } else {
        let (kind, title) = kind_and_title(error);
        let detail = serde_json::Value::from(detail(details));
        // Writing into a vector cannot fail.
        let _ = write!(
            body,
            r#"{{"type":"{kind}","title":"{title}","status":{},"detail":{detail}"#,
            status.as_u16()
        );
        write_policies(&mut body, &violated.all);
    }
    if let Some(wait) = wait {
        body.extend_from_slice(MILLIS);
        write_number(&mut body, fields::millis(*wait));
    }
    if let ProxyError::Refused(RefusalCause::Limited {
        wait: Wait::Never, ..
    }) = error
    {
        body.extend_from_slice(br#","retry_after_ms":null"#);
    }
    write_end(&mut body, request_id.as_bytes());
    body
}

/// Writes an id: a trusted peer's may have any visible character, but hardly any has one to escape.
fn write_id(out: &mut impl BufMut, id: &[u8]) {
    let mut rest = id;
    while let Some(place) = memchr::memchr2(b'"', b'\\', rest) {
        out.put_slice(&rest[..place]);
        out.put_slice(&[b'\\', rest[place]]);
        rest = &rest[place + 1..];
    }
    out.put_slice(rest);
}

fn kind_and_title(error: &ProxyError) -> (&'static str, &'static str) {
    match (error, error.status()) {
        (ProxyError::Refused(RefusalCause::Limited { .. }), _)
        | (_, StatusCode::TOO_MANY_REQUESTS) => (QUOTA_EXCEEDED, "Too many requests"),
        (_, StatusCode::SERVICE_UNAVAILABLE) => (REDUCED_CAPACITY, "Service unavailable"),
        (_, status) => ("about:blank", status.canonical_reason().unwrap_or("Error")),
    }
}

/// The answer in two or three words.
pub(super) fn title(error: &ProxyError) -> &'static str {
    kind_and_title(error).1
}

/// Writes the refusing limit and its quota, with the name between two of `quote`.
fn write_reason(out: &mut Vec<u8>, limit: &Limit, quote: &[u8]) {
    out.extend_from_slice(b"The limit ");
    out.extend_from_slice(quote);
    out.extend_from_slice(limit.public_name().as_bytes());
    out.extend_from_slice(quote);
    out.extend_from_slice(b" allows ");
    write_quota(out, limit);
}

/// Writes when the request would be admitted, as the end of a sentence.
fn write_chance(out: &mut Vec<u8>, wait: Option<u64>) {
    match wait {
        Some(wait) => {
            out.extend_from_slice(TRY_AGAIN);
            write_duration(out, wait);
            out.push(b'.');
        }
        None => out.extend_from_slice(
            b". This request costs more than the whole limit and can never pass.",
        ),
    }
}

/// The sentence about the error, in the client's words. It never names a server or a host.
pub(in crate::proxy) fn detail(details: &ProblemDetails<'_, '_>) -> String {
    match (details.error, details.violated.named) {
        (ProxyError::Refused(RefusalCause::Limited { .. }), Some(limit)) => {
            let mut text = Vec::with_capacity(ROOM);
            write_reason(&mut text, limit, b"\"");
            write_chance(&mut text, details.wait);
            String::from_utf8(text).unwrap_or_default()
        }
        (ProxyError::Refused(cause), _) => refused(cause),
        (ProxyError::TooManyHeld, _) => {
            "Too many requests are waiting. Try again shortly.".to_owned()
        }
        (ProxyError::Draining, _) => "The gateway is stopping. Try again.".to_owned(),
        (ProxyError::Misdirected, _) => {
            "This connection was made for another host. Open a new one for this host.".to_owned()
        }
        (ProxyError::CertificateRequired, _) => {
            "This needs a client certificate, and the connection was made without one.".to_owned()
        }
        (ProxyError::Dismissed, _) => {
            "The client certificate of this connection is no longer trusted. Open a new connection with another certificate.".to_owned()
        }
        (ProxyError::NoRoute, _) => "No route matches this host, path and method.".to_owned(),
        (ProxyError::Upstream(UpstreamError::Connect(ConnectError::NoServer { .. })), _) => {
            "The upstream has no server at the moment. Try again shortly.".to_owned()
        }
        (
            ProxyError::Upstream(
                UpstreamError::Busy | UpstreamError::Connect(ConnectError::Busy { .. }),
            ),
            _,
        ) => "All servers of the upstream are busy. Try again shortly.".to_owned(),
        (ProxyError::Upstream(UpstreamError::NoneLeft), _) => {
            "No server of the upstream is available. Try again shortly.".to_owned()
        }
        (ProxyError::Upstream(UpstreamError::Connect(_)), _) => {
            "The upstream cannot be reached.".to_owned()
        }
        (ProxyError::Upstream(UpstreamError::Answer(_) | UpstreamError::UnaskedUpgrade(_)), _) => {
            "The upstream gave no valid answer.".to_owned()
        }
        (ProxyError::Upstream(UpstreamError::NoHttp2), _) => {
            "The upstream speaks HTTP/1.1, and gRPC needs HTTP/2: its servers are written h2c:// or https://."
                .to_owned()
        }
        (ProxyError::Upstream(UpstreamError::Timeout(_)), _) => {
            "The upstream did not answer in time.".to_owned()
        }
        (other, _) => sentence(other.to_string()),
    }
}

/// The sentence about a refusal without a wait.
fn refused(cause: &RefusalCause) -> String {
    match cause {
        RefusalCause::MissingKey { part, .. } => match part.claim() {
            Some(claim) => format!("The request needs a token with the claim {claim}."),
            None => format!("The request needs {}.", part.sent()),
        },
        RefusalCause::UnknownKey { part, .. } if part.is_password() => {
            "Unknown user or password.".to_owned()
        }
        RefusalCause::UnknownKey { part, .. } => {
            format!("No group contains the value of {}.", part.sent())
        }
        RefusalCause::BadToken { why, .. } => {
            format!("The token of the request is {}.", why.as_str())
        }
        RefusalCause::KeysUnread => {
            "Tokens cannot be verified at the moment. Try again shortly.".to_owned()
        }
        RefusalCause::AmbiguousKey { part, .. } if part.is_customer() => {
            "The credentials of this request belong to different customers.".to_owned()
        }
        RefusalCause::AmbiguousKey { part, .. } => format!(
            "The request has {} several times, with different values.",
            part.sent()
        ),
        RefusalCause::MalformedKey { part, .. } => {
            format!("The request has {} in a malformed way.", part.sent())
        }
        RefusalCause::StoreDown => {
            "Limits cannot be checked at the moment. Try again shortly.".to_owned()
        }
        RefusalCause::Limited { .. } => sentence(cause.to_string()),
    }
}

/// The words of an error as a sentence.
fn sentence(mut text: String) -> String {
    if let Some(first) = text.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    text + "."
}

fn write_quota(out: &mut Vec<u8>, limit: &Limit) {
    let (count, period) = (limit.rate.count.get(), limit.rate.period.get());
    write_number(out, count);
    out.extend_from_slice(b" request");
    if count != 1 {
        out.push(b's');
    }
    if limit.rule.concurrency().is_some() {
        return out.extend_from_slice(b" at a time");
    }
    out.extend_from_slice(b" per ");
    match limit.months() {
        None => {}
        Some(1) => return out.extend_from_slice(b"month"),
        Some(many) => {
            write_number(out, u64::from(many));
            return out.extend_from_slice(b" months");
        }
    }
    out.extend_from_slice(match period {
        1_000_000 => b"second",
        60_000_000 => b"minute",
        3_600_000_000 => b"hour",
        86_400_000_000 => b"day",
        604_800_000_000 => b"week",
        other => return write_duration(out, other),
    });
}

pub(super) fn write_number(out: &mut impl BufMut, number: u64) {
    out.put_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Seconds with at most three decimals: `0.4 s`, `75 s`.
pub(super) fn write_duration(out: &mut impl BufMut, micros: u64) {
    let millis = micros.div_ceil(1000);
    write_number(out, millis / 1000);
    if !millis.is_multiple_of(1000) {
        // The digits after a 1 keep their leading zeros.
        let mut digits = itoa::Buffer::new();
        let part = &digits.format(1000 + millis % 1000).as_bytes()[1..];
        let end = part.iter().rposition(|digit| *digit != b'0');
        out.put_slice(b".");
        out.put_slice(&part[..=end.unwrap_or(0)]);
    }
    out.put_slice(b" s");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{KeyCase, KeyTemplate, MissingKey};
    use crate::limit::fixed_window::FixedWindow;
    use crate::limit::rate::Rate;
    use crate::limit::{Policy, Rule};
    use crate::proxy::answer::reply::RefusalText;
    use crate::proxy::answer::reply::Violations;
    use http::HeaderValue;
    use std::num::NonZeroU64;
    use std::sync::Arc;

    fn limit(count: u64, period: u64) -> Arc<Limit> {
        let by = KeyTemplate {
            parts: Vec::new(),
            missing: MissingKey::Shared,
            unknown: None,
            case: KeyCase::Sensitive,
        };
        let rate = Rate {
            count: NonZeroU64::new(count).unwrap(),
            period: NonZeroU64::new(period).unwrap(),
        };
        let rule = Rule::FixedWindow(FixedWindow::new(rate));
        Arc::new(Limit::new(Policy::new("per-key".into(), by, rate), rule))
    }

    /// The body of a refusal, read as JSON, and the message of gRPC for the same refusal.
    fn refusal(
        limit: &Arc<Limit>,
        wait: Wait,
        all: &[&'static str],
    ) -> (serde_json::Value, String) {
        let violated = Violations {
            named: Some(limit),
            all: all.iter().copied().collect(),
        };
        let limit = Arc::clone(limit);
        let error = ProxyError::Refused(RefusalCause::Limited {
            limit,
            wait,
            is_blocked: false,
        });
        let details = ProblemDetails {
            wait: error.row().retry_after,
            error: &error,
            violated: &violated,
            prepared: None,
            request_id: &HeaderValue::from_static("an\"id\\"),
            host: None,
        };
        let body = problem(&details);
        if let ([only], Some(named)) = (all, violated.named)
            && **named.policy_name() == **only
        {
            let text = RefusalText::of(named);
            let prepared = ProblemDetails {
                prepared: Some(&text),
                ..details
            };
            assert_eq!(problem(&prepared), body);
        }
        (serde_json::from_slice(&body).unwrap(), detail(&details))
    }

    #[test]
    fn a_refusal_is_json_that_says_what_its_limit_allows() {
        let (body, message) = refusal(
            &limit(10, 60_000_000),
            Wait::Micros(1_250_000),
            &["per-key", "other"],
        );
        let detail = "The limit \"per-key\" allows 10 requests per minute. Try again in 1.25 s.";
        assert_eq!(message, detail);
        let expected = serde_json::json!({
            "type": QUOTA_EXCEEDED,
            "title": "Too many requests",
            "status": 429,
            "detail": detail,
            "violated-policies": ["per-key", "other"],
            "retry_after_ms": 1250,
            "request_id": "an\"id\\",
        });
        assert_eq!(body, expected);
    }

    #[test]
    fn one_of_several_rates_is_named() {
        let several = limit(10, 60_000_000);
        let several = Arc::new(several.edited(|policy| policy.window = Some("10/min".into())));
        let (body, _) = refusal(&several, Wait::Micros(1), &["per-key"]);
        assert_eq!(body["limit"], "per-key");
        assert_eq!(body["window"], "10/min");
        assert_eq!(body["violated-policies"], serde_json::json!(["per-key"]));
    }

    /// The prepared text equals the written one, for any quota and any wait.
    #[test]
    fn a_prepared_refusal_is_the_written_one() {
        let periods = [1_000_000, 7_500_000, 60_000_000, 3_600_000_000];
        for (count, period) in [1, 2, 4_000_000].into_iter().zip(periods) {
            for wait in [1, 999, 1_000_000, 1_050_000, 3_599_900_001, u64::MAX] {
                refusal(&limit(count, period), Wait::Micros(wait), &["per-key"]);
            }
        }
    }

    #[test]
    fn the_longest_prepared_refusal_has_room() {
        let text = RefusalText::of(&limit(10, 60_000_000));
        for length in [0, 1, 36, 1_000, 9_000] {
            let body = text.body(u64::MAX - 1, "\"".repeat(length).as_bytes());
            let millis = u64::MAX.div_ceil(1000);
            assert_eq!(body.millis, millis.to_string());
            let end = format!("{millis},\"request_id\":\"{}\"}}\n", "\\\"".repeat(length));
            assert!(body.text.ends_with(end.as_bytes()));
        }
    }

    #[test]
    fn what_can_never_pass_says_so() {
        let (body, message) = refusal(&limit(1, 7_500_000), Wait::Never, &["per-key"]);
        let detail = "The limit \"per-key\" allows 1 request per 7.5 s. This request costs more than the whole limit \
            and can never pass.";
        assert_eq!(message, detail);
        assert_eq!(body["detail"], detail);
        assert_eq!(body["retry_after_ms"], serde_json::Value::Null);
    }

    #[test]
    fn times_have_three_decimals_at_most() {
        for (micros, text) in [
            (0, "0 s"),
            (1, "0.001 s"),
            (400_000, "0.4 s"),
            (1_050_000, "1.05 s"),
            (75_000_000, "75 s"),
            (3_599_900_001, "3599.901 s"),
        ] {
            let mut out = Vec::new();
            write_duration(&mut out, micros);
            assert_eq!(out, text.as_bytes());
        }
    }
}
