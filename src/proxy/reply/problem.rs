//! The content of the gateway's own answers: a problem (RFC 9457), and its sentence.

use super::ProblemDetails;
use crate::admission::RefusalCause;
use crate::key::KeyPart;
use crate::limit::Limit;
use crate::limit::verdict::Wait;
use crate::proxy::error::ProxyError;
use crate::upstream::failure::UpstreamError;
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

/// Writes the policies that refuse, as a list; nothing where none does.
fn write_violated(body: &mut Vec<u8>, policies: &[impl AsRef<[u8]>]) {
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

/// The answer as a problem document.
pub(super) fn problem(details: &ProblemDetails<'_, '_>) -> Vec<u8> {
    let ProblemDetails {
        error,
        violated,
        wait,
        request_id,
    } = details;
    let status = error.status();
    let mut body = Vec::with_capacity(ROOM);
    // Names of limits and fields are tokens: nothing below needs escaping except text for people.
    if let (ProxyError::Refused(RefusalCause::Limited { .. }), Some(limit)) =
        (error, violated.named)
    {
        body.extend_from_slice(TOO_MANY);
        write_number(&mut body, u64::from(status.as_u16()));
        body.extend_from_slice(br#","detail":""#);
        write_refusal(&mut body, limit, *wait, br#"\""#);
        body.push(b'"');
        // Each of several rates is a policy with a name of its own; the limit's name stands beside it.
        if let Some(window) = &limit.window {
            body.extend_from_slice(br#","limit":""#);
            body.extend_from_slice(limit.name.as_bytes());
            body.extend_from_slice(br#"","window":""#);
            body.extend_from_slice(window.as_bytes());
            body.push(b'"');
        }
    } else {
        let (kind, title) = kind_and_title(error);
        let detail = serde_json::Value::from(detail(details));
        // Writing into a vector cannot fail.
        let _ = write!(
            body,
            r#"{{"type":"{kind}","title":"{title}","status":{},"detail":{detail}"#,
            status.as_u16()
        );
    }
    write_violated(&mut body, &violated.all);
    if let Some(wait) = wait {
        body.extend_from_slice(br#","retry_after_ms":"#);
        write_number(&mut body, wait.div_ceil(1000).max(1));
    }
    if let ProxyError::Refused(RefusalCause::Limited {
        wait: Wait::Never, ..
    }) = error
    {
        body.extend_from_slice(br#","retry_after_ms":null"#);
    }
    body.extend_from_slice(br#","request_id":""#);
    write_id(&mut body, request_id.as_bytes());
    body.extend_from_slice(b"\"}\n");
    body
}

/// Writes an id: a trusted peer's may have any visible character, and hardly any has one to escape.
fn write_id(out: &mut Vec<u8>, id: &[u8]) {
    let mut rest = id;
    while let Some(place) = memchr::memchr2(b'"', b'\\', rest) {
        out.extend_from_slice(&rest[..place]);
        out.extend([b'\\', rest[place]]);
        rest = &rest[place + 1..];
    }
    out.extend_from_slice(rest);
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

/// Writes the sentence about a limit that refuses, its name between two of `quote`.
fn write_refusal(out: &mut Vec<u8>, limit: &Limit, wait: Option<u64>, quote: &[u8]) {
    out.extend_from_slice(b"The limit ");
    out.extend_from_slice(quote);
    out.extend_from_slice(limit.public_name().as_bytes());
    out.extend_from_slice(quote);
    out.extend_from_slice(b" allows ");
    write_quota(out, limit);
    match wait {
        Some(wait) => {
            out.extend_from_slice(b". Try again in ");
            write_duration(out, wait);
            out.push(b'.');
        }
        None => out.extend_from_slice(
            b". This request costs more than the whole limit and can never pass.",
        ),
    }
}

/// The sentence about the error, in the client's words. It never names a server or a host.
pub(super) fn detail(details: &ProblemDetails<'_, '_>) -> String {
    match (details.error, details.violated.named) {
        (ProxyError::Refused(RefusalCause::Limited { .. }), Some(limit)) => {
            let mut text = Vec::with_capacity(ROOM);
            write_refusal(&mut text, limit, details.wait, b"\"");
            String::from_utf8(text).unwrap_or_default()
        }
        (ProxyError::Refused(RefusalCause::MissingKey { part, .. }), _) => {
            format!("The request needs {}.", called(part))
        }
        (ProxyError::Refused(RefusalCause::UnknownKey { part, .. }), _) => {
            format!("No group contains the value of {}.", called(part))
        }
        (ProxyError::Refused(RefusalCause::BadToken { why, .. }), _) => {
            format!("The token of the request is {}.", why.as_str())
        }
        (ProxyError::Refused(RefusalCause::AmbiguousKey { part, .. }), _) => format!(
            "The request has {} several times, with different values.",
            called(part)
        ),
        (ProxyError::TooManyHeld, _) => {
            "Too many requests are waiting. Try again shortly.".to_owned()
        }
        (ProxyError::Refused(RefusalCause::StoreDown), _) => {
            "Limits cannot be checked at the moment. Try again shortly.".to_owned()
        }
        (ProxyError::Draining, _) => "The gateway is stopping. Try again.".to_owned(),
        (ProxyError::NoRoute, _) => "No route matches this host, path and method.".to_owned(),
        (ProxyError::Upstream(UpstreamError::Connect(_)), _) => {
            "The upstream cannot be reached.".to_owned()
        }
        (ProxyError::Upstream(UpstreamError::Answer(_) | UpstreamError::UnaskedUpgrade), _) => {
            "The upstream gave no valid answer.".to_owned()
        }
        (ProxyError::Upstream(UpstreamError::Timeout(_)), _) => {
            "The upstream did not answer in time.".to_owned()
        }
        (other, _) => {
            let mut text = other.to_string();
            if let Some(first) = text.get_mut(..1) {
                first.make_ascii_uppercase();
            }
            text + "."
        }
    }
}

/// The name of a part of a key among clients.
fn called(part: &KeyPart) -> String {
    match part {
        KeyPart::Cookie(name) => format!("the cookie {name}"),
        KeyPart::Query { name, .. } => format!("the query parameter {name}"),
        KeyPart::Header { name, .. } => format!("the field {name}"),
        other => format!("its {other}"),
    }
}

fn write_quota(out: &mut Vec<u8>, limit: &Limit) {
    let (count, period) = (limit.rate.count.get(), limit.rate.period.get());
    write_number(out, u64::from(count));
    out.extend_from_slice(b" request");
    if count != 1 {
        out.push(b's');
    }
    if limit.rule.holds().is_some() {
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

pub(super) fn write_number(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Seconds with at most three decimals: `0.4 s`, `75 s`.
fn write_duration(out: &mut Vec<u8>, micros: u64) {
    let millis = micros.div_ceil(1000);
    write_number(out, millis / 1000);
    if !millis.is_multiple_of(1000) {
        // The digits behind a 1 keep their zeros in front.
        let mut digits = itoa::Buffer::new();
        let part = &digits.format(1000 + millis % 1000).as_bytes()[1..];
        let end = part.iter().rposition(|digit| *digit != b'0');
        out.push(b'.');
        out.extend_from_slice(&part[..=end.unwrap_or(0)]);
    }
    out.extend_from_slice(b" s");
}

#[cfg(test)]
mod tests {
    use super::super::Violations;
    use super::*;
    use crate::key::{KeyTemplate, MissingKey};
    use crate::limit::fixed_window::FixedWindow;
    use crate::limit::rate::Rate;
    use crate::limit::{Policy, Rule};
    use http::HeaderValue;
    use std::num::{NonZeroU32, NonZeroU64};
    use std::sync::Arc;

    fn limit(count: u32, period: u64) -> Arc<Limit> {
        let by = KeyTemplate {
            parts: Vec::new(),
            missing: MissingKey::Shared,
            unknown: None,
        };
        let rate = Rate {
            count: NonZeroU32::new(count).unwrap(),
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
        let error = ProxyError::Refused(RefusalCause::Limited { limit, wait });
        let details = ProblemDetails {
            wait: error.retry_after(),
            error: &error,
            violated: &violated,
            request_id: &HeaderValue::from_static("an\"id\\"),
        };
        (
            serde_json::from_slice(&problem(&details)).unwrap(),
            detail(&details),
        )
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
