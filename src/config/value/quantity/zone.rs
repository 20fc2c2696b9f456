//! Time zones by their names: `Europe/Berlin`.

use crate::config::report::nearest;
use crate::config::value::{Code, ValueError};
use jiff::tz::{self, TimeZone};

/// Reads the name of a time zone.
pub(in crate::config) fn zone(text: &str) -> Result<TimeZone, ValueError> {
    if text.eq_ignore_ascii_case("utc") {
        return Ok(TimeZone::UTC);
    }
    TimeZone::get(text).map_err(|_| {
        let wrong = ValueError::of(
            Code::BadChoice,
            text,
            "is no time zone",
            "a name like `Europe/Berlin`",
        );
        let names: Vec<String> = tz::db().available().map(|name| name.to_string()).collect();
        match nearest(text, names.iter().map(String::as_str)) {
            Some(suggestion) => wrong.help(format!("did you mean `{suggestion}`?")),
            None => wrong.help("write the area and the city, as `Europe/Berlin`, or `UTC`"),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_is_known_by_its_name() {
        for name in [
            "UTC",
            "utc",
            "Europe/Berlin",
            "america/new_york",
            "Etc/GMT+5",
        ] {
            assert!(zone(name).is_ok(), "{name}");
        }
        for (name, help) in [
            ("Europe/Berln", "did you mean `Europe/Berlin`?"),
            (
                "Berlin",
                "write the area and the city, as `Europe/Berlin`, or `UTC`",
            ),
        ] {
            assert_eq!(zone(name).unwrap_err().help.as_deref(), Some(help));
        }
    }
}
