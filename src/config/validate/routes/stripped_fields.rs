//! Fields that the file reads but the gateway drops earlier: limits that count nothing, groups without members, and
//! routes that no request reaches.

use crate::config::document::{CostSource, Document, GroupTable, Limit};
use crate::config::input::{At, Span};
use crate::config::report::{Code, Details as _, Diagnostic, Findings};
use crate::intake::stripped_fields::{FieldTrust, StripCause, why};
use crate::key::KeyPart;
use crate::key::client_ip::NamingField;
use crate::route::Condition;
use http::HeaderName;
use std::collections::{HashMap, HashSet};

/// The key of the file that reads a request's method, and a description of the use. If there is such a key, no field
/// may override the method at the upstream.
pub(in crate::config) fn looks_at_method(document: &Document) -> Option<(&Span, &'static str)> {
    let mut routes = document.routes.iter();
    let route = routes.find_map(|route| {
        let at = route.methods.at().filter(|at| !at.value.is_empty())?;
        Some((&at.span, "a route looks at the method"))
    });
    route.or_else(|| document.limits.iter().find_map(of_limit))
}

fn of_limit(limit: &Limit) -> Option<(&Span, &'static str)> {
    let mut parts = limit.by.entries().iter();
    if let Some(by) = parts.find(|at| at.value.as_ref().is_some_and(KeyPart::is_method)) {
        return Some((&by.span, "a limit counts by the method"));
    }
    let exempt = limit.exempt.get().and_then(|exempt| exempt.methods.at());
    if let Some(at) = exempt.filter(|at| !at.value.is_empty()) {
        return Some((&at.span, "a limit exempts methods"));
    }
    let dedupe = limit.dedupe.at()?;
    Some((&dedupe.span, "a limit tells repeats by their method too"))
}

/// The places where limits name a group, and the effect that is missing if the group has no members.
type GroupUsers<'a> = HashMap<&'a str, Vec<(&'a Span, &'static str)>>;

fn group_users(document: &Document) -> GroupUsers<'_> {
    let mut users = GroupUsers::new();
    for limit in &document.limits {
        let tiers = limit.tiers.entries().iter();
        let tiers = tiers.map(|tier| (&tier.value.name, "no request has this tier"));
        let exempt = limit.exempt.get().map(|exempt| exempt.groups.entries());
        let exempt = exempt.unwrap_or_default().iter();
        let exempt = exempt.map(|at| (at, "exempts no request"));
        let mut seen = HashSet::new();
        for (At { value, span }, label) in tiers.chain(exempt) {
            if seen.insert((value, label)) {
                users.entry(value).or_default().push((span, label));
            }
        }
    }
    users
}

/// Notes every place that reads a dropped field.
pub(in crate::config::validate) fn note_stripped_fields(document: &Document, found: &mut Findings) {
    // An unreadable `trust` may name a network.
    let trust = &document.server.trust;
    let trusted = trust.is_bad() || !trust.entries().is_empty();
    let looked_at = looks_at_method(document);
    let field_trust = FieldTrust {
        peer: || trusted,
        other_methods: looked_at.is_none(),
        naming: match document.server.trust_field.get() {
            Some(NamingField::Single(name)) => Some(name),
            _ => None,
        },
    };
    let dropped = StrippedFields {
        why: |name: &HeaderName| why(name.as_str(), &field_trust),
        looked_at,
    };
    for limit in &document.limits {
        dropped.of_limit(limit, found);
    }
    let users = group_users(document);
    for group in &document.groups {
        dropped.of_group(&users, group, found);
    }
    if let Some(header) = document.jwt.as_ref().and_then(|jwt| jwt.header.at()) {
        let message = || "no request has a token: its field is dropped".to_owned();
        found.extend(dropped.warning(Code::DroppedField, ReadField::of(header), message));
    }
    for route in &document.routes {
        let message = || format!("no request reaches {route}");
        found.extend(route.conditions().find_map(|at| match &at.value {
            Condition::Field(name, _) => {
                let span = &at.span;
                dropped.warning(Code::UnreachableRoute, ReadField { name, span }, message)
            }
            Condition::Query(..) | Condition::Https(_) | Condition::Groups(_) => None,
        }));
    }
}

/// A field, and the place where the file reads it.
#[derive(Clone, Copy)]
struct ReadField<'a> {
    name: &'a HeaderName,
    span: &'a Span,
}

