//! `redirect` and `respond` of a route: responses without an upstream.

use super::super::diagnostic::{Code, Diagnostic};
use super::super::source::{At, Span};
use super::super::value::{Direction, ValueError, destination, field_value};
use super::super::vocabulary::ValueShape;
use super::Setting;
use super::fields::Fields;
use super::form::{Custom, PlainText, TextAs, Whole, any};
use super::table::table;
use http::{HeaderValue, StatusCode};

table! {
    /// A redirect.
    RedirectTable = ROUTE_REDIRECT, "routes", "a redirect";

    /// Where it leads.
    to: (String, String) = TextAs(ValueShape::Destination, destination), Required, "\"https://new.example.com/{*rest}\"";

    /// The status that says so.
    status: u32 = Custom(ValueShape::Numbers(&REDIRECTS), |key, fields| fields.whole(key, 301..=308)), Value("308"), "307";
}

table! {
    /// An answer.
    RespondTable = ROUTE_RESPOND, "routes", "an answer";

    /// Its status.
    status: u32 = Whole(200, 599), Value("200"), "410";

    /// Its body.
    body: String = PlainText(any), Value("\"\""), "\"gone\"";

    /// What its body is.
    content_type: HeaderValue = PlainText(content_type), Value("\"text/plain; charset=utf-8\""), "\"application/json\"";
}

/// `redirect`.
#[derive(Debug, Clone)]
pub(in crate::config) struct Redirect {
    /// Scheme and host, or nothing, and the path, written as a pattern is.
    pub(in crate::config) to: At<(String, String)>,
    pub(in crate::config) status: StatusCode,
}

/// `respond`.
#[derive(Debug, Clone)]
pub(in crate::config) struct Respond {
    pub(in crate::config) status: StatusCode,
    pub(in crate::config) body: String,
    pub(in crate::config) content_type: Option<HeaderValue>,
}

/// The statuses that lead elsewhere and keep to it.
const REDIRECTS: [u32; 5] = [301, 302, 303, 307, 308];

pub(super) fn redirect(read: RedirectTable, fields: &mut Fields<'_>) -> Option<Redirect> {
    let wrong = read.status.at().filter(|at| !REDIRECTS.contains(&at.value));
    if let Some(at) = wrong {
        let diagnostic = Diagnostic::error(
            Code::BadNumber,
            format!("{} in `{}` leads nowhere", at.value, fields.title()),
        )
        .at(&at.span, "must be 301, 302, 303, 307 or 308")
        .help("308 for good, 307 for now: both keep the method");
        fields.note(diagnostic);
        return None;
    }
    Some(Redirect {
        to: read.to.at()?.clone(),
        status: code(&read.status, read.status())?,
    })
}

pub(super) fn respond(read: RespondTable, fields: &mut Fields<'_>) -> Option<Respond> {
    if read.body.is_bad() || read.content_type.is_bad() {
        return None;
    }
    let status = code(&read.status, read.status())?;
    let has_no_body = matches!(status.as_u16(), 204 | 205 | 304);
    if let Some(body) = read
        .body
        .at()
        .filter(|at| has_no_body && !at.value.is_empty())
    {
        fields.note(needless_body(fields.title(), status, &body.span));
        return None;
    }
    Some(Respond {
        status,
        content_type: read.content_type.get().cloned(),
        body: read.body(),
    })
}

/// RFC 9110, sections 15.3.5, 15.3.6 and 15.4.5.
fn needless_body(title: &str, status: StatusCode, body: &Span) -> Diagnostic {
    Diagnostic::error(
        Code::Conflict,
        format!("`{title}` has a body, and {} has none", status.as_u16()),
    )
    .at(body, "no client would get it")
    .help("leave the body out, or answer with 200")
}

/// The status that is written, or the default.
fn code(written: &Setting<u32>, status: u32) -> Option<StatusCode> {
    let status = u16::try_from(status).ok().filter(|_| !written.is_bad())?;
    StatusCode::from_u16(status).ok()
}

fn content_type(text: &str) -> Result<HeaderValue, ValueError> {
    field_value(Direction::Response, "content-type", text)
}
