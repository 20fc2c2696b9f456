//! The deadline of a forwarded call: `grpc-timeout` is rewritten with the remaining time.

use crate::intake::grpc_call::{CallDeadline, GRPC_TIMEOUT};
use crate::proxy::answer::header_value;
use crate::proxy::grpc::LAST_PART;
use http::{HeaderMap, HeaderValue};
use std::time::Duration;
use tokio::time::Instant;

/// The first number that has more digits.
const TOO_LONG: u128 = 100_000_000;
/// A timeout that has hardly begun is forwarded as the client wrote it: this fraction of it may have passed.
const HARDLY: u32 = 100;

impl CallDeadline {
    /// Has the time passed at `now`?
    #[must_use]
    pub(super) fn has_passed(&self, now: Instant) -> bool {
        self.at <= now
    }

    /// Has the time passed at `now`, except for its last part?
    #[must_use]
    pub(super) fn has_nearly_passed(&self, now: Instant) -> bool {
        self.at <= now + self.whole / LAST_PART
    }

    /// Writes the remaining time, or the time until `end`, if that is sooner.
    pub(super) fn write(&self, fields: &mut HeaderMap, end: Option<Instant>, now: Instant) {
        let until_timeout = self.at.saturating_duration_since(now);
        let left = end.map_or(until_timeout, |end| {
            until_timeout.min(end.saturating_duration_since(now))
        });
        if left + self.whole / HARDLY >= self.whole {
            return;
        }
        if let Some(value) = written(left) {
            fields.insert(GRPC_TIMEOUT, value);
        }
    }
}

/// A time as a value, rounded down except for the shortest: a value above zero is required.
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
    use crate::intake::grpc_call::parsed;
    use proptest::prelude::*;

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
