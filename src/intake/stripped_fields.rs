//! The fields that are dropped from a request before any part reads it, so that routes, limits and the upstream see the
//! same request.

pub mod claimed_fields;
pub mod dropped_names;

use crate::key::OTHER_METHODS;
use crate::snapshot::Snapshot;
use crate::telemetry::log::Throttle;
use bytes::Bytes;
use claimed_fields::{Claim, claim};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use smallvec::SmallVec;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

/// The trust in a request's fields.
#[derive(Debug, Clone)]
pub struct FieldTrust<'n, P> {
    /// Is the peer trusted to name the client's address? The function is called only if a field names an address.
    pub peer: P,
    /// Is every route and limit independent of the method, so that a field may name another method?
    pub other_methods: bool,
    /// The field with one address in which trusted peers name the client, if there is one.
    pub naming: Option<&'n HeaderName>,
}

impl FieldTrust<'_, ()> {
    /// The trust in a request under this snapshot, from a peer that may be trusted.
    pub fn of<P: Fn() -> bool>(snapshot: &Snapshot, peer: P) -> FieldTrust<'_, P> {
        FieldTrust {
            peer,
            other_methods: snapshot.other_methods,
            naming: snapshot.trust.single(),
        }
    }

    /// The trust in a request of a log, which does not record whether the peer was trusted.
    #[must_use]
    pub fn all() -> FieldTrust<'static, impl Fn() -> bool> {
        FieldTrust {
            peer: || true,
            other_methods: true,
            naming: None,
        }
    }
}

/// Normalises the fields, so that all later readers understand them alike. Must be called before any part reads the
/// fields.
///
/// - Fields with `_` in their names are dropped: CGI-like backends cannot tell them from the same name with `-` (RFC
///   9110 section 17.10), so `X_Forwarded_For` would count as `X-Forwarded-For`. Names with `"` are dropped too: HTTP/2
///   allows them, and HTTP/1.1 does not (RFC 9110 section 5.6.2).
/// - Fields in which gateways describe a client, its certificate and its request are dropped, unless a trusted peer
///   sent them ([`claim`]).
/// - Fields that ask an upstream for another method are dropped if a route or a limit depends on the method.
/// - Several `Content-Length` lines, which are equal by the check of the head, become one.
/// - The crumbs of `Cookie` in HTTP/2 become one field (RFC 9113 section 8.2.3).
///
/// Each dropped line is reported. Returns the fields that are dropped because of their names, one for each line; `None`
/// if there are none.
pub fn tidy(
    fields: &mut HeaderMap,
    trusted: &FieldTrust<'_, impl Fn() -> bool>,
    mut report: impl FnMut(&HeaderName, StripCause),
) -> Option<Box<[HeaderName]>> {
    let (mut lengths, mut cookies) = (0, 0);
    let mut odd = SmallVec::<[HeaderName; 4]>::new();
    for name in fields.iter().map(|(name, _)| name) {
        match *name {
            header::CONTENT_LENGTH => lengths += 1,
            header::COOKIE => cookies += 1,
            // Common fields are skipped without examining each letter.
            header::HOST
            | header::USER_AGENT
            | header::ACCEPT
            | header::ACCEPT_ENCODING
            | header::ACCEPT_LANGUAGE
            | header::AUTHORIZATION
            | header::CONNECTION
            | header::CONTENT_TYPE
            | header::ORIGIN
            | header::REFERER => {}
            _ => {
                if let Some(why) = why(name.as_str(), trusted) {
                    report(name, why);
                    odd.push(name.clone());
                }
            }
        }
    }
    if lengths > 1 || cookies > 1 || !odd.is_empty() {
        return mend(fields, lengths, cookies, &odd);
    }
    None
}

/// Repairs the fields, in the rare request with a fault.
#[cold]
fn mend(
    fields: &mut HeaderMap,
    lengths: u32,
    cookies: u32,
    odd: &[HeaderName],
) -> Option<Box<[HeaderName]>> {
    for name in odd {
        fields.remove(name);
    }
    if lengths > 1
        && let Some(first) = fields.get(header::CONTENT_LENGTH).cloned()
    {
        fields.insert(header::CONTENT_LENGTH, first);
    }
    if cookies > 1 {
        join_cookies(fields);
    }
    let misread: Box<[HeaderName]> = odd
        .iter()
        .filter(|name| is_misread(name.as_str()))
        .cloned()
        .collect();
    Some(misread).filter(|names| !names.is_empty())
}

