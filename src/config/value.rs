//! How people write things: rates, times, addresses, hosts, paths, keys. Each reader takes the text and either returns
//! the value or says what is wrong with it and what to write instead.

mod key;
mod net;
mod path;
mod server;
mod time;

pub(super) use key::part;
pub(super) use net::{address, host, method, network};
pub(super) use path::path;
pub(super) use server::{server, store};
pub(super) use time::{MICROS, duration, rate, show_rate, show_span};

use super::diagnostic::{Code, Diagnostic};
use super::source::Span;

/// What is wrong with a written value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wrong {
    /// The kind of mistake.
    code: Code,
    /// The mistake, in the words of the file.
    message: String,
    /// Words beside the caret.
    label: String,
    /// What to write instead.
    help: Option<String>,
}

impl Wrong {
    fn new(code: Code, message: impl Into<String>, label: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            label: label.into(),
            help: None,
        }
    }

    fn help(mut self, text: impl Into<String>) -> Self {
        self.help = Some(text.into());
        self
    }

    /// The same, with its place.
    pub(super) fn at(self, span: &Span) -> Diagnostic {
        Diagnostic::error(self.code, self.message)
            .at(span, self.label)
            .help_if(self.help)
    }
}

/// A text of the file inside a message: in backticks, cut when it is long.
pub(super) fn quoted(text: &str) -> String {
    const MOST: usize = 60;
    if text.chars().count() > MOST {
        let head: String = text.chars().take(MOST).collect();
        format!("`{}...`", head.escape_debug())
    } else if text.chars().any(char::is_control) {
        format!("`{}`", text.escape_debug())
    } else {
        format!("`{text}`")
    }
}
