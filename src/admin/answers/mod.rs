//! The answers of the admin listener as types. `openapi.json` is made of them, and a test compares it.
//!
//! ```text
//! problem    why a request is refused, with a stable code
//! status     the gateway in short
//! limits     limits as they count
//! routing    routes and upstreams
//! store      where the counters are
//! settings   the file as it is understood, and a reload
//! ```

pub mod limits;
pub mod problem;
pub mod routing;
pub mod settings;
pub mod status;
pub mod store;

use crate::clock::Timestamp;

/// An instant as answers write it: `2026-11-20T17:48:50.123Z`.
#[must_use]
pub fn instant(at: Timestamp) -> String {
    let millis = i64::try_from(at.micros() / 1_000).unwrap_or(i64::MAX);
    // Beyond the calendar there is no such text; its end is written instead.
    let at = jiff::Timestamp::from_millisecond(millis).unwrap_or(jiff::Timestamp::MAX);
    format!("{at:.3}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_have_milliseconds_and_no_zone_but_utc() {
        let at = Timestamp::from_micros(1_795_731_362_633_353);
        assert_eq!(instant(at), "2026-11-26T22:16:02.633Z");
        assert_eq!(
            instant(Timestamp::from_micros(0)),
            "1970-01-01T00:00:00.000Z"
        );
    }
}
