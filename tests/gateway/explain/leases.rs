//! Limits with leases: the words of `check` and `explain`, and the behaviour of the gateway.

use super::{explain, said};
use crate::support::{File, Gateway, PATIENCE, Redis, Upstream, eventually, get, tollgate};

/// A file with a limit that is the only one of one route, and stands beside another limit on a second route.
fn file(upstream: &Upstream, redis: &Redis) -> File {
    File::default()
        .redis(redis, "on_down = \"closed\"")
        .limit("all", "by = \"everyone\"\nrate = \"1000000/h\"")
        .limit("mine", "by = \"ip\"\nrate = \"100000/h\"\nlease = \"off\"")
        .upstream("main", &[upstream])
        .route("alone", "/alone", "main", &["all"])
        .route("beside", "/beside", "main", &["all", "mine"])
}

#[tokio::test]
async fn where_permits_are_taken_ahead_is_told() {
    let (upstream, redis) = (Upstream::echo().await, Redis::start().await);
    let gateway = Gateway::start(&file(&upstream, &redis)).await;
    let path = gateway.file();
    let (folder, path) = (path.parent().unwrap(), path.to_str().unwrap());
    let told = tollgate(folder, &["--config", path, "check"]).await.stdout;
    let line = told.lines().find(|line| line.contains("leased"));
    let line = line.unwrap_or_else(|| panic!("{told}"));
    assert!(
        line.contains("leased while it is busy: a worker takes up to 10000 permits at once"),
        "{line}"
    );
    assert_eq!(told.matches("leased").count(), 1, "{told}");
    let alone = said(&["GET", "/alone", "--config", path]).await;
    assert!(
        alone.contains("  leased while it is busy: a worker takes"),
        "{alone}"
    );
    let beside = said(&["GET", "/beside", "--config", path]).await;
    for words in [
        "  leased while it is busy: a worker takes",
        "never leased: lease = \"off\"",
    ] {
        assert!(beside.contains(words), "{beside}");
    }
    let json = explain(&["GET", "/beside", "--config", path, "--json"]).await;
    let json: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(json["limits"][1]["leased"], "never leased: lease = \"off\"");

    let leased = async |route: &str, limit: &str| {
        let metrics = gateway.metrics().await;
        let mut rows = metrics.lines().filter(|line| {
            line.starts_with("tollgate_limit_decisions_total")
                && line.contains(&format!("route=\"{route}\""))
                && line.contains(&format!("limit=\"{limit}\""))
                && line.contains("decided_by=\"lease\"")
        });
        rows.any(|row| !row.ends_with(" 0"))
    };
    eventually(PATIENCE, "a lease on each route", async || {
        for target in ["/alone", "/beside"] {
            let mut wire = gateway.connect().await;
            for _ in 0..40 {
                // On a machine that is too busy, Redis does not answer in time.
                let status = wire.ask(get(target)).await.status;
                assert!(matches!(status, 200 | 503), "{status}");
            }
        }
        leased("alone", "all").await && leased("beside", "all").await
    })
    .await;
    assert!(!leased("beside", "mine").await);
}

/// Leases are not described if the file has no Redis.
#[tokio::test]
async fn in_memory_nothing_is_said_of_redis() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gateway.toml");
    let write = |store: &str| {
        let text = format!(
            "[store]\nurl = \"{store}\"\n[limits.own]\nby = \"ip\"\nrate = \"9000/s\"\nscope = \"gateway\"\non_down = \"open\"\n\
             [limits.login]\nby = \"ip\"\nrate = \"5/min\"\non_down = \"closed\"\n[limits.many]\nby = \"ip\"\nrate = \"9000/s\"\n\
             [upstreams.u]\nservers = \"a:1\"\n[routes.r]\nupstream = \"u\"\nlimits = [\"own\", \"login\"]\n\
             [routes.s]\npath = \"/s\"\nupstream = \"u\"\nlimits = \"many\"\n"
        );
        std::fs::write(&path, text).unwrap();
    };
    let shown = async || {
        let path = path.to_str().unwrap();
        let check = tollgate(folder.path(), &["--config", path, "check"]).await;
        let first = said(&["GET", "/", "--config", path]).await;
        let second = said(&["GET", "/s", "--config", path]).await;
        (check.stdout, first + &second)
    };
    write("memory:");
    let (check, explained) = shown().await;
    for words in ["Redis", "503", "lease"] {
        assert!(!check.contains(words), "{words}: {check}");
        assert!(!explained.contains(words), "{words}: {explained}");
    }
    write("redis://cache");
    let (check, explained) = shown().await;
    for text in [&check, &explained] {
        assert!(text.contains("; 503 while Redis is away"), "{text}");
        assert!(text.contains("leased while it is busy"), "{text}");
        // These words are about limits that each gateway counts alone.
        assert!(!text.contains("not at all while"), "{text}");
    }
}
