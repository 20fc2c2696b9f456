//! A request as a line of text: short for a person at a terminal, or as Apache's combined log for older tools.

use super::escape::{address, apache, millis, number, protocol, terminal};
use super::record::{AccessRecord, Reason};
use super::timestamp::TimestampText;
use crate::client::UNIX;
use std::io::Write;
use std::time::Duration;

/// `17:48:50.123Z 203.0.113.9 GET /v1/orders/42 429 0.31ms over limit per-key, again in 400ms`
pub(super) fn short(
    out: &mut Vec<u8>,
    timestamp: &mut TimestampText,
    record: &AccessRecord<'_>,
    is_coloured: bool,
) {
    timestamp.time_of_day(out, record.ts);
    out.push(b' ');
    client(out, record);
    out.push(b' ');
    terminal(out, record.method.unwrap_or("-").as_bytes());
    out.push(b' ');
    terminal(out, record.path.unwrap_or(b"-"));
    out.push(b' ');
    status(out, record.status, is_coloured);
    out.push(b' ');
    millis(out, record.duration);
    out.extend(b"ms");
    if let Some(Some(status @ 1..)) = record.grpc_status {
        out.extend(b" grpc-status ");
        number(out, u64::from(status));
    }
    why(out, record);
    if let Some(by) = record.ended_by {
        out.extend(b", ended by ");
        out.extend(by.as_str().as_bytes());
    }
    for (index, limit) in record.would_refuse.iter().enumerate() {
        out.extend(if index == 0 {
            &b" (in shadow over "[..]
        } else {
            b", "
        });
        terminal(out, limit.as_bytes());
    }
    if !record.would_refuse.is_empty() {
        out.push(b')');
    }
}

fn client(out: &mut Vec<u8>, record: &AccessRecord<'_>) {
    match record.client {
        Some(client) => address(out, client),
        None => out.extend_from_slice(UNIX.as_bytes()),
    }
}

fn status(out: &mut Vec<u8>, status: u16, is_coloured: bool) {
    if !is_coloured {
        return number(out, u64::from(status));
    }
    let colour = match status {
        ..300 => "32",
        300..400 => "36",
        400..500 => "33",
        500.. => "31",
    };
    // Writing to a vector cannot fail.
    let _ = write!(out, "\x1b[{colour}m{status}\x1b[0m");
}

fn why(out: &mut Vec<u8>, record: &AccessRecord<'_>) {
    let limit = record.limit.unwrap_or("?").as_bytes();
    match record.reason {
        Reason::Ok => {}
        Reason::LimitRefused | Reason::LimitBlocked => {
            out.extend(match record.reason {
                Reason::LimitBlocked => b" blocked by limit ".as_slice(),
                _ => b" over limit ",
            });
            terminal(out, limit);
            if let Some(window) = record.window {
                out.extend(b" of ");
                terminal(out, window.as_bytes());
            }
            match record.retry_after {
                Some(wait) => {
                    out.extend(b", again in ");
                    span(out, wait);
                }
                None => out.extend(b", never admitted"),
            }
        }
        Reason::LimitDelayed => {
            out.extend(b" held ");
            span(out, record.delay);
            out.extend(b" by limit ");
            terminal(out, limit);
        }
        other => {
            out.push(b' ');
            out.extend(other.in_words().as_bytes());
            if let (true, Some(server)) = (other.blames_server(), record.upstream) {
                out.extend(b", last ");
                terminal(out, server.as_bytes());
            }
            if let Some(fault) = record.upstream_fault {
                out.extend(b": ");
                terminal(out, fault.as_bytes());
            }
        }
    }
}

/// The units of a wait in microseconds, and the finest unit that is written with each.
const UNITS: [(&str, u128, u128); 6] = [
    ("d", 86_400_000_000, 3_600_000_000),
    ("h", 3_600_000_000, 60_000_000),
    ("m", 60_000_000, 1_000_000),
    ("s", 1_000_000, 1_000),
    ("ms", 1_000, 1_000),
    ("us", 1, 1),
];

