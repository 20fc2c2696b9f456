//! Every answer the gateway itself writes: status, fields, and a problem body (RFC 9457).

use super::body::Body;
use super::error::ProxyError;
use super::fields;
use crate::limit::Limit;
use crate::limit::verdict::Wait;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use std::io::Write as _;
use std::sync::Arc;

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const PROBLEM: HeaderValue = HeaderValue::from_static("application/problem+json");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
/// The problem types that the RateLimit draft registers.
const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";
const REDUCED_CAPACITY: &str =
    "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";

/// What a refusal's body says of the limits: the one that is named, and all that refused.
#[derive(Debug, Default)]
pub struct Violated<'a> {
    /// The one with the longest wait.
    pub named: Option<&'a Arc<Limit>>,
    /// All that refused.
    pub all: Vec<&'a str>,
}

/// The answer to `error`.
#[must_use]
pub fn to(error: &ProxyError, violated: &Violated<'_>, request_id: &str) -> Response<Body> {
    let body = problem(error, violated, request_id);
    let mut response = Response::new(Body::own(Bytes::from(body)));
    *response.status_mut() = error.status();
    let fields = response.headers_mut();
    fields.insert(header::CONTENT_TYPE, PROBLEM);
    fields.insert(header::CACHE_CONTROL, NO_STORE);
    if let Some(wait) = error.retry_after() {
        fields::retry_after(fields, wait);
    }
    if let ProxyError::MissingKey { field, .. } = error
        && let Ok(value) = HeaderValue::try_from(format!("ApiKey field=\"{field}\""))
    {
        // RFC 9110, section 15.5.2: a 401 names a way in.
        fields.insert(header::WWW_AUTHENTICATE, value);
    }
    response
}

/// Does the request speak gRPC?
#[must_use]
pub fn is_grpc(fields: &HeaderMap) -> bool {
    let kind = fields.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    kind.is_some_and(|kind| kind.starts_with(b"application/grpc"))
}

/// The answer to `error` in gRPC: status 200, and the error in fields of a response that has only trailers.
#[must_use]
pub fn grpc(error: &ProxyError, violated: &Violated<'_>) -> Response<Body> {
    let mut response = Response::new(Body::own(Bytes::new()));
    let fields = response.headers_mut();
    fields.insert(header::CONTENT_TYPE, GRPC);
    fields.insert(header::CACHE_CONTROL, NO_STORE);
    fields.insert(GRPC_STATUS, HeaderValue::from(grpc_status(error)));
    if let Ok(message) = HeaderValue::try_from(detail(error, violated)) {
        fields.insert(GRPC_MESSAGE, message);
    }
    if let Some(wait) = error.retry_after() {
        fields::retry_after(fields, wait);
    }
    response
}

/// The status codes of gRPC, by what an HTTP status means there.
fn grpc_status(error: &ProxyError) -> u16 {
    match error.status() {
        StatusCode::TOO_MANY_REQUESTS => 8,
        StatusCode::UNAUTHORIZED => 16,
        StatusCode::NOT_FOUND => 12,
        StatusCode::GATEWAY_TIMEOUT => 4,
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE => 14,
        _ => 13,
    }
}

/// The answer to `OPTIONS *` and to a request that may not travel further (RFC 9110, section 7.6.2).
#[must_use]
pub fn empty() -> Response<Body> {
    let mut response = Response::new(Body::own(Bytes::new()));
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

fn problem(error: &ProxyError, violated: &Violated<'_>, request_id: &str) -> Vec<u8> {
    let status = error.status();
    let (kind, title) = match status {
        StatusCode::TOO_MANY_REQUESTS => (QUOTA_EXCEEDED, "Too many requests"),
        StatusCode::SERVICE_UNAVAILABLE => (REDUCED_CAPACITY, "Service unavailable"),
        _ => ("about:blank", status.canonical_reason().unwrap_or("Error")),
    };
    let mut body = Vec::with_capacity(384);
    // Names of limits and fields are tokens; nothing below needs escaping. Writing into a vector cannot fail.
    let _ = write!(
        body,
        r#"{{"type":"{kind}","title":"{title}","status":{},"detail":"#,
        status.as_u16()
    );
    let _ = write!(body, "{}", serde_json::Value::from(detail(error, violated)));
    if !violated.all.is_empty() {
        let _ = write!(
            body,
            r#","violated-policies":["{}"]"#,
            violated.all.join("\",\"")
        );
    }
    if let Some(wait) = error.retry_after() {
        let _ = write!(body, r#","retry_after_ms":{}"#, wait.div_ceil(1000).max(1));
    }
    if let ProxyError::Limited {
        wait: Wait::Never, ..
    } = error
    {
        body.extend_from_slice(br#","retry_after_ms":null"#);
    }
    let _ = write!(body, r#","request_id":"{request_id}"}}"#);
    body.push(b'\n');
    body
}

/// In the client's words; never names a server or a host.
fn detail(error: &ProxyError, violated: &Violated<'_>) -> String {
    match (error, violated.named) {
        (ProxyError::Limited { wait, .. }, Some(limit)) => {
            let quota = format!("The limit \"{}\" allows {}.", limit.name, quota(limit));
            match wait {
                Wait::Micros(wait) => format!("{quota} Try again in {}.", duration(*wait)),
                Wait::Never => format!(
                    "{quota} This request costs more than the whole limit and can never pass."
                ),
            }
        }
        (ProxyError::MissingKey { field, .. }, _) => {
            format!("The request needs the field {field}.")
        }
        (ProxyError::TooManyHeld, _) => {
            "Too many requests are waiting. Try again shortly.".to_owned()
        }
        (ProxyError::StoreDown, _) => {
            "Limits cannot be checked at the moment. Try again shortly.".to_owned()
        }
        (ProxyError::Draining, _) => "The gateway is stopping. Try again.".to_owned(),
        (ProxyError::NoRoute, _) => "No route matches this host, path and method.".to_owned(),
        (ProxyError::Connect(_), _) => "The upstream cannot be reached.".to_owned(),
        (ProxyError::Upstream(_) | ProxyError::UnaskedUpgrade, _) => {
            "The upstream gave no valid answer.".to_owned()
        }
        (ProxyError::UpstreamTimeout(_), _) => "The upstream did not answer in time.".to_owned(),
        (other, _) => {
            let mut text = other.to_string();
            if let Some(first) = text.get_mut(..1) {
                first.make_ascii_uppercase();
            }
            text + "."
        }
    }
}

fn quota(limit: &Limit) -> String {
    let (count, period) = (limit.rate.count.get(), limit.rate.period.get());
    let requests = if count == 1 { "request" } else { "requests" };
    let unit = match period {
        1_000_000 => "second".to_owned(),
        60_000_000 => "minute".to_owned(),
        3_600_000_000 => "hour".to_owned(),
        86_400_000_000 => "day".to_owned(),
        604_800_000_000 => "week".to_owned(),
        other => duration(other),
    };
    format!("{count} {requests} per {unit}")
}

/// Seconds with at most three decimals: `0.4 s`, `75 s`.
fn duration(micros: u64) -> String {
    let millis = micros.div_ceil(1000);
    let (whole, part) = (millis / 1000, millis % 1000);
    if part == 0 {
        return format!("{whole} s");
    }
    let part = format!("{part:03}");
    format!("{whole}.{} s", part.trim_end_matches('0'))
}
