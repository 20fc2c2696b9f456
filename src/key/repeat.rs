//! The id that marks repeats of a request: a field read with bounds, and known outside of this process as a digest
//! only.

use http::{HeaderMap, HeaderName, HeaderValue, header};
use sha2::{Digest, Sha256};

/// Longest id, in bytes. A client with a longer id is charged for every request.
pub const LONGEST_ID: usize = 256;

/// The field that holds the id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdField(pub HeaderName);

/// Causes for which a field holds no id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdError {
    /// The field occurs more than once, so that the id is uncertain.
    Repeated,
    /// The value is longer than [`LONGEST_ID`] bytes.
    TooLong,
}

impl IdError {
    /// The words that follow "the field is ...".
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Repeated => "repeated",
            Self::TooLong => "longer than 256 bytes",
        }
    }
}

impl IdField {
    /// The id in `fields`. An empty field holds no id.
    ///
    /// # Errors
    /// The fault of a field that is present and holds no valid id.
    pub fn of<'f>(&self, fields: &'f HeaderMap) -> Result<Option<&'f [u8]>, IdError> {
        let mut values = fields.get_all(&self.0).iter();
        let Some(value) = values.next() else {
            return Ok(None);
        };
        if values.next().is_some() {
            return Err(IdError::Repeated);
        }
        let id = value.as_bytes().trim_ascii();
        match id.len() {
            0 => Ok(None),
            1..=LONGEST_ID => Ok(Some(id)),
            _ => Err(IdError::TooLong),
        }
    }
}

/// The properties that a repeat shares with its first request, besides id, method and cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sameness {
    /// The host, the path, the query and the beginning of the body.
    Request,
    /// The path alone: an id belongs to one request, with any query and body.
    Path,
}

/// The known facts about a request's body before its limits are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// The request has no body.
    Absent,
    /// The body has not been read.
    Unread,
    /// The beginning of the body has been read.
    Known(ContentDigest),
}

impl Content {
    /// The announcement of a body by fields of HTTP/1.1 (RFC 9112, section 6).
    #[must_use]
    pub fn announced(fields: &HeaderMap) -> Self {
        let length = fields.get(header::CONTENT_LENGTH);
        let is_zero = |length: &HeaderValue| length.as_bytes().iter().all(|digit| *digit == b'0');
        let has_length = length.is_some_and(|length| !is_zero(length));
        if has_length || fields.contains_key(header::TRANSFER_ENCODING) {
            Self::Unread
        } else {
            Self::Absent
        }
    }

    /// Does a body come with the request?
    #[must_use]
    pub fn is_absent(&self) -> bool {
        *self == Self::Absent
    }
}

/// SHA-256 of the beginning of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContentDigest([u8; 32]);

impl ContentDigest {
    /// The number of bytes of a body that are compared.
    pub const COVERED: usize = 16 * 1024;

    /// The digest of a body that begins with `bytes`, of which no more than [`Self::COVERED`] count.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        let covered = &bytes[..bytes.len().min(Self::COVERED)];
        Self(Sha256::digest(covered).into())
    }
}

/// The common identity of a request and its repeats, as 128 bits of SHA-256.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RepeatId([u8; 16]);

impl RepeatId {
    /// A random identity, which no other request has.
    #[must_use]
    pub fn random() -> Self {
        Self(fastrand::u128(..).to_be_bytes())
    }

    /// The identity of a request with that `id`, with any query and body. The cost is part of it, so that a cheap
    /// request never pays for an expensive one.
    #[must_use]
    pub fn of(method: &str, path: &str, cost: u64, id: &[u8]) -> Self {
        // The input is unambiguous: no method and no path has a zero byte, and the cost has a fixed length. A cost of
        // more than four bytes is marked by a byte that no method begins with.
        let mut digest = Sha256::new();
        let small = u32::try_from(cost);
        if small.is_err() {
            digest.update([1]);
        }
        digest.update(method.as_bytes());
        digest.update([0]);
        digest.update(path.as_bytes());
        digest.update([0]);
        match small {
            Ok(small) => digest.update(small.to_be_bytes()),
            Err(_) => digest.update(cost.to_be_bytes()),
        }
        digest.update(id);
        Self::kept(digest)
    }

