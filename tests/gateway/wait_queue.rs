//! Leaky buckets: requests are held in order and evenly, within their bounds, and dropped when their client leaves.

mod standing_still;

use super::store_kind::{Place, on_both_stores};
use crate::support::{Answer, End, File, Gateway, Lag, Seen, Upstream, get, h2, request};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

on_both_stores! {
    a_held_request_says_how_long_it_was_held
    requests_leave_evenly_and_in_their_order
    two_hundred_at_once_leave_evenly_and_all_arrive
    nothing_is_lost_up_to_the_queue
    a_full_queue_refuses_with_an_honest_wait
    only_what_was_held_counts_and_for_as_long_as_it_was
    a_wait_beyond_the_longest_allowed_is_refused
    a_client_that_leaves_frees_its_place
    a_client_that_leaves_with_a_byte_behind_its_request_frees_its_place
    a_burst_goes_at_once
    a_meter_refuses_and_never_holds
}

/// The number of requests that `smooth` has held, and the sum of their waits.
async fn delays(gateway: &Gateway) -> (f64, f64) {
    let metrics = gateway.metrics().await;
    let of = |what: &str| {
        let name = format!("tollgate_limit_delay_seconds_{what}{{limit=\"smooth\"}} ");
        let mut lines = metrics.lines();
        let found = lines.find_map(|line| line.strip_prefix(&name));
        // The metrics have no line for events that have not happened yet.
        found.map_or(0.0, |number| number.parse::<f64>().unwrap())
    };
    (of("count"), of("sum"))
}

async fn only_what_was_held_counts_and_for_as_long_as_it_was(place: Place) {
    let upstream = Upstream::echo().await;
    let lines = "by = \"everyone\"\nalgorithm = \"leaky-bucket\"\nrate = \"1/20s\"\nmax_wait = \"100s\"\nqueue = 5";
    let file = File::default()
        .upstream("main", &[&upstream])
        .limit("smooth", lines)
        .limit(
            "few",
            "by = \"header:x-few\"\nmissing = \"skip\"\nrate = \"1/h\"",
        )
        .route("all", "/{*rest}", "main", &["smooth", "few"])
        .server("max_held_per_client = 1");
    let gateway = place.gateway(file).await;
    let few = [("X-Few", "one")];
    gateway.get_with("/", &few).await.expect(200);
    for _ in 0..3 {
        // Another limit refuses the request that this limit would have held.
        gateway.get_with("/", &few).await.expect(429);
    }
    assert_eq!(delays(&gateway).await, (0.0, 0.0));
    let mut leaving = gateway.connect().await;
    leaving.send(get("/leaves")).await;
    gateway.holds(1).await;
    gateway.get("/").await.expect(503);
    drop(leaving);
    gateway.line_where("path", "/leaves").await;
    gateway.holds(0).await;
    let (count, sum) = delays(&gateway).await;
    assert!(
        (0.5..1.5).contains(&count) && sum > 0.0 && sum < 10.0,
        "{count} held for {sum} s"
    );
}

fn smooth(upstream: &Upstream, lines: &str) -> File {
    let lines = format!("by = \"everyone\"\nalgorithm = \"leaky-bucket\"\n{lines}");
    File::to(upstream, &["smooth"]).limit("smooth", &lines)
}

/// The wait in `Server-Timing`, in milliseconds.
fn held(answer: &Answer) -> Option<f64> {
    let timing = answer.fields.get("server-timing")?;
    let dur = timing
        .strip_prefix("limit;desc=\"smooth\";dur=")
        .unwrap_or_else(|| panic!("server-timing: {timing}"));
    Some(
        dur.parse()
            .unwrap_or_else(|_| panic!("server-timing: {timing}")),
    )
}

async fn a_held_request_says_how_long_it_was_held(place: Place) {
    let upstream = Upstream::echo().await;
    let gateway = place
        .gateway(smooth(&upstream, "rate = \"1/2s\"\nmax_wait = \"9s\""))
        .await;
    let begun = Instant::now();
    let first = gateway.get("/").await.expect(200);
    assert_eq!(held(&first), None, "it was not held");
    let start = Instant::now();
    let second = gateway.get("/").await.expect(200);
    let took = start.elapsed().as_secs_f64() * 1000.0;
    let said = held(&second).expect("it was held");
    assert!(
        said > 0.0 && took >= said - 1.0 && begun.elapsed() + JITTER >= Duration::from_secs(2),
        "{said} ms said, {took} ms passed"
    );
    let line = gateway.line_of(&second).await;
    assert_eq!(line["reason"], "limit_delayed");
    assert!(
        (line["delay_ms"].as_f64().unwrap() - said).abs() < 2.0,
        "{line}"
    );
}

