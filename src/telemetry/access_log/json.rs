//! A request as one JSON object. Its names equal the names in a trace, so that a log can be replayed.
//!
//! serde's derive was considered. Untrusted texts are cut at a length, may not be UTF-8 and have more characters
//! escaped than JSON requires, and times are decimals without a float. Each of these would need an adapter, and the
//! adapters are longer than the code that the derive would save.

use super::escape::{self, millis, number, protocol};
use super::record::{AccessRecord, CallRecord, NumbersOf, TlsFacts};
use super::timestamp::TimestampText;
use crate::client::UNIX;
use std::net::IpAddr;
use std::time::Duration;

/// Writes the object without its closing brace. Each name comes with its punctuation, to be copied in one piece.
pub(super) fn write(out: &mut Vec<u8>, timestamp: &mut TimestampText, record: &AccessRecord<'_>) {
    out.extend(br#"{"ts":""#);
    timestamp.rfc3339(out, record.ts);
    let client = out.len();
    member(out, br#"","client":"#, ClientAddress(record.client));
    let client = client + br#"","client":"#.len()..out.len();
    member(out, br#","customer":"#, record.customer);
    member(out, br#","method":"#, record.method);
    member(out, br#","host":"#, record.host);
    member(out, br#","path":"#, record.path);
    member(out, br#","request_id":"#, record.request_id);
    member(out, br#","status":"#, u64::from(record.status));
    member(out, br#","reason":"#, JsonWord(record.reason.as_str()));
    member(out, br#","route":"#, record.route);
    decision(out, record);
    member(out, br#","upstream":"#, record.upstream);
    member(out, br#","upstream_ms":"#, record.upstream_time);
    call(out, record);
    if let Some(status) = record.grpc_status {
        member(out, br#","grpc_status":"#, status.map(u64::from));
    }
    if let Some(by) = record.ended_by {
        member(out, br#","ended_by":"#, JsonWord(by.as_str()));
    }
    member(out, br#","bytes_in":"#, record.bytes_in);
    member(out, br#","bytes_out":"#, record.bytes_out);
    if record.peer == record.client {
        // Most clients connect directly, and an address is written once.
        out.extend_from_slice(br#","peer":"#);
        out.extend_from_within(client);
    } else {
        member(out, br#","peer":"#, ClientAddress(record.peer));
    }
    member(
        out,
        br#","proto":"#,
        record.proto.map(|proto| JsonWord(protocol(proto))),
    );
    member(out, br#","user_agent":"#, record.user_agent);
    if let Some(tls) = &record.tls {
        handshake(out, tls);
    }
}

/// The names about limits, and the times of the request.
fn decision(out: &mut Vec<u8>, record: &AccessRecord<'_>) {
    let by_limit = record.charges.iter().map(|charge| charge.limit);
    let keys = record.charges.iter().map(|charge| charge.key);
    let costs = record.charges.iter().map(|charge| charge.cost);
    member(out, br#","limit":"#, record.limit);
    member(out, br#","window":"#, record.window);
    member(out, br#","shadow":"#, record.would_refuse);
    member(out, br#","delay_ms":"#, record.delay);
    member(out, br#","duration_ms":"#, record.duration);
    member(out, br#","keys":"#, JsonObject(by_limit.clone().zip(keys)));
    member(out, br#","costs":"#, JsonObject(by_limit.zip(costs)));
    let of_groups = record.groups.iter().filter_map(|(limit, of)| match of {
        NumbersOf::Group(group) => Some((*limit, *group)),
        NumbersOf::Customer => None,
    });
    member(out, br#","groups":"#, JsonObject(of_groups.clone()));
    if of_groups.count() < record.groups.len() {
        customer_numbers(out, record);
    }
    member(out, br#","remaining":"#, record.remaining);
    member(out, br#","retry_after_ms":"#, record.retry_after);
    member(
        out,
        br#","decided_by":"#,
        record.decided_by.map(|by| JsonWord(by.as_str())),
    );
}

/// The limits in which the customer has numbers of its own.
#[cold]
fn customer_numbers(out: &mut Vec<u8>, record: &AccessRecord<'_>) {
    let all = record.groups.iter();
    let own = all.filter(|(_, of)| *of == NumbersOf::Customer);
    let own: Vec<&str> = own.map(|(limit, _)| *limit).collect();
    member(out, br#","own":"#, &*own);
}

/// The names that only the line of a TLS connection has.
fn handshake(out: &mut Vec<u8>, tls: &TlsFacts<'_>) {
    member(out, br#","tls":{"version":"#, tls.version);
    member(out, br#","identity":"#, tls.identity);
    member(out, br#","resumed":"#, tls.is_resumed);
    if let Some(sni) = tls.other_sni {
        member(out, br#","sni":"#, sni);
    }
    out.push(b'}');
    if let Some(subject) = tls.client_subject {
        member(out, br#","client_subject":"#, subject);
    }
}

/// The server, and the attempts to reach it. Most requests go to one server, on an existing connection.
fn call(out: &mut Vec<u8>, record: &AccessRecord<'_>) {
    const USUAL: CallRecord = CallRecord {
        attempts: 1,
        retry: None,
        connect: None,
        queued: None,
    };
    if let Some(fault) = record.upstream_fault {
        member(out, br#","upstream_fault":"#, fault);
    }
    member(out, br#","server":"#, record.upstream);
    if record.call == USUAL {
        out.extend_from_slice(br#","attempts":1,"retry":null,"connect_ms":null,"queued_ms":null"#);
        return;
    }
    member(out, br#","attempts":"#, u64::from(record.call.attempts));
    member(out, br#","retry":"#, record.call.retry.map(JsonWord));
    member(out, br#","connect_ms":"#, record.call.connect);
    member(out, br#","queued_ms":"#, record.call.queued);
}

fn member(out: &mut Vec<u8>, name: &[u8], value: impl JsonValue) {
    out.extend_from_slice(name);
    value.write(out);
}

/// A value that can follow a name.
trait JsonValue {
    fn write(self, out: &mut Vec<u8>);
}

impl JsonValue for &[u8] {
    fn write(self, out: &mut Vec<u8>) {
        out.push(b'"');
        escape::json(out, self);
        out.push(b'"');
    }
}

impl JsonValue for &str {
    fn write(self, out: &mut Vec<u8>) {
        self.as_bytes().write(out);
    }
}

/// A word of the gateway's own, which needs no escape.
struct JsonWord(&'static str);

impl JsonValue for JsonWord {
    fn write(self, out: &mut Vec<u8>) {
        out.push(b'"');
        out.extend_from_slice(self.0.as_bytes());
        out.push(b'"');
    }
}

/// An address; the peer of a Unix socket has none.
impl JsonValue for ClientAddress {
    fn write(self, out: &mut Vec<u8>) {
        match self.0 {
            Some(address) => address.write(out),
            None => JsonWord(UNIX).write(out),
        }
    }
}

struct ClientAddress(Option<IpAddr>);

impl JsonValue for IpAddr {
    fn write(self, out: &mut Vec<u8>) {
        out.push(b'"');
        escape::address(out, self);
        out.push(b'"');
    }
}

impl JsonValue for u64 {
    fn write(self, out: &mut Vec<u8>) {
        number(out, self);
    }
}

impl JsonValue for bool {
    fn write(self, out: &mut Vec<u8>) {
        out.extend_from_slice(if self { b"true" } else { b"false" });
    }
}

impl JsonValue for Duration {
    fn write(self, out: &mut Vec<u8>) {
        millis(out, self);
    }
}

impl<V: JsonValue> JsonValue for Option<V> {
    fn write(self, out: &mut Vec<u8>) {
        match self {
            None => out.extend(b"null"),
            Some(value) => value.write(out),
        }
    }
}

impl JsonValue for &[&str] {
    fn write(self, out: &mut Vec<u8>) {
        out.push(b'[');
        for (index, text) in self.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            text.write(out);
        }
        out.push(b']');
    }
}

/// One value for each limit, under the limit's name.
struct JsonObject<I>(I);

impl<'a, V: JsonValue, I: Iterator<Item = (&'a str, V)>> JsonValue for JsonObject<I> {
    fn write(self, out: &mut Vec<u8>) {
        out.push(b'{');
        for (index, (limit, value)) in self.0.enumerate() {
            if index > 0 {
                out.push(b',');
            }
            limit.write(out);
            member(out, b":", value);
        }
        out.push(b'}');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::access_log::{Charge, Reason};
    use crate::telemetry::metrics::EndedBy;
    use crate::telemetry::metrics::label::Label;
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
            "ts": "2026-11-20T17:48:50.123456Z", "client": "203.0.113.9", "customer": null, "method": "GET",
            "host": "api.example.com", "path": "/v1/orders/42", "request_id": "01930b7e",
            "status": 200, "reason": "ok", "route": "orders", "limit": "per-key", "window": null, "shadow": [], "delay_ms": 0,
            "duration_ms": 3.15, "keys": {"per-key": "abc"}, "costs": {"per-key": 2}, "groups": {"per-key": "gold"},
            "remaining": 19, "retry_after_ms": null, "decided_by": "store",
            "upstream": "10.1.0.5:3000", "upstream_ms": 2.9, "server": "10.1.0.5:3000",
            "attempts": 1, "retry": null, "connect_ms": null, "queued_ms": null, "bytes_in": 0, "bytes_out": 212,
            "peer": "10.0.0.4", "proto": "HTTP/1.1", "user_agent": "curl/8.7",
        });
        let mut record = AccessRecord::sample();
        record.groups = &[("per-key", NumbersOf::Group("gold"))];
        assert_eq!(parsed(&record), expected);
    }

    #[test]
    fn every_name_and_every_reason_is_in_the_documentation() {
        let documented = include_str!("../../../docs/observability.md");
        let ended = AccessRecord {
            ended_by: Some(EndedBy::MinRate),
            ..AccessRecord::sample()
        };
        assert_eq!(parsed(&ended)["ended_by"], "min_rate");
        for name in parsed(&ended).as_object().unwrap().keys() {
            assert!(documented.contains(&format!("`{name}`")), "{name}");
        }
        for reason in <Reason as Label>::ALL {
            let row = format!("| `{}` |", reason.as_str());
            assert!(documented.contains(&row), "{row}");
        }
    }

    #[test]
    fn a_handshake_is_told_with_what_differs() {
        let mut record = AccessRecord::sample();
        assert!(parsed(&record).get("tls").is_none());
        let mut tls = TlsFacts {
            version: "1.3",
            identity: "api",
            is_resumed: true,
            other_sni: None,
            client_subject: None,
        };
        record.tls = Some(tls);
        let line = parsed(&record);
        let expected = json!({"version": "1.3", "identity": "api", "resumed": true});
        assert_eq!(line["tls"], expected);
        assert!(line.get("client_subject").is_none());
        (tls.other_sni, tls.client_subject) = (Some(None), Some(Some("CN=\"a\"")));
        record.tls = Some(tls);
        let line = parsed(&record);
        assert_eq!(line["tls"].get("sni"), Some(&Value::Null));
        assert_eq!(line["client_subject"], "CN=\"a\"");
    }

    #[test]
    fn calls_of_grpc_have_a_status() {
        let mut record = AccessRecord::sample();
        assert!(parsed(&record).get("grpc_status").is_none());
        record.grpc_status = Some(Some(14));
        assert_eq!(parsed(&record)["grpc_status"], 14);
        record.grpc_status = Some(None);
        assert_eq!(parsed(&record).get("grpc_status"), Some(&Value::Null));
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
        assert_eq!(line["client"], "unix");
        for name in ["method", "path", "proto"] {
            assert_eq!(line[name], Value::Null, "{name}");
        }
        assert_eq!(line["route"], Value::Null);
        assert_eq!(line["keys"], json!({}));
    }

    /// The text of these bytes; if some are not UTF-8, those and backslashes in hexadecimal.
    fn readable(bytes: &[u8]) -> String {
        if let Ok(text) = str::from_utf8(bytes) {
            return text.to_owned();
        }
        let chunks = bytes.utf8_chunks().map(|chunk| {
            let invalid = chunk.invalid().iter();
            let invalid: String = invalid.map(|byte| format!("\\x{byte:02x}")).collect();
            chunk.valid().replace('\\', "\\x5c") + &invalid
        });
        chunks.collect()
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
            prop_assert_eq!(line.as_object().map(|line| line.len()), Some(33));
            if more == 0 && bytes.len() <= crate::telemetry::access_log::escape::LONGEST {
                prop_assert_eq!(line["path"].as_str(), Some(&*readable(&bytes)));
            }
        }
    }
}
