//! The gateway's own answers to gRPC calls: status 200 and one head without a body, with the content of trailers
//! ("Trailers-Only" in the page "gRPC over HTTP2").

use crate::key::GrpcStatus;
use crate::proxy::answer::fields;
use crate::proxy::answer::reply::{FIELDS, NO_STORE, ProblemDetails, detail};
use crate::proxy::grpc::{GRPC_MESSAGE, GRPC_STATUS};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use std::fmt::Write as _;

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
/// The field by which a server tells clients when to retry, in milliseconds (proposal A6 of gRPC).
const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");
/// The wait, in microseconds, from which on a client is not asked to retry by itself.
const LONG: u64 = 60_000_000;
/// The most bytes of a text of the file that become a message.
const LONGEST: usize = 1024;

/// The answer to an error.
#[cold]
#[inline(never)]
#[must_use]
pub fn refusal(details: &ProblemDetails<'_, '_>, spare: HeaderMap) -> Response<Bytes> {
    let status = details.error.grpc_status();
    let mut response = trailers_only(status, &detail(details), spare);
    if let Some(wait) = details.wait {
        let fields = response.headers_mut();
        fields::retry_after(fields, wait);
        if wait < LONG {
            fields.insert(PUSHBACK, HeaderValue::from(fields::millis(wait)));
        }
    }
    response
}

/// The gRPC form of an HTTP answer that a route or a listener has of its own, and the status in it. A client would
/// derive the same status from the answer itself, except for 429, which is a limit's.
#[cold]
#[inline(never)]
#[must_use]
pub fn of_http(answer: &Response<Bytes>) -> (GrpcStatus, Response<Bytes>) {
    let status = match answer.status() {
        StatusCode::BAD_REQUEST => GrpcStatus::INTERNAL,
        StatusCode::UNAUTHORIZED => GrpcStatus::UNAUTHENTICATED,
        StatusCode::FORBIDDEN => GrpcStatus::PERMISSION_DENIED,
        StatusCode::NOT_FOUND => GrpcStatus::UNIMPLEMENTED,
        StatusCode::TOO_MANY_REQUESTS => GrpcStatus::RESOURCE_EXHAUSTED,
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE => GrpcStatus::UNAVAILABLE,
        StatusCode::GATEWAY_TIMEOUT => GrpcStatus::DEADLINE_EXCEEDED,
        _ => GrpcStatus::UNKNOWN,
    };
    let text = std::str::from_utf8(answer.body())
        .unwrap_or_default()
        .trim();
    let there = answer.headers().get(header::LOCATION);
    let message = match there.and_then(|there| there.to_str().ok()) {
        Some(there) => format!("The gateway leads to {there} ({}).", answer.status()),
        None if text.is_empty() || text.len() > LONGEST => {
            format!("The gateway answers {}.", answer.status())
        }
        None => text.to_owned(),
    };
    (status, trailers_only(status, &message, HeaderMap::new()))
}

/// The trailers of an answer that has begun and will not be complete.
#[must_use]
pub fn trailers(status: GrpcStatus, message: &str) -> HeaderMap {
    let mut fields = HeaderMap::with_capacity(2);
    write_status(&mut fields, status, message);
    fields
}

fn trailers_only(status: GrpcStatus, message: &str, spare: HeaderMap) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    let fields = response.headers_mut();
    *fields = spare;
    fields.reserve(FIELDS);
    fields.insert(header::CONTENT_TYPE, GRPC);
    fields.insert(header::CACHE_CONTROL, NO_STORE);
    write_status(fields, status, message);
    response
}

fn write_status(fields: &mut HeaderMap, status: GrpcStatus, message: &str) {
    fields.insert(GRPC_STATUS, HeaderValue::from(status.0));
    if let Ok(message) = HeaderValue::try_from(encoded(message)) {
        fields.insert(GRPC_MESSAGE, message);
    }
}

/// A message in the form of a field: bytes that are not printable ASCII, and `%`, are percent-encoded.
fn encoded(message: &str) -> String {
    let mut text = String::with_capacity(message.len());
    for byte in message.bytes() {
        match byte {
            b'%' | ..b' ' | b'\x7f'.. => {
                // Writing to a text cannot fail.
                let _ = write!(text, "%{byte:02X}");
            }
            byte => text.push(char::from(byte)),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_encoded_as_grpc_has_it() {
        for (message, written) in [
            ("The limit \"a\" refuses.", "The limit \"a\" refuses."),
            ("100 %", "100 %25"),
            ("größer\n", "gr%C3%B6%C3%9Fer%0A"),
            ("\u{7f}~ ", "%7F~ "),
            ("", ""),
        ] {
            assert_eq!(encoded(message), written);
        }
    }

    #[test]
    fn an_answer_of_http_has_a_form_in_grpc() {
        let answer = |status: u16, body: &'static str| {
            let mut answer = Response::new(Bytes::from_static(body.as_bytes()));
            *answer.status_mut() = StatusCode::from_u16(status).unwrap();
            let (status, response) = of_http(&answer);
            assert!(response.body().is_empty());
            let message = response.headers()[GRPC_MESSAGE].to_str().unwrap();
            (status.0, message.to_owned())
        };
        assert_eq!(answer(503, "back at six\n"), (14, "back at six".to_owned()));
        let gone = (2, "The gateway answers 410 Gone.".to_owned());
        assert_eq!(answer(410, ""), gone);
    }
}
