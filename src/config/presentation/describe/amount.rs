//! The requests that a limit admits, including at the edges of its windows: the numbers of docs/algorithms.md.

use crate::config::value::{show_rate, show_span};
use crate::limit::clock_window::{Anchor, ClockWindow};
use crate::limit::leaky_bucket::LeakyBucket;
use crate::limit::rate::Rate;
use crate::limit::sliding_window::SlidingWindow;
use crate::limit::{Limit, Rule, Unit};

/// `at most 20 at once, 120 in the first minute, 100 in each later minute`
#[must_use]
pub fn amount(limit: &Limit) -> String {
    match &limit.rule {
        Rule::TokenBucket(rule) => refilled(limit.rate, rule.burst.get()),
        Rule::FixedWindow(rule) => {
            let window = stretch(rule.window);
            let edge = match doubled(rule.limit) - 1 {
                1 => String::new(),
                most => format!(", {most} {}", across(&window)),
            };
            format!(
                "at most {} in each {window}, from its first request on{edge}",
                rule.limit
            )
        }
        Rule::ClockWindow(rule) => clock(rule),
        Rule::SlidingWindow(rule) => sliding(rule),
        Rule::Concurrency(rule) => format!("at most {} in flight", rule.max),
        Rule::SlidingLog(rule) => {
            format!("at most {} in any {}", rule.limit, stretch(rule.window))
        }
        Rule::LeakyBucket(rule) if rule.queue == 0 => refilled(limit.rate, rule.burst.get()),
        Rule::LeakyBucket(rule) => queued(limit.rate, rule),
    }
}

/// `100/min, 20 at once`
#[must_use]
pub fn brief(limit: &Limit) -> String {
    let rate = super::rate(limit);
    match &limit.rule {
        Rule::TokenBucket(rule) => format!("{rate}, {} at once", rule.burst),
        Rule::LeakyBucket(rule) if rule.queue > 0 => {
            format!("{rate} evenly, up to {} waiting", rule.most_waiting())
        }
        Rule::LeakyBucket(rule) => format!("{rate} evenly, {} at once", rule.burst),
        Rule::FixedWindow(_) | Rule::ClockWindow(_) => format!("{rate} in each window"),
        Rule::Concurrency(rule) => format!("{} in flight", rule.max),
        Rule::SlidingWindow(_) | Rule::SlidingLog(_) => format!("{rate} in any such time"),
    }
}

/// The number of requests that `burst` and a steady refill admit.
fn refilled(rate: Rate, burst: u64) -> String {
    let first = burst + rate.count.get();
    let time = stretch(rate.period.get());
    format!(
        "at most {burst} at once, {first} in the first {time}, {} in each later {time}",
        rate.count
    )
}

fn queued(rate: Rate, rule: &LeakyBucket) -> String {
    let goes = match rule.burst.get() {
        1 => format!("{} evenly", pace(rate)),
        burst => format!("{}, evenly", refilled(rate, burst)),
    };
    format!(
        "{goes}; up to {} more wait, at most {} each",
        rule.most_waiting(),
        rounded_up(rule.longest_wait())
    )
}

/// A wait of this many microseconds for people to read, rounded up: in whole milliseconds, or in whole seconds from one
/// minute.
#[must_use]
pub fn rounded_up(micros: u64) -> String {
    let to = match micros {
        0..1_000 => 1,
        1_000..60_000_000 => 1_000,
        _ => 1_000_000,
    };
    show_span(micros.div_ceil(to).saturating_mul(to))
}

/// The number of requests in a stretch of time that spans two windows.
fn doubled(limit: u64) -> u64 {
    2 * limit
}

/// `within a minute that lies across two`, `within 3s that lie across two`.
fn across(window: &str) -> String {
    let is_plural = window.starts_with(|c: char| c.is_ascii_digit());
    let lies = if is_plural { "lie" } else { "lies" };
    format!("within {} that {lies} across two", one(window))
}

/// `a minute`, `an hour`, `3s`.
fn one(stretch: &str) -> String {
    match stretch {
        several if several.starts_with(|c: char| c.is_ascii_digit()) => several.to_owned(),
        "hour" => "an hour".to_owned(),
        single => format!("a {single}"),
    }
}

fn sliding(rule: &SlidingWindow) -> String {
    let (limit, window) = (rule.limit, stretch(rule.window()));
    let seen = match rule.parts {
        1 => "one part and the one before it".to_owned(),
        parts => format!("{parts} parts and the one before them"),
    };
    let part = rule.window() / u64::from(rule.parts);
    if rule.strict {
        let run = one(&stretch(rule.window() + part));
        return format!(
            "at most {limit} in any {window}, seen in {seen} whole (in the long run {limit} in {run})"
        );
    }
    let worst = match (doubled(limit) - 1, rule.parts) {
        (1, _) => String::new(),
        (most, 1) => format!(" (at worst {most} in {})", one(&window)),
        (most, _) => {
            let sure = one(&stretch(rule.window() - part));
            format!(" (at worst {most} in {}, {limit} in {sure})", one(&window))
        }
    };
    format!("at most {limit} in the last {window}, seen in {seen} by weight{worst}")
}

/// `at most 5000 in each month of the calendar (Europe/Berlin), starting 8h late, 10000 within a month that lies across
/// two`.
fn clock(rule: &ClockWindow) -> String {
    let (window, by, offset) = match &rule.anchor {
        Anchor::Clock { window, offset } => (stretch(*window), " by the clock".to_owned(), offset),
        Anchor::Calendar(calendar) => {
            let unit = match calendar.unit {
                Unit::Day => "day",
                Unit::Week => "week",
                Unit::Month => "month",
            };
            let many = match calendar.many {
                1 => unit.to_owned(),
                many => format!("{many} {unit}s"),
            };
            let by = format!(" of the calendar ({})", calendar.zone_name);
            (many, by, &calendar.offset)
        }
    };
    let late = match offset {
        0 => String::new(),
        offset => format!(", starting {} late", show_span(*offset)),
    };
    let (limit, twice, across) = (rule.limit, doubled(rule.limit), across(&window));
    format!("at most {limit} in each {window}{by}{late}, {twice} {across}")
}

/// `minute`, `3s`.
fn stretch(micros: u64) -> String {
    let shown = show_span(micros);
    let single = shown
        .strip_prefix('1')
        .filter(|unit| !unit.starts_with(|c: char| c.is_ascii_digit()));
    single.and_then(word).map_or(shown.clone(), str::to_owned)
}

/// `100 a minute`, `7 in 3s`.
fn pace(rate: Rate) -> String {
    let text = show_rate(rate);
    let (count, time) = text.split_once('/').unwrap_or((&text, ""));
    match word(time) {
        Some(word) => format!("{count} {}", one(word)),
        None => format!("{count} in {time}"),
    }
}

fn word(unit: &str) -> Option<&'static str> {
    Some(match unit {
        "us" => "microsecond",
        "ms" => "millisecond",
        "s" => "second",
        "min" => "minute",
        "h" => "hour",
        "d" => "day",
        "w" => "week",
        _ => return None,
    })
}
