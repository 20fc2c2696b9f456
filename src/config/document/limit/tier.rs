//! `tiers` of a limit: what of it is other for groups.

use super::super::fields::{Fields, Zero, describe};
use super::super::form::{COUNT, Time};
use super::super::table::{Section as _, table};
use super::super::{Items, List, Setting};
use super::cost::{COST, CostSource};
use super::rate::{RATE, RateEntry};
use crate::config::diagnostic::{Code, Diagnostic};
use crate::config::source::At;
use crate::config::value::quoted;
use std::time::Duration;
use toml::de::DeValue;

table! {
    /// What of a limit is other for a group.
    Tier { name } = LIMIT_TIER, "limits", "a tier";

    /// How much in how long; a list where the limit has a list, of as many.
    rate: Items<RateEntry> = RATE, Words("the limit's"), "\"1000/min\"";

    /// How many may arrive at once.
    burst: u32 = COUNT, Words("the limit's"), "200";

    /// How many may be in flight at once.
    max: u32 = COUNT, Words("the limit's"), "50";

    /// How many may wait.
    queue: u32 = COUNT, Words("the limit's"), "100";

    /// Longest that one waits.
    max_wait: Duration = Time(Zero::Allowed), Words("the limit's"), "\"10s\"";

    /// What one request takes.
    cost: CostSource = COST, Words("the limit's"), "2";
}

/// Tables by the names of groups.
pub(super) fn tiers(key: &'static str, fields: &mut Fields<'_>) -> List<Tier> {
    let Some((value, whole)) = fields.value(key) else {
        return Setting::Absent;
    };
    let DeValue::Table(table) = value else {
        return fields.wrong_type(key, value, &whole);
    };
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
    let mut tiers = Vec::new();
    for (group, value) in table {
        let group = At::new(group.get_ref().to_string(), group.span());
        let span = value.span();
        let DeValue::Table(table) = value.get_ref() else {
            let title = fields.title();
            let message = format!(
                "the tier of {} in `{title}` is a table, not {}",
                quoted(&group.value),
                describe(value.get_ref())
            );
            fields.note(
                Diagnostic::error(Code::WrongType, message)
                    .at(&span, "")
                    .help(format!(
                        "write `tiers.{} = {{ rate = \"1000/min\" }}`",
                        group.value.escape_debug()
                    )),
            );
            continue;
        };
        let path = format!("{key}.{}", group.value);
        let read = fields.inner(&LIMIT_TIER, &path, group, table, tier);
        tiers.extend(read.map(|tier| At::new(tier, span)));
    }
    let good = !table.is_empty() && tiers.len() == table.len();
    let tiers = At::new(tiers, whole);
    if good {
        Setting::Valid(tiers)
    } else {
        Setting::Partial(tiers)
    }
}

fn tier(fields: &mut Fields<'_>) -> Option<Tier> {
    let tier = Tier::read(fields);
    if fields.is_empty() {
        let message = format!("`{}` changes nothing", fields.title());
        fields.note(
            Diagnostic::error(Code::EmptyList, message)
                .at(
                    &tier.name.span,
                    "at least one of `rate`, `burst`, `max`, `queue`, `max_wait` and `cost`",
                )
                .help("leave the tier out: the group has the limit's own numbers"),
        );
        return None;
    }
    (!tier.is_bad()).then_some(tier)
}
