//! The fields that name a request's origin to the upstream, and the treatment of those that the request already has.
//!
//! One rule applies to the whole family of fields: an untrusted peer's fields are deleted and ours replace them; a
//! trusted peer's are extended by the peer. `Via` and `Max-Forwards` (`hops`) count hops.

pub mod hops;
pub mod lines;

use crate::client::Scheme;
use crate::intake::hop_fields::tokens;
use crate::intake::peer::{
    X_FORWARDED_PROTO, forwarded_host, forwarded_origin, forwarded_scheme, last_member,
};
use crate::key::address::AddressText;
use crate::key::client_ip::{Field, OriginFields, Trust};
use crate::key::forwarded::nodes;
use crate::key::node::{ForwardedNode, read_node};
use crate::listen::ForwardedFields;
use crate::proxy::server::hop;
use http::{HeaderMap, HeaderName, HeaderValue, Version, header};
use smallvec::SmallVec;
use std::net::IpAddr;
use std::rc::Rc;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
/// The path prefix that servers do not see.
pub(in crate::proxy) const X_FORWARDED_PREFIX: HeaderName =
    HeaderName::from_static("x-forwarded-prefix");
const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// The peer of a Unix socket in `Forwarded`: a name of our own, which begins with an underscore (RFC 7239 section 6.3).
const UNIX_NODE: &[u8] = b"_unix";

/// The origin of a request.
#[derive(Debug, Clone, Copy)]
pub struct Origin<'a> {
    /// The far end of the connection; `None` if it has no address, on a Unix socket.
    pub peer: Option<IpAddr>,
    /// The client, as determined by [`Trust::client`].
    pub client: Option<IpAddr>,
    /// The fields of the peer that are trusted, if any are ([`Trust::believes`]).
    pub trusted: Option<TrustedFields>,
    /// The host that the client requested, with its port. An HTTP/1.0 client may have named none.
    pub host: Option<&'a HeaderValue>,
    /// The scheme that the client has used, if the peer is trusted.
    pub scheme: Scheme,
    /// The version of the received request.
    pub version: Version,
    /// The host comes from the target, and `Host` is absent or different.
    pub has_target_host: bool,
}

/// The fields of a trusted peer that are used.
#[derive(Debug, Clone, Copy)]
pub struct TrustedFields {
    /// The only field that is used ([`Trust::leading`]): the other one comes from an untrusted client.
    pub leading: Option<Field>,
    /// The fields that give the scheme and the host ([`Trust::speaks`]).
    pub speaks: OriginFields,
}

impl TrustedFields {
    /// The trusted fields of the peer at `address`; `None` if the peer is not trusted.
    #[must_use]
    pub fn of(trust: &Trust, address: Option<IpAddr>, fields: &HeaderMap) -> Option<Self> {
        trust.trusts(address).then(|| Self {
            leading: trust.leading(address, fields),
            speaks: trust.speaks(address, fields),
        })
    }
}

/// A field's value while it is written.
#[derive(Default)]
struct ValueBuffer(SmallVec<[u8; 256]>);

impl ValueBuffer {
    fn text(&mut self, text: &[u8]) {
        self.0.extend_from_slice(text);
    }

    /// One more entry of a list of addresses.
    fn entry(&mut self, address: Option<IpAddr>) {
        if !self.0.is_empty() {
            self.text(b", ");
        }
        match address {
            Some(address) => self.address(address),
            None => self.text(b"unknown"),
        }
    }

    fn address(&mut self, address: IpAddr) {
        self.text(AddressText::of(address.to_canonical()).as_bytes());
    }
}

