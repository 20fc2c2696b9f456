//! The checks of a request's head before any decision or forwarding, and the host that the head addresses.
//!
//! hyper parses strictly and leaves meaning to us: it checks neither `Host` nor, beyond the last coding of the last
//! line, `Transfer-Encoding`. It refuses differing and malformed lengths. Three faults are found before this room sees
//! the head: a `Content-Length` beside a `Transfer-Encoding`, a `#fragment` that the http crate cuts off, and a head of
//! HTTP/2 beyond its bound. Each of them is a [`FramingFault`](crate::listen::FramingFault) of `listen`.

use crate::client::Scheme;
use crate::listen::FramingFault;
use crate::route::path::{BadPath, NormalPath};
use bytes::Bytes;
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, Version, header};
use std::cell::RefCell;
use std::net::Ipv6Addr;

/// The longest accepted URI, in bytes; beyond it 414 (RFC 9110 section 4.1 requires at least 8,000).
pub const LONGEST_URI: usize = 16 * 1024;

/// Longest host with port; a DNS name has at most 253 characters (RFC 1035 section 2.3.4).
const LONGEST_HOST: usize = 260;

/// The host that a request addresses; the default, which names no host, is for a head that has not been read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Target {
    authority: Option<HeaderValue>,
    /// The authority comes from the request target, not from the `Host` field.
    is_in_target: bool,
    asterisk: bool,
    scheme: Option<Scheme>,
}

/// Causes for which a request is answered without further examination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadRequest {
    /// HTTP/1.1 without `Host`, or HTTP/2 without `:authority` and `Host` (RFC 9112 section 3.2).
    #[error("the request names no host")]
    MissingHost,
    /// More than one `Host`.
    #[error("the request has more than one Host field")]
    ManyHosts,
    /// A host that is not `host[:port]`.
    #[error("the host is not a name or address with an optional port")]
    BadHost,
    /// `:authority` and `Host` name different hosts (RFC 9113 section 8.3.1).
    #[error("the :authority and the Host field differ")]
    HostsDisagree,
    /// A scheme other than `http`, or `https` in HTTP/1.1 on a clear-text connection (RFC 9110 section 7.4).
    #[error("the target has a scheme that is not served here")]
    ForeignScheme,
    /// `user@host` (RFC 9110 section 4.2.4).
    #[error("the URI has user information")]
    UserInfo,
    /// `host:port` as the target of another method than CONNECT (RFC 9112 section 3.2.3).
    #[error("the target is neither a path nor a URI")]
    AuthorityForm,
    /// `*` as the target of another method than OPTIONS (RFC 9112 section 3.2.4).
    #[error("the target * is for OPTIONS only")]
    Asterisk,
    /// CONNECT: the gateway creates no tunnels, for any target, hence 501 and not 405 (RFC 9110 section 9.1).
    #[error("CONNECT is not implemented")]
    Connect,
    /// A URI longer than [`LONGEST_URI`].
    #[error("the URI is too long")]
    UriTooLong,
    /// A transfer coding that is not `chunked` (RFC 9112 section 6.1 requires 501).
    #[error("chunked is the only transfer coding implemented")]
    UnknownCoding,
    /// `chunked` twice, or with an empty member, or in HTTP/1.0 (RFC 9112 sections 6.1 and 7).
    #[error("Transfer-Encoding must be chunked, once")]
    BadCoding,
    /// A length that is not a decimal number, or several different ones (RFC 9112 section 6.3).
    #[error("Content-Length is not one number")]
    BadLength,
    /// Both framings at once, the means of request smuggling (RFC 9112 section 11.2).
    #[error("Content-Length and Transfer-Encoding exclude each other")]
    LengthAndCoding,
    /// `#` in the target (RFC 9112 section 3.2.1).
    #[error("the target has a fragment")]
    Fragment,
    /// More fields, or longer ones, than the gateway reads.
    #[error("the request's fields are too large")]
    HeadTooLarge,
    /// A field of an HTTP/1.1 connection in HTTP/2 (RFC 9113 section 8.2.2).
    #[error("HTTP/2 has no connection fields")]
    ConnectionField,
    /// More names in `Connection` than the gateway looks up.
    #[error("Connection names more than 100 fields")]
    ManyConnectionNames,
    /// A `grpc-timeout` that is malformed, or several. The remaining time could not be written for a server; gRPC
    /// servers refuse the request, too.
    #[error("grpc-timeout is not one number of at most eight digits with a unit")]
    CallTimeout,
    /// A head whose first line is not a request line (RFC 9112 section 3).
    #[error("the first line is not METHOD TARGET HTTP/1.1")]
    Line,
    /// A target with a byte that no target may have (RFC 9112 section 3.2).
    #[error("the target has the byte {0:#04x}, which must be percent-encoded")]
    TargetByte(u8),
    /// A target in none of the allowed forms (RFC 9112 section 3.2).
    #[error("the target is neither a path nor a URI")]
    NoTarget,
    /// A field with an invalid name or value (RFC 9112 section 5), or invalid framing.
    #[error("a field of the head has no valid name or value")]
    Field,
    /// HTTP/2 on a connection whose handshake has selected HTTP/1.1.
    #[error("the handshake agreed on HTTP/1.1, but the client sent HTTP/2")]
    Preface,
    /// A path that cannot be normalised.
    #[error(transparent)]
    Path(#[from] BadPath),
}

