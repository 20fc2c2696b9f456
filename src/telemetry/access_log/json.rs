//! A request as one JSON object. Its names are those of a trace, so that a log can be replayed.

use super::escape::{json, millis, number};
use super::record::{AccessRecord, Charge};
use super::stamp::Stamp;
use std::fmt::Display;
use std::io::Write;
use std::net::IpAddr;

/// Writes everything but the closing brace.
pub(super) fn write(out: &mut Vec<u8>, stamp: &mut Stamp, record: &AccessRecord<'_>) {
    out.extend(br#"{"ts":""#);
    stamp.rfc3339(out, record.ts);
    out.push(b'"');
    address(out, "client", record.client);
    text(out, "method", Some(record.method.as_bytes()));
    text(out, "host", record.host);
    text(out, "path", Some(record.path));
    text(out, "request_id", Some(record.request_id));
    integer(out, "status", Some(u64::from(record.status)));
    text(out, "reason", Some(record.reason.as_str().as_bytes()));
    text(out, "route", record.route.map(str::as_bytes));
    text(out, "limit", record.limit.map(str::as_bytes));
    name(out, "delay_ms");
    millis(out, record.delay);
    name(out, "duration_ms");
    millis(out, record.duration);
    name(out, "keys");
    object(out, record.charges, |out, charge| {
        out.push(b'"');
        json(out, charge.key);
        out.push(b'"');
    });
    name(out, "costs");
    object(out, record.charges, |out, charge| number(out, charge.cost));
    integer(out, "remaining", record.remaining);
    time(out, "retry_after_ms", record.retry_after);
    let by = record.decided_by.map(|by| by.as_str().as_bytes());
    text(out, "decided_by", by);
    text(out, "upstream", record.upstream.map(str::as_bytes));
    time(out, "upstream_ms", record.upstream_time);
    integer(out, "bytes_in", Some(record.bytes_in));
    integer(out, "bytes_out", Some(record.bytes_out));
    address(out, "peer", record.peer);
    name(out, "proto");
    quoted(out, format_args!("{:?}", record.proto));
    text(out, "user_agent", record.user_agent);
}

fn name(out: &mut Vec<u8>, name: &str) {
    out.extend(b",\"");
    out.extend(name.as_bytes());
    out.extend(b"\":");
}

fn text(out: &mut Vec<u8>, field: &str, value: Option<&[u8]>) {
    name(out, field);
    match value {
        None => out.extend(b"null"),
        Some(value) => {
            out.push(b'"');
            json(out, value);
            out.push(b'"');
        }
    }
}

fn integer(out: &mut Vec<u8>, field: &str, value: Option<u64>) {
    name(out, field);
    match value {
        None => out.extend(b"null"),
        Some(value) => number(out, value),
    }
}

fn time(out: &mut Vec<u8>, field: &str, value: Option<std::time::Duration>) {
    name(out, field);
    match value {
        None => out.extend(b"null"),
        Some(value) => millis(out, value),
    }
}

fn address(out: &mut Vec<u8>, field: &str, value: Option<IpAddr>) {
    name(out, field);
    match value {
        None => out.extend(b"null"),
        Some(value) => quoted(out, value),
    }
}

/// For values whose text needs no escaping.
fn quoted(out: &mut Vec<u8>, value: impl Display) {
    // Writing to a vector does not fail.
    let _ = write!(out, "\"{value}\"");
}

fn object(
    out: &mut Vec<u8>,
    charges: &[Charge<'_>],
    mut value: impl FnMut(&mut Vec<u8>, &Charge<'_>),
) {
    out.push(b'{');
    for (i, charge) in charges.iter().enumerate() {
        out.extend(if i == 0 { &b"\""[..] } else { b",\"" });
        json(out, charge.limit.as_bytes());
        out.extend(b"\":");
        value(out, charge);
    }
    out.push(b'}');
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn parsed(record: &AccessRecord<'_>) -> Value {
        let mut out = Vec::new();
        write(&mut out, &mut Stamp::default(), record);
        out.push(b'}');
        assert!(!out.contains(&b'\n'));
        serde_json::from_slice(&out).unwrap()
    }

    #[test]
    fn every_name_is_there_with_its_value() {
        let expected = json!({
            "ts": "2026-11-20T17:48:50.123456Z", "client": "203.0.113.9", "method": "GET",
            "host": "api.example.com", "path": "/v1/orders/42", "request_id": "01930b7e",
            "status": 200, "reason": "ok", "route": "orders", "limit": "per-key", "delay_ms": 0,
            "duration_ms": 3.15, "keys": {"per-key": "abc"}, "costs": {"per-key": 2},
            "remaining": 19, "retry_after_ms": null, "decided_by": "store",
            "upstream": "10.1.0.5:3000", "upstream_ms": 2.9, "bytes_in": 0, "bytes_out": 212,
            "peer": "10.0.0.4", "proto": "HTTP/1.1", "user_agent": "curl/8.7",
        });
        assert_eq!(parsed(&AccessRecord::sample()), expected);
    }

    #[test]
    fn what_is_not_there_is_null() {
        let mut record = AccessRecord::sample();
        record.client = None;
        record.route = None;
        record.charges = &[];
        let line = parsed(&record);
        assert_eq!(line["client"], Value::Null);
        assert_eq!(line["route"], Value::Null);
        assert_eq!(line["keys"], json!({}));
    }

    proptest! {
        #[test]
        fn no_bytes_from_outside_break_the_line(bytes: Vec<u8>, name: String, more in 0_usize..2_000) {
            let long = [bytes.as_slice(), &vec![b'"'; more]].concat();
            let mut record = AccessRecord::sample();
            let charges = [Charge { limit: &name, key: &long, cost: u64::MAX }];
            let short = Some(bytes.as_slice());
            (record.path, record.host, record.user_agent) = (&long, short, short);
            (record.request_id, record.method, record.charges) = (&bytes, &name, &charges);
            let line = parsed(&record);
            prop_assert_eq!(line.as_object().map(|line| line.len()), Some(24));
            if more == 0 && bytes.len() <= super::super::escape::LONGEST {
                let expected = String::from_utf8_lossy(&bytes);
                prop_assert_eq!(line["path"].as_str(), Some(&*expected));
            }
        }
    }
}
