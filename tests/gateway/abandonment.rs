//! Held clients that leave, at several workers: the clients that stay move up in order, and the places of the clients
//! that left are free again.

use super::store_kind::{Place, on_both_stores};
use crate::support::{
    File, Gateway, Lag, PATIENCE, Redis, Upstream, Wire, eventually, get, request,
};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

on_both_stores! {
    all_leave_the_oldest_first
    all_leave_the_newest_first
    all_leave_in_any_order
    some_leave_and_the_others_move_up_in_their_order
    a_place_of_another_length_comes_back_with_those_behind_it
}

/// Places in the queue.
const QUEUE: usize = 6;
/// The time between two turns at the first attempt; each further attempt adds as much again.
const APART: Duration = Duration::from_secs(1);
/// The most by which a gateway's timers may differ from the queue.
const JITTER: Duration = Duration::from_millis(5);

fn queue(upstream: &Upstream, workers: usize, attempt: u32) -> File {
    let apart = attempt + 1;
    let limit = format!(
        "by = \"everyone\"\nalgorithm = \"leaky-bucket\"\nrate = \"1/{apart}s\"\nqueue = 6\nmax_wait = \"60s\""
    );
    // Each trial has its own counter.
    let name = format!("queue-{workers}-{attempt}");
    File::to(upstream, &[&name])
        .limit(&name, &limit)
        .server(&format!("workers = {workers}"))
}

async fn all_leave_the_oldest_first(place: Place) {
    leave(place, [0, 1, 2, 3, 4, 5]).await;
}

async fn all_leave_the_newest_first(place: Place) {
    leave(place, [5, 4, 3, 2, 1, 0]).await;
}

async fn all_leave_in_any_order(place: Place) {
    leave(place, [3, 0, 5, 1, 4, 2]).await;
}

async fn some_leave_and_the_others_move_up_in_their_order(place: Place) {
    leave(place, [1, 4, 2]).await;
}

/// Runs one trial with two workers and with four.
async fn leave<const COUNT: usize>(place: Place, leaving: [usize; COUNT]) {
    let with = async |workers| {
        // On a busy machine the first turn may come before all clients have come and left. The trial is then repeated
        // with longer turns.
        for attempt in 0..5 {
            let upstream = Upstream::echo().await;
            let gateway = place.gateway(queue(&upstream, workers, attempt)).await;
            let name = format!("queue-{workers}-{attempt}");
            let turns = (&leaving[..], APART * (attempt + 1));
            if leaves_its_places(&gateway, &upstream, &name, turns)
                .await
                .is_ok()
            {
                return;
            }
        }
        panic!("nothing is left in time on this machine");
    };
    tokio::join!(with(2), with(4));
}

struct TooSlow;

/// Waits until this number of places in the queue is free. Their refunds may still be on the way to Redis, since a
/// leaving client does not wait for them.
async fn are_free(gateway: &Gateway, limit: &str, free: usize) {
    let admin = gateway.admin().await;
    let body = format!("{{\"counters\":[{{\"limit\":\"{limit}\",\"key\":\"\"}}]}}");
    let (host, length) = (admin.to_string(), body.len().to_string());
    let fields = [
        ("Host", host.as_str()),
        ("Content-Type", "application/json"),
        ("Content-Length", &length),
    ];
    let asked = request("POST", "/v1/peek", &fields) + &body;
    eventually(PATIENCE, "places are free", async || {
        let answer = Wire::to(admin).await.ask(&asked).await;
        // A gateway that is asked too often says so.
        let seen = answer.json();
        answer.status == 200 && seen["counters"][0]["remaining"].as_u64() >= Some(free as u64)
    })
    .await;
}