impl From<FramingFault> for BadRequest {
    fn from(finding: FramingFault) -> Self {
        match finding {
            FramingFault::LengthAndCoding => Self::LengthAndCoding,
            FramingFault::Fragment => Self::Fragment,
            FramingFault::TooLarge => Self::HeadTooLarge,
        }
    }
}

impl Target {
    /// Checks a head, and returns the host that it addresses.
    ///
    /// # Errors
    /// The first fault of the head.
    pub fn read(
        method: &Method,
        uri: &Uri,
        version: Version,
        connection: Scheme,
        fields: &HeaderMap,
    ) -> Result<Self, BadRequest> {
        if *method == Method::CONNECT {
            return Err(BadRequest::Connect);
        }
        if length(uri) > LONGEST_URI {
            return Err(BadRequest::UriTooLong);
        }
        let host = check_fields(version, fields)?;
        let authority = match (uri.authority(), version) {
            (Some(_), Version::HTTP_10 | Version::HTTP_11) if uri.scheme().is_none() => {
                return Err(BadRequest::AuthorityForm);
            }
            (Some(authority), _) => {
                Some(check_authority(authority, uri, version, connection, host)?)
            }
            (None, _) => host.cloned(),
        };
        // A port may be empty (RFC 3986 section 3.2.3), which means no port.
        let authority = authority.map(|full| without_empty_port(&full).unwrap_or(full));

        if authority.is_none() && version != Version::HTTP_10 {
            return Err(BadRequest::MissingHost);
        }
        let asterisk = uri.path() == "*";
        if asterisk && *method != Method::OPTIONS {
            return Err(BadRequest::Asterisk);
        }
        Ok(Self {
            is_in_target: uri.authority().is_some() || host != authority.as_ref(),
            authority,
            asterisk,
            scheme: uri
                .scheme_str()
                .and_then(|scheme| Scheme::read(scheme.as_bytes())),
        })
    }

    /// The host with its port, as the client spelled it; empty only in HTTP/1.0.
    #[must_use]
    pub fn host(&self) -> &str {
        let authority = self.authority.as_ref();
        authority
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    }

    /// The `Host` field to forward: the target's own authority if it has one (RFC 9112 section 3.2.2).
    #[must_use]
    pub fn authority(&self) -> Option<&HeaderValue> {
        self.authority.as_ref()
    }

    /// The `Host` field to forward if it comes from the target, and `Host` is absent or different.
    #[must_use]
    pub fn forwarded_authority(&self) -> Option<&HeaderValue> {
        self.authority.as_ref().filter(|_| self.is_in_target)
    }

    /// The scheme that the target names; only a trusted peer's is used.
    #[must_use]
    pub fn scheme(&self) -> Option<Scheme> {
        self.scheme
    }

    /// Is this `OPTIONS *`? The request is about the server that it reaches, so that the gateway answers (RFC 9110
    /// section 9.3.7).
    #[must_use]
    pub fn is_asterisk(&self) -> bool {
        self.asterisk
    }
}

/// The host that a head names despite another fault, for the log.
#[cold]
#[must_use]
pub fn named_host(uri: &Uri, fields: &HeaderMap) -> Option<HeaderValue> {
    let host = match uri.authority() {
        Some(authority) => HeaderValue::from_str(authority.as_str()).ok(),
        None => fields.get(header::HOST).cloned(),
    };
    host.filter(|host| is_host(host.as_bytes()))
}

/// Can the received target be forwarded unchanged? Then it is in origin form, and its path is normal.
#[must_use]
pub fn is_forward_target(uri: &Uri, path: &NormalPath<'_>) -> bool {
    path.is_as_sent()
        && uri.scheme().is_none()
        && uri.authority().is_none()
        && uri.path().starts_with('/')
}

