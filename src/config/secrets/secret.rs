//! Places of secrets: `{ file = "..." }` and `{ env = "..." }` instead of a text.

use crate::config::input::files::FileContent;
use crate::config::input::grant::refusal::{unasked, unread};
use crate::config::input::{Files, Source, Span};
use crate::config::report::{Code, Details as _, Diagnostic};
use std::env::VarError;
use std::{fmt, io};
use toml::de::DeTable;

/// The longest secret.
const MOST: u64 = 64 * 1024;

/// The place of a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::config) enum SecretLocation {
    /// The secret is in a separate file; a trailing newline does not count.
    File(String),
    /// The secret is in an environment variable.
    Env(String),
}

impl SecretLocation {
    /// The place that a table names.
    pub(in crate::config) fn of(table: &DeTable<'_>) -> Option<Self> {
        let mut entries = table.iter();
        let (Some((key, value)), None) = (entries.next(), entries.next()) else {
            return None;
        };
        let text = value.get_ref().as_str()?.to_owned();
        match key.get_ref().as_ref() {
            "file" => Some(Self::File(text)),
            "env" => Some(Self::Env(text)),
            _ => None,
        }
    }

    /// The place of the secret `name` that the table at `whole` names.
    ///
    /// # Errors
    /// If the table names no place: the reason.
    pub(in crate::config) fn read_table(
        table: &DeTable<'_>,
        name: &str,
        whole: &Span,
    ) -> Result<Self, Box<Diagnostic>> {
        const WRITE: &str = "write `{ file = \"...\" }` or `{ env = \"...\" }`";
        if let Some(place) = Self::of(table) {
            return Ok(place);
        }
        let mut entries = table.iter();
        let wrong = match (entries.next(), entries.next()) {
            (Some((key, value)), None) => match key.get_ref().as_ref() {
                key @ ("file" | "env") => {
                    let message = format!("`{key}` of `{name}` takes a text");
                    Diagnostic::error(Code::WrongType, message).at(&value.span(), "")
                }
                other => {
                    let message = format!("unknown key `{other}` in `{name}`");
                    let wrong = Diagnostic::error(Code::UnknownKey, message);
                    wrong.at(&key.span(), "").help(WRITE)
                }
            },
            _ => Diagnostic::error(Code::WrongType, format!("`{name}` is in one place"))
                .at(whole, "`file` or `env`, one of them")
                .help(WRITE),
        };
        Err(Box::new(wrong))
    }

    /// Reads the secret; its place is written at the byte `offset` of `source`.
    pub(in crate::config) fn read(
        &self,
        source: &Source,
        offset: usize,
        files: &mut Files,
    ) -> io::Result<String> {
        let is_refused = |name| {
            source
                .grant(offset)
                .is_some_and(|grant| !grant.reads_variable(name))
        };
        let text = match self {
            Self::File(path) => {
                let bytes = source.read(offset, path, MOST, FileContent::Settings, files)?;
                let text = String::from_utf8(bytes);
                let text = text.map_err(|_| io::Error::other("it is not UTF-8"))?;
                text.trim_end_matches(['\n', '\r']).to_owned()
            }
            Self::Env(name) if is_refused(name) => {
                return Err(io::Error::other("it is not this file's to read"));
            }
            Self::Env(name) => from_environment(name, source)?,
        };
        if text.is_empty() {
            Err(io::Error::other("it is empty"))
        } else {
            Ok(text)
        }
    }

    /// The error about a place without a grant that the included file names at `span`.
    pub(in crate::config) fn refused(&self, source: &Source, span: &Span) -> Option<Diagnostic> {
        match self {
            Self::File(path) => unread(source, span, path),
            Self::Env(name) => unasked(source, span, name),
        }
    }
}

impl fmt::Display for SecretLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "the file `{path}`"),
            Self::Env(name) => write!(f, "the variable `{name}`"),
        }
    }
}

fn from_environment(name: &str, source: &Source) -> io::Result<String> {
    // The system refuses a name with `=` or a zero byte.
    if name.is_empty() || name.contains(['=', '\0']) {
        return Err(io::Error::other("no variable has such a name"));
    }
    source.variable(name).map_err(|error| match error {
        VarError::NotPresent => io::Error::other("it is not set"),
        VarError::NotUnicode(_) => io::Error::other("it is not UTF-8"),
    })
}
