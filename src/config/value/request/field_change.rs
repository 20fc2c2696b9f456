//! Fields that a route may change, and the values they may get.

use super::key::{field_name, name_fault};
use crate::config::value::servers::server::named_host;
use crate::config::value::{Code, ValueError, quoted};
use crate::key::is_secret;
use crate::proxy::server::hop;
use http::{HeaderName, HeaderValue, header};

/// The direction of the messages whose fields are changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) enum Direction {
    /// Requests to the upstream.
    Request,
    /// Responses to the client.
    Response,
}

/// The name of a field that `change` (`set`, `add` or `remove`) may change.
pub(in crate::config) fn editable_field(
    direction: Direction,
    change: &str,
    text: &str,
) -> Result<HeaderName, ValueError> {
    let wrong = |label: &str| {
        ValueError::new(
            Code::BadField,
            format!("the field {} cannot be changed", quoted(text)),
            label,
        )
    };
    let name = field_name(text).ok_or_else(|| wrong(name_fault(text)))?;
    if direction == Direction::Request && name == header::HOST && change != "set" {
        return Err(wrong("a request has one host: only `set` changes it"));
    }
    match why_not(direction, &name) {
        Some(why) => Err(wrong(why)),
        None => Ok(name),
    }
}

/// The reason for a field that no file needs to write.
const OURS: &str = "Tollgate writes it itself";
/// The reason for fields that state limits.
const OF_LIMITS: &str =
    "Tollgate writes it where limits are stated; a server's own values are passed on";

/// The reason why no file can change this field.
fn why_not(direction: Direction, name: &HeaderName) -> Option<&'static str> {
    let text = name.as_str();
    let frames = [
        header::CONTENT_LENGTH,
        header::TRANSFER_ENCODING,
        header::TRAILER,
    ];
    if frames.contains(name) {
        return Some("it frames the message: another value would split the message");
    }
    if *name == hop::GRANTED || *name == "x-request-id" {
        return Some(OURS);
    }
    if hop::ends_here(name) {
        return Some("it belongs to one connection and is not forwarded");
    }
    if text.starts_with("sec-websocket-") {
        return Some("it belongs to the handshake of a WebSocket");
    }
    match direction {
        Direction::Request => why_not_asked(text),
        Direction::Response => why_not_answered(text),
    }
}

/// The reason why no file can change this field of requests.
fn why_not_asked(name: &str) -> Option<&'static str> {
    match name {
        "forwarded" | "x-forwarded-for" | "x-forwarded-proto" | "x-forwarded-host"
        | "x-real-ip" | "via" => Some(OURS),
        "max-forwards" => Some("Tollgate counts it down"),
        // A file can set the prefix, although the gateway writes it when a path loses a prefix; the gateway does not
        // write the port.
        "x-forwarded-prefix" | "x-forwarded-port" => None,
        _ if name.starts_with("x-forwarded-") => Some(
            "proxies in front write it: a field of a peer in `trust` is forwarded, any other is dropped",
        ),
        _ => None,
    }
}

/// The reason why no file can change this field of responses.
fn why_not_answered(name: &str) -> Option<&'static str> {
    match name {
        "retry-after" | "retry-after-ms" => Some(
            "Tollgate writes it on refusals; a server's own field is passed on, and `respond` has none",
        ),
        "ratelimit" | "ratelimit-policy" => Some(OF_LIMITS),
        _ if name.starts_with("x-ratelimit-") => Some(OF_LIMITS),
        _ => None,
    }
}

/// A value that is set or added.
pub(in crate::config) fn field_value(
    direction: Direction,
    name: &str,
    text: &str,
) -> Result<HeaderValue, ValueError> {
    if direction == Direction::Request && name.eq_ignore_ascii_case("host") {
        return named_host(text);
    }
    let mut value = value(text)?;
    // HPACK does not index a sensitive value, and no debug output shows it.
    value.set_sensitive(direction == Direction::Request || is_secret(name));
    Ok(value)
}

fn value(text: &str) -> Result<HeaderValue, ValueError> {
    let wrong =
        |label: &str| ValueError::new(Code::BadField, "no field can have this value", label);
    if text.contains("${") {
        return Err(wrong("the value of a field has no variables"));
    }
    if text.trim_ascii() != text {
        return Err(wrong("blanks around a value are no part of it"));
    }
    HeaderValue::from_bytes(text.as_bytes()).map_err(|_| {
        wrong("a value has no line breaks and no control characters: what follows one would be another field")
    })
}
