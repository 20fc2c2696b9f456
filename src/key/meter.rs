//! What a response says that its request has cost: read within bounds, and settled when it is known.

use super::price::{PriceError, digits};
use http::{HeaderMap, HeaderName};
use std::sync::Arc;

/// A cost that stands in the response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meter {
    /// Where.
    pub place: MeterPlace,
    /// The most that it counts.
    pub max: u32,
    /// What is charged where the client leaves before the cost is known.
    pub on_leave: OnLeave,
}

/// What a request is charged whose client leaves after the body of the answer began, and before the answer says its cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnLeave {
    /// The most that it could have cost: a client that reads all but the last event would pay next to nothing otherwise.
    #[default]
    Max,
    /// What was asked for before.
    Estimate,
}

/// Where a response says its cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MeterPlace {
    /// In a field.
    Header(HeaderName),
    /// In a member of its JSON body: the names that lead there, from the outermost object on.
    Json(Arc<[Box<str>]>),
}

impl Meter {
    /// What a response with `fields` says in its field, if it says anything. Nothing is known from nonsense.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn of(&self, fields: &HeaderMap) -> Result<Option<u32>, PriceError> {
        let MeterPlace::Header(header) = &self.place else {
            return Ok(None);
        };
        let mut values = fields.get_all(header).iter();
        let Some(value) = values.next() else {
            return Ok(None);
        };
        if values.next().is_some() {
            return Err(PriceError::Repeated);
        }
        let units = digits(value.as_bytes().trim_ascii()).ok_or(PriceError::Malformed)?;
        Ok(Some(units.min(self.max)))
    }

    /// The place as the file writes it.
    #[must_use]
    pub fn name(&self) -> String {
        match &self.place {
            MeterPlace::Header(header) => header.to_string(),
            MeterPlace::Json(names) => names.join("."),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn a_field_is_taken_within_bounds_and_nonsense_not_at_all() {
        let header = HeaderName::from_static("x-units");
        let meter = Meter {
            place: MeterPlace::Header(header.clone()),
            max: 50,
            on_leave: OnLeave::default(),
        };
        let said = |values: &[&'static str]| {
            let mut fields = HeaderMap::new();
            for value in values {
                fields.append(&header, HeaderValue::from_static(value));
            }
            meter.of(&fields)
        };
        assert_eq!(said(&[]), Ok(None));
        for (text, units) in [
            ("0", 0),
            (" 7 ", 7),
            ("50", 50),
            ("51", 50),
            ("99999999999", 50),
        ] {
            assert_eq!(said(&[text]), Ok(Some(units)), "{text}");
        }
        for text in ["", "-1", "1.5", "many"] {
            assert_eq!(said(&[text]), Err(PriceError::Malformed), "{text}");
        }
        assert_eq!(said(&["1", "1"]), Err(PriceError::Repeated));
    }
}
