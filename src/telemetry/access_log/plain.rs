//! A request as a line of text: short for a person at a terminal, or as Apache's combined log for older tools.

use super::escape::{address, apache, millis, number, protocol, terminal};
use super::record::{AccessRecord, Reason};
use super::stamp::Stamp;
use std::io::Write;

/// `17:48:50.123Z 203.0.113.9 GET /v1/orders/42 429 0.31ms over limit per-key, again in 400ms`
pub(super) fn short(
    out: &mut Vec<u8>,
    stamp: &mut Stamp,
    record: &AccessRecord<'_>,
    is_coloured: bool,
) {
    stamp.time_of_day(out, record.ts);
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
    why(out, record);
}

fn client(out: &mut Vec<u8>, record: &AccessRecord<'_>) {
    match record.client {
        Some(client) => address(out, client),
        None => out.push(b'-'),
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
    // Writing to a vector does not fail.
    let _ = write!(out, "\x1b[{colour}m{status}\x1b[0m");
}

fn why(out: &mut Vec<u8>, record: &AccessRecord<'_>) {
    let limit = record.limit.unwrap_or("?").as_bytes();
    match record.reason {
        Reason::Ok => {}
        Reason::LimitRefused => {
            out.extend(b" over limit ");
            terminal(out, limit);
            match record.retry_after {
                Some(wait) => {
                    out.extend(b", again in ");
                    millis(out, wait);
                    out.extend(b"ms");
                }
                None => out.extend(b", never admitted"),
            }
        }
        Reason::LimitDelayed => {
            out.extend(b" held ");
            millis(out, record.delay);
            out.extend(b"ms by limit ");
            terminal(out, limit);
        }
        other => {
            out.push(b' ');
            out.extend(other.in_words().as_bytes());
        }
    }
}

/// `203.0.113.9 - - [20/Nov/2026:17:48:50 +0000] "GET /v1/orders/42 HTTP/1.1" 200 212 "-" "curl/8.7"`
pub(super) fn combined(out: &mut Vec<u8>, stamp: &mut Stamp, record: &AccessRecord<'_>) {
    client(out, record);
    out.extend(b" - - [");
    stamp.apache(out, record.ts);
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
    // The referrer is not kept: it is somebody's address with its query.
    out.extend(b" \"-\" \"");
    apache(out, record.user_agent.unwrap_or(b"-"));
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn short_line(record: &AccessRecord<'_>, is_coloured: bool) -> String {
        let mut out = Vec::new();
        short(&mut out, &mut Stamp::default(), record, is_coloured);
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
        record.reason = Reason::NoRoute;
        assert!(short_line(&record, false).ends_with(" no route matches"));
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
        combined(&mut out, &mut Stamp::default(), &record);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            r#"203.0.113.9 - - [20/Nov/2026:17:48:50 +0000] "GET /v1/orders/42 HTTP/1.1" 200 212 "-" "a\"b""#
        );
    }
}
