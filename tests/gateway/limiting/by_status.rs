//! Costs that the status of the answer decides, and refunds by status.

use super::super::store_kind::{Place, on_both_stores};
use crate::support::{
    Answer, Connection, File, Gateway, PATIENCE, Upstream, eventually, free_port, get, request,
    tollgate,
};
use serde_json::json;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::sleep;

on_both_stores! {
    failures_alone_are_charged
    the_most_exact_status_counts
    of_a_hundred_guesses_at_once_five_reach_the_service
    honest_requests_at_once_come_back
    who_leaves_before_the_answer_pays_the_greatest
    the_gateways_own_answers_have_a_status
    the_gateways_refusals_cost_by_their_kind
    any_status_is_given_back
}

/// An upstream that answers with the status of the request's `x-status`, 200 without it.
async fn obedient() -> Upstream {
    Upstream::playing(async |mut connection: Connection| {
        while let Ok(head) = connection.request().await {
            let status = head.fields.get("x-status").unwrap_or("200");
            let answer = format!("HTTP/1.1 {status} Said\r\ncontent-length: 0\r\n\r\n");
            if connection.wire.try_send(answer).await.is_err() {
                return;
            }
        }
    })
    .await
}

async fn ask(gateway: &Gateway, status: &str) -> Answer {
    gateway.get_with("/", &[("x-status", status)]).await
}

async fn gateway(place: &Place, upstream: &Upstream, lines: &str) -> Gateway {
    let limit = format!("by = \"everyone\"\n{lines}");
    let file = File::to(upstream, &["calls"]).limit("calls", &limit);
    place.gateway(file).await
}

/// Waits until this many are left, before a request that costs nothing in the end is charged `first`.
async fn left(gateway: &Gateway, first: u64, left: u64) {
    eventually(PATIENCE, &format!("{left} are left"), async || {
        let asked = ask(gateway, "200").await;
        asked.status == 200 && asked.remaining("calls") + first == left
    })
    .await;
}

async fn failures_alone_are_charged(place: Place) {
    let upstream = obedient().await;
    let lines = "rate = \"5/h\"\ncost = { status = { \"401\" = 1, else = 0 } }";
    let gateway = gateway(&place, &upstream, lines).await;
    for failed in 0..5 {
        for _ in 0..3 {
            left(&gateway, 1, 5 - failed).await;
        }
        let mut failure = None;
        // The last unit comes back after the answer that was charged it.
        eventually(PATIENCE, "a failure passes", async || {
            let answer = ask(&gateway, "401").await;
            failure = (answer.status == 401).then_some(answer);
            failure.is_some()
        })
        .await;
        let line = gateway.line_of(&failure.unwrap()).await;
        assert_eq!(line["costs"], json!({ "calls": 1 }));
    }
    ask(&gateway, "200").await.expect(429);
}

async fn the_most_exact_status_counts(place: Place) {
    let upstream = obedient().await;
    let lines =
        "rate = \"100/h\"\ncost = { status = { \"401\" = 1, \"4xx\" = 2, \"5xx\" = 4, else = 3 } }";
    let gateway = gateway(&place, &upstream, lines).await;
    let mut spent: u64 = 0;
    for (status, cost) in [("401", 1), ("404", 2), ("200", 3), ("302", 3), ("500", 4)] {
        let answer = ask(&gateway, status).await;
        let line = gateway.line_of(&answer).await;
        assert_eq!(line["costs"], json!({ "calls": cost }), "{status}");
        spent += cost;
    }
    eventually(PATIENCE, "each costs what it says", async || {
        let before = spent;
        let asked = ask(&gateway, "401").await;
        spent += 1;
        asked.remaining("calls") == 100 - before - 4
    })
    .await;
    let row = "tollgate_limit_costs_total{limit=\"calls\",outcome=\"settled\"} ";
    assert!(gateway.metrics().await.contains(row));
}

