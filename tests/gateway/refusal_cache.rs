//! Remembered refusals: the client gets the same answer, and Redis is not asked.

use super::redis_failures::counted;
use crate::support::{File, Gateway, PATIENCE, Redis, Upstream, eventually, get};
use std::time::Duration;

/// The number of decisions that Redis was asked for.
pub(super) async fn asked(gateway: &Gateway) -> u64 {
    let metrics = gateway.metrics().await;
    let row = "tollgate_store_operations_total{operation=\"decide\",outcome=\"ok\"} ";
    let line = metrics.lines().find_map(|line| line.strip_prefix(row));
    line.unwrap().parse().unwrap()
}

#[tokio::test]
async fn who_is_over_a_limit_costs_no_call() {
    let (upstream, redis) = (Upstream::echo().await, Redis::start().await);
    let limit = "by = \"ip\"\nrate = \"3/h\"";
    let file = counted(&upstream, &redis, "closed", limit).server("workers = 1");
    let gateway = Gateway::start(&file).await;
    let mut wire = gateway.connect().await;
    for _ in 0..3 {
        wire.ask(get("/")).await.expect(200);
    }
    let first = wire.ask(get("/")).await.expect(429);
    assert_eq!(asked(&gateway).await, 4);
    for _ in 0..50 {
        let next = wire.ask(get("/")).await.expect(429);
        for name in ["ratelimit", "ratelimit-policy", "x-ratelimit-remaining"] {
            assert_eq!(next.field(name), first.field(name));
        }
        // The wait never grows: it is counted from the moment of the store's answer.
        assert!(next.number("retry-after-ms") <= first.number("retry-after-ms"));
        assert!(next.number("retry-after") >= 1190);
    }
    assert_eq!(asked(&gateway).await, 4);
    let answer = wire.ask(get("/")).await.expect(429);
    let line = gateway.line_of(&answer).await;
    assert_eq!(line["decided_by"], "remembered");
    assert_eq!(
        (&line["limit"], &line["remaining"]),
        (&"calls".into(), &0.into())
    );
    let row = "tollgate_limit_decisions_total{limit=\"calls\",route=\"all\",decision=\"refuse\",decided_by=\"remembered\"} 51\n";
    let metrics = gateway.metrics().await;
    assert!(metrics.contains(row), "{metrics}");
}

#[tokio::test]
async fn of_limits_that_were_not_asked_nothing_is_said() {
    let (upstream, redis) = (Upstream::echo().await, Redis::start().await);
    let file = File::to(&upstream, &["few", "many", "beside"])
        .limit(
            "few",
            "by = \"ip\"\nrate = \"1/h\"\ncandidate = { rate = \"2/h\" }",
        )
        .limit("many", "by = \"ip\"\nrate = \"100/h\"")
        .limit("beside", "by = \"ip\"\nrate = \"1/h\"\nmode = \"shadow\"")
        .redis(&redis, "timeout = \"2s\"\non_down = \"closed\"")
        .server("workers = 1");
    let gateway = Gateway::start(&file).await;
    gateway.get("/").await.expect(200);
    let asked_once = gateway.get("/").await.expect(429);
    assert_eq!(asked_once.remaining("many"), 99);
    let remembered = gateway.get("/").await.expect(429);
    assert_eq!(remembered.remaining("few"), 0);
    assert!(!remembered.field("ratelimit").contains("many"));
    assert!(!remembered.field("ratelimit-policy").contains("many"));
    assert_eq!(
        remembered.json()["violated-policies"],
        serde_json::json!(["few"])
    );
    let line = gateway.line_of(&remembered).await;
    assert_eq!(line["decided_by"], "remembered");
    assert_eq!(line["shadow"], serde_json::json!(["beside"]));
    let metrics = gateway.metrics().await;
    for (row, there) in [
        (
            "limit=\"few\",route=\"all\",decision=\"refuse\",decided_by=\"remembered\"} 1\n",
            true,
        ),
        (
            "limit=\"many\",route=\"all\",decision=\"allow\",decided_by=\"remembered\"",
            false,
        ),
        // The refusal of a shadow limit is remembered. Its candidate would have admitted the request, but was not
        // asked.
        (
            "limit=\"beside\",route=\"all\",decision=\"would_refuse\",decided_by=\"remembered\",mode=\"shadow\"} 1\n",
            true,
        ),
        (
            "limit=\"few\",route=\"all\",decision=\"uncounted\",decided_by=\"remembered\",mode=\"candidate\"} 1\n",
            true,
        ),
    ] {
        assert_eq!(metrics.contains(row), there, "{row}\n{metrics}");
    }
    assert_eq!(asked(&gateway).await, 2);
}

