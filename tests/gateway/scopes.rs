//! Limits that each gateway counts by itself, beside limits that all gateways share.

use crate::support::{File, Gateway, PATIENCE, Redis, Upstream, eventually, get};

/// A limit that one gateway counts alone.
fn own(lines: &str) -> String {
    format!("by = \"everyone\"\nscope = \"gateway\"\n{lines}")
}

fn two(upstream: &Upstream, redis: &Redis, on_down: &str, one: &str, other: &str) -> File {
    let store = format!("timeout = \"2s\"\non_down = \"{on_down}\"");
    File::to(upstream, &["own", "shared"])
        .limit("own", &own(one))
        .limit("shared", &format!("by = \"everyone\"\n{other}"))
        .redis(redis, &store)
}

#[tokio::test]
async fn each_gateway_admits_its_own_and_all_together_what_is_shared() {
    let (upstream, redis) = (Upstream::echo().await, Redis::start().await);
    let file = two(
        &upstream,
        &redis,
        "closed",
        "rate = \"3/h\"",
        "rate = \"5/h\"",
    );
    let (one, two) = (Gateway::start(&file).await, Gateway::start(&file).await);
    for (gateway, left) in [
        (&one, (2, 4)),
        (&one, (1, 3)),
        (&one, (0, 2)),
        (&two, (2, 1)),
    ] {
        let answer = gateway.get("/").await.expect(200);
        assert_eq!((answer.remaining("own"), answer.remaining("shared")), left);
        assert_eq!(
            answer.field("ratelimit-policy"),
            "\"own\";q=3;w=3600, \"shared\";q=5;w=3600"
        );
    }
    // The first gateway's own limit is used up, and its refused requests take nothing from the shared limit.
    let refused = one.get("/").await.expect(429);
    assert_eq!(
        (refused.remaining("own"), refused.remaining("shared")),
        (0, 1)
    );
    assert_eq!(
        refused.json()["violated-policies"],
        serde_json::json!(["own"])
    );
    two.get("/").await.expect(200);
    // The shared limit is used up, and the second gateway's own limit is not charged.
    for _ in 0..3 {
        let refused = two.get("/").await.expect(429);
        assert_eq!(
            (refused.remaining("own"), refused.remaining("shared")),
            (1, 0)
        );
    }
    // Both limits refuse, and the gateway's own limit has the longer wait.
    let refused = one.get("/").await.expect(429);
    assert_eq!(
        refused.json()["violated-policies"],
        serde_json::json!(["own", "shared"])
    );
    let line = one.line_of(&refused).await;
    assert_eq!(line["limit"], "own");
    assert_eq!(upstream.seen(), 5);
}

#[tokio::test]
async fn limits_of_its_own_need_no_redis() {
    let (upstream, mut redis) = (Upstream::echo().await, Redis::start().await);
    let file = File::to(&upstream, &["own"])
        .limit("own", &own("rate = \"3/h\""))
        .redis(&redis, "timeout = \"2s\"\non_down = \"closed\"");
    let gateway = Gateway::start(&file).await;
    gateway.get("/").await.expect(200);
    assert!(redis.keys().await.is_empty());
    redis.kill().await;
    gateway.get("/").await.expect(200);
    let answer = gateway.get("/").await.expect(200);
    assert_eq!(answer.remaining("own"), 0);
    assert_eq!(gateway.line_of(&answer).await["decided_by"], "store");
    gateway.get("/").await.expect(429);
}

#[tokio::test]
async fn without_redis_its_own_hold_on_beside_what_on_down_says() {
    for (on_down, first) in [("open", 200), ("closed", 503), ("local", 200)] {
        let (upstream, redis) = (Upstream::echo().await, Redis::absent());
        let file = two(
            &upstream,
            &redis,
            on_down,
            "rate = \"2/h\"",
            "rate = \"9/h\"",
        );
        let gateway = Gateway::start(&file).await;
        for left in [1, 0] {
            let answer = gateway.get("/").await.expect(first);
            if on_down != "closed" {
                assert_eq!(answer.remaining("own"), left, "{on_down}");
            }
            // The answer states no numbers of a limit that nobody counts.
            let told = answer.fields.all("ratelimit").concat();
            assert_eq!(told.contains("\"shared\""), on_down == "local", "{told}");
        }
        // A request that was refused because the store is away has charged nothing to the gateway's own limit.
        let last = if on_down == "closed" { 503 } else { 429 };
        gateway.get("/").await.expect(last);
    }
}

#[tokio::test]
async fn who_leaves_while_redis_is_asked_leaves_no_slot_taken() {
    let (upstream, redis) = (Upstream::echo().await, Redis::start().await);
    let flight = "algorithm = \"concurrency\"\nmax = 1";
    let file = File::to(&upstream, &["own", "shared"])
        .limit("own", &own(flight))
        .limit("shared", "by = \"everyone\"\nrate = \"900/h\"")
        .redis(&redis, "timeout = \"10s\"\non_down = \"closed\"");
    let gateway = Gateway::start(&file).await;
    gateway.get("/").await.expect(200);
    redis.freeze();
    let mut client = gateway.connect().await;
    client.send(get("/gone")).await;
    eventually(PATIENCE, "it is under way", async || {
        let metrics = gateway.metrics().await;
        metrics.contains("\ntollgate_http_requests_in_flight 1\n")
    })
    .await;
    drop(client);
    gateway.line_where("path", "/gone").await;
    redis.thaw();
    eventually(PATIENCE, "the slot is free", async || {
        gateway.get("/").await.status == 200
    })
    .await;
}

#[tokio::test]
async fn a_queue_of_its_own_holds_and_lets_go() {
    let (upstream, redis) = (Upstream::echo().await, Redis::start().await);
    let queue = "algorithm = \"leaky-bucket\"\nrate = \"1/h\"\nqueue = 1\nmax_wait = \"9h\"";
    let file = two(&upstream, &redis, "closed", queue, "rate = \"900/h\"");
    let gateway = Gateway::start(&file).await;
    gateway.get("/").await.expect(200);
    for _ in 0..3 {
        let mut held = gateway.connect().await;
        held.send(get("/")).await;
        gateway.holds(1).await;
        gateway.get("/").await.expect(429);
        drop(held);
        // The place is given back here, and not to Redis.
        gateway.holds(0).await;
    }
    assert!(!redis.keys().await.iter().any(|key| key.contains(":own:")));
}

#[tokio::test]
async fn another_scope_counts_afresh_and_the_reload_says_so() {
    let (upstream, redis) = (Upstream::echo().await, Redis::start().await);
    let file = File::to(&upstream, &["own"])
        .limit("own", &own("rate = \"3/h\""))
        .redis(&redis, "timeout = \"2s\"\non_down = \"closed\"");
    let gateway = Gateway::start(&file).await;
    assert_eq!(gateway.get("/").await.expect(200).remaining("own"), 2);
    gateway.rename_over(&file.text().replace("scope = \"gateway\"\n", ""));
    let said = |line: &str| line.contains("scope gateway to cluster") && line.contains("afresh");
    gateway.said.line(0, "the reload", said).await;
    assert_eq!(gateway.get("/").await.expect(200).remaining("own"), 2);
    assert_eq!(redis.keys().await, ["tollgate:1:own:tb:{*}"]);
}
