//! Shows the keys of a limit when two files are compared.

use super::{Algorithm, Over};
use crate::config::presentation::describe::{amount, show_span, tier};
use crate::config::presentation::{ShownValue, show};
use crate::limit::clock_window::Anchor;
use crate::limit::sliding_window::SlidingWindow;
use crate::limit::{Limit, Rule, RuleKind, Unit};
use std::sync::Arc;

/// The values of all rates, if the rates have a value: `10 and 100`.
pub(super) fn joined(
    limits: &[Arc<Limit>],
    of: impl Fn(&Limit) -> Option<String>,
) -> Option<ShownValue> {
    let all: Vec<String> = limits.iter().filter_map(|limit| of(limit)).collect();
    (!all.is_empty()).then(|| all.join(" and ")).and_then(show)
}

pub(super) fn algorithm(rule: &Rule) -> Algorithm {
    match rule {
        Rule::TokenBucket(_) => Algorithm::TokenBucket,
        Rule::LeakyBucket(_) => Algorithm::LeakyBucket,
        Rule::FixedWindow(_) | Rule::ClockWindow(_) => Algorithm::FixedWindow,
        Rule::SlidingWindow(_) => Algorithm::SlidingWindow,
        Rule::SlidingLog(_) => Algorithm::SlidingLog,
        Rule::Concurrency(_) => Algorithm::Concurrency,
    }
}

pub(super) fn burst(limit: &Limit) -> Option<String> {
    match &limit.rule {
        Rule::TokenBucket(rule) => Some(rule.burst.to_string()),
        Rule::LeakyBucket(rule) => Some(rule.burst.to_string()),
        _ => None,
    }
}

pub(super) fn queue(limit: &Limit) -> Option<String> {
    Some(limit.rule.queue()?.queue.to_string())
}

pub(super) fn over(limit: &Limit) -> Over {
    match limit.rule.queue() {
        Some(_) => Over::Delay,
        None => Over::Refuse,
    }
}

pub(super) fn sliding(limit: &Limit) -> Option<&SlidingWindow> {
    match &limit.rule {
        Rule::SlidingWindow(rule) => Some(rule),
        _ => None,
    }
}

/// The start of a fixed window.
pub(super) fn anchor(limit: &Limit) -> Option<ShownValue> {
    match &limit.rule {
        Rule::FixedWindow(_) => show("first"),
        Rule::ClockWindow(_) => show("clock"),
        _ => None,
    }
}

/// The offset and the time zone of windows by the clock.
pub(super) fn clock(limit: &Limit) -> Option<(String, String)> {
    let Rule::ClockWindow(rule) = &limit.rule else {
        return None;
    };
    let (offset, zone) = match &rule.anchor {
        Anchor::Clock { offset, .. } => (*offset, "UTC"),
        Anchor::Calendar(calendar) => (calendar.offset, &*calendar.zone_name),
    };
    Some((show_span(offset), zone.to_owned()))
}

/// The time zone of windows. Weeks that begin on Monday are others than weeks without a written zone.
pub(super) fn timezone(limit: &Limit) -> Option<ShownValue> {
    let (_, zone) = clock(limit)?;
    let is_monday = matches!(
        limit.kind,
        RuleKind::Calendar {
            unit: Unit::Week,
            ..
        }
    );
    let whole = is_monday.then(|| format!("Mondays in {zone}"));
    Some(ShownValue { text: zone, whole })
}

/// `gold (at most 200 at once, ...) and internal (...)`, or `none`.
pub(super) fn shown_tiers(limits: &[Arc<Limit>]) -> String {
    let tiers = limits.iter().flat_map(|limit| &limit.tiers);
    let shown = tiers.map(|one| format!("{} ({})", one.group.name, tier(&one.limit)));
    or(shown.collect(), "none")
}

/// `at most 8 at once, 16 in the first second, 8 in each later second`, or `nothing`.
pub(super) fn shown_candidate(rates: &[Arc<Limit>]) -> String {
    or(rates.iter().map(|limit| amount(limit)).collect(), "nothing")
}

fn or(shown: Vec<String>, none: &str) -> String {
    match shown.as_slice() {
        [] => none.to_owned(),
        shown => shown.join(" and "),
    }
}
