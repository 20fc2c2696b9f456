//! Instants as text; the calendar is computed once a second.

use super::escape::padded;
use jiff::Timestamp;
use std::fmt::Write;

/// The last second, in the forms that lines use.
#[derive(Debug, Default)]
pub(super) struct TimestampText {
    second: Option<u64>,
    /// `2026-11-20T17:48:50`
    rfc3339: String,
    /// `20/Nov/2026:17:48:50`
    apache: String,
}

impl TimestampText {
    /// `2026-11-20T17:48:50.123456Z`
    pub(super) fn rfc3339(&mut self, out: &mut Vec<u8>, micros: u64) {
        self.turn(micros);
        out.extend(self.rfc3339.as_bytes());
        out.push(b'.');
        padded::<6>(out, micros % 1_000_000);
        out.push(b'Z');
    }

    /// `17:48:50.123Z`
    pub(super) fn time_of_day(&mut self, out: &mut Vec<u8>, micros: u64) {
        self.turn(micros);
        let (_, time) = self.rfc3339.split_once('T').unwrap_or_default();
        out.extend(time.as_bytes());
        out.push(b'.');
        padded::<3>(out, micros / 1_000 % 1_000);
        out.push(b'Z');
    }

    /// `20/Nov/2026:17:48:50 +0000`
    pub(super) fn apache(&mut self, out: &mut Vec<u8>, micros: u64) {
        self.turn(micros);
        out.extend(self.apache.as_bytes());
        out.extend(b" +0000");
    }

    fn turn(&mut self, micros: u64) {
        let second = micros / 1_000_000;
        if self.second == Some(second) {
            return;
        }
        self.second = Some(second);
        self.rfc3339.clear();
        self.apache.clear();
        // Beyond the year 9999 there is no such text; the end of the calendar is written instead.
        let at = i64::try_from(second)
            .ok()
            .and_then(|second| Timestamp::from_second(second).ok())
            .unwrap_or(Timestamp::MAX);
        // Writing to a string cannot fail.
        let _ = write!(self.rfc3339, "{}", at.strftime("%Y-%m-%dT%H:%M:%S"));
        let _ = write!(self.apache, "{}", at.strftime("%d/%b/%Y:%H:%M:%S"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_instant_in_three_forms() {
        let mut timestamp = TimestampText::default();
        let mut out = Vec::new();
        timestamp.rfc3339(&mut out, 1_795_196_930_000_456);
        out.push(b'|');
        timestamp.time_of_day(&mut out, 1_795_196_930_123_456);
        out.push(b'|');
        timestamp.apache(&mut out, 1_795_196_931_123_456);
        let text = String::from_utf8(out).unwrap();
        assert_eq!(
            text,
            "2026-11-20T17:48:50.000456Z|17:48:50.123Z|20/Nov/2026:17:48:51 +0000"
        );
    }

    #[test]
    fn no_number_is_too_large() {
        let mut out = Vec::new();
        let mut timestamp = TimestampText::default();
        timestamp.rfc3339(&mut out, u64::MAX);
        assert!(out.starts_with(b"9999-"));
    }
}
