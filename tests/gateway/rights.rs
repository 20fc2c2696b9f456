//! A user of Redis, or a server, that lacks a command of the scripts: the message about the store names the command,
//! and the store is away until the command can be called.

use crate::support::{File, Finished, Gateway, PATIENCE, Redis, Upstream, eventually, tollgate};
use std::time::Duration;

/// The commands that `deploy/redis/users.acl` allows to its user.
const RIGHTS: &str = "evalsha eval script|load time get set del pexpire lindex llen lrem lset ltrim rpush zadd zcount \
     zrange zrangebyscore zrem zremrangebyscore zscore select info role wait";
const LOG: &str = "by = \"everyone\"\nrate = \"5/h\"\nalgorithm = \"sliding-log\"";
const SLOTS: &str = "by = \"everyone\"\nalgorithm = \"concurrency\"\nmax = 5\nslot_ttl = \"1min\"";
const BUCKET: &str = "by = \"everyone\"\nrate = \"5/h\"";

/// A Redis with a user `t` that may call everything a gateway needs, except these commands.
async fn redis_without(commands: &[&str]) -> Redis {
    let redis = Redis::start().await;
    let rights = RIGHTS.split_ascii_whitespace();
    let rights = rights.filter(|right| !commands.contains(right));
    let rights: Vec<String> = rights.map(|right| format!("+{right}")).collect();
    let mut words = vec![
        "ACL",
        "SETUSER",
        "t",
        "on",
        ">secret",
        "resetkeys",
        "~tollgate:*",
    ];
    words.extend(rights.iter().map(String::as_str));
    redis.command::<()>(&words).await;
    redis
}

fn file(upstream: &Upstream, redis: &Redis, limits: &[(&str, &str)]) -> File {
    let names: Vec<&str> = limits.iter().map(|(name, _)| *name).collect();
    let url = format!("redis://t:secret@127.0.0.1:{}/0", redis.port());
    let file = File::to(upstream, &names).store(&format!(
        "url = \"{url}\"\non_down = \"closed\"\ntimeout = \"500ms\""
    ));
    let limits = limits.iter();
    limits.fold(file, |file, (name, lines)| file.limit(name, lines))
}

async fn check(file: &File) -> Finished {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("gateway.toml"), file.text()).unwrap();
    tollgate(folder.path(), &["check", "--connect"]).await
}

async fn is(gateway: &Gateway, word: &str) {
    eventually(PATIENCE, word, async || {
        gateway.admin_get("/readyz").await.text().contains(word)
    })
    .await;
}

#[tokio::test]
async fn check_names_the_user_and_the_command() {
    let upstream = Upstream::echo().await;
    let refunding = format!("{LOG}\nrefund = \"5xx\"");
    let settling =
        format!("{BUCKET}\ncost = {{ response_header = \"x-units\", estimate = 1, max = 5 }}");
    let ids = format!("{BUCKET}\ndedupe = {{ header = \"idempotency-key\" }}");
    for (limit, without) in [
        (BUCKET, &["get", "set", "time"][..]),
        (
            LOG,
            &["rpush", "pexpire", "llen", "lindex", "ltrim", "lset"],
        ),
        (&refunding, &["lrem", "del"]),
        (
            SLOTS,
            &[
                "zadd",
                "zrem",
                "zscore",
                "pexpire",
                "zremrangebyscore",
                "zrange",
            ],
        ),
        (&settling, &["del", "set"]),
        (&ids, &["get"]),
    ] {
        for command in without {
            let redis = redis_without(&[command]).await;
            let told = check(&file(&upstream, &redis, &[("calls", limit)])).await;
            let name = command.to_ascii_uppercase();
            let words = format!("user `t` may not call {name}: add `+{command}`");
            assert!(
                told.stdout.contains(&words),
                "{limit}: {words}: {}",
                told.stdout
            );
            assert_eq!(
                told.code,
                Some(1),
                "{limit} without {command}: {}",
                told.stdout
            );
        }
        let redis = redis_without(&[]).await;
        let told = check(&file(&upstream, &redis, &[("calls", limit)])).await;
        assert_eq!(told.code, Some(0), "{limit}: {}", told.stdout);
        let left: Vec<String> = redis.command(&["KEYS", "tollgate:1:probe:*"]).await;
        // The one decision of each check lapses, as does the record of a surcharge.
        let stays = |key: &&String| !key.starts_with("tollgate:1:probe:{") && !key.contains(":d:");
        assert_eq!(left.iter().find(stays), None, "{left:?}");
        let lasting = async |key: &String| redis.command::<i64>(&["PTTL", key]).await;
        for key in &left {
            assert!(lasting(key).await != -1, "{key} lapses");
        }
    }
}