#[tokio::test]
async fn a_remembered_refusal_of_a_list_has_the_fields_of_all_its_rates() {
    let (upstream, redis) = (Upstream::echo().await, Redis::start().await);
    let limits = [
        "rate = [\"3/h\", \"50/d\"]",
        "rate = [\"3/h\", \"50/d\"]\nalgorithm = \"fixed-window\"",
        "rate = [\"3/h\", \"50/d\"]\nalgorithm = \"sliding-window\"",
        "rate = [\"3/h\", \"50/d\"]\nalgorithm = \"sliding-log\"",
    ];
    for lines in limits {
        let limit = format!("by = \"header:who\"\nmissing = \"shared\"\n{lines}");
        let file = counted(&upstream, &redis, "closed", &limit).server("workers = 1");
        let gateway = Gateway::start(&file).await;
        for _ in 0..3 {
            gateway.get("/").await.expect(200);
        }
        let first = gateway.get("/").await.expect(429);
        assert_eq!(first.remaining("calls:d"), 47, "{lines}");
        let calls = asked(&gateway).await;
        let next = gateway.get("/").await.expect(429);
        assert_eq!(next.remaining("calls:h"), 0, "{lines}");
        assert_eq!(next.remaining("calls:d"), 47, "{lines}");
        for name in [
            "ratelimit-policy",
            "x-ratelimit-limit",
            "x-ratelimit-remaining",
        ] {
            assert_eq!(next.field(name), first.field(name), "{lines}");
        }
        assert_eq!(asked(&gateway).await, calls, "it was remembered: {lines}");
    }
}

#[tokio::test]
async fn a_limit_of_the_gateways_own_is_looked_at_beside_a_remembered_refusal() {
    let (upstream, redis) = (Upstream::echo().await, Redis::start().await);
    let file = File::to(&upstream, &["own", "shared"])
        .limit("own", "by = \"ip\"\nrate = \"9/h\"\nscope = \"gateway\"")
        .limit("shared", "by = \"ip\"\nrate = \"2/h\"")
        .redis(&redis, "timeout = \"2s\"\non_down = \"closed\"")
        .server("workers = 1");
    let gateway = Gateway::start(&file).await;
    for status in [200, 200, 429, 429, 429] {
        let answer = gateway.get("/").await.expect(status);
        if status == 429 {
            assert_eq!(
                (answer.remaining("own"), answer.remaining("shared")),
                (7, 0)
            );
        }
    }
    assert_eq!(asked(&gateway).await, 3);
}

#[tokio::test]
async fn new_numbers_and_what_comes_back_are_asked_for() {
    let upstream = Upstream::answering("HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n").await;
    let redis = Redis::start().await;
    let file = |rate: &str| {
        let limit = format!(
            "by = \"ip\"\nrate = \"{rate}\"\nrefund = \"5xx\"\ncost = {{ header = \"cost\", max = 9 }}"
        );
        counted(&upstream, &redis, "closed", &limit).server("workers = 2")
    };
    let gateway = Gateway::start(&file("5/h")).await;
    let cost = async |cost| gateway.get_with("/", &[("cost", cost)]).await.status;
    // Each charge is given back, at whichever worker it was made, and the other workers learn it sooner or later.
    for _ in 0..10 {
        eventually(PATIENCE, "all of it is back", async || {
            cost("5").await == 503
        })
        .await;
    }
    assert_eq!(cost("6").await, 429);
    gateway.rename_over(&file("6/h").text());
    eventually(PATIENCE, "the new numbers hold", async || {
        cost("6").await == 503
    })
    .await;
}

#[tokio::test]
async fn what_was_known_before_an_outage_is_not_known_after_it() {
    let (upstream, mut redis) = (Upstream::echo().await, Redis::start().await);
    let limit = "by = \"ip\"\nrate = \"1/h\"";
    let file = counted(&upstream, &redis, "open", limit).server("workers = 1");
    let gateway = Gateway::start(&file).await;
    for status in [200, 429, 429] {
        gateway.get("/").await.expect(status);
    }
    redis.kill().await;
    eventually(PATIENCE, "open lets pass", async || {
        gateway.get("/").await.status == 200
    })
    .await;
    redis.come().await;
    let left = async || gateway.get("/").await.fields.has("ratelimit");
    eventually(Duration::from_secs(5), "it is counted again", left).await;
    gateway.get("/").await.expect(429);
}

/// An outage without requests: the counters may have changed by the time Redis is back, so no worker refuses from its
/// cache.
#[tokio::test]
async fn what_was_refused_before_an_outage_is_forgotten() {
    let (upstream, mut redis) = (Upstream::echo().await, Redis::start().await);
    let limit = "by = \"everyone\"\nrate = \"3/h\"\nalgorithm = \"fixed-window\"";
    let gateway = Gateway::start(&counted(&upstream, &redis, "closed", limit)).await;
    for _ in 0..8 {
        gateway.get("/").await;
    }
    gateway.get("/").await.expect(429);
    redis.kill().await;
    let told = async |word: &str| gateway.admin_get("/readyz").await.text().contains(word);
    eventually(PATIENCE, "it is away", async || told("away").await).await;
    redis.come().await;
    eventually(PATIENCE, "it is back", async || told("store: up").await).await;
    for status in [200, 200, 200, 429] {
        gateway.get("/").await.expect(status);
    }
}
