//! `redirect` and `respond` of a route as written: what is answered without an upstream.

use super::super::diagnostic::{Code, Diagnostic};
use super::super::source::{At, Span};
use super::super::value::{Direction, destination, field_value};
use super::super::vocabulary::{ROUTE_REDIRECT, ROUTE_RESPOND};
use super::Setting;
use super::fields::Fields;
use http::{HeaderValue, StatusCode};
use toml::de::DeValue;

/// `redirect`.
#[derive(Debug)]
pub(in crate::config) struct Redirect {
    /// Scheme and host, or nothing, and the path, written as a pattern is.
    pub(in crate::config) to: At<(String, String)>,
    pub(in crate::config) status: StatusCode,
}

/// `respond`.
#[derive(Debug)]
pub(in crate::config) struct Respond {
    pub(in crate::config) status: StatusCode,
    pub(in crate::config) body: String,
    pub(in crate::config) content_type: Option<HeaderValue>,
}

/// The statuses that lead elsewhere and keep to it.
const REDIRECTS: [u32; 5] = [301, 302, 303, 307, 308];

pub(super) fn redirect(route: &str, fields: &mut Fields<'_>) -> Setting<Redirect> {
    let Some((value, whole)) = fields.value("redirect") else {
        return Setting::Absent;
    };
    let DeValue::Table(table) = value else {
        return fields.wrong_type("redirect", value, &whole);
    };
    let name = format!("{route}.redirect");
    let read = |mut inner: Fields<'_>| {
        let to = inner.text("to", destination);
        let status = inner.whole("status");
        let wrong = status.at().filter(|at| !REDIRECTS.contains(&at.value));
        if let Some(at) = wrong {
            let diagnostic = Diagnostic::error(
                Code::BadNumber,
                format!("{} in `{}` leads nowhere", at.value, inner.title()),
            )
            .at(&at.span, "must be 301, 302, 303, 307 or 308")
            .help("308 for good, 307 for now: both keep the method");
            inner.note(diagnostic);
            return None;
        }
        let Setting::Valid(to) = to else { return None };
        let status = code(&status, StatusCode::PERMANENT_REDIRECT)?;
        Some(Redirect { to, status })
    };
    match fields.inner(&ROUTE_REDIRECT, &name, (table, whole.clone()), read) {
        Some(redirect) => Setting::Valid(At::new(redirect, whole)),
        None => Setting::Invalid,
    }
}

pub(super) fn respond(route: &str, fields: &mut Fields<'_>) -> Setting<Respond> {
    let Some((value, whole)) = fields.value("respond") else {
        return Setting::Absent;
    };
    let DeValue::Table(table) = value else {
        return fields.wrong_type("respond", value, &whole);
    };
    let name = format!("{route}.respond");
    let read = |mut inner: Fields<'_>| {
        let status = inner.whole("status");
        let body = inner.text("body", |text| Ok(text.to_owned()));
        let kind = inner.text("content_type", |text| {
            field_value(Direction::Response, "content-type", text)
        });
        if body.is_bad() || kind.is_bad() {
            return None;
        }
        let answered = code(&status, StatusCode::OK)?;
        let is_bare = matches!(answered.as_u16(), 204 | 205 | 304);
        if let Some(body) = body.at().filter(|at| is_bare && !at.value.is_empty()) {
            inner.note(bare(inner.title(), answered, &body.span));
            return None;
        }
        Some(Respond {
            status: answered,
            content_type: kind.get().cloned(),
            body: body.get().cloned().unwrap_or_default(),
        })
    };
    match fields.inner(&ROUTE_RESPOND, &name, (table, whole.clone()), read) {
        Some(respond) => Setting::Valid(At::new(respond, whole)),
        None => Setting::Invalid,
    }
}

/// RFC 9110, sections 15.3.5, 15.3.6 and 15.4.5.
fn bare(title: &str, status: StatusCode, body: &Span) -> Diagnostic {
    Diagnostic::error(
        Code::Conflict,
        format!("`{title}` has a body, and {} has none", status.as_u16()),
    )
    .at(body, "nobody would get it")
    .help("leave the body out, or answer with 200")
}

/// What is written, within its range, or else `default`.
fn code(status: &Setting<u32>, default: StatusCode) -> Option<StatusCode> {
    match status {
        Setting::Absent => Some(default),
        Setting::Valid(at) => u16::try_from(at.value)
            .ok()
            .and_then(|code| StatusCode::from_u16(code).ok()),
        Setting::Invalid | Setting::Partial(_) => None,
    }
}
