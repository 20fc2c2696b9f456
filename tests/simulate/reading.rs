//! The input of a replay: the forms of a line, lines that are not valid, compressed and piped traces, and clocks that
//! run back.

use super::{Bench, at, count, words};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;
use std::io::Write as _;

const LIMIT: &str = "rate = \"2/h\"";

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test]
async fn what_is_no_line_is_counted_named_and_skipped() {
    let mut trace = at([1_000_000, 2_000_000]).into_bytes();
    trace.extend(b"nonsense\n{\"client\":\"203.0.113.9\"}\n\n\xff\xfe\n{\"ts\":1e9}\n{\"ts\":3,\"client\":\"203.0.113.9\"}");
    let bench = Bench::limit(LIMIT).trace(trace);
    let decisions = bench.decisions(&[]).await;
    assert_eq!(words(&decisions), ["admit", "admit", "refuse"]);
    let lines: Vec<_> = decisions
        .iter()
        .map(|one| one["line"].as_u64().unwrap())
        .collect();
    assert_eq!(lines, [1, 2, 8]);
    let report = bench.report(&[]).await;
    assert_eq!(report["unreadable"]["count"], 4);
    let named = report["unreadable"]["first"].as_array().unwrap();
    let named: Vec<_> = named
        .iter()
        .map(|one| one["line"].as_u64().unwrap())
        .collect();
    assert_eq!(named, [3, 4, 6, 7]);
    let told = bench.simulate(&[]).await.stdout;
    assert!(told.contains("4 lines could not be read: 3 ("), "{told}");
    assert!(told.contains("4 (no ts)"), "{told}");
}

#[tokio::test]
async fn a_trace_without_any_request_is_a_bad_answer() {
    let bench = Bench::limit(LIMIT).trace("what\nis\nthis\n");
    let done = bench.simulate(&[]).await;
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.stderr.contains("no line of trace"), "{done:?}");
    assert!(done.stderr.contains("line 1: neither JSON nor"), "{done:?}");
    for nothing in ["", "\n\n"] {
        let empty = Bench::limit(LIMIT).trace(nothing).simulate(&[]).await;
        assert_eq!(empty.code, Some(1), "{empty:?}");
        let said = "error: trace is empty: there is nothing to replay\n";
        assert_eq!(empty.stderr, said);
    }
}

#[tokio::test]
async fn a_trace_that_is_not_there_is_a_bad_answer() {
    let bench = Bench::limit(LIMIT);
    for trace in ["absent", "."] {
        let done = bench.run(&["simulate", trace], b"").await;
        assert_eq!(done.code, Some(1), "{done:?}");
        assert!(
            done.stderr.contains(&format!("cannot open {trace}")),
            "{done:?}"
        );
    }
}

#[tokio::test]
async fn gzip_and_standard_input_are_the_same_trace() {
    let text = at((0..500).map(|i| i * 7_777_777));
    let bench = Bench::limit("rate = \"1/10s\"").trace(&text);
    let plain = bench.decisions(&[]).await;
    assert!(count(&plain, "refuse") > 50);
    let halves = text.split_at(text.find("\n").unwrap() + 1);
    let joined = [gzip(halves.0.as_bytes()), gzip(halves.1.as_bytes())].concat();
    std::fs::write(bench.path().join("trace.gz"), &joined).unwrap();
    for (trace, input) in [
        ("trace.gz", &b""[..]),
        ("-", text.as_bytes()),
        ("-", &joined),
    ] {
        let done = bench
            .run(&["simulate", trace, "--decisions", "other.jsonl"], input)
            .await;
        assert_eq!(done.code, Some(0), "{trace}: {done:?}");
        let read = |name| std::fs::read(bench.path().join(name)).unwrap();
        assert!(read("out.jsonl") == read("other.jsonl"), "{trace}");
    }
}

#[tokio::test]
async fn gzip_that_is_cut_off_is_told() {
    let mut cut = gzip(at((0..500).map(|i| i * 7_777_777)).as_bytes());
    cut.truncate(cut.len() / 2);
    let done = Bench::limit(LIMIT).trace(cut).simulate(&[]).await;
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(
        done.stderr.contains("cannot read the trace beyond line"),
        "{done:?}"
    );
}

#[tokio::test]
async fn apaches_log_is_read() {
    let line = |second: u32, client: &str| {
        format!(
            "{client} - joe [20/Nov/2026:17:48:{second:02} +0000] \"GET /v1/x?a=b HTTP/1.1\" 200 2 \"-\" \"curl/8\"\n"
        )
    };
    let trace = [
        line(50, "203.0.113.9"),
        line(51, "203.0.113.9"),
        line(52, "2001:db8::1"),
        line(53, "203.0.113.9"),
    ];
    let bench = Bench::new(
        "[limits.a]\nby = \"ip\"\nrate = \"2/h\"",
        &[("/v1/x", &["a"])],
    );
    let decisions = bench.trace(trace.concat()).decisions(&[]).await;
    assert_eq!(words(&decisions), ["admit", "admit", "admit", "refuse"]);
    assert_eq!(decisions[0]["ts_us"], 1_795_196_930_000_000_u64);
    assert_eq!(decisions[2]["verdicts"][0]["key"], "2001:db8::/64");
}

