//! Conditions of a route: names and values that the fields and parameters of a request can have.

use super::key::{field_name, name_fault};
use crate::config::value::{Code, ValueError, quoted};
use http::{HeaderName, HeaderValue, header};
use std::sync::Arc;

/// The name of a field for a condition of a route.
pub(in crate::config) fn condition_field(text: &str) -> Result<HeaderName, ValueError> {
    let wrong = |label: &str| {
        ValueError::new(
            Code::BadCondition,
            format!("no route can ask for the field {}", quoted(text)),
            label,
        )
    };
    let name = field_name(text).ok_or_else(|| wrong(name_fault(text)))?;
    let is_of_proxies =
        |name: &str| name.starts_with("x-forwarded-") || matches!(name, "forwarded" | "x-real-ip");
    match name.as_str() {
        _ if name == header::HOST => Err(wrong("HTTP/2 requests have no `host` field")
            .help("write it beside the path: `host = \"api.example.com\"`")),
        "x-forwarded-proto" => Err(wrong("any client can write this field")
            .help("write `scheme = \"https\"`, which only a trusted proxy can state")),
        name if is_of_proxies(name) => Err(wrong(
            "any client can write this field, so routes do not read it",
        )
        .help("limits that count by `ip` read it where `trust` allows that")),
        name if name.contains('_') => {
            let joint = name.replace('_', "-");
            Err(
                wrong("fields with `_` in their names are dropped from requests")
                    .help(format!("write `{joint}`")),
            )
        }
        _ => Ok(name),
    }
}

/// The value that a condition requires of a field.
pub(in crate::config) fn condition_value(text: &str) -> Result<HeaderValue, ValueError> {
    let wrong = |label: &str| {
        ValueError::new(
            Code::BadCondition,
            format!("no field has the value {}", quoted(text)),
            label,
        )
    };
    if text.trim_ascii() != text {
        return Err(wrong("blanks around a value are no part of it"));
    }
    HeaderValue::from_bytes(text.as_bytes())
        .map_err(|_| wrong("a value has no line breaks and no control characters"))
}

/// The name or the value of a parameter of the query, decoded.
#[expect(clippy::unnecessary_wraps, reason = "the readers have one shape")]
pub(in crate::config) fn condition_parameter(text: &str) -> Result<Arc<str>, ValueError> {
    Ok(text.into())
}
