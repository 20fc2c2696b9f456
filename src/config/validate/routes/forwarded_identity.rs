//! `forward_identity` of routes: the named facts are verified somewhere, and no other setting reads or writes the same
//! fields.

use crate::config::document::{Document, GroupTable, Limit, Route};
use crate::config::input::{At, Span};
use crate::config::report::{Code, Details as _, Findings};
use crate::config::settings::groups::no_customers;
use crate::key::{IdentityField, IdentityPiece, KeyPart};
use http::HeaderName;
use std::collections::{HashMap, HashSet};

/// Notes fields without content, and fields that the file uses for another purpose.
pub(in crate::config::validate) fn check_forwarded_identity(
    document: &Document,
    found: &mut Findings,
) {
    let facts = Facts::of(document);
    for route in &document.routes {
        if route.forward_identity.is_absent() {
            continue;
        }
        let limits: Vec<&Limit> = facts.limits_of(document, route).collect();
        let changes = changes(route);
        let readers = limit_readers(&limits);
        for at in route.forward_identity.entries() {
            sources(&facts, route, at, found);
            groups(&facts, route, at, &limits, found);
            changed(route, at, &changes, found);
            read_piece(&facts, route, at, &readers, found);
        }
    }
}

/// The facts with which every field is compared.
struct Facts<'a> {
    limits: HashMap<&'a str, &'a Limit>,
    /// Groups whose members prove their membership.
    proven: HashSet<&'a str>,
    /// The groups that depend on each field.
    groups_by: HashMap<&'a HeaderName, Vec<&'a GroupTable>>,
    /// The field with the token, if the file names it.
    token: Option<&'a At<HeaderName>>,
    has_tokens: bool,
    has_customers: bool,
    asks_for_certificates: bool,
}

impl<'a> Facts<'a> {
    fn of(document: &'a Document) -> Self {
        let limits = document.limits.iter();
        let is_proven = |group: &&GroupTable| {
            group.by.is_bad() || group.by.get().is_some_and(KeyPart::is_proof)
        };
        let proven = document.groups.iter().filter(is_proven);
        let mut groups_by: HashMap<_, Vec<_>> = HashMap::new();
        for group in &document.groups {
            if let Some(name) = group.by.get().and_then(KeyPart::field) {
                groups_by.entry(name).or_default().push(group);
            }
        }
        Self {
            limits: limits
                .map(|limit| (limit.name.value.as_str(), limit))
                .collect(),
            proven: proven.map(|group| group.name.value.as_str()).collect(),
            groups_by,
            token: document.jwt.as_ref().and_then(|jwt| jwt.header.at()),
            has_tokens: document.jwt.is_some(),
            has_customers: document.groups.iter().any(GroupTable::names_customers),
            asks_for_certificates: document
                .identities
                .iter()
                .any(|one| !one.client.is_absent()),
        }
    }

    /// The limits that apply to a route.
    fn limits_of(
        &self,
        document: &'a Document,
        route: &'a Route,
    ) -> impl Iterator<Item = &'a Limit> {
        let names = document.limits_of(route);
        names.filter_map(|at| self.limits.get(at.value.as_str()).copied())
    }
}

/// The content of a field must have a source in the file.
fn sources(facts: &Facts<'_>, route: &Route, at: &At<IdentityField>, found: &mut Findings) {
    let has = |piece: fn(&IdentityPiece) -> bool| at.value.pieces().iter().any(piece);
    let name = &at.value.name;
    if has(|piece| matches!(piece, IdentityPiece::Claim(_))) && !facts.has_tokens {
        let message = format!("`{name}` of {route} has no claims to use: no token is trusted");
        found
            .error(Code::MissingKey, message)
            .at(&at.span, "a claim of a token")
            .help("add `[jwt]` with the keys of your issuer");
    }
    if has(|piece| matches!(piece, IdentityPiece::Customer)) && !facts.has_customers {
        no_customers(&format!("`{name}` of {route}"), &at.span, found);
    }
    let of_certificate =
        has(|piece| matches!(piece, IdentityPiece::Subject | IdentityPiece::Fingerprint));
    if of_certificate && !facts.asks_for_certificates {
        found
            .error(
                Code::MissingKey,
                format!(
                    "`{name}` of {route} has no certificates to use: no client is asked for one"
                ),
            )
            .at(&at.span, "of the client's certificate")
            .help("write `client` in a table `[tls.NAME]`, with the authorities of your clients");
    }
}

