//! Samples of every answer, of which `openapi.json` has its schemas.

use crate::admin::answers::limits::{LimitDetails, LimitsAnswer, ListedLimit, UsedBy};
use crate::admin::answers::problem::{FaultyMember, Problem};
use crate::admin::answers::routing::{
    ListedUpstream, RouteAnswer, RoutesAnswer, ServerAnswer, UpstreamsAnswer,
};
use crate::admin::answers::settings::{ChangedSetting, ConfigAnswer, ReloadAnswer};
use crate::admin::answers::status::{
    Alert, DownServer, GatewayCount, LastReload, ServerCount, StatusAnswer,
};
use crate::admin::answers::store::StoreAnswer;
use crate::telemetry::metrics::StoreStatus;
use http::StatusCode;
use serde::Serialize;
use serde_json::{Value, json};

/// Two samples of an answer: with all of it, and with as little as there may be.
pub(super) struct AnswerSamples {
    pub(super) name: &'static str,
    pub(super) whole: Value,
    pub(super) bare: Value,
}

fn samples(name: &'static str, whole: &impl Serialize, bare: &impl Serialize) -> AnswerSamples {
    let [whole, bare] = [serde_json::to_value(whole), serde_json::to_value(bare)];
    AnswerSamples {
        name,
        whole: whole.unwrap(),
        bare: bare.unwrap(),
    }
}

fn string(text: &str) -> String {
    text.to_owned()
}

fn limit() -> ListedLimit {
    ListedLimit {
        name: string("per-ip"),
        rule: string("10/s, burst 20"),
        by: vec![string("ip")],
        mode: "enforce",
        scope: "cluster",
        algorithm: "token-bucket",
    }
}

fn details(place: Option<String>) -> LimitDetails {
    LimitDetails {
        limit: limit(),
        used_by: UsedBy {
            routes: vec![string("all")],
            upstreams: vec![string("main")],
        },
        place,
        sentence: string("at most 20 at once"),
    }
}

fn route(place: Option<String>) -> RouteAnswer {
    RouteAnswer {
        name: string("all"),
        hosts: vec![string("a.test")],
        path: string("/"),
        methods: vec![string("GET")],
        conditions: 0,
        upstream: place.clone(),
        limits: vec![string("per-ip")],
        place,
    }
}

fn upstreams(number: Option<u64>) -> UpstreamsAnswer {
    let server = ServerAnswer {
        server: string("http://10.1.0.6:3000"),
        state: "up",
        weight: 1,
        in_flight: number,
        max_requests: number,
        connections: number,
        failures: 0,
        ejections: 0,
        ejected_ms: number,
    };
    UpstreamsAnswer {
        upstreams: vec![ListedUpstream {
            name: string("main"),
            available: 1,
            waiting: 0,
            servers: vec![server],
        }],
    }
}

fn store() -> StoreAnswer {
    StoreAnswer::of(Some(StoreStatus {
        workers: 2,
        reaching: 2,
        partly: 0,
        gateways: 3,
    }))
}

fn status(store: StoreAnswer, since: Option<String>) -> StatusAnswer {
    let last_reload = since.clone().map(|at| LastReload {
        at,
        ok: true,
        diagnostics: vec![json!({})],
    });
    StatusAnswer {
        name: string("edge-1"),
        id: string("5f0c000000000000"),
        version: "0.1.0",
        up_ms: 1,
        ready: true,
        phase: "ready",
        generation: 1,
        hash: string("9be1000000000000"),
        loaded_at: string("2026-11-26T13:58:01.000Z"),
        source: "file",
        last_reload,
        store,
        gateways: GatewayCount { count: 3 },
        servers: ServerCount {
            count: 1,
            available: 1,
            down: vec![DownServer {
                upstream: string("main"),
                server: string("http://10.1.0.6:3000"),
                state: "down",
            }],
        },
        alerts: vec![Alert {
            code: "server_down",
            text: string("main is down"),
            since,
        }],
        headline: string("All servers take requests."),
        cause: "none",
    }
}

fn problem(is_whole: bool) -> Value {
    let problem = Problem::new(StatusCode::BAD_REQUEST, "unknown_member", "no");
    let problem = if is_whole {
        let fault = FaultyMember {
            pointer: string("/a"),
            detail: string("no"),
        };
        let problem = problem.help("yes").with_faults(vec![fault]);
        problem.with_diagnostics(json!([{}]))
    } else {
        problem
    };
    serde_json::from_str(&problem.text()).unwrap()
}

/// Two samples of each answer.
pub(super) fn all_samples() -> Vec<AnswerSamples> {
    let some = || Some(string("gateway.toml:12"));
    let limits = |next| LimitsAnswer {
        limits: vec![limit()],
        next,
    };
    let routes = |next, place| RoutesAnswer {
        generation: 1,
        routes: vec![route(place)],
        next,
    };
    let config = ConfigAnswer {
        generation: 1,
        hash: string("9be1000000000000"),
        files: vec![string("gateway.toml")],
        text: string("# gateway.toml"),
    };
    let reload = ReloadAnswer {
        generation: 2,
        unchanged: false,
        changed: vec![ChangedSetting {
            subject: string("limits.per-ip"),
            what: string("rate 10/s to 20/s"),
            restart: false,
        }],
        text: string("configuration 2 in force"),
        took_ms: 3.5,
    };
    vec![
        samples("Config", &config, &config),
        samples("LimitDetails", &details(some()), &details(None)),
        samples("Limits", &limits(some()), &limits(None)),
        samples("Problem", &problem(true), &problem(false)),
        samples("Reload", &reload, &reload),
        samples("Routes", &routes(some(), some()), &routes(None, None)),
        samples(
            "Status",
            &status(store(), some()),
            &status(StoreAnswer::of(None), None),
        ),
        samples("Store", &store(), &StoreAnswer::of(None)),
        samples("Upstreams", &upstreams(Some(1)), &upstreams(None)),
    ]
}