/// The file of docs/protect-a-login.md, in front of a service that answers slowly.
async fn of_a_hundred_guesses_at_once_five_reach_the_service(place: Place) {
    let page = include_str!("../../../docs/protect-a-login.md");
    let block = page.split("```toml\n").nth(1).unwrap();
    let block = block.split("```").next().unwrap();
    for (path, fields, most) in [
        ("/login", &[][..], 20),
        ("/token", &[("x-username", "anna")], 5),
        ("/users/anna/login", &[], 5),
    ] {
        let upstream = Upstream::playing(async |mut connection: Connection| {
            while let Ok(head) = connection.request().await {
                let status = match head.fields.get("x-password") {
                    Some("right") => "200 OK",
                    // All guesses are on their way before the first one is answered.
                    _ => {
                        sleep(Duration::from_millis(200)).await;
                        "401 Unauthorized"
                    }
                };
                let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
                if connection.wire.try_send(answer).await.is_err() {
                    return;
                }
            }
        })
        .await;
        let file = block.replace("http://127.0.0.1:9000", &upstream.url());
        let gateway = place.gateway(File::default().with(&file)).await;
        let login = |password: &str| {
            let mut all = vec![("x-password", password), ("content-length", "0")];
            all.extend(fields);
            request("POST", path, &all)
        };
        // Successes cost nothing, however many there are.
        let mut client = gateway.connect().await;
        for _ in 0..22 {
            eventually(PATIENCE, "a success passes", async || {
                client.ask(login("right")).await.status == 200
            })
            .await;
        }
        eventually(PATIENCE, "nothing is spent", async || {
            let answer = client.ask(login("right")).await;
            answer
                .field("ratelimit")
                .contains(&format!("r={}", most - 1))
        })
        .await;
        // The charge of the last success comes back, too. Nothing is charged for looking.
        let user = fields
            .iter()
            .map(|(name, value)| format!("{name}: {value}"));
        let user: Vec<String> = user.collect();
        let live = format!("--live={}", gateway.admin().await);
        let mut look = vec!["explain", "POST", path, &live];
        look.extend(user.iter().flat_map(|field| ["-H", field]));
        let all = format!("now: {most} of {most} left");
        eventually(PATIENCE, &all, async || {
            let shown = tollgate(gateway.folder(), &look).await;
            shown.stdout.contains(&all)
        })
        .await;
        let before = upstream.seen();
        let mut guessing = JoinSet::new();
        for number in 0..100 {
            let mut client = gateway.connect().await;
            let guess = login(&format!("guess-{number}"));
            guessing.spawn(async move { client.ask(guess).await.status });
        }
        let statuses = guessing.join_all().await;
        let many = |status: u16| statuses.iter().filter(|one| **one == status).count();
        assert_eq!((many(401), many(429)), (most, 100 - most), "{path}");
        assert_eq!(upstream.seen() - before, most, "{path}");
        client.ask(login("right")).await.expect(429);
        // The next path is guessed from the same address.
        drop(gateway);
        place.empty().await;
    }
}

async fn honest_requests_at_once_come_back(place: Place) {
    let upstream = obedient().await;
    let lines = "rate = \"5/h\"\ncost = { status = { \"401\" = 1, else = 0 } }";
    let gateway = gateway(&place, &upstream, lines).await;
    let mut asking = JoinSet::new();
    for _ in 0..30 {
        let mut client = gateway.connect().await;
        asking.spawn(async move { client.ask(get("/")).await.status });
    }
    for status in asking.join_all().await {
        assert!([200, 429].contains(&status), "{status}");
    }
    left(&gateway, 1, 5).await;
}

async fn who_leaves_before_the_answer_pays_the_greatest(place: Place) {
    let upstream = Upstream::silent().await;
    let lines = "rate = \"100/h\"\ncost = { status = { \"401\" = 7, else = 0 } }";
    let gateway = gateway(&place, &upstream, lines).await;
    let mut client = gateway.connect().await;
    client.send(get("/left")).await;
    upstream.sees(1).await;
    drop(client);
    let line = gateway.line_where("path", "/left").await;
    assert_eq!(line["costs"], json!({ "calls": 7 }), "{line}");
}

