//! An operator empties a counter while gateways run: every gateway admits again, whatever it remembered.

use super::redis_failures;
use crate::support::{Answer, Cluster, File, Gateway, PATIENCE, Redis, Upstream, Wire, eventually};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// The token of an operator.
const TOKEN: &str = "7f6c1d0b6f6d4c1e8d0a5b3c2e1f4a69";
/// The lines of `[admin]` with it.
const ADMIN: &str = "listen = \"127.0.0.1:0\"\ntoken = \"7f6c1d0b6f6d4c1e8d0a5b3c2e1f4a69\"";

fn counted(upstream: &Upstream, redis: &Redis, on_down: &str, limit: &str) -> File {
    redis_failures::counted(upstream, redis, on_down, limit).admin(ADMIN)
}

/// A POST of an operator on the admin listener.
async fn post(gateway: &Gateway, target: &str, body: &Value) -> Answer {
    let (admin, body) = (gateway.admin().await, body.to_string());
    let length = body.len();
    let text = format!(
        "POST {target} HTTP/1.1\r\nHost: {admin}\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    Wire::to(admin).await.ask(text).await
}

async fn reset(gateway: &Gateway, limit: &str, key: &str) -> Value {
    let body = json!({ "limit": limit, "key": key });
    let answer = post(gateway, "/v1/reset", &body).await.expect(200);
    answer.json()["changes"][0].clone()
}

async fn sees_gateways(gateway: &Gateway, many: u32) {
    let line = format!("tollgate_gateways {many}\n");
    eventually(PATIENCE, "the gateways see each other", async || {
        gateway.metrics().await.contains(&line)
    })
    .await;
}

/// The address of all clients of these tests.
const CLIENT: &str = "127.0.0.1";

#[tokio::test]
async fn every_gateway_admits_again_within_two_seconds() {
    let (upstream, redis) = (Upstream::echo().await, Redis::start().await);
    let file =
        counted(&upstream, &redis, "local", "by = \"ip\"\nrate = \"3/h\"").server("workers = 2");
    let mut gateways = Vec::new();
    for _ in 0..3 {
        gateways.push(Gateway::start(&file).await);
    }
    for gateway in &gateways {
        sees_gateways(gateway, 3).await;
    }
    for round in 0..8 {
        for gateway in &gateways {
            gateway.get("/").await.expect(200);
        }
        // The second refusal is a remembered one, at each worker.
        for _ in 0..6 {
            for gateway in &gateways {
                gateway.get("/").await.expect(429);
            }
        }
        tokio::time::sleep(Duration::from_millis(fastrand::u64(..1_200))).await;
        let begun = Instant::now();
        let change = reset(&gateways[round % 3], "calls", CLIENT).await;
        let took = begun.elapsed();
        assert_eq!(
            (&change["taken_by"], &change["gateways"]),
            (&json!(3), &json!(3)),
            "{change}"
        );
        assert_eq!(change["before"]["used"], 3, "{change}");
        assert_eq!(
            (&change["scope"], &change["repeated"]),
            (&json!("all_gateways"), &json!(false))
        );
        // A loaded machine may be late, and a lost look costs half a second.
        assert!(
            took < Duration::from_millis(2_300),
            "round {round}: {took:?}"
        );
    }
    for gateway in &gateways {
        let list = gateway.admin_get("/v1/changes").await.expect(200).json();
        assert_eq!(list["changes"].as_array().unwrap().len(), 8, "{list}");
        let metrics = gateway.metrics().await;
        assert!(
            metrics.contains("tollgate_changes_active{kind=\"reset\"} 8\n"),
            "{metrics}"
        );
        assert!(metrics.contains("tollgate_changes_total{kind=\"reset\",result=\"done\"}"));
        assert!(
            metrics.contains("tollgate_changes_read_age_seconds 0."),
            "{metrics}"
        );
    }
}

#[tokio::test]
async fn a_gateway_that_cannot_answer_is_not_counted_as_one_that_has_it() {
    let (upstream, redis) = (Upstream::echo().await, Redis::start().await);
    let file =
        counted(&upstream, &redis, "local", "by = \"ip\"\nrate = \"1/h\"").server("workers = 1");
    let (one, other) = (Gateway::start(&file).await, Gateway::start(&file).await);
    sees_gateways(&one, 2).await;
    one.get("/").await.expect(200);
    for _ in 0..2 {
        other.get("/").await.expect(429);
    }
    other.signal("STOP");
    let change = reset(&one, "calls", CLIENT).await;
    other.signal("CONT");
    assert_eq!(
        (&change["taken_by"], &change["gateways"]),
        (&json!(1), &json!(2)),
        "{change}"
    );
    eventually(
        Duration::from_secs(3),
        "the other one admits, too",
        async || other.get("/").await.status == 200,
    )
    .await;
}

#[tokio::test]
async fn in_memory_a_reset_is_this_gateways() {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &["calls", "flight"])
        .admin(ADMIN)
        .limit("calls", "by = \"ip\"\nrate = [\"2/h\", \"50/d\"]")
        .limit(
            "flight",
            "by = \"ip\"\nalgorithm = \"concurrency\"\nmax = 9",
        );
    let gateway = Gateway::start(&file).await;
    for status in [200, 200, 429] {
        gateway.get("/").await.expect(status);
    }
    let asked = json!({ "limit": "calls", "key": CLIENT, "id": "once", "note": "T-4711" });
    let first = post(&gateway, "/v1/reset", &asked).await.expect(200).json();
    let first = &first["changes"][0];
    assert_eq!(first["scope"], "this_gateway", "{first}");
    assert_eq!(
        (&first["id"], &first["note"]),
        (&json!("once"), &json!("T-4711"))
    );
    assert_eq!(
        (&first["before"]["used"], &first["before"]["of"]),
        (&json!(2), &json!(2)),
        "{first}"
    );
    gateway.get("/").await.expect(200);
    let again = post(&gateway, "/v1/reset", &asked).await.expect(200).json();
    assert_eq!(again["changes"][0]["repeated"], true, "{again}");
    assert_eq!(again["changes"][0]["before"], first["before"], "{again}");
    gateway.get("/").await.expect(200);
    gateway.get("/").await.expect(429);
    // One rate of the list.
    let day = json!({ "limit": "calls", "key": CLIENT, "window": "50/d" });
    post(&gateway, "/v1/reset", &day).await.expect(200);
    gateway.get("/").await.expect(429);
    let list = gateway.admin_get("/v1/changes").await.expect(200).json();
    assert_eq!(list["changes"].as_array().unwrap().len(), 2, "{list}");
    for (body, status, code) in [
        (
            json!({ "limit": "cals", "key": CLIENT }),
            404,
            "unknown_limit",
        ),
        (
            json!({ "limit": "calls", "key": CLIENT, "window": "3/h" }),
            404,
            "unknown_limit",
        ),
        (
            json!({ "limit": "calls", "key": CLIENT, "id": "a b" }),
            400,
            "bad_request",
        ),
        (
            json!({ "limit": "flight", "key": CLIENT }),
            409,
            "slots_end_by_themselves",
        ),
        (
            json!({ "limit": "calls", "key": "k".repeat(2_000) }),
            422,
            "too_long",
        ),
    ] {
        let refused = post(&gateway, "/v1/reset", &body)
            .await
            .expect(status)
            .json();
        assert_eq!(refused["code"], code, "{refused}");
    }
    post(
        &gateway,
        "/v1/reset",
        &json!({ "limit": "calls", "key": "", "ky": "" }),
    )
    .await
    .expect(400);
}

