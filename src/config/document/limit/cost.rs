//! `cost` in `[limits.NAME]` as written.

use super::super::super::diagnostic::{Code, Diagnostic};
use super::super::super::source::{At, Span};
use super::super::super::value::{field, members};
use super::super::super::vocabulary::{LIMIT_COST, LIMIT_COST_LATER};
use super::super::Setting;
use super::super::fields::Fields;
use crate::key::{MeterPlace, OnLeave};
use http::HeaderName;
use toml::de::{DeTable, DeValue};

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
        place: At<MeterPlace>,
        estimate: Setting<u32>,
        max: Setting<u32>,
        on_leave: Setting<OnLeave>,
    },
}

/// A number, or where it is said.
pub(in crate::config) fn read(name: &str, fields: &mut Fields<'_>) -> Setting<CostSource> {
    let Some((value, whole)) = fields.value("cost") else {
        return Setting::Absent;
    };
    let DeValue::Table(table) = value else {
        return match fields.whole("cost") {
            Setting::Valid(units) => {
                Setting::Valid(At::new(CostSource::Fixed(units.value), units.span))
            }
            _ => Setting::Invalid,
        };
    };
    let name = format!("{name}.cost");
    let of_response = ["response_header", "response_json", "estimate", "on_leave"];
    let read = match of_response.iter().any(|key| table.contains_key(*key)) {
        true => later(&name, (table, whole.clone()), fields),
        false => fields.inner(&LIMIT_COST, &name, (table, whole.clone()), of_request),
    };
    match read {
        Some(cost) => Setting::Valid(At::new(cost, whole)),
        None => Setting::Invalid,
    }
}

fn of_request(mut inner: Fields<'_>) -> Option<CostSource> {
    let (header, max) = (inner.text("header", field), inner.whole("max"));
    let (default, min) = (inner.whole("default"), inner.whole("min"));
    let (Setting::Valid(header), Setting::Valid(max)) = (header, max) else {
        return None;
    };
    (!default.is_bad() && !min.is_bad()).then_some(CostSource::Field {
        header,
        default,
        max,
        min,
    })
}

fn later(name: &str, place: (&DeTable<'_>, Span), fields: &mut Fields<'_>) -> Option<CostSource> {
    fields.inner(&LIMIT_COST_LATER, name, place, |mut inner| {
        let header = inner.text("response_header", |text| {
            field(text).map(MeterPlace::Header)
        });
        let json = inner.text("response_json", |text| members(text).map(MeterPlace::Json));
        let (estimate, max) = (inner.whole("estimate"), inner.whole("max"));
        let on_leave = inner.choice(
            "on_leave",
            &[("max", OnLeave::Max), ("estimate", OnLeave::Estimate)],
            &[],
        );
        let place = match (header, json) {
            (Setting::Valid(header), Setting::Valid(json)) => {
                inner.note(
                    Diagnostic::error(
                        Code::Conflict,
                        format!("`{}` reads the cost from two places", inner.title()),
                    )
                    .at(&json.span, "from the body")
                    .and(&header.span, "and from a field")
                    .help("leave one of them out"),
                );
                return None;
            }
            (Setting::Valid(place), Setting::Absent) | (Setting::Absent, Setting::Valid(place)) => {
                place
            }
            _ => return None,
        };
        let is_bad = estimate.is_bad() || max.is_bad() || on_leave.is_bad();
        (!is_bad).then_some(CostSource::Later {
            place,
            estimate,
            max,
            on_leave,
        })
    })
}
