//! The calls behind the door: what they answer, and what they refuse.

use super::{JSON, PACE, TOKEN, TOKENS, ask, bearer, code, file, reload, started};
use crate::support::{Gateway, PATIENCE, Redis, Upstream, eventually};
use serde_json::Value;
use tokio::time::sleep;

async fn read_json(gateway: &Gateway, path: &str) -> Value {
    let answer = ask(gateway, "GET", path, &[], "").await.expect(200);
    assert_eq!(answer.field("cache-control"), "no-store");
    assert_eq!(answer.field("x-content-type-options"), "nosniff");
    assert_eq!(answer.field("content-type"), "application/json");
    answer.json()
}

#[tokio::test]
async fn the_state_of_a_gateway_in_short() {
    let (upstream, redis) = (Upstream::echo().await, Redis::start().await);
    let file = file(&upstream, TOKENS).redis(&redis, "");
    let gateway = Gateway::start(&file).await;
    let status = read_json(&gateway, "/v1/status").await;
    for (name, value) in [
        ("name", "edge-1"),
        ("phase", "ready"),
        ("source", "file"),
        ("cause", "none"),
        ("headline", "All servers take requests, and Redis answers."),
    ] {
        assert_eq!(status[name], value, "{status}");
    }
    assert_eq!(status["ready"], true);
    assert_eq!(status["generation"], 1);
    assert_eq!(status["store"]["kind"], "redis");
    assert_eq!(status["servers"]["available"], 1);
    assert_eq!(
        status["hash"],
        read_json(&gateway, "/v1/config").await["hash"]
    );
    redis.freeze();
    eventually(PATIENCE, "Redis is away", async || {
        sleep(PACE).await;
        gateway.get("/").await;
        let status = ask(&gateway, "GET", "/v1/status", &[], "").await;
        status.status == 200 && status.json()["cause"] == "us"
    })
    .await;
    let status = read_json(&gateway, "/v1/status").await;
    assert_eq!(status["alerts"][0]["code"], "store_away", "{status}");
    redis.thaw();
}

#[tokio::test]
async fn limits_and_routes_as_they_were_compiled() {
    let upstream = Upstream::echo().await;
    let mut file = file(&upstream, "");
    for nth in 0..5 {
        let path = format!("/more-{nth}");
        file = file
            .limit(
                &format!("more-{nth}"),
                "by = [\"ip\", \"route\"]\nrate = [\"10/s\", \"100/min\"]",
            )
            .route(
                &format!("route-{nth}"),
                &path,
                "main",
                &[&format!("more-{nth}")],
            );
    }
    let gateway = Gateway::start(&file).await;
    let one = read_json(&gateway, "/v1/limits/per-ip").await;
    assert_eq!(one["rule"], "10/s, burst 20");
    assert_eq!(one["by"], serde_json::json!(["ip"]));
    assert_eq!(one["algorithm"], "token-bucket");
    assert_eq!(one["used_by"]["routes"], serde_json::json!(["all"]));
    assert!(
        one["place"].as_str().unwrap().contains("gateway.toml:"),
        "{one}"
    );
    assert!(
        one["sentence"].as_str().unwrap().contains("20 at once"),
        "{one}"
    );
    let list = read_json(&gateway, "/v1/limits/more-1").await;
    assert!(list["rule"].as_str().unwrap().contains("; "), "{list}");
    let first = read_json(&gateway, "/v1/limits?count=4").await;
    assert_eq!(first["limits"].as_array().unwrap().len(), 4);
    let next = first["next"].as_str().unwrap();
    let rest = read_json(&gateway, &format!("/v1/limits?count=4&after={next}")).await;
    assert_eq!(rest["limits"].as_array().unwrap().len(), 2);
    assert_eq!(rest["next"], Value::Null);
    let routes = read_json(&gateway, "/v1/routes").await;
    assert_eq!(routes["routes"][0]["name"], "all");
    assert_eq!(routes["routes"][0]["upstream"], "main");
    for (path, status, said) in [
        ("/v1/limits/per-op", 404, "unknown_limit"),
        ("/v1/limits?count=0", 400, "bad_parameter"),
        ("/v1/limits?count=501", 400, "bad_parameter"),
        ("/v1/limits?count=1&count=2", 400, "bad_parameter"),
        ("/v1/limits?after=none", 400, "bad_parameter"),
        ("/v1/limits?cuont=1", 400, "unknown_parameter"),
        ("/v1/status?x", 400, "unknown_parameter"),
        ("/v1", 404, "unknown_path"),
        ("/", 404, "unknown_path"),
    ] {
        let answer = ask(&gateway, "GET", path, &[], "").await;
        assert_eq!(
            (answer.status, code(&answer).as_str()),
            (status, said),
            "{path}"
        );
        assert_eq!(answer.field("cache-control"), "no-store");
    }
    let answer = ask(&gateway, "GET", "/v1/limits/per-op", &[], "").await;
    assert_eq!(answer.json()["help"], "did you mean `per-ip`?");
    ask(&gateway, "GET", "/metrics?x=1", &[], "")
        .await
        .expect(200);
}

#[tokio::test]
async fn the_file_is_shown_without_its_secrets() {
    let (_upstream, gateway) = started(TOKENS).await;
    let config = read_json(&gateway, "/v1/config").await;
    let text = config["text"].as_str().unwrap();
    assert!(
        text.contains("[limits.per-ip]") && text.contains("***"),
        "{text}"
    );
    assert!(!text.contains(TOKEN), "{text}");
    assert_eq!(config["generation"], 1);
    assert!(
        config["files"][0]
            .as_str()
            .unwrap()
            .ends_with("gateway.toml")
    );
    let document = read_json(&gateway, "/v1/openapi.json").await;
    assert_eq!(document["openapi"], "3.1.0");
    assert!(document["paths"]["/v1/reload"]["post"].is_object());
}

#[tokio::test]
async fn a_reload_says_what_has_changed() {
    let upstream = Upstream::echo().await;
    let text = file(&upstream, TOKENS).text();
    let gateway = Gateway::start(&file(&upstream, TOKENS)).await;
    let authorization = bearer(TOKEN);
    let fields = [("Authorization", authorization.as_str()), JSON];
    gateway.rename_over(&text.replace("rate = \"10/s\"", "rate = \"20/s\""));
    let answer = reload(&gateway, &fields).await.expect(200).json();
    assert_eq!(answer["generation"], 2, "{answer}");
    assert_eq!(answer["changed"][0]["subject"], "limits.per-ip", "{answer}");
    assert!(
        answer["text"].as_str().unwrap().contains("rate"),
        "{answer}"
    );
    let answer = reload(&gateway, &fields).await.expect(200).json();
    assert_eq!(answer["unchanged"], true, "{answer}");
    gateway.rename_over(&text.replace("rate = \"10/s\"", "rate = \"ten\""));
    for _ in 0..2 {
        let answer = reload(&gateway, &fields).await;
        assert_eq!(
            (answer.status, code(&answer).as_str()),
            (422, "config_refused")
        );
        let diagnostics = answer.json()["diagnostics"].clone();
        let mut all = diagnostics.as_array().unwrap().iter();
        assert!(all.any(|one| one["code"] == "bad-rate"), "{diagnostics}");
    }
    let status = read_json(&gateway, "/v1/status").await;
    assert_eq!(status["generation"], 2);
    assert_eq!(status["last_reload"]["ok"], false, "{status}");
    assert_eq!(status["alerts"][0]["code"], "reload_refused", "{status}");
}
