//! The values of keys in the forms that people write: rates, times, addresses, hosts, paths, parts of a key. Each
//! reader takes the text and returns the value, or an error that offers a correct text.
//!
//! Readers of values, each with the form that a message offers:
//!
//! ```text
//! quantity  numbers with units: amounts, rates, durations, time zones
//! net       addresses, networks, hosts, methods
//! request   paths, conditions, fields and parts of keys
//! servers   servers of an upstream, and the rules about them
//! store     addresses of the store
//! tls       files of TLS, and names of identities
//! acme      directories of authorities
//! response  values of the gateway's own answers
//! offers    a test: what a message offers can be read
//! ```

mod acme;
mod net;
#[cfg(test)]
mod offers;
mod quantity;
mod request;
mod response;
mod servers;
mod store;
mod tls;

pub(super) use acme::{directory, mail_address};
pub(super) use net::{
    address, admin_address, admin_host, file_mode, gateway_name, host, listen_address, method,
    naming_field, network, translator,
};
pub(super) use quantity::amount::is_amount;
pub(super) use quantity::byte_rate::byte_rate;
pub use quantity::time::show_span;
pub(super) use quantity::time::{MICROS, Quota, duration, rate, show_quota, show_rate};
pub(super) use quantity::zone::zone;
pub(super) use request::condition::{condition_field, condition_parameter, condition_value};
pub(super) use request::field_change::{Direction, editable_field, field_value};
pub(super) use request::identity::{identity_field, identity_value};
pub(super) use request::json_member::{json_member, odd_name};
pub(super) use request::key::{field, group_part, part};
pub(super) use request::path::{
    destination, literal_path, new_path, path, prefix, route_path, top,
};
pub(super) use request::status_pattern::status_pattern;
pub(super) use response::{
    ErrorText, error_text, error_word, is_name, key_prefix, percent, public_name, tag,
};
pub(super) use servers::balance::{Balance, balance, probe_host, probe_path, share, statuses};
pub(super) use servers::server::{server, server_host};
pub(super) use store::{server_name, store};
pub(super) use tls::{pem_pair, pem_path, served_name};

use super::input::Span;
use super::report::{Code, Details as _, Diagnostic};

/// The mistake in a written value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ValueError {
    /// The kind of mistake.
    code: Code,
    /// The mistake, in the words of the file.
    message: String,
    /// Words beside the caret.
    label: String,
    /// The advice in words.
    help: Option<String>,
    /// The complete texts that can be written instead.
    offers: Vec<String>,
}

impl ValueError {
    fn new(code: Code, message: impl Into<String>, label: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            label: label.into(),
            help: None,
            offers: Vec::new(),
        }
    }

    /// A mistake in `text`: "`TEXT` is not a rate".
    fn of(code: Code, text: &str, what: &str, label: impl Into<String>) -> Self {
        Self::new(code, format!("{} {what}", quoted(text)), label)
    }

    /// The error about a word that `key` does not accept.
    pub(super) fn choice(key: &str, word: &str, words: &[&str]) -> Self {
        let suggestion = super::report::suggest::nearest(word, words.iter().copied());
        let wrong = Self::new(
            Code::BadChoice,
            format!("{} is no choice for `{key}`", quoted(word)),
            format!("must be {}", super::report::suggest::one_of(words)),
        );
        wrong.offer(suggestion)
    }

    /// Adds texts that can replace the whole text. [`with_valid_offers`] keeps the texts that can be read; if none
    /// remains, the help is shown.
    fn offer<T: Into<String>>(mut self, texts: impl IntoIterator<Item = T>) -> Self {
        self.offers = texts.into_iter().map(Into::into).collect();
        self
    }

    /// Adds further texts that can be written instead.
    fn offer_more<T: Into<String>>(mut self, texts: impl IntoIterator<Item = T>) -> Self {
        self.offers.extend(texts.into_iter().map(Into::into));
        self
    }

    /// The error without offers that `read` refuses, or that would need escapes in a TOML string.
    fn keep_valid<T>(mut self, read: impl Fn(&str) -> Result<T, Self>) -> Self {
        let plain = |text: &str| !text.contains(['"', '\\']) && !text.contains(char::is_control);
        self.offers.retain(|text| plain(text) && read(text).is_ok());
        self
    }

    /// Replaces every offer by the advice `text`.
    fn instead(mut self, text: impl Into<String>) -> Self {
        self.offers.clear();
        self.help(text)
    }

    /// Adds the advice, if there is any.
    pub(super) fn instead_if(self, text: Option<String>) -> Self {
        match text {
            Some(text) => self.instead(text),
            None => self,
        }
    }

    fn help(mut self, text: impl Into<String>) -> Self {
        self.help = Some(text.into());
        self
    }

    /// The advice as messages show it.
    pub(super) fn shown_help(&self) -> Option<String> {
        if self.offers.is_empty() {
            return self.help.clone();
        }
        let offers = self.offers.iter().map(|text| format!("\"{text}\""));
        let offers: Vec<String> = offers.collect();
        Some(format!("write {}", super::report::suggest::one_of(&offers)))
    }

    /// The diagnostic at `span`.
    pub(super) fn at(self, span: &Span) -> Diagnostic {
        let help = self.shown_help();
        Diagnostic::error(self.code, self.message)
            .at(span, self.label)
            .help_if(help)
    }
}

/// Reads `text` with `read`. An error offers only texts that `read` itself accepts.
pub(super) fn with_valid_offers<T>(
    text: &str,
    read: impl Fn(&str) -> Result<T, ValueError>,
) -> Result<T, ValueError> {
    read(text).map_err(|wrong| wrong.keep_valid(&read))
}

/// The advice for one text that contains several entries.
pub(super) fn in_list(parts: &[&str]) -> String {
    format!("write a list: `[\"{}\"]`", parts.join("\", \""))
}

/// A text of the file inside a message: in backticks, cut when it is long.
pub(super) fn quoted(text: &str) -> String {
    const MOST: usize = 60;
    if text.is_empty() {
        return "`\"\"`".into();
    }
    if text.chars().count() > MOST {
        let head: String = text.chars().take(MOST).collect();
        format!("`{}...`", head.escape_debug())
    } else if text.chars().any(char::is_control) {
        format!("`{}`", text.escape_debug())
    } else {
        format!("`{text}`")
    }
}
