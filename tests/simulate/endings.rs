//! What a log line says about the end of its request: refunded charges, places in queues, and bounds on the number of
//! held requests.

use super::{Bench, at, words};
use serde_json::{Value, json};

/// Each of the two bounds, which a single client reaches.
const HELD: [&str; 2] = ["max_held = 2", "max_held_per_client = 2"];

fn ending(ts: f64, more: &Value) -> String {
    let mut line = json!({ "ts": ts, "client": "203.0.113.9" });
    let members = more.as_object().unwrap().clone();
    line.as_object_mut().unwrap().extend(members);
    line.to_string() + "\n"
}

#[tokio::test]
async fn a_servers_error_gives_back_where_the_limit_says_so() {
    let failed = json!({ "status": 502, "reason": "connect_failed", "duration_ms": 500 });
    let trace = [
        ending(1.0, &failed),
        ending(1.25, &json!({})),
        // The charge of the first request has come back.
        ending(1.5, &json!({})),
        // An answer of the gateway about itself is no server's error.
        ending(3_700.0, &json!({ "status": 503, "reason": "store_down" })),
        ending(3_700.5, &json!({})),
    ];
    let rate = "rate = \"1/h\"\n";
    for (refund, expected) in [
        ("", ["admit", "refuse", "refuse", "admit", "refuse"]),
        (
            "refund = [\"cancel\"]",
            ["admit", "refuse", "refuse", "admit", "refuse"],
        ),
        (
            "refund = [\"5xx\"]",
            ["admit", "refuse", "admit", "admit", "refuse"],
        ),
    ] {
        let bench = Bench::limit(&format!("{rate}{refund}")).trace(trace.concat());
        assert_eq!(words(&bench.decisions(&[]).await), expected, "{refund}");
    }
    let apaches =
        "203.0.113.9 - - [20/Nov/2026:17:48:50 +0000] \"GET / HTTP/1.1\" 500 2\n".repeat(3);
    let bench = Bench::limit("rate = \"1/h\"\nrefund = [\"5xx\"]").trace(apaches);
    let report = bench
        .report(&["--set", "limits.a.refund=[\"cancel\"]"])
        .await;
    assert_eq!(
        (&report["file"]["refused"], &report["changed"]["refused"]),
        (&json!(0), &json!(2)),
        "a line without a duration ends when it begins"
    );
}

#[tokio::test]
async fn the_status_decides_the_cost_and_what_comes_back() {
    let trace = [
        ending(1.0, &json!({ "status": 200, "duration_ms": 100 })),
        ending(1.25, &json!({ "status": 401, "duration_ms": 100 })),
        ending(1.5, &json!({ "status": 200 })),
        ending(
            3_700.0,
            &json!({ "status": 200, "grpc_status": 16, "duration_ms": 100 }),
        ),
        ending(3_700.5, &json!({})),
    ];
    let by_status = |costs: &str| format!("rate = \"1/h\"\ncost = {{ status = {{ {costs} }} }}");
    for (lines, expected) in [
        (
            by_status("\"401\" = 1, \"grpc-16\" = 1"),
            ["admit", "admit", "refuse", "admit", "refuse"],
        ),
        (
            by_status("\"401\" = 0, else = 1"),
            ["admit", "refuse", "refuse", "admit", "refuse"],
        ),
        (
            "rate = \"1/h\"\nrefund = [\"2xx\", \"grpc-16\"]".to_owned(),
            ["admit", "admit", "refuse", "admit", "admit"],
        ),
    ] {
        let bench = Bench::limit(&lines).trace(trace.concat());
        assert_eq!(words(&bench.decisions(&[]).await), expected, "{lines}");
    }
}

#[tokio::test]
async fn who_leaves_while_held_gives_the_place_back() {
    let left = json!({ "status": 499, "reason": "client_gone", "upstream": null, "delay_ms": 100, "duration_ms": 50 });
    let trace = [
        ending(1.0, &json!({})),
        ending(1.0, &left),
        ending(1.0, &json!({})),
        ending(1.06, &json!({})),
    ];
    let lines = "algorithm = \"leaky-bucket\"\nrate = \"10/s\"\nqueue = 1";
    let bench = Bench::limit(lines).trace(trace.concat());
    let decisions = bench.decisions(&[]).await;
    assert_eq!(words(&decisions), ["admit", "delay", "refuse", "delay"]);
    // Another file would not have held the request, so it would have been forwarded before its client left.
    let wider = [
        "--set",
        "limits.a.burst=2",
        "--set",
        "limits.a.refund=[\"cancel\"]",
    ];
    let decisions = bench.decisions(&wider).await;
    assert_eq!(words(&decisions), ["admit", "admit", "delay", "refuse"]);
}

#[tokio::test]
async fn no_more_are_held_than_the_gateway_holds() {
    let file = |held: &str| {
        format!(
            "[server]\n{held}\n[limits.a]\nby = \"ip\"\nalgorithm = \"leaky-bucket\"\nrate = \"10/s\"\nqueue = 9\n\
            [upstreams.u]\nservers = \"a:1\"\n[routes.r]\nupstream = \"u\"\nlimits = [\"a\"]\n"
        )
    };
    for held in HELD {
        let bench = Bench::of(&file(held)).trace(at([0, 0, 0, 0, 100_000]));
        let decisions = bench.decisions(&[]).await;
        assert_eq!(
            words(&decisions),
            ["admit", "delay", "delay", "refuse", "delay"],
            "{held}"
        );
        let refused = &decisions[3];
        assert_eq!(
            (
                &refused["limit"],
                &refused["retry_after_us"],
                &refused["granted"]
            ),
            (&Value::Null, &json!(1_000_000), &json!(0))
        );
        assert_eq!(decisions[4]["wait_us"], 200_000, "its place has gone back");
        let report = bench.report(&[]).await;
        assert_eq!(
            (&report["file"]["refused"], &report["file"]["too_many_held"]),
            (&json!(1), &json!(1))
        );
        let told = bench.simulate(&[]).await.stdout;
        assert!(told.contains("too many held"), "{told}");
    }
}