/// The groups that a field names must have members that prove their membership.
fn groups(
    facts: &Facts<'_>,
    route: &Route,
    at: &At<IdentityField>,
    limits: &[&Limit],
    found: &mut Findings,
) {
    let has = |piece: &IdentityPiece| at.value.pieces().contains(piece);
    let name = &at.value.name;
    let proves = "only a group by a token, a certificate, a cookie, `basic`, or a secret field such as `header:x-api-key` counts";
    if has(&IdentityPiece::Group) && facts.proven.is_empty() {
        let message = format!("`{name}` of {route} has no group to use");
        found
            .error(Code::MissingKey, message)
            .at(&at.span, "no group's members prove that they are members")
            .help(proves);
    }
    let tiered = |limit: &&Limit| {
        let mut tiers = limit.tiers.entries().iter();
        limit.tiers.is_bad()
            || tiers.any(|tier| facts.proven.contains(tier.value.name.value.as_str()))
    };
    if has(&IdentityPiece::Tier) && !limits.iter().any(tiered) {
        found
            .conflict(format!("`{name}` of {route} has no tier to use"))
            .at(
                &at.span,
                "no limit of the route has `tiers` for such a group",
            )
            .help(proves);
    }
}

/// The fields that a route changes.
fn changes(route: &Route) -> HashSet<&HeaderName> {
    let Some(changes) = route.request_headers.get() else {
        return HashSet::new();
    };
    let lines = changes.set.iter().chain(&changes.add);
    let lines = lines.map(|(name, _)| name);
    lines.chain(&changes.remove).collect()
}

/// No change of fields may change the field.
fn changed(
    route: &Route,
    at: &At<IdentityField>,
    changes: &HashSet<&HeaderName>,
    found: &mut Findings,
) {
    let name = &at.value.name;
    if let Some(span) = route.request_headers.span()
        && changes.contains(name)
    {
        found
            .conflict(format!(
                "`{name}` of {route} is written by `forward_identity`, and changed elsewhere"
            ))
            .at(&at.span, "who the client is")
            .and(span, "the same field")
            .help("leave one of the two out");
    }
}

/// A limit, and the place where the limit names a field by which it counts.
type LimitReader<'a> = (&'a Limit, &'a Span);

/// The limits that count by each field.
fn limit_readers<'a>(limits: &[&'a Limit]) -> HashMap<&'a HeaderName, Vec<LimitReader<'a>>> {
    let mut readers: HashMap<_, Vec<LimitReader<'_>>> = HashMap::new();
    for limit in limits {
        let mut seen = HashSet::new();
        for by in limit.by.entries() {
            if let Some(name) = by.value.as_ref().and_then(KeyPart::field)
                && seen.insert(name)
            {
                readers.entry(name).or_default().push((limit, &by.span));
            }
        }
    }
    readers
}

/// No other setting may read the field, since the gateway removes it from client requests.
fn read_piece(
    facts: &Facts<'_>,
    route: &Route,
    at: &At<IdentityField>,
    limits: &HashMap<&HeaderName, Vec<LimitReader<'_>>>,
    found: &mut Findings,
) {
    let name = &at.value.name;
    let mut conflict = |reader: String, span: &Span| {
        found
            .conflict(format!(
                "{reader} reads `{name}`, which {route} removes from clients' requests"
            ))
            .at(span, "the field is removed there")
            .and(&at.span, "written by the gateway alone")
            .help("choose another field for one of the two");
    };
    for group in facts.groups_by.get(name).into_iter().flatten() {
        if let Some(span) = group.by.span() {
            conflict(group.to_string(), span);
        }
    }
    for (limit, span) in limits.get(name).into_iter().flatten() {
        conflict(limit.to_string(), span);
    }
    if let Some(header) = facts.token.filter(|header| header.value == *name) {
        conflict("`[jwt]`".into(), &header.span);
    }
}
