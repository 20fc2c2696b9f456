//! A response's statement of its request's cost: read within bounds, and settled when it is known.

mod final_status;
mod grpc_status;
mod json_cost;

pub use final_status::{FinalStatus, StatusCosts, StatusPattern, StatusSet};
pub use grpc_status::GrpcStatus;
pub use json_cost::{
    JsonCost, JsonNumber, JsonPlace, MOST_MEMBERS, MOST_PLACES, ROOT, WeighedMember, Weight,
};

use super::price::{PriceError, stated};
use http::{HeaderMap, HeaderName};
use std::sync::Arc;

/// The rule for a cost in the response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meter {
    /// The place of the cost.
    pub place: MeterPlace,
    /// The highest cost that counts.
    pub max: u64,
    /// The charge if the client leaves before the cost is known.
    pub on_leave: OnLeave,
    /// The charge if a successful answer has ended and has not stated the cost.
    pub on_silent: OnSilent,
    /// Does the log get a line if several answers in a row do not state the cost? A file may ignore it.
    pub tells_silence: bool,
}

/// The charge of a request whose client leaves after the answer's body has begun, and before the answer states its
/// cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnLeave {
    /// The highest cost. Otherwise a client that reads all but the last event would pay next to nothing.
    #[default]
    Max,
    /// The estimate that was charged before.
    Estimate,
}

/// The charge of a request whose successful answer (2xx) has a body, ends, and does not state its cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnSilent {
    /// The highest cost.
    Max,
    /// The estimate that was charged before.
    #[default]
    Estimate,
}

/// The place of a cost in a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MeterPlace {
    /// In a field.
    Header(HeaderName),
    /// In members of its JSON body.
    Json(Arc<JsonCost>),
    /// In its status.
    Status(Arc<StatusCosts>),
}

impl Meter {
    /// The cost in the field of a response with `fields`, if the field is there. A malformed value gives no cost.
    ///
    /// # Errors
    /// The fault of the field.
    pub fn of(&self, fields: &HeaderMap) -> Result<Option<u64>, PriceError> {
        let MeterPlace::Header(header) = &self.place else {
            return Ok(None);
        };
        Ok(stated(fields, header)?.map(|units| units.min(self.max)))
    }

    /// Is the cost in the body?
    #[must_use]
    pub const fn is_in_json(&self) -> bool {
        matches!(self.place, MeterPlace::Json(_))
    }

    /// Is the cost that of the answer's status?
    #[must_use]
    pub const fn is_by_status(&self) -> bool {
        matches!(self.place, MeterPlace::Status(_))
    }

    /// The place as the file writes it.
    #[must_use]
    pub fn name(&self) -> String {
        match &self.place {
            MeterPlace::Header(header) => header.to_string(),
            MeterPlace::Json(cost) => cost.to_string(),
            MeterPlace::Status(costs) => costs.to_string(),
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
            on_silent: OnSilent::default(),
            tells_silence: true,
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
