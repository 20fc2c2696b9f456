//! Numbers above 2^32 - 1: of rates, of costs that responses state, and of what comes back.

use super::super::store_kind::{Place, on_both_stores};
use crate::support::{Answer, Connection, File, Gateway, PATIENCE, Upstream, eventually};
use serde_json::json;

on_both_stores! {
    two_costs_of_three_thousand_million_fit_five_thousand_million_once
    a_surplus_beyond_four_bytes_comes_back
    a_bucket_of_six_thousand_million_counts_exactly
}

/// An upstream that states the cost in the request's `x-say`.
async fn costly() -> Upstream {
    Upstream::playing(async |mut connection: Connection| {
        while let Ok(head) = connection.request().await {
            let units = head.fields.get("x-say").unwrap_or("0").to_owned();
            let answer =
                format!("HTTP/1.1 200 OK\r\ncontent-length: 0\r\nx-units: {units}\r\n\r\n");
            if connection.wire.try_send(answer).await.is_err() {
                return;
            }
        }
    })
    .await
}

async fn gateway(place: &Place, upstream: &Upstream, lines: &str) -> Gateway {
    let lines = format!("by = \"everyone\"\n{lines}");
    let file = File::to(upstream, &["units"]).limit("units", &lines);
    place.gateway(file).await
}

async fn say(gateway: &Gateway, units: u64) -> Answer {
    gateway
        .get_with("/", &[("x-say", &units.to_string())])
        .await
}

/// Waits until a question that costs `estimate` at first, and nothing in the end, leaves so many units.
async fn leaves(gateway: &Gateway, units: u64) {
    eventually(PATIENCE, &format!("{units} are left"), async || {
        let asked = say(gateway, 0).await;
        asked.status == 200 && asked.remaining("units") == units
    })
    .await;
}

async fn two_costs_of_three_thousand_million_fit_five_thousand_million_once(place: Place) {
    let upstream = costly().await;
    let lines = "algorithm = \"fixed-window\"\nanchor = \"clock\"\nrate = \"5000000000/month\"\ncost = { response_header = \"x-units\" }";
    let gateway = gateway(&place, &upstream, lines).await;
    let answer = say(&gateway, 3_000_000_000).await.expect(200);
    assert_eq!(answer.remaining("units"), 4_999_999_999);
    let costs = gateway.line_of(&answer).await["costs"].clone();
    assert_eq!(costs, json!({ "units": 3_000_000_000_u64 }));
    leaves(&gateway, 1_999_999_999).await;
    say(&gateway, 3_000_000_000).await.expect(200);
    eventually(PATIENCE, "a thousand million are owed", async || {
        say(&gateway, 0).await.status == 429
    })
    .await;
    let refused = say(&gateway, 0).await.expect(429);
    assert_eq!(refused.remaining("units"), 0);
    assert_eq!(refused.number("x-ratelimit-limit"), 5_000_000_000);
}

async fn a_surplus_beyond_four_bytes_comes_back(place: Place) {
    let upstream = costly().await;
    let lines = "algorithm = \"fixed-window\"\nrate = \"9007199254740991/30d\"\ncost = { response_header = \"x-units\", estimate = 9007199254740000 }";
    let gateway = gateway(&place, &upstream, lines).await;
    let answer = say(&gateway, 5).await.expect(200);
    assert_eq!(answer.number("x-ratelimit-remaining"), 991);
    // The next question fits only when the surplus of the first has come back.
    eventually(PATIENCE, "the surplus is back", async || {
        let asked = say(&gateway, 0).await;
        asked.status == 200 && asked.number("x-ratelimit-remaining") == 986
    })
    .await;
}

async fn a_bucket_of_six_thousand_million_counts_exactly(place: Place) {
    let upstream = costly().await;
    let lines = "rate = \"6000000000/30d\"\ncost = { response_header = \"x-units\", estimate = 5000000000, max = 5500000000 }";
    let gateway = gateway(&place, &upstream, lines).await;
    let answer = say(&gateway, 4_500_000_000).await.expect(200);
    assert_eq!(answer.remaining("units"), 1_000_000_000);
    // 500,000,000 come back, and 3,500,000,000 are still lacking: 17.5 days.
    eventually(PATIENCE, "the surplus is back", async || {
        let refused = say(&gateway, 0).await.expect(429);
        let left = refused.number("x-ratelimit-remaining");
        (1_500_000_000..1_600_000_000).contains(&left)
    })
    .await;
}