/// Writes `Forwarded` (RFC 7239), `X-Forwarded-For`, `-Proto`, `-Host` and `X-Real-IP`.
///
/// From an untrusted peer, every field of the family is removed first: all of `X-Forwarded-*`, and the fields from
/// which some frameworks take another path than the matched one.
///
/// From a trusted peer, `Proto` and `Host` stay unchanged if they are selected for the origin, or take the values of
/// the peer's element of `Forwarded` if that is selected. If only one of the two chains is present, or only one is
/// trusted, the other is derived from it (RFC 7239 section 7.4), so that the next reader finds them in agreement. The
/// same applies if a `Forwarded` that is not selected names another scheme or host. Two chains neither of which is
/// trusted are replaced like an untrusted peer's.
///
/// Must be called after the hop-by-hop fields are stripped and the client has been determined.
///
/// The fields of an untrusted connection are the same for every request: `introduced` caches them, for one peer only.
pub fn announce(
    fields: &mut HeaderMap,
    origin: &Origin<'_>,
    introduced: &mut Option<Rc<ForwardedFields>>,
) {
    if let Some(TrustedFields { leading, speaks }) = origin.trusted {
        let (scheme, host) = forwarded_origin(fields, speaks);
        match leading {
            Some(Field::XForwardedFor) => drop(fields.remove(header::FORWARDED)),
            Some(Field::Forwarded) => drop(fields.remove(X_FORWARDED_FOR)),
            Some(Field::Single) => begin_with_client(fields, origin),
            None => {}
        }
        if !speaks.listed {
            forget(fields);
            fields.remove(X_FORWARDED_PROTO);
        }
        if scheme.is_some() || !fields.contains_key(X_FORWARDED_PROTO) {
            set_scheme(fields, origin, scheme);
        }
        match host {
            Some(host) => drop(fields.insert(X_FORWARDED_HOST, host)),
            None if !fields.contains_key(X_FORWARDED_HOST) => set_host(fields, origin),
            None => {}
        }
        if !speaks.forwarded && contradicts(fields) {
            fields.remove(header::FORWARDED);
        }
        extend_chains(fields, origin);
        set_address(fields, X_REAL_IP, origin.client);
    } else {
        forget(fields);
        introduce(fields, origin, introduced);
        set_scheme(fields, origin, None);
        set_host(fields, origin);
    }
}

/// Replaces both chains by the client, which the peer has named in another field. The peer follows, as in every chain.
#[cold]
fn begin_with_client(fields: &mut HeaderMap, origin: &Origin<'_>) {
    fields.remove(header::FORWARDED);
    fields.remove(X_FORWARDED_FOR);
    if let Some(client) = origin.client.filter(|_| origin.client != origin.peer) {
        set(fields, X_FORWARDED_FOR, |line| line.address(client));
    }
}

/// Names the `prefix` of a path that its server does not see, after the one that a trusted peer has named. Must be
/// called after [`announce`], which keeps a trusted peer's field.
#[cold]
pub(in crate::proxy) fn add_prefix(fields: &mut HeaderMap, prefix: &HeaderValue) {
    let mut whole = ValueBuffer::default();
    for part in tokens(fields, &X_FORWARDED_PREFIX) {
        whole.text(part.strip_suffix(b"/").unwrap_or(part));
    }
    whole.text(prefix.as_bytes());
    let whole = HeaderValue::from_bytes(&whole.0).unwrap_or_else(|_| prefix.clone());
    fields.insert(X_FORWARDED_PREFIX, whole);
}

/// Removes all fields of an untrusted peer that only proxies write.
fn forget(fields: &mut HeaderMap) {
    hop::remove_all(fields, |name| {
        // Fields that are inserted anyway need not be removed.
        let ours = || {
            matches!(
                name.as_str(),
                "forwarded" | "x-forwarded-for" | "x-forwarded-proto" | "x-real-ip"
            )
        };
        is_of_proxies(name) && !ours()
    });
}

/// Is this a field that only proxies write: about the client, the scheme, the host or the path?
#[must_use]
pub fn is_of_proxies(name: &HeaderName) -> bool {
    let name = name.as_str();
    match name.strip_prefix("x-") {
        Some(rest) => {
            rest.starts_with("forwarded-")
                || matches!(rest, "real-ip" | "original-url" | "rewrite-url")
        }
        None => name == "forwarded",
    }
}

/// Does `Forwarded` name another scheme or host than the other fields?
fn contradicts(fields: &HeaderMap) -> bool {
    let is_other = |claimed: Option<&[u8]>, name: HeaderName| {
        let said = last_member(fields, &name);
        claimed.is_some_and(|claimed| !said.is_some_and(|said| claimed.eq_ignore_ascii_case(said)))
    };
    let host = forwarded_host(fields);
    is_other(
        forwarded_scheme(fields).map(|scheme| scheme.as_str().as_bytes()),
        X_FORWARDED_PROTO,
    ) || is_other(host.as_ref().map(HeaderValue::as_bytes), X_FORWARDED_HOST)
}