/// Causes for which a field is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StripCause {
    /// The field names an address, and its sender is not trusted.
    Address,
    /// The field describes a client's certificate, and its sender is not trusted.
    Certificate,
    /// The field names the host, scheme, method or path of the original request, and its sender is not trusted.
    Origin,
    /// The field names another method, and a route or a limit depends on the method.
    Method,
    /// Upstreams read the field's name differently.
    Name,
    /// `Connection` names the field.
    Named,
    /// The field identifies the client to the route's servers.
    Identity,
}

impl From<Claim> for StripCause {
    fn from(claim: Claim) -> Self {
        match claim {
            Claim::Address => Self::Address,
            Claim::Certificate => Self::Certificate,
            Claim::Origin => Self::Origin,
        }
    }
}

/// The cause within a sentence: "the field is dropped, since ...".
impl fmt::Display for StripCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Address => {
                "anybody could write any address there, and `[server] trust` does not name the peer that sends it"
            }
            Self::Certificate => {
                "anybody could claim any certificate there, and `[server] trust` does not name the peer that sends it"
            }
            Self::Origin => {
                "anybody could name any host, scheme, method or path there, and `[server] trust` does not name the peer that sends it"
            }
            Self::Method => {
                "it asks for another method than the one that a route or a limit of the file looks at"
            }
            Self::Name => "a name with `_` or `\"` is read as another one by some upstreams",
            Self::Named => "`Connection` names it: it is for this gateway only",
            Self::Identity => {
                "the route's servers read the client's identity from it, so only the gateway may write it"
            }
        })
    }
}

/// The cause for which a field of this name is dropped, if it is dropped.
#[must_use]
pub fn why(name: &str, trusted: &FieldTrust<'_, impl Fn() -> bool>) -> Option<StripCause> {
    let is_naming = || trusted.naming.is_some_and(|naming| *naming == name);
    if let Some(claims) = claim(name).or_else(|| is_naming().then_some(Claim::Address))
        && !(trusted.peer)()
    {
        return Some(claims.into());
    }
    if !trusted.other_methods && asks_for_method(name) {
        return Some(StripCause::Method);
    }
    is_misread(name).then_some(StripCause::Name)
}

/// Do some upstreams treat this name as another one?
fn is_misread(name: &str) -> bool {
    // Names are short: a loop over the bytes costs less than a search that is made for long texts.
    name.bytes().any(|byte| matches!(byte, b'_' | b'"'))
}

/// Does a field of this name ask the upstream for another method than the request's?
#[must_use]
pub fn asks_for_method(name: &str) -> bool {
    // Hardly any field's name has this prefix.
    name.starts_with("x-") && OTHER_METHODS.iter().any(|other| *other == name)
}

fn join_cookies(fields: &mut HeaderMap) {
    let joined = {
        let crumbs = fields.get_all(header::COOKIE).iter();
        let crumbs: SmallVec<[&[u8]; 8]> = crumbs.map(HeaderValue::as_bytes).collect();
        crumbs.join(&b"; "[..])
    };
    if let Ok(cookie) = HeaderValue::from_maybe_shared(Bytes::from(joined)) {
        fields.insert(header::COOKIE, cookie);
    }
}

/// Warns of a proxy in front that `trust` does not name: limits by ip count all clients of such a proxy as one. Only a
/// peer of a private network is assumed to be a proxy, since any client can write the field.
pub fn untrusted_proxy(peer: Option<IpAddr>, fields: &HeaderMap) {
    let Some(peer) = peer else { return };
    let is_private = match peer {
        IpAddr::V4(peer) => peer.is_private(),
        IpAddr::V6(peer) => peer.is_unique_local(),
    };
    if is_private && fields.contains_key("x-forwarded-for") {
        warn_of_proxy(peer);
    }
}

