//! Routes that a client can reach without a demanded certificate: through an identity that requires less than the
//! identity whose names are among the route's hosts.

use super::LoadedIdentity;
use super::written::WrittenIdentity;
use crate::config::document::{ClientCert, Document, ListenEntry, Route};
use crate::config::input::{At, Span};
use crate::config::report::{Code, Details as _, Findings};
use crate::key::KeyPart;
use crate::route::{Condition, HostPattern, Segment};
use crate::tls::{Offer, ServedName, ServerIdentity};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// An identity, and a host of a route that belongs to the identity.
#[derive(Clone)]
struct HostOwner<'a> {
    identity: &'a ServerIdentity,
    host: String,
}

/// The identities through which clients reach a route on one listener.
#[derive(Default, Clone)]
struct Reach<'a> {
    /// An identity that demands certificates.
    demanding: Option<HostOwner<'a>>,
    /// An identity that does not demand certificates.
    lenient: Option<HostOwner<'a>>,
    /// An identity requests certificates, optionally or as a demand.
    is_asked: bool,
}

impl<'a> Reach<'a> {
    fn add(&mut self, identity: &'a ServerIdentity, host: impl FnOnce() -> String) {
        self.is_asked |= identity.client().is_some();
        let owner = if identity.demands_certificates() {
            &mut self.demanding
        } else {
            &mut self.lenient
        };
        owner.get_or_insert_with(|| HostOwner {
            identity,
            host: host(),
        });
    }

    fn add_all(&mut self, other: &Self) {
        self.is_asked |= other.is_asked;
        let Self {
            demanding, lenient, ..
        } = other.clone();
        self.demanding = self.demanding.take().or(demanding);
        self.lenient = self.lenient.take().or(lenient);
    }
}

/// One listener with TLS.
struct TlsListener<'a> {
    offer: &'a Offer,
    /// The first identity that demands no certificate.
    lenient: Option<&'a ServerIdentity>,
    /// Do clients on other machines use the listener?
    is_open: bool,
    /// The identities with names below each suffix of a host; `""` stands for all names.
    below: HashMap<&'a str, Reach<'a>>,
}

/// Hosts, exact and by wildcards, all of whose requests go to one route or to another route that names the same host.
#[derive(Default)]
struct WholeRoutes<'a> {
    exact: HashSet<&'a str>,
    suffixes: HashSet<&'a str>,
}

/// Notes routes that clients can reach without a certificate that an identity demands, and routes that no client can
/// reach with the required certificate.
pub(super) fn of_routes(
    document: &Document,
    identities: &[(&WrittenIdentity<'_>, LoadedIdentity)],
    offers: &[Option<Offer>],
    found: &mut Findings,
) {
    let is_whole = document.lost.is_empty() && document.torn.is_empty();
    if !is_whole || document.server.listen.is_bad() {
        return;
    }
    let listeners = listeners(document, offers);
    let asks = |listener: &TlsListener<'_>| listener.offer.asks_clients();
    let any_asks = listeners.iter().any(asks);
    let by_certificates = by_certificates(document);
    let identities = identities.iter().rev();
    let identities = identities
        .map(|(written, _)| (&*written.name, *written))
        .collect();
    for route in &document.routes {
        match route.client_cert.at() {
            Some(at) if at.value == ClientCert::Required => {
                let mut ways = listeners
                    .iter()
                    .flat_map(|listener| listener.reaches(route));
                if !ways.any(|(_, reach)| reach.is_asked) {
                    unreachable(route, &at.span, found);
                }
            }
            None if any_asks && !asks_itself(route, &by_certificates) => {
                reached(route, &listeners, &identities, found);
            }
            Some(_) | None => {}
        }
    }
}

/// The listeners with TLS, and the identities by their names.
fn listeners<'a>(document: &'a Document, offers: &'a [Option<Offer>]) -> Vec<TlsListener<'a>> {
    let taken = WholeRoutes::of(document);
    let entries = document.server.listen.entries().iter();
    let entries = entries.filter(|entry| entry.value.listens_on().is_some());
    let all = entries.zip(offers).filter_map(|(entry, offer)| {
        let offer = offer.as_ref()?;
        Some(TlsListener::new(&entry.value, offer, &taken))
    });
    all.collect()
}

impl<'a> WholeRoutes<'a> {
    fn of(document: &'a Document) -> Self {
        let mut taken = Self::default();
        for route in document.routes.iter().filter(|route| takes_all(route)) {
            for At { value: host, .. } in route.host.entries() {
                match host {
                    HostPattern::Exact(host) => taken.exact.insert(host),
                    HostPattern::Suffix(suffix) => taken.suffixes.insert(suffix),
                };
            }
        }
        taken
    }
}

impl<'a> TlsListener<'a> {
    fn new(entry: &ListenEntry, offer: &'a Offer, taken: &WholeRoutes<'_>) -> Self {
        let mut below: HashMap<&str, Reach<'_>> = HashMap::new();
        for identity in offer.identities() {
            for name in identity.hosts() {
                if !name.is_wildcard() && taken.exact.contains(name.as_str()) {
                    continue;
                }
                for end in ends(name) {
                    let reach = below.entry(end).or_default();
                    reach.add(identity, || name.to_string());
                    if taken.suffixes.contains(end) {
                        // A route with a less specific wildcard never sees the host.
                        break;
                    }
                }
            }
        }
        let mut all = offer.identities().iter();
        let lenient = all.find(|one| !one.demands_certificates());
        Self {
            offer,
            lenient: lenient.map(|one| &**one),
            is_open: entry.serves_others(),
            below,
        }
    }

    /// The identities for each host of a route, with the host's place; a route without hosts has a separate result.
    fn reaches<'l>(&'l self, route: &'l Route) -> impl Iterator<Item = (&'l Span, Reach<'a>)> {
        let hosts = route.host.entries();
        let any = hosts.is_empty().then(|| (&route.name.span, self.of_any()));
        let of_host = |at: &'l At<HostPattern>| (&at.span, self.of_host(&at.value));
        any.into_iter().chain(hosts.iter().map(of_host))
    }

    fn of_host(&self, host: &HostPattern) -> Reach<'a> {
        let mut reach = Reach::default();
        match host {
            HostPattern::Exact(host) => {
                self.add(self.offer.choose(Some(host)), host, &mut reach);
            }
            HostPattern::Suffix(suffix) => {
                if let Some(named) = self.below.get(&**suffix) {
                    reach.add_all(named);
                }
                for (identity, labels) in self.offer.below(suffix).into_iter().zip(["*", "*.*"]) {
                    self.add(identity, &format!("{labels}{suffix}"), &mut reach);
                }
            }
        }
        reach
    }

    /// The identities for a route without hosts.
    fn of_any(&self) -> Reach<'a> {
        let mut reach = self.below.get("").cloned().unwrap_or_default();
        self.add(self.offer.choose(None), "any other host", &mut reach);
        reach
    }

    /// Adds the identity of a host. A host without an identity is served on connections of all identities.
    fn add(&self, chosen: Option<&'a Arc<ServerIdentity>>, host: &str, to: &mut Reach<'a>) {
        match chosen {
            Some(chosen) => to.add(chosen, || host.to_owned()),
            None => {
                if let Some(lenient) = self.lenient {
                    to.add(lenient, || host.to_owned());
                }
            }
        }
    }
}

