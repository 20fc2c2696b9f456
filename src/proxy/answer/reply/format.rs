//! The forms of the gateway's own answers, and the choice of the form that a client prefers.

use crate::admission::RefusalCause;
use crate::proxy::answer::fields;
use crate::proxy::answer::reply::{ProblemDetails, problem};
use crate::proxy::error::ProxyError;
use crate::snapshot::errors::{ErrorBody, PageValues, escape_markup};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header};

const PROBLEM: HeaderValue = HeaderValue::from_static("application/problem+json");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");

/// The form of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReplyFormat {
    /// The body is a problem document.
    #[default]
    Problem,
    /// The body is two lines of text.
    Text,
    /// The body is a page.
    Html,
}

impl ReplyFormat {
    /// The form of `body`, for a client that prefers `preferred`.
    pub(super) fn of(body: &ErrorBody, preferred: Self) -> Self {
        match body {
            ErrorBody::Problem | ErrorBody::File(_) => Self::Problem,
            ErrorBody::Text => Self::Text,
            ErrorBody::Html => Self::Html,
            ErrorBody::ByAccept => preferred,
        }
    }

    /// The form with the greatest weight in `Accept` (RFC 9110, section 12.5.1). Of several it is the problem document,
    /// since programs accept anything.
    #[must_use]
    pub fn preferred(fields: &HeaderMap) -> Self {
        let lines = fields.get_all(header::ACCEPT).into_iter();
        let ranges: Vec<AcceptRange<'_>> = lines
            .filter_map(|line| line.to_str().ok())
            .flat_map(|line| line.split(','))
            .filter_map(AcceptRange::read)
            .collect();
        if ranges.is_empty() {
            return Self::Problem;
        }
        let weight = |kinds: &[(&str, &str)]| {
            let weights = kinds.iter().map(|(kind, sub)| weight(&ranges, kind, sub));
            weights.max().unwrap_or(0)
        };
        let json = [("application", "problem+json"), ("application", "json")];
        // Of several such entries the last one applies.
        let forms = [
            (Self::Html, &[("text", "html")][..]),
            (Self::Text, &[("text", "plain")]),
            (Self::Problem, &json),
        ];
        let best = forms.into_iter().max_by_key(|(_, kinds)| weight(kinds));
        best.map_or(Self::Problem, |(form, _)| form)
    }
}

/// One entry of `Accept`.
struct AcceptRange<'a> {
    kind: &'a str,
    sub: &'a str,
    /// The weight in thousandths.
    weight: u32,
}

impl<'a> AcceptRange<'a> {
    fn read(text: &'a str) -> Option<Self> {
        let mut parts = text.split(';').map(str::trim);
        let (kind, sub) = parts.next()?.split_once('/')?;
        let q = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
        let weight = q.map_or(Some(1000), thousandths)?;
        Some(Self { kind, sub, weight })
    }

    /// How specifically does the range name a type? `None` if it does not.
    fn names(&self, kind: &str, sub: &str) -> Option<u8> {
        let same = self.kind.eq_ignore_ascii_case(kind);
        match (self.kind, self.sub) {
            ("*", "*") => Some(0),
            (_, "*") if same => Some(1),
            (_, of) if same && of.eq_ignore_ascii_case(sub) => Some(2),
            _ => None,
        }
    }
}

/// Reads `0`, `1`, or a number with at most three decimals between them.
fn thousandths(q: &str) -> Option<u32> {
    let (whole, decimals) = q.split_once('.').unwrap_or((q, ""));
    let is_weight = whole.len() == 1 && decimals.len() <= 3;
    let digits = format!("{whole}{decimals:0<3}");
    let weight: u32 = digits.parse().ok()?;
    (is_weight && weight <= 1000).then_some(weight)
}

/// The weight in the range that names the type most specifically.
fn weight(ranges: &[AcceptRange<'_>], kind: &str, sub: &str) -> u32 {
    let named = ranges
        .iter()
        .filter_map(|range| Some((range.names(kind, sub)?, range.weight)));
    named.max().map_or(0, |(_, weight)| weight)
}

/// The body, and its type.
pub(super) fn written(
    details: &ProblemDetails<'_, '_>,
    body: &ErrorBody,
    preferred: ReplyFormat,
) -> (HeaderValue, Bytes) {
    if let (ErrorBody::File(page), ProxyError::Refused(RefusalCause::Limited { .. })) =
        (body, details.error)
    {
        let limit = details.violated.named.map(|limit| &**limit.public_name());
        let filled = PageValues {
            status: details.error.status().as_u16(),
            limit: limit.unwrap_or_default(),
            retry_after: details.wait.map(fields::seconds),
            request_id: details.request_id.as_bytes(),
        };
        return (page.kind.clone(), Bytes::from(page.fill(&filled)));
    }
    match ReplyFormat::of(body, preferred) {
        ReplyFormat::Problem => (PROBLEM, problem::problem(details)),
        ReplyFormat::Text => (TEXT, Bytes::from(text_body(details))),
        ReplyFormat::Html => (HTML, Bytes::from(html(details))),
    }
}

fn text_body(details: &ProblemDetails<'_, '_>) -> Vec<u8> {
    let (title, detail) = (problem::title(details.error), problem::detail(details));
    let mut out = format!("{title}. {detail}\nRequest id: ").into_bytes();
    out.extend_from_slice(details.request_id.as_bytes());
    out.push(b'\n');
    out
}

fn html(details: &ProblemDetails<'_, '_>) -> Vec<u8> {
    let (status, title) = (
        details.error.status().as_u16(),
        problem::title(details.error),
    );
    let (detail, id) = (problem::detail(details), details.request_id.as_bytes());
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{status} {title}</title></head>\n\
         <body><h1>{title}</h1>\n<p>"
    )
    .into_bytes();
    escape_markup(detail.as_bytes(), &mut out);
    out.extend_from_slice(b"</p>\n<p><small>Request id: ");
    escape_markup(id, &mut out);
    out.extend_from_slice(b"</small></p></body></html>\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_is_the_one_that_is_accepted_most() {
        for (accept, form) in [
            ("*/*", ReplyFormat::Problem),
            (
                "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
                ReplyFormat::Html,
            ),
            ("text/html, application/json", ReplyFormat::Problem),
            ("text/plain", ReplyFormat::Text),
            ("text/*;q=0.5", ReplyFormat::Text),
            ("text/*;q=0.5, text/html", ReplyFormat::Html),
            (
                "application/json;q=0.2, text/plain;q=0.1",
                ReplyFormat::Problem,
            ),
            (
                "application/problem+json;q=0, text/html;q=0.001",
                ReplyFormat::Html,
            ),
            ("image/png", ReplyFormat::Problem),
            ("nonsense", ReplyFormat::Problem),
            ("text/html;q=x", ReplyFormat::Problem),
            ("text/html;q=0", ReplyFormat::Problem),
            ("TEXT/HTML ; q=1.0", ReplyFormat::Html),
        ] {
            let mut fields = HeaderMap::new();
            fields.insert(header::ACCEPT, HeaderValue::from_static(accept));
            assert_eq!(ReplyFormat::preferred(&fields), form, "{accept}");
        }
        assert_eq!(
            ReplyFormat::preferred(&HeaderMap::new()),
            ReplyFormat::Problem
        );
    }
}
