//! Windows that move, windows of the calendar, and several on one limit, as a client meets them.

use super::super::place::{Place, on_both_stores};
use crate::support::{File, Upstream, get};

on_both_stores! {
    the_rate_of_a_list_that_refuses_is_named
    every_window_gives_its_count_and_then_says_when
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
    assert_eq!(problem["violated-policies"], serde_json::json!(["calls"]));
    assert_eq!(
        refused.field("ratelimit-policy"),
        "\"calls\";q=4;w=7200, \"calls\";q=3;w=3600"
    );
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
        // The hour, or the month, may turn between two of these: then one more is let through.
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
