//! A document that is right → Boot and Snapshot. Everything that could go wrong has been found before.

use super::boot::Boot;
use super::diff::{Fact, Outline, RouteOutline};
use super::document::{self, Counted, Document, Upstream};
use super::groups::Groups;
use super::jwt::TokenRules;
use super::source::At;
use super::validate::{Validation, looks_at_method, redirected, template};
use super::{Compiled, Report};
use crate::key::Sameness;
use crate::key::client_ip::Trust;
use crate::limit::Limit;
use crate::route::{PathPattern, Rule, Template};
use crate::snapshot::errors::ErrorFormats;
use crate::snapshot::{FieldStyle, HoldCaps, Service, Snapshot, StaticReply};
use crate::store::Backend;
use crate::upstream;
use http::HeaderValue;
use ipnet::IpNet;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

/// Puts everything together. `report` has no errors.
pub(super) fn compile(
    document: &Document,
    checked: Validation,
    (boot, errors): (Boot, ErrorFormats),
    (groups, jwt): (Groups, Option<TokenRules>),
    report: Report,
) -> Compiled {
    let Validation {
        limits,
        rules,
        table,
    } = checked;
    let mut by_name: HashMap<&str, Vec<&Arc<Limit>>> = HashMap::new();
    for limit in &limits {
        by_name.entry(&limit.name).or_default().push(limit);
    }
    let upstreams: Vec<Arc<upstream::Upstream>> = document
        .upstreams
        .iter()
        .map(|one| Arc::new(upstream(one)))
        .collect();
    let positions: HashMap<&str, usize> = document
        .upstreams
        .iter()
        .enumerate()
        .map(|(position, upstream)| (upstream.name.value.as_str(), position))
        .collect();
    let mut services: Vec<Service> = document
        .routes
        .iter()
        .zip(&rules)
        .map(|(route, rule)| {
            let position = route.upstream.get().map(|name| {
                let position = positions.get(name.as_str());
                *position.expect("validate resolves every upstream name")
            });
            let limits = chosen(document.limits_of(route), &by_name);
            Service {
                name: route.name.value.as_str().into(),
                path: rule.path.clone(),
                upstream: position,
                own: own(route),
                rewrite: template(route).ok().flatten(),
                request_fields: route.request_headers.get().cloned(),
                response_fields: route.response_headers.get().cloned(),
                compares_bodies: compare_bodies(&limits),
                limits,
                timeout: route.timeout.or(Duration::from_secs(30)),
            }
        })
        .collect();
    let caps = HoldCaps::default();
    let server = &document.server;
    let holds = HoldCaps {
        total: server
            .max_held
            .get()
            .map_or(caps.total, |most| *most as usize),
        per_client: server
            .max_held_per_client
            .get()
            .map_or(caps.per_client, |most| *most as usize),
    };
    let networks: Vec<IpNet> = server.trust.entries().iter().map(|at| at.value).collect();
    let trust_field = server.trust_field.get().copied();
    let fields = document.response.headers.or(FieldStyle::Both);
    let jitter = document.response.jitter.or(0);
    let routes = rules
        .into_iter()
        .zip(&services)
        .zip(document.routes.iter())
        .map(|((rule, service), route)| {
            let upstream = route.upstream.get().map_or("none", String::as_str);
            let limits = names(document.limits_of(route));
            outline((rule, limits), service, route, upstream.into())
        });
    let outline = Outline {
        boot: boot.clone(),
        routes: routes.collect(),
        upstreams: upstreams.clone(),
        upstream_limits: document
            .upstreams
            .iter()
            .map(|upstream| {
                upstream
                    .limits
                    .entries()
                    .iter()
                    .map(|at| at.value.as_str().into())
                    .collect()
            })
            .collect(),
        jwt: jwt.as_ref().map(|jwt| jwt.outline.clone()),
        groups: groups.all,
        limits: limits.clone(),
        defaults: document
            .defaults
            .limits
            .entries()
            .iter()
            .map(|at| at.value.as_str().into())
            .collect(),
        trust: networks.clone(),
        trust_field,
        fields,
        errors: errors.clone(),
        jitter,
        holds,
    };
    let unrouted = unrouted(document, &by_name).map(|unrouted| {
        services.push(unrouted);
        services.len() - 1
    });
    let shared = match report.source.is_without_store() {
        true => document.counted != Counted::Here,
        false => matches!(boot.store.source, Backend::Redis(_)),
    };
    Compiled {
        boot,
        snapshot: Snapshot {
            generation: 0,
            other_methods: looks_at_method(document).is_none(),
            table,
            services,
            unrouted,
            upstreams,
            trust: Trust::new(networks).reading(trust_field),
            tokens: jwt.map(|jwt| jwt.verifier),
            fields,
            errors,
            jitter,
            holds,
        },
        warnings: report.diagnostics,
        ignored: Vec::new(),
        source: report.source,
        files: report.files,
        places: places(document),
        shared,
        store_at: document.store.url.at().map(|at| at.span.clone()),
        ignoring: Vec::new(),
        outline: Arc::new(outline),
    }
}

