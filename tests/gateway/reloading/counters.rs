//! Counters survive a change of their limit's numbers, and end with its name.

use super::SOON;
use crate::support::{File, Gateway, Upstream, eventually};

pub(super) fn counted(upstream: &Upstream, limit: &str, lines: &str) -> File {
    File::to(upstream, &[limit]).limit(limit, &format!("by = \"ip\"\n{lines}"))
}

/// Changes the file and waits until answers show the new quota.
async fn change(gateway: &Gateway, file: &File, quota: &str) {
    gateway.rename_over(&file.text());
    let what = format!("RateLimit-Policy shows {quota}");
    eventually(SOON, &what, async || {
        // A refused request is charged nothing: asking does not disturb the counter.
        let answer = gateway.get("/").await;
        answer.field("ratelimit-policy").contains(quota)
    })
    .await;
}

#[tokio::test]
async fn a_window_keeps_its_count_when_its_number_changes() {
    let upstream = Upstream::echo().await;
    let file = |n: u32| {
        counted(
            &upstream,
            "calls",
            &format!("algorithm = \"fixed-window\"\nrate = \"{n}/h\""),
        )
    };
    let gateway = Gateway::start(&file(3)).await;
    for _ in 0..3 {
        gateway.get("/").await.expect(200);
    }
    gateway.get("/").await.expect(429);
    gateway.rename_over(&file(5).text());
    // Exactly two more requests are admitted, however often clients ask meanwhile.
    eventually(SOON, "the fifth is admitted", async || {
        let _ = gateway.get("/").await;
        upstream.seen() == 5
    })
    .await;
    gateway.get("/").await.expect(429);
    change(&gateway, &file(4), "q=4;").await;
    gateway.get("/").await.expect(429);
    assert_eq!(upstream.seen(), 5);
}

#[tokio::test]
async fn a_bucket_is_not_filled_by_a_change_of_its_number() {
    let upstream = Upstream::echo().await;
    let file = |n: u32| counted(&upstream, "calls", &format!("rate = \"{n}/h\""));
    let gateway = Gateway::start(&file(3)).await;
    for _ in 0..3 {
        gateway.get("/").await.expect(200);
    }
    gateway.get("/").await.expect(429);
    change(&gateway, &file(2), "q=2;").await;
    gateway.get("/").await.expect(429);
    assert_eq!(upstream.seen(), 3);
}

#[tokio::test]
async fn a_kind_that_comes_back_in_time_goes_on_where_it_was() {
    let upstream = Upstream::echo().await;
    let window = counted(
        &upstream,
        "calls",
        "algorithm = \"fixed-window\"\nrate = \"1/h\"",
    );
    let bucket = counted(&upstream, "calls", "rate = \"2/h\"");
    let gateway = Gateway::start(&window).await;
    gateway.get("/").await.expect(200);
    gateway.get("/").await.expect(429);
    gateway.rename_over(&bucket.text());
    eventually(SOON, "the bucket admits one", async || {
        gateway.get("/").await.status == 200
    })
    .await;
    gateway
        .said
        .line(0, "what becomes of the counters", |line| {
            line.contains("counters start afresh, or go on where this limit counted so before")
        })
        .await;
    change(&gateway, &window, "q=1;").await;
    // The window from before the change still exists, and is full.
    gateway.get("/").await.expect(429);
}

#[tokio::test]
async fn a_renamed_limit_starts_afresh() {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&counted(&upstream, "calls", "rate = \"1/h\"")).await;
    gateway.get("/").await.expect(200);
    gateway.get("/").await.expect(429);
    gateway.rename_over(&counted(&upstream, "visits", "rate = \"1/h\"").text());
    eventually(SOON, "one more is admitted", async || {
        gateway.get("/").await.status == 200
    })
    .await;
    gateway.get("/").await.expect(429);
}
