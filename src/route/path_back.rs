//! The reverse mapping of a rewritten path: from an address in a server's answer to the path that clients use.

use std::borrow::Cow;
use std::sync::Arc;

/// The prefix of the paths that a server sees, and the prefix that clients write instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathBack {
    /// The prefix that the server sees, without a final slash; empty if the server sees only the rest.
    seen: Arc<str>,
    /// The prefix that clients write, without a final slash.
    written: Arc<str>,
}

impl PathBack {
    /// Replaces `seen` by `written`. `None` if either needs an escape in an address.
    #[must_use]
    pub fn new(seen: &str, written: &str) -> Option<Self> {
        let is_plain = |byte: u8| {
            byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'-' | b'.' | b'_' | b'~')
        };
        let trimmed = [seen, written].map(|path| path.trim_end_matches('/'));
        let plain = trimmed.iter().all(|path| path.bytes().all(is_plain));
        let [seen, written] = trimmed.map(Arc::from);
        (plain && seen != written).then_some(Self { seen, written })
    }

    /// The path that clients use for `path`. A path outside of the server's prefix stays unchanged, and so does a path
    /// that already has the clients' prefix from a server that sees none: such a server knows its public prefix.
    #[must_use]
    pub fn apply<'p>(&self, path: &'p str) -> Cow<'p, str> {
        match below(path, &self.seen) {
            Some(rest) if !(self.seen.is_empty() && below(path, &self.written).is_some()) => {
                Cow::Owned(format!("{}{rest}", self.written))
            }
            _ => Cow::Borrowed(path),
        }
    }
}

/// The rest of `path` after `prefix`, if the prefix ends with a whole segment.
fn below<'p>(path: &'p str, prefix: &str) -> Option<&'p str> {
    let rest = path.strip_prefix(prefix)?;
    (rest.is_empty() || rest.starts_with('/')).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_comes_back() {
        let stripped = PathBack::new("", "/api/").unwrap();
        for (path, back) in [
            ("/orders/7", "/api/orders/7"),
            ("/", "/api/"),
            ("", "/api"),
            ("/api/orders", "/api/orders"),
            ("/apis", "/api/apis"),
        ] {
            assert_eq!(stripped.apply(path), back);
        }
        let replaced = PathBack::new("/v2", "/v1").unwrap();
        for (path, back) in [
            ("/v2/x/", "/v1/x/"),
            ("/v2", "/v1"),
            ("/v20/x", "/v20/x"),
            ("/else", "/else"),
        ] {
            assert_eq!(replaced.apply(path), back);
        }
        assert_eq!(PathBack::new("/a", "/a/"), None);
        assert_eq!(PathBack::new("/é", "/a"), None);
    }
}