/// Where everything with a name is defined.
fn places(document: &Document) -> HashMap<(&'static str, String), usize> {
    let groups = document.groups.iter().map(|one| ("groups", &one.name));
    let limits = document.limits.iter().map(|one| ("limits", &one.name));
    let upstreams = document
        .upstreams
        .iter()
        .map(|one| ("upstreams", &one.name));
    let routes = document.routes.iter().map(|one| ("routes", &one.name));
    let all = groups.chain(limits).chain(upstreams).chain(routes);
    all.map(|(table, name)| ((table, name.value.clone()), name.span.start))
        .collect()
}

fn upstream(written: &Upstream) -> upstream::Upstream {
    upstream::Upstream {
        name: written.name.value.as_str().into(),
        servers: written
            .servers
            .entries()
            .iter()
            .map(|at| at.value.clone())
            .collect(),
        connect_timeout: written.connect_timeout.or(Duration::from_secs(2)),
    }
}

/// The limits of these names, each once, in their order; of a list of rates all. Those that do not decide come last.
fn chosen<'a>(
    names: impl Iterator<Item = &'a At<String>>,
    limits: &HashMap<&str, Vec<&Arc<Limit>>>,
) -> Vec<Arc<Limit>> {
    let mut chosen: Vec<Arc<Limit>> = Vec::new();
    let mut seen = HashSet::new();
    for name in names {
        let named = limits
            .get(name.value.as_str())
            .expect("validate resolves every limit name");
        if seen.insert(name.value.as_str()) {
            chosen.extend(named.iter().map(|limit| Arc::clone(limit)));
        }
    }
    chosen.sort_by_key(|limit| !limit.mode.decides());
    chosen
}

fn compare_bodies(limits: &[Arc<Limit>]) -> bool {
    let mut dedupes = limits.iter().filter_map(|limit| limit.dedupe.as_ref());
    dedupes.any(|dedupe| dedupe.of == Sameness::Request)
}

/// What holds where no route matches, if anything does.
fn unrouted(document: &Document, limits: &HashMap<&str, Vec<&Arc<Limit>>>) -> Option<Service> {
    let limits = chosen(document.defaults.limits.entries().iter(), limits);
    (!limits.is_empty()).then(|| Service {
        name: "".into(),
        path: PathPattern::default(),
        upstream: None,
        own: None,
        rewrite: None,
        request_fields: None,
        response_fields: None,
        compares_bodies: compare_bodies(&limits),
        limits,
        timeout: Duration::ZERO,
    })
}

/// What a route answers itself.
fn own(route: &document::Route) -> Option<StaticReply> {
    if let Some(redirect) = route.redirect.get() {
        let to = redirected(route).ok().flatten()?;
        return Some(StaticReply::Redirect {
            to,
            status: redirect.status,
        });
    }
    let respond = route.respond.get()?;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    let usual = (!respond.body.is_empty()).then_some(plain);
    Some(StaticReply::Respond {
        status: respond.status,
        body: respond.body.clone().into(),
        content_type: respond.content_type.clone().or(usual),
    })
}

/// Each once, in their order.
fn names<'a>(named: impl Iterator<Item = &'a At<String>>) -> Vec<Arc<str>> {
    let mut seen = HashSet::new();
    let once = named.filter(|at| seen.insert(at.value.as_str()));
    once.map(|at| at.value.as_str().into()).collect()
}

fn outline(
    (rule, limits): (Rule, Vec<Arc<str>>),
    service: &Service,
    route: &document::Route,
    upstream: Arc<str>,
) -> RouteOutline {
    let as_written = |template: &Template| template.written().to_owned();
    let made = service.rewrite.as_ref().map(as_written);
    let (stripped, rewritten) = match route.strip_prefix.is_absent() {
        true => (None, made),
        false => (made, None),
    };
    RouteOutline {
        rule,
        upstream,
        facts: vec![
            Fact::of("strip_prefix", stripped),
            Fact::of("rewrite", rewritten),
            Fact::redirect(service.own.as_ref()),
            Fact::respond(service.own.as_ref()),
            Fact::fields("request_headers", service.request_fields.as_ref()),
            Fact::fields("response_headers", service.response_fields.as_ref()),
        ],
        limits,
        timeout: service.timeout,
    }
}