#[tokio::test]
async fn a_strangers_value_changes_nothing_and_is_told() {
    let (upstream, redis) = (Upstream::echo().await, Redis::start().await);
    let file = counted(
        &upstream,
        &redis,
        "closed",
        "by = \"ip\"\nrate = \"1000/h\"",
    );
    let gateway = Gateway::start(&file).await;
    let asked = json!({ "limit": "calls", "key": CLIENT });
    for (nth, name) in ["version", "changes", "heard"].into_iter().enumerate() {
        let key = format!("tollgate:1:{name}:{{*}}");
        redis.command::<()>(&["FLUSHALL"]).await;
        redis.command::<()>(&["LPUSH", &key, "x"]).await;
        gateway.get("/").await.expect(200);
        let refused = post(&gateway, "/v1/reset", &asked).await.expect(503).json();
        assert_eq!(refused["code"], "store_away", "{refused}");
        let detail = refused["detail"].as_str().unwrap();
        assert!(
            detail.contains(&key) && detail.contains("delete that key"),
            "{detail}"
        );
        assert!(
            gateway.get("/").await.expect(200).remaining("calls") < 999,
            "it was not emptied"
        );
        if nth == 0 {
            let line = gateway.said.line(0, "a warning", |line| {
                line.contains("cannot be read") && line.contains(&key)
            });
            line.await;
        }
    }
    redis.command::<()>(&["DEL", "tollgate:1:heard:{*}"]).await;
    reset(&gateway, "calls", CLIENT).await;
    assert_eq!(gateway.get("/").await.expect(200).remaining("calls"), 999);
}

