//! The whole text, read back as a scraper would.

use super::*;
use http::Method;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Reads the text with the checks of a strict reader: types before samples, families in one piece, valid names, no
/// sample twice.
fn parse(text: &str) -> BTreeMap<String, f64> {
    let mut samples = BTreeMap::new();
    let mut families = BTreeSet::new();
    let (mut family, mut kind) = (String::new(), String::new());
    for line in text.lines() {
        if let Some(typed) = line.strip_prefix("# TYPE ") {
            let (name, of) = typed.split_once(' ').unwrap();
            assert!(families.insert(name.to_owned()), "{name} comes twice");
            (family, kind) = (name.to_owned(), of.to_owned());
            continue;
        }
        if line.starts_with('#') {
            assert!(line.starts_with("# HELP ") && line.ends_with('.'), "{line}");
            continue;
        }
        let (series, value) = line.rsplit_once(' ').unwrap();
        let name = series.split('{').next().unwrap();
        let rest = name
            .strip_prefix(&family)
            .unwrap_or_else(|| panic!("{line} under {family}"));
        let fits = match kind.as_str() {
            "histogram" => ["_bucket", "_sum", "_count"].contains(&rest),
            "counter" => rest.is_empty() && name.ends_with("_total"),
            "gauge" => rest.is_empty() && !name.ends_with("_total"),
            _ => false,
        };
        assert!(fits, "{line} is no {kind}");
        let value: f64 = value.parse().unwrap();
        assert!(
            samples.insert(series.to_owned(), value).is_none(),
            "{series} comes twice"
        );
    }
    samples
}

fn scrape(metrics: &Arc<Metrics>) -> BTreeMap<String, f64> {
    parse(&metrics.render(TextFormat::Prometheus))
}

fn busy() -> (Arc<Metrics>, Vec<WorkerMetrics>) {
    let metrics = Metrics::new();
    let workers: Vec<_> = (0..2).map(|_| metrics.worker()).collect();
    for worker in &workers {
        let orders = worker.route("orders");
        orders.request(
            &Method::GET,
            200,
            AnswerSource::Upstream,
            Duration::from_millis(3),
        );
        orders.request(
            &Method::GET,
            429,
            AnswerSource::Gateway,
            Duration::from_micros(80),
        );
        worker
            .route(NO_ROUTE)
            .request(&Method::PUT, 404, AnswerSource::Gateway, Duration::ZERO);
        let limit = worker.limit(ModeLabel::Enforce, "per-key", "orders");
        limit.decided(DecisionLabel::Allow, DecidedBy::Store);
        limit.decided(DecisionLabel::Refuse, DecidedBy::Remembered);
        drop(limit.hold(std::time::Instant::now()));
        let upstream = worker.upstream("orders");
        upstream.opened();
        upstream.answered(200, Duration::from_millis(2));
        upstream.failed(Failure::Connect);
        worker.bodies(10, 20);
        worker.overhead(Duration::from_micros(60));
        drop(worker.connected());
        let store = metrics.store();
        store.set_reach(StoreReach::All);
        store.called(
            Operation::Decide,
            CallOutcome::Ok,
            Duration::from_micros(150),
        );
        store.called(Operation::Decide, CallOutcome::Down, Duration::ZERO);
        store.fallback(DecidedBy::Local);
    }
    metrics.started(1);
    metrics.reload_failed();
    (metrics, workers)
}

