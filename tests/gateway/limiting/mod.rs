//! Limits as clients see them: admitted and refused requests, and the answers to both, with both stores.

mod answers;
mod basic;
mod blocks;
mod by_status;
mod bypass;
mod contents;
mod costs;
mod credentials;
mod customer_law;
mod customer_numbers;
mod customers;
mod defaults;
mod exempt;
mod full_memory;
mod groups;
mod guessing;
mod in_flight;
mod keys;
mod large_numbers;
mod partial;
mod quotas;
mod refunds;
mod repeats;
mod settling;
mod shadows;
mod telling;
mod token_budgets;
mod tokens;
mod wall_clock;
mod windows;

use super::store_kind::{Place, on_both_stores};
use crate::support::h2_frames::{
    DATA, HEAD, HEADERS, PING, RST_STREAM, SETTINGS, frame, greeted, read_frame,
};
use crate::support::{Answer, File, Gateway, H2, Upstream, get, h2, request};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::task::JoinSet;
use tokio::time::sleep;

on_both_stores! {
    a_bucket_gives_its_burst_and_then_refuses_with_every_word
    an_admitted_request_is_told_where_it_stands
    the_tightest_has_the_least_left_of_what_it_holds
    a_bucket_refills_at_its_rate
    a_window_gives_its_count_and_then_waits_for_its_end
    a_request_that_one_limit_refuses_is_charged_by_none
    the_limit_with_the_longest_wait_is_named
    every_method_counts
    both_protocols_share_one_counter
    many_at_once_get_exactly_the_burst
    spelling_a_path_differently_gains_nothing
    more_than_the_rate_is_never_admitted
}

const WORDS: [&str; 4] = [
    "ratelimit",
    "ratelimit-policy",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
];

fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs()
}

async fn a_bucket_gives_its_burst_and_then_refuses_with_every_word(place: Place) {
    let upstream = Upstream::echo().await;
    let file =
        File::to(&upstream, &["calls"]).limit("calls", "by = \"ip\"\nrate = \"6/min\"\nburst = 3");
    let gateway = place.gateway(file).await;
    let mut client = gateway.connect().await;
    for left in [2, 1, 0] {
        let answer = client.ask(get("/")).await.expect(200);
        assert_eq!(answer.remaining("calls"), left);
    }
    let refused = client.ask(get("/")).await.expect(429);
    // One token comes every 10 s, and a moment of this time has passed.
    let wait = refused.number("retry-after-ms");
    assert!(wait > 5_000 && wait <= 10_000, "{wait}");
    assert_eq!(refused.number("retry-after"), wait.div_ceil(1000));
    assert_eq!(refused.field("ratelimit-policy"), "\"calls\";q=3;w=30");
    assert_eq!(refused.remaining("calls"), 0);
    assert!(
        (20..=30).contains(&refused.parameter("ratelimit", "calls", "t")),
        "{refused:?}"
    );
    assert_eq!(refused.field("x-ratelimit-limit"), "3");
    assert_eq!(refused.field("x-ratelimit-remaining"), "0");
    let reset = refused.number("x-ratelimit-reset");
    assert!(
        (now() + 20..=now() + 31).contains(&reset),
        "{reset} at {}",
        now()
    );
    assert_eq!(refused.field("content-type"), "application/problem+json");
    assert_eq!(refused.field("cache-control"), "no-store");
    let problem = refused.json();
    assert_eq!(problem["status"], 429);
    assert_eq!(problem["violated-policies"], serde_json::json!(["calls"]));
    assert_eq!(problem["request_id"], refused.field("x-request-id"));
    assert_eq!(
        problem["type"],
        "https://iana.org/assignments/http-problem-types#quota-exceeded"
    );
    let line = gateway.line_of(&refused).await;
    assert_eq!(
        (&line["status"], &line["reason"], &line["limit"]),
        (&429.into(), &"limit_refused".into(), &"calls".into())
    );
    assert_eq!(upstream.seen(), 3);
}

async fn an_admitted_request_is_told_where_it_stands(place: Place) {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &["wide", "tight"])
        .limit("wide", "by = \"everyone\"\nrate = \"100/h\"")
        .limit(
            "tight",
            "by = \"everyone\"\nrate = \"10/min\"\nalgorithm = \"fixed-window\"",
        );
    let gateway = place.gateway(file).await;
    let answer = gateway.get("/").await.expect(200);
    assert_eq!(
        answer.field("ratelimit-policy"),
        "\"wide\";q=100;w=3600, \"tight\";q=10;w=60"
    );
    assert_eq!(
        (answer.remaining("wide"), answer.remaining("tight")),
        (99, 9)
    );
    assert_eq!(answer.parameter("ratelimit", "tight", "t"), 60);
    // The remainder 9 of 10 is smaller than 99 of 100.
    assert_eq!(
        (
            answer.field("x-ratelimit-limit"),
            answer.field("x-ratelimit-remaining")
        ),
        ("10", "9")
    );
    assert!(
        !answer.fields.has("retry-after") && !answer.fields.has("server-timing"),
        "{answer:?}"
    );
}

