//! Bytes of a target that clients send unencoded and that hyper's URI type refuses: they are percent-encoded before
//! hyper reads them.
//!
//! These are `"`, `<` and `>` in a query, and `` ` ``, `<` and `>` in a path: browsers encode them by the URL Standard
//! (sections *path* and *query percent-encode set*), and other clients do not. All other bytes stay unchanged, since
//! keys and signatures depend on them.

use bytes::BytesMut;

/// Follows the first line of a head to the bytes of its target, for any division of the line.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum TargetPlace {
    /// In the method.
    #[default]
    Method,
    /// After the blank that ends the method.
    Start,
    /// Before the path of a target with a scheme, after this number of slashes.
    Authority(u8),
    Path,
    Query,
    /// After a `#`.
    Fragment,
    /// After the blank that ends the target.
    Behind,
}

/// Has the first line, or a part of it, a byte that matters anywhere in a target? One pass without a branch: the
/// compiler compares many bytes at a time.
#[inline]
pub(super) fn may_matter(part: &[u8]) -> bool {
    let matters = |byte: u8| matches!(byte, b'"' | b'<' | b'>' | b'#' | b'`');
    part.iter().fold(false, |odd, byte| odd | matters(*byte))
}

impl TargetPlace {
    /// The place after `byte`.
    fn after(self, byte: u8) -> Self {
        match (self, byte) {
            (Self::Method, b' ') => Self::Start,
            (Self::Method | Self::Behind, _) => self,
            (_, b' ') => Self::Behind,
            (Self::Fragment, _) | (_, b'#') => Self::Fragment,
            (Self::Start, b'/') | (Self::Authority(2..), b'/') => Self::Path,
            (Self::Authority(2..) | Self::Path, b'?') => Self::Query,
            (Self::Authority(slashes), b'/') => Self::Authority(slashes + 1),
            (Self::Start, _) => Self::Authority(0),
            _ => self,
        }
    }

    fn is_refused(self, byte: u8) -> bool {
        match self {
            Self::Path => matches!(byte, b'`' | b'<' | b'>'),
            Self::Query => matches!(byte, b'"' | b'<' | b'>'),
            _ => false,
        }
    }

    /// Follows the line over `part`, which begins at `at`, and notes the positions of the bytes to encode. Returns true
    /// if a fragment has begun.
    #[cold]
    pub(in crate::listen) fn follow(
        &mut self,
        part: &[u8],
        at: usize,
        raw: &mut Vec<usize>,
    ) -> bool {
        let mut has_fragment = false;
        for (offset, byte) in part.iter().enumerate() {
            if self.is_refused(*byte) {
                raw.push(at + offset);
            }
            *self = self.after(*byte);
            has_fragment |= *self == Self::Fragment;
        }
        has_fragment
    }
}

/// The target of a request in the form in which hyper reads it.
#[must_use]
pub fn encoded_target(target: &str) -> String {
    let (mut place, mut raw) = (TargetPlace::Start, Vec::new());
    place.follow(target.as_bytes(), 0, &mut raw);
    String::from_utf8_lossy(&encoded(target.as_bytes(), &raw)).into_owned()
}

/// `bytes` with those at `raw`, in ascending order, encoded.
#[cold]
pub(in crate::listen) fn encoded(bytes: &[u8], raw: &[usize]) -> BytesMut {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let mut out = BytesMut::with_capacity(bytes.len() + 2 * raw.len());
    let mut from = 0;
    for at in raw {
        let byte = bytes[*at];
        out.extend_from_slice(&bytes[from..*at]);
        out.extend_from_slice(b"%");
        out.extend([byte >> 4, byte & 15].map(|digit| DIGITS[usize::from(digit)]));
        from = at + 1;
    }
    out.extend_from_slice(&bytes[from..]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> String {
        let (mut place, mut raw) = (TargetPlace::default(), Vec::new());
        place.follow(text.as_bytes(), 0, &mut raw);
        let whole = encoded(text.as_bytes(), &raw);
        let mut cut = TargetPlace::default();
        let mut pieces = Vec::new();
        for byte in text.as_bytes() {
            let mut raw = Vec::new();
            cut.follow(&[*byte], 0, &mut raw);
            pieces.extend(encoded(&[*byte], &raw));
        }
        assert_eq!(pieces, whole, "{text}");
        String::from_utf8(whole.to_vec()).unwrap()
    }

    #[test]
    fn what_the_uri_refuses_is_encoded_and_nothing_else() {
        for (sent, passed) in [
            (
                r#"GET /a"{}|^?q="<`{}|^\> HTTP/1.1"#,
                r#"GET /a"{}|^?q=%22%3C`{}|^\%3E HTTP/1.1"#,
            ),
            ("G`T /`<a> HTTP/1.1", "G`T /%60%3Ca%3E HTTP/1.1"),
            (
                r#"GET http://a"b/c<?"> HTTP/1.1"#,
                r#"GET http://a"b/c%3C?%22%3E HTTP/1.1"#,
            ),
            (
                r#"GET http://a.test?" HTTP/1.1"#,
                r#"GET http://a.test?%22 HTTP/1.1"#,
            ),
            (r#"GET a"<>` HTTP/1.1"#, r#"GET a"<>` HTTP/1.1"#),
            ("GET /a#<b> HTTP/1.1", "GET /a#<b> HTTP/1.1"),
            ("GET /a HTTP<1.1", "GET /a HTTP<1.1"),
        ] {
            assert_eq!(line(sent), passed);
        }
    }
}