#[test]
fn numbers_are_the_sums_over_the_workers() {
    let (metrics, workers) = busy();
    let held = workers[1]
        .limit(ModeLabel::Enforce, "per-key", "orders")
        .hold(std::time::Instant::now());
    let flying = workers[0].in_flight();
    let seen = scrape(&metrics);
    for (series, value) in [
        (
            r#"tollgate_http_requests_total{route="orders",method="GET",code="200",source="upstream"}"#,
            2.0,
        ),
        (
            r#"tollgate_http_requests_total{route="none",method="PUT",code="404",source="gateway"}"#,
            2.0,
        ),
        (
            r#"tollgate_http_request_duration_seconds_bucket{le="0.005",route="orders",method="GET",code_class="2xx"}"#,
            2.0,
        ),
        (
            r#"tollgate_http_request_duration_seconds_bucket{le="0.0025",route="orders",method="GET",code_class="2xx"}"#,
            0.0,
        ),
        (
            r#"tollgate_http_request_duration_seconds_sum{route="orders",method="GET",code_class="2xx"}"#,
            0.006,
        ),
        (
            r#"tollgate_limit_decisions_total{limit="per-key",route="orders",decision="allow",decided_by="store"}"#,
            2.0,
        ),
        (
            r#"tollgate_limit_decisions_total{limit="per-key",route="orders",decision="refuse",decided_by="remembered"}"#,
            2.0,
        ),
        (
            r#"tollgate_limit_delay_seconds_count{limit="per-key"}"#,
            2.0,
        ),
        (r#"tollgate_limit_held_requests{limit="per-key"}"#, 1.0),
        ("tollgate_http_requests_in_flight", 1.0),
        ("tollgate_connections", 0.0),
        ("tollgate_connections_accepted_total", 2.0),
        ("tollgate_http_received_bytes_total", 20.0),
        ("tollgate_http_sent_bytes_total", 40.0),
        ("tollgate_overhead_seconds_count", 2.0),
        (
            r#"tollgate_store_operations_total{operation="decide",outcome="down"}"#,
            2.0,
        ),
        (
            r#"tollgate_store_operation_seconds_count{operation="decide",outcome="ok"}"#,
            2.0,
        ),
        ("tollgate_store_up", 1.0),
        (r#"tollgate_store_fallbacks_total{answer="local"}"#, 2.0),
        (
            r#"tollgate_upstream_failures_total{upstream="orders",reason="connect"}"#,
            2.0,
        ),
        (
            r#"tollgate_upstream_connections_opened_total{upstream="orders"}"#,
            2.0,
        ),
        (r#"tollgate_config_reloads_total{outcome="failure"}"#, 1.0),
        ("tollgate_config_last_reload_successful", 0.0),
        ("tollgate_config_generation", 1.0),
    ] {
        assert_eq!(seen.get(series), Some(&value), "{series}");
    }
    drop((held, flying));
    let seen = scrape(&metrics);
    assert_eq!(seen["tollgate_http_requests_in_flight"], 0.0);
    assert_eq!(
        seen[r#"tollgate_limit_held_requests{limit="per-key"}"#],
        0.0
    );
}

#[test]
fn the_store_is_up_when_every_worker_says_so() {
    let metrics = Metrics::new();
    assert_eq!(scrape(&metrics)["tollgate_store_up"], 1.0);
    let (one, two) = (metrics.store(), metrics.store());
    assert_eq!(scrape(&metrics)["tollgate_store_up"], 0.0);
    one.set_reach(StoreReach::All);
    two.set_reach(StoreReach::All);
    assert_eq!(scrape(&metrics)["tollgate_store_up"], 1.0);
    two.set_reach(StoreReach::Part);
    assert_eq!(scrape(&metrics)["tollgate_store_up"], 0.0);
}

#[test]
fn a_name_that_returns_continues_its_count() {
    let metrics = Metrics::new();
    let worker = metrics.worker();
    for _ in 0..3 {
        let route = worker.route("orders");
        route.request(&Method::GET, 200, AnswerSource::Upstream, Duration::ZERO);
    }
    let series =
        r#"tollgate_http_requests_total{route="orders",method="GET",code="200",source="upstream"}"#;
    assert_eq!(scrape(&metrics)[series], 3.0);
}

#[test]
fn ten_thousand_different_requests_add_no_series() {
    let (metrics, workers) = busy();
    let route = workers[0].route("orders");
    route.request(
        &Method::from_bytes(b"A").unwrap(),
        200,
        AnswerSource::Upstream,
        Duration::ZERO,
    );
    let before = scrape(&metrics).len();
    for i in 0..10_000 {
        let method = Method::from_bytes(format!("METHOD{i}").as_bytes()).unwrap();
        route.request(
            &method,
            200,
            AnswerSource::Upstream,
            Duration::from_millis(i),
        );
    }
    assert_eq!(scrape(&metrics).len(), before);
}

#[test]
fn a_hostile_name_is_escaped() {
    let metrics = Metrics::new();
    let route = metrics.worker().route("a\"b\\c\nd");
    route.request(&Method::GET, 200, AnswerSource::Upstream, Duration::ZERO);
    let text = metrics.render(TextFormat::Prometheus);
    assert!(text.contains(r#"{route="a\"b\\c\nd",method="GET""#));
}

#[test]
fn openmetrics_ends_with_its_mark() {
    let (metrics, _workers) = busy();
    let text = metrics.render(TextFormat::OpenMetrics);
    assert!(text.ends_with("# EOF\n"));
    assert!(text.contains("# TYPE tollgate_http_requests counter\n"));
    assert!(text.contains("# UNIT tollgate_overhead_seconds seconds\n"));
}

/// Runs where promtool is installed; the strict reader above runs everywhere.
#[test]
fn promtool_has_nothing_to_say() {
    use std::io::Write;
    use std::process::{Command, Stdio};
    let (metrics, _workers) = busy();
    let child = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        return eprintln!("promtool is not installed: skipped");
    };
    let text = metrics.render(TextFormat::Prometheus);
    child
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.is_empty(), "{said}");
}
