//! What the lines of a trace lack, though answers depend on it: clients, paths, and what limits count by.

use super::policy_side::{LoggedHead, PolicySide};
use super::report::{LineSample, Note};
use super::request::{LogFormat, LoggedRequest};
use crate::key::KeyPart;
use crate::key::client_ip::Trust;
use http::HeaderName;
use std::net::IpAddr;
use std::sync::Arc;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// What has been seen so far.
#[derive(Debug)]
pub(super) struct MissingFields {
    /// Lines by how they are written.
    pub(super) formats: [u64; LogFormat::ALL.len()],
    /// Lines without a client and without a path: they are no requests.
    pub(super) nameless: LineSample<()>,
    /// Requests without a client.
    pub(super) clientless: LineSample<()>,
    /// Requests without a path.
    pub(super) pathless: LineSample<()>,
    /// What no line has had yet, of all that an answer needs.
    expected: Vec<ExpectedField>,
    spread: ClientSpread,
    has_nameless_fields: bool,
    /// A private peer with a list of addresses that `trust` does not believe.
    untrusted: Option<IpAddr>,
}

#[derive(Debug, PartialEq, Eq)]
enum ExpectedField {
    /// A limit counts by it.
    Part { limit: Arc<str>, part: KeyPart },
    /// Routes ask for one.
    Host,
}

/// Which addresses the lines have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientSpread {
    /// None yet.
    Empty,
    /// One address, and how many lines have it.
    Single(IpAddr, u64),
    /// Several, all of them trusted.
    Trusted,
    /// Several, not all of them trusted.
    Mixed,
}

impl MissingFields {
    /// Of a trace for these files.
    pub(super) fn new(sides: &[PolicySide]) -> Self {
        let mut expected = Vec::new();
        for side in sides {
            for limit in side.limits() {
                for part in limit.by.parts.iter().filter(|part| may_be_unsaid(part)) {
                    let limit = Arc::clone(limit.shown());
                    let want = ExpectedField::Part {
                        limit,
                        part: part.clone(),
                    };
                    if !expected.contains(&want) {
                        expected.push(want);
                    }
                }
            }
            if side.asks_for_hosts() && !expected.contains(&ExpectedField::Host) {
                expected.push(ExpectedField::Host);
            }
        }
        Self {
            formats: Default::default(),
            nameless: LineSample::default(),
            clientless: LineSample::default(),
            pathless: LineSample::default(),
            expected,
            spread: ClientSpread::Empty,
            has_nameless_fields: false,
            untrusted: None,
        }
    }

    /// Looks at a line's request; `address` is the client's for `side`.
    #[inline]
    pub(super) fn look(
        &mut self,
        number: u64,
        request: &LoggedRequest<'_>,
        head: &LoggedHead,
        address: Option<IpAddr>,
        side: &PolicySide,
    ) {
        self.formats[request.format as usize] += 1;
        if address.is_none() || !request.names_path {
            self.count_missing(number, request);
        }
        if !self.expected.is_empty() {
            self.expected.retain(|want| !want.is_met(request, head));
        }
        if let (Some(address), true) = (address, self.spread != ClientSpread::Mixed) {
            self.spread = self.spread.and(address, side.trust());
        }
        if let Some(proxy_fields) = &request.proxy_fields {
            self.has_nameless_fields |= proxy_fields.has_nameless_fields;
            self.look_back(head, address, side);
        }
    }

    #[cold]
    fn look_back(&mut self, head: &LoggedHead, address: Option<IpAddr>, side: &PolicySide) {
        let is_strange =
            |address: &IpAddr| is_private(*address) && !side.trust().believes(*address);
        if self.untrusted.is_none() && head.has(&X_FORWARDED_FOR) {
            self.untrusted = address.filter(is_strange);
        }
    }

    #[cold]
    fn count_missing(&mut self, number: u64, request: &LoggedRequest<'_>) {
        if request.client.is_none() {
            self.clientless.add(number, ());
        }
        if !request.names_path {
            self.pathless.add(number, ());
        }
    }

