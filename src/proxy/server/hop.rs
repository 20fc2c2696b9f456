//! Fields that belong to one connection and end here (RFC 9110 section 7.6.1), in both directions, and the one upgrade
//! that is relayed.
//!
//! The order matters: strip first, add our own fields afterwards. Otherwise a client could name our own field in
//! `Connection`, and we would remove it ourselves.

use crate::intake::hop_fields::{says_nothing, strip_named, tokens};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version, header};
use smallvec::SmallVec;

/// Fields of one hop. `Trailer` is not among them, since trailers are relayed. `Proxy-Authorization` is among them, and
/// is not read: we request no proxy credentials, and they are not for the origin (RFC 9110 section 11.7.2). The last
/// two fields are removed only from requests.
static HOP_BY_HOP: [HeaderName; 12] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    HeaderName::from_static("proxy-authentication-info"),
    // A field from the time when HTTP/2 was requested by Upgrade (RFC 7540 section 3.2.1).
    HeaderName::from_static("http2-settings"),
    // hyper answers 100 when the upstream call begins to read. Waiting for another 100 would never end.
    header::EXPECT,
    // This field is reserved for us: a client that writes it would grant itself units.
    GRANTED,
];

/// The field that states to the upstream the units granted by a limit with partial grants.
pub const GRANTED: HeaderName = HeaderName::from_static("tollgate-granted");

/// Positions in [`HOP_BY_HOP`].
const CONNECTION: usize = 0;
const TE: usize = 3;
const TRANSFER_ENCODING: usize = 4;
const UPGRADE: usize = 5;

/// The members of [`HOP_BY_HOP`] that end here, one bit for each.
const IN_REQUESTS: u16 = (1 << HOP_BY_HOP.len()) - 1;
const IN_RESPONSES: u16 = IN_REQUESTS >> 2;

/// Removes the fields that a forwarded request must not have, including `Expect` and our own [`GRANTED`].
///
/// `TE: trailers` stays if present, with the `Connection` that announces it (RFC 9110 section 10.1.4). After this call
/// the framing is removed; the connection to the server writes it anew.
///
/// Returns the offered upgrade.
pub fn strip_request(fields: &mut HeaderMap) -> Option<HeaderValue> {
    let found = strip(fields, IN_REQUESTS);
    if found.trailers {
        fields.insert(header::TE, HeaderValue::from_static("trailers"));
        fields.insert(header::CONNECTION, HeaderValue::from_static("te"));
    }
    found.offer
}

/// Removes the fields that a relayed response must not have.
///
/// A response with both `Content-Length` and `Transfer-Encoding` loses both (RFC 9112 section 6.3): hyper has decoded
/// the chunks and kept the length, which may be wrong and would truncate the body. A 204 has neither. Equal lengths
/// become one.
pub fn strip_response(status: StatusCode, fields: &mut HeaderMap) {
    let found = strip(fields, IN_RESPONSES);
    // For other methods than HEAD hyper itself removes the length (RFC 9110 section 8.6).
    if found.coded || status == StatusCode::NO_CONTENT {
        fields.remove(header::CONTENT_LENGTH);
    } else if found.lengths {
        collapse_length(fields);
    }
}

/// Does this request ask for a WebSocket, in a form that is relayed? Must be called before [`strip_request`].
///
/// Such a request is a GET in HTTP/1.1 without content, with `Connection: upgrade` and `Upgrade: websocket` alone (RFC
/// 6455 section 4.1). Any other upgrade is not relayed: its fields are stripped, and the request is an ordinary one
/// (RFC 9110 section 7.8).
#[must_use]
pub fn wants_websocket(method: &Method, version: Version, fields: &HeaderMap) -> bool {
    *method == Method::GET
        && version == Version::HTTP_11
        && names_websocket(fields)
        && !fields.contains_key(header::TRANSFER_ENCODING)
        && fields
            .get(header::CONTENT_LENGTH)
            .is_none_or(|length| length == "0")
}

/// Restores the fields of the upgrade to a WebSocket after stripping: on the request for it and on the 101 that accepts
/// it.
pub fn mark_websocket(fields: &mut HeaderMap) {
    fields.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    fields.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
}

/// A response's statement about switching protocols.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Switch {
    /// The response is an ordinary one, or declines.
    None,
    /// The requested WebSocket begins.
    WebSocket,
    /// The response is a 101 without a request for it, or for another protocol. The answer is 502, since the bytes that
    /// follow are not HTTP (RFC 9110 section 15.2.2).
    Unasked,
}

/// Reads the head of a response, before [`strip_response`]; `asked` is the answer of [`wants_websocket`] for the
/// request.
#[must_use]
pub fn switch(asked: bool, status: StatusCode, fields: &HeaderMap) -> Switch {
    match status {
        StatusCode::SWITCHING_PROTOCOLS if asked && names_websocket(fields) => Switch::WebSocket,
        StatusCode::SWITCHING_PROTOCOLS => Switch::Unasked,
        _ => Switch::None,
    }
}