/// Sends `count` requests one after another, as streams of one connection. Returns their answers in this order.
async fn in_order(gateway: &Gateway, count: usize) -> Vec<Answer> {
    let client = gateway.h2().await;
    let mut asking = JoinSet::new();
    for n in 0..count {
        let client = client.clone();
        asking.spawn(async move { (n, client.ask(h2::get(&format!("/{n}"))).await) });
    }
    let mut answers = asking.join_all().await;
    answers.sort_by_key(|(n, _)| *n);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

async fn requests_leave_evenly_and_in_their_order(place: Place) {
    const COUNT: usize = 50;
    let upstream = Upstream::echo().await;
    // With one worker, streams of one connection arrive at the store in the order in which they were opened.
    let gateway = place
        .gateway(smooth(&upstream, "rate = \"50/s\"\nqueue = 100").server("workers = 1"))
        .await;
    let (first, lag) = (Instant::now(), Lag::watch());
    for answer in in_order(&gateway, COUNT).await {
        answer.expect(200);
    }
    let seen = upstream.requests();
    let order: Vec<&str> = seen.iter().map(|seen| &seen.head.target()[1..]).collect();
    let expected: Vec<String> = (0..COUNT).map(|n| n.to_string()).collect();
    assert_eq!(order, expected);
    assert_even(&seen, Duration::from_millis(20), (first, &lag));
}

/// Checks that the requests left one behind the other, `apart` each, and the first not before `first`. A test with a
/// simulated clock checks the same to the microsecond (`src/proxy/wait_queue/queue/tests/late.rs`); this one covers the
/// real timers.
#[track_caller]
fn assert_even(seen: &[Seen], apart: Duration, (first, lag): (Instant, &Lag)) {
    let at: Vec<Instant> = seen.iter().map(|seen| seen.at).collect();
    // The time is measured from before the first request. So no turn can seem early, however late it is noted.
    for (turn, at) in (0..).zip(&at) {
        let early = (first + apart * turn).saturating_duration_since(*at);
        assert!(early <= JITTER, "number {turn} is {early:?} early");
    }
    assert_at_the_rate(&at, apart, lag);
}

/// The most by which a timer may be early after a late one.
const JITTER: Duration = Duration::from_millis(5);
/// The time whose turns may be noted at once. On a late machine, the time is longer by the delay.
const NOTED_LATE: Duration = Duration::from_millis(500);

/// Checks that in every stretch of time the number of requests that went on is at most one larger than the number of
/// turns.
#[track_caller]
fn assert_at_the_rate(at: &[Instant], apart: Duration, lag: &Lag) {
    let noted_late = NOTED_LATE + lag.of_both();
    for first in 0..at.len() {
        for last in first..at.len() {
            let (count, time) = (last - first + 1, at[last].duration_since(at[first]));
            let turns = (time + noted_late).as_secs_f64() / apart.as_secs_f64();
            assert!(count as f64 <= 1.0 + turns, "{count} in {time:?}");
        }
    }
}

async fn two_hundred_at_once_leave_evenly_and_all_arrive(place: Place) {
    let upstream = Upstream::echo().await;
    let file = smooth(&upstream, "rate = \"50/s\"\nqueue = 200").server("workers = 2");
    let gateway = place.gateway(file).await;
    let (mut asking, first, lag) = (JoinSet::new(), Instant::now(), Lag::watch());
    for _ in 0..200 {
        let mut client = gateway.connect().await;
        asking.spawn(async move { client.ask(get("/")).await.status });
    }
    assert_eq!(asking.join_all().await, [200; 200]);
    let mut seen = upstream.requests();
    seen.sort_by_key(|seen| seen.at);
    assert_even(&seen, Duration::from_millis(20), (first, &lag));
}

async fn nothing_is_lost_up_to_the_queue(place: Place) {
    let upstream = Upstream::echo().await;
    let gateway = place
        .gateway(smooth(&upstream, "rate = \"10/s\"\nqueue = 15").server("workers = 2"))
        .await;
    let mut asking = JoinSet::new();
    for _ in 0..30 {
        let mut client = gateway.connect().await;
        asking.spawn(async move { client.ask(get("/")).await.status });
    }
    let statuses = asking.join_all().await;
    let admitted = statuses.iter().filter(|status| **status == 200).count();
    assert!(
        statuses.iter().all(|status| matches!(status, 200 | 429)),
        "{statuses:?}"
    );
    // One request goes at once, and 15 wait. More are admitted as the bucket leaks while 30 connections ask: on a busy
    // machine those of a second.
    assert!((16..=26).contains(&admitted), "{admitted}");
    assert_eq!(upstream.seen(), admitted);
}

async fn a_full_queue_refuses_with_an_honest_wait(place: Place) {
    let upstream = Upstream::echo().await;
    let gateway = place
        .gateway(smooth(
            &upstream,
            "rate = \"2/s\"\nqueue = 2\nmax_wait = \"10s\"",
        ))
        .await;
    let answers = in_order(&gateway, 4).await;
    let statuses: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
    assert_eq!(statuses, [200, 200, 200, 429]);
    let refused = &answers[3];
    let wait = refused.number("retry-after-ms");
    assert!((1..=500).contains(&wait), "{wait}");
    assert_eq!(refused.number("retry-after"), 1);
    assert_eq!(
        refused.json()["violated-policies"],
        serde_json::json!(["smooth"])
    );
    assert!(answers[2].fields.has("server-timing") && !refused.fields.has("server-timing"));
}

async fn a_wait_beyond_the_longest_allowed_is_refused(place: Place) {
    let upstream = Upstream::echo().await;
    let gateway = place
        .gateway(smooth(
            &upstream,
            "rate = \"1/s\"\nqueue = 100\nmax_wait = \"2100ms\"",
        ))
        .await;
    // Waits of 0, 1 and 2 s are allowed. A wait of 3 s, on a busy machine one of more than 2.1 s, is not.
    let client = gateway.h2().await;
    let mut asking = JoinSet::new();
    for _ in 0..3 {
        let client = client.clone();
        asking.spawn(async move { client.get("/").await.expect(200) });
    }
    upstream.sees(1).await;
    gateway.holds(2).await;
    let refused = client.get("/").await.expect(429);
    let wait = refused.number("retry-after-ms");
    assert!(wait <= 900, "a place is free again in {wait} ms");
    // This tests the time itself: a wait as long as the answer says is enough.
    tokio::time::sleep(Duration::from_millis(wait)).await;
    let again = client.get("/").await.expect(200);
    assert!(held(&again).is_some());
    asking.join_all().await;
}

async fn a_client_that_leaves_frees_its_place(place: Place) {
    assert_frees_its_place(place, "").await;
}

async fn a_client_that_leaves_with_a_byte_behind_its_request_frees_its_place(place: Place) {
    assert_frees_its_place(place, "G").await;
}

async fn assert_frees_its_place(place: Place, behind: &str) {
    let upstream = Upstream::echo().await;
    let gateway = place.gateway(smooth(&upstream, LONG_TURNS)).await;
    gateway.get("/").await.expect(200);
    let mut leaving = gateway.connect().await;
    leaving.send(get("/leaves") + behind).await;
    gateway.holds(1).await;
    gateway.get("/probe").await.expect(429);
    drop(leaving);
    let taken = takes_the_place(&gateway).await;
    assert!(
        taken.fields.has("server-timing"),
        "it waited for the free place: {taken:?}"
    );
    let gone = gateway.line_where("path", "/leaves").await;
    assert_eq!(gone["reason"], "client_gone");
    assert!(
        upstream
            .requests()
            .iter()
            .all(|seen| seen.head.target() != "/leaves")
    );
}

/// A time that is long even for a busy machine, and ends before the turn of the client that has left.
const BEFORE_ITS_TURN: Duration = Duration::from_secs(3);
const LONG_TURNS: &str = "rate = \"1/5s\"\nqueue = 1\nmax_wait = \"20s\"";

/// Sends requests until one gets a place, which must be soon. Returns the answer to that request.
async fn takes_the_place(gateway: &Gateway) -> Answer {
    let left = Instant::now();
    let mut client = gateway.connect().await;
    loop {
        // A refusal comes at once. A request that has the place is answered later.
        let asked = Instant::now();
        let answer = client.ask(get("/stays")).await;
        let waited = asked.duration_since(left);
        assert!(
            waited < BEFORE_ITS_TURN,
            "the place of a gone client is kept"
        );
        if answer.status != 429 {
            return answer.expect(200);
        }
    }
}

async fn a_burst_goes_at_once(place: Place) {
    let upstream = Upstream::echo().await;
    let gateway = place
        .gateway(smooth(
            &upstream,
            "rate = \"1/2s\"\nburst = 3\nmax_wait = \"9s\"",
        ))
        .await;
    let answers = in_order(&gateway, 4).await;
    let waits: Vec<Option<f64>> = answers.iter().map(held).collect();
    assert_eq!(waits[..3], [None, None, None]);
    assert!(waits[3].is_some_and(|wait| wait > 0.0), "{waits:?}");
}

async fn a_meter_refuses_and_never_holds(place: Place) {
    let upstream = Upstream::echo().await;
    let gateway = place
        .gateway(smooth(
            &upstream,
            "rate = \"2/s\"\nburst = 2\nover = \"refuse\"",
        ))
        .await;
    let answers = in_order(&gateway, 3).await;
    let statuses: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
    assert_eq!(statuses, [200, 200, 429]);
    assert!(answers[2].number("retry-after-ms") <= 500);
    assert!(answers.iter().all(|answer| held(answer).is_none()));
}

#[tokio::test]
async fn the_body_of_a_held_request_is_not_asked_for() {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&smooth(&upstream, "rate = \"1/2s\"\nmax_wait = \"9s\"")).await;
    gateway.get("/").await.expect(200);
    let start = Instant::now();
    let mut client = gateway.connect().await;
    client
        .send(request(
            "POST",
            "/",
            &[("Expect", "100-continue"), ("Content-Length", "4")],
        ))
        .await;
    assert_eq!(client.head().await.status(), 100);
    let asked = start.elapsed();
    let answer = client.ask("body").await.expect(200);
    let wait = Duration::from_secs_f64(held(&answer).expect("it was held") / 1000.0);
    assert!(
        asked + Duration::from_millis(2) >= wait,
        "asked for after {asked:?} of {wait:?}"
    );
    assert_eq!(answer.echoed().body, "body");
}