/// The target to forward: the normal path with the unchanged query. A path that is already normal is not copied.
///
/// # Errors
/// If the path has a byte that no URI can have; a path from [`normalize`](crate::route::path::normalize) has none.
pub fn forward_target(uri: &Uri, path: &NormalPath<'_>) -> Result<PathAndQuery, BadRequest> {
    let sent = uri.path_and_query();
    if let Some(sent) = sent
        && path.is_as_sent()
        && sent.as_str().starts_with('/')
    {
        return Ok(sent.clone());
    }
    let text = match sent.and_then(PathAndQuery::query) {
        Some(query) => format!("{}?{query}", path.to_forward()),
        None => path.to_forward().to_owned(),
    };
    PathAndQuery::from_maybe_shared(Bytes::from(text))
        .map_err(|_| BadRequest::Path(BadPath::Character))
}

/// The length of a URI as received, or nearly.
fn length(uri: &Uri) -> usize {
    let path = uri.path_and_query().map_or(0, |path| path.as_str().len());
    let authority = uri.authority().map_or(0, |host| host.as_str().len());
    path + authority
}

/// The `Host` field, after one pass has checked all fields.
fn check_fields(version: Version, fields: &HeaderMap) -> Result<Option<&HeaderValue>, BadRequest> {
    let (mut host, mut length) = (None, None);
    let mut coded = false;
    for (name, value) in fields {
        match *name {
            header::HOST => {
                let other = host.replace(value);
                if other.is_some() {
                    return Err(BadRequest::ManyHosts);
                }
            }
            header::CONTENT_LENGTH => {
                let number = decimal(value.as_bytes()).ok_or(BadRequest::BadLength)?;
                if length.replace(number).is_some_and(|other| other != number) {
                    return Err(BadRequest::BadLength);
                }
            }
            _ if version == Version::HTTP_2 && is_of_connection(name, value) => {
                return Err(BadRequest::ConnectionField);
            }
            header::TRANSFER_ENCODING => coded = true,
            _ => {}
        }
    }
    if coded {
        check_coding(version, fields)?;
        if length.is_some() {
            return Err(BadRequest::LengthAndCoding);
        }
    }
    match host {
        Some(host) if !is_known_or_host(host.as_bytes()) => Err(BadRequest::BadHost),
        // `Host` is required even if the target names a host (RFC 9112 section 3.2.2).
        None if version == Version::HTTP_11 => Err(BadRequest::MissingHost),
        host => Ok(host),
    }
}

/// Is this a connection-specific field (RFC 9113 section 8.2.2)? h2 refuses these fields too; this code does not depend
/// on that.
fn is_of_connection(name: &HeaderName, value: &HeaderValue) -> bool {
    match name.as_str() {
        "connection" | "keep-alive" | "proxy-connection" | "transfer-encoding" | "upgrade" => true,
        "te" => !value.as_bytes().eq_ignore_ascii_case(b"trailers"),
        _ => false,
    }
}

/// Accepts only one line with `chunked` alone. A body whose last coding is another one has no end: hyper refuses such a
/// head itself, with 400.
fn check_coding(version: Version, fields: &HeaderMap) -> Result<(), BadRequest> {
    let lines = || fields.get_all(header::TRANSFER_ENCODING).iter();
    let codings = || {
        let all = lines().flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
        all.map(<[u8]>::trim_ascii)
    };
    let is_chunked = |coding: &[u8]| coding.eq_ignore_ascii_case(b"chunked");
    let mut unknown = codings().filter(|coding| !coding.is_empty() && !is_chunked(coding));
    if codings().next_back().is_some_and(is_chunked) && unknown.next().is_some() {
        return Err(BadRequest::UnknownCoding);
    }
    let once = lines().count() == 1 && codings().count() == 1;
    if once && codings().all(is_chunked) && version == Version::HTTP_11 {
        Ok(())
    } else {
        Err(BadRequest::BadCoding)
    }
}

