//! Upstreams of other files: an included file can use an upstream only if its entry of `include` allows it, only with
//! hosts of its own routes, and without the fields by which other files' routes name their clients.

use crate::config::document::{Document, Limit, Route, Upstream};
use crate::config::input::grant::Grant;
use crate::config::input::{At, Source};
use crate::config::report::{Code, Details as _, Findings};
use crate::config::settings::identity_writers::IdentityWriters;
use crate::config::validate::names::WholeFile;
use crate::config::value::quoted;
use crate::intake::claimed_fields::{CLAIMED, Claim, USERS};
use crate::intake::stripped_fields::asks_for_method;
use crate::key::{KeyPart, same_field};
use crate::proxy::server::forwarded::is_of_proxies;
use crate::route::{HostPattern, host_key};
use http::{HeaderName, header};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Checks every route of an included file that leads to another file's upstream against its entry.
pub(in crate::config::validate) fn check_granted_upstreams(
    file: WholeFile<'_>,
    found: &mut Findings,
) {
    let WholeFile { document, source } = file;
    for grant in source.grants() {
        nothing_to_lead_to(grant, document, found);
    }
    leads(document, source, found);
    let bounds = Bounds::of(document, source);
    for route in &document.routes {
        if let Some(file) = bounds.writers.bounded_file(route) {
            host(route, file, &bounds, found);
            fields(route, file, &bounds, found);
            counted(route, file, &bounds, found);
        }
    }
}

/// The facts that restrict routes of included files at upstreams of other files.
struct Bounds<'a> {
    document: &'a Document,
    writers: IdentityWriters<'a>,
    limits: HashMap<&'a str, &'a Limit>,
    /// The hosts of each file's routes.
    hosts: HashMap<usize, HashSet<&'a HostPattern>>,
}

impl<'a> Bounds<'a> {
    fn of(document: &'a Document, source: &'a Source) -> Self {
        let mut hosts: HashMap<usize, HashSet<&HostPattern>> = HashMap::new();
        for route in &document.routes {
            let patterns = hosts
                .entry(source.start(route.name.span.start))
                .or_default();
            patterns.extend(route.host.entries().iter().map(|at| &at.value));
        }
        let limits = document.limits.iter();
        Self {
            document,
            writers: IdentityWriters::of(document, source),
            limits: limits
                .map(|limit| (limit.name.value.as_str(), limit))
                .collect(),
            hosts,
        }
    }

    /// Is a route of the file for this host?
    fn has_host(&self, file: usize, authority: &str) -> bool {
        let Some(hosts) = self.hosts.get(&file) else {
            return false;
        };
        let host = host_key(authority);
        let dots = host.match_indices('.').map(|(at, _)| &host[at..]);
        let mut wider = dots.map(|suffix| HostPattern::Suffix(suffix.into()));
        hosts.contains(&HostPattern::Exact(host.as_ref().into()))
            || wider.any(|suffix| hosts.contains(&suffix))
    }
}

/// Notes routes that lead to an upstream of another file without a grant.
fn leads(document: &Document, source: &Source, found: &mut Findings) {
    let refused = |route| {
        let (at, upstream, grant) = led(document, route, source)?;
        (!grant.leads_to(&at.value)).then_some((route, at, upstream, grant))
    };
    let refused: Vec<_> = document.routes.iter().filter_map(refused).collect();
    // The suggested entry allows all these routes at once.
    let mut names: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
    let mut seen = HashSet::new();
    for (_, at, _, grant) in &refused {
        if seen.insert((grant.span.start, at.value.as_str())) {
            names.entry(grant.span.start).or_default().push(&at.value);
        }
    }
    let entries: BTreeMap<usize, String> = {
        let grants = source.grants().map(|grant| (grant.span.start, grant));
        let asked = grants.filter_map(|(start, grant)| Some((start, grant, names.get(&start)?)));
        asked
            .map(|(start, grant, names)| {
                (start, grant.with_all("upstreams", names.iter().copied()))
            })
            .collect()
    };
    for (route, at, upstream, grant) in refused {
        let what = format!("lead {route} to {upstream}");
        let instead = entries.get(&grant.span.start).map_or("", String::as_str);
        let home = source.place(upstream.name.span.start);
        let refusal = grant.refusal(source, &at.span, &what, instead);
        found.push(refusal.at(&at.span, format!("an upstream of {home}")));
    }
}

/// The upstream of another file to which the route of an included file leads.
fn led<'a>(
    document: &'a Document,
    route: &'a Route,
    source: &'a Source,
) -> Option<(&'a At<String>, &'a Upstream, &'a Grant)> {
    let at = route.upstream.at()?;
    let grant = source.grant(at.span.start)?;
    let upstream = document.upstream_of(route)?;
    let is_here = source.is_one_place(at.span.start, upstream.name.span.start);
    (!is_here).then_some((at, upstream, grant))
}

/// Notes an entry that grants `upstreams` which do not exist.
fn nothing_to_lead_to(grant: &Grant, document: &Document, found: &mut Findings) {
    let defined = document.upstreams.iter();
    let defined = defined.map(|one| one.name.value.as_str()).collect();
    for name in grant.upstreams.without_effect(&defined) {
        if document.may_define("upstreams", &name.value) {
            continue;
        }
        let upstream = quoted(&name.value);
        let message = format!("`upstreams` names upstream {upstream}, which is not defined");
        found
            .error(Code::UnknownUpstream, message)
            .at(&name.span, "no such upstream")
            .help("leave it out");
    }
}

