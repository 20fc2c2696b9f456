//! `--set limits.per-ip.rate=5/s`: a value that replaces a value of the file.

use std::fmt;

/// One value to replace: a dotted key of the file, and the new value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Set {
    /// The whole option as given.
    pub(in crate::config) text: String,
    /// The position of the `=`.
    pub(in crate::config) equals: usize,
}

impl Set {
    /// Reads `KEY=VALUE`.
    ///
    /// # Errors
    /// If `text` does not have this form: the reason in words.
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

    /// The whole option as given.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The key, with its dots.
    #[must_use]
    pub fn key(&self) -> &str {
        self.text[..self.equals].trim()
    }

    /// The value as a separate document in which the value has the same position as in the source.
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
