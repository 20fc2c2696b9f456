//! `GET /v1/upstreams`: the current servers of every upstream.

use crate::clock;
use crate::snapshot::Snapshot;
use arc_swap::ArcSwap;
use serde_json::{Value, json};
use std::sync::Arc;

/// Every upstream of the current snapshot, with its servers.
pub(super) fn upstreams_json(snapshots: Option<&Arc<ArcSwap<Snapshot>>>) -> Value {
    let Some(snapshot) = snapshots.map(|snapshots| snapshots.load()) else {
        return json!({ "upstreams": [] });
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
            let left = until.map(|until| until.saturating_sub(now) / 1_000);
            json!({
                "server": &*state.shown,
                "state": if member.share == 0 { "draining" } else { health.word().as_str() },
                "weight": member.server.weight,
                "in_flight": counts.then(|| state.in_flight()),
                "max_requests": member.most_requests(),
                "connections": state.connections.is_set().then(|| state.connections.open()),
                "failures": health.ejection.failures(),
                "ejections": health.ejection.ejections(),
                "ejected_ms": left,
            })
        });
        json!({
            "name": &*upstream.name,
            "available": members.iter().filter(|member| member.is_available()).count(),
            "waiting": upstream.state.waiting(),
            "servers": servers.collect::<Vec<_>>(),
        })
    });
    json!({ "upstreams": upstreams.collect::<Vec<_>>() })
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
