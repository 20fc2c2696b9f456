//! Numbers with which other scripts limit nothing, refuse for ever, or fail at every call: a file with such numbers is
//! refused.

use crate::law::numbers::SECOND;
use std::sync::Arc;
use tollgate::config;
use tollgate::limit::{Limit, Rule};

/// A file whose only limit has these lines.
fn file(lines: &str) -> String {
    format!(
        "[limits.l]\nby = \"ip\"\n{lines}\n[upstreams.u]\nservers = \"http://127.0.0.1:1\"\n\
         [routes.r]\nupstream = \"u\"\nlimits = [\"l\"]\n"
    )
}

/// The compiled limits of a valid file.
fn compiled(lines: &str) -> Vec<Arc<Limit>> {
    let compiled = config::parse("gateway.toml", &file(lines));
    let compiled = compiled.unwrap_or_else(|report| panic!("{lines}: {}", report.summary()));
    compiled.snapshot.services[0].limits.clone()
}

/// Checks that each file is refused, and that its report shows the line.
fn refused(all: &[&str]) {
    for lines in all {
        let Err(report) = config::parse("gateway.toml", &file(lines)) else {
            panic!("{lines} is taken");
        };
        let text = report.json_lines();
        assert!(text.contains("\"line\":"), "{lines}: {text}");
    }
}

/// Checks that the lines are refused under each algorithm that has a rate.
fn refused_under_all(lines: &str) {
    for algorithm in [
        "token-bucket",
        "leaky-bucket",
        "fixed-window",
        "sliding-window",
        "sliding-log",
    ] {
        refused(&[&format!("algorithm = \"{algorithm}\"\n{lines}")]);
    }
}

#[test]
fn fw4_bf5_a_window_of_no_length() {
    for rate in ["2/0s", "2/0ms", "2/0min"] {
        refused_under_all(&format!("rate = \"{rate}\""));
    }
    refused(&["algorithm = \"concurrency\"\nmax = 2\nslot_ttl = \"0s\""]);
}

#[test]
fn bl4_d5_a_rate_of_nothing() {
    refused_under_all("rate = \"0/s\"");
    refused_under_all("rate = \"-1/s\"");
}

#[test]
fn sl1_lb5_tb6_room_for_nothing() {
    refused(&[
        "rate = \"1/s\"\nburst = 0",
        "algorithm = \"leaky-bucket\"\nrate = \"1/s\"\nburst = 0",
        "algorithm = \"concurrency\"\nmax = 0",
    ]);
}

#[test]
fn sh4_ir4_a_length_that_cannot_be_counted_in() {
    refused(&[
        "algorithm = \"sliding-window\"\nrate = \"10/500us\"",
        "algorithm = \"sliding-window\"\nrate = \"10/1500us\"",
        "algorithm = \"sliding-window\"\nrate = \"10/s\"\nbuckets = 7",
        "algorithm = \"sliding-window\"\nrate = \"10/s\"\nbuckets = 101",
    ]);
    refused_under_all("rate = \"2/0.5s\"");
    refused_under_all("rate = \"2.5/s\"");
}

#[test]
fn lb4_tb4_a_fraction_of_a_unit_is_written_as_a_longer_time() {
    refused_under_all("rate = \"0.5/s\"");
    let [limit] = &compiled("rate = \"1/2s\"\nburst = 1")[..] else {
        panic!("it is one limit");
    };
    assert_eq!(limit.rate.period.get(), 2 * SECOND);
}

#[test]
fn rr4_rs10_if8_if9_ir6_costs_are_whole_and_positive() {
    for cost in [
        "-3",
        "0",
        "0.4",
        "\"4\"",
        "{ header = \"x-cost\", max = -1 }",
    ] {
        refused_under_all(&format!("rate = \"10/s\"\ncost = {cost}"));
    }
    refused(&["rate = \"10/s\"\ncost = { header = \"x-cost\", default = -1, max = 5 }"]);
}

#[test]
fn sg2_what_a_decision_has_to_read_is_bounded() {
    refused(&[
        "algorithm = \"sliding-log\"\nrate = \"10001/s\"",
        "algorithm = \"sliding-window\"\nrate = \"10/h\"\nbuckets = 3600",
    ]);
}

#[test]
fn sg3_the_same_rates_can_be_compiled_any_number_of_times() {
    let lines = "rate = [\"5/s\", \"100/min\"]";
    let numbers = |limits: &[Arc<Limit>]| -> Vec<_> {
        let of = |limit: &Arc<Limit>| (limit.rate, limit.rule.clone(), limit.block.clone());
        limits.iter().map(of).collect()
    };
    let first = numbers(&compiled(lines));
    assert_eq!(first[1].0.period.get(), 60 * SECOND);
    assert_eq!(numbers(&compiled(lines)), first);
}

#[test]
fn sg4_a_minute_is_sixty_seconds_wherever_it_is_told() {
    let [limit] = &compiled("algorithm = \"sliding-log\"\nrate = \"1/min\"")[..] else {
        panic!("it is one limit");
    };
    let Rule::SlidingLog(log) = &limit.rule else {
        panic!("it is a log");
    };
    assert_eq!(log.window, 60 * SECOND);
    let told = config::describe::limit(limit, true);
    assert!(told.contains("in any minute"), "{told}");
}

#[test]
fn rs8_rs11_the_present_file_is_what_counts() {
    // No limit survives from an earlier file: each file is compiled as it is written now.
    for (rate, count) in [("5/s", 5), ("50/s", 50), ("5/s", 5)] {
        let lines = format!("algorithm = \"sliding-log\"\nrate = \"{rate}\"");
        let [limit] = &compiled(&lines)[..] else {
            panic!("it is one limit");
        };
        assert_eq!(limit.rate.count.get(), count);
    }
}
