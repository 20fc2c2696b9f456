//! Every answer that the gateway itself writes: status, fields, and a body with the reason.

mod format;
mod problem;
mod refusal_text;

pub use format::ReplyFormat;
pub(in crate::proxy) use problem::detail;
pub use refusal_text::RefusalText;

use crate::admission::RefusalCause;
use crate::limit::Limit;
use crate::limit::verdict::INLINE_LIMITS;
use crate::proxy::answer::fields;
use crate::proxy::error::ProxyError;
use crate::snapshot::errors::{ErrorBody, ErrorFormats};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use smallvec::SmallVec;
use std::sync::Arc;

pub(in crate::proxy) const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
/// The most fields of a refusal, including those that are stamped on it afterwards.
pub(in crate::proxy) const FIELDS: usize = 12;

/// The limits in a refusal's body: the named one, and all that refused.
#[derive(Debug, Default)]
pub struct Violations<'a> {
    /// The limit with the longest wait.
    pub named: Option<&'a Arc<Limit>>,
    /// All limits that refused.
    pub all: SmallVec<[&'a str; INLINE_LIMITS]>,
}

/// The facts in an answer.
#[derive(Debug, Clone, Copy)]
pub struct ProblemDetails<'a, 'l> {
    /// The cause of the gateway's own answer.
    pub error: &'a ProxyError,
    /// The limits that refused.
    pub violated: &'a Violations<'l>,
    /// The time after which the client may retry, in microseconds, if known.
    pub wait: Option<u64>,
    /// The text of the refusal, if one limit refuses alone and with its own numbers.
    pub prepared: Option<&'a RefusalText>,
    /// The request's id.
    pub request_id: &'a HeaderValue,
    /// The request's host, if it has a valid one.
    pub host: Option<&'a HeaderValue>,
}

/// The answer. Its fields use the memory of `spare`, which has no fields; `preferred` is the form that the client
/// prefers, if the file uses it.
#[must_use]
pub fn to(
    details: &ProblemDetails<'_, '_>,
    looks: &ErrorFormats,
    preferred: ReplyFormat,
    spare: HeaderMap,
) -> Response<Bytes> {
    let body = match details.error {
        ProxyError::Refused(RefusalCause::Limited { limit, .. }) => looks.of_refusal(&limit.name),
        _ => &looks.everywhere,
    };
    let (kind, text) = format::written(details, body, preferred);
    let mut response = Response::new(text);
    *response.status_mut() = details.error.status();
    let fields = response.headers_mut();
    *fields = spare;
    fields.reserve(FIELDS);
    fields::set(fields, header::CONTENT_TYPE, kind);
    fields::set(fields, header::CACHE_CONTROL, NO_STORE);
    if *body == ErrorBody::ByAccept {
        fields.insert(header::VARY, HeaderValue::from_name(header::ACCEPT));
    }
    if let Some(wait) = details.wait {
        fields::retry_after(fields, wait);
    }
    if details.error.status() == StatusCode::UNAUTHORIZED {
        // A 401 names a way to authenticate (RFC 9110, section 15.5.2).
        for challenge in challenges(details) {
            if let Ok(value) = HeaderValue::try_from(challenge) {
                fields.append(header::WWW_AUTHENTICATE, value);
            }
        }
    }
    response
}

/// An answer whose fields and body are already written.
#[must_use]
pub fn with(status: StatusCode, fields: HeaderMap, body: Bytes) -> Response<Bytes> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = fields;
    response
}

/// The answer to `OPTIONS *` and to a request that may not be forwarded further (RFC 9110, section 7.6.2).
#[must_use]
pub fn empty() -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

/// The challenges. The first names the place in which the request should have named its client. Names are validated to
/// need no escapes. The second is for browsers, where users with passwords are customers as well: for no other challenge a
/// browser asks its user.
fn challenges(details: &ProblemDetails<'_, '_>) -> Vec<String> {
    let (limit, part) = match details.error {
        ProxyError::Refused(
            RefusalCause::MissingKey { limit, part } | RefusalCause::UnknownKey { limit, part },
        ) => (limit, part),
        // The form of RFC 6750, section 3.1.
        ProxyError::Refused(RefusalCause::BadToken { .. }) => {
            return vec!["Bearer error=\"invalid_token\"".to_owned()];
        }
        _ => return Vec::new(),
    };
    let mut others = limit.by.credentials().map(|group| &group.by);
    let other = others.find(|by| by.is_password() && *by != part);
    let realm = realm(details.host);
    let parts = std::iter::once(part).chain(other);
    parts.map(|part| part.challenge(realm)).collect()
}

/// The name of the protected space (RFC 9110, section 11.5): the host.
fn realm(host: Option<&HeaderValue>) -> &str {
    let host = host.and_then(|host| host.to_str().ok());
    host.filter(|host| !host.contains(['"', '\\']))
        .unwrap_or("users")
}
