//! `[limits.NAME.tiers]` as written: what of a limit is other for groups.

use super::super::diagnostic::{Code, Diagnostic};
use super::super::source::At;
use super::super::value::quoted;
use super::super::vocabulary::LIMIT_TIER;
use super::fields::{Fields, Zero, describe};
use super::limit::{CostSource, RateEntry, rates, read_cost};
use super::{List, Setting};
use std::time::Duration;
use toml::de::DeValue;

/// What of a limit is other for a group.
#[derive(Debug, Clone)]
pub(in crate::config) struct Tier {
    pub(in crate::config) group: At<String>,
    pub(in crate::config) rates: List<RateEntry>,
    pub(in crate::config) burst: Setting<u32>,
    pub(in crate::config) max: Setting<u32>,
    pub(in crate::config) queue: Setting<u32>,
    pub(in crate::config) max_wait: Setting<Duration>,
    pub(in crate::config) cost: Setting<CostSource>,
}

/// Tables by the names of groups.
pub(super) fn tiers(limit: &str, fields: &mut Fields<'_>) -> List<Tier> {
    let Some((value, whole)) = fields.value("tiers") else {
        return Setting::Absent;
    };
    let DeValue::Table(table) = value else {
        return fields.wrong_type("tiers", value, &whole);
    };
    let (mut tiers, mut good) = (Vec::new(), !table.is_empty());
    if table.is_empty() {
        let title = fields.title().to_owned();
        fields.note(
            Diagnostic::error(
                Code::EmptyList,
                format!("`tiers` in `{title}` names no group"),
            )
            .at(&whole, "at least one")
            .help("leave it out, or write `tiers.gold = { rate = \"1000/min\" }`"),
        );
    }
    for (group, value) in table {
        let group = At::new(group.get_ref().to_string(), group.span());
        let (value, span) = (value.get_ref(), value.span());
        let DeValue::Table(table) = value else {
            good = false;
            let diagnostic = Diagnostic::error(
                Code::WrongType,
                format!(
                    "the tier of {} in `{}` is a table, not {}",
                    quoted(&group.value),
                    fields.title(),
                    describe(value)
                ),
            );
            fields.note(diagnostic.at(&span, "").help(format!(
                "write `tiers.{} = {{ rate = \"1000/min\" }}`",
                group.value.escape_debug()
            )));
            continue;
        };
        let name = format!("{limit}.tiers.{}", group.value);
        let place = group.span.clone();
        let tier = fields.inner(&LIMIT_TIER, &name, (table, place), |inner| {
            tier(&name, group, inner)
        });
        match tier {
            Some(tier) => tiers.push(At::new(tier, span)),
            None => good = false,
        }
    }
    match good {
        true => Setting::Valid(At::new(tiers, whole)),
        false => Setting::Partial(At::new(tiers, whole)),
    }
}

fn tier(name: &str, group: At<String>, mut fields: Fields<'_>) -> Option<Tier> {
    let tier = Tier {
        rates: rates(name, &mut fields),
        burst: fields.whole("burst"),
        max: fields.whole("max"),
        queue: fields.whole("queue"),
        max_wait: fields.time("max_wait", Zero::Allowed),
        cost: read_cost(name, &mut fields),
        group,
    };
    if fields.is_empty() {
        let message = format!("`{}` changes nothing", fields.title());
        fields.note(
            Diagnostic::error(Code::EmptyList, message)
                .at(
                    &tier.group.span,
                    "at least one of `rate`, `burst`, `max`, `queue`, `max_wait` and `cost`",
                )
                .help("leave the tier out: the group has the limit's own numbers"),
        );
        return None;
    }
    let bad = [tier.burst.is_bad(), tier.max.is_bad(), tier.queue.is_bad()];
    let others = [
        tier.rates.is_bad(),
        tier.max_wait.is_bad(),
        tier.cost.is_bad(),
    ];
    (!bad.contains(&true) && !others.contains(&true)).then_some(tier)
}
