//! Sliding windows, windows of the calendar, and several windows on one limit, as clients see them.

use super::super::store_kind::{Place, on_both_stores};
use crate::support::{File, Upstream, get};

on_both_stores! {
    the_rate_of_a_list_that_refuses_is_named
    every_window_gives_its_count_and_then_says_when
    several_rates_are_one_question_in_metrics_and_log
}

async fn the_rate_of_a_list_that_refuses_is_named(place: Place) {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &["calls"]).limit(
        "calls",
        "by = \"ip\"\nalgorithm = \"sliding-log\"\nrate = [\"4/2h\", \"3/h\"]",
    );
    let gateway = place.gateway(file).await;
    let mut client = gateway.connect().await;
    for _ in 0..3 {
        client.ask(get("/")).await.expect(200);
    }
    let refused = client.ask(get("/")).await.expect(429);
    let problem = refused.json();
    assert_eq!(problem["window"], "3/h");
    assert_eq!(problem["limit"], "calls");
    assert_eq!(problem["violated-policies"], serde_json::json!(["calls:h"]));
    assert_eq!(
        refused.field("ratelimit-policy"),
        "\"calls:2h\";q=4;w=7200, \"calls:h\";q=3;w=3600"
    );
    assert_eq!(refused.remaining("calls:h"), 0);
    if !place.remembers() {
        assert_eq!(refused.remaining("calls:2h"), 1);
    }
    let line = gateway.line_of(&refused).await;
    assert_eq!(line["limit"], "calls");
}

async fn every_window_gives_its_count_and_then_says_when(place: Place) {
    for (name, keys, most) in [
        (
            "by-weight",
            "algorithm = \"sliding-window\"\nrate = \"3/h\"",
            7_200,
        ),
        (
            "strict",
            "algorithm = \"sliding-window\"\nrate = \"3/h\"\nbuckets = 6\nstrict = true",
            4_200,
        ),
        ("log", "algorithm = \"sliding-log\"\nrate = \"3/h\"", 3_600),
        (
            "month",
            "algorithm = \"fixed-window\"\nanchor = \"clock\"\nrate = \"3/month\"\ntimezone = \"Asia/Tokyo\"",
            31 * 86_400,
        ),
    ] {
        let upstream = Upstream::echo().await;
        let file = File::to(&upstream, &[name]).limit(name, &format!("by = \"ip\"\n{keys}"));
        let gateway = place.gateway(file).await;
        let mut client = gateway.connect().await;
        // The hour or the month may end between two of these requests: then one more is admitted.
        let mut admitted = 0;
        let refused = loop {
            let answer = client.ask(get("/")).await;
            if answer.status == 429 {
                break answer;
            }
            admitted += 1;
            assert!(admitted <= 6, "{keys}");
        };
        assert!(admitted >= 3, "{keys}");
        let wait = refused.number("retry-after");
        assert!((1..=most).contains(&wait), "{keys}: {wait}");
        assert_eq!(refused.remaining(name), 0);
    }
}

async fn several_rates_are_one_question_in_metrics_and_log(place: Place) {
    let upstream = Upstream::echo().await;
    let lines = "by = \"everyone\"\nalgorithm = \"fixed-window\"\nrate = [\"2/h\", \"3/d\"]";
    let file = File::to(&upstream, &["both"]).limit("both", lines);
    let gateway = place.gateway(file).await;
    for _ in 0..2 {
        let answer = gateway.get("/").await.expect(200);
        let line = gateway.line_of(&answer).await;
        assert_eq!(line["window"], serde_json::Value::Null);
        assert_eq!(line["costs"], serde_json::json!({"both": 1}));
    }
    let refused = gateway.get("/").await.expect(429);
    assert_eq!(refused.json()["window"], "2/h");
    assert_eq!(gateway.line_of(&refused).await["window"], "2/h");
    let metrics = gateway.metrics().await;
    let counts: Vec<_> = metrics
        .lines()
        .filter(|line| line.starts_with("tollgate_limit_decisions_total{limit=\"both\""))
        .filter(|line| !line.ends_with(" 0"))
        .collect();
    assert!(
        counts.len() == 2
            && counts
                .iter()
                .any(|line| line.contains("decision=\"allow\"") && line.ends_with(" 2"))
            && counts
                .iter()
                .any(|line| line.contains("decision=\"refuse\"") && line.ends_with(" 1")),
        "{counts:#?}"
    );
}
