//! The rates of one limit beside each other: no two over the same time, and none for nothing.

use crate::config::diagnostic::{Code, Diagnostic};
use crate::config::document::Limit;
use crate::config::value::{quoted, show_quota};
use crate::limit::Rule;
use crate::limit::clock_window::Anchor;
use crate::limit::rate::Rate;

/// A rate with its rule.
type Rated<'a> = (Rate, &'a Rule);

/// Notes what is wrong with a list of rates.
pub(super) fn compare(written: &Limit, rules: &[Rule], found: &mut Vec<Diagnostic>) {
    let entries = written.rate.entries();
    let rated: Vec<Rated<'_>> = entries
        .iter()
        .zip(rules)
        .map(|(entry, rule)| (entry.value.quota.value.rate, rule))
        .collect();
    for (index, entry) in entries.iter().enumerate() {
        let same = |other: &Rated<'_>| other.0.period == rated[index].0.period;
        if let Some(first) = rated[..index].iter().position(same) {
            found.push(
                Diagnostic::error(
                    Code::Duplicate,
                    format!(
                        "limit `{}` has two rates over the same time",
                        written.name.value
                    ),
                )
                .at(&entry.span, "the second")
                .and(&entries[first].span, "the first")
                .help("keep the one that is meant"),
            );
            continue;
        }
        let stronger = (0..rated.len())
            .filter(|other| *other != index)
            .find(|other| implied(rated[index], rated[*other]));
        if let Some(stronger) = stronger {
            let shown = |at: usize| quoted(&show_quota(entries[at].value.quota.value));
            found.push(
                Diagnostic::warning(
                    Code::NeverBinds,
                    format!(
                        "limit `{}` never comes to its {}",
                        written.name.value,
                        shown(index)
                    ),
                )
                .at(&entry.span, "never binds")
                .and(
                    &entries[stronger].span,
                    format!("{} is always reached before", shown(stronger)),
                )
                .help("leave it out, or lower it"),
            );
        }
    }
}

/// Can the first never refuse what the second lets through?
fn implied(first: Rated<'_>, second: Rated<'_>) -> bool {
    let (
        Rate {
            count: n,
            period: p,
        },
        Rate {
            count: m,
            period: q,
        },
    ) = (first.0, second.0);
    let (n, p) = (u128::from(n.get()), u128::from(p.get()));
    let (m, q) = (u128::from(m.get()), u128::from(q.get()));
    // The longest stretch of time of which the first counts anything, and the most that the second lets through in it.
    let stretch = match first.1 {
        Rule::Concurrency(_) => return false,
        Rule::TokenBucket(_) | Rule::LeakyBucket(_) => {
            return m * p <= n * q && second.1.most() <= first.1.most();
        }
        Rule::SlidingWindow(rule) => p + p / u128::from(rule.parts),
        Rule::FixedWindow(_) | Rule::ClockWindow(_) | Rule::SlidingLog(_) => p,
    };
    let through = match (first.1, second.1) {
        (Rule::ClockWindow(first), Rule::ClockWindow(second)) if nested(first, second) => {
            m * p.div_ceil(q)
        }
        (_, Rule::FixedWindow(_) | Rule::ClockWindow(_)) => m * (stretch.div_ceil(q) + 1),
        (_, Rule::SlidingWindow(rule)) if !rule.strict => 2 * m * stretch.div_ceil(q),
        _ => m * stretch.div_ceil(q),
    };
    through <= n
}

/// Does every window of either lie inside one of the other's, or consist of some?
fn nested(
    first: &crate::limit::clock_window::ClockWindow,
    second: &crate::limit::clock_window::ClockWindow,
) -> bool {
    match (&first.anchor, &second.anchor) {
        (
            Anchor::Clock {
                window: a,
                offset: x,
            },
            Anchor::Clock {
                window: b,
                offset: y,
            },
        ) => x == y && (a.is_multiple_of(*b) || b.is_multiple_of(*a)),
        _ => false,
    }
}
