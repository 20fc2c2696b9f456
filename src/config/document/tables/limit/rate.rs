//! `rate` of a limit, of its tiers and of its candidate.

use crate::config::document::{
    Emptiness, Fields, Form, Items, List, Setting, ValueShape, as_written, custom, entry_table,
    table, text_form, units,
};
use crate::config::input::At;
use crate::config::value::{Quota, rate, with_valid_offers};
use toml::Spanned;
use toml::de::DeValue;

table! {
    /// A rate in a list.
    RateTable = LIMIT_RATE, "limits", "a rate in a list";

    /// The requests that are allowed in a time.
    rate: Quota = text_form(rate), Required, "\"100/min\"";

    /// The number of requests that may arrive at once.
    burst: u64 = units(), Words("N of the rate; 1 for `leaky-bucket`"), "20";
}

/// One of a limit's rates.
#[derive(Debug, Clone)]
pub(in crate::config) struct RateEntry {
    pub(in crate::config) quota: At<Quota>,
    /// In a list, the burst of this rate alone.
    pub(in crate::config) burst: Setting<u64>,
}

/// One rate, or a list of rates, each of which may have its own burst.
pub(super) fn rate_form() -> impl Form<Items<RateEntry>> {
    custom(ValueShape::Rate(&LIMIT_RATE), rates)
}

/// The report on an empty list.
const NO_RATE: Emptiness = Emptiness {
    message: "names no rate",
    label: "at least one",
    help: "write one as `rate = \"100/min\"`",
};

fn rates(key: &'static str, fields: &mut Fields<'_>) -> List<RateEntry> {
    let is_list = matches!(
        fields.value(key).map(Spanned::get_ref),
        Some(DeValue::Array(_))
    );
    let rates = fields.items(key, |fields, item| match item.get_ref() {
        DeValue::String(text) => {
            let quota = fields.take(with_valid_offers(text, rate), &item.span())?;
            Some(RateEntry {
                quota: At::new(quota, item.span()),
                burst: Setting::Absent,
            })
        }
        DeValue::Table(table) if is_list => {
            let read: RateTable = entry_table(key, fields, table, item.span(), as_written)?;
            let quota = read.rate.at().filter(|_| !read.burst.is_bad())?.clone();
            let burst = read.burst;
            Some(RateEntry { quota, burst })
        }
        _ => fields.wrong_type(key, item),
    });
    // A limit without one of its rates would be a different limit.
    let rates = fields.filled(key, rates, &NO_RATE);
    rates.and_then(|rates, _| Some(rates))
}
