//! Redis absent, killed, frozen or emptied: the behaviour of each `on_down`, its speed, and the return to Redis.

use crate::support::load::{Load, Shot, statuses, within};
use crate::support::{File, Gateway, Redis, Upstream, eventually};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The timeout of a decision: much longer than a request itself takes on a busy machine.
const TIMEOUT: Duration = Duration::from_millis(250);
/// The delay that a busy machine may add to the timeout, and the longer delay that one request in a hundred may have.
const MARGIN: Duration = Duration::from_millis(150);
const LONGEST: Duration = Duration::from_secs(1);
/// The time within which limits must be shared again.
const BACK: Duration = Duration::from_secs(5);

const PLENTY: &str = "by = \"everyone\"\nrate = \"1000000/h\"\nalgorithm = \"fixed-window\"";

/// A file with a timeout of decisions that is long enough for a busy machine, for tests that count.
pub(super) fn counted(upstream: &Upstream, redis: &Redis, on_down: &str, limit: &str) -> File {
    with_timeout(upstream, redis, on_down, limit, Duration::from_secs(2))
}

/// A file with a short timeout of decisions, for tests that measure the cost of an outage.
fn hurried(upstream: &Upstream, redis: &Redis, on_down: &str, limit: &str) -> File {
    with_timeout(upstream, redis, on_down, limit, TIMEOUT)
}

fn with_timeout(
    upstream: &Upstream,
    redis: &Redis,
    on_down: &str,
    limit: &str,
    timeout: Duration,
) -> File {
    let store = format!(
        "timeout = \"{}ms\"\non_down = \"{on_down}\"",
        timeout.as_millis()
    );
    File::to(upstream, &["calls"])
        .limit("calls", limit)
        .redis(redis, &store)
}

/// Checks that Redis decides again.
async fn assert_shared_again(gateway: &Gateway, redis: &Redis) {
    let start = Instant::now();
    eventually(BACK, "limits are shared again", async || {
        gateway.get("/").await;
        redis.script_calls().await > 0
    })
    .await;
    assert!(start.elapsed() < BACK, "{:?}", start.elapsed());
}

#[tokio::test]
async fn without_redis_at_the_start_an_open_gateway_lets_pass() {
    let (upstream, mut redis) = (Upstream::echo().await, Redis::absent());
    let gateway = Gateway::start(&counted(
        &upstream,
        &redis,
        "open",
        "by = \"everyone\"\nrate = \"1/h\"",
    ))
    .await;
    for _ in 0..5 {
        gateway.get("/").await.expect(200);
    }
    redis.come().await;
    assert_shared_again(&gateway, &redis).await;
    // Each worker reconnects by itself.
    eventually(BACK, "it refuses again", async || {
        gateway.get("/").await.status == 429
    })
    .await;
}

#[tokio::test]
async fn without_redis_at_the_start_a_closed_gateway_refuses() {
    let (upstream, mut redis) = (Upstream::echo().await, Redis::absent());
    let gateway = Gateway::start(&counted(&upstream, &redis, "closed", PLENTY)).await;
    let answer = gateway.get("/").await.expect(503);
    assert!(answer.number("retry-after") >= 1);
    assert_eq!(answer.field("content-type"), "application/problem+json");
    assert_eq!(gateway.line_of(&answer).await["reason"], "store_down");
    assert_eq!(upstream.seen(), 0);
    redis.come().await;
    eventually(BACK, "it admits again", async || {
        gateway.get("/").await.status == 200
    })
    .await;
    assert_shared_again(&gateway, &redis).await;
}

#[tokio::test]
async fn without_redis_at_the_start_a_local_gateway_counts_itself() {
    let (upstream, mut redis) = (Upstream::echo().await, Redis::absent());
    let gateway = Gateway::start(&counted(
        &upstream,
        &redis,
        "local",
        "by = \"ip\"\nrate = \"2/h\"",
    ))
    .await;
    for status in [200, 200, 429] {
        gateway.get("/").await.expect(status);
    }
    redis.come().await;
    // Redis has none of the charges that were counted meanwhile.
    eventually(BACK, "Redis counts", async || {
        gateway.get("/").await.status == 200
    })
    .await;
    assert_shared_again(&gateway, &redis).await;
}

/// The requests of clients before, during and after an outage.
struct Outage {
    during: Vec<Shot>,
    all: Vec<Shot>,
}