/// Writes both chains, beginning with the peer, and the peer as the client.
fn introduce(
    fields: &mut HeaderMap,
    origin: &Origin<'_>,
    introduced: &mut Option<Rc<ForwardedFields>>,
) {
    let Some(known) = known(origin, introduced) else {
        // Addresses and validated hosts are always valid values. If one is not, no field is better than an untrusted
        // one.
        for name in [X_FORWARDED_FOR, X_REAL_IP, header::FORWARDED] {
            fields.remove(name);
        }
        return;
    };
    fields.insert(X_FORWARDED_FOR, known.address.clone());
    fields.insert(X_REAL_IP, known.address.clone());
    fields.insert(header::FORWARDED, known.element.clone());
}

/// The fields that announce an untrusted peer: the cached ones of the previous request, if they fit.
fn known<'a>(
    origin: &Origin<'_>,
    introduced: &'a mut Option<Rc<ForwardedFields>>,
) -> Option<&'a Rc<ForwardedFields>> {
    let is_known = |known: &Rc<ForwardedFields>| {
        known.version == origin.version
            && known.has_target_host == origin.has_target_host
            && known.host.as_ref() == origin.host
    };
    if !introduced.as_ref().is_some_and(is_known) {
        *introduced = compose(origin).map(Rc::new);
    }
    introduced.as_ref()
}

#[inline(never)]
fn compose(origin: &Origin<'_>) -> Option<ForwardedFields> {
    let (mut address, mut element) = (ValueBuffer::default(), ValueBuffer::default());
    address.address(origin.peer?);
    write_element(&mut element, origin);
    let address = HeaderValue::from_bytes(&address.0).ok()?;
    let element = HeaderValue::from_bytes(&element.0).ok()?;
    Some(ForwardedFields {
        // The value is copied: a clone would keep the whole buffer of the request's head alive.
        host: match origin.host {
            Some(host) => Some(HeaderValue::from_bytes(host.as_bytes()).ok()?),
            None => None,
        },
        version: origin.version,
        has_target_host: origin.has_target_host,
        lines: lines::compose(origin, &address, &element),
        address,
        element,
    })
}

/// Writes both chains, beginning with the peer.
fn begin_chains(fields: &mut HeaderMap, origin: &Origin<'_>) {
    set_address(fields, X_FORWARDED_FOR, origin.peer);
    set(fields, header::FORWARDED, |line| {
        write_element(line, origin)
    });
}

fn extend_chains(fields: &mut HeaderMap, origin: &Origin<'_>) {
    let has = |name: &HeaderName| fields.contains_key(name);
    let peer = origin.peer.map(|peer| peer.to_canonical());
    match (has(&X_FORWARDED_FOR), has(&header::FORWARDED)) {
        (true, true) if origin.client.map(|client| client.to_canonical()) != peer => {
            append_address(fields, X_FORWARDED_FOR, peer);
            append(fields, header::FORWARDED, |line| {
                write_element(line, origin)
            });
        }
        (true, false) => {
            let mut chain = ValueBuffer::default();
            for entry in tokens(fields, &X_FORWARDED_FOR) {
                // Empty elements do not count.
                if entry.is_empty() {
                    continue;
                }
                chain.text(b"for=");
                write_node(&mut chain, read_node(entry).address());
                chain.text(b", ");
            }
            write_element(&mut chain, origin);
            append_address(fields, X_FORWARDED_FOR, peer);
            set(fields, header::FORWARDED, |line| *line = chain);
        }
        (false, true) => {
            let mut chain = ValueBuffer::default();
            for line in fields.get_all(header::FORWARDED) {
                let nodes: SmallVec<[ForwardedNode; 8]> = nodes(line.as_bytes()).collect();
                for node in nodes.iter().rev() {
                    chain.entry(node.address());
                }
            }
            if let Some(peer) = peer {
                chain.entry(Some(peer));
            }
            append(fields, header::FORWARDED, |line| {
                write_element(line, origin)
            });
            set(fields, X_FORWARDED_FOR, |line| *line = chain);
        }
        // There is no chain, or there are two untrusted ones.
        _ => begin_chains(fields, origin),
    }
}

