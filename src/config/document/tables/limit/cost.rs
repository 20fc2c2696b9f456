//! `cost` of a limit and of its tiers.

use super::cost_by_status::{LIMIT_COST_BY_STATUS, StatusCost};
use super::response_json::members_form;
use crate::config::document::{
    Fields, Form, Setting, Table, ValueShape, custom, inner_table, number, table, text_form, units,
    whole, word, words,
};

use crate::config::input::Span;
use crate::config::report::{Code, Details as _, nearest};
use crate::config::value::{field, quoted};
use crate::key::{JsonCost, MeterPlace as CostPlace, OnLeave, OnSilent};
use http::HeaderName;
use std::sync::Arc;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

table! {
    /// A cost that a field of the request gives.
    RequestCost = LIMIT_COST, "limits", "a cost";

    /// The field that gives the cost.
    header: HeaderName = text_form(field), Required, "\"x-cost\"";

    /// The cost of a request without the field.
    default: u64 = units(), Value("1"), "1";

    /// The most that a request costs.
    max: u64 = units(), Required, "50";

    /// The least that a request costs; 0 lets requests ask without taking.
    min: u32 = number(0, 1), Value("1"), "0";
}

table! {
    /// A cost that the response gives.
    ResponseCost = LIMIT_COST_LATER, "limits", "a cost that the response says";

    /// The field of the response that gives the cost.
    response_header: HeaderName = text_form(field), Unless(&["response_json"]), "\"x-units\"";

    /// The members of the JSON body that give the cost: one, a list whose numbers are added, or a table with a weight
    /// for each (`{ "usage.input_tokens" = 1, "usage.output_tokens" = 5 }`; from -1000 to 1000, with three decimals at
    /// most). A member may have several places, as `"usage.total|message.usage.total"`; the first with a number counts.
    /// Each is taken where it was last in the answer: an object, the lines or the events of a stream, the elements of
    /// an array. The sum is rounded up, and is at least 0. `null` says nothing.
    response_json: Arc<JsonCost> = members_form(), Words("none"), "\"usage.total_tokens\"";

    /// The charge before the response. The charge stays where the response gives no number.
    estimate: u64 = units(), Value("1"), "100";

    /// The most that a request costs.
    max: u64 = units(), Words("whatever the response says"), "5000";

    /// The cost of a request whose client leaves after the body began and before the number came. The cost is `max`
    /// (the whole size of the limit, without a `max`), or the estimate.
    on_leave: OnLeave = word(), Value("\"max\""), "\"estimate\"";

    /// The cost of a request whose successful answer (2xx) has a body, ends and gives no number, or cannot be read. The
    /// cost is `max`, which must be written, or the estimate. Answers with other statuses keep the estimate.
    on_silent: OnSilent = word(), Value("\"estimate\""), "\"max\"";
}

words! { OnLeave: Max "max", Estimate "estimate" }
words! { OnSilent: Max "max", Estimate "estimate" }

/// The cost of a request.
#[derive(Debug, Clone)]
pub(in crate::config) enum CostSource {
    Fixed(u64),
    /// A number in a field of the request.
    Request(RequestCost),
    /// A number in the response.
    Response(ResponseCost),
    /// The status of the response.
    Status(StatusCost),
}

/// A number, or a table with the place of the number in a request or a response.
pub(super) fn cost_form() -> impl Form<CostSource> {
    static TABLES: [&Table; 3] = [&LIMIT_COST, &LIMIT_COST_LATER, &LIMIT_COST_BY_STATUS];
    custom(ValueShape::Cost(&TABLES), cost)
}

fn cost(key: &'static str, fields: &mut Fields<'_>) -> Setting<CostSource> {
    let value = fields.value(key);
    let Some(DeValue::Table(table)) = value.map(Spanned::get_ref) else {
        return units().read(key, fields).map(CostSource::Fixed);
    };
    match Saying::of(table).filter(|_| names_a_place(table)) {
        Some(Saying::Response) => {
            let cost = inner_table(in_one_place).read(key, fields);
            cost.map(CostSource::Response)
        }
        Some(Saying::Status) => {
            let cost = inner_table(whole).read(key, fields);
            cost.map(CostSource::Status)
        }
        Some(Saying::Request) => {
            let cost = inner_table(whole).read(key, fields);
            cost.map(CostSource::Request)
        }
        None => {
            let place = value.map(Spanned::span).unwrap_or_default();
            nowhere(key, table, &place, fields);
            Setting::Invalid
        }
    }
}

