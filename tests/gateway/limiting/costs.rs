//! Costs that requests give, as clients see them.

use super::super::store_kind::{Place, on_both_stores};
use crate::support::{Answer, File, Upstream, Wire, request};

on_both_stores! {
    a_request_takes_what_its_field_says
    nonsense_takes_the_most_and_is_logged
    zero_asks_without_taking
    what_costs_more_than_the_whole_limit_never_passes
}

const CALLS: &str = "by = \"ip\"\nalgorithm = \"sliding-log\"\nrate = \"20/h\"";

async fn costing(client: &mut Wire, costs: &[&str]) -> Answer {
    let fields: Vec<_> = costs.iter().map(|cost| ("x-cost", *cost)).collect();
    client.ask(request("GET", "/", &fields)).await
}

fn file(upstream: &Upstream, cost: &str) -> File {
    let calls = format!("{CALLS}\ncost = {{ header = \"X-Cost\", {cost} }}");
    File::to(upstream, &["calls", "plain"])
        .limit("calls", &calls)
        .limit("plain", "by = \"ip\"\nrate = \"100/h\"\ncost = 3")
}

async fn a_request_takes_what_its_field_says(place: Place) {
    let upstream = Upstream::echo().await;
    let file = file(&upstream, "default = 2, max = 6");
    let gateway = place.gateway(file).await;
    let mut client = gateway.connect().await;
    let mut left = (20, 100);
    for (said, taken) in [(&[][..], 2), (&["5"], 5), (&["400"], 6), (&[" 1 "], 1)] {
        let answer = costing(&mut client, said).await.expect(200);
        left = (left.0 - taken, left.1 - 3);
        let remaining = (answer.remaining("calls"), answer.remaining("plain"));
        assert_eq!(remaining, left, "{said:?}");
        let costs = serde_json::json!({ "calls": taken, "plain": 3 });
        assert_eq!(gateway.line_of(&answer).await["costs"], costs);
        // The upstream gets the field too.
        assert_eq!(answer.echoed().fields.all("x-cost").len(), said.len());
    }
}

async fn nonsense_takes_the_most_and_is_logged(place: Place) {
    let upstream = Upstream::echo().await;
    let gateway = place.gateway(file(&upstream, "max = 4")).await;
    let mut client = gateway.connect().await;
    for (nth, said) in [&["0"][..], &["-3"], &["1", "1"], &["one"]]
        .iter()
        .enumerate()
    {
        let answer = costing(&mut client, said).await.expect(200);
        assert_eq!(answer.remaining("calls"), 16 - 4 * nth as u64, "{said:?}");
    }
    let warning = "x-cost of 127.0.0.1 is 0; limit calls charges its maximum, 4";
    let warned = |line: &str| line.contains(warning);
    gateway.said.line(0, "a warning", warned).await;
}

async fn zero_asks_without_taking(place: Place) {
    let upstream = Upstream::echo().await;
    let gateway = place.gateway(file(&upstream, "max = 20, min = 0")).await;
    let mut client = gateway.connect().await;
    costing(&mut client, &["20"]).await.expect(200);
    for _ in 0..3 {
        let answer = costing(&mut client, &["0"]).await.expect(200);
        assert_eq!(answer.remaining("calls"), 0);
    }
    costing(&mut client, &["1"]).await.expect(429);
}

async fn what_costs_more_than_the_whole_limit_never_passes(place: Place) {
    let upstream = Upstream::echo().await;
    let gateway = place.gateway(file(&upstream, "max = 30")).await;
    let mut client = gateway.connect().await;
    let refused = costing(&mut client, &["21"]).await.expect(429);
    assert!(!refused.fields.has("retry-after") && !refused.fields.has("retry-after-ms"));
    let problem = refused.json();
    assert_eq!(problem["retry_after_ms"], serde_json::Value::Null);
    assert!(
        problem["detail"].to_string().contains("can never pass"),
        "{problem}"
    );
    let line = gateway.line_of(&refused).await;
    assert_eq!(line["costs"]["calls"], 21);
    // The refused request took nothing.
    costing(&mut client, &["20"]).await.expect(200);
}