fn names_websocket(fields: &HeaderMap) -> bool {
    // Hardly any message has `Upgrade`; comparing names is cheaper than a lookup.
    if !fields.keys().any(|name| *name == header::UPGRADE) {
        return false;
    }
    let mut upgrades = fields.get_all(header::UPGRADE).iter();
    let Some(upgrade) = upgrades.next() else {
        return false;
    };
    upgrades.next().is_none()
        && upgrade
            .as_bytes()
            .trim_ascii()
            .eq_ignore_ascii_case(b"websocket")
        && tokens(fields, &header::CONNECTION).any(|token| token.eq_ignore_ascii_case(b"upgrade"))
}

/// The fields that stripping found.
struct StripReport {
    /// The message has a `Transfer-Encoding`.
    coded: bool,
    /// The message has `TE: trailers`.
    trailers: bool,
    /// The first `Upgrade` of the message.
    offer: Option<HeaderValue>,
    /// `Content-Length` has more than one number.
    lengths: bool,
}

/// Strips in one pass over the fields that are present, without a lookup of absent ones.
fn strip(fields: &mut HeaderMap, ending: u16) -> StripReport {
    let mut present = 0_u16;
    let (mut names_fields, mut length, mut lengths) = (false, false, false);
    for (name, value) in &*fields {
        match *name {
            header::CONTENT_LENGTH => {
                lengths |= length || value.as_bytes().contains(&b',');
                length = true;
            }
            // The common fields are not compared with the list.
            header::HOST
            | header::USER_AGENT
            | header::ACCEPT
            | header::COOKIE
            | header::SERVER
            | header::DATE
            | header::CONTENT_TYPE
            | header::LAST_MODIFIED
            | header::ETAG
            | header::ACCEPT_RANGES
            | header::CACHE_CONTROL => {}
            _ => {
                if let Some(place) = place(name) {
                    present |= 1 << place;
                    names_fields |= place == CONNECTION && !says_nothing(value);
                }
            }
        }
    }
    let has = |place: usize| present & (1 << place) != 0;
    let trailers =
        has(TE) && tokens(fields, &header::TE).any(|token| token.eq_ignore_ascii_case(b"trailers"));
    let offer = if has(UPGRADE) {
        fields.get(header::UPGRADE).cloned()
    } else {
        None
    };
    if names_fields {
        strip_named(fields, |_| ());
    }
    let mut left = present & ending;
    while left != 0 {
        // At most 15.
        fields.remove(&HOP_BY_HOP[left.trailing_zeros() as usize]);
        left &= left - 1;
    }
    StripReport {
        coded: has(TRANSFER_ENCODING),
        trailers,
        offer,
        lengths,
    }
}

/// Does this field end here in both directions?
#[must_use]
pub fn ends_here(name: &HeaderName) -> bool {
    place(name).is_some()
}

/// The position of a field in [`HOP_BY_HOP`]. Most names differ from all of them in their length.
fn place(name: &HeaderName) -> Option<usize> {
    let name = name.as_str();
    Some(match name.len() {
        2 if name == "te" => TE,
        6 if name == "expect" => 10,
        7 if name == "upgrade" => UPGRADE,
        10 if name == "connection" => CONNECTION,
        10 if name == "keep-alive" => 1,
        14 if name == "http2-settings" => 9,
        16 if name == "proxy-connection" => 2,
        16 if name == "tollgate-granted" => 11,
        17 if name == "transfer-encoding" => TRANSFER_ENCODING,
        18 if name == "proxy-authenticate" => 6,
        19 if name == "proxy-authorization" => 7,
        25 if name == "proxy-authentication-info" => 8,
        _ => return None,
    })
}

/// Removes the fields whose names `is_like_that` accepts. Most messages have none.
pub(in crate::proxy) fn remove_all(
    fields: &mut HeaderMap,
    is_like_that: impl Fn(&HeaderName) -> bool,
) {
    if !fields.keys().any(&is_like_that) {
        return;
    }
    let names = fields.keys().filter(|name| is_like_that(name));
    let names: SmallVec<[HeaderName; 4]> = names.cloned().collect();
    for name in names {
        fields.remove(name);
    }
}

/// hyper's client accepts `5` twice and `5, 5` as 5 and leaves them; one `5` is forwarded.
fn collapse_length(fields: &mut HeaderMap) {
    let Some(first) = fields.get(header::CONTENT_LENGTH) else {
        return;
    };
    let first = first.as_bytes().split(|byte| *byte == b',').next();
    let one = HeaderValue::from_bytes(first.unwrap_or_default().trim_ascii());
    if let Ok(one) = one {
        fields.insert(header::CONTENT_LENGTH, one);
    }
}

#[cfg(test)]
mod tests;
