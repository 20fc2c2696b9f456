//! `GET /v1/status`: the gateway in short, what needs attention, and one sentence that says it first.

use super::answers::problem::Problem;
use super::answers::routing::ListedUpstream;
use super::answers::status::{Alert, DownServer, GatewayCount, ServerCount, StatusAnswer};
use super::answers::store::StoreAnswer;
use super::call::{AdminResponse, Call, json};
use super::routing::all_upstreams;
use super::{AdminState, Phase};
use crate::clock;
use crate::store::redis::missing_right;

/// Answers one request.
pub(super) async fn answer(call: Call) -> Result<AdminResponse, Problem> {
    let state = call.state;
    let running = state.file.clone();
    // The first look after a reload makes the text of the file.
    let facts = tokio::task::spawn_blocking(move || running.facts()).await;
    let facts = facts.map_err(|error| {
        let detail = format!("the file in force cannot be read: {error}");
        Problem::new(http::StatusCode::INTERNAL_SERVER_ERROR, "failed", detail)
    })?;
    let phase = state.readiness.phase();
    let store = StoreAnswer::of(state.metrics.shared_store());
    let upstreams = all_upstreams(state.snapshots.as_ref());
    let servers = count(&upstreams);
    let is_refused = facts.last_reload.as_ref().is_some_and(|last| !last.ok);
    let seen = SeenFacts {
        phase,
        store: &store,
        servers: &servers,
        without: upstreams
            .iter()
            .filter(|one| one.available == 0)
            .map(|one| one.name.as_str())
            .collect(),
        is_reload_refused: is_refused,
    };
    let (headline, cause) = headline(&seen);
    let mut alerts = alerts(&seen);
    alerts.extend(waiting(&state));
    if let Some(last) = facts.last_reload.as_ref().filter(|last| !last.ok)
        && let Some(alert) = alerts.iter_mut().find(|one| one.code == "reload_refused")
    {
        alert.since = Some(last.at.clone());
    }
    json(&StatusAnswer {
        name: state.name.to_string(),
        id: format!("{:016x}", state.id),
        version: env!("CARGO_PKG_VERSION"),
        up_ms: clock::uptime() / 1_000,
        ready: phase == Phase::Ready,
        phase: phase.as_str(),
        generation: facts.generation,
        hash: facts.hash,
        loaded_at: facts.loaded_at,
        source: facts.source,
        last_reload: facts.last_reload,
        gateways: GatewayCount {
            count: store.gateways.unwrap_or(1),
        },
        store,
        servers,
        alerts,
        headline,
        cause: cause.as_str(),
    })
}

/// The servers that have a weight.
fn count(upstreams: &[ListedUpstream]) -> ServerCount {
    let mut counted = ServerCount::default();
    for upstream in upstreams {
        for server in upstream
            .servers
            .iter()
            .filter(|one| one.state != "draining")
        {
            counted.count += 1;
            if matches!(server.state, "down" | "ejected") {
                counted.down.push(DownServer {
                    upstream: upstream.name.clone(),
                    server: server.server.clone(),
                    state: server.state,
                });
            } else {
                counted.available += 1;
            }
        }
    }
    counted
}

/// The facts from which the sentence and the alerts are made.
struct SeenFacts<'a> {
    phase: Phase,
    store: &'a StoreAnswer,
    servers: &'a ServerCount,
    /// Upstreams without an available server.
    without: Vec<&'a str>,
    is_reload_refused: bool,
}

/// Where the cause of trouble lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HeadlineCause {
    /// With the gateways and their store.
    Us,
    /// With the servers.
    Servers,
    /// There is none.
    None,
}

impl HeadlineCause {
    fn as_str(self) -> &'static str {
        match self {
            Self::Us => "us",
            Self::Servers => "servers",
            Self::None => "none",
        }
    }
}

/// The state in one sentence. The first rule that applies says it.
fn headline(seen: &SeenFacts<'_>) -> (String, HeadlineCause) {
    let store = seen.store;
    match seen.phase {
        Phase::Starting => {
            return (
                "No configuration is in force yet.".to_owned(),
                HeadlineCause::Us,
            );
        }
        Phase::Draining => {
            let text = "This gateway is leaving, and finishes requests under way.";
            return (text.to_owned(), HeadlineCause::Us);
        }
        Phase::Ready => {}
    }
    if !store.up {
        let shares = match store.gateways {
            Some(many @ 2..) => format!("each of {many} gateways counts its share"),
            _ => "this gateway counts alone".to_owned(),
        };
        let what = if store.partly.unwrap_or(0) + store.reaching.unwrap_or(0) > 0 {
            "A part of Redis is away"
        } else {
            "Redis is away"
        };
        let text = format!("{what}; where `on_down` is `local`, {shares}.");
        return (text, HeadlineCause::Us);
    }
    if let Some(first) = seen.without.first() {
        let text = match seen.without.len() {
            1 => format!("Upstream {first} has no available server."),
            many => format!("{many} upstreams have no available server, {first} first."),
        };
        return (text, HeadlineCause::Servers);
    }
    if let Some(first) = seen.servers.down.first() {
        let (down, all) = (seen.servers.down.len(), seen.servers.count);
        let text = format!(
            "{down} of {all} servers take no requests: {} {}.",
            first.upstream, first.server
        );
        return (text, HeadlineCause::Servers);
    }
    if seen.is_reload_refused {
        let text = "The file has mistakes, and the earlier configuration stays in force.";
        return (text.to_owned(), HeadlineCause::Us);
    }
    let text = match store.kind {
        "redis" => "All servers take requests, and Redis answers.",
        _ => "All servers take requests.",
    };
    (text.to_owned(), HeadlineCause::None)
}

