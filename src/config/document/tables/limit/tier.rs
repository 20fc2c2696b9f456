//! `tiers` of a limit: its different numbers for groups.

use super::cost::{CostSource, cost_form};
use super::rate::{RateEntry, rate_form};
use crate::config::document::{
    Emptiness, Fields, Items, List, Section as _, Zero, count, describe, table, time, units, whole,
};
use crate::config::input::At;
use crate::config::report::{Code, Details as _};
use crate::config::value::quoted;
use std::time::Duration;
use toml::de::DeValue;

table! {
    /// The numbers of a limit that are other for a group.
    Tier { name } = LIMIT_TIER, "limits", "a tier";

    /// The requests that are allowed in a time. Where the limit has a list of rates, the tier has a list of as many.
    rate: Items<RateEntry> = rate_form(), Words("the limit's"), "\"1000/min\"";

    /// The number of requests that may arrive at once.
    burst: u64 = units(), Words("the limit's"), "200";

    /// The number of requests that may be in flight at once.
    max: u32 = count(), Words("the limit's"), "50";

    /// The number of requests that may wait.
    queue: u32 = count(), Words("the limit's"), "100";

    /// The longest wait of a request.
    max_wait: Duration = time(Zero::Allowed), Words("the limit's"), "\"10s\"";

    /// The cost of one request.
    cost: CostSource = cost_form(), Words("the limit's"), "2";
}

/// The report on a table without groups.
const NO_GROUP: Emptiness = Emptiness {
    message: "names no group",
    label: "at least one",
    help: "leave it out, or write `tiers.gold = { rate = \"1000/min\" }`",
};

/// Tables by the names of groups.
pub(super) fn tiers(key: &'static str, fields: &mut Fields<'_>) -> List<Tier> {
    let tiers = fields.named(key, |fields, group, value| {
        let DeValue::Table(table) = value.get_ref() else {
            let (name, title) = (quoted(&group.value), fields.title());
            let found = describe(value.get_ref());
            let message = format!("the tier of {name} in `{title}` is a table, not {found}");
            let name = group.value.escape_debug();
            fields
                .error(Code::WrongType, message)
                .at(&value.span(), "")
                .help(format!("write `tiers.{name} = {{ rate = \"1000/min\" }}`"));
            return None;
        };
        let path = format!("{key}.{}", group.value);
        let tier = fields.inner(&LIMIT_TIER, &path, group, table, tier)?;
        Some(At::new(tier, value.span()))
    });
    fields.filled(key, tiers, &NO_GROUP)
}

fn tier(fields: &mut Fields<'_>) -> Option<Tier> {
    let tier = Tier::read(fields);
    if fields.is_empty() {
        let message = format!("`{}` changes nothing", fields.title());
        let keys = "at least one of `rate`, `burst`, `max`, `queue`, `max_wait` and `cost`";
        fields
            .error(Code::EmptyList, message)
            .at(&tier.name.span, keys)
            .help("leave the tier out: the group has the limit's own numbers");
        return None;
    }
    whole(tier, fields)
}
