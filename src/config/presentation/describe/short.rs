//! The numbers of a limit in short: `10/s, burst 20`.

use super::rate;
use crate::limit::{Limit, Rule};

/// The numbers of a limit in short.
#[must_use]
pub fn short(limit: &Limit) -> String {
    let rate = rate(limit);
    match &limit.rule {
        Rule::TokenBucket(rule) => format!("{rate}, burst {}", rule.burst),
        Rule::LeakyBucket(rule) => match limit.rule.queue() {
            Some(_) => format!("{rate}, burst {}, queue {}", rule.burst, rule.queue),
            None => format!("{rate}, burst {}", rule.burst),
        },
        Rule::FixedWindow(_)
        | Rule::ClockWindow(_)
        | Rule::SlidingWindow(_)
        | Rule::SlidingLog(_)
        | Rule::Concurrency(_) => rate,
    }
}

/// The algorithm of a limit, as the file names it.
#[must_use]
pub fn algorithm(limit: &Limit) -> &'static str {
    match &limit.rule {
        Rule::TokenBucket(_) => "token-bucket",
        Rule::LeakyBucket(_) => "leaky-bucket",
        Rule::FixedWindow(_) | Rule::ClockWindow(_) => "fixed-window",
        Rule::SlidingWindow(_) => "sliding-window",
        Rule::SlidingLog(_) => "sliding-log",
        Rule::Concurrency(_) => "concurrency",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse;

    #[test]
    fn a_limit_in_short_has_its_numbers_and_its_algorithm() {
        for (written, said) in [
            ("rate = \"10/s\"\nburst = 20", "10/s, burst 20"),
            ("rate = \"10/s\"\nalgorithm = \"fixed-window\"", "10/s"),
            ("rate = \"7/3s\"\nalgorithm = \"sliding-log\"", "7/3s"),
            ("rate = \"7/3s\"\nalgorithm = \"sliding-window\"", "7/3s"),
            (
                "rate = \"10/s\"\nalgorithm = \"leaky-bucket\"\nqueue = 3",
                "10/s, burst 1, queue 3",
            ),
            ("max = 4\nalgorithm = \"concurrency\"", "4 at once"),
        ] {
            let text = format!(
                "[limits.l]\nby = \"ip\"\n{written}\n[upstreams.u]\nservers = \"a:1\"\n[routes.r]\nupstream = \"u\"\nlimits = \"l\"\n"
            );
            let compiled = parse("gateway.toml", &text).unwrap();
            let limit = &compiled.outline.limits[0];
            assert_eq!(short(limit), said);
            let named = written.split_once("algorithm = ").map(|(_, rest)| rest);
            let named = named.map_or("\"token-bucket\"", |rest| {
                rest.lines().next().unwrap_or_default()
            });
            assert_eq!(format!("\"{}\"", algorithm(limit)), named);
        }
    }
}
