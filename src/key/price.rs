//! A request's statement of its cost: a field read with bounds, so that no client can state less than it may.

use http::{HeaderMap, HeaderName};

/// The greatest cost: 2^53 - 1, since the scripts of Redis compute in doubles.
pub const MOST_COST: u64 = (1 << 53) - 1;

/// A cost in a field of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Price {
    /// The field.
    pub header: HeaderName,
    /// The cost without the field.
    pub default: u64,
    /// The highest cost that counts, and the cost of an unreadable field.
    pub max: u64,
    /// May the cost be 0, which checks without charging?
    pub may_peek: bool,
}

/// Causes for which a field is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PriceError {
    /// The value is not a whole number.
    Malformed,
    /// The value is 0, which is not allowed.
    Zero,
    /// The field occurs more than once.
    Repeated,
}

impl PriceError {
    /// The words that follow "the field is ...".
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Malformed => "no whole number",
            Self::Zero => "0",
            Self::Repeated => "repeated",
        }
    }
}

impl Price {
    /// The cost of a request with `fields`, and the fault of its field, if any. An unreadable field costs the most.
    #[must_use]
    pub fn of(&self, fields: &HeaderMap) -> (u64, Option<PriceError>) {
        match stated(fields, &self.header) {
            Ok(None) => (self.default, None),
            Ok(Some(0)) if !self.may_peek => (self.max, Some(PriceError::Zero)),
            Ok(Some(cost)) => (cost.min(self.max), None),
            Err(fault) => (self.max, Some(fault)),
        }
    }
}

/// The number in the field of this name, if the field is there.
pub(super) fn stated(fields: &HeaderMap, name: &HeaderName) -> Result<Option<u64>, PriceError> {
    let mut values = fields.get_all(name).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err(PriceError::Repeated);
    }
    let number = digits(value.as_bytes().trim_ascii());
    number.map(Some).ok_or(PriceError::Malformed)
}

/// A number of digits only. A number above the bound of the type counts as the greatest.
fn digits(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0_u64, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        Some(number.saturating_mul(10).saturating_add(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn cost(may_peek: bool, values: &[&'static str]) -> (u64, Option<PriceError>) {
        let header = HeaderName::from_static("x-cost");
        let mut fields = HeaderMap::new();
        for value in values {
            fields.append(&header, HeaderValue::from_static(value));
        }
        let price = Price {
            header,
            default: 2,
            max: 50,
            may_peek,
        };
        price.of(&fields)
    }

    #[test]
    fn a_field_is_taken_at_its_word_within_bounds() {
        assert_eq!(cost(false, &[]), (2, None));
        for (text, units) in [("1", 1), ("50", 50), ("51", 50), ("007", 7)] {
            assert_eq!(cost(false, &[text]), (units, None), "{text}");
        }
        assert_eq!(cost(false, &["99999999999999999999999"]), (50, None));
        assert_eq!(cost(true, &["0"]), (0, None));
    }

    #[test]
    fn nonsense_costs_the_most() {
        for text in ["", "-1", "+1", "1.5", "0x10", "1 2", "1,2", "many"] {
            assert_eq!(
                cost(true, &[text]),
                (50, Some(PriceError::Malformed)),
                "{text}"
            );
        }
        assert_eq!(cost(false, &["0"]), (50, Some(PriceError::Zero)));
        assert_eq!(cost(true, &["1", "1"]), (50, Some(PriceError::Repeated)));
    }
}
