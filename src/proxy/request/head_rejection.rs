//! Heads that are refused before they become requests, by hyper or for being late: they are counted, logged and, over
//! HTTP/1.1, answered like other bad requests.

mod beginning;

pub use beginning::fault_of_target;

use crate::client::spelled;
use crate::clock::{self, Timestamp};
use crate::intake::head::{BadRequest, is_host};
use crate::listen::Peer;
use crate::listen::handler::RejectedHead;
use crate::proxy::Worker;
use crate::proxy::answer::fields::X_REQUEST_ID;
use crate::proxy::answer::reply;
use crate::proxy::answer::reply::{ProblemDetails, ReplyFormat, Violations};
use crate::proxy::error::ProxyError;
use crate::proxy::request::{handshake_facts, request_id};
use crate::snapshot::errors::ErrorFormats;
use crate::telemetry::access_log::AccessRecord;
use crate::telemetry::h2_refusals::RefusedStream;
use crate::telemetry::log::Throttles;
use crate::telemetry::metrics::{AnswerSource, RefusedHead};
use beginning::HeadBeginning;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Version, header};
use std::time::Duration;

/// A refusal of a head, and the known facts about the head.
struct HeadRefusal<'a> {
    cause: RefusedHead,
    error: ProxyError,
    version: Option<Version>,
    head: HeadBeginning<'a>,
    path: Option<&'a [u8]>,
}

/// Counts a refused head and writes its line. Returns the bytes of its answer over HTTP/1.1.
pub(in crate::proxy) fn answer_rejected(
    worker: &Worker,
    head: &RejectedHead<'_>,
    peer: &Peer,
) -> Vec<u8> {
    let refusal = HeadRefusal::of(head);
    if let RejectedHead::Http2(refused) = head {
        warn_of_reset(refused, peer);
    }
    let status = refusal.error.status();
    let local = worker.current();
    worker.metrics.refused_head(refusal.cause);
    let unknown = Method::from_bytes(b"-").unwrap_or_default();
    local.unrouted.request(
        // A method that cannot be read is counted as an unknown one.
        refusal.head.method.as_ref().unwrap_or(&unknown),
        status.as_u16(),
        AnswerSource::Gateway,
        Duration::ZERO,
    );
    let now = clock::wall();
    let id = request_id::request_id(&HeaderMap::new(), false, now);
    if worker.access.is_on() {
        log(worker, &refusal, peer, &id, now);
    }
    match head {
        RejectedHead::Http1 { .. } => answer(&refusal, &local.snapshot.errors, id, now),
        RejectedHead::LateHttp2 | RejectedHead::Http2(_) => Vec::new(),
    }
}

impl<'a> HeadRefusal<'a> {
    fn of(rejected: &RejectedHead<'a>) -> Self {
        match rejected {
            RejectedHead::Http1 { status, beginning } => {
                let head = HeadBeginning::read(beginning);
                let (cause, error) = match *status {
                    StatusCode::REQUEST_TIMEOUT => (RefusedHead::Late, ProxyError::HeadLate),
                    StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => {
                        (RefusedHead::TooLarge, BadRequest::HeadTooLarge.into())
                    }
                    StatusCode::URI_TOO_LONG => {
                        (RefusedHead::TooLarge, BadRequest::UriTooLong.into())
                    }
                    _ => {
                        let (cause, fault) = head.fault();
                        (cause, fault.into())
                    }
                };
                Self {
                    cause,
                    error,
                    version: head.version,
                    path: head.path,
                    head,
                }
            }
            RejectedHead::LateHttp2 => Self {
                cause: RefusedHead::Late,
                error: ProxyError::HeadLate,
                version: Some(Version::HTTP_2),
                head: HeadBeginning::default(),
                path: None,
            },
            RejectedHead::Http2(refused) => Self {
                cause: refused.cause,
                error: match refused.cause {
                    RefusedHead::TooLarge => BadRequest::HeadTooLarge.into(),
                    _ => BadRequest::Field.into(),
                },
                version: Some(Version::HTTP_2),
                head: HeadBeginning::default(),
                path: refused.path.as_deref().map(str::as_bytes),
            },
        }
    }
}

