//! Twice the limits are twice the work. The work is counted as spans that are looked at, not timed.

use super::parse;
use super::span::LOOKED_AT;
use std::fmt::Write as _;

/// A file with this many limits. Each limit has every key that is held against other tables, and an ignored warning.
fn file(many: usize) -> String {
    let mut text = String::new();
    for n in 0..many {
        write!(
            text,
            "[limits.l{n}]\nby = \"ip\"\nrate = \"${{NOT_SET:-{n}}}1/min\"\nburst = 5\nalgorithm = \"leaky-bucket\"\nmax_wait = \"1min\"\n\
             public_name = \"n{n}\"\ncandidate = {{ rate = \"9/min\" }}\nexempt = {{ methods = [\"OPTIONS\"] }}\n\
             ignore_warnings = [\"waits-longer\"]\n\
             [upstreams.u{n}]\nservers = \"a:1\"\n\
             [routes.r{n}]\npath = \"/r{n}\"\nupstream = \"u{n}\"\nlimits = [\"l{n}\"]\n"
        )
        .unwrap();
    }
    text
}

#[test]
fn twice_the_limits_are_twice_the_work() {
    let looked_at = |many: usize| {
        LOOKED_AT.set(0);
        let compiled = parse("gateway.toml", &file(many))
            .unwrap_or_else(|report| panic!("{}", report.human(super::render::Colour::Off)));
        assert_eq!(
            compiled.ignored.len(),
            many,
            "{}",
            compiled.report().human(super::render::Colour::Off)
        );
        LOOKED_AT.get()
    };
    let (some, twice) = (looked_at(100), looked_at(200));
    assert!(
        some >= 100 && twice <= some * 21 / 10,
        "{some} of 100, {twice} of 200"
    );
}