/// Does a key of the table, possibly misspelt, name the place of the cost?
fn names_a_place(table: &DeTable<'_>) -> bool {
    let places = ["header", "response_header", "response_json", "status"];
    let mut keys = table.keys();
    keys.any(|key| {
        let all = Saying::keys();
        nearest(key.get_ref(), all).is_some_and(|key| places.contains(&key))
    })
}

/// The message that states a cost.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Saying {
    Request,
    Response,
    Status,
}

impl Saying {
    const REQUEST: [&str; 3] = ["header", "default", "min"];
    const RESPONSE: [&str; 5] = [
        "response_header",
        "response_json",
        "estimate",
        "on_leave",
        "on_silent",
    ];
    const STATUS: [&str; 1] = ["status"];

    /// The keys of all costs.
    fn keys() -> impl Iterator<Item = &'static str> {
        let all = Self::RESPONSE.into_iter().chain(Self::REQUEST);
        all.chain(Self::STATUS).chain(["max"])
    }

    /// The message that a table is about, decided by the keys that only one kind of message has, including misspelt
    /// keys.
    fn of(table: &DeTable<'_>) -> Option<Self> {
        let meant = table.keys();
        let meant = meant.filter_map(|key| nearest(key.get_ref(), Self::keys()));
        let meant: Vec<&str> = meant.collect();
        if meant.iter().any(|key| Self::STATUS.contains(key)) {
            Some(Self::Status)
        } else if meant.iter().any(|key| Self::RESPONSE.contains(key)) {
            Some(Self::Response)
        } else if meant.iter().any(|key| Self::REQUEST.contains(key)) {
            Some(Self::Request)
        } else {
            None
        }
    }
}

/// Notes a table that does not name the place of a cost.
fn nowhere(key: &str, table: &DeTable<'_>, place: &Span, fields: &mut Fields<'_>) {
    const HELP: &str = "a cost is a number, or has one of `header`, `response_header`, `response_json` and `status`: `cost = { header = \"x-cost\", max = 50 }`, `cost = { response_header = \"x-units\" }`, `cost = { status = { \"401\" = 1 } }`";
    let title = format!("{}.{key}]", fields.title().trim_end_matches(']'));
    let is_known = |key: &str| Saying::keys().any(|known| known == key);
    let unknown: Vec<_> = table
        .keys()
        .filter(|key| !is_known(key.get_ref()))
        .collect();
    for key in &unknown {
        let message = format!("unknown key {} in `{title}`", quoted(key.get_ref()));
        fields
            .error(Code::UnknownKey, message)
            .at(&key.span(), "not a setting of a cost")
            .help(HELP);
    }
    if unknown.is_empty() {
        let message = format!("`{title}` does not say where the cost is");
        fields
            .error(Code::MissingKey, message)
            .at(place, "")
            .help(HELP);
    }
}

fn in_one_place(read: ResponseCost, fields: &mut Fields<'_>) -> Option<ResponseCost> {
    if let (Some(header), Some(json)) = (read.response_header.at(), read.response_json.at()) {
        let message = format!("`{}` reads the cost from two places", fields.title());
        fields
            .error(Code::Conflict, message)
            .at(&json.span, "from the body")
            .and(&header.span, "and from a field")
            .help("leave one of them out");
        return None;
    }
    if let Some(silent) = read.on_silent.at()
        && silent.value == OnSilent::Max
        && read.max.is_absent()
    {
        let message = format!(
            "`{}` charges `max` for silence, and has no `max`",
            fields.title()
        );
        fields
            .error(Code::MissingKey, message)
            .at(&silent.span, "how much is that?")
            .help("add `max`, the most that one answer costs: `max = 20000`");
        return None;
    }
    read.place()?;
    whole(read, fields)
}

impl ResponseCost {
    /// The place of the cost in the response.
    pub(in crate::config) fn place(&self) -> Option<CostPlace> {
        let header = self.response_header.get().cloned();
        let json = self.response_json.get().cloned();
        header.map(CostPlace::Header).or(json.map(CostPlace::Json))
    }
}