#[tokio::test]
async fn what_no_limit_needs_need_not_be_allowed() {
    let upstream = Upstream::echo().await;
    let none = [
        "pexpire", "rpush", "lrem", "zadd", "zrem", "del", "info", "role", "eval",
    ];
    let redis = redis_without(&none).await;
    let told = check(&file(&upstream, &redis, &[("calls", BUCKET)])).await;
    assert_eq!(told.code, Some(0), "{}", told.stdout);
    // Without the number of gateways, each gateway counts as if it were alone while Redis is away.
    let words = "user `t` may not call EVAL: add `+eval`";
    assert!(told.stdout.contains(words), "{}", told.stdout);
}

#[tokio::test]
async fn a_user_who_may_choose_no_database_is_named() {
    let upstream = Upstream::echo().await;
    let redis = redis_without(&["select"]).await;
    let file = file(&upstream, &redis, &[("calls", BUCKET)]);
    let told = check(&file).await;
    assert_eq!(told.code, Some(0), "{}", told.stdout);
    let database = format!(":{}/", redis.port());
    let other = file
        .text()
        .replace(&format!("{database}0"), &format!("{database}2"));
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("gateway.toml"), other).unwrap();
    let told = tollgate(folder.path(), &["check", "--connect"]).await;
    let words = "user `t` may not call SELECT: add `+select`";
    assert!(told.stdout.contains(words), "{}", told.stdout);
    assert_eq!(told.code, Some(1), "{}", told.stdout);
}

#[tokio::test]
async fn a_command_that_the_server_does_not_know_is_named() {
    let upstream = Upstream::echo().await;
    for (limit, command) in [
        (SLOTS, "ZREM"),
        (LOG, "PEXPIRE"),
        (BUCKET, "EVALSHA"),
        (BUCKET, "TIME"),
    ] {
        let redis = Redis::start_with(&["--rename-command", command, ""]).await;
        let file = File::to(&upstream, &["calls"])
            .limit("calls", limit)
            .redis(&redis, "");
        let told = check(&file).await;
        let words = format!("does not know {command}");
        assert!(told.stdout.contains(&words), "{words}: {}", told.stdout);
        assert_eq!(told.code, Some(1), "{}", told.stdout);
    }
}

/// A right that is missing when the gateway starts: requests that are answered 503 are not charged.
#[tokio::test]
async fn a_store_that_refuses_a_command_is_away_from_the_start() {
    let upstream = Upstream::echo().await;
    let redis = redis_without(&["pexpire"]).await;
    let gateway = Gateway::start(&file(&upstream, &redis, &[("calls", LOG)])).await;
    is(&gateway, "store: away").await;
    for _ in 0..5 {
        gateway.get("/").await.expect(503);
    }
    assert_eq!(redis.keys().await, [""; 0]);
    eventually(PATIENCE, "the command is named", async || {
        let said = gateway.said.text();
        said.contains("user `t` may not call PEXPIRE: add `+pexpire`")
    })
    .await;
    let said = gateway.said.text();
    assert!(!said.contains("delete that key"), "{said}");
    redis
        .command::<()>(&["ACL", "SETUSER", "t", "+pexpire"])
        .await;
    is(&gateway, "store: up").await;
    gateway.get("/").await.expect(200);
}

/// Three gateways whose store refuses a command still know how many they are.
#[tokio::test]
async fn gateways_without_a_right_count_their_shares() {
    let upstream = Upstream::echo().await;
    let redis = redis_without(&["rpush"]).await;
    let limit = LOG.replace("5/h", "6/h") + "\non_down = \"local\"";
    let file = file(&upstream, &redis, &[("calls", &limit)]);
    let gateways = [
        Gateway::start(&file).await,
        Gateway::start(&file).await,
        Gateway::start(&file).await,
    ];
    for gateway in &gateways {
        eventually(PATIENCE, "it knows of three", async || {
            gateway.metrics().await.contains("tollgate_gateways 3")
        })
        .await;
    }
    let mut passed = 0;
    for gateway in &gateways {
        for _ in 0..6 {
            passed += usize::from(gateway.get("/").await.status == 200);
        }
    }
    assert_eq!(passed, 6);
}

