//! What a route asks of a request: names and values that requests can have.

use super::{Code, ValueError, quoted};
use http::{HeaderName, HeaderValue, header};
use std::sync::Arc;

/// The name of a field that a route may ask for.
pub(in crate::config) fn condition_field(text: &str) -> Result<HeaderName, ValueError> {
    let wrong = |label: &str| {
        ValueError::new(
            Code::BadCondition,
            format!("no route can ask for the field {}", quoted(text)),
            label,
        )
    };
    let name = HeaderName::from_bytes(text.as_bytes())
        .map_err(|_| wrong("a field name is letters, digits and `-`"))?;
    let is_of_proxies =
        |name: &str| name.starts_with("x-forwarded-") || matches!(name, "forwarded" | "x-real-ip");
    match name.as_str() {
        _ if name == header::HOST => Err(wrong("HTTP/2 requests have no `host` field")
            .help("write it beside the path: `host = \"api.example.com\"`")),
        "x-forwarded-proto" => Err(wrong("anybody can write it")
            .help("write `scheme = \"https\"`, for which a trusted proxy's word counts alone")),
        name if is_of_proxies(name) => Err(wrong("anybody can write it: it is not looked at")
            .help("limits that count by `ip` look at it where `trust` allows that")),
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

/// The value that a field is to have.
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
#[expect(clippy::unnecessary_wraps, reason = "read as the others are")]
pub(in crate::config) fn condition_parameter(text: &str) -> Result<Arc<str>, ValueError> {
    Ok(text.into())
}
