//! A document that is right → Boot and Snapshot. Everything that could go wrong has been found before.

use super::boot::Boot;
use super::diff::{Outline, RouteOutline};
use super::document::{Document, Route, Upstream};
use super::validate::Checked;
use super::{Compiled, Report};
use crate::key::client_ip::Trust;
use crate::limit::Limit;
use crate::route::{PathPattern, Rule};
use crate::snapshot::{FieldStyle, HoldCaps, Service, Snapshot};
use crate::upstream;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Puts everything together. `report` has no errors.
pub(super) fn compile(
    document: &Document,
    checked: Checked,
    boot: Boot,
    report: Report,
) -> Compiled {
    let Checked {
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
    let services: Vec<Service> = document
        .routes
        .iter()
        .zip(&rules)
        .map(|(route, rule)| {
            let name = route.upstream.get().map_or("", String::as_str);
            let position = *positions
                .get(name)
                .expect("validate resolves every upstream name");
            let path = rule.path.clone();
            service(
                route,
                path,
                position,
                &document.upstreams[position],
                &by_name,
            )
        })
        .collect();
    let caps = HoldCaps::default();
    let server = &document.server;
    let holds = HoldCaps {
        total: server
            .max_held
            .get()
            .map_or(caps.total, |most| *most as usize),
        per_peer: server
            .max_held_per_client
            .get()
            .map_or(caps.per_peer, |most| *most as usize),
    };
    let trust = Trust::new(server.trust.entries().iter().map(|at| at.value).collect());
    let fields = document.response.headers.or(FieldStyle::Both);
    let routes = rules
        .into_iter()
        .zip(&services)
        .map(|(rule, service)| outline(rule, service, &upstreams));
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
        limits: limits.clone(),
        trust: trust.clone(),
        fields,
        holds,
    };
    Compiled {
        boot,
        snapshot: Snapshot {
            generation: 0,
            table,
            services,
            upstreams,
            trust,
            fields,
            holds,
        },
        warnings: report.diagnostics,
        source: report.source,
        outline: Arc::new(outline),
    }
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

/// The route's limits, then its upstream's, each once; of a list of rates all in their order.
fn service(
    route: &Route,
    path: PathPattern,
    position: usize,
    upstream: &Upstream,
    limits: &HashMap<&str, Vec<&Arc<Limit>>>,
) -> Service {
    let mut chosen: Vec<Arc<Limit>> = Vec::new();
    let names = route
        .limits
        .entries()
        .iter()
        .chain(upstream.limits.entries());
    for name in names {
        let named = limits
            .get(name.value.as_str())
            .expect("validate resolves every limit name");
        if !chosen.iter().any(|other| *other.name == *name.value) {
            chosen.extend(named.iter().map(|limit| Arc::clone(limit)));
        }
    }
    Service {
        name: route.name.value.as_str().into(),
        path,
        upstream: position,
        limits: chosen,
        timeout: route.timeout.or(Duration::from_secs(30)),
    }
}

fn outline(rule: Rule, service: &Service, upstreams: &[Arc<upstream::Upstream>]) -> RouteOutline {
    let mut limits: Vec<Arc<str>> = service
        .limits
        .iter()
        .map(|limit| Arc::clone(&limit.name))
        .collect();
    limits.dedup();
    RouteOutline {
        rule,
        upstream: Arc::clone(&upstreams[service.upstream].name),
        limits,
        timeout: service.timeout,
    }
}
