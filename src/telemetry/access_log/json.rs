//! A request as one JSON object. Its names are a trace's, so that a log can be replayed.
//!
//! serde's derive was weighed for this: texts from outside are cut at a length, may be no UTF-8 and have more characters
//! escaped than JSON asks for, and times are decimals without a float. Each of these would need an adapter, and the
//! adapters are longer than what the derive would save.

use super::escape::{self, json, millis, number, protocol};
use super::record::AccessRecord;
use super::timestamp::TimestampText;
use std::net::IpAddr;

/// Writes everything but the closing brace. Each name comes with its punctuation, to be copied in one piece.
pub(super) fn write(out: &mut Vec<u8>, timestamp: &mut TimestampText, record: &AccessRecord<'_>) {
    out.extend(br#"{"ts":""#);
    timestamp.rfc3339(out, record.ts);
    out.extend(br#"","client":"#);
    address(out, record.client);
    out.extend(br#","method":"#);
    text(out, record.method.map(str::as_bytes));
    out.extend(br#","host":"#);
    text(out, record.host);
    out.extend(br#","path":"#);
    text(out, record.path);
    out.extend(br#","request_id":""#);
    json(out, record.request_id);
    out.extend(br#"","status":"#);
    number(out, u64::from(record.status));
    out.extend(br#","reason":""#);
    out.extend(record.reason.as_str().as_bytes());
    out.extend(br#"","route":"#);
    text(out, record.route.map(str::as_bytes));
    limits(out, record);
    out.extend(br#","upstream":"#);
    text(out, record.upstream.map(str::as_bytes));
    out.extend(br#","upstream_ms":"#);
    value(out, record.upstream_time, millis);
    out.extend(br#","bytes_in":"#);
    number(out, record.bytes_in);
    out.extend(br#","bytes_out":"#);
    number(out, record.bytes_out);
    out.extend(br#","peer":"#);
    address(out, record.peer);
    out.extend(br#","proto":"#);
    text(
        out,
        record.proto.map(|version| protocol(version).as_bytes()),
    );
    out.extend(br#","user_agent":"#);
    text(out, record.user_agent);
}

/// The answers of the limits, and how long everything took.
fn limits(out: &mut Vec<u8>, record: &AccessRecord<'_>) {
    out.extend(br#","limit":"#);
    text(out, record.limit.map(str::as_bytes));
    out.extend(br#","window":"#);
    text(out, record.window.map(str::as_bytes));
    out.extend(br#","shadow":["#);
    for (index, limit) in record.would_refuse.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        text(out, Some(limit.as_bytes()));
    }
    out.push(b']');
    out.extend(br#","delay_ms":"#);
    millis(out, record.delay);
    out.extend(br#","duration_ms":"#);
    millis(out, record.duration);
    out.extend(br#","keys":"#);
    object(
        out,
        record.charges,
        |charge| charge.limit,
        |out, charge| text(out, Some(charge.key)),
    );
    out.extend(br#","costs":"#);
    object(
        out,
        record.charges,
        |charge| charge.limit,
        |out, charge| number(out, charge.cost),
    );
    out.extend(br#","groups":"#);
    object(
        out,
        record.groups,
        |(limit, _)| limit,
        |out, (_, group)| text(out, Some(group.as_bytes())),
    );
    out.extend(br#","remaining":"#);
    value(out, record.remaining, number);
    out.extend(br#","retry_after_ms":"#);
    value(out, record.retry_after, millis);
    out.extend(br#","decided_by":"#);
    let by = record.decided_by.map(|by| by.as_str().as_bytes());
    text(out, by);
}

fn text(out: &mut Vec<u8>, text: Option<&[u8]>) {
    value(out, text, |out, text| {
        out.push(b'"');
        json(out, text);
        out.push(b'"');
    });
}

fn address(out: &mut Vec<u8>, address: Option<IpAddr>) {
    value(out, address, |out, address| {
        out.push(b'"');
        escape::address(out, address);
        out.push(b'"');
    });
}

fn value<T>(out: &mut Vec<u8>, value: Option<T>, write: impl FnOnce(&mut Vec<u8>, T)) {
    match value {
        None => out.extend(b"null"),
        Some(value) => write(out, value),
    }
}

/// Something of each limit, by its name.
fn object<'a, T>(
    out: &mut Vec<u8>,
    entries: &'a [T],
    limit: impl Fn(&'a T) -> &'a str,
    mut value: impl FnMut(&mut Vec<u8>, &T),
) {
    out.push(b'{');
    for (i, entry) in entries.iter().enumerate() {
        out.extend(if i == 0 { &b"\""[..] } else { b",\"" });
        json(out, limit(entry).as_bytes());
        out.extend(b"\":");
        value(out, entry);
    }
    out.push(b'}');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::access_log::{Charge, Reason};
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn parsed(record: &AccessRecord<'_>) -> Value {
        let mut out = Vec::new();
        write(&mut out, &mut TimestampText::default(), record);
        out.push(b'}');
        assert!(!out.contains(&b'\n'));
        serde_json::from_slice(&out).unwrap()
    }

    #[test]
    fn every_name_is_there_with_its_value() {
        let expected = json!({
            "ts": "2026-11-20T17:48:50.123456Z", "client": "203.0.113.9", "method": "GET",
            "host": "api.example.com", "path": "/v1/orders/42", "request_id": "01930b7e",
            "status": 200, "reason": "ok", "route": "orders", "limit": "per-key", "window": null, "shadow": [], "delay_ms": 0,
            "duration_ms": 3.15, "keys": {"per-key": "abc"}, "costs": {"per-key": 2}, "groups": {"per-key": "gold"},
            "remaining": 19, "retry_after_ms": null, "decided_by": "store",
            "upstream": "10.1.0.5:3000", "upstream_ms": 2.9, "bytes_in": 0, "bytes_out": 212,
            "peer": "10.0.0.4", "proto": "HTTP/1.1", "user_agent": "curl/8.7",
        });
        let mut record = AccessRecord::sample();
        record.groups = &[("per-key", "gold")];
        assert_eq!(parsed(&record), expected);
    }

    #[test]
    fn every_name_and_every_reason_is_in_the_documentation() {
        let documented = include_str!("../../../docs/observability.md");
        for name in parsed(&AccessRecord::sample()).as_object().unwrap().keys() {
            assert!(documented.contains(&format!("`{name}`")), "{name}");
        }
        for reason in Reason::ALL {
            let row = format!("| `{}` |", reason.as_str());
            assert!(documented.contains(&row), "{row}");
        }
    }

    #[test]
    fn limits_that_only_count_are_listed() {
        let mut record = AccessRecord::sample();
        record.would_refuse = &["tight", "per-key:candidate"];
        let expected = json!(["tight", "per-key:candidate"]);
        assert_eq!(parsed(&record)["shadow"], expected);
    }

    #[test]
    fn what_is_not_there_is_null() {
        let mut record = AccessRecord::sample();
        record.client = None;
        (record.method, record.path, record.proto) = (None, None, None);
        record.route = None;
        record.charges = &[];
        let line = parsed(&record);
        for name in ["client", "method", "path", "proto"] {
            assert_eq!(line[name], Value::Null, "{name}");
        }
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
            (record.path, record.host, record.user_agent) = (Some(&long[..]), short, short);
            (record.request_id, record.method, record.charges) = (&bytes, Some(name.as_str()), &charges);
            let line = parsed(&record);
            prop_assert_eq!(line.as_object().map(|line| line.len()), Some(27));
            if more == 0 && bytes.len() <= super::super::escape::LONGEST {
                let expected = String::from_utf8_lossy(&bytes);
                prop_assert_eq!(line["path"].as_str(), Some(&*expected));
            }
        }
    }
}