#[tokio::test]
async fn without_redis_a_reset_is_refused_but_for_this_gateways_own_count() {
    let (upstream, mut redis) = (Upstream::echo().await, Redis::start().await);
    let file =
        counted(&upstream, &redis, "local", "by = \"ip\"\nrate = \"1/h\"").server("workers = 1");
    let gateway = Gateway::start(&file).await;
    gateway.get("/").await.expect(200);
    redis.kill().await;
    let asked = json!({ "limit": "calls", "key": CLIENT });
    let refused = post(&gateway, "/v1/reset", &asked).await.expect(503).json();
    assert_eq!(refused["code"], "store_away", "{refused}");
    eventually(PATIENCE, "this gateway has counted by itself", async || {
        gateway.get("/").await.status == 429
    })
    .await;
    let here = json!({ "limit": "calls", "key": CLIENT, "where": "here" });
    let done = post(&gateway, "/v1/reset", &here).await.expect(200).json();
    assert_eq!(done["changes"][0]["scope"], "this_gateway", "{done}");
    gateway.get("/").await.expect(200);
    gateway.get("/").await.expect(429);
    redis.come().await;
    eventually(PATIENCE, "Redis counts again", async || {
        let answer = post(&gateway, "/v1/reset", &asked).await;
        answer.status == 200 && gateway.get("/").await.status == 200
    })
    .await;
}

/// The store has forgotten the changes, and nothing waits for them.
#[tokio::test]
async fn changes_that_the_store_has_lost_are_named() {
    let (upstream, redis) = (Upstream::echo().await, Redis::start().await);
    let file = counted(&upstream, &redis, "closed", "by = \"ip\"\nrate = \"1/h\"");
    let gateway = Gateway::start(&file).await;
    reset(&gateway, "calls", CLIENT).await;
    redis.command::<()>(&["FLUSHALL"]).await;
    let line = gateway.said.line(0, "the loss", |line| {
        line.contains("changes_lost") && line.contains("reset of calls")
    });
    line.await;
    gateway.get("/").await.expect(200);
    reset(&gateway, "calls", CLIENT).await;
    gateway.get("/").await.expect(200);
}

#[tokio::test]
async fn in_a_cluster_counters_of_several_slots_are_emptied() {
    let upstream = Upstream::echo().await;
    let cluster = Cluster::start().await;
    let file = File::to(&upstream, &["calls"])
        .admin(ADMIN)
        .limit("calls", "by = \"ip\"\nrate = [\"2/h\", \"50/d\"]")
        .store(&format!(
            "{}\ntimeout = \"2s\"\non_down = \"closed\"",
            cluster.store()
        ));
    let (one, other) = (Gateway::start(&file).await, Gateway::start(&file).await);
    sees_gateways(&one, 2).await;
    for _ in 0..4 {
        one.get("/").await.expect(200);
        other.get("/").await.expect(200);
        for gateway in [&one, &other, &one, &other] {
            gateway.get("/").await.expect(429);
        }
        let change = reset(&one, "calls", CLIENT).await;
        assert_eq!(change["taken_by"], 2, "{change}");
    }
    let asked = json!({ "limit": "calls", "key": CLIENT, "id": "once" });
    post(&one, "/v1/reset", &asked).await.expect(200);
    one.get("/").await.expect(200);
    let again = post(&other, "/v1/reset", &asked).await.expect(200).json();
    assert_eq!(again["changes"][0]["repeated"], true, "{again}");
    other.get("/").await.expect(200);
    one.get("/").await.expect(429);
}
