//! The far end of a request's connection, and the scheme and host that it reports if trusted.

use super::head::{Target, is_host};
use super::hop_fields::tokens;
use crate::client::Scheme;
use crate::key::client_ip::{OriginFields, Trust};
use crate::key::forwarded::last;
use crate::listen::Peer;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use std::net::IpAddr;

/// The field in which proxies list the schemes of a request.
pub const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// The far end of a request's connection.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionPeer {
    /// The peer's address, which the peer of a Unix socket lacks.
    pub address: Option<IpAddr>,
    /// The connection's scheme.
    pub scheme: Scheme,
    /// Is it a client that its proxy does not name? The address then means the proxy only.
    pub is_unnamed: bool,
}

impl ConnectionPeer {
    /// The far end of a connection.
    #[inline]
    #[must_use]
    pub fn of(peer: &Peer) -> Self {
        Self {
            address: peer.ip(),
            scheme: peer.scheme,
            is_unnamed: peer.is_unnamed,
        }
    }

    /// Is the peer trusted to report its client?
    #[must_use]
    pub fn is_trusted(&self, trust: &Trust) -> bool {
        !self.is_unnamed && trust.trusts(self.address)
    }
}

/// The scheme of a client's request. It is the connection's, unless the peer is trusted. A trusted peer's scheme is the
/// last of `X-Forwarded-Proto`, or the one of its element of `Forwarded`, by the rules of [`Trust::speaks`]. Without
/// either field, the scheme of the target is used.
#[must_use]
pub fn client_scheme(
    trust: &Trust,
    peer: ConnectionPeer,
    fields: &HeaderMap,
    target: &Target,
) -> Scheme {
    if !peer.is_trusted(trust) {
        return peer.scheme;
    }
    let speaks = trust.speaks(peer.address, fields);
    if let Some(scheme) = forwarded_origin(fields, speaks).0 {
        return scheme;
    }
    match last_member(fields, &X_FORWARDED_PROTO) {
        Some(word) if speaks.listed => Scheme::read(word).unwrap_or(Scheme::Http),
        _ => target.scheme().unwrap_or(peer.scheme),
    }
}

/// The last member of a list that is not empty.
pub fn last_member<'a>(fields: &'a HeaderMap, name: &HeaderName) -> Option<&'a [u8]> {
    let members = tokens(fields, name);
    members.filter(|member| !member.is_empty()).last()
}

/// The scheme and the host in `Forwarded`, if that field is selected.
pub fn forwarded_origin(
    fields: &HeaderMap,
    speaks: OriginFields,
) -> (Option<Scheme>, Option<HeaderValue>) {
    if speaks.forwarded {
        (forwarded_scheme(fields), forwarded_host(fields))
    } else {
        (None, None)
    }
}

/// The scheme in the last hop's element of `Forwarded`.
pub fn forwarded_scheme(fields: &HeaderMap) -> Option<Scheme> {
    Scheme::read(last(lines_of_forwarded(fields), "proto")?.as_bytes())
}

/// The lines of `Forwarded`, the last first.
fn lines_of_forwarded(fields: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    let lines = fields.get_all(header::FORWARDED).into_iter().rev();
    lines.map(HeaderValue::as_bytes)
}

/// The requested host in the last hop's element of `Forwarded`.
pub fn forwarded_host(fields: &HeaderMap) -> Option<HeaderValue> {
    let host = last(lines_of_forwarded(fields), "host")?;
    is_host(host.as_bytes())
        .then(|| HeaderValue::from_str(&host).ok())
        .flatten()
}
