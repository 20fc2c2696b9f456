//! `GET /v1/routes` and `GET /v1/upstreams`: the routes of the file in force, and the servers as they are now.

use super::answers::problem::Problem;
use super::answers::routing::{ListedUpstream, RoutesAnswer, ServerAnswer, UpstreamsAnswer};
use super::call::paging::page;
use super::call::{AdminResponse, Call, json};
use crate::clock;
use crate::snapshot::Snapshot;
use arc_swap::ArcSwap;
use std::sync::Arc;

/// All routes, in pages.
pub(super) fn routes(call: &Call) -> Result<AdminResponse, Problem> {
    let file = &call.state.file;
    let (routes, next) = page(call, file.routes(), |route| &route.name)?;
    json(&RoutesAnswer {
        generation: file.facts().generation,
        routes,
        next,
    })
}

/// All upstreams with their servers.
pub(super) fn upstreams(call: &Call) -> Result<AdminResponse, Problem> {
    json(&UpstreamsAnswer {
        upstreams: all_upstreams(call.state.snapshots.as_ref()),
    })
}

/// Every upstream of the current snapshot, with its servers.
pub(super) fn all_upstreams(snapshots: Option<&Arc<ArcSwap<Snapshot>>>) -> Vec<ListedUpstream> {
    let Some(snapshot) = snapshots.map(|snapshots| snapshots.load()) else {
        return Vec::new();
    };
    let now = clock::uptime();
    let upstreams = snapshot.upstreams.iter().map(|upstream| {
        let members = upstream.state.members();
        let is_bounded = members
            .iter()
            .any(|member| member.most_requests().is_some());
        let counts = is_bounded || upstream.rules.balance.counts_in_flight();
        let servers = members.iter().map(|member| {
            let (state, health) = (&member.state, &member.state.health);
            let until = health.ejection.until();
            ServerAnswer {
                server: (*state.shown).to_owned(),
                state: if member.share == 0 {
                    "draining"
                } else {
                    health.word().as_str()
                },
                weight: member.server.weight.into(),
                in_flight: counts.then(|| state.in_flight().into()),
                max_requests: member.most_requests().map(Into::into),
                connections: state
                    .connections
                    .is_set()
                    .then(|| state.connections.open().into()),
                failures: health.ejection.failures().into(),
                ejections: health.ejection.ejections().into(),
                ejected_ms: until.map(|until| until.saturating_sub(now) / 1_000),
            }
        });
        ListedUpstream {
            name: upstream.name.to_string(),
            available: members
                .iter()
                .filter(|member| member.is_available())
                .count(),
            waiting: upstream.state.waiting(),
            servers: servers.collect(),
        }
    });
    upstreams.collect()
}

/// A line for each upstream without an available server.
pub(super) fn without_server(snapshots: Option<&Arc<ArcSwap<Snapshot>>>) -> String {
    let Some(snapshot) = snapshots.map(|snapshots| snapshots.load()) else {
        return String::new();
    };
    let upstreams = snapshot.upstreams.iter();
    let without = upstreams.filter(|upstream| {
        let members = upstream.state.members();
        !members.iter().any(|member| member.is_available())
    });
    let lines =
        without.map(|upstream| format!("upstream {}: no server is available\n", upstream.name));
    lines.collect()
}