/// The suffixes of a name, the longest first, followed by `""`.
fn ends(name: &ServedName) -> impl Iterator<Item = &str> {
    let text = name.rest().unwrap_or(name.as_str());
    let dots = text.bytes().enumerate().filter(|(_, byte)| *byte == b'.');
    dots.map(|(at, _)| &text[at..]).chain([""])
}

/// Does the route take every request for its hosts, except for paths of other routes with the same hosts?
fn takes_all(route: &Route) -> bool {
    let path = route.path.get();
    let is_any_path = path.is_none_or(|path| matches!(&*path.segments, [Segment::Rest(_)]));
    is_any_path
        && route.methods.is_absent()
        && route.groups.is_absent()
        && route.conditions().next().is_none()
}

/// The groups that depend on clients' certificates.
fn by_certificates(document: &Document) -> HashSet<&str> {
    let groups = document.groups.iter().filter(|group| {
        let by = group.by.get();
        by.is_some_and(KeyPart::is_of_certificate)
    });
    groups.map(|group| group.name.value.as_str()).collect()
}

/// Does the route itself leave requests without a certificate, or all TLS requests, to other routes?
fn asks_itself(route: &Route, by_certificates: &HashSet<&str>) -> bool {
    let mut conditions = route.conditions();
    let groups = route.groups.entries();
    let mut names = groups.iter().map(|at| at.value.as_str());
    conditions.any(|at| at.value == Condition::Https(false))
        || (!groups.is_empty() && names.all(|name| by_certificates.contains(name)))
}

/// Notes a route that is reached through an identity that demands certificates and through one that does not.
fn reached(
    route: &Route,
    listeners: &[TlsListener<'_>],
    identities: &HashMap<&str, &WrittenIdentity<'_>>,
    found: &mut Findings,
) {
    let mut open: Option<(&Span, HostOwner<'_>)> = None;
    let mut demanded = None;
    for listener in listeners {
        let (mut demands, mut lenient) = (None, None);
        for (span, reach) in listener.reaches(route) {
            demands = demands.or(reach.demanding);
            lenient = lenient.or(reach.lenient.map(|owner| (span, owner)));
        }
        let is_meant = demands.is_some() || (listener.is_open && !route.host.entries().is_empty());
        open = open.or(lenient.filter(|_| is_meant));
        demanded = demanded.or(demands);
    }
    if let (Some((span, owner)), Some(demanded)) = (open, demanded) {
        tell(route, span, &owner, demanded.identity, identities, found);
    }
}

fn tell(
    route: &Route,
    span: &Span,
    owner: &HostOwner<'_>,
    demanding: &ServerIdentity,
    identities: &HashMap<&str, &WrittenIdentity<'_>>,
    found: &mut Findings,
) {
    let written = |name: &str| identities.get(name).copied();
    let (Some(chosen), Some(demanding)) =
        (written(owner.identity.name()), written(demanding.name()))
    else {
        return;
    };
    let message = format!(
        "{route} is reached without the certificate that {} demands",
        demanding.subject
    );
    let label = format!(
        "{} comes by {}, which does without",
        owner.host, chosen.subject
    );
    let help = format!(
        "write into `[routes.{}]`\nclient_cert = \"required\"\nor, where clients without a certificate are meant,\nclient_cert = \"none\"",
        route.name.value
    );
    let found = if route.host.is_absent() {
        found.warning(Code::CertificateNotDemanded, message)
    } else {
        found.error(Code::CertificateNotDemanded, message)
    };
    found
        .at(span, label)
        .and(
            demanding.client_place.unwrap_or(demanding.place),
            "demanded here",
        )
        .help(help);
}

fn unreachable(route: &Route, span: &Span, found: &mut Findings) {
    let message =
        format!("{route} asks for certificates, and no client of its hosts is asked for one");
    found
        .warning(Code::UnaskedCertificate, message)
        .at(span, "every request is answered 403")
        .help(
            "write `client` in the `[tls.NAME]` of its hosts, with the authorities of your clients",
        );
}
