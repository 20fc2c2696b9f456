//! One address takes as many connections, streams and log lines as it can get: docs/hardening.md states the maximum of
//! each, and the maximum holds.

use crate::support::{Feed, File, Gateway, H2, PATIENCE, Upstream, Wire, eventually, get};
use http::Request;
use tokio::task::JoinSet;
use tokio::time::timeout;

const CONNECTIONS: usize = 3;
/// The streams of one connection, as docs/hardening.md states them.
const STREAMS: usize = 128;
/// The log lines of one worker in one second, including the line with the sum of the others.
const LINES: usize = 101;

async fn counts(gateway: &Gateway, line: &str) {
    eventually(PATIENCE, line, async || {
        gateway.metrics().await.lines().any(|one| one == line)
    })
    .await;
}

#[tokio::test]
async fn one_address_has_its_connections_with_their_streams_and_no_more() {
    let upstream = Upstream::silent().await;
    let file = File::to(&upstream, &[]).server(&format!(
        "workers = 2\nmax_connections_per_client = {CONNECTIONS}"
    ));
    let gateway = Gateway::start(&file).await;
    let mut asking = JoinSet::new();
    for n in 1..=CONNECTIONS {
        let client = H2::to(gateway.address()).await;
        for _ in 0..STREAMS + 40 {
            let client = client.clone();
            asking.spawn(async move {
                let request = Request::get("http://gateway.test/");
                let request = request.body(Feed::empty()).unwrap();
                let _ = client.try_ask(request).await;
            });
        }
        upstream.sees(n * STREAMS).await;
    }
    // Streams beyond this number wait at the client, and a connection beyond its number ends.
    let mut one_more = Wire::to(gateway.address()).await;
    let _ = one_more.try_send(get("/")).await;
    let answer = timeout(PATIENCE, one_more.try_answer()).await;
    assert!(answer.expect("it ends").is_err(), "one connection too many");
    let most = CONNECTIONS * STREAMS;
    counts(&gateway, &format!("tollgate_connections {CONNECTIONS}")).await;
    counts(
        &gateway,
        &format!("tollgate_http_requests_in_flight {most}"),
    )
    .await;
    counts(
        &gateway,
        "tollgate_connections_turned_away_total{reason=\"per_client\"} 1",
    )
    .await;
    assert_eq!(upstream.seen(), most);
}

#[tokio::test]
async fn one_address_has_its_lines_and_no_more() {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &["few"])
        .server("workers = 2")
        .limit("few", "by = \"everyone\"\nrate = \"1/h\"");
    let gateway = Gateway::start(&file).await;
    gateway.get("/").await.expect(200);
    let begun = std::time::Instant::now();
    let told = || -> (usize, u64) {
        let lines = gateway.access.lines();
        let refusals = lines.iter().filter(|line| line.contains("\"status\":429"));
        let summed = |line: &String| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            line["repeated"].as_u64().unwrap_or(0)
        };
        let refusals: Vec<&String> = refusals.collect();
        let all = refusals.iter().map(|line| 1 + summed(line)).sum();
        (refusals.len(), all)
    };
    // On a slow machine, all lines of a round may fit into the bound of each second.
    let mut asked = 0;
    while told().0 as u64 == asked {
        assert!(
            begun.elapsed() < PATIENCE,
            "{asked} refusals have each a line"
        );
        flood(&gateway).await;
        asked += 1600;
        eventually(PATIENCE, "each refusal is told", async || told().1 == asked).await;
    }
    // Each worker may write its lines in each second that has begun.
    let seconds = begun.elapsed().as_secs() as usize + 2;
    let (lines, _) = told();
    let most = 2 * LINES * seconds;
    assert!(lines <= most, "{lines} of {most}");
}

/// Causes 1600 refusals on four connections.
async fn flood(gateway: &Gateway) {
    let mut flood = JoinSet::new();
    for _ in 0..4 {
        let mut wire = gateway.connect().await;
        flood.spawn(async move {
            for _ in 0..400 {
                wire.ask(get("/")).await.expect(429);
            }
        });
    }
    flood.join_all().await;
}
