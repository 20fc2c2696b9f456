//! Compares the rates of one limit: no two rates have the same time, and every rate has an effect.

use super::rules::RatedRule;
use crate::config::document::Limit;
use crate::config::report::{Code, Details as _, Findings};
use crate::config::value::quoted;

/// Notes the mistakes in a list of rates.
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
            .find(|other| {
                let (one, other) = (&rated[index], &rated[*other]);
                one.rule.is_implied_by(one.rate, &other.rule, other.rate)
            });
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