#[tokio::test]
async fn the_time_limit_of_a_route_does_not_run_while_a_request_is_held() {
    let upstream = Upstream::echo().await;
    let file = File::default()
        .limit(
            "smooth",
            "by = \"everyone\"\nalgorithm = \"leaky-bucket\"\nrate = \"2/s\"",
        )
        .upstream("main", &[&upstream])
        .route("all", "/{*rest}", "main", &["smooth"])
        .with("timeout = \"300ms\"");
    let gateway = Gateway::start(&file).await;
    gateway.get("/").await.expect(200);
    assert!(held(&gateway.get("/").await.expect(200)).expect("it was held") > 300.0);
}

#[tokio::test]
async fn a_gateway_that_holds_enough_refuses_with_503() {
    let upstream = Upstream::echo().await;
    for cap in ["max_held = 2", "max_held_per_client = 2"] {
        let file = smooth(&upstream, "rate = \"1/s\"\nqueue = 100\nmax_wait = \"30s\"").server(cap);
        let gateway = Gateway::start(&file).await;
        // A request that is not answered at once is held.
        let client = gateway.h2().await;
        let (mut asking, lag) = (JoinSet::new(), Lag::watch());
        for _ in 0..4 {
            let client = client.clone();
            asking.spawn(async move { client.get("/").await });
        }
        let first = asking.join_next().await.unwrap().unwrap();
        let second = asking.join_next().await.unwrap().unwrap();
        let (passed, refused) = if first.status == 200 {
            (first, second)
        } else {
            (second, first)
        };
        assert_eq!((passed.status, refused.status), (200, 503), "{cap}");
        assert!(refused.number("retry-after") >= 1);
        assert_eq!(refused.field("content-type"), "application/problem+json");
        let mut rest = asking.join_all().await;
        let (third, fourth) = (rest.pop().unwrap(), rest.pop().unwrap());
        assert_eq!((third.status, fourth.status), (200, 200), "{cap}");
        // The refused request gave back its place in the queue, so no request waits behind it.
        let longest = [third, fourth].iter().filter_map(held).fold(0.0, f64::max);
        let late = lag.of_both().as_secs_f64() * 1000.0;
        assert!(longest < 2_100.0 + late, "{cap}: {longest}");
    }
}

#[tokio::test]
async fn a_gone_client_of_http2_frees_its_place_and_keeps_its_connection() {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&smooth(&upstream, LONG_TURNS)).await;
    gateway.get("/").await.expect(200);
    let client = gateway.h2().await;
    let leaving = client.clone();
    let asking = tokio::spawn(async move { leaving.get("/leaves").await });
    gateway.holds(1).await;
    asking.abort();
    takes_the_place(&gateway).await;
    assert!(!client.closed());
}

#[tokio::test]
async fn a_held_client_that_only_finishes_sending_counts_as_gone() {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&smooth(
        &upstream,
        "rate = \"1/20s\"\nqueue = 1\nmax_wait = \"1min\"",
    ))
    .await;
    gateway.get("/").await.expect(200);
    let mut client = gateway.connect().await;
    client.send(get("/leaves")).await;
    client.finish_sending().await;
    assert_ne!(client.ended(Duration::from_secs(15)).await, End::Open);
    assert_eq!(upstream.seen(), 1);
}