/// Takes Redis away under load, and brings it back.
async fn outage(
    on_down: &str,
    limit: &str,
    take: impl AsyncFn(&mut Redis),
    give: impl AsyncFn(&mut Redis),
) -> Outage {
    let (upstream, mut redis) = (Upstream::echo().await, Redis::start().await);
    let gateway =
        Gateway::start(&hurried(&upstream, &redis, on_down, limit).server("workers = 2")).await;
    eventually(BACK, "Redis decides", async || {
        gateway.get("/").await.status == 200 && redis.script_calls().await > 0
    })
    .await;
    let load = Load::on(&[&gateway], 8, Duration::from_millis(2)).await;
    load.run(Duration::from_millis(400)).await;
    let gone = Instant::now();
    take(&mut redis).await;
    load.run(Duration::from_millis(1200)).await;
    let back = Instant::now();
    give(&mut redis).await;
    let calls = redis.script_calls().await;
    eventually(BACK, "limits are shared again", async || {
        redis.script_calls().await > calls
    })
    .await;
    let all = load.stop().await;
    // The first moments, in which the gateway notices the loss, are only in `all`.
    let noticed = gone + TIMEOUT + MARGIN;
    let during = all
        .iter()
        .filter(|shot| shot.at > noticed && shot.at < back)
        .copied()
        .collect();
    Outage { during, all }
}

impl Outage {
    #[track_caller]
    fn assert_quick(&self) {
        let slowest = within(&self.all, 0.99);
        assert!(slowest <= TIMEOUT + MARGIN, "a request took {slowest:?}");
        let longest = within(&self.all, 1.0);
        assert!(longest <= LONGEST, "a request took {longest:?}");
        // Once the loss is known, no request takes longer because of it.
        let usual = within(&self.during, 0.5);
        assert!(
            usual < TIMEOUT / 2,
            "half of the requests took more than {usual:?} during the outage"
        );
        assert!(!self.during.is_empty(), "nobody asked during the outage");
    }
}

async fn kill(redis: &mut Redis) {
    redis.kill().await;
}

async fn come(redis: &mut Redis) {
    redis.come().await;
}

async fn freeze(redis: &mut Redis) {
    redis.freeze();
}

async fn thaw(redis: &mut Redis) {
    redis.thaw();
}

#[tokio::test]
async fn a_killed_redis_goes_unnoticed_when_open() {
    let outage = outage("open", PLENTY, kill, come).await;
    outage.assert_quick();
    assert_eq!(statuses(&outage.all).into_keys().collect::<Vec<_>>(), [200]);
}

#[tokio::test]
async fn a_killed_redis_goes_unnoticed_when_local() {
    let outage = outage("local", PLENTY, kill, come).await;
    outage.assert_quick();
    assert_eq!(statuses(&outage.all).into_keys().collect::<Vec<_>>(), [200]);
}

#[tokio::test]
async fn a_killed_redis_is_503_when_closed() {
    let outage = outage("closed", PLENTY, kill, come).await;
    outage.assert_quick();
    assert_eq!(
        statuses(&outage.during).into_keys().collect::<Vec<_>>(),
        [503]
    );
    assert_eq!(
        statuses(&outage.all).into_keys().collect::<Vec<_>>(),
        [200, 503]
    );
}

#[tokio::test]
async fn a_frozen_redis_goes_unnoticed_when_open() {
    let outage = outage("open", PLENTY, freeze, thaw).await;
    outage.assert_quick();
    assert_eq!(statuses(&outage.all).into_keys().collect::<Vec<_>>(), [200]);
}

#[tokio::test]
async fn a_frozen_redis_goes_unnoticed_when_local() {
    let outage = outage("local", PLENTY, freeze, thaw).await;
    outage.assert_quick();
    assert_eq!(statuses(&outage.all).into_keys().collect::<Vec<_>>(), [200]);
}

#[tokio::test]
async fn a_local_limit_still_limits_while_redis_is_away() {
    let limit = "by = \"everyone\"\nrate = \"20/h\"";
    let outage = outage("local", limit, kill, come).await;
    let counts = statuses(&outage.all);
    assert_eq!(counts.keys().copied().collect::<Vec<_>>(), [200, 429]);
    // A client gets its 20 units from Redis, at most 20 here while Redis was away, and 20 from an empty Redis
    // afterwards.
    assert!(counts[&200] <= 60, "{counts:?}");
    outage.assert_quick();
}

#[tokio::test]
async fn forgotten_scripts_are_sent_again() {
    let (upstream, redis) = (Upstream::echo().await, Redis::start().await);
    // Each request asks by itself, and its answer states the remainder.
    let limit = format!("{PLENTY}\nlease = \"off\"");
    let gateway = Gateway::start(&counted(&upstream, &redis, "closed", &limit)).await;
    let load = Load::on(&[&gateway], 4, Duration::from_millis(2)).await;
    for _ in 0..5 {
        load.run(Duration::from_millis(50)).await;
        redis.command::<()>(&["SCRIPT", "FLUSH"]).await;
    }
    load.run(Duration::from_millis(50)).await;
    let shots = load.stop().await;
    let last = gateway.get("/").await.expect(200);
    assert_eq!(statuses(&shots), BTreeMap::from([(200, shots.len())]));
    // No request was lost, and none was counted twice.
    assert_eq!(last.remaining("calls"), 1_000_000 - shots.len() as u64 - 1);
}

#[tokio::test]
async fn closed_connections_are_replaced() {
    let (upstream, redis) = (Upstream::echo().await, Redis::start().await);
    let gateway = Gateway::start(&counted(&upstream, &redis, "open", PLENTY)).await;
    gateway.get("/").await.expect(200);
    redis
        .command::<()>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"])
        .await;
    let calls = redis.script_calls().await;
    eventually(BACK, "limits are shared again", async || {
        gateway.get("/").await.expect(200);
        redis.script_calls().await > calls
    })
    .await;
}

