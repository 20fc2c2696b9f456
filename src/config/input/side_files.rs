//! The files that the configuration file names: lists of members, keys of tokens, certificates, templates, secrets. A
//! file that cannot be read is reported at the place that names the file.

use super::files::{FileContent, Files};
use super::grant::refusal::unread;
use super::source::{Source, Span};
use crate::config::report::{Code, Details as _, Diagnostic, Findings};
use crate::config::secrets::SecretLocation;
use std::io;

/// The reader of the files that a configuration file names.
pub(in crate::config) struct SideFiles<'a> {
    pub(in crate::config) source: &'a Source,
    /// All files that have been read.
    pub(in crate::config) files: &'a mut Files,
    pub(in crate::config) found: &'a mut Findings,
}

/// A place that names a file to be read.
#[derive(Debug, Clone, Copy)]
pub(in crate::config) struct Reference<'a> {
    pub(in crate::config) span: &'a Span,
    /// The beginning of the error: "cannot read `gold.txt`".
    pub(in crate::config) failure: &'a str,
    /// Words beside the caret.
    pub(in crate::config) label: &'a str,
}

impl SideFiles<'_> {
    /// Reads the file at `path`, up to `most` bytes.
    pub(in crate::config) fn bytes(
        &mut self,
        path: &str,
        most: u64,
        at: Reference<'_>,
    ) -> Option<Vec<u8>> {
        let read = self.read(path, most, at, FileContent::Settings);
        self.kept(read, at, unread(self.source, at.span, path))
    }

    fn read(
        &mut self,
        path: &str,
        most: u64,
        at: Reference<'_>,
        content: FileContent,
    ) -> io::Result<Vec<u8>> {
        (self.source).read(at.span.start, path, most, content, self.files)
    }

    /// Reads the list at `path`: members, or numbers of customers.
    pub(in crate::config) fn list(
        &mut self,
        path: &str,
        most: u64,
        at: Reference<'_>,
    ) -> Option<Vec<u8>> {
        let read = self.read(path, most, at, FileContent::List);
        self.kept(read, at, unread(self.source, at.span, path))
    }

    /// Reads the text of the file at `path`.
    pub(in crate::config) fn text(
        &mut self,
        path: &str,
        most: u64,
        at: Reference<'_>,
    ) -> Option<String> {
        let read = self.read(path, most, at, FileContent::Settings);
        let text = read.and_then(|bytes| {
            String::from_utf8(bytes).map_err(|_| io::Error::other("it is not UTF-8"))
        });
        self.kept(text, at, unread(self.source, at.span, path))
    }

    /// Reads the secret at `place`.
    pub(in crate::config) fn secret(
        &mut self,
        place: &SecretLocation,
        at: Reference<'_>,
    ) -> Option<String> {
        let read = place.read(self.source, at.span.start, self.files);
        self.kept(read, at, place.refused(self.source, at.span))
    }

    /// Returns the value if it was read. Otherwise the error is noted, or `refused` if the file must not name the
    /// place.
    fn kept<T>(
        &mut self,
        read: io::Result<T>,
        at: Reference<'_>,
        refused: Option<Diagnostic>,
    ) -> Option<T> {
        let error = match read {
            Ok(read) => return Some(read),
            Err(error) => error,
        };
        let message = format!("{}: {error}", at.failure);
        let unreadable = Diagnostic::error(Code::Unreadable, message).at(at.span, at.label);
        self.found.push(refused.unwrap_or(unreadable));
        None
    }
}