async fn the_tightest_has_the_least_left_of_what_it_holds(place: Place) {
    let upstream = Upstream::echo().await;
    let other = "by = \"everyone\"\nrate = \"4/h\"\nalgorithm = \"fixed-window\"";
    // The quota and the remainder that are shown for each limit when it is the tightest.
    for (nth, (first, told)) in [
        // A small full bucket is not tight. The bucket with 1 of 2 is tighter than the one with 3 of 4, but the bucket
        // with 19 of 20 is not.
        ("rate = \"1000/h\"\nburst = 2", ("2", "1")),
        ("rate = \"1000/h\"\nburst = 20", ("4", "3")),
        ("rate = \"3/h\"\nburst = 30", ("4", "3")),
        // The remainder is 6 of 7, with all places of the queue counted.
        (
            "rate = \"1000/h\"\nalgorithm = \"leaky-bucket\"\nburst = 2\nqueue = 5\nmax_wait = \"1h\"",
            ("4", "3"),
        ),
        (
            "rate = \"1000/h\"\nalgorithm = \"leaky-bucket\"\nover = \"refuse\"\nburst = 2",
            ("2", "1"),
        ),
        // Both limits are equally tight, so the first one in the file is shown.
        ("rate = \"8/h\"\nburst = 4", ("4", "3")),
    ]
    .into_iter()
    .enumerate()
    {
        // Each case has its own counters.
        let names = [format!("other-{nth}"), format!("first-{nth}")];
        let file = File::to(&upstream, &[&names[0], &names[1]])
            .limit(&names[1], &format!("by = \"everyone\"\n{first}"))
            .limit(&names[0], other);
        let gateway = place.gateway(file).await;
        let answer = gateway.get("/").await.expect(200);
        let shown = (
            answer.field("x-ratelimit-limit"),
            answer.field("x-ratelimit-remaining"),
        );
        assert_eq!(shown, told, "{first}");
    }
}

async fn a_bucket_refills_at_its_rate(place: Place) {
    let upstream = Upstream::echo().await;
    let file =
        File::to(&upstream, &["calls"]).limit("calls", "by = \"ip\"\nrate = \"2/s\"\nburst = 1");
    let gateway = place.gateway(file).await;
    let mut client = gateway.connect().await;
    client.ask(get("/")).await.expect(200);
    let refused = client.ask(get("/")).await.expect(429);
    // This tests the time itself: waiting exactly as long as the answer says is enough.
    tokio::time::sleep(Duration::from_millis(refused.number("retry-after-ms"))).await;
    client.ask(get("/")).await.expect(200);
    client.ask(get("/")).await.expect(429);
}

async fn a_window_gives_its_count_and_then_waits_for_its_end(place: Place) {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &["calls"]).limit(
        "calls",
        "by = \"ip\"\nrate = \"2/s\"\nalgorithm = \"fixed-window\"",
    );
    let gateway = place.gateway(file).await;
    let mut client = gateway.connect().await;
    let opened = Instant::now();
    client.ask(get("/")).await.expect(200);
    client.ask(get("/")).await.expect(200);
    let refused = client.ask(get("/")).await.expect(429);
    let wait = Duration::from_millis(refused.number("retry-after-ms"));
    let passed = opened.elapsed();
    assert!(
        wait <= Duration::from_secs(1) && wait + passed >= Duration::from_secs(1),
        "{wait:?} after {passed:?}"
    );
    // The same holds here.
    tokio::time::sleep(wait).await;
    assert_eq!(client.ask(get("/")).await.expect(200).remaining("calls"), 1);
}

async fn a_request_that_one_limit_refuses_is_charged_by_none(place: Place) {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &["wide", "tight", "window"])
        .limit("wide", "by = \"ip\"\nrate = \"100/h\"")
        .limit(
            "tight",
            "by = \"header:x-user\"\nmissing = \"skip\"\nrate = \"2/h\"",
        )
        .limit(
            "window",
            "by = \"everyone\"\nrate = \"50/h\"\nalgorithm = \"fixed-window\"",
        );
    let gateway = place.gateway(file).await;
    let ann = [("X-User", "ann")];
    for _ in 0..2 {
        gateway.get_with("/", &ann).await.expect(200);
    }
    for nth in 0..5 {
        let refused = gateway.get_with("/", &ann).await.expect(429);
        if nth == 0 || !place.remembers() {
            assert_eq!(refused.remaining("wide"), 98);
            assert_eq!(refused.remaining("window"), 48);
        }
        assert_eq!(refused.remaining("tight"), 0);
        assert_eq!(
            refused.json()["violated-policies"],
            serde_json::json!(["tight"])
        );
    }
    let other = gateway
        .get_with("/", &[("X-User", "ben")])
        .await
        .expect(200);
    assert_eq!(
        (
            other.remaining("wide"),
            other.remaining("tight"),
            other.remaining("window")
        ),
        (97, 1, 47)
    );
}

