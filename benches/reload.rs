//! A file of 10,000 routes and 1,000 limits: the time of its takeover, and the cost of a request among so many routes
//! beside one among 10.
//!
//!     cargo bench --bench reload
//!
//! The measurement fails when the file takes longer than 200 ms, or when a request among 10,000 routes costs more than
//! 1.1 times one among 10. The extra cost of the lookup is compared with a whole request of 10 us, which is a low
//! estimate.
#![allow(clippy::disallowed_methods, reason = "a measurement reads the clock")]

use http::{HeaderMap, Method};
use std::fmt::Write as _;
use std::hint::black_box;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tollgate::config::{Compiled, parse};
use tollgate::route::RequestView;

const MOST: Duration = Duration::from_millis(200);
const RATIO: f64 = 1.1;
/// The least cost of a proxied request, in nanoseconds.
const REQUEST: f64 = 10_000.0;

/// A file of `routes` routes, every tenth with a parameter, and of a tenth as many limits.
fn file(routes: usize) -> String {
    let mut text = String::from("[upstreams.u]\nservers = \"127.0.0.1:3000\"\n");
    let limits = (routes / 10).max(1);
    for limit in 0..limits {
        let _ = writeln!(
            text,
            "[limits.l{limit}]\nby = \"ip\"\nrate = \"{}/s\"",
            limit + 1
        );
    }
    for route in 0..routes {
        let path = match route % 10 {
            0 => format!("/v1/team{route}/{{id}}/items"),
            _ => format!("/v1/team{}/item{route}", route / 10),
        };
        let _ = writeln!(
            text,
            "[routes.r{route}]\npath = \"{path}\"\nupstream = \"u\"\nlimits = \"l{}\"",
            route % limits
        );
    }
    text
}

/// A request without fields and query.
struct Nothing(HeaderMap);

impl RequestView for Nothing {
    fn fields(&self) -> &HeaderMap {
        &self.0
    }

    fn query(&self) -> Option<&str> {
        None
    }

    fn is_https(&self) -> bool {
        false
    }
}

fn compiled(routes: usize) -> Compiled {
    parse("gateway.toml", &file(routes)).unwrap_or_else(|report| panic!("{}", report.summary()))
}

/// The time of one route's lookup in nanoseconds, the least of many rounds.
fn lookup(compiled: &Compiled, routes: usize) -> f64 {
    const EACH: usize = 20_000;
    let paths: Vec<String> = (0..64)
        .map(|index| {
            let route = (index * 7919) % routes;
            match route % 10 {
                0 => format!("/v1/team{route}/42/items"),
                _ => format!("/v1/team{}/item{route}", route / 10),
            }
        })
        .collect();
    let table = &compiled.snapshot.table;
    let nothing = Nothing(HeaderMap::new());
    let round = || {
        let begun = Instant::now();
        for turn in 0..EACH {
            let path = &paths[turn % paths.len()];
            let found = table.find("h", black_box(path), &Method::GET, &nothing);
            assert!(black_box(found).is_some());
        }
        begun.elapsed().as_secs_f64() * 1e9 / EACH as f64
    };
    (0..50).map(|_| round()).fold(f64::MAX, f64::min)
}

fn main() -> ExitCode {
    let text = file(10_000);
    let compile = (0..10)
        .map(|_| {
            let begun = Instant::now();
            assert!(black_box(parse("gateway.toml", &text)).is_ok());
            begun.elapsed()
        })
        .min()
        .unwrap_or_default();
    println!(
        "10,000 routes and 1,000 limits, {} KiB: compiled in {compile:?}",
        text.len() / 1024
    );
    let (few, many) = (compiled(10), compiled(10_000));
    let (few, many) = (lookup(&few, 10), lookup(&many, 10_000));
    println!("finding a route: {few:.0} ns among 10, {many:.0} ns among 10,000");
    let ratio = (REQUEST + many - few) / REQUEST;
    println!("a request of 10 us among 10,000: {ratio:.3} times one among 10");
    let good = compile <= MOST && ratio <= RATIO;
    println!("{}", if good { "good" } else { "too slow" });
    ExitCode::from(u8::from(!good))
}
