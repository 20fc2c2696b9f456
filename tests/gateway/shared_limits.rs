//! Many gateways, one Redis, one count.

use super::redis_failures::counted;
use crate::support::load::{Load, statuses};
use crate::support::{File, Gateway, Redis, Upstream, long};
use std::time::Duration;

/// Sends requests to two gateways that share one Redis as fast as possible, and checks how many they admit together.
async fn assert_one_count(clients: usize, time: Duration, rate: u32, burst: u32) {
    let (upstream, redis) = (Upstream::echo().await, Redis::start().await);
    let limit = format!("by = \"everyone\"\nrate = \"{rate}/s\"\nburst = {burst}");
    let file = File::to(&upstream, &["calls"])
        .limit("calls", &limit)
        .redis(&redis, "timeout = \"5s\"\non_down = \"closed\"")
        .server("workers = 1");
    let (one, two) = (Gateway::start(&file).await, Gateway::start(&file).await);
    let load = Load::on(&[&one, &two], clients, Duration::ZERO).await;
    load.run(time).await;
    let shots = load.stop().await;
    let counts = statuses(&shots);
    let end = shots.iter().map(|shot| shot.at + shot.took).max().unwrap();
    let outside = (end - shots[0].at).as_secs_f64();
    let admitted = counts[&200] as f64;
    let bound = f64::from(burst) + f64::from(rate) * outside;
    // The last refused request found nothing left of the units that had come since the first admission.
    let first = shots.iter().map(|shot| shot.at + shot.took).min().unwrap();
    let refused = shots.iter().rfind(|shot| shot.status == 429).unwrap();
    let used = refused.at.saturating_duration_since(first).as_secs_f64();
    let least = 0.98 * (f64::from(burst) + f64::from(rate) * used);
    assert_eq!(
        counts.keys().copied().collect::<Vec<_>>(),
        [200, 429],
        "{counts:?}"
    );
    assert!(admitted <= bound, "{admitted} of at most {bound}");
    assert!(admitted >= least, "{admitted} of {bound}, at least {least}");
    assert_eq!(upstream.seen(), counts[&200]);
}

#[tokio::test]
async fn two_gateways_on_one_redis_share_one_count() {
    // The rate is so low that even a busy machine sends more requests.
    assert_one_count(16, Duration::from_secs(3), 80, 100).await;
    if long() {
        assert_one_count(64, Duration::from_secs(10), 500, 200).await;
    }
}

#[tokio::test]
async fn a_request_refused_at_one_gateway_is_refused_at_the_other() {
    let (upstream, redis) = (Upstream::echo().await, Redis::start().await);
    let file = counted(&upstream, &redis, "closed", "by = \"ip\"\nrate = \"3/h\"");
    let (one, two) = (Gateway::start(&file).await, Gateway::start(&file).await);
    for (gateway, status) in [
        (&one, 200),
        (&two, 200),
        (&one, 200),
        (&two, 429),
        (&one, 429),
    ] {
        gateway.get("/").await.expect(status);
    }
}