async fn the_gateways_own_answers_have_a_status(place: Place) {
    let servers = format!(
        "[upstreams.main]\nservers = [\"http://127.0.0.1:{}\"]",
        free_port()
    );
    let lines = "by = \"everyone\"\nrate = \"100/h\"\ncost = { status = { \"502\" = 3, \"5xx\" = 9, \"404\" = 2, else = 0 } }";
    let file = File::default()
        .with(&servers)
        .limit("calls", lines)
        .with("[routes.own]\npath = \"/own\"\nlimits = [\"calls\"]\nrespond = { status = 404 }")
        .route("all", "/{*rest}", "main", &["calls"]);
    let gateway = place.gateway(file).await;
    for (path, status, cost) in [("/", 502, 3), ("/own", 404, 2)] {
        let answer = gateway.get(path).await.expect(status);
        let line = gateway.line_of(&answer).await;
        assert_eq!(line["costs"], json!({ "calls": cost }), "{line}");
    }
}

/// The gateway's 401 is a guess that costs what its status says, and a refusal by a limit costs nothing.
async fn the_gateways_refusals_cost_by_their_kind(place: Place) {
    let upstream = obedient().await;
    let lines = "by = \"everyone\"\nrate = \"100/h\"\ncost = { status = { \"401\" = 1, \"429\" = 7, else = 0 } }";
    let file = File::default()
        .with(&format!(
            "[upstreams.main]\nservers = \"{}\"",
            upstream.url()
        ))
        .limit("calls", lines)
        .limit(
            "keys",
            "by = \"header:x-key\"\nmissing = \"refuse\"\nrate = \"1/h\"",
        )
        .route("all", "/{*rest}", "main", &["calls", "keys"]);
    let gateway = place.gateway(file).await;
    let keyless = gateway.get("/").await.expect(401);
    let line = gateway.line_of(&keyless).await;
    assert_eq!(line["costs"], json!({ "calls": 1 }), "{line}");
    gateway.get_with("/", &[("x-key", "k")]).await.expect(200);
    gateway.get_with("/", &[("x-key", "k")]).await.expect(429);
    let all = "now: 99 of 100 left";
    let live = format!("--live={}", gateway.admin().await);
    eventually(PATIENCE, all, async || {
        let look = ["explain", "GET", "/", &live, "-H", "x-key: other"];
        let shown = tollgate(gateway.folder(), &look).await;
        shown.stdout.contains(all)
    })
    .await;
}

async fn any_status_is_given_back(place: Place) {
    let upstream = obedient().await;
    for (number, (refund, back, kept)) in [
        ("[\"401\"]", "401", "403"),
        ("[\"4xx\", \"cancel\"]", "404", "500"),
        ("\"2xx\"", "204", "401"),
        ("[\"503\"]", "503", "502"),
    ]
    .into_iter()
    .enumerate()
    {
        // A counter of its own for each case, also where all cases share a store.
        let name = format!("calls{number}");
        let lines = format!("by = \"everyone\"\nrate = \"10/h\"\nrefund = {refund}");
        let file = File::to(&upstream, &[&name]).limit(&name, &lines);
        let gateway = place.gateway(file).await;
        for _ in 0..12 {
            eventually(PATIENCE, "it is given back", async || {
                ask(&gateway, back).await.status != 429
            })
            .await;
        }
        eventually(PATIENCE, "all are back", async || {
            ask(&gateway, back).await.remaining(&name) == 9
        })
        .await;
        ask(&gateway, kept).await;
        eventually(PATIENCE, "one is kept", async || {
            ask(&gateway, back).await.remaining(&name) == 8
        })
        .await;
    }
}
