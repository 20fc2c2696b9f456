//! Walks through the algorithms whose ends are known by arithmetic.

use super::{Bench, at, count, words};
use serde_json::{Value, json};

const SECOND: u64 = 1_000_000;
const START: u64 = 1_795_196_930 * SECOND;

#[tokio::test]
async fn thirty_requests_within_a_tenth_of_a_second_meet_ten_tokens_and_one_more() {
    let trace = at((0..30).map(|i| START + i * 100_000 / 29));
    let bench = Bench::limit("rate = \"10/s\"\nburst = 10").trace(trace);
    let decisions = bench.decisions(&[]).await;
    assert_eq!(count(&decisions, "admit"), 11);
    assert_eq!(count(&decisions, "refuse"), 19);
    let last = decisions.last().unwrap();
    assert_eq!(
        last["decision"], "admit",
        "the eleventh token is there after exactly 0.1 s"
    );
    assert_eq!(
        decisions[28]["retry_after_us"],
        json!(START + 100_000 - (START + 28 * 100_000 / 29))
    );
}

#[tokio::test]
async fn a_decision_has_the_promised_shape() {
    let trace = "{\"ts\":12.000001,\"client\":\"203.0.113.9\",\"path\":\"/x?q=1\"}\n\n{\"ts\":12.000001,\"path\":\"/no\"}\n";
    let limits = "[limits.a]\nby = \"ip\"\nrate = \"10/s\"\n";
    let bench = Bench::new(limits, &[("/x", &["a"])]).trace(trace);
    bench.decisions(&[]).await;
    let text = std::fs::read_to_string(bench.path().join("out.jsonl")).unwrap();
    let expected = concat!(
        r#"{"line":1,"ts_us":12000001,"route":"r0","decision":"admit","wait_us":0,"limit":null,"retry_after_us":null,"granted":1,"#,
        r#""verdicts":[{"limit":"a","key":"203.0.113.9","admitted":true,"wait_us":0,"retry_after_us":null,"remaining":9,"reset_us":100000}]}"#,
        "\n",
        r#"{"line":3,"ts_us":12000001,"route":null,"decision":"no_route","wait_us":0,"limit":null,"retry_after_us":null,"granted":0,"verdicts":[]}"#,
        "\n",
    );
    assert_eq!(text, expected);
}

/// A window that starts with its first request lets twice its limit through in a moment: at one window's end and at the
/// next one's beginning.
#[tokio::test]
async fn a_fixed_windows_double_burst_is_there() {
    let end = START + SECOND;
    let times = [START]
        .into_iter()
        .chain((1..6).map(|i| end - 10_000 + i))
        .chain((0..6).map(|i| end + i));
    let bench = Bench::limit("algorithm = \"fixed-window\"\nrate = \"5/s\"").trace(at(times));
    let decisions = bench.decisions(&[]).await;
    let window = ["admit", "admit", "admit", "admit", "admit", "refuse"];
    assert_eq!(words(&decisions), [window, window].concat());
    assert_eq!(decisions[5]["retry_after_us"], json!(10_000 - 5));
}

#[tokio::test]
async fn a_leaky_bucket_says_how_long_each_is_held() {
    let lines = "algorithm = \"leaky-bucket\"\nrate = \"10/s\"\nqueue = 3\nmax_wait = \"1min\"";
    let bench = Bench::limit(lines).trace(at([START; 6]));
    let decisions = bench.decisions(&[]).await;
    let waits: Vec<&Value> = decisions.iter().map(|one| &one["wait_us"]).collect();
    assert_eq!(waits, [0, 100_000, 200_000, 300_000, 0, 0]);
    assert_eq!(
        words(&decisions),
        ["admit", "delay", "delay", "delay", "refuse", "refuse"]
    );
    assert_eq!(
        decisions[1]["limit"], "a",
        "the limit that holds it is named"
    );
    assert_eq!(decisions[4]["retry_after_us"], 100_000);
    let report = bench.report(&[]).await;
    assert_eq!(
        report["file"]["waits_us"],
        json!({ "p50": 200_000, "p99": 300_000, "max": 300_000 })
    );
}

#[tokio::test]
async fn what_one_limit_refuses_the_others_are_not_charged() {
    let limits = "[limits.tight]\nby = \"ip\"\nrate = \"1/h\"\n[limits.wide]\nby = \"everyone\"\nrate = \"100/h\"\n";
    let bench = Bench::new(limits, &[("/{*rest}", &["wide", "tight"])]).trace(at([START; 4]));
    let decisions = bench.decisions(&[]).await;
    assert_eq!(words(&decisions), ["admit", "refuse", "refuse", "refuse"]);
    for refused in &decisions[1..] {
        assert_eq!(refused["limit"], "tight");
        assert_eq!(refused["retry_after_us"], 3_600 * SECOND);
        let [wide, tight] = &refused["verdicts"].as_array().unwrap()[..] else {
            panic!("two verdicts: {refused}");
        };
        assert_eq!(
            (&wide["admitted"], &wide["remaining"]),
            (&json!(true), &json!(99))
        );
        assert_eq!(
            (&tight["admitted"], &tight["remaining"]),
            (&json!(false), &json!(0))
        );
    }
}

#[tokio::test]
async fn a_request_that_can_never_pass_has_no_wait() {
    let limits = "[limits.a]\nby = \"header:x-user\"\nmissing = \"refuse\"\nrate = \"1/h\"\n";
    let bench = Bench::new(limits, &[("/{*rest}", &["a"])]).trace(at([START]));
    let decisions = bench.decisions(&[]).await;
    let refused = &decisions[0];
    assert_eq!(
        (&refused["decision"], &refused["limit"]),
        (&json!("refuse"), &json!("a"))
    );
    assert_eq!(
        (&refused["retry_after_us"], &refused["verdicts"]),
        (&Value::Null, &json!([]))
    );
}