/// Writes a wait in two units at most: `250ms`, `1h`, `59m 59s`. The wait is rounded up, because a client that retries
/// too early is refused again.
fn span(out: &mut Vec<u8>, wait: Duration) {
    let unit = |micros: u128| UNITS.iter().find(|(_, length, _)| *length <= micros);
    let finest = unit(wait.as_micros()).map_or(1, |(_, _, finest)| *finest);
    let mut rest = wait.as_micros().div_ceil(finest) * finest;
    if rest == 0 {
        out.extend(b"0ms");
    }
    let mut blank = "";
    while let Some((name, length, _)) = unit(rest) {
        // Writing to a vector cannot fail.
        let _ = write!(out, "{blank}{}{name}", rest / length);
        rest %= length;
        blank = " ";
    }
}

/// `203.0.113.9 - - [20/Nov/2026:17:48:50 +0000] "GET /v1/orders/42 HTTP/1.1" 200 212 "-" "curl/8.7"`
pub(super) fn combined(
    out: &mut Vec<u8>,
    timestamp: &mut TimestampText,
    record: &AccessRecord<'_>,
) {
    client(out, record);
    out.extend(b" - - [");
    timestamp.apache(out, record.ts);
    out.extend(b"] \"");
    apache(out, record.method.unwrap_or("-").as_bytes());
    if let (Some(path), Some(version)) = (record.path, record.proto) {
        out.push(b' ');
        apache(out, path);
        out.push(b' ');
        out.extend(protocol(version).as_bytes());
    }
    out.extend(b"\" ");
    number(out, u64::from(record.status));
    out.push(b' ');
    number(out, record.bytes_out);
    // The referrer is not recorded: it is a URL with its query.
    out.extend(b" \"-\" \"");
    apache(out, record.user_agent.unwrap_or(b"-"));
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn short_line(record: &AccessRecord<'_>, is_coloured: bool) -> String {
        let mut out = Vec::new();
        short(&mut out, &mut TimestampText::default(), record, is_coloured);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_short_line_says_why() {
        let mut record = AccessRecord::sample();
        let line = short_line(&record, false);
        assert_eq!(
            line,
            "17:48:50.123Z 203.0.113.9 GET /v1/orders/42 200 3.15ms"
        );
        (record.status, record.reason) = (429, Reason::LimitRefused);
        record.retry_after = Some(Duration::from_millis(400));
        let line = short_line(&record, true);
        assert!(line.ends_with("\x1b[33m429\x1b[0m 3.15ms over limit per-key, again in 400ms"));
        (record.reason, record.delay) = (Reason::LimitDelayed, Duration::from_millis(20));
        assert!(short_line(&record, false).ends_with(" held 20ms by limit per-key"));
        record.delay = Duration::from_millis(2_300);
        assert!(short_line(&record, false).ends_with(" held 2s 300ms by limit per-key"));
        record.reason = Reason::NoRoute;
        assert!(short_line(&record, false).ends_with(" no route matches"));
        record.grpc_status = Some(Some(12));
        assert!(short_line(&record, false).ends_with("ms grpc-status 12 no route matches"));
    }

    #[test]
    fn waits_are_said_as_people_say_them() {
        const MINUTE: u64 = 60_000_000;
        for (micros, said) in [
            (0, "0ms"),
            (7, "7us"),
            (250_000, "250ms"),
            (250_001, "251ms"),
            (999_999, "1s"),
            (1_500_000, "1s 500ms"),
            (59 * MINUTE + 59_000_000, "59m 59s"),
            (3_599_998_386, "1h"),
            (90 * MINUTE, "1h 30m"),
            (24 * 60 * MINUTE - 1, "1d"),
            (25 * 60 * MINUTE, "1d 1h"),
            (400 * 24 * 60 * MINUTE, "400d"),
        ] {
            let mut out = Vec::new();
            span(&mut out, Duration::from_micros(micros));
            assert_eq!(String::from_utf8(out).unwrap(), said);
        }
    }

    #[test]
    fn a_path_cannot_paint_on_the_terminal() {
        let mut record = AccessRecord::sample();
        record.path = Some(b"/\x1b[2J\n\x07");
        let line = short_line(&record, false);
        assert!(!line.contains(|c: char| c.is_control()), "{line}");
    }

    #[test]
    fn a_combined_line_is_apaches() {
        let mut record = AccessRecord::sample();
        record.user_agent = Some(b"a\"b");
        let mut out = Vec::new();
        combined(&mut out, &mut TimestampText::default(), &record);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            r#"203.0.113.9 - - [20/Nov/2026:17:48:50 +0000] "GET /v1/orders/42 HTTP/1.1" 200 212 "-" "a\"b""#
        );
    }
}