/// A right that is taken away while the gateway runs.
#[tokio::test]
async fn a_release_that_is_refused_is_lost_and_the_store_away() {
    let upstream = Upstream::echo().await;
    let redis = redis_without(&[]).await;
    let gateway = Gateway::start(&file(&upstream, &redis, &[("calls", SLOTS)])).await;
    is(&gateway, "store: up").await;
    gateway.get("/").await.expect(200);
    redis.command::<()>(&["ACL", "SETUSER", "t", "-zrem"]).await;
    gateway.get("/").await.expect(200);
    is(&gateway, "store: away").await;
    let line = "tollgate_store_operations_total{operation=\"release\",outcome=\"lost\"} 1";
    let metrics = gateway.metrics().await;
    assert!(metrics.contains(line), "{metrics}");
    eventually(PATIENCE, "the command is named", async || {
        let said = gateway.said.text();
        said.contains("user `t` may not call ZREM: add `+zrem`")
    })
    .await;
    let said = gateway.said.text();
    assert!(!said.contains("delete that key"), "{said}");
    // The state does not change back and forth.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert!(gateway.admin_get("/readyz").await.text().contains("away"));
    redis.command::<()>(&["ACL", "SETUSER", "t", "+zrem"]).await;
    is(&gateway, "store: up").await;
    // The slot that could not be freed before is free now.
    eventually(PATIENCE, "no slot is taken", async || {
        let keys = redis.keys().await;
        !keys.iter().any(|key| key.contains(":calls:"))
    })
    .await;
}

/// Each of two workers notices it by itself, and by another error: the error of a script does not name the command.
#[tokio::test]
async fn a_right_that_is_lost_is_named_at_once() {
    let upstream = Upstream::echo().await;
    for (limit, command) in [
        (BUCKET, "set"),
        (BUCKET, "get"),
        (BUCKET, "evalsha"),
        (SLOTS, "zadd"),
        (SLOTS, "zscore"),
        (SLOTS, "zrem"),
        (SLOTS, "zrange"),
        (LOG, "rpush"),
    ] {
        let redis = redis_without(&[]).await;
        let limit = limit
            .replace("5/h", "5000/h")
            .replace("max = 5", "max = 5000");
        let limit = format!("{limit}\non_down = \"open\"");
        let file = file(&upstream, &redis, &[("calls", &limit)]).server("workers = 2");
        let gateway = Gateway::start(&file).await;
        is(&gateway, "store: up").await;
        let lost = format!("-{command}");
        redis.command::<()>(&["ACL", "SETUSER", "t", &lost]).await;
        let name = command.to_ascii_uppercase();
        let words = format!("user `t` may not call {name}: add `+{command}`");
        eventually(Duration::from_secs(5), &words, async || {
            gateway.get("/").await.expect(200);
            let ready = gateway.admin_get("/readyz").await.text();
            ready.contains(&words) && gateway.said.text().contains(&words)
        })
        .await;
    }
}

/// A new file needs a command that the previous file did not need.
#[tokio::test]
async fn a_reload_with_other_kinds_of_counters_tries_them() {
    let upstream = Upstream::echo().await;
    let redis = redis_without(&["zadd"]).await;
    let gateway = Gateway::start(&file(&upstream, &redis, &[("calls", BUCKET)])).await;
    is(&gateway, "store: up").await;
    gateway.get("/").await.expect(200);
    let both = [("calls", BUCKET), ("slots", SLOTS)];
    gateway.rename_over(&file(&upstream, &redis, &both).text());
    is(&gateway, "store: away").await;
    eventually(PATIENCE, "the command is named", async || {
        gateway
            .said
            .text()
            .contains("user `t` may not call ZADD: add `+zadd`")
    })
    .await;
    gateway.rename_over(&file(&upstream, &redis, &[("calls", BUCKET)]).text());
    is(&gateway, "store: up").await;
}

/// A key with a foreign value affects only the limit that it belongs to.
#[tokio::test]
async fn another_value_at_a_key_takes_no_store_away() {
    let upstream = Upstream::echo().await;
    let redis = redis_without(&[]).await;
    let limits = [("calls", BUCKET), ("slots", SLOTS)];
    let gateway = Gateway::start(&file(&upstream, &redis, &limits)).await;
    is(&gateway, "store: up").await;
    gateway.get("/").await.expect(200);
    let keys = redis.keys().await;
    let key = keys.iter().find(|key| key.contains(":calls:")).unwrap();
    redis.command::<()>(&["DEL", key]).await;
    redis.command::<()>(&["RPUSH", key, "x"]).await;
    gateway.get("/").await.expect(503);
    eventually(PATIENCE, "the log tells of the key", async || {
        gateway.said.text().contains("delete that key in Redis")
    })
    .await;
    assert!(
        gateway
            .admin_get("/readyz")
            .await
            .text()
            .contains("store: up")
    );
}
