//! The bodies of the gateway's own answers: `[response] body`, and the file that it can name.

use crate::config::document::{Document, Setting};
use crate::config::input::{Reference, SideFiles};
use crate::config::value::ErrorText;
use crate::snapshot::errors::{ErrorBody, ErrorFormats, ErrorPage};
use std::sync::Arc;

/// The largest body: the body is sent with every refusal.
const MOST: u64 = 64 * 1024;

/// Reads the bodies of errors, and the bodies that limits set.
pub(in crate::config) fn read_error_bodies(
    document: &Document,
    side_files: &mut SideFiles<'_>,
) -> ErrorFormats {
    let everywhere = body(&document.response.body, side_files).unwrap_or_default();
    let of_limits = document.limits.iter().filter_map(|limit| {
        let name = limit.name.value.as_str();
        Some((Arc::from(name), body(&limit.body, side_files)?))
    });
    ErrorFormats {
        of_limits: of_limits.collect(),
        everywhere,
    }
}

fn body(written: &Setting<ErrorText>, side_files: &mut SideFiles<'_>) -> Option<ErrorBody> {
    let at = written.at()?;
    let name = match &at.value {
        ErrorText::Ready(body) => return Some(body.clone()),
        ErrorText::File(name) => name,
    };
    let reference = Reference {
        span: &at.span,
        failure: &format!("no body in file {name}"),
        label: "the file with the body",
    };
    let page = side_files
        .text(name, MOST, reference)
        .and_then(|text| ErrorPage::read(name, &text));
    Some(page.map_or(ErrorBody::Problem, ErrorBody::File))
}
