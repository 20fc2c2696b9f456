//! Faults of the network between gateway and Redis, and of Redis' clock: cut, slow and reset connections, and a clock
//! that is set back or forward.

use crate::support::load::{Load, statuses};
use crate::support::{File, Gateway, Line, Redis, Relay, Upstream, eventually};
use std::time::Duration;

/// The time within which limits must be shared again.
const BACK: Duration = Duration::from_secs(2);
/// A time that is long enough on any machine.
const SOON: Duration = Duration::from_secs(10);

const PLENTY: &str = "by = \"everyone\"\nrate = \"1000000/h\"\nalgorithm = \"fixed-window\"";

async fn asked(redis: &Redis, gateway: &Gateway) -> bool {
    let before = redis.script_calls().await;
    gateway.get("/").await.expect(200);
    redis.script_calls().await > before
}

/// Under load the connection changes to `wire` and back: no client notices it, and Redis is asked again at once.
async fn unnoticed(wire: Line, on_down: &str) {
    let (upstream, redis) = (Upstream::echo().await, Redis::start().await);
    let relay = Relay::to(redis.port()).await;
    let file = File::to(&upstream, &["calls"])
        .limit("calls", PLENTY)
        .store(&format!(
            "url = \"{}\"\ntimeout = \"50ms\"\non_down = \"{on_down}\"",
            relay.url()
        ));
    let gateway = Gateway::start(&file).await;
    eventually(SOON, "Redis is asked", async || {
        asked(&redis, &gateway).await
    })
    .await;
    let load = Load::on(&[&gateway], 8, Duration::from_millis(2)).await;
    load.run(Duration::from_millis(300)).await;
    relay.turn(wire);
    eventually(SOON, "the gateway knows", async || {
        gateway.admin_get("/readyz").await.text().contains("away")
    })
    .await;
    load.run(Duration::from_millis(300)).await;
    relay.turn(Line::Whole);
    eventually(BACK + BACK, "limits are shared again", async || {
        asked(&redis, &gateway).await
    })
    .await;
    let shots = load.stop().await;
    let counts = statuses(&shots);
    assert_eq!(
        counts.keys().copied().collect::<Vec<_>>(),
        [200],
        "{counts:?}"
    );
}

#[tokio::test]
async fn a_wire_that_falls_silent_goes_unnoticed() {
    unnoticed(Line::Silent, "open").await;
}

#[tokio::test]
async fn a_wire_that_is_reset_goes_unnoticed() {
    unnoticed(Line::Reset, "local").await;
}

#[tokio::test]
async fn a_wire_slower_than_the_timeout_goes_unnoticed() {
    unnoticed(Line::Slow(Duration::from_millis(200)), "local").await;
}

#[tokio::test]
async fn a_redis_that_comes_back_empty_starts_every_counter_afresh_and_no_more() {
    let (upstream, mut redis) = (Upstream::echo().await, Redis::start().await);
    let file = File::to(&upstream, &["calls"])
        .limit(
            "calls",
            "by = \"everyone\"\nrate = \"3/h\"\nalgorithm = \"fixed-window\"",
        )
        .redis(&redis, "timeout = \"1s\"\non_down = \"closed\"");
    let gateway = Gateway::start(&file).await;
    for status in [200, 200, 200, 429] {
        gateway.get("/").await.expect(status);
    }
    redis.kill().await;
    redis.come().await;
    eventually(SOON, "Redis decides again", async || {
        gateway.admin_get("/readyz").await.text() == "ready\nstore: up\n"
    })
    .await;
    let mut admitted = 0;
    for _ in 0..10 {
        admitted += u32::from(gateway.get("/").await.status == 200);
    }
    assert_eq!(
        admitted, 3,
        "what a restart without its memory can lose is one limit"
    );
}

/// The clock on the Redis host is set back by an hour, and forward by two hours. No client is locked out for longer
/// than the limit's own time, and each jump forgives one limit at most.
#[tokio::test]
async fn a_clock_that_jumps_locks_nobody_out_and_forgives_once() {
    let (upstream, redis) = (Upstream::echo().await, Redis::start_with_clock().await);
    let mut file = File::to(&upstream, &[]).redis(&redis, "timeout = \"1s\"\non_down = \"closed\"");
    let limits = [
        ("token", "rate = \"3/min\"\nburst = 3"),
        (
            "meter",
            "rate = \"3/min\"\nalgorithm = \"leaky-bucket\"\nover = \"refuse\"\nburst = 3",
        ),
        ("fixed", "rate = \"3/min\"\nalgorithm = \"fixed-window\""),
        (
            "clock",
            "rate = \"3/min\"\nalgorithm = \"fixed-window\"\nanchor = \"clock\"",
        ),
        (
            "sliding",
            "rate = \"3/min\"\nalgorithm = \"sliding-window\"",
        ),
        ("log", "rate = \"3/min\"\nalgorithm = \"sliding-log\""),
    ];
    for (name, lines) in limits {
        file = file
            .limit(name, &format!("by = \"everyone\"\n{lines}"))
            .route(&format!("r-{name}"), &format!("/{name}"), "main", &[name]);
    }
    // A minute of the clock may end in the middle. After each jump another gateway is asked, because a gateway that
    // remembers a refusal keeps to it until the wait is over by its own clock.
    for (what, offset, least, most) in [
        ("at first", 0, 3, 4),
        ("after the clock went back", -3600, 0, 3),
        ("two minutes later nobody is locked out", -3600 + 130, 1, 4),
        ("after the clock went forward", 3600, 3, 4),
    ] {
        redis.set_clock(offset);
        let gateway = Gateway::start(&file).await;
        for (name, _) in limits {
            let mut admitted = 0;
            for _ in 0..6 {
                let answer = gateway.get(&format!("/{name}")).await;
                assert!(
                    matches!(answer.status, 200 | 429),
                    "{name}: {}",
                    answer.status
                );
                match answer.status {
                    200 => admitted += 1,
                    // A sliding window with one part empties in the course of the next part.
                    _ => assert!(answer.number("retry-after") <= 120, "{name}"),
                }
            }
            assert!(
                (least..=most).contains(&admitted),
                "{name}: {admitted} {what}"
            );
        }
    }
}
