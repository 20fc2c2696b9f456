//! Hosts without a certificate: hosts of an identity that its certificate lacks, and hosts of routes.

use super::written::WrittenIdentity;
use crate::config::document::{Document, Route};
use crate::config::input::At;
use crate::config::report::{Code, Details as _, Findings};
use crate::route::{Condition, HostPattern};
use crate::tls::{Offer, ServedName, ServerIdentity};
use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;

/// Notes hosts of an identity that are not in its certificate.
pub(super) fn of_hosts(
    written: &WrittenIdentity<'_>,
    identity: &ServerIdentity,
    found: &mut Findings,
) {
    if written.is_ordered() {
        // A new certificate is ordered if a host is missing.
        return;
    }
    let subject = &written.subject;
    for At { value: host, span } in written.hosts {
        if identity.certifies(host) {
            continue;
        }
        let message = format!("the certificate of {subject} is not for `{host}`");
        let names = identity.facts().names.join(", ");
        let has = match names.as_str() {
            "" => "it has no DNS name".to_owned(),
            names => format!("it is for {names}"),
        };
        found
            .warning(Code::CertificateLacksHost, message)
            .at(span, "clients that ask for this host refuse it")
            .and(written.certificate.span(), has);
    }
    let facts = identity.facts();
    if written.hosts.is_empty() && facts.names.is_empty() && facts.addresses.is_empty() {
        let message = format!("the certificate of {subject} is for no host");
        found
            .warning(Code::CertificateLacksHost, message)
            .at(
                written.certificate.span(),
                "it has neither a DNS name nor an address",
            )
            .help("clients look at its subject alternative names, never at the common name");
    }
}

/// Notes hosts of routes that no identity of a TLS listener covers.
pub(super) fn of_routes(document: &Document, offers: &[Option<Offer>], found: &mut Findings) {
    let mut offered = offers.iter().flatten().flat_map(Offer::identities);
    let all_read = !document.server.listen.is_bad() && document.lost.is_empty();
    if offered.next().is_none() || !all_read {
        return;
    }
    let covered = Covered::of(offers);
    let mut seen = HashSet::new();
    for route in document.routes.iter().filter(|route| !is_plain(route)) {
        for At { value: host, span } in route.host.entries() {
            if covered.has(host) || !seen.insert(host) {
                continue;
            }
            let message = format!("{route} is for `{host}`, and no certificate of a listener is");
            found
                .warning(Code::CertificateLacksHost, message)
                .at(span, "clients of this host refuse the certificate that they get")
                .help("add an identity for it, or write `scheme = \"http\"` if clients do not ask for it over TLS");
        }
    }
}

fn is_plain(route: &Route) -> bool {
    let mut conditions = route.conditions();
    conditions.any(|at| at.value == Condition::Https(false))
}

/// The hosts that the offered identities cover.
#[derive(Default)]
struct Covered<'a> {
    names: HashSet<&'a str>,
    /// The suffixes of all names, with the leading dot.
    ends: HashSet<&'a str>,
    addresses: HashSet<IpAddr>,
}

impl<'a> Covered<'a> {
    fn of(offers: &'a [Option<Offer>]) -> Self {
        let mut seen = HashSet::new();
        let mut covered = Self::default();
        for identity in offers.iter().flatten().flat_map(Offer::identities) {
            if !seen.insert(Arc::as_ptr(identity)) {
                continue;
            }
            covered.addresses.extend(&identity.facts().addresses);
            for name in identity.hosts().iter().map(ServedName::as_str) {
                covered.names.insert(name);
                let dots = name.bytes().enumerate().filter(|(_, byte)| *byte == b'.');
                covered.ends.extend(dots.map(|(at, _)| &name[at..]));
            }
        }
        covered
    }

    /// Does an identity cover this host, or one of these hosts?
    fn has(&self, host: &HostPattern) -> bool {
        match host {
            HostPattern::Exact(host) => match host.trim_matches(['[', ']']).parse() {
                Ok(address) => self.addresses.contains(&address),
                Err(_) => self.has_name(host),
            },
            HostPattern::Suffix(suffix) => self.ends.contains(&**suffix),
        }
    }

    fn has_name(&self, host: &str) -> bool {
        let dot = host.find('.').filter(|dot| *dot > 0);
        let wildcard = dot.map(|dot| format!("*{}", &host[dot..]));
        self.names.contains(host) || wildcard.is_some_and(|pattern| self.names.contains(&*pattern))
    }
}
