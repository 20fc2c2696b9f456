//! Recognition of gRPC calls, and the timeout that a client sets.
//!
//! The form of calls is defined by the page "gRPC over HTTP2" (PROTOCOL-HTTP2 of the gRPC project). The value of
//! `grpc-timeout` is a whole number of one to eight digits and a unit: hours, minutes, seconds, `m`illi-, `u` micro- or
//! `n`anoseconds.

use super::head::BadRequest;
use http::{HeaderMap, HeaderName, header};
use std::time::Duration;
use tokio::time::Instant;

/// The content type of all calls; `+` and `;` may follow.
const CONTENT: &[u8] = b"application/grpc";

/// The field with the timeout of a call.
pub const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");
/// The most digits of a value.
const DIGITS: usize = 8;
/// The timeout that the client sets for a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallDeadline {
    /// The end of the timeout, counted from the head's arrival.
    pub at: Instant,
    /// The time that the field states.
    pub whole: Duration,
}

impl CallDeadline {
    /// The deadline of a call whose head arrived at `began`; `None` if the client sets none.
    ///
    /// # Errors
    /// If `grpc-timeout` is malformed, or occurs several times.
    pub fn read(fields: &HeaderMap, began: Instant) -> Result<Option<Self>, BadRequest> {
        let mut values = fields.get_all(GRPC_TIMEOUT).iter();
        let Some(value) = values.next() else {
            return Ok(None);
        };
        let whole = parsed(value.as_bytes()).filter(|_| values.next().is_none());
        let whole = whole.ok_or(BadRequest::CallTimeout)?;
        // A time that no clock can represent counts as no timeout.
        Ok(began.checked_add(whole).map(|at| Self { at, whole }))
    }
}

/// The time that a value represents.
pub(crate) fn parsed(value: &[u8]) -> Option<Duration> {
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

/// Is the content type gRPC? gRPC-Web is excluded, since its answers have no trailers.
#[must_use]
pub fn has_type(fields: &HeaderMap) -> bool {
    // Comparing names is cheaper than looking up a field that most requests lack.
    let mut kinds = fields
        .iter()
        .filter(|(name, _)| **name == header::CONTENT_TYPE);
    kinds
        .next()
        .is_some_and(|(_, kind)| is_type(kind.as_bytes()))
}

/// Is it a content type of gRPC?
#[must_use]
pub fn is_type(kind: &[u8]) -> bool {
    let Some((first, rest)) = kind.split_at_checked(CONTENT.len()) else {
        return false;
    };
    first.eq_ignore_ascii_case(CONTENT) && matches!(rest.first(), None | Some(b';' | b'+' | b' '))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn calls_are_told_by_their_type() {
        for kind in [
            "application/grpc",
            "Application/gRPC",
            "application/grpc+proto",
            "application/grpc;charset=utf-8",
        ] {
            assert!(is_type(kind.as_bytes()), "{kind}");
        }
        for kind in [
            "application/grpc-web",
            "application/grpc-web+proto",
            "application/grpcx",
            "application/grp",
            "text/plain",
            "",
        ] {
            assert!(!is_type(kind.as_bytes()), "{kind}");
        }
    }

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
}
