//! The id under which a request is sent again: a field read with bounds, and known beyond this process as a digest only.

use http::{HeaderMap, HeaderName};
use sha2::{Digest, Sha256};

/// Longest id, in bytes. Whoever sends more is charged for every request.
pub const LONGEST_ID: usize = 256;

/// The field that says the id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdField(pub HeaderName);

/// Why a field was taken for no id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoId {
    /// More than one: which of them would it be?
    Repeated,
    /// More than [`LONGEST_ID`] bytes.
    TooLong,
}

impl NoId {
    /// In a sentence: "the field is ...".
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Repeated => "repeated",
            Self::TooLong => "longer than 256 bytes",
        }
    }
}

impl IdField {
    /// The id in `fields`. An empty one is none.
    ///
    /// # Errors
    /// When there is something that is no id.
    pub fn of<'f>(&self, fields: &'f HeaderMap) -> Result<Option<&'f [u8]>, NoId> {
        let mut values = fields.get_all(&self.0).iter();
        let Some(value) = values.next() else {
            return Ok(None);
        };
        if values.next().is_some() {
            return Err(NoId::Repeated);
        }
        let id = value.as_bytes().trim_ascii();
        match id.len() {
            0 => Ok(None),
            1..=LONGEST_ID => Ok(Some(id)),
            _ => Err(NoId::TooLong),
        }
    }
}

/// What is the same of a request and of its repeats: method, path, cost and id, as 128 bits of SHA-256.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RepeatId([u8; 16]);

impl RepeatId {
    /// Of nobody's request: no other has it.
    #[must_use]
    pub fn random() -> Self {
        Self(fastrand::u128(..).to_be_bytes())
    }

    /// Of a request with that `id`. The cost belongs to it, so that a cheap request never pays for a dear one.
    #[must_use]
    pub fn of(method: &str, path: &str, cost: u32, id: &[u8]) -> Self {
        // No method and no path has a zero byte, and the cost's length is known.
        let mut digest = Sha256::new();
        digest.update(method.as_bytes());
        digest.update([0]);
        digest.update(path.as_bytes());
        digest.update([0]);
        digest.update(cost.to_be_bytes());
        digest.update(id);
        let (mut kept, all) = ([0; 16], digest.finalize());
        kept.copy_from_slice(&all[..16]);
        Self(kept)
    }

    /// As it is filed in this process.
    #[must_use]
    pub const fn bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// As it is filed elsewhere: 32 hexadecimal digits.
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

    fn id(values: &[&str]) -> Result<Option<String>, NoId> {
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
        assert_eq!(id(&[&format!("{longest}x")]), Err(NoId::TooLong));
        assert_eq!(id(&["a", "a"]), Err(NoId::Repeated));
    }

    #[test]
    fn another_method_path_cost_or_id_is_another_request() {
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
        let digits = String::from_utf8(first.digits().to_vec()).unwrap();
        let bytes: Vec<u8> = (0..32)
            .step_by(2)
            .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap())
            .collect();
        assert_eq!(bytes, first.bytes());
    }
}
