//! `rate` of a limit, of its tiers and of its candidate.

use super::super::fields::Fields;
use super::super::form::{COUNT, Custom, PlainText};
use super::super::table::{Section as _, table};
use super::super::{Items, List, Setting};
use crate::config::diagnostic::{Code, Diagnostic};
use crate::config::source::At;
use crate::config::value::{Quota, rate};
use crate::config::vocabulary::ValueShape;
use toml::de::DeValue;

table! {
    /// A rate in a list.
    RateTable = LIMIT_RATE, "limits", "a rate in a list";

    /// How much in how long.
    rate: Quota = PlainText(rate), Required, "\"100/min\"";

    /// How many may arrive at once.
    burst: u32 = COUNT, Words("N of the rate; 1 for `leaky-bucket`"), "20";
}

/// One of a limit's rates.
#[derive(Debug, Clone)]
pub(in crate::config) struct RateEntry {
    pub(in crate::config) quota: At<Quota>,
    /// Of this rate alone, in a list.
    pub(in crate::config) burst: Setting<u32>,
}

/// One rate, or a list of rates of which each may have a burst of its own.
pub(super) const RATE: Custom<Items<RateEntry>> = Custom(ValueShape::Rate(&LIMIT_RATE), rates);

fn rates(key: &'static str, fields: &mut Fields<'_>) -> List<RateEntry> {
    let is_list = matches!(fields.value(key), Some((DeValue::Array(_), _)));
    let rates = fields.items(key, |fields, item, span| match item {
        DeValue::String(text) => {
            let quota = fields.take(rate(text), span.clone());
            entry(&quota, Setting::Absent)
        }
        DeValue::Table(table) if is_list => {
            let name = At::new(key.to_owned(), span.clone());
            let read = fields.inner(&LIMIT_RATE, key, name, table, RateTable::read);
            entry(&read.rate, read.burst)
        }
        other => {
            fields.wrong_type::<()>(key, other, span);
            None
        }
    });
    match rates {
        Setting::Valid(at) if at.value.is_empty() => {
            fields.note(
                Diagnostic::error(
                    Code::EmptyList,
                    format!("`rate` in `{}` names no rate", fields.title()),
                )
                .at(&at.span, "at least one")
                .help("write one as `rate = \"100/min\"`"),
            );
            Setting::Invalid
        }
        Setting::Partial(_) => Setting::Invalid,
        rates => rates,
    }
}

fn entry(quota: &Setting<Quota>, burst: Setting<u32>) -> Option<RateEntry> {
    let quota = quota.at().filter(|_| !burst.is_bad())?.clone();
    Some(RateEntry { quota, burst })
}
