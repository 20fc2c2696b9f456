//! What a trace does not say, and its answer would hang on: who asked, for what, and what limits count by.

use super::line::{Form, Request};
use super::report::{Note, Odd};
use super::side::{Head, Side};
use crate::key::KeyPart;
use crate::key::client_ip::Trust;
use http::HeaderName;
use std::net::IpAddr;
use std::sync::Arc;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// What has been seen so far.
#[derive(Debug)]
pub(super) struct Lacks {
    /// Lines by how they are written.
    pub(super) forms: [u64; Form::ALL.len()],
    /// Lines that say neither who asked nor for what: no requests.
    pub(super) nameless: Odd<()>,
    /// Requests without a client.
    pub(super) clientless: Odd<()>,
    /// Requests without a path.
    pub(super) pathless: Odd<()>,
    /// What no line has said yet, of all that an answer needs.
    wants: Vec<Want>,
    crowd: Crowd,
    has_nameless_fields: bool,
    /// A private peer whose list of addresses was not believed.
    unbelieved: Option<IpAddr>,
}

#[derive(Debug, PartialEq, Eq)]
enum Want {
    /// A limit counts by it.
    Part { limit: Arc<str>, part: KeyPart },
    /// Routes ask for one.
    Host,
}

/// Whose addresses the lines have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Crowd {
    /// Nobody's yet.
    Nobody,
    /// That of one, so often.
    One(IpAddr, u64),
    /// Of several that are all trusted.
    Trusted,
    /// Of somebody else, too.
    Others,
}

impl Lacks {
    /// Of a trace for these files.
    pub(super) fn new(sides: &[Side]) -> Self {
        let mut wants = Vec::new();
        for side in sides {
            for limit in side.limits() {
                for part in limit.by.parts.iter().filter(|part| may_be_unsaid(part)) {
                    let limit = Arc::clone(limit.shown());
                    let want = Want::Part {
                        limit,
                        part: part.clone(),
                    };
                    if !wants.contains(&want) {
                        wants.push(want);
                    }
                }
            }
            if side.asks_for_hosts() && !wants.contains(&Want::Host) {
                wants.push(Want::Host);
            }
        }
        Self {
            forms: Default::default(),
            nameless: Odd::default(),
            clientless: Odd::default(),
            pathless: Odd::default(),
            wants,
            crowd: Crowd::Nobody,
            has_nameless_fields: false,
            unbelieved: None,
        }
    }

    /// Looks at a line's request; `address` is who `side` takes for its client.
    #[inline]
    pub(super) fn look(
        &mut self,
        number: u64,
        (request, head): (&Request<'_>, &Head),
        address: Option<IpAddr>,
        side: &Side,
    ) {
        self.forms[request.form as usize] += 1;
        if address.is_none() || !request.names_path {
            self.say_less(number, request);
        }
        if !self.wants.is_empty() {
            self.wants.retain(|want| !want.is_met(request, head));
        }
        if let (Some(address), true) = (address, self.crowd != Crowd::Others) {
            self.crowd = self.crowd.and(address, side.trust());
        }
        if let Some(beside) = &request.beside {
            self.has_nameless_fields |= beside.has_nameless_fields;
            self.look_back(head, address, side);
        }
    }

    #[cold]
    fn look_back(&mut self, head: &Head, address: Option<IpAddr>, side: &Side) {
        let is_strange =
            |address: &IpAddr| is_private(*address) && !side.trust().believes(*address);
        if self.unbelieved.is_none() && head.has(&X_FORWARDED_FOR) {
            self.unbelieved = address.filter(is_strange);
        }
    }

    #[cold]
    fn say_less(&mut self, number: u64, request: &Request<'_>) {
        if request.client.is_none() {
            self.clientless.add(number, ());
        }
        if !request.names_path {
            self.pathless.add(number, ());
        }
    }

    /// What is to be told of it to who reads the answer.
    pub(super) fn notes(&self, trust: &Trust) -> Vec<Note> {
        let mut notes = Vec::new();
        match self.crowd {
            Crowd::Trusted => notes.push(Note::TrustedAlone),
            Crowd::One(address, _) if trust.believes(address) => notes.push(Note::TrustedAlone),
            _ if self.unbelieved.is_some() => {
                notes.extend(self.unbelieved.map(Note::Unbelieved));
            }
            Crowd::One(address, 2..) if is_private(address) => notes.push(Note::OneAlone(address)),
            _ => {}
        }
        let has_requests = self.forms.iter().any(|count| *count > 0);
        for want in self.wants.iter().filter(|_| has_requests) {
            notes.push(match want {
                Want::Part { limit, part } => Note::Unsaid {
                    limit: Arc::clone(limit),
                    part: part.to_string(),
                },
                Want::Host => Note::NoHost,
            });
        }
        if self.forms[Form::Haproxy as usize] > 0 {
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

impl Want {
    fn is_met(&self, request: &Request<'_>, head: &Head) -> bool {
        match self {
            Self::Host => head.names_host(request),
            Self::Part { limit, part } => {
                request.logged_key(limit).is_some()
                    || match part {
                        KeyPart::Header { name, .. } => head.has(name),
                        KeyPart::Cookie(_) => head.has(&http::header::COOKIE),
                        KeyPart::Query { .. } => request.query().is_some(),
                        KeyPart::Host => head.names_host(request),
                        // Nobody verifies a token again.
                        _ => false,
                    }
            }
        }
    }
}

impl Crowd {
    fn and(self, address: IpAddr, trust: &Trust) -> Self {
        match self {
            Self::Nobody => Self::One(address, 1),
            Self::One(one, many) if one == address => Self::One(one, many + 1),
            Self::One(one, _) if !trust.believes(one) => Self::Others,
            Self::One(..) | Self::Trusted if trust.believes(address) => Self::Trusted,
            _ => Self::Others,
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
        let crowd = |addresses: &[&str]| {
            let all = addresses.iter().map(|at| at.parse().unwrap());
            all.fold(Crowd::Nobody, |crowd, at| crowd.and(at, &trust))
        };
        assert_eq!(crowd(&["10.0.0.1", "10.0.0.2", "10.0.0.1"]), Crowd::Trusted);
        assert_eq!(crowd(&["10.0.0.1", "10.0.0.2", "192.0.2.1"]), Crowd::Others);
        assert_eq!(crowd(&["10.0.0.1", "192.0.2.1"]), Crowd::Others);
        assert_eq!(crowd(&["192.168.0.1", "10.0.0.1"]), Crowd::Others);
        let one = "192.168.0.1";
        assert_eq!(crowd(&[one, one]), Crowd::One(one.parse().unwrap(), 2));
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
