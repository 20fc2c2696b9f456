//! `redirect` and `respond` of a route: responses without an upstream.

use crate::config::document::{
    Fields, Setting, ValueShape, any, custom, table, text_as, text_form, whole,
};
use crate::config::report::{Code, Details as _};
use crate::config::value::{Direction, ValueError, destination, field_value};
use http::{HeaderValue, StatusCode};
use std::ops::RangeInclusive;

table! {
    /// A redirect.
    Redirect = ROUTE_REDIRECT, "routes", "a redirect";

    /// The destination.
    to: (String, String) = text_as(ValueShape::Destination, destination), Required, "\"https://new.example.com/{*rest}\"";

    /// The status of the redirect.
    status: StatusCode = custom(ValueShape::Numbers(&REDIRECTS), redirect_status), Value("308"), "307";
}

table! {
    /// An answer of the gateway's own.
    Respond = ROUTE_RESPOND, "routes", "an answer";

    /// The status of the answer.
    status: StatusCode = custom(ValueShape::Whole { least: 200, most: 599 }, |key, fields| status(key, 200..=599, fields)), Value("200"), "410";

    /// The body of the answer.
    body: String = text_form(any), Value("\"\""), "\"gone\"";

    /// The media type of the body.
    content_type: HeaderValue = text_form(content_type), Value("\"text/plain; charset=utf-8\""), "\"application/json\"";
}

/// The statuses of redirects.
const REDIRECTS: [u32; 5] = [301, 302, 303, 307, 308];

fn redirect_status(key: &'static str, fields: &mut Fields<'_>) -> Setting<StatusCode> {
    let status = status(key, 301..=308, fields);
    status.and_then(|status, span| {
        if REDIRECTS.contains(&u32::from(status.as_u16())) {
            return Some(status);
        }
        let message = format!("{} in `{}` leads nowhere", status.as_u16(), fields.title());
        fields
            .error(Code::BadNumber, message)
            .at(span, "must be 301, 302, 303, 307 or 308")
            .help("308 is permanent, 307 is temporary: both keep the method");
        None
    })
}

fn status(
    key: &'static str,
    range: RangeInclusive<u32>,
    fields: &mut Fields<'_>,
) -> Setting<StatusCode> {
    let status = fields.whole(key, range);
    status.and_then(|status, _| StatusCode::from_u16(u16::try_from(status).ok()?).ok())
}

/// A response whose status has no body (RFC 9110, sections 15.3.5, 15.3.6 and 15.4.5) cannot have a body in the file.
pub(in crate::config::document) fn respond(
    read: Respond,
    fields: &mut Fields<'_>,
) -> Option<Respond> {
    let read = whole(read, fields)?;
    let status = read.status().as_u16();
    let body = read.body.at().filter(|at| !at.value.is_empty());
    if let (204 | 205 | 304, Some(body)) = (status, body) {
        let message = format!("`{}` has a body, and {status} has none", fields.title());
        fields
            .error(Code::Conflict, message)
            .at(&body.span, "no client would get it")
            .help("leave the body out, or answer with 200");
        return None;
    }
    Some(read)
}

fn content_type(text: &str) -> Result<HeaderValue, ValueError> {
    field_value(Direction::Response, "content-type", text)
}