/// Everything that needs attention, however many there are.
fn alerts(seen: &SeenFacts<'_>) -> Vec<Alert> {
    let mut alerts = Vec::new();
    let mut add = |code: &'static str, text: String| {
        alerts.push(Alert {
            code,
            text,
            since: None,
        });
    };
    if !seen.store.up {
        let (reaching, all) = (seen.store.reaching, seen.store.workers);
        let (reaching, all) = (reaching.unwrap_or(0), all.unwrap_or(0));
        let right = missing_right().map_or_else(String::new, |why| format!(": {why}"));
        add(
            "store_away",
            format!("{reaching} of {all} workers reach all of the store{right}"),
        );
    }
    for name in &seen.without {
        add(
            "no_server",
            format!("upstream {name} has no available server"),
        );
    }
    for DownServer {
        upstream,
        server,
        state,
    } in &seen.servers.down
    {
        add("server_down", format!("{upstream} {server} is {state}"));
    }
    if seen.is_reload_refused {
        let text = "the file has mistakes, and the earlier configuration stays in force";
        add("reload_refused", text.to_owned());
    }
    alerts
}

/// What this gateway waits for: certificates that are ordered, and keys of tokens.
fn waiting(state: &AdminState) -> Vec<Alert> {
    let alert = |code: &'static str, text: String| Alert {
        code,
        text,
        since: None,
    };
    let certificates = state
        .metrics
        .awaited_certificates()
        .into_iter()
        .map(|name| {
            alert(
                "certificate_awaited",
                format!("there is no certificate yet for {name}"),
            )
        });
    let keys = state.metrics.unread_keys().into_iter();
    let keys = keys.map(|url| alert("keys_unread", format!("no keys were read yet from {url}")));
    certificates.chain(keys).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::metrics::StoreStatus;

    fn redis(reaching: usize, partly: usize, gateways: u64) -> StoreAnswer {
        StoreAnswer::of(Some(StoreStatus {
            workers: 2,
            reaching,
            partly,
            gateways,
        }))
    }

    /// The rules in their order: each line has the fault of the lines below too, and says its own.
    #[test]
    fn the_first_rule_that_applies_says_it() {
        let down = ServerCount {
            count: 6,
            available: 5,
            down: vec![DownServer {
                upstream: "orders".to_owned(),
                server: "10.1.0.6:3000".to_owned(),
                state: "down",
            }],
        };
        let all = ServerCount::default();
        let table = [
            (
                Phase::Starting,
                redis(0, 0, 3),
                &down,
                vec!["a"],
                true,
                "No configuration is in force yet.",
                "us",
            ),
            (
                Phase::Draining,
                redis(0, 0, 3),
                &down,
                vec!["a"],
                true,
                "This gateway is leaving, and finishes requests under way.",
                "us",
            ),
            (
                Phase::Ready,
                redis(0, 0, 3),
                &down,
                vec!["a"],
                true,
                "Redis is away; where `on_down` is `local`, each of 3 gateways counts its share.",
                "us",
            ),
            (
                Phase::Ready,
                redis(0, 0, 1),
                &down,
                vec!["a"],
                true,
                "Redis is away; where `on_down` is `local`, this gateway counts alone.",
                "us",
            ),
            (
                Phase::Ready,
                redis(1, 1, 1),
                &down,
                vec!["a"],
                true,
                "A part of Redis is away; where `on_down` is `local`, this gateway counts alone.",
                "us",
            ),
            (
                Phase::Ready,
                redis(2, 0, 3),
                &down,
                vec!["a"],
                true,
                "Upstream a has no available server.",
                "servers",
            ),
            (
                Phase::Ready,
                redis(2, 0, 3),
                &down,
                vec!["a", "b"],
                true,
                "2 upstreams have no available server, a first.",
                "servers",
            ),
            (
                Phase::Ready,
                redis(2, 0, 3),
                &down,
                vec![],
                true,
                "1 of 6 servers take no requests: orders 10.1.0.6:3000.",
                "servers",
            ),
            (
                Phase::Ready,
                redis(2, 0, 3),
                &all,
                vec![],
                true,
                "The file has mistakes, and the earlier configuration stays in force.",
                "us",
            ),
            (
                Phase::Ready,
                redis(2, 0, 3),
                &all,
                vec![],
                false,
                "All servers take requests, and Redis answers.",
                "none",
            ),
            (
                Phase::Ready,
                StoreAnswer::of(None),
                &all,
                vec![],
                false,
                "All servers take requests.",
                "none",
            ),
        ];
        for (phase, store, servers, without, is_reload_refused, text, cause) in &table {
            let seen = SeenFacts {
                phase: *phase,
                store,
                servers,
                without: without.clone(),
                is_reload_refused: *is_reload_refused,
            };
            let said = headline(&seen);
            assert_eq!((said.0.as_str(), said.1.as_str()), (*text, *cause));
            let is_well = *cause == "none" || *phase != Phase::Ready;
            assert!(is_well || !alerts(&seen).is_empty(), "{text}");
        }
    }
}