async fn leaves_its_places(
    gateway: &Gateway,
    upstream: &Upstream,
    name: &str,
    (leaving, apart): (&[usize], Duration),
) -> Result<(), TooSlow> {
    let (first, lag) = (Instant::now(), Lag::watch());
    gateway.get("/first").await.expect(200);
    let mut held: Vec<Option<Wire>> = Vec::new();
    for n in 0..QUEUE {
        // Each request has its own connection, so that all workers get some.
        let mut client = gateway.connect().await;
        client.send(get(&format!("/held/{n}"))).await;
        held.push(Some(client));
        gateway.holds(n + 1).await;
    }
    for (gone, n) in leaving.iter().enumerate() {
        drop(held[*n].take());
        if gone % 3 == 2 {
            gateway.holds(QUEUE - gone - 1).await;
        }
    }
    let free = leaving.len();
    gateway.holds(QUEUE - free).await;
    are_free(gateway, name, free).await;
    if first.elapsed() >= apart {
        return Err(TooSlow);
    }
    let asked = Instant::now();
    let mut asking = JoinSet::new();
    for _ in 0..QUEUE + 3 {
        let mut client = gateway.connect().await;
        asking.spawn(async move { client.ask(get("/new")).await.status });
    }
    let statuses = asking.join_all().await;
    let admitted = statuses.iter().filter(|status| **status == 200).count();
    // The queue also empties during the test: by one turn while the requests are prepared, and by one while they are
    // sent.
    assert!(
        (free..=free + 2).contains(&admitted),
        "{admitted} admitted, {free} have left: {statuses:?}"
    );
    for mut client in held.into_iter().flatten() {
        assert_eq!(client.answer().await.status, 200);
    }
    let mut seen = upstream.requests();
    seen.sort_by_key(|seen| seen.at);
    let stayed: Vec<String> = (0..QUEUE)
        .filter(|n| !leaving.contains(n))
        .map(|n| format!("/held/{n}"))
        .collect();
    let order: Vec<&str> = seen.iter().map(|seen| seen.head.target()).collect();
    assert_eq!(order[1..=stayed.len()], stayed, "{order:?}");
    assert!(
        order[stayed.len() + 1..]
            .iter()
            .all(|target| *target == "/new")
    );
    // A client that does not move up is late by a whole turn.
    let most = apart * 9 / 10 + lag.of_both();
    let mut last = seen[0].at;
    for (turn, seen) in (1..).zip(&seen[1..]) {
        let soonest = match seen.head.target() {
            "/new" => (last + apart).max(asked),
            _ => last + apart,
        };
        // The time is measured from before the first request. So no turn can seem early, however late it is noted.
        assert!(
            seen.at + JITTER > first + apart * turn,
            "{} is early: {:?}",
            seen.head.target(),
            seen.at - first
        );
        assert!(
            seen.at < soonest + most,
            "{} is late: {:?}",
            seen.head.target(),
            seen.at - last
        );
        last = seen.at;
    }
    Ok(())
}

async fn a_place_of_another_length_comes_back_with_those_behind_it(place: Place) {
    let upstream = Upstream::echo().await;
    let limit = "by = \"everyone\"\nalgorithm = \"leaky-bucket\"\nrate = \"1/5s\"\nqueue = 4\nmax_wait = \"60s\"\ncost = { header = \"x-cost\", max = 2 }";
    let file = File::to(&upstream, &["queue"])
        .limit("queue", limit)
        .server("workers = 2");
    let gateway = place.gateway(file).await;
    gateway.get("/").await.expect(200);
    let mut held = Vec::new();
    for cost in ["1", "2", "1"] {
        let mut client = gateway.connect().await;
        client.send(request("GET", "/", &[("X-Cost", cost)])).await;
        held.push(client);
        gateway.holds(held.len()).await;
    }
    gateway.get("/").await.expect(429);
    // The client behind it does not fit into the place that became free. The place stays a hole until that client
    // leaves as well.
    drop(held.remove(0));
    gateway.holds(2).await;
    gateway.get("/").await.expect(429);
    held.clear();
    gateway.holds(0).await;
    fills(&gateway, 4).await;
}

/// Checks that this number of requests can be held again before any turn has come.
async fn fills(gateway: &Gateway, places: usize) -> Vec<Wire> {
    let mut held = Vec::new();
    let asked = Instant::now();
    while held.len() < places {
        assert!(
            asked.elapsed() < Duration::from_secs(4),
            "{} of {places} places have come back",
            held.len()
        );
        let mut client = gateway.connect().await;
        client.send(get("/again")).await;
        // A refusal comes at once.
        match tokio::time::timeout(Duration::from_millis(150), client.head()).await {
            Ok(head) => assert_eq!(head.status(), 429),
            Err(_) => held.push(client),
        }
    }
    held
}