/// The authority of the target, which outranks `Host`, as a field.
fn check_authority(
    authority: &Authority,
    uri: &Uri,
    version: Version,
    connection: Scheme,
    host: Option<&HeaderValue>,
) -> Result<HeaderValue, BadRequest> {
    let text = authority.as_str();
    // The `https` of an HTTP/2 request comes from a proxy in front of the gateway that terminates TLS.
    let ended = version == Version::HTTP_2 && uri.scheme_str() == Some("https");
    let is_foreign = |named: &str| named != connection.as_str();
    if !ended && uri.scheme_str().is_some_and(is_foreign) {
        return Err(BadRequest::ForeignScheme);
    }
    if text.contains('@') {
        return Err(BadRequest::UserInfo);
    }
    if !is_host(text.as_bytes()) {
        return Err(BadRequest::BadHost);
    }
    let agrees = |host: &HeaderValue| is_same(host.as_bytes(), text.as_bytes(), connection);
    if version == Version::HTTP_2 && !host.is_none_or(agrees) {
        return Err(BadRequest::HostsDisagree);
    }
    HeaderValue::from_str(text).map_err(|_| BadRequest::BadHost)
}

/// Do two authorities of `scheme` name the same host, one of them possibly with the scheme's default port?
fn is_same(one: &[u8], other: &[u8], scheme: Scheme) -> bool {
    let port: &[u8] = match scheme {
        Scheme::Http => b":80",
        Scheme::Https => b":443",
    };
    let named = |text| {
        let text = <[u8]>::strip_suffix(text, b":").unwrap_or(text);
        text.strip_suffix(port).unwrap_or(text)
    };
    named(one).eq_ignore_ascii_case(named(other))
}

/// Is this a host ([`is_host`])? The worker remembers the last valid host: most requests have the same host as the
/// previous request.
fn is_known_or_host(text: &[u8]) -> bool {
    if !text.is_empty() && LAST_HOST.with_borrow(|(last, length)| last[..*length] == *text) {
        return true;
    }
    let is_one = is_host(text);
    if is_one && text.len() <= REMEMBERED {
        LAST_HOST.with_borrow_mut(|(last, length)| {
            last[..text.len()].copy_from_slice(text);
            *length = text.len();
        });
    }
    is_one
}

/// The bytes of the longest host that is remembered.
const REMEMBERED: usize = 64;

thread_local! {
    /// The last valid host, and its length: 0 before the first.
    static LAST_HOST: RefCell<([u8; REMEMBERED], usize)> = const { RefCell::new(([0; REMEMBERED], 0)) };
}

/// Is this `host[:digits]`? The check is stricter than RFC 3986 section 3.2.2: a name has letters, digits and `-._~`
/// only. Escapes and delimiters are in no host's name, and have been used to circumvent many rules.
#[must_use]
pub fn is_host(text: &[u8]) -> bool {
    if text.len() > LONGEST_HOST {
        return false;
    }
    if let Some(inside) = text.strip_prefix(b"[") {
        let Some(end) = inside.iter().position(|byte| *byte == b']') else {
            return false;
        };
        let address = str::from_utf8(&inside[..end]).ok();
        let is_address = address.is_some_and(|text| text.parse::<Ipv6Addr>().is_ok());
        let port = inside.get(end + 1..).unwrap_or_default();
        return is_address && (port.is_empty() || port.strip_prefix(b":").is_some_and(is_port));
    }
    // No label is empty, except after a final dot.
    let (mut length, mut before, mut empty_labels) = (0, DOT, 0);
    for byte in text {
        let class = NAME[usize::from(*byte)];
        if class == OTHER {
            break;
        }
        empty_labels |= before & class & DOT;
        before = class;
        length += 1;
    }
    let port = &text[length..];
    length > 0
        && empty_labels == 0
        && (port.is_empty() || port.strip_prefix(b":").is_some_and(is_port))
}

/// `host:` without its colon.
fn without_empty_port(authority: &HeaderValue) -> Option<HeaderValue> {
    HeaderValue::from_bytes(authority.as_bytes().strip_suffix(b":")?).ok()
}

/// The classes of bytes in a name: outside of labels, in a label, and the dot between labels.
const OTHER: u8 = 0;
const LABEL: u8 = 1;
const DOT: u8 = 2;

static NAME: [u8; 256] = {
    let mut table = [OTHER; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        table[byte as usize] = match byte {
            b'.' => DOT,
            b'-' | b'_' | b'~' => LABEL,
            _ if byte.is_ascii_alphanumeric() => LABEL,
            _ => OTHER,
        };
        byte += 1;
    }
    table
};

fn is_port(digits: &[u8]) -> bool {
    digits.is_empty() || decimal(digits).is_some_and(|port| port <= u64::from(u16::MAX))
}

/// A whole number without sign.
fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, byte| {
        let digit = byte.wrapping_sub(b'0');
        (digit < 10)
            .then(|| number.checked_mul(10)?.checked_add(u64::from(digit)))
            .flatten()
    })
}

#[cfg(test)]
mod tests;