async fn the_limit_with_the_longest_wait_is_named(place: Place) {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &["minute", "day", "hour"])
        .limit("minute", "by = \"everyone\"\nrate = \"1/min\"")
        .limit(
            "day",
            "by = \"everyone\"\nrate = \"1/d\"\nalgorithm = \"fixed-window\"",
        )
        .limit("hour", "by = \"everyone\"\nrate = \"1/h\"");
    let gateway = place.gateway(file).await;
    gateway.get("/").await.expect(200);
    let refused = gateway.get("/").await.expect(429);
    assert!(
        (86_000..=86_400).contains(&refused.number("retry-after")),
        "{refused:?}"
    );
    assert_eq!(gateway.line_of(&refused).await["limit"], "day");
    assert!(
        refused.json()["detail"]
            .as_str()
            .unwrap()
            .contains("\"day\""),
        "{refused:?}"
    );
}

async fn every_method_counts(place: Place) {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &["all"]).limit("all", "by = \"everyone\"\nrate = \"4/h\"");
    let gateway = place.gateway(file).await;
    for method in ["GET", "DELETE", "OPTIONS"] {
        gateway
            .connect()
            .await
            .ask(request(method, "/", &[]))
            .await
            .expect(200);
    }
    for status in [200, 429] {
        let mut client = gateway.connect().await;
        client.send(request("HEAD", "/", &[])).await;
        let answer: Answer = client.answer_to_head().await.expect(status);
        assert!(
            WORDS.iter().all(|word| answer.fields.has(word)),
            "{answer:?}"
        );
        // The body did not come, so the connection is in step.
        client.ask(get("/")).await.expect(429);
    }
}

async fn both_protocols_share_one_counter(place: Place) {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &["ip"]).limit("ip", "by = \"ip\"\nrate = \"4/h\"");
    let gateway = place.gateway(file).await;
    let (http2, mut http1): (H2, _) = (gateway.h2().await, gateway.connect().await);
    for left in [3, 1] {
        assert_eq!(http2.get("/").await.expect(200).remaining("ip"), left);
        assert_eq!(
            http1.ask(get("/")).await.expect(200).remaining("ip"),
            left - 1
        );
    }
    let refused = http2.ask(h2::get("/")).await.expect(429);
    assert!(
        WORDS.iter().all(|word| refused.fields.has(word)),
        "{refused:?}"
    );
    assert_eq!(
        refused.json()["violated-policies"],
        serde_json::json!(["ip"])
    );
    http1.ask(get("/")).await.expect(429);
}

async fn many_at_once_get_exactly_the_burst(place: Place) {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &["ip", "all"])
        .limit("ip", "by = \"ip\"\nrate = \"25/h\"")
        .limit(
            "all",
            "by = \"everyone\"\nrate = \"1000/h\"\nalgorithm = \"fixed-window\"",
        )
        .route("other", "/other", "main", &["all"]);
    let gateway = place.gateway(file.server("workers = 4")).await;
    let mut asking = JoinSet::new();
    for _ in 0..16 {
        let mut client = gateway.connect().await;
        asking.spawn(async move {
            let mut admitted = 0;
            for _ in 0..5 {
                admitted += usize::from(client.ask(get("/")).await.status == 200);
            }
            admitted
        });
    }
    let admitted: usize = asking.join_all().await.into_iter().sum();
    assert_eq!((admitted, upstream.seen()), (25, 25));
    let other = gateway.get("/other").await.expect(200);
    assert_eq!(other.remaining("all"), 974);
}

async fn spelling_a_path_differently_gains_nothing(place: Place) {
    let upstream = Upstream::echo().await;
    let file = File::default()
        .limit("calls", "by = \"everyone\"\nrate = \"1/h\"")
        .upstream("main", &[&upstream])
        .route("login", "/login", "main", &["calls"])
        .route("rest", "/{*rest}", "main", &[]);
    let gateway = place.gateway(file).await;
    gateway.get("/login").await.expect(200);
    for spelling in [
        "/login/",
        "//login",
        "/./login",
        "/x/../login",
        "/%6Cogin",
        "/log%69n",
        "/login;a=b",
        "/login?x",
        "http://a.test/login",
    ] {
        let status = gateway.get(spelling).await.status;
        assert_eq!(status, 429, "{spelling}");
    }
    gateway.get("/logins").await.expect(200);
}