    /// Notes for the reader of the report.
    pub(super) fn notes(&self, trust: &Trust) -> Vec<Note> {
        let mut notes = Vec::new();
        match self.spread {
            ClientSpread::Trusted => notes.push(Note::TrustedClientsOnly),
            ClientSpread::Single(address, _) if trust.believes(address) => {
                notes.push(Note::TrustedClientsOnly)
            }
            _ if self.untrusted.is_some() => {
                notes.extend(self.untrusted.map(Note::UntrustedPeer));
            }
            ClientSpread::Single(address, 2..) if is_private(address) => {
                notes.push(Note::SinglePrivateClient(address))
            }
            _ => {}
        }
        let has_requests = self.formats.iter().any(|count| *count > 0);
        for want in self.expected.iter().filter(|_| has_requests) {
            notes.push(match want {
                ExpectedField::Part { limit, part } => Note::MissingPart {
                    limit: Arc::clone(limit),
                    part: part.to_string(),
                },
                ExpectedField::Host => Note::NoHost,
            });
        }
        if self.formats[LogFormat::Haproxy as usize] > 0 {
            notes.push(Note::NoZone);
        }
        if self.has_nameless_fields {
            notes.push(Note::NamelessFields);
        }
        notes
    }
}

/// Is there a log that has everything else, and not this?
fn may_be_unsaid(part: &KeyPart) -> bool {
    match part {
        KeyPart::Header { .. }
        | KeyPart::Cookie(_)
        | KeyPart::Query { .. }
        | KeyPart::Jwt { .. }
        | KeyPart::Host => true,
        KeyPart::Ip(_) | KeyPart::Path(_) | KeyPart::Method | KeyPart::Route => false,
    }
}

impl ExpectedField {
    fn is_met(&self, request: &LoggedRequest<'_>, head: &LoggedHead) -> bool {
        match self {
            Self::Host => head.names_host(request),
            Self::Part { limit, part } => {
                request.logged_key(limit).is_some()
                    || match part {
                        KeyPart::Header { name, .. } => head.has(name),
                        KeyPart::Cookie(_) => head.has(&http::header::COOKIE),
                        KeyPart::Query { .. } => request.query().is_some(),
                        KeyPart::Host => head.names_host(request),
                        // A replay verifies no token.
                        _ => false,
                    }
            }
        }
    }
}

impl ClientSpread {
    fn and(self, address: IpAddr, trust: &Trust) -> Self {
        match self {
            Self::Empty => Self::Single(address, 1),
            Self::Single(one, many) if one == address => Self::Single(one, many + 1),
            Self::Single(one, _) if !trust.believes(one) => Self::Mixed,
            Self::Single(..) | Self::Trusted if trust.believes(address) => Self::Trusted,
            _ => Self::Mixed,
        }
    }
}

/// An address that no client on the internet has.
fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            // Carriers share the last (RFC 6598), and clusters take it.
            let shared = v4.octets()[0] == 100 && v4.octets()[1] & 0xc0 == 64;
            v4.is_private() || v4.is_loopback() || v4.is_link_local() || shared
        }
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unique_local() || v6.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxys_log_is_known_by_its_addresses() {
        let trust = Trust::new(vec!["10.0.0.0/8".parse().unwrap()]);
        let spread = |addresses: &[&str]| {
            let all = addresses.iter().map(|at| at.parse().unwrap());
            all.fold(ClientSpread::Empty, |spread, at| spread.and(at, &trust))
        };
        assert_eq!(
            spread(&["10.0.0.1", "10.0.0.2", "10.0.0.1"]),
            ClientSpread::Trusted
        );
        assert_eq!(
            spread(&["10.0.0.1", "10.0.0.2", "192.0.2.1"]),
            ClientSpread::Mixed
        );
        assert_eq!(spread(&["10.0.0.1", "192.0.2.1"]), ClientSpread::Mixed);
        assert_eq!(spread(&["192.168.0.1", "10.0.0.1"]), ClientSpread::Mixed);
        let one = "192.168.0.1";
        assert_eq!(
            spread(&[one, one]),
            ClientSpread::Single(one.parse().unwrap(), 2)
        );
        for (address, private) in [
            ("192.168.1.1", true),
            ("172.31.0.1", true),
            ("100.64.0.1", true),
            ("127.0.0.1", true),
            ("fd00::1", true),
            ("::1", true),
            ("100.128.0.1", false),
            ("203.0.113.9", false),
            ("2001:db8::1", false),
        ] {
            assert_eq!(is_private(address.parse().unwrap()), private, "{address}");
        }
    }
}
