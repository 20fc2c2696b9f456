//! The speed of a replay: `cargo bench --bench simulate`. The measurement writes its traces into a temporary folder.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a measurement says by stopping where the world was not as it must be"
)]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Instant;
use tollgate::config;
use tollgate::replay::{Replay, TraceLines};

const LINES: u32 = 1_000_000;
const CLIENTS: u32 = 10_000;
/// The number of rounds, of which the best is reported: on a shared machine the others measure the neighbours.
const ROUNDS: usize = 5;

/// Three limits on every request, with a key for each client in two of them.
const FILE: &str = r#"
[limits.per-ip]
by = "ip"
rate = "1/s"
burst = 20
[limits.per-route]
by = ["ip", "route"]
algorithm = "fixed-window"
rate = "1000/min"
[limits.all]
by = "everyone"
rate = "20000/s"
[upstreams.orders]
servers = "127.0.0.1:3000"
[routes.orders]
host = "api.example.com"
path = "/v1/orders/{id}"
upstream = "orders"
limits = ["per-ip", "per-route", "all"]
"#;

/// Lines of a limit that counts by a key that is digested.
const BY_KEY: &str = "by = \"header:x-api-key\"\nmissing = \"refuse\"";

fn main() {
    let folder = tempfile::tempdir().unwrap();
    println!("{LINES} lines, {CLIENTS} clients, three limits; the best of {ROUNDS} rounds:");
    let by_key = FILE.replacen("by = \"ip\"", BY_KEY, 1);
    measure(folder.path(), "the shortest JSON", FILE, 1, minimal);
    measure(folder.path(), "each for another path", FILE, 1, other_paths);
    measure(
        folder.path(),
        "with a key in a header",
        &by_key,
        1,
        with_header,
    );
    measure(folder.path(), "our access log", &by_key, 1, access);
    measure(folder.path(), "Apache's combined", FILE, 1, combined);
    measure(folder.path(), "the shortest, two files", FILE, 2, minimal);
}

fn measure(folder: &Path, name: &str, file: &str, sides: usize, line: fn(&mut String, u32, u32)) {
    let (toml, trace) = (folder.join("gateway.toml"), folder.join("trace"));
    fs::write(&toml, file).unwrap();
    let mut text = String::new();
    let mut random = fastrand::Rng::with_seed(1);
    for number in 0..LINES {
        line(&mut text, number, random.u32(..CLIENTS));
        text.push('\n');
    }
    fs::write(&trace, &text).unwrap();
    let bytes = text.len();
    drop(text);
    let (mut best, mut best_wall) = (f64::MAX, f64::MAX);
    for _ in 0..ROUNDS {
        let snapshot = || config::load(&toml).unwrap().snapshot;
        let changed = (sides > 1).then(snapshot);
        let mut replay = Replay::new(snapshot(), changed, None).unwrap();
        let mut lines = TraceLines::open(&trace).unwrap();
        let (cpu, wall) = (on_core(), Instant::now());
        replay.run(&mut lines, None, &mut |_, _| {}).unwrap();
        best = best.min(on_core() - cpu);
        best_wall = best_wall.min(wall.elapsed().as_secs_f64());
        let report = replay.report();
        assert_eq!(
            (report.requests, report.unreadable.count),
            (u64::from(LINES), 0)
        );
        assert!(report.tallies[0].refused > 0 && report.tallies[0].no_route == 0);
    }
    println!(
        "{name:<24} {:>6.2} million a second of a core ({:>4.0} ns each), {:>6.2} million a second; {:>3} bytes a line",
        f64::from(LINES) / best / 1e6,
        best * 1e9 / f64::from(LINES),
        f64::from(LINES) / best_wall / 1e6,
        bytes / LINES as usize,
    );
}

/// The processor time of this thread, in seconds.
fn on_core() -> f64 {
    let told = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    let nanos: u64 = told.split(' ').next().unwrap().parse().unwrap();
    nanos as f64 / 1e9
}

/// The instant of a line, at 20,000 lines a second: seconds and microseconds.
fn time(number: u32) -> (u32, u32) {
    (1_795_196_930 + number / 20_000, number % 20_000 * 50)
}

fn address(client: u32) -> String {
    format!(
        "203.{}.{}.{}",
        client >> 16,
        client >> 8 & 255,
        client & 255
    )
}

fn minimal(out: &mut String, number: u32, client: u32) {
    let ((second, micro), client) = (time(number), address(client));
    write!(out, r#"{{"ts": {second}.{micro:06}, "client": "{client}", "method": "GET", "host": "api.example.com", "path": "/v1/orders/{}?q=1"}}"#, number % 100).unwrap();
}

fn other_paths(out: &mut String, number: u32, client: u32) {
    let ((second, micro), client) = (time(number), address(client));
    write!(out, r#"{{"ts": {second}.{micro:06}, "client": "{client}", "method": "GET", "host": "api.example.com", "path": "/v1/orders/{number}?q=1"}}"#).unwrap();
}

fn with_header(out: &mut String, number: u32, client: u32) {
    minimal(out, number, client);
    out.pop();
    write!(
        out,
        r#", "headers": {{"x-api-key": "k-{client}"}}, "cost": 1}}"#
    )
    .unwrap();
}

fn access(out: &mut String, number: u32, client: u32) {
    let ((second, micro), ip) = (time(number), address(client));
    let (minute, second) = (second / 60 % 60, second % 60);
    write!(out, r#"{{"ts":"2026-11-20T17:{minute:02}:{second:02}.{micro:06}Z","client":"{ip}","method":"GET","host":"api.example.com","path":"/v1/orders/{}","request_id":"01930b7e-5a3c-7c41-9f6b-{number:012x}","status":200,"reason":"ok","route":"orders","limit":"per-ip","delay_ms":0,"duration_ms":3.15,"keys":{{"per-ip":"%sha={client:032x}","per-route":"{ip}|orders","all":""}},"costs":{{"per-ip":1,"per-route":1,"all":1}},"remaining":19,"retry_after_ms":null,"decided_by":"memory","upstream":"10.1.0.5:3000","upstream_ms":2.9,"bytes_in":0,"bytes_out":212,"peer":"{ip}","proto":"HTTP/1.1","user_agent":"curl/8.7"}}"#, number % 100).unwrap();
}

fn combined(out: &mut String, number: u32, client: u32) {
    let ((second, _), ip) = (time(number), address(client));
    let (minute, second) = (second / 60 % 60, second % 60);
    write!(out, r#"{ip} - - [20/Nov/2026:17:{minute:02}:{second:02} +0000] "GET http://api.example.com/v1/orders/{} HTTP/1.1" 200 212 "-" "curl/8.7""#, number % 100).unwrap();
}
