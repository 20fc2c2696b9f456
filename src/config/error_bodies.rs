//! The bodies of the gateway's own answers: `[response] body`, and the file that it may name.

use super::diagnostic::{Code, Diagnostic};
use super::document::{Document, Setting};
use super::files::Files;
use super::grant::refusal::unread;
use super::source::{At, Source};
use super::value::ErrorText;
use crate::snapshot::errors::{ErrorBody, ErrorFormats, Page};
use std::sync::Arc;

/// The largest body: it is sent with every refusal.
const MOST: u64 = 64 * 1024;

/// Reads the bodies of errors, and those of limits that have their own; `files` gets the files.
pub(super) fn read(
    document: &Document,
    source: &Source,
    files: &mut Files,
    found: &mut Vec<Diagnostic>,
) -> ErrorFormats {
    let mut body = |written: &Setting<ErrorText>| {
        let at = written.at()?;
        Some(one(at, source, files, found))
    };
    let everywhere = body(&document.response.body).unwrap_or_default();
    let of_limits = document.limits.iter().filter_map(|limit| {
        let name = limit.name.value.as_str();
        Some((Arc::from(name), body(&limit.body)?))
    });
    ErrorFormats {
        of_limits: of_limits.collect(),
        everywhere,
    }
}

fn one(
    at: &At<ErrorText>,
    source: &Source,
    files: &mut Files,
    found: &mut Vec<Diagnostic>,
) -> ErrorBody {
    let name = match &at.value {
        ErrorText::Problem => return ErrorBody::Problem,
        ErrorText::Text => return ErrorBody::Text,
        ErrorText::Html => return ErrorBody::Html,
        ErrorText::Accept => return ErrorBody::ByAccept,
        ErrorText::File(name) => name,
    };
    let read = source
        .read(at.span.start, name, MOST, files)
        .map_err(|error| error.to_string())
        .and_then(|bytes| String::from_utf8(bytes).map_err(|_| "it is not UTF-8".into()));
    match read.map(|text| Page::read(name, &text)) {
        Ok(Some(page)) => ErrorBody::File(page),
        Ok(None) => ErrorBody::Problem,
        Err(error) => {
            let message = format!("no body in file {name}: {error}");
            let unreadable = || {
                Diagnostic::error(Code::Unreadable, message).at(&at.span, "the file with the body")
            };
            found.push(unread(source, &at.span, name).unwrap_or_else(unreadable));
            ErrorBody::Problem
        }
    }
}
