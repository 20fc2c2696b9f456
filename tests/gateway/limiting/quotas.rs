//! The quota of a limit and its remainder in the fields of answers, for buckets, queues and windows.

use super::super::store_kind::{Place, on_both_stores};
use crate::support::{Answer, File, Gateway, Upstream, get};
use tokio::task::JoinSet;

on_both_stores! {
    a_bucket_tells_its_burst_and_the_time_in_which_that_comes_back
    a_refusal_of_a_queue_leaves_nothing
    a_refusal_by_what_is_in_flight_tells_no_other_limit
}

/// The quota and the remainder from the older fields.
fn older(answer: &Answer) -> (u64, u64) {
    (
        answer.number("x-ratelimit-limit"),
        answer.number("x-ratelimit-remaining"),
    )
}

async fn a_bucket_tells_its_burst_and_the_time_in_which_that_comes_back(place: Place) {
    for (nth, (keys, quota, window)) in [
        ("rate = \"100/min\"\nburst = 500", 500, 300),
        ("rate = \"1/h\"\nburst = 100000", 100_000, 360_000_000),
        ("rate = \"60/min\"\nburst = 5", 5, 5),
        ("rate = \"5/2s\"\nburst = 7", 7, 3),
        ("rate = \"100/s\"\nburst = 2", 2, 1),
        (
            "rate = \"10/min\"\nburst = 3\nalgorithm = \"leaky-bucket\"\nover = \"refuse\"",
            3,
            18,
        ),
        (
            "rate = \"10/s\"\nqueue = 100\nmax_wait = \"2s\"\nalgorithm = \"leaky-bucket\"",
            21,
            3,
        ),
        (
            "rate = \"10/min\"\nqueue = 4\nmax_wait = \"1h\"\nburst = 2\nalgorithm = \"leaky-bucket\"",
            6,
            36,
        ),
        (
            "rate = \"8/1500ms\"\nalgorithm = \"fixed-window\"",
            8,
            2,
        ),
        (
            "rate = \"10/min\"\nalgorithm = \"sliding-window\"",
            10,
            60,
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let upstream = Upstream::echo().await;
        let name = format!("held-{nth}");
        let file = File::to(&upstream, &[&name]).limit(&name, &format!("by = \"ip\"\n{keys}"));
        let gateway = place.gateway(file).await;
        let answer = gateway.get("/").await.expect(200);
        assert_eq!(
            answer.field("ratelimit-policy"),
            format!("\"{name}\";q={quota};w={window}"),
            "{keys}"
        );
        assert_eq!(answer.remaining(&name), quota - 1, "{keys}");
        assert_eq!(older(&answer), (quota, quota - 1), "{keys}");
    }
}

/// Sends this number of requests at once. Returns the answers.
async fn at_once(gateway: &Gateway, many: usize) -> Vec<Answer> {
    let mut asked = JoinSet::new();
    for _ in 0..many {
        let mut client = gateway.connect().await;
        asked.spawn(async move { client.ask(get("/")).await });
    }
    asked.join_all().await
}

async fn a_refusal_of_a_queue_leaves_nothing(place: Place) {
    for (name, keys, many) in [
        (
            "never-full",
            "rate = \"10/s\"\nqueue = 100\nmax_wait = \"2s\"",
            40,
        ),
        (
            "short",
            "rate = \"1/3s\"\nqueue = 1\nmax_wait = \"100ms\"",
            3,
        ),
        (
            "full",
            "rate = \"10/s\"\nqueue = 3\nmax_wait = \"2s\"\nburst = 2",
            20,
        ),
    ] {
        let upstream = Upstream::echo().await;
        let keys = format!("by = \"ip\"\nalgorithm = \"leaky-bucket\"\n{keys}");
        let file = File::to(&upstream, &[name]).limit(name, &keys);
        let gateway = place.gateway(file).await;
        let answers = at_once(&gateway, many).await;
        let refused: Vec<_> = answers.iter().filter(|one| one.status == 429).collect();
        assert!(!refused.is_empty(), "{name}");
        for answer in refused {
            assert_eq!(answer.remaining(name), 0, "{answer:?}");
            assert_eq!(answer.number("x-ratelimit-remaining"), 0, "{answer:?}");
        }
        for answer in &answers {
            let quota = answer.parameter("ratelimit-policy", name, "q");
            assert!(answer.remaining(name) <= quota, "{answer:?}");
            assert_eq!(answer.number("x-ratelimit-limit"), quota, "{answer:?}");
        }
    }
}

async fn a_refusal_by_what_is_in_flight_tells_no_other_limit(place: Place) {
    let upstream = Upstream::silent().await;
    let file = File::to(&upstream, &["flight", "calls"])
        .limit(
            "flight",
            "by = \"everyone\"\nalgorithm = \"concurrency\"\nmax = 1",
        )
        .limit("calls", "by = \"everyone\"\nrate = \"2000/h\"");
    let gateway = place.gateway(file).await;
    let mut first = gateway.connect().await;
    let waiting = tokio::spawn(async move { first.ask(get("/")).await });
    upstream.sees(1).await;
    // The second refusal is copied from the first one.
    for _ in 0..3 {
        let refused = gateway.get("/").await.expect(429);
        assert_eq!(refused.remaining("flight"), 0);
        assert_eq!(refused.remaining("calls"), 1999);
        for name in ["limit", "remaining", "reset"] {
            let name = format!("x-ratelimit-{name}");
            assert!(!refused.fields.has(&name), "{refused:?}");
        }
    }
    waiting.abort();
}