/// The field that is a part of a key.
fn header_of(at: &At<Option<KeyPart>>) -> Option<ReadField<'_>> {
    Some(ReadField {
        name: at.value.as_ref()?.field()?,
        span: &at.span,
    })
}

impl<'a> ReadField<'a> {
    fn of(at: &'a At<HeaderName>) -> Self {
        Self {
            name: &at.value,
            span: &at.span,
        }
    }
}

/// The fields that the gateway drops with this file.
struct StrippedFields<'a, W> {
    why: W,
    looked_at: Option<(&'a Span, &'static str)>,
}

impl<W: Fn(&HeaderName) -> Option<StripCause>> StrippedFields<'_, W> {
    fn of_limit(&self, limit: &Limit, found: &mut Findings) {
        let by = || format!("{limit} counts by a field that no request has");
        let mut parts = limit.by.entries().iter().filter_map(header_of);
        found.extend(parts.find_map(|field| self.warning(Code::DroppedField, field, by)));
        let dedupe = limit.dedupe.get().and_then(|dedupe| dedupe.header.at());
        if let Some(header) = dedupe {
            let message =
                || format!("{limit} recognises no repeats: no request has the field with their id");
            found.extend(self.warning(Code::DroppedField, ReadField::of(header), message));
        }
        let tiers = limit.tiers.entries().iter();
        let costs = tiers.filter_map(|tier| tier.value.cost.get());
        for cost in limit.cost.get().into_iter().chain(costs) {
            if let CostSource::Request(cost) = cost
                && let Some(header) = cost.header.at()
            {
                let message = || {
                    format!(
                        "{limit} charges every request `default`: none has the field of its cost"
                    )
                };
                found.extend(self.warning(Code::DroppedField, ReadField::of(header), message));
            }
        }
    }

    /// A group without members, and the limits that name it.
    fn of_group(&self, users: &GroupUsers<'_>, group: &GroupTable, found: &mut Findings) {
        let Some(At { value, span }) = group.by.at() else {
            return;
        };
        let Some(name) = value.field() else {
            return;
        };
        let message = || format!("{group} has no members: no request has the field of its `by`");
        let field = ReadField { name, span };
        let Some(mut warning) = self.warning(Code::DroppedField, field, message) else {
            return;
        };
        let users = users.get(group.name.value.as_str());
        for (span, label) in users.into_iter().flatten() {
            warning = warning.and(span, *label);
        }
        found.push(warning);
    }

    /// The warning about a field, if the gateway drops it.
    fn warning(
        &self,
        code: Code,
        field: ReadField<'_>,
        message: impl Fn() -> String,
    ) -> Option<Diagnostic> {
        let ReadField { name, span } = field;
        let why = (self.why)(name)?;
        let warning = |label: &str| Diagnostic::warning(code, message()).at(span, label);
        Some(match why {
            StripCause::Certificate => warning(
                "dropped: no proxy is trusted to send it, and any client could claim any certificate there",
            )
            .help("count by `tls:subject` for clients that show their certificates to Tollgate itself, or name the networks of the proxies that write the field: `[server]` `trust = [\"10.0.0.0/8\"]`"),
            StripCause::Address => warning(
                "dropped: no proxy is trusted to send it, and any client could write any address there",
            )
            .help("name the networks of the proxies that write it: `[server]` `trust = [\"10.0.0.0/8\"]`"),
            StripCause::Origin => warning(
                "dropped: no proxy is trusted to send it, and any client could name any host, scheme, method or path there",
            )
            .help("look at the request itself (`host`, `scheme`, `path` of a route), or name the networks of the proxies that write the field: `[server]` `trust = [\"10.0.0.0/8\"]`"),
            StripCause::Method => {
                let warning = warning("dropped, since it asks for another method than the one that the file looks at")
                    .help("look at another field, or at the method itself");
                match self.looked_at {
                    Some((place, how)) if place != span => warning.and(place, how),
                    _ => warning,
                }
            }
            StripCause::Name | StripCause::Named | StripCause::Identity => {
                let joint = name.as_str().replace(['_', '"'], "-");
                warning("dropped, since some upstreams take its name for another")
                    .help(format!("let clients send `{joint}`, and write that"))
            }
        })
    }
}
