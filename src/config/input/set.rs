//! `--set limits.per-ip.rate=5/s`: a value in place of one of the file.

use std::fmt;

/// One value to replace: a key of the file with dots in it, and what stands there instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Set {
    /// The whole, as given.
    pub(in crate::config) text: String,
    /// Where the `=` stands.
    pub(in crate::config) equals: usize,
}

impl Set {
    /// Reads `KEY=VALUE`.
    ///
    /// # Errors
    /// When `text` is not of this form, in words.
    pub fn read(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| {
            format!("`--set {text}` {why}; write KEY=VALUE, as in --set limits.per-ip.rate=5/s")
        };
        let equals = text
            .find('=')
            .ok_or_else(|| wrong("does not say what to set"))?;
        let set = Self {
            text: text.to_owned(),
            equals,
        };
        let plain = |part: &str| {
            let bare = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
            !part.is_empty() && part.bytes().all(bare)
        };
        if !set.key().split('.').all(plain) {
            return Err(wrong("does not name a key of the file"));
        }
        if set.key() == "include" {
            return Err(format!(
                "`--set {text}` would change nothing: what the file includes has been read by then"
            ));
        }
        if set.key() == "store" || set.key().starts_with("store.") {
            return Err(format!(
                "`--set {text}` would change nothing: a replay ignores [store]; --store chooses where it counts"
            ));
        }
        Ok(set)
    }

    /// The whole, as given.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The key, with its dots.
    #[must_use]
    pub fn key(&self) -> &str {
        self.text[..self.equals].trim()
    }

    /// The value as a document of its own, in which the value has the same place as in the source.
    pub(in crate::config) fn document(&self, start: usize) -> String {
        let (value, mark) = (start + self.equals + 1, "v=");
        let blanks = " ".repeat(value.saturating_sub(mark.len()));
        format!("{blanks}{mark}{}", &self.text[self.equals + 1..])
    }
}

impl fmt::Display for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
