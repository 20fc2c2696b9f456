//! `cost` of a limit and of its tiers.

use super::super::Setting;
use super::super::fields::Fields;
use super::super::form::{Form, count, custom, inner_table, number, text, whole, word};
use super::super::table::table;
use super::super::words::words;

use crate::config::diagnostic::{Code, Details as _};
use crate::config::value::{field, members};
use crate::config::vocabulary::{Table, ValueShape};
use crate::key::{MeterPlace as CostPlace, OnLeave};
use http::HeaderName;
use toml::Spanned;
use toml::de::DeValue;

table! {
    /// A cost that a field of the request gives.
    RequestCost = LIMIT_COST, "limits", "a cost";

    /// The field that gives the cost.
    header: HeaderName = text(field), Required, "\"x-cost\"";

    /// The cost of a request without the field.
    default: u32 = count(), Value("1"), "1";

    /// The most that a request costs.
    max: u32 = count(), Required, "50";

    /// The least that a request costs; 0 lets requests ask without taking.
    min: u32 = number(0, 1), Value("1"), "0";
}

table! {
    /// A cost that the response gives.
    ResponseCost = LIMIT_COST_LATER, "limits", "a cost that the response says";

    /// The field of the response that gives the cost.
    response_header: CostPlace = text(|text| field(text).map(CostPlace::Header)), Unless(&["response_json"]), "\"x-units\"";

    /// The member of the JSON body that gives the cost.
    response_json: CostPlace = text(|text| members(text).map(CostPlace::Json)), Words("none"), "\"usage.total_tokens\"";

    /// The charge before the response. The charge stays where the response gives no number.
    estimate: u32 = count(), Value("1"), "100";

    /// The most that a request costs.
    max: u32 = count(), Words("whatever the response says"), "5000";

    /// The cost of a request whose client leaves after the body began and before the number came. The cost is `max`
    /// (all that the limit holds, without a `max`), or the estimate.
    on_leave: OnLeave = word(), Value("\"max\""), "\"estimate\"";
}

words! { OnLeave: Max "max", Estimate "estimate" }

/// The cost of a request.
#[derive(Debug, Clone)]
pub(in crate::config) enum CostSource {
    Fixed(u32),
    /// A number in a field of the request.
    Request(RequestCost),
    /// A number in the response.
    Response(ResponseCost),
}

/// A number, or where a request or a response has it.
pub(super) fn cost_form() -> impl Form<CostSource> {
    static TABLES: [&Table; 2] = [&LIMIT_COST, &LIMIT_COST_LATER];
    custom(ValueShape::Cost(&TABLES), cost)
}

fn cost(key: &'static str, fields: &mut Fields<'_>) -> Setting<CostSource> {
    let of_response = ["response_header", "response_json", "estimate", "on_leave"];
    match fields.value(key).map(Spanned::get_ref) {
        Some(DeValue::Table(table)) if of_response.iter().any(|key| table.contains_key(*key)) => {
            let cost = inner_table(in_one_place).read(key, fields);
            cost.map(CostSource::Response)
        }
        Some(DeValue::Table(_)) => inner_table(whole)
            .read(key, fields)
            .map(CostSource::Request),
        _ => count().read(key, fields).map(CostSource::Fixed),
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
    read.place()?;
    whole(read, fields)
}

impl ResponseCost {
    /// The place of the cost in the response.
    pub(in crate::config) fn place(&self) -> Option<&CostPlace> {
        self.response_header.get().or(self.response_json.get())
    }
}