fn log(worker: &Worker, refusal: &HeadRefusal<'_>, peer: &Peer, id: &HeaderValue, now: Timestamp) {
    let head = &refusal.head;
    let host = head.fields.get(header::HOST);
    let host = host.filter(|host| is_host(host.as_bytes()));
    worker.access.record(&AccessRecord {
        ts: now.micros(),
        request_id: id.as_bytes(),
        client: peer.ip(),
        peer: peer.ip(),
        method: head.method.as_ref().map(Method::as_str),
        host: host.map(HeaderValue::as_bytes),
        path: refusal.path,
        proto: refusal.version,
        status: refusal.error.status().as_u16(),
        reason: refusal.error.reason(),
        user_agent: head
            .fields
            .get(header::USER_AGENT)
            .map(HeaderValue::as_bytes),
        tls: peer.tls().map(|tls| handshake_facts::logged(tls, host)),
        ..AccessRecord::default()
    });
}

/// The answer in the usual form, as bytes: hyper cannot write our answer to a head that it refuses.
fn answer(
    refusal: &HeadRefusal<'_>,
    looks: &ErrorFormats,
    id: HeaderValue,
    now: Timestamp,
) -> Vec<u8> {
    let preferred = if looks.ask_accept() {
        ReplyFormat::preferred(&refusal.head.fields)
    } else {
        ReplyFormat::default()
    };
    let details = ProblemDetails {
        error: &refusal.error,
        violated: &Violations::default(),
        wait: None,
        prepared: None,
        request_id: &id,
        host: None,
    };
    let mut answer = reply::to(&details, looks, preferred, HeaderMap::new());
    let length = HeaderValue::from(answer.body().len());
    let fields = answer.headers_mut();
    fields.insert(X_REQUEST_ID, id);
    fields.insert(header::CONNECTION, HeaderValue::from_static("close"));
    fields.insert(header::CONTENT_LENGTH, length);
    if let Some(date) = date(now) {
        fields.insert(header::DATE, date);
    }
    if refusal.head.method == Some(Method::HEAD) {
        answer.body_mut().clear();
    }
    as_bytes(&answer)
}

/// The instant in the form of a field (RFC 9110, section 5.6.7).
fn date(now: Timestamp) -> Option<HeaderValue> {
    let micros = i64::try_from(now.micros()).ok()?;
    let now = jiff::Timestamp::from_microsecond(micros).ok()?;
    let printer = jiff::fmt::rfc2822::DateTimePrinter::new();
    let text = printer.timestamp_to_rfc9110_string(&now).ok()?;
    HeaderValue::try_from(text).ok()
}

/// An answer of HTTP/1.1 (RFC 9112, section 4).
fn as_bytes(answer: &Response<Bytes>) -> Vec<u8> {
    let status = answer.status();
    let mut out = Vec::with_capacity(512 + answer.body().len());
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(status.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(status.canonical_reason().unwrap_or_default().as_bytes());
    out.extend_from_slice(b"\r\n");
    for (name, value) in answer.headers() {
        out.extend_from_slice(name.as_str().as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(value.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(answer.body());
    out
}

/// Logs why the HTTP/2 library has reset a stream, once a minute for each cause.
#[cold]
fn warn_of_reset(refused: &RefusedStream, peer: &Peer) {
    const MINUTE: Duration = Duration::from_secs(60);
    static RESETS: Throttles<{ RefusedHead::COUNT }> = Throttles::every(MINUTE);
    let Some(more) = RESETS.pass(refused.cause as usize) else {
        return;
    };
    let client = spelled(peer.ip());
    match refused.cause {
        RefusedHead::ExtendedConnect => {
            tracing::warn!(
                "{client} asks for a WebSocket over HTTP/2 (extended CONNECT), which is not announced: its stream was \
                 reset; WebSockets come over HTTP/1.1{more}"
            );
        }
        RefusedHead::Target => {
            let path = refused.path.as_deref().unwrap_or_default();
            tracing::warn!(
                "{client} sent a :path or :authority over HTTP/2 with a byte that must be percent-encoded there: its \
                 stream was reset (path {path:?}){more}"
            );
        }
        RefusedHead::Fields | RefusedHead::PseudoFields | RefusedHead::Length => {
            tracing::warn!(
                "{client} sent a head over HTTP/2 that is malformed ({}): its stream was reset{more}",
                refused.cause.as_str()
            );
        }
        cause => {
            tracing::warn!(
                "{client} sent a head over HTTP/2 that cannot be read ({}): its stream was refused, or its connection \
                 ended{more}",
                cause.as_str()
            );
        }
    }
}
