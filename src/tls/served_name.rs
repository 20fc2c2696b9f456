//! A host name that an identity of ours serves: exact, or a wildcard for one label.

use std::fmt;

/// A DNS name in lower case without a trailing dot, or `*.` in front of one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServedName(Box<str>);

impl ServedName {
    /// Reads a name. International names are accepted in their ASCII form (`xn--`). `None` for other text than a DNS
    /// name (RFC 1123 section 2.1; underscores are accepted, as by clients): an address, for instance, or a wildcard
    /// that is not the whole first label.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let text = text.strip_suffix('.').unwrap_or(text);
        let name = text.strip_prefix("*.").unwrap_or(text);
        let last = name.rsplit('.').next()?;
        let is_address = last.bytes().all(|byte| byte.is_ascii_digit());
        let fits = text.len() <= 253 && name.split('.').all(is_label) && !is_address;
        fits.then(|| Self(text.to_ascii_lowercase().into()))
    }

    /// Is it a wildcard?
    #[must_use]
    pub fn is_wildcard(&self) -> bool {
        self.0.starts_with("*.")
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Is `host` this name, or one label followed by the wildcard's suffix? `host` is in lower case, without port and
    /// trailing dot.
    #[must_use]
    pub fn covers(&self, host: &str) -> bool {
        match self.0.strip_prefix('*') {
            None => *self.0 == *host,
            Some(rest) => wildcard_rest(host) == Some(rest),
        }
    }

    /// Is every host that `other` covers covered by this name too?
    #[must_use]
    pub fn includes(&self, other: &Self) -> bool {
        self == other || (!other.is_wildcard() && self.covers(&other.0))
    }

    /// Is it a wildcard, and `host` below it, at any depth?
    #[must_use]
    pub fn is_above(&self, host: &str) -> bool {
        let below = self.rest().and_then(|rest| host.strip_suffix(rest));
        below.is_some_and(|labels| !labels.is_empty())
    }

    /// The suffix of the wildcard, with its leading dot; `None` for an exact name.
    #[must_use]
    pub fn rest(&self) -> Option<&str> {
        self.0.strip_prefix('*')
    }
}

/// A host without its first label, with the leading dot.
pub(super) fn wildcard_rest(host: &str) -> Option<&str> {
    let dot = host.find('.').filter(|dot| *dot > 0)?;
    Some(&host[dot..])
}

/// The suffixes of a host that begin with a dot, the longest first, of at most `longest` bytes.
pub(super) fn rests_below(host: &str, longest: usize) -> impl Iterator<Item = &str> {
    // At least one byte of a label comes before.
    let from = host.len().saturating_sub(longest).max(1);
    let candidates = host.as_bytes().get(from..).unwrap_or_default();
    let dots = (from..).zip(candidates).filter(|(_, byte)| **byte == b'.');
    dots.filter_map(|(at, _)| host.get(at..))
}

fn is_label(label: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    (1..=63).contains(&label.len())
        && label.bytes().all(inner)
        && !label.starts_with('-')
        && !label.ends_with('-')
}

impl fmt::Display for ServedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_spelling() {
        for (text, name) in [
            ("api.example.com", Some("api.example.com")),
            ("API.Example.COM.", Some("api.example.com")),
            ("*.Example.com", Some("*.example.com")),
            ("localhost", Some("localhost")),
            ("xn--bcher-kva.example", Some("xn--bcher-kva.example")),
            ("_svc.example.com", Some("_svc.example.com")),
            ("*", None),
            ("*.localhost", Some("*.localhost")),
            ("*.*.example.com", None),
            ("a*.example.com", None),
            ("a.*.example.com", None),
            ("192.0.2.1", None),
            ("[::1]", None),
            ("a..example.com", None),
            ("-a.example.com", None),
            ("a b.example.com", None),
            ("bücher.example", None),
            ("", None),
            (".", None),
        ] {
            let read = ServedName::read(text);
            assert_eq!(read.as_ref().map(ServedName::as_str), name, "{text}");
        }
        assert!(ServedName::read(&"a".repeat(64)).is_none());
    }

    #[test]
    fn a_wildcard_stands_for_one_label() {
        let wildcard = ServedName::read("*.example.com").unwrap();
        assert!(wildcard.covers("a.example.com"));
        for host in [
            "example.com",
            "a.b.example.com",
            ".example.com",
            "aexample.com",
            "",
        ] {
            assert!(!wildcard.covers(host), "{host}");
        }
        let exact = ServedName::read("a.example.com").unwrap();
        assert!(exact.covers("a.example.com"));
        assert!(!exact.covers("b.example.com"));
        assert!(wildcard.includes(&exact) && wildcard.includes(&wildcard));
        assert!(!exact.includes(&wildcard));
    }
}
