//! Histories for each algorithm whose results are known by arithmetic.

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

/// A window that starts with its first request can admit twice its limit in a moment: at the end of one window, and at
/// the beginning of the next.
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

/// The same two bursts as above: sliding windows admit no more than their five in any stretch of a second.
#[tokio::test]
async fn a_strict_window_and_a_log_have_no_double_burst() {
    let end = START + SECOND;
    let times: Vec<u64> = [START]
        .into_iter()
        .chain((1..6).map(|i| end - 10_000 + i))
        .chain((0..6).map(|i| end + i))
        .collect();
    for lines in [
        "algorithm = \"sliding-log\"\nrate = \"5/s\"",
        "algorithm = \"sliding-window\"\nrate = \"5/s\"\nbuckets = 10\nstrict = true",
    ] {
        let decisions = Bench::limit(lines)
            .trace(at(times.clone()))
            .decisions(&[])
            .await;
        let admitted: Vec<u64> = decisions
            .iter()
            .filter(|one| one["decision"] == "admit")
            .map(|one| one["ts_us"].as_u64().unwrap())
            .collect();
        assert!(admitted.len() >= 5, "{lines}: {admitted:?}");
        for (index, first) in admitted.iter().enumerate() {
            let within = admitted[index..]
                .iter()
                .filter(|at| **at - first < SECOND)
                .count();
            assert!(within <= 5, "{lines}: {within} from {first} on");
        }
    }
}

/// Five units in a second. The costs are 1, 2 and 3 at 0, 100 and 600 ms: the third request waits until the first unit
/// has left.
#[tokio::test]
async fn a_log_says_how_long_to_wait() {
    let limits = "[limits.a]\nby = \"everyone\"\nalgorithm = \"sliding-log\"\nrate = \"5/s\"\n";
    let bench = Bench::new(limits, &[("/{*rest}", &["a"])]);
    let bench = bench.trace(at([
        START,
        START + 100_000,
        START + 100_000,
        START + 600_000,
        START + 600_000,
        START + 600_000,
    ]));
    let decisions = bench.decisions(&[]).await;
    assert_eq!(
        words(&decisions),
        ["admit", "admit", "admit", "admit", "admit", "refuse"]
    );
    assert_eq!(
        decisions[5]["retry_after_us"], 400_000,
        "the first leaves at one second"
    );
}

/// The same with the costs in the lines.
#[tokio::test]
async fn costs_of_a_line_are_waited_for_as_units_are() {
    let limits = "[limits.a]\nby = \"everyone\"\nalgorithm = \"sliding-log\"\nrate = \"5/s\"\n\
        cost = { header = \"x-cost\", default = 1, max = 5 }\n";
    let line = |millis: u64, cost: u32| {
        let at = START + millis * 1_000;
        format!(
            "{{\"ts\":{}.{:06},\"cost\":{cost}}}\n",
            at / SECOND,
            at % SECOND
        )
    };
    let trace = [
        line(0, 1),
        line(100, 2),
        line(600, 3),
        line(999, 3),
        line(1_000, 3),
    ];
    let bench = Bench::new(limits, &[("/{*rest}", &["a"])]).trace(trace.concat());
    let decisions = bench.decisions(&[]).await;
    assert_eq!(
        words(&decisions),
        ["admit", "admit", "refuse", "refuse", "admit"]
    );
    let waits = [2, 3].map(|at: usize| decisions[at]["retry_after_us"].as_u64());
    assert_eq!(waits, [Some(400_000), Some(1_000)]);
}

#[tokio::test]
async fn a_slot_lives_for_the_requests_duration() {
    let line = |at: &str, duration: &str| {
        format!("{{\"ts\":{at},\"path\":\"/\",\"duration_ms\":{duration}}}\n")
    };
    let trace = [
        line("1", "1000"),
        line("1.5", "100"),
        line("1.999999", "5"),
        line("2", "60000"),
        line("61", "0"),
        line("62", "0"),
    ];
    let bench = Bench::limit("algorithm = \"concurrency\"\nmax = 1\nslot_ttl = \"10s\"")
        .trace(trace.concat());
    let decisions = bench.decisions(&[]).await;
    assert_eq!(
        words(&decisions),
        ["admit", "refuse", "refuse", "admit", "refuse", "admit"]
    );
    assert_eq!(
        decisions[1]["retry_after_us"], 1_000_000,
        "a hint: nobody knows"
    );
}

#[tokio::test]
async fn a_list_of_rates_names_the_one_that_refuses() {
    let bench = Bench::limit("rate = [\"2/s\", \"3/h\"]").trace(at([
        START,
        START,
        START,
        START + SECOND,
        START + 2 * SECOND,
    ]));
    let decisions = bench.decisions(&[]).await;
    assert_eq!(
        words(&decisions),
        ["admit", "admit", "refuse", "admit", "refuse"]
    );
    assert_eq!(
        (&decisions[2]["limit"], &decisions[2]["window"]),
        (&json!("a"), &json!("2/s"))
    );
    assert_eq!(decisions[4]["window"], "3/h");
    assert_eq!(decisions[0].get("window"), None);
    assert_eq!(decisions[0]["verdicts"][1]["window"], "3/h");
}

