//! `forward_identity` of routes: what it names is verified somewhere, and nothing else reads or writes the same fields.

use super::super::diagnostic::{Code, Details as _, Findings};
use super::super::document::{Document, Limit, Route};
use super::super::source::{At, Span};
use crate::key::{IdentityField, IdentityPiece, KeyPart};
use http::HeaderName;

/// Notes fields that tell nothing, and fields that the file uses for something else.
pub(super) fn check(document: &Document, found: &mut Findings) {
    for route in &document.routes {
        for at in route.forward_identity.entries() {
            sources(document, route, at, found);
            groups(document, route, at, found);
            changed(route, at, found);
            read(document, route, at, found);
        }
    }
}

/// What a field tells has a source in the file.
fn sources(document: &Document, route: &Route, at: &At<IdentityField>, found: &mut Findings) {
    let has = |piece: fn(&IdentityPiece) -> bool| at.value.pieces().iter().any(piece);
    let name = &at.value.name;
    if has(|piece| matches!(piece, IdentityPiece::Claim(_))) && document.jwt.is_none() {
        found
            .error(
                Code::MissingKey,
                format!("`{name}` of {route} has no claims to tell: no token is believed"),
            )
            .at(&at.span, "a claim of a token")
            .help("add `[jwt]` with the keys of your issuer");
    }
    let is_asked = || {
        document
            .identities
            .iter()
            .any(|one| !one.client.is_absent())
    };
    let of_certificate =
        has(|piece| matches!(piece, IdentityPiece::Subject | IdentityPiece::Fingerprint));
    if of_certificate && !is_asked() {
        found
            .error(
                Code::MissingKey,
                format!(
                    "`{name}` of {route} has no certificates to tell of: no client is asked for one"
                ),
            )
            .at(&at.span, "of the client's certificate")
            .help("write `client` in a table `[tls.NAME]`, with the authorities of your clients");
    }
}

/// The groups that a field tells of have members that prove it.
fn groups(document: &Document, route: &Route, at: &At<IdentityField>, found: &mut Findings) {
    let has = |piece: &IdentityPiece| at.value.pieces().contains(piece);
    let name = &at.value.name;
    let is_proven = |group: &str| {
        let mut groups = document.groups.iter().filter(|one| one.name.value == group);
        groups.any(|one| one.by.is_bad() || one.by.get().is_some_and(KeyPart::is_proof))
    };
    let proves = "a group counts that goes by a token, a certificate, a cookie, or a secret field such as `header:x-api-key`";
    if has(&IdentityPiece::Group)
        && !document
            .groups
            .iter()
            .any(|group| is_proven(&group.name.value))
    {
        found
            .error(
                Code::MissingKey,
                format!("`{name}` of {route} has no group to tell of"),
            )
            .at(&at.span, "no group's members prove that they are members")
            .help(proves);
    }
    let tiered = |limit: &Limit| {
        let mut tiers = limit.tiers.entries().iter();
        limit.tiers.is_bad() || tiers.any(|tier| is_proven(&tier.value.name.value))
    };
    let mut limits = limits(document, route);
    if has(&IdentityPiece::Tier) && !limits.any(tiered) {
        found
            .error(
                Code::Conflict,
                format!("`{name}` of {route} has no tier to tell of"),
            )
            .at(
                &at.span,
                "no limit of the route has `tiers` for such a group",
            )
            .help(proves);
    }
}

/// No change of fields touches the field.
fn changed(route: &Route, at: &At<IdentityField>, found: &mut Findings) {
    let (name, changes) = (&at.value.name, route.request_headers.at());
    let Some(At {
        value: changes,
        span,
    }) = changes
    else {
        return;
    };
    let lines = changes.set.iter().chain(&changes.add).map(|(name, _)| name);
    if lines.chain(&changes.remove).any(|other| other == name) {
        found
            .conflict(format!(
                "`{name}` of {route} is told of clients and changed"
            ))
            .at(&at.span, "who the client is")
            .and(span, "the same field")
            .help("leave one of the two out");
    }
}

/// Nothing else reads the field, which is gone from what clients send.
fn read(document: &Document, route: &Route, at: &At<IdentityField>, found: &mut Findings) {
    let name = &at.value.name;
    let reads =
        |part: &KeyPart| matches!(part, KeyPart::Header { name: other, .. } if other == name);
    let mut conflict = |reader: String, span: &Span| {
        found
            .conflict(format!(
                "{reader} reads `{name}`, which {route} takes from clients"
            ))
            .at(span, "nothing is left of it there")
            .and(&at.span, "written by the gateway alone")
            .help("choose another field for one of the two");
    };
    for group in &document.groups {
        if let Some(by) = group.by.at().filter(|by| reads(&by.value)) {
            conflict(group.to_string(), &by.span);
        }
    }
    for limit in limits(document, route) {
        let mut parts = limit.by.entries().iter();
        if let Some(by) = parts.find(|by| by.value.as_ref().is_some_and(reads)) {
            conflict(limit.to_string(), &by.span);
        }
    }
    let token: Option<&At<HeaderName>> = document.jwt.as_ref().and_then(|jwt| jwt.header.at());
    if let Some(header) = token.filter(|header| header.value == *name) {
        conflict("`[jwt]`".into(), &header.span);
    }
}

/// The limits that hold on a route.
fn limits<'a>(document: &'a Document, route: &'a Route) -> impl Iterator<Item = &'a Limit> {
    let names = document.limits_of(route);
    names.filter_map(|at| {
        let mut limits = document.limits.iter();
        limits.find(|limit| limit.name.value == at.value)
    })
}
