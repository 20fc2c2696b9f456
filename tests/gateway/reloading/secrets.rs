//! Secrets in separate files change under a running gateway.

use super::SOON;
use crate::support::{File, Gateway, Redis, Upstream, eventually};
use std::path::Path;

/// Replaces the file as a mounted secret is replaced: a new file is written beside the old one and renamed over it.
fn replace(file: &Path, text: &str) {
    let beside = file.with_extension("new");
    std::fs::write(&beside, text).unwrap();
    std::fs::rename(&beside, file).unwrap();
}

#[tokio::test]
async fn a_field_with_a_secret_changes_with_its_file() {
    let upstream = Upstream::echo().await;
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("key");
    std::fs::write(&secret, "one\n").unwrap();
    let file = File::default()
        .upstream("main", &[&upstream])
        .route("all", "/{*rest}", "main", &[])
        .with("request_headers.set.x-api-key = { file = \"key\" }");
    let path = folder.path().join("gateway.toml");
    std::fs::write(&path, file.text()).unwrap();
    let gateway = Gateway::run(folder, &path).await;
    let sees = async |value: &str| {
        let seen = gateway.get("/").await.echoed();
        seen.fields.get("x-api-key") == Some(value)
    };
    assert!(sees("one").await);
    replace(&secret, "two");
    eventually(SOON, "the new key", async || sees("two").await).await;
}

#[tokio::test]
async fn another_password_of_redis_needs_no_restart() {
    let redis = Redis::start_with_password("one").await;
    let upstream = Upstream::echo().await;
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("password");
    std::fs::write(&secret, "one").unwrap();
    let file = File::to(&upstream, &["l"])
        .limit("l", "by = \"ip\"\nrate = \"1000/h\"")
        .redis(
            &redis,
            "timeout = \"1s\"\npassword = { file = \"password\" }",
        );
    let path = folder.path().join("gateway.toml");
    std::fs::write(&path, file.text()).unwrap();
    let gateway = Gateway::run(folder, &path).await;
    let shared = async || {
        let answer = gateway.get("/").await;
        gateway.line_of(&answer).await["decided_by"] == "store"
    };
    eventually(SOON, "counted in Redis", &shared).await;

    replace(&secret, "two");
    eventually(SOON, "the reload", async || {
        gateway
            .metrics()
            .await
            .contains("tollgate_config_generation 2")
    })
    .await;
    redis
        .command_as("one", &["CONFIG", "SET", "requirepass", "two"])
        .await;
    redis
        .command_as(
            "two",
            &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"],
        )
        .await;
    eventually(SOON, "counted in Redis again", &shared).await;
}