#[tokio::test]
async fn a_lines_cost_replaces_what_a_request_says() {
    let limits = "[limits.said]\nby = \"everyone\"\nrate = \"10/h\"\ncost = { header = \"x-cost\", default = 1, max = 8 }\n\
        [limits.fixed]\nby = \"everyone\"\nrate = \"100/h\"\ncost = 2\n";
    let trace = "{\"ts\":1,\"headers\":{\"x-cost\":\"3\"}}\n{\"ts\":1,\"headers\":{\"x-cost\":\"3\"},\"cost\":5}\n\
        {\"ts\":1,\"costs\":{\"said\":3,\"fixed\":50}}\n{\"ts\":1,\"path\":\"/\"}\n";
    let decisions = Bench::new(limits, &[("/{*rest}", &["said", "fixed"])])
        .trace(trace)
        .decisions(&[])
        .await;
    assert_eq!(words(&decisions), ["admit", "admit", "refuse", "admit"]);
    let left = |one: &Value| [0, 1].map(|at| one["verdicts"][at]["remaining"].as_u64().unwrap());
    assert_eq!(
        decisions.iter().map(left).collect::<Vec<_>>(),
        [[7, 98], [2, 96], [2, 96], [1, 94]]
    );
    let granted: Vec<_> = decisions
        .iter()
        .map(|one| one["granted"].as_u64().unwrap())
        .collect();
    assert_eq!(granted, [3, 5, 0, 2]);
}

#[tokio::test]
async fn what_is_left_is_granted_where_a_limit_may() {
    let limits = "[limits.a]\nby = \"everyone\"\nrate = \"10/h\"\npartial = true\ncost = { header = \"x-cost\", default = 1, max = 8 }\n";
    let trace = "{\"ts\":1,\"cost\":7}\n{\"ts\":1,\"cost\":7}\n{\"ts\":1,\"cost\":7}\n";
    let decisions = Bench::new(limits, &[("/{*rest}", &["a"])])
        .trace(trace)
        .decisions(&[])
        .await;
    assert_eq!(words(&decisions), ["admit", "admit", "refuse"]);
    let granted: Vec<_> = decisions
        .iter()
        .map(|one| one["granted"].as_u64().unwrap())
        .collect();
    assert_eq!(granted, [7, 3, 0]);
}

#[tokio::test]
async fn conditions_of_routes_are_looked_at_in_the_line() {
    let route = |name: &str, more: &str| {
        format!("[routes.{name}]\nupstream = \"u\"\npath = \"/a\"\n{more}\n")
    };
    let text = [
        "[upstreams.u]\nservers = \"127.0.0.1:1\"\n".to_owned(),
        route("plain", ""),
        route("two", "headers = { x-version = \"2\" }"),
        route("query", "query = { v = \"2\", debug = true }"),
        route(
            "secure",
            "scheme = \"https\"\nquery = { v = true }\nheaders = { x-version = true }",
        ),
    ]
    .concat();
    let trace = [
        r#"{"ts":1,"path":"/a"}"#,
        r#"{"ts":1,"path":"/a","headers":{"X-Version":"2"}}"#,
        r#"{"ts":1,"path":"/a","headers":{"x-version":["2","1"]}}"#,
        r#"{"ts":1,"path":"/a?debug&v=%32"}"#,
        r#"{"ts":1,"path":"https://h/a?v","headers":{"x-version":"3"}}"#,
        // No peer is trusted here, so these fields are not read.
        r#"{"ts":1,"path":"/a?v","headers":{"x-version":"3","x-forwarded-proto":"https"}}"#,
        r#"{"ts":1,"path":"/a?v","headers":{"x-version":"3"},"tls":{"version":"1.3","identity":"a"}}"#,
        r#"{"ts":1,"path":"/a?v","headers":{"x-version":"3"},"tls":null}"#,
    ];
    let decisions = Bench::of(&text)
        .trace(trace.join("\n"))
        .decisions(&[])
        .await;
    let routes: Vec<&str> = decisions
        .iter()
        .map(|one| one["route"].as_str().unwrap())
        .collect();
    assert_eq!(
        routes,
        [
            "plain", "two", "plain", "query", "secure", "plain", "secure", "plain"
        ]
    );
}

/// No route took a request over TLS, and a route for `http` alone does not take its line either.
#[tokio::test]
async fn a_route_for_http_takes_no_line_of_a_request_over_tls() {
    let text = "[upstreams.u]\nservers = \"127.0.0.1:1\"\n\
        [limits.a]\nby = \"ip\"\nrate = \"10/h\"\n\
        [routes.r]\nupstream = \"u\"\nscheme = \"http\"\nlimits = \"a\"\n";
    let line = |more: &str| {
        let line = r#"{"ts":1,"client":"127.0.0.1","path":"/two","status":404,"reason":"no_route","route":null"#;
        format!("{line}{more}}}\n")
    };
    let trace = line(r#","tls":{"version":"1.3","identity":"a","resumed":false,"sni":"c.test"}"#);
    let decisions = Bench::of(text)
        .trace(trace + &line(""))
        .decisions(&[])
        .await;
    assert_eq!(words(&decisions), ["no_route", "admit"]);
    assert_eq!(decisions[0]["verdicts"], json!([]));
}

/// A line may state any cost. The gateway charges no more than `max`, and a replay does not either.
#[tokio::test]
async fn a_cost_beyond_the_most_is_the_most() {
    let limits = "[limits.a]\nby = \"everyone\"\nrate = \"10/h\"\n\
        cost = { header = \"x-cost\", default = 1, max = 4 }\n";
    let trace: String = ["\"cost\":1000", "\"costs\":{\"a\":9}", "\"cost\":4"]
        .map(|said| format!("{{\"ts\":1,{said}}}\n"))
        .concat();
    let bench = Bench::new(limits, &[("/{*rest}", &["a"])]).trace(trace);
    let decisions = bench.decisions(&[]).await;
    assert_eq!(words(&decisions), ["admit", "admit", "refuse"]);
    let left: Vec<u64> = decisions
        .iter()
        .map(|one| one["verdicts"][0]["remaining"].as_u64().unwrap())
        .collect();
    assert_eq!(left, [6, 2, 2]);
}