    /// The identity of this request with that host, query and body alone. `None` if the body should have been read and
    /// was not.
    #[must_use]
    pub fn covering(self, host: &str, query: Option<&str>, content: &Content) -> Option<Self> {
        let content = match content {
            Content::Absent => ContentDigest::of(&[]),
            Content::Unread => return None,
            Content::Known(digest) => *digest,
        };
        // No method begins with a zero byte, so that the digest differs from every identity without a body. No host has
        // a zero byte.
        let mut digest = Sha256::new();
        digest.update([0, u8::from(query.is_some())]);
        digest.update(self.0);
        digest.update(content.0);
        digest.update(host);
        digest.update([0]);
        digest.update(query.unwrap_or_default());
        Some(Self::kept(digest))
    }

    fn kept(digest: Sha256) -> Self {
        let (mut kept, all) = ([0; 16], digest.finalize());
        kept.copy_from_slice(&all[..16]);
        Self(kept)
    }

    /// The bytes that name it in this process.
    #[must_use]
    pub const fn bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// The form that names it elsewhere: 32 hexadecimal digits.
    #[must_use]
    pub fn digits(&self) -> [u8; 32] {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        let mut digits = [0; 32];
        for (pair, byte) in digits.chunks_exact_mut(2).zip(self.0) {
            pair[0] = HEX[usize::from(byte >> 4)];
            pair[1] = HEX[usize::from(byte & 15)];
        }
        digits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn id(values: &[&str]) -> Result<Option<String>, IdError> {
        let field = IdField(HeaderName::from_static("idempotency-key"));
        let mut fields = HeaderMap::new();
        for value in values {
            fields.append(&field.0, HeaderValue::from_str(value).unwrap());
        }
        let id = field.of(&fields)?;
        Ok(id.map(|id| String::from_utf8(id.to_vec()).unwrap()))
    }

    #[test]
    fn an_id_is_one_field_of_bounded_length() {
        let longest = "x".repeat(LONGEST_ID);
        assert_eq!(id(&[]), Ok(None));
        assert_eq!(id(&[" "]), Ok(None));
        assert_eq!(id(&[" \"a b\" "]), Ok(Some("\"a b\"".into())));
        assert_eq!(id(&[&longest]), Ok(Some(longest.clone())));
        assert_eq!(id(&[&format!("{longest}x")]), Err(IdError::TooLong));
        assert_eq!(id(&["a", "a"]), Err(IdError::Repeated));
    }

    #[test]
    fn another_method_path_cost_id_query_or_body_is_another_request() {
        let first = RepeatId::of("POST", "/pay", 1, b"a");
        assert_eq!(first, RepeatId::of("POST", "/pay", 1, b"a"));
        for other in [
            RepeatId::of("PUT", "/pay", 1, b"a"),
            RepeatId::of("POST", "/pay/", 1, b"a"),
            RepeatId::of("POST", "/pay", 2, b"a"),
            RepeatId::of("POST", "/pay", 1, b"b"),
            RepeatId::of("POST", "", 1, b"/pay"),
        ] {
            assert_ne!(first, other);
        }
        let whole = |query, body: &[u8]| {
            first.covering("a.test", query, &Content::Known(ContentDigest::of(body)))
        };
        let plain = whole(None, b"");
        assert_eq!(plain, first.covering("a.test", None, &Content::Absent));
        assert_eq!(first.covering("a.test", None, &Content::Unread), None);
        let elsewhere = first.covering("b.test", None, &Content::Absent);
        assert_ne!(plain, elsewhere);
        for other in [
            Some(first),
            whole(Some(""), b""),
            whole(Some("a"), b""),
            whole(None, b"a"),
        ] {
            assert_ne!(plain, other);
        }
        let long = |last: u8| [vec![b'x'; ContentDigest::COVERED - 1], vec![last]].concat();
        assert_ne!(whole(None, &long(b'a')), whole(None, &long(b'b')));
        // Later bytes are not compared.
        let longer = |last: u8| [long(b'a'), vec![last]].concat();
        assert_eq!(whole(None, &longer(b'a')), whole(None, &longer(b'b')));
        let digits = String::from_utf8(first.digits().to_vec()).unwrap();
        let bytes: Vec<u8> = (0..32)
            .step_by(2)
            .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap())
            .collect();
        assert_eq!(bytes, first.bytes());
    }
}