/// Waits until the gateway serves this number of requests. A request asks for its place as soon as it is served.
async fn asked_by(gateway: &Gateway, requests: usize) {
    let told = format!("tollgate_http_requests_in_flight {requests}\n");
    eventually(PATIENCE, "all have asked", async || {
        gateway.metrics().await.contains(&told)
    })
    .await;
}

#[tokio::test]
async fn what_lies_between_another_gateways_places_comes_back_when_that_has_left() {
    let (redis, upstream) = (Redis::start().await, Upstream::echo().await);
    let limit = "by = \"everyone\"\nalgorithm = \"leaky-bucket\"\nrate = \"1/20s\"\nqueue = 4\nmax_wait = \"2min\"";
    let file = File::to(&upstream, &["queue"])
        .limit("queue", limit)
        .redis(&redis, "timeout = \"2s\"\non_down = \"closed\"")
        .server("workers = 2");
    let (one, other) = (Gateway::start(&file).await, Gateway::start(&file).await);
    one.get("/").await.expect(200);
    let mut here = Vec::new();
    for count in 1..=3 {
        let mut client = one.connect().await;
        client.send(get("/here")).await;
        here.push(client);
        one.holds(count).await;
    }
    let mut there = other.connect().await;
    there.send(get("/there")).await;
    other.holds(1).await;
    here.clear();
    one.holds(0).await;
    one.get("/").await.expect(429);
    drop(there);
    other.holds(0).await;
    // Nobody comes to either queue. The only remainder is the turn of the first request, which takes twenty seconds.
    let keys = redis.keys().await;
    eventually(PATIENCE, "all places come back", async || {
        let life: i64 = redis.command(&["PTTL", &keys[0]]).await;
        life < 30_000
    })
    .await;
    fills(&other, 4).await;
}

#[tokio::test]
async fn who_leaves_before_the_decision_leaves_no_place_behind() {
    let (redis, upstream) = (Redis::start().await, Upstream::echo().await);
    let limit = "by = \"everyone\"\nalgorithm = \"leaky-bucket\"\nrate = \"1/20s\"\nqueue = 4\nmax_wait = \"2min\"";
    let file = File::to(&upstream, &["queue"])
        .limit("queue", limit)
        .redis(&redis, "timeout = \"2s\"\non_down = \"closed\"")
        .server("workers = 2");
    let gateway = Gateway::start(&file).await;
    gateway.get("/").await.expect(200);
    let client = gateway.h2().await;
    // Redis answers none of these clients until all have left.
    redis.freeze();
    let asking: Vec<_> = (0..12)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.get("/leaves").await })
        })
        .collect();
    asked_by(&gateway, 12).await;
    for one in &asking {
        one.abort();
    }
    for _ in 0..12 {
        gateway.line_where("path", "/leaves").await;
    }
    redis.thaw();
    fills(&gateway, 4).await;
    drop(client);
}

#[tokio::test]
async fn a_place_of_the_gateways_own_comes_back_though_somebody_came_while_redis_was_asked() {
    let (redis, upstream) = (Redis::start().await, Upstream::echo().await);
    let queue = "by = \"everyone\"\nalgorithm = \"leaky-bucket\"\nrate = \"1/20s\"\nqueue = 3\nmax_wait = \"2min\"\nscope = \"gateway\"";
    let file = File::default()
        .limit("queue", queue)
        .limit("shared", "by = \"everyone\"\nrate = \"100/s\"")
        .upstream("main", &[&upstream])
        .route("both", "/both", "main", &["queue", "shared"])
        .route("all", "/{*rest}", "main", &["queue"])
        .redis(&redis, "timeout = \"2s\"\non_down = \"closed\"")
        .server("workers = 2");
    let gateway = Gateway::start(&file).await;
    gateway.get("/").await.expect(200);
    let client = gateway.h2().await;
    redis.freeze();
    let asking = client.clone();
    let leaving = tokio::spawn(async move { asking.get("/both").await });
    asked_by(&gateway, 1).await;
    let mut behind = gateway.connect().await;
    behind.send(get("/behind")).await;
    gateway.holds(1).await;
    leaving.abort();
    gateway.line_where("path", "/both").await;
    redis.thaw();
    drop(behind);
    gateway.holds(0).await;
    fills(&gateway, 3).await;
    drop(client);
}