async fn more_than_the_rate_is_never_admitted(place: Place) {
    const BURST: f64 = 10.0;
    // With a higher rate a busy machine would not send enough requests.
    const RATE: f64 = 40.0;
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &["ip"]).limit("ip", "by = \"ip\"\nrate = \"40/s\"\nburst = 10");
    let gateway = place.gateway(file.server("workers = 2")).await;
    let start = Instant::now();
    let mut asking = JoinSet::new();
    for _ in 0..8 {
        let mut client = gateway.connect().await;
        asking.spawn(async move {
            // Each client is refused at least once, since all together ask for more than the limit admits.
            let (mut admitted, mut refused) = (0, 0);
            while start.elapsed() < Duration::from_millis(1500) || refused == 0 {
                match client.ask(get("/")).await.status {
                    200 => admitted += 1,
                    429 => refused += 1,
                    other => panic!("{other}"),
                }
            }
            admitted
        });
    }
    let admitted = f64::from(asking.join_all().await.into_iter().sum::<u32>());
    // The time that the test measures is a little longer than the gateway's.
    let bound = BURST + RATE * start.elapsed().as_secs_f64();
    // The long test shows that nearly the whole limit is used. Here refusals only prove that there was a load.
    assert!(
        admitted <= bound && admitted > BURST,
        "{admitted} of {bound}"
    );
}

#[tokio::test]
async fn a_refused_upload_is_still_readable() {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &["ip"]).limit("ip", "by = \"ip\"\nrate = \"1/h\"");
    let gateway = Gateway::start(&file).await;
    gateway.get("/").await.expect(200);
    let mut client = gateway.connect().await;
    client
        .send(request("POST", "/", &[("Content-Length", "200000")]))
        .await;
    client.send(vec![b'x'; 200_000]).await;
    client.answer().await.expect(429);
}

/// Some clients read no answer until they have sent everything, or give up if sending fails.
#[tokio::test]
async fn a_refused_upload_is_heard_out() {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &["ip"]).limit("ip", "by = \"ip\"\nrate = \"1/h\"");
    let gateway = Gateway::start(&file).await;
    gateway.get("/").await.expect(200);
    let mut client = gateway.connect().await;
    let post = request("POST", "/", &[("Content-Length", "1000000")]);
    client.send(post).await;
    let refused = client.answer().await.expect(429);
    assert_eq!(refused.field("connection"), "close");
    for sent in 0..50 {
        let piece = client.try_send(vec![b'x'; 20_000]).await;
        assert!(piece.is_ok(), "piece {sent}");
        sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn a_refused_upload_over_http2_is_heard_out() {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &["ip"]).limit("ip", "by = \"ip\"\nrate = \"1/h\"");
    let gateway = Gateway::start(&file).await;
    gateway.get("/").await.expect(200);
    let mut client = greeted(&gateway).await;
    // The gateway's windows apply once the client has acknowledged its settings.
    while read_frame(&mut client).await.unwrap().0 != SETTINGS {}
    client.send(frame(SETTINGS, 1, 0, &[])).await;
    client.send(frame(HEADERS, 4, 1, &HEAD)).await;
    let piece = frame(DATA, 0, 1, &[b'x'; 16_000]);
    client.send(piece.repeat(3)).await;
    let is_end = |kind, flags: u8| kind == DATA && flags & 1 == 1;
    loop {
        let (kind, flags, _) = read_frame(&mut client).await.unwrap();
        assert_ne!(kind, RST_STREAM, "before the answer");
        if is_end(kind, flags) {
            break;
        }
    }
    client.send(frame(DATA, 1, 1, b"the end")).await;
    client.send(frame(PING, 0, 0, &[1; 8])).await;
    loop {
        let (kind, flags, _) = read_frame(&mut client).await.unwrap();
        assert_ne!(kind, RST_STREAM, "behind the answer");
        if (kind, flags) == (PING, 1) {
            return;
        }
    }
}

#[tokio::test]
async fn a_refusal_keeps_the_connection() {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &["ip"]).limit("ip", "by = \"ip\"\nrate = \"1/h\"");
    let gateway = Gateway::start(&file).await;
    let mut client = gateway.connect().await;
    client.ask(get("/")).await.expect(200);
    for _ in 0..5 {
        client.ask(get("/")).await.expect(429);
    }
}
