//! Refusals of included files, with the entry of `include` that would grant the refused access.

use super::Grant;
use crate::config::input::files::fence;
use crate::config::input::files::fence::Fence;
use crate::config::input::source::{Source, Span};
use crate::config::report::{Code, Details as _, Diagnostic};
use crate::config::value::quoted;
use std::path::Path;

impl Grant {
    /// The error of the included file at `span`, which must not do `what`, with the entry `instead` that would allow
    /// it.
    pub(in crate::config) fn refusal(
        &self,
        source: &Source,
        span: &Span,
        what: &str,
        instead: &str,
    ) -> Diagnostic {
        let message = format!("{} may not {what}", source.place(span.start));
        Diagnostic::error(Code::NotGranted, message)
            .at(span, "")
            .and(&self.span, "the entry of `include` that it comes from")
            .help(self.help(source, instead))
    }

    /// The help text that shows the entry to write.
    pub(in crate::config) fn help(&self, source: &Source, instead: &str) -> String {
        format!(
            "to allow it, write in {}, in place of that entry: `{instead}`",
            source.name()
        )
    }
}

const OWN_FOLDER: &str = "an included file's own folder is the folder that it is in, without folders of other included files; the folder of the main file belongs to no included file";

/// The error about a file outside the fence that the included file names at `span`.
pub(in crate::config) fn unread(source: &Source, span: &Span, path: &str) -> Option<Diagnostic> {
    let (grant, fence) = (source.grant(span.start)?, source.fence(span.start)?);
    let whole = source.resolve_path(span.start, path);
    if fence.contains(&whole) {
        return None;
    }
    let what = format!("read the file {}", quoted(path));
    let instead = grant.with("secrets", &to_write(source, &whole));
    let refusal = grant.refusal(source, span, &what, &instead);
    Some(refusal.at(span, "outside its own folder").note(OWN_FOLDER))
}

/// The error about a socket outside the fence that the included file names at `span`.
pub(in crate::config) fn unreached(
    source: &Source,
    span: &Span,
    path: &str,
    fence: &Fence,
) -> Option<Diagnostic> {
    let grant = source.grant(span.start)?;
    let place = fence::real(Path::new(path));
    if fence.contains_place(&place) {
        return None;
    }
    let url = format!("unix:{}", place.display());
    let what = format!("have the socket {} for a server", quoted(path));
    let refusal = grant.refusal(source, span, &what, &grant.with("upstreams", &url));
    let is_link = place != Path::new(path);
    let leads = is_link.then(|| format!("it leads to {}", quoted(&place.display().to_string())));
    let refusal = refusal.at(span, leads.as_deref().unwrap_or("outside its own folder"));
    Some(refusal.note(OWN_FOLDER))
}

/// The path as the main file would write it.
fn to_write(source: &Source, path: &Path) -> String {
    let path = fence::to_allow(path);
    let folder = fence::real(Path::new(source.name()).parent().unwrap_or(Path::new("")));
    let short = path.strip_prefix(&folder).unwrap_or(&path);
    short.display().to_string()
}

/// The error about a variable without a grant that the included file names at `span`.
pub(in crate::config) fn unasked(source: &Source, span: &Span, name: &str) -> Option<Diagnostic> {
    let grant = source.grant(span.start)?;
    if grant.reads_variable(name) {
        return None;
    }
    let what = format!("read the variable {}", quoted(name));
    let refusal = grant.refusal(source, span, &what, &grant.with("variables", name));
    let label = "an included file reads no variable that it is not granted";
    Some(refusal.at(span, label))
}
