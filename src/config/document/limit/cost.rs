//! `cost` of a limit and of its tiers.

use super::super::Setting;
use super::super::fields::Fields;
use super::super::form::{COUNT, Custom, Form as _, InnerTable, PlainText, Whole, Word};
use super::super::table::{Section as _, table};
use super::super::words::words;
use crate::config::diagnostic::{Code, Diagnostic};
use crate::config::source::At;
use crate::config::value::{field, members};
use crate::config::vocabulary::ValueShape;
use crate::key::{MeterPlace as CostPlace, OnLeave};
use http::HeaderName;
use toml::de::DeValue;

table! {
    /// A cost that a request says.
    RequestCost = LIMIT_COST, "limits", "a cost";

    /// The field that says it.
    header: HeaderName = PlainText(field), Required, "\"x-cost\"";

    /// Without the field.
    default: u32 = COUNT, Value("1"), "1";

    /// The most that a request takes.
    max: u32 = COUNT, Required, "50";

    /// 0 lets requests ask without taking.
    min: u32 = Whole(0, 1), Value("1"), "0";
}

table! {
    /// A cost that a response says.
    ResponseCost = LIMIT_COST_LATER, "limits", "a cost that the response says";

    /// The field of the response that says it.
    response_header: CostPlace = PlainText(|text| field(text).map(CostPlace::Header)), Unless(&["response_json"]), "\"x-units\"";

    /// The member of the JSON body that says it.
    response_json: CostPlace = PlainText(|text| members(text).map(CostPlace::Json)), Words("none"), "\"usage.total_tokens\"";

    /// What is asked for before, and stays where the response says nothing.
    estimate: u32 = COUNT, Value("1"), "100";

    /// The most that a request takes.
    max: u32 = COUNT, Words("whatever the response says"), "5000";

    /// What a request takes whose client leaves after the body began and before the number came: `max` (without one all
    /// that the limit holds), or the estimate.
    on_leave: OnLeave = Word, Value("\"max\""), "\"estimate\"";
}

words! { OnLeave: Max "max", Estimate "estimate" }

/// What a request takes.
#[derive(Debug, Clone)]
pub(in crate::config) enum CostSource {
    Fixed(u32),
    /// What a field says.
    Field {
        header: At<HeaderName>,
        default: Setting<u32>,
        max: At<u32>,
        min: Setting<u32>,
    },
    /// What the response says.
    Later {
        place: At<CostPlace>,
        estimate: Setting<u32>,
        max: Setting<u32>,
        on_leave: Setting<OnLeave>,
    },
}

/// A number, or where a request or a response has it.
pub(super) const COST: Custom<CostSource> =
    Custom(ValueShape::Cost(&[&LIMIT_COST, &LIMIT_COST_LATER]), cost);

fn cost(key: &'static str, fields: &mut Fields<'_>) -> Setting<CostSource> {
    let of_response = ["response_header", "response_json", "estimate", "on_leave"];
    match fields.value(key) {
        Some((DeValue::Table(table), _))
            if of_response.iter().any(|key| table.contains_key(*key)) =>
        {
            InnerTable(later).read(key, fields)
        }
        Some((DeValue::Table(_), _)) => InnerTable(of_request).read(key, fields),
        _ => COUNT.read(key, fields).map(CostSource::Fixed),
    }
}

fn of_request(read: RequestCost, _: &mut Fields<'_>) -> Option<CostSource> {
    let (header, max) = (read.header.at()?.clone(), read.max.at()?.clone());
    (!read.is_bad()).then_some(CostSource::Field {
        header,
        max,
        default: read.default,
        min: read.min,
    })
}

fn later(read: ResponseCost, fields: &mut Fields<'_>) -> Option<CostSource> {
    let place = match (read.response_header.at(), read.response_json.at()) {
        (Some(header), Some(json)) => {
            fields.note(
                Diagnostic::error(
                    Code::Conflict,
                    format!("`{}` reads the cost from two places", fields.title()),
                )
                .at(&json.span, "from the body")
                .and(&header.span, "and from a field")
                .help("leave one of them out"),
            );
            return None;
        }
        (header, json) => header.or(json)?.clone(),
    };
    (!read.is_bad()).then_some(CostSource::Later {
        place,
        estimate: read.estimate,
        max: read.max,
        on_leave: read.on_leave,
    })
}
