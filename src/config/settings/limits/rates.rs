//! The rates of one limit beside each other: no two over the same time, and none without effect.

use super::rules::RatedRule;
use crate::config::document::Limit;
use crate::config::report::{Code, Details as _, Findings};
use crate::config::value::quoted;
use crate::limit::Rule;
use crate::limit::clock_window::{Anchor, ClockWindow};

/// Notes what is wrong with a list of rates.
pub(super) fn compare(written: &Limit, rated: &[RatedRule], found: &mut Findings) {
    let name = &written.name.value;
    for (index, entry) in written.rate.entries().iter().enumerate() {
        let entry_of = |at: usize| &written.rate.entries()[at];
        let same = |other: &RatedRule| other.rate.period == rated[index].rate.period;
        if let Some(first) = rated[..index].iter().position(same) {
            let message = format!("limit `{name}` has two rates over the same time");
            found
                .error(Code::Duplicate, message)
                .at(&entry.span, "the second")
                .and(&entry_of(first).span, "the first")
                .help("keep the one that is meant");
            continue;
        }
        let stronger = (0..rated.len())
            .filter(|other| *other != index)
            .find(|other| implied(&rated[index], &rated[*other]));
        if let Some(stronger) = stronger {
            let shown = |at: usize| quoted(&rated[at].shown);
            let message = format!("limit `{name}` never comes to its {}", shown(index));
            let reached = format!("{} is always reached before", shown(stronger));
            found
                .warning(Code::NeverBinds, message)
                .at(&entry.span, "never binds")
                .and(&entry_of(stronger).span, reached)
                .help("leave it out, or lower it");
        }
    }
}

/// Does the first rate never refuse a request that the second admits?
fn implied(first: &RatedRule, second: &RatedRule) -> bool {
    let count = |rated: &RatedRule| u128::from(rated.rate.count.get());
    let period = |rated: &RatedRule| u128::from(rated.rate.period.get());
    let (n, p) = (count(first), period(first));
    let (m, q) = (count(second), period(second));
    // The longest stretch of time whose requests the first rate counts, and the most requests that the second rate
    // admits in it.
    let stretch = match &first.rule {
        Rule::Concurrency(_) => return false,
        Rule::TokenBucket(_) | Rule::LeakyBucket(_) => {
            return m * p <= n * q && second.rule.most() <= first.rule.most();
        }
        Rule::SlidingWindow(rule) => p + p / u128::from(rule.parts),
        Rule::FixedWindow(_) | Rule::ClockWindow(_) | Rule::SlidingLog(_) => p,
    };
    let through = match (&first.rule, &second.rule) {
        (Rule::ClockWindow(first), Rule::ClockWindow(second)) if nested(first, second) => {
            m * p.div_ceil(q)
        }
        (_, Rule::FixedWindow(_) | Rule::ClockWindow(_)) => m * (stretch.div_ceil(q) + 1),
        (_, Rule::SlidingWindow(rule)) if !rule.strict => 2 * m * stretch.div_ceil(q),
        _ => m * stretch.div_ceil(q),
    };
    through <= n
}

/// Does every window of either lie inside a window of the other, or consist of several?
fn nested(first: &ClockWindow, second: &ClockWindow) -> bool {
    let clock = |window: &ClockWindow| match window.anchor {
        Anchor::Clock { window, offset } => Some((window, offset)),
        _ => None,
    };
    let (Some((a, x)), Some((b, y))) = (clock(first), clock(second)) else {
        return false;
    };
    x == y && (a.is_multiple_of(b) || b.is_multiple_of(a))
}
