//! The deadline of a call: `grpc-timeout` is read, and written anew with what is left of it.
//!
//! The value is a whole number of one to eight digits and a unit: hours, minutes, seconds, `m`illi-, `u` micro- or
//! `n`anoseconds.

use super::LAST_PART;
use crate::proxy::header_value;
use crate::proxy::request::BadRequest;
use http::{HeaderMap, HeaderName, HeaderValue};
use std::time::Duration;
use tokio::time::Instant;

/// The field with the time that the client gives a call.
pub(super) const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");
/// The most digits of a value.
const DIGITS: usize = 8;
/// The first number that has more digits.
const TOO_LONG: u128 = 100_000_000;
/// A time that has hardly begun is forwarded as the client wrote it: the part of it that may be gone by then.
const HARDLY: u32 = 100;

/// The time that the client gives a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CallDeadline {
    /// The end of the time, counted from the head's arrival.
    pub(super) at: Instant,
    whole: Duration,
}

impl CallDeadline {
    /// The deadline of a call whose head came at `began`; none where the client sets none.
    ///
    /// # Errors
    /// When there is a `grpc-timeout` that is none, or several.
    pub(super) fn read(fields: &HeaderMap, began: Instant) -> Result<Option<Self>, BadRequest> {
        let mut values = fields.get_all(GRPC_TIMEOUT).iter();
        let Some(value) = values.next() else {
            return Ok(None);
        };
        let whole = parsed(value.as_bytes()).filter(|_| values.next().is_none());
        let whole = whole.ok_or(BadRequest::CallTimeout)?;
        // A time that no clock reaches is none.
        Ok(began.checked_add(whole).map(|at| Self { at, whole }))
    }

    /// Has the time passed at `now`?
    #[must_use]
    pub(super) fn has_passed(&self, now: Instant) -> bool {
        self.at <= now
    }

    /// Has the time passed at `now` but for its last part?
    #[must_use]
    pub(super) fn has_nearly_passed(&self, now: Instant) -> bool {
        self.at <= now + self.whole / LAST_PART
    }

    /// Writes what is left of the time, or of that until `end`, if there is one that comes sooner.
    pub(super) fn write(&self, fields: &mut HeaderMap, end: Option<Instant>, now: Instant) {
        let own = self.at.saturating_duration_since(now);
        let left = end.map_or(own, |end| own.min(end.saturating_duration_since(now)));
        if left + self.whole / HARDLY >= self.whole {
            return;
        }
        if let Some(value) = written(left) {
            fields.insert(GRPC_TIMEOUT, value);
        }
    }
}

/// The time that a value stands for.
fn parsed(value: &[u8]) -> Option<Duration> {
    let (unit, digits) = value.split_last()?;
    if digits.is_empty() || digits.len() > DIGITS || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = digits
        .iter()
        .fold(0_u64, |number, digit| number * 10 + u64::from(digit - b'0'));
    Some(match unit {
        b'H' => Duration::from_secs(number * 3600),
        b'M' => Duration::from_secs(number * 60),
        b'S' => Duration::from_secs(number),
        b'm' => Duration::from_millis(number),
        b'u' => Duration::from_micros(number),
        b'n' => Duration::from_nanos(number),
        _ => return None,
    })
}

/// A time as a value, never longer than it is but for the shortest: a value above nothing is demanded.
fn written(time: Duration) -> Option<HeaderValue> {
    let seconds = u128::from(time.as_secs());
    let forms = [
        (time.as_micros().max(1), b'u'),
        (time.as_millis(), b'm'),
        (seconds, b'S'),
        (seconds / 60, b'M'),
        (seconds / 3600, b'H'),
    ];
    let (number, unit) = forms.into_iter().find(|(number, _)| *number < TOO_LONG)?;
    header_value::written(|out| {
        out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
        out.extend_from_slice(&[unit]);
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn values_are_read_as_they_are_meant() {
        for (value, millis) in [
            ("1H", 3_600_000),
            ("2M", 120_000),
            ("3S", 3_000),
            ("04m", 4),
            ("5000u", 5),
            ("6000000n", 6),
            ("0S", 0),
            ("99999999H", 359_999_996_400_000),
        ] {
            let read = parsed(value.as_bytes());
            assert_eq!(read, Some(Duration::from_millis(millis)), "{value}");
        }
        for bad in [
            "",
            "S",
            "1",
            "1s",
            "1 S",
            "-1S",
            "+1S",
            "1.5S",
            "123456789m",
            "1SS",
            "0x1S",
            "1S,2S",
        ] {
            assert_eq!(parsed(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn two_values_are_none() {
        let mut fields = HeaderMap::new();
        let now = Instant::now();
        assert_eq!(CallDeadline::read(&fields, now), Ok(None));
        fields.append(GRPC_TIMEOUT, HeaderValue::from_static("1S"));
        let read = CallDeadline::read(&fields, now).unwrap().unwrap();
        assert_eq!(read.at, now + Duration::from_secs(1));
        fields.append(GRPC_TIMEOUT, HeaderValue::from_static("1S"));
        let refused = CallDeadline::read(&fields, now);
        assert_eq!(refused, Err(BadRequest::CallTimeout));
    }

    #[test]
    fn what_is_left_is_written() {
        let began = Instant::now();
        let second = Duration::from_secs(1);
        let left = |end: Duration, now: Duration| {
            let mut fields = HeaderMap::new();
            fields.insert(GRPC_TIMEOUT, HeaderValue::from_static("10S"));
            let deadline = CallDeadline::read(&fields, began).unwrap().unwrap();
            deadline.write(&mut fields, Some(began + end), began + now);
            fields[GRPC_TIMEOUT].to_str().unwrap().to_owned()
        };
        assert_eq!(left(second * 30, Duration::from_millis(3)), "10S");
        assert_eq!(left(second * 30, second), "9000000u");
        assert_eq!(left(second * 3, second), "2000000u");
        assert_eq!(left(second * 30, second * 11), "1u");
    }

    proptest! {
        #[test]
        fn a_written_time_is_read_back_and_no_longer(micros in 1_u64..1_000_000_000_000_000_000) {
            let time = Duration::from_micros(micros);
            if let Some(value) = written(time) {
                let back = parsed(value.as_bytes()).unwrap();
                prop_assert!(back <= time);
                // Eight digits are exact to a thousandth.
                prop_assert!(back >= time - time / 1_000);
            }
        }
    }
}