fn set_scheme(fields: &mut HeaderMap, origin: &Origin<'_>, forwarded: Option<Scheme>) {
    const HTTP: HeaderValue = HeaderValue::from_static("http");
    const HTTPS: HeaderValue = HeaderValue::from_static("https");
    let scheme = match forwarded.unwrap_or(origin.scheme) {
        Scheme::Http => HTTP,
        Scheme::Https => HTTPS,
    };
    fields.insert(X_FORWARDED_PROTO, scheme);
}

fn set_host(fields: &mut HeaderMap, origin: &Origin<'_>) {
    if let Some(host) = origin.host {
        fields.insert(X_FORWARDED_HOST, host.clone());
    }
}

/// Sets a field to the value that `compose` writes.
fn set(fields: &mut HeaderMap, name: HeaderName, compose: impl FnOnce(&mut ValueBuffer)) {
    let mut line = ValueBuffer::default();
    compose(&mut line);
    match HeaderValue::from_bytes(&line.0) {
        Ok(value) => drop(fields.insert(name, value)),
        // Addresses, validated hosts and parts of fields are always valid values. If one is not, no field is better
        // than an untrusted one.
        Err(_) => drop(fields.remove(name)),
    }
}

/// Sets a field to an address. Without an address there is no such field: no reader accepts another text as an address.
fn set_address(fields: &mut HeaderMap, name: HeaderName, address: Option<IpAddr>) {
    match address {
        Some(address) => set(fields, name, |line| line.address(address)),
        None => drop(fields.remove(name)),
    }
}

/// Adds an address to a list of addresses, if there is one.
fn append_address(fields: &mut HeaderMap, name: HeaderName, address: Option<IpAddr>) {
    if let Some(address) = address {
        append(fields, name, |line| line.address(address));
    }
}

/// Joins a field's lines and adds the text that `compose` writes: some origins read the first line only. Empty elements
/// at the ends of lines are left out: a sent list must have none (RFC 9110, section 5.6.1).
fn append(fields: &mut HeaderMap, name: HeaderName, compose: impl FnOnce(&mut ValueBuffer)) {
    let mut joined = ValueBuffer::default();
    for line in fields.get_all(&name) {
        let line = without_empty_ends(line.as_bytes());
        if !line.is_empty() {
            joined.text(line);
            joined.text(b", ");
        }
    }
    set(fields, name, |line| {
        *line = joined;
        compose(line);
    });
}

/// A list without the commas and blanks at its ends.
fn without_empty_ends(list: &[u8]) -> &[u8] {
    let is_of_element = |byte: &u8| !matches!(byte, b' ' | b'\t' | b',');
    let start = list.iter().position(is_of_element);
    let end = list.iter().rposition(is_of_element);
    match (start, end) {
        (Some(start), Some(end)) => &list[start..=end],
        _ => &[],
    }
}

/// One element of `Forwarded`: `for=192.0.2.1;host=api.example.com;proto=http`.
fn write_element(line: &mut ValueBuffer, origin: &Origin<'_>) {
    line.text(b"for=");
    match origin.peer {
        Some(peer) => write_node(line, Some(peer)),
        None => line.text(UNIX_NODE),
    }
    if let Some(host) = origin.host {
        line.text(b";host=");
        write_value(line, host.as_bytes());
    }
    line.text(b";proto=");
    line.text(origin.scheme.as_str().as_bytes());
}

/// Writes an address as a node: IPv6 in brackets and quotes (RFC 7239 section 6), a missing address as `unknown`.
fn write_node(line: &mut ValueBuffer, address: Option<IpAddr>) {
    match address.map(|address| address.to_canonical()) {
        Some(IpAddr::V6(v6)) => {
            line.text(b"\"[");
            line.address(IpAddr::V6(v6));
            line.text(b"]\"");
        }
        Some(v4) => line.address(v4),
        None => line.text(b"unknown"),
    }
}

/// Writes a token unchanged, any other text quoted (RFC 7239 section 4): a host with a port has a colon.
fn write_value(line: &mut ValueBuffer, text: &[u8]) {
    let is_token =
        |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
    if text.iter().all(is_token) && !text.is_empty() {
        line.text(text);
        return;
    }
    line.text(b"\"");
    for byte in text {
        if matches!(byte, b'"' | b'\\') {
            line.text(b"\\");
        }
        line.text(&[*byte]);
    }
    line.text(b"\"");
}

#[cfg(test)]
mod tests;