#[tokio::test]
async fn a_call_that_timed_out_is_not_repeated() {
    let (upstream, redis) = (Upstream::echo().await, Redis::start().await);
    let limit = "by = \"everyone\"\nrate = \"100/h\"\nalgorithm = \"fixed-window\"";
    let gateway = Gateway::start(&hurried(&upstream, &redis, "open", limit)).await;
    for _ in 0..3 {
        gateway.get("/").await.expect(200);
    }
    redis.freeze();
    gateway.get("/").await.expect(200);
    redis.thaw();
    let before = redis.script_calls().await;
    // The request that timed out counts once or not at all. Requests that came while the gateway still took Redis for
    // away do not count.
    eventually(BACK, "limits are shared again", async || {
        let answer = gateway.get("/").await.expect(200);
        let counted = redis.script_calls().await - before;
        counted > 0
            && answer.fields.has("ratelimit")
            && [96, 95].contains(&answer.remaining("calls"))
    })
    .await;
}

#[tokio::test]
async fn a_spoilt_counter_spoils_no_other() {
    let (upstream, redis) = (Upstream::echo().await, Redis::start().await);
    let limit = "by = \"header:x-user\"\nmissing = \"refuse\"\nrate = \"5/h\"";
    let gateway = Gateway::start(&counted(&upstream, &redis, "closed", limit)).await;
    let ask = async |user: &str| gateway.get_with("/", &[("X-User", user)]).await;
    ask("ann").await.expect(200);
    let keys = redis.keys().await;
    let key = keys
        .iter()
        .find(|key| key.contains("calls"))
        .expect("a counter is a key");
    redis.command::<()>(&["DEL", key]).await;
    redis.command::<()>(&["RPUSH", key, "not", "ours"]).await;
    let ann = ask("ann").await;
    assert_eq!(
        ann.status, 503,
        "a counter that cannot be read is answered by on_down: {ann:?}"
    );
    for left in [4, 3] {
        assert_eq!(ask("ben").await.expect(200).remaining("calls"), left);
    }
}

#[tokio::test]
async fn a_redis_with_a_password_is_used() {
    let (upstream, redis) = (
        Upstream::echo().await,
        Redis::start_with_password("s3cret-word").await,
    );
    let folder = tempfile::tempdir().unwrap();
    let password = folder.path().join("password");
    std::fs::write(&password, "s3cret-word\n").unwrap();
    let file = counted(
        &upstream,
        &redis,
        "closed",
        "by = \"everyone\"\nrate = \"1/h\"",
    );
    let file = file.store(&format!(
        "password = {{ file = \"{}\" }}",
        password.display()
    ));
    let mut gateway = Gateway::start(&file).await;
    eventually(BACK, "Redis is used", async || {
        gateway.get("/").await.status == 200
    })
    .await;
    gateway.get("/").await.expect(429);
    gateway.stop().await;
    assert!(!(gateway.access.text() + &gateway.said.text()).contains("s3cret-word"));
}

#[tokio::test]
async fn a_redis_that_wants_another_password_is_a_lost_one_and_the_reason_is_said() {
    let (upstream, redis) = (
        Upstream::echo().await,
        Redis::start_with_password("s3cret-word").await,
    );
    let gateway = Gateway::start(&counted(&upstream, &redis, "closed", PLENTY)).await;
    gateway.get("/").await.expect(503);
    gateway
        .said
        .line(0, "the reason", |line| {
            line.contains("NOAUTH") || line.to_lowercase().contains("auth")
        })
        .await;
}

#[tokio::test]
async fn counters_in_redis_expire() {
    let (upstream, redis) = (Upstream::echo().await, Redis::start().await);
    let file = File::to(&upstream, &["bucket", "window", "queue"])
        .limit("bucket", "by = \"everyone\"\nrate = \"10/min\"")
        .limit(
            "window",
            "by = \"everyone\"\nrate = \"10/min\"\nalgorithm = \"fixed-window\"",
        )
        .limit(
            "queue",
            "by = \"everyone\"\nrate = \"10/min\"\nalgorithm = \"leaky-bucket\"",
        )
        .redis(&redis, "timeout = \"2s\"\non_down = \"closed\"");
    let gateway = Gateway::start(&file).await;
    gateway.get("/").await.expect(200);
    let keys = redis.keys().await;
    for limit in ["bucket", "window", "queue"] {
        assert!(
            keys.iter().any(|key| key.contains(limit)),
            "{limit} in {keys:?}"
        );
    }
    // All other keys that the gateway writes for itself expire as well.
    for key in keys {
        let left: i64 = redis.command(&["PTTL", &key]).await;
        assert!(left > 0 && left <= 61_000, "{key}: {left}");
        assert!(key.starts_with("tollgate:") && key.contains('{'), "{key}");
    }
}
