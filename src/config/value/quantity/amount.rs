//! Amounts: numbers with or without a unit, and rates.

use super::{byte_rate, time};

/// Is the text a number, alone or with a unit of time or bytes, as a percentage, or over a time: `5`, `10MiB/s`, `2%`,
/// `100/5min`?
pub(in crate::config) fn is_amount(text: &str) -> bool {
    let Some(unit) = behind_number(text) else {
        return false;
    };
    let (unit, over) = match unit.split_once('/') {
        Some((unit, over)) => (unit.trim_end(), Some(over.trim_start())),
        None => (unit, None),
    };
    let is_size = unit.is_empty() || unit == "%" || byte_rate::is_unit(unit);
    match over {
        None => is_size || time::is_unit(unit),
        Some(over) => is_size && time::is_unit(behind_number(over).unwrap_or(over)),
    }
}

/// The text after a number and blanks; `None` if the text does not begin with a number.
fn behind_number(text: &str) -> Option<&str> {
    let rest = text.trim_start_matches(|one: char| one.is_ascii_digit() || one == '_');
    if rest.len() == text.len() {
        return None;
    }
    let fraction = rest.strip_prefix('.').map(|rest| {
        let behind = rest.trim_start_matches(|one: char| one.is_ascii_digit());
        (behind.len() < rest.len()).then_some(behind)
    });
    Some(fraction.flatten().unwrap_or(rest).trim_start())
}

#[cfg(test)]
mod tests {
    use super::is_amount;

    #[test]
    fn amounts_are_told_from_names() {
        for text in [
            "5",
            "0",
            "30s",
            "1.5 h",
            "10MiB",
            "64 KiB",
            "2%",
            "100/min",
            "10 / 5min",
            "1/s",
            "1MiB/s",
        ] {
            assert!(is_amount(text), "{text}");
        }
        for text in [
            "",
            "s",
            "/s",
            "false",
            "5xx",
            "3com.example",
            "10.0.0.0/8",
            "10.0.0.1:80",
            "::1/64",
            "2fa",
            "/1",
            "5f3c",
        ] {
            assert!(!is_amount(text), "{text}");
        }
    }
}