#[tokio::test]
async fn time_never_runs_back() {
    let trace = ["10", "9.999999", "\"1970-01-01T00:00:11Z\"", "3"]
        .map(|ts| format!("{{\"ts\":{ts},\"path\":\"/\"}}\n"))
        .concat();
    let bench = Bench::limit("rate = \"1/s\"").trace(trace);
    let decisions = bench.decisions(&[]).await;
    let times: Vec<_> = decisions
        .iter()
        .map(|one| one["ts_us"].as_u64().unwrap())
        .collect();
    assert_eq!(times, [10_000_000, 10_000_000, 11_000_000, 11_000_000]);
    assert_eq!(words(&decisions), ["admit", "refuse", "admit", "refuse"]);
    let report = bench.report(&[]).await;
    assert_eq!(
        report["late"],
        json!({ "count": 2, "first": [{ "line": 2 }, { "line": 4 }] })
    );
    let told = bench.simulate(&[]).await.stdout;
    assert!(told.contains("2 lines have an earlier time"), "{told}");
}

#[tokio::test]
async fn every_digit_of_a_time_counts() {
    // As a double, the last time would be another microsecond.
    let trace = ["4503599627.000001", "4503599627.370495"]
        .map(|ts| format!("{{\"ts\":{ts},\"path\":\"/\"}}\n"))
        .concat();
    let decisions = Bench::limit(LIMIT).trace(trace).decisions(&[]).await;
    assert_eq!(decisions[0]["ts_us"], 4_503_599_627_000_001_u64);
    assert_eq!(decisions[1]["ts_us"], 4_503_599_627_370_495_u64);
}

#[tokio::test]
async fn fields_hosts_and_methods_are_matched_as_the_gateway_does() {
    let file = "[limits.a]\nby = \"header:x-user\"\nmissing = \"skip\"\nrate = \"1/h\"\n\
        [upstreams.u]\nservers = \"127.0.0.1:1\"\n\
        [routes.get]\nhost = \"*.example.com\"\npath = \"/v1/{id}\"\nmethods = [\"GET\"]\nupstream = \"u\"\nlimits = [\"a\"]\n";
    let line = |host: &str, method: &str, path: &str, user: &str| {
        json!({ "ts": 1, "host": host, "method": method, "path": path, "headers": { "X-User": user } }).to_string() + "\n"
    };
    let trace = [
        line("API.example.com:80", "GET", "/v1//%41?x", "ann"),
        line("api.example.com", "HEAD", "/v1/b;p=1/", "ann"),
        line("api.example.com", "POST", "/v1/b", "ann"),
        line("example.com", "GET", "/v1/b", "ann"),
        line("api.example.com", "GET", "/v1/b%2fc", "ann"),
        line("api.example.com", "GET", "http://x.example.com/v1/b", "ben"),
        line("api.example.com", "GET", "/v1/b", ""),
    ];
    let bench = Bench::of(file).trace(trace.concat());
    let decisions = bench.decisions(&[]).await;
    let expected = [
        "admit", "refuse", "no_route", "no_route", "no_route", "admit", "admit",
    ];
    assert_eq!(words(&decisions), expected);
    assert_eq!(decisions[6]["verdicts"], json!([]), "skipped");
}

#[tokio::test]
async fn a_path_answered_400_is_charged_to_nobody() {
    let file = "[limits.a]\nby = \"ip\"\nrate = \"1/h\"\n[defaults]\nlimits = [\"a\"]\n\
        [upstreams.u]\nservers = \"127.0.0.1:1\"\n[routes.r]\npath = \"/x\"\nupstream = \"u\"\n";
    let trace =
        ["/%2f", "/%00", "/x", "/y"].map(|path| format!("{{\"ts\":1,\"path\":\"{path}\"}}\n"));
    let decisions = Bench::of(file).trace(trace.concat()).decisions(&[]).await;
    // Limits of `[defaults]` also apply where no route matches, but they are not asked about a target that is no path.
    assert_eq!(
        words(&decisions),
        ["no_route", "no_route", "admit", "refuse"]
    );
    assert_eq!(decisions[0]["verdicts"], json!([]));
}

#[tokio::test]
async fn the_trace_is_never_overwritten() {
    let trace = "{\"ts\":1}\n";
    let bench = Bench::limit(LIMIT).trace(trace);
    std::fs::hard_link(bench.path().join("trace"), bench.path().join("link")).unwrap();
    for arguments in [
        ["--decisions", "./trace"],
        ["--svg", "trace"],
        ["--decisions", "link"],
    ] {
        let done = bench.simulate(&arguments).await;
        assert_eq!(done.code, Some(2), "{done:?}");
        assert!(done.stderr.contains("is the trace"), "{done:?}");
    }
    let kept = std::fs::read_to_string(bench.path().join("trace")).unwrap();
    assert_eq!(kept, trace);
}