#[cold]
#[inline(never)]
fn warn_of_proxy(peer: IpAddr) {
    static TOLD: Throttle = Throttle::every(Duration::from_secs(3600));
    if let Some(more) = TOLD.pass() {
        tracing::warn!(
            "the proxy {peer} names its clients in X-Forwarded-For, and [server] trust does not name the proxy: limits by \
             ip count all its clients as one{more}"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let line = |(name, value): &(&'static str, &'static str)| {
            let name = HeaderName::from_static(name);
            (name, HeaderValue::from_static(value))
        };
        lines.iter().map(line).collect()
    }

    fn trusted(peer: bool, other_methods: bool) -> FieldTrust<'static, impl Fn() -> bool> {
        FieldTrust {
            peer: move || peer,
            other_methods,
            naming: None,
        }
    }

    fn left(
        sent: &[(&'static str, &'static str)],
        trusted: &FieldTrust<'_, impl Fn() -> bool>,
    ) -> Vec<String> {
        let mut fields = fields(sent);
        tidy(&mut fields, trusted, |_, _| ());
        fields.keys().map(ToString::to_string).collect()
    }

    #[test]
    fn tidy_fields_are_read_alike_by_all() {
        let mut fields = fields(&[
            ("content-length", "5"),
            ("content-length", "5"),
            ("x_forwarded_for", "1.1.1.1"),
            ("x_forwarded_for", "2.2.2.2"),
            ("x-api_key", "k"),
            ("cookie", "a=1"),
            ("cookie", "b=2"),
            ("accept", "x"),
            ("accept", "y"),
        ]);
        tidy(&mut fields, &trusted(true, true), |_, _| ());
        let lines: Vec<_> = fields
            .iter()
            .map(|(name, value)| (name.as_str(), value.to_str().unwrap()))
            .collect();
        let expected = [
            ("content-length", "5"),
            ("cookie", "a=1; b=2"),
            ("accept", "x"),
            ("accept", "y"),
        ];
        assert_eq!(lines.len(), expected.len());
        assert!(
            expected.iter().all(|line| lines.contains(line)),
            "{lines:?}"
        );
    }

    #[test]
    fn who_is_not_trusted_tells_no_address() {
        const SENT: [(&str, &str); 9] = [
            ("true-client-ip", "1.1.1.1"),
            ("x-forwarded", "1.1.1.1"),
            ("cf-connecting-ip", "1.1.1.1"),
            ("x-client-ip", "1.1.1.1"),
            ("x-cluster-client-ip", "1.1.1.1"),
            ("x-real-ip", "1.1.1.1"),
            ("forwarded-for", "1.1.1.1"),
            ("proxy", "http://evil.example.com"),
            ("x-other", "kept"),
        ];
        assert_eq!(left(&SENT, &trusted(false, true)), ["x-other"]);
        assert_eq!(left(&SENT, &trusted(true, true)).len(), SENT.len());
    }

    #[test]
    fn who_is_not_trusted_claims_no_certificate() {
        const SENT: [(&str, &str); 4] = [
            ("client-cert", ":MA==:"),
            ("client-cert-chain", ":MA==:"),
            ("x-forwarded-client-cert", "Hash=1"),
            ("x-other", "kept"),
        ];
        assert_eq!(left(&SENT, &trusted(false, true)), ["x-other"]);
        assert_eq!(left(&SENT, &trusted(true, true)).len(), SENT.len());
    }

    #[test]
    fn who_is_not_trusted_tells_no_host_and_no_scheme() {
        const SENT: [(&str, &str); 4] = [
            ("x-original-host", "evil.example.com"),
            ("front-end-https", "on"),
            ("x-original-method", "DELETE"),
            ("x-other", "kept"),
        ];
        assert_eq!(left(&SENT, &trusted(false, true)), ["x-other"]);
        assert_eq!(left(&SENT, &trusted(true, true)).len(), SENT.len());
    }

    #[test]
    fn no_field_asks_for_another_method_than_the_one_that_was_looked_at() {
        const SENT: [(&str, &str); 3] = [
            ("x-http-method-override", "DELETE"),
            ("x-http-method", "DELETE"),
            ("x-method-override", "DELETE"),
        ];
        assert!(left(&SENT, &trusted(true, false)).is_empty());
        assert_eq!(left(&SENT, &trusted(false, true)).len(), SENT.len());
    }
}