/// A route can send another file's servers only the hosts of its own file's routes.
fn host(route: &Route, file: usize, bounds: &Bounds<'_>, found: &mut Findings) {
    let Some(At { value, span }) = route.request_headers.at() else {
        return;
    };
    let Some((_, host)) = value.set.iter().find(|(name, _)| *name == header::HOST) else {
        return;
    };
    let host = String::from_utf8_lossy(host.as_bytes());
    if bounds.has_host(file, &host) {
        return;
    }
    let message = format!("{route} asks an upstream of another file for the host `{host}`");
    found
        .error(Code::NotGranted, message)
        .at(span, "no route of this file is for that host")
        .help("leave `host` out, or set one that a route of this file has");
}

/// A route must not write a field by which other files' routes name their clients, or by which front gateways state the
/// client's address, certificate or name, or the original request.
fn fields(route: &Route, file: usize, bounds: &Bounds<'_>, found: &mut Findings) {
    if let Some(At { value, span }) = route.request_headers.at() {
        for (name, _) in value.set.iter().chain(&value.add) {
            let field = At::new(name, span.clone());
            check_field(route, &field, file, bounds, found);
            claimed(route, &field, found);
        }
    }
    for At { value: field, span } in route.forward_identity.entries() {
        if !bounds.writers.writes_as_its_upstreams_file(route, field) {
            let field = At::new(&field.name, span.clone());
            check_field(route, &field, file, bounds, found);
            claimed(route, &field, found);
        }
    }
}

/// The field must not be one that servers accept as a statement of a gateway.
fn claimed(route: &Route, field: &At<&HeaderName>, found: &mut Findings) {
    let Some(what) = claim_of(field.value) else {
        return;
    };
    found
        .error(
            Code::NotGranted,
            format!(
                "{route} writes `{}` for an upstream of another file",
                field.value
            ),
        )
        .at(&field.span, format!("servers read {what} there"))
        .help("leave it out: a route to an upstream of another file may not write such a field");
}

/// The meaning that servers read from a field, in any spelling that they accept, if only gateways are allowed to write
/// the field.
fn claim_of(name: &HeaderName) -> Option<&'static str> {
    let spelled = same_field(name);
    if let Some(field) = CLAIMED.iter().find(|one| is_read_as(one.name, &spelled)) {
        return Some(match field.claims {
            Claim::Address => "a client's address",
            Claim::Certificate => "a client's certificate",
            Claim::Origin => "what a client asked for",
        });
    }
    if USERS.iter().any(|one| is_read_as(one.name, &spelled)) {
        return Some("the name of a user");
    }
    let name = HeaderName::try_from(spelled).ok()?;
    if asks_for_method(name.as_str()) {
        return Some("the method of a request");
    }
    is_of_proxies(&name).then_some("what a client asked for")
}

/// Can servers treat a field, in the spelling of [`same_field`], as a listed field? Some listed fields contain a `$`.
fn is_read_as(listed: &str, spelled: &str) -> bool {
    let alike = |listed: &str, spelled: &str| {
        let mut pairs = listed.bytes().zip(spelled.bytes());
        pairs.all(|(one, other)| one == other || !one.is_ascii_alphanumeric() && other == b'-')
    };
    match listed.strip_suffix('*') {
        Some(beginning) => spelled.len() >= beginning.len() && alike(beginning, spelled),
        None => spelled.len() == listed.len() && alike(listed, spelled),
    }
}

fn check_field(
    route: &Route,
    field: &At<&HeaderName>,
    file: usize,
    bounds: &Bounds<'_>,
    found: &mut Findings,
) {
    let Some((other, at)) = bounds.writers.outside(field.value, file) else {
        return;
    };
    let (name, theirs) = (field.value, &at.value.name);
    let message = format!("{route} writes `{name}` for an upstream of another file");
    found
        .error(Code::NotGranted, message)
        .at(&field.span, "this file states here who the client is")
        .and(
            &at.span,
            format!("{other} names its clients to servers in `{theirs}`"),
        )
        .help("leave it out: a route to an upstream of another file may not write such a field");
}

/// No limit of the route can count by a field that the gateway drops there.
fn counted(route: &Route, file: usize, bounds: &Bounds<'_>, found: &mut Findings) {
    for name in bounds.document.limits_of(route) {
        let Some(limit) = bounds.limits.get(name.value.as_str()) else {
            continue;
        };
        for by in limit.by.entries() {
            let Some(name) = by.value.as_ref().and_then(KeyPart::field) else {
                continue;
            };
            if let Some((other, at)) = bounds.writers.outside(name, file) {
                found
                    .conflict(format!(
                        "{limit} reads `{name}`, which {route} removes from clients' requests"
                    ))
                    .at(&by.span, "the field is removed there")
                    .and(
                        &at.span,
                        format!("{other} names its clients to servers in it"),
                    )
                    .help("choose another field for one of the two");
            }
        }
    }
}
