//! Untrusted fields are removed, trusted peers' extended, hops counted.

use super::hops::{add_via, is_loop};
use super::*;
use crate::key::client_ip::{NamingField, Trust};
use proptest::prelude::*;

fn fields(lines: &[(&str, &str)]) -> HeaderMap {
    let mut fields = HeaderMap::new();
    for (name, value) in lines {
        let name: HeaderName = name.parse().unwrap();
        fields.append(name, value.parse().unwrap());
    }
    fields
}

/// The fields after a request of `peer` for `host` was announced; peers in 10.0.0.0/8 and fd00::/8 are trusted.
fn announced(peer: &str, host: &str, lines: &[(&str, &str)]) -> HeaderMap {
    announced_by(None, (peer, host), lines)
}

/// The same fields, if the peers are known to write `field`.
fn announced_by(
    field: Option<Field>,
    (peer, host): (&str, &str),
    lines: &[(&str, &str)],
) -> HeaderMap {
    let trust = Trust::new(vec![
        "10.0.0.0/8".parse().unwrap(),
        "fd00::/8".parse().unwrap(),
    ]);
    let trust = trust.reading(field.map(NamingField::Chain).as_ref());
    let mut fields = fields(lines);
    let peer = peer.parse().ok();
    let origin = Origin {
        peer,
        client: trust.client(peer, &fields),
        trusted: TrustedFields::of(&trust, peer, &fields),
        host: Some(&host.parse().unwrap()),
        scheme: Scheme::Http,
        version: Version::HTTP_11,
        has_target_host: false,
    };
    announce(&mut fields, &origin, &mut None);
    fields
}

fn assert_fields(fields: &HeaderMap, expected: &[(&str, &str)]) {
    let all = |name: &str| -> Vec<String> {
        let lines = fields.get_all(name).iter();
        lines
            .map(|line| line.to_str().unwrap().to_owned())
            .collect()
    };
    for (name, value) in expected {
        assert_eq!(all(name), [*value], "{name}");
    }
    assert_eq!(fields.len(), expected.len(), "{fields:?}");
}

#[test]
fn a_stranger_is_forgotten() {
    let sent = [
        ("x-forwarded-for", "6.6.6.6"),
        ("x-forwarded-for", "7.7.7.7"),
        ("x-forwarded-host", "evil"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-port", "443"),
        ("x-forwarded-prefix", "/admin"),
        ("x-forwarded-anything", "x"),
        ("forwarded", "for=6.6.6.6;by=x"),
        ("x-real-ip", "6.6.6.6"),
        ("x-original-url", "/limited"),
        ("x-rewrite-url", "/limited"),
    ];
    assert_fields(
        &announced("203.0.113.9", "api.example.com", &sent),
        &[
            ("x-forwarded-for", "203.0.113.9"),
            ("x-forwarded-proto", "http"),
            ("x-forwarded-host", "api.example.com"),
            ("x-real-ip", "203.0.113.9"),
            (
                "forwarded",
                "for=203.0.113.9;host=api.example.com;proto=http",
            ),
        ],
    );
}

#[test]
fn addresses_and_hosts_are_quoted_where_they_must() {
    let forwarded = |peer, host| announced(peer, host, &[])["forwarded"].clone();
    assert_eq!(
        forwarded("2001:db8::1", "a:8080"),
        "for=\"[2001:db8::1]\";host=\"a:8080\";proto=http"
    );
    assert_eq!(
        forwarded("::ffff:192.0.2.1", "[::1]"),
        "for=192.0.2.1;host=\"[::1]\";proto=http"
    );
    let mapped = announced("::ffff:192.0.2.1", "a", &[]);
    assert_eq!(mapped["x-forwarded-for"], "192.0.2.1");
    assert_eq!(mapped["x-real-ip"], "192.0.2.1");
}

#[test]
fn a_request_without_host_announces_none() {
    let mut fields = fields(&[("x-forwarded-host", "evil")]);
    let peer = "192.0.2.1".parse().ok();
    let origin = Origin {
        peer,
        client: peer,
        trusted: None,
        host: None,
        scheme: Scheme::Http,
        version: Version::HTTP_11,
        has_target_host: false,
    };
    announce(&mut fields, &origin, &mut None);
    assert_eq!(fields["forwarded"], "for=192.0.2.1;proto=http");
    assert!(!fields.contains_key("x-forwarded-host"));
}

#[test]
fn a_trusted_peer_is_extended() {
    let sent = [
        ("x-forwarded-for", "6.6.6.6, 203.0.113.9"),
        ("x-forwarded-for", "10.0.0.7"),
        ("x-forwarded-host", "www.example.com"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-port", "443"),
        ("x-real-ip", "6.6.6.6"),
    ];
    assert_fields(
        &announced("10.0.0.1", "a", &sent),
        &[
            (
                "x-forwarded-for",
                "6.6.6.6, 203.0.113.9, 10.0.0.7, 10.0.0.1",
            ),
            ("x-forwarded-host", "www.example.com"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-port", "443"),
            ("x-real-ip", "203.0.113.9"),
            (
                "forwarded",
                "for=6.6.6.6, for=203.0.113.9, for=10.0.0.7, for=10.0.0.1;host=a;proto=http",
            ),
        ],
    );
}

#[test]
fn a_chain_in_forwarded_is_told_in_the_other_field_too() {
    let sent = [(
        "forwarded",
        "for=\"[2001:db8::1]:5\";proto=https, for=_hidden, for=10.0.0.7",
    )];
    let fields = announced("fd00::1", "a", &sent);
    assert_eq!(
        fields["forwarded"],
        "for=\"[2001:db8::1]:5\";proto=https, for=_hidden, for=10.0.0.7, for=\"[fd00::1]\";host=a;proto=http"
    );
    assert_eq!(
        fields["x-forwarded-for"],
        "2001:db8::1, unknown, 10.0.0.7, fd00::1"
    );
    assert_eq!(fields["x-forwarded-proto"], "http");
    assert_eq!(fields["x-forwarded-host"], "a");
}

#[test]
fn a_trusted_peer_without_a_chain_begins_one() {
    let fields = announced("10.0.0.1", "a", &[]);
    assert_eq!(fields["x-forwarded-for"], "10.0.0.1");
    assert_eq!(fields["forwarded"], "for=10.0.0.1;host=a;proto=http");
    assert_eq!(fields["x-real-ip"], "10.0.0.1");
}

#[test]
fn chains_that_agree_are_extended() {
    let agree = [
        ("x-forwarded-for", "203.0.113.9"),
        ("forwarded", "for=203.0.113.9"),
    ];
    let fields = announced("10.0.0.1", "a", &agree);
    assert_eq!(fields["x-forwarded-for"], "203.0.113.9, 10.0.0.1");
    assert_eq!(
        fields["forwarded"],
        "for=203.0.113.9, for=10.0.0.1;host=a;proto=http"
    );
}

#[test]
fn the_next_gateway_finds_the_same_client() {
    let next = Trust::new(vec!["10.0.0.0/8".parse().unwrap()]);
    for sent in [
        &[("x-forwarded-for", "203.0.113.9")][..],
        &[("x-forwarded-for", "[2001:db8::1]:443, 10.0.0.4")],
        &[("x-forwarded-for", "203.0.113.9, rubbish, 10.0.0.4")],
        &[("forwarded", "for=203.0.113.9:99")],
        &[("forwarded", "for=unknown, for=10.0.0.4")],
        &[],
    ] {
        let here = next.client("10.0.0.1".parse().ok(), &fields(sent));
        let forwarded = announced("10.0.0.1", "a", sent);
        assert_eq!(
            next.client("10.0.0.2".parse().ok(), &forwarded),
            here,
            "{sent:?}"
        );
    }
}

#[test]
fn loops_end() {
    let mut fields = fields(&[
        ("via", "1.1 edge, 2 Tollgate (x)"),
        ("via", "1.1 tollgate2"),
    ]);
    for _ in 0..9 {
        add_via(&mut fields, Version::HTTP_11);
    }
    assert!(!is_loop(&fields));
    add_via(&mut fields, Version::HTTP_2);
    assert!(is_loop(&fields));
    assert_eq!(
        fields.get_all("via").iter().next_back().unwrap(),
        "2 tollgate"
    );
}

#[test]
fn addresses_are_written_like_everywhere() {
    for text in [
        "0.0.0.0",
        "255.255.255.255",
        "1.20.103.9",
        "10.0.100.200",
        "2001:db8::1",
        "::",
    ] {
        let mut line = ValueBuffer::default();
        line.address(text.parse().unwrap());
        assert_eq!(str::from_utf8(&line.0).unwrap(), text);
    }
}

fn chain() -> impl Strategy<Value = Vec<String>> {
    let entry = prop_oneof![
        Just("10.0.0.7"),
        Just("203.0.113.9"),
        Just("[2001:db8::1]:80"),
        Just("fe80::1%eth0"),
        Just("\"[::1]\""),
        Just("unknown"),
        Just(""),
        Just("a\"b"),
        Just("::ffff:10.0.0.8"),
        Just(" 10.0.0.9:1 "),
    ];
    let line = proptest::collection::vec(entry, 0..5);
    proptest::collection::vec(line.prop_map(|entries| entries.join(",")), 0..3)
}

proptest! {
    #[test]
    fn the_next_gateway_agrees_whatever_was_sent(
        chain in chain(), forwarded: bool, noise in "[ -~]{0,40}", prefix in "(for=|For=|by=1;for=)"
    ) {
        let trust = Trust::new(vec!["10.0.0.0/8".parse().unwrap()]);
        let name = if forwarded { "forwarded" } else { "x-forwarded-for" };
        let mut lines: Vec<(&str, String)> = Vec::new();
        for line in chain {
            let elements: Vec<String> = line.split(',').map(|entry| format!("{prefix}{entry}")).collect();
            lines.push((name, if forwarded { elements.join(",") } else { line }));
        }
        lines.push(("via", noise.clone()));
        let sent: Vec<(&str, &str)> = lines.iter().map(|(name, line)| (*name, line.as_str())).collect();
        let here = trust.client("10.0.0.1".parse().ok(), &fields(&sent));
        let forwarded = announced("10.0.0.1", "a", &sent);
        prop_assert_eq!(trust.client("10.0.0.2".parse().ok(), &forwarded), here);
        let _ = is_loop(&forwarded);
        // Malformed text in the chains themselves may break them, but nothing else.
        announced("10.0.0.1", "a", &[("forwarded", &noise), ("x-forwarded-for", &noise)]);
    }
}

#[test]
fn what_a_trusted_hop_says_in_forwarded_alone_counts() {
    let sent = [(
        "forwarded",
        "for=6.6.6.6;host=evil;proto=http, For=203.0.113.9;Proto=HTTPS;host=\"www.example.com:8443\"",
    )];
    let fields = announced("10.0.0.1", "inside", &sent);
    assert_eq!(fields["x-forwarded-proto"], "https");
    assert_eq!(fields["x-forwarded-host"], "www.example.com:8443");
    assert_eq!(fields["x-real-ip"], "203.0.113.9");
    let sent = [("forwarded", "for=203.0.113.9;proto=gopher;host=\"a b\"")];
    let fields = announced("10.0.0.1", "inside", &sent);
    assert_eq!(fields["x-forwarded-proto"], "http");
    assert_eq!(fields["x-forwarded-host"], "inside");
}

#[test]
fn a_chain_that_no_hop_has_written_goes() {
    let sent = [
        ("x-forwarded-for", "203.0.113.9"),
        ("forwarded", "for=6.6.6.6;proto=https;host=evil"),
    ];
    let fields = announced("10.0.0.1", "inside", &sent);
    assert_eq!(fields["x-forwarded-for"], "203.0.113.9, 10.0.0.1");
    assert_eq!(
        fields["forwarded"],
        "for=203.0.113.9, for=10.0.0.1;host=inside;proto=http"
    );
    assert_eq!(fields["x-forwarded-proto"], "http");
    assert_eq!(fields["x-forwarded-host"], "inside");
}

/// A proxy that writes `Forwarded` passes on every other field that a client sends.
#[test]
fn beside_the_field_that_is_named_the_others_are_a_strangers() {
    let sent = [
        ("forwarded", "for=203.0.113.9;proto=http;host=real"),
        ("x-forwarded-for", "203.0.113.9"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-host", "evil"),
        ("x-forwarded-prefix", "/admin"),
        ("x-original-url", "/admin"),
    ];
    let to = ("10.0.0.1", "inside");
    assert_fields(
        &announced_by(Some(Field::Forwarded), to, &sent),
        &[
            (
                "forwarded",
                "for=203.0.113.9;proto=http;host=real, for=10.0.0.1;host=inside;proto=http",
            ),
            ("x-forwarded-for", "203.0.113.9, 10.0.0.1"),
            ("x-forwarded-proto", "http"),
            ("x-forwarded-host", "real"),
            ("x-real-ip", "203.0.113.9"),
        ],
    );
    let sent = [
        ("x-forwarded-for", "203.0.113.9"),
        ("forwarded", "for=203.0.113.9;proto=https;host=evil"),
    ];
    // If `trust_field` names no field, a client that knows its own address does not become a proxy by this.
    for field in [Some(Field::XForwardedFor), None] {
        assert_fields(
            &announced_by(field, to, &sent),
            &[
                (
                    "forwarded",
                    "for=203.0.113.9, for=10.0.0.1;host=inside;proto=http",
                ),
                ("x-forwarded-for", "203.0.113.9, 10.0.0.1"),
                ("x-forwarded-proto", "http"),
                ("x-forwarded-host", "inside"),
                ("x-real-ip", "203.0.113.9"),
            ],
        );
    }
}

/// Every line of a head, in written form.
fn fields_text(fields: &HeaderMap) -> String {
    let line = |(name, value): (&HeaderName, &HeaderValue)| {
        format!("{name}: {}\r\n", value.to_str().unwrap())
    };
    fields.iter().map(line).collect()
}

proptest! {
    /// The lines after the fields equal the fields that would be added, in the same order.
    #[test]
    fn lines_beside_the_fields_are_the_fields_that_would_be_added(
        sent in proptest::collection::vec(("[a-d]|accept|host|te|cookie|via|x-forwarded-[a-h]{1,4}|x-real-ip|forwarded|x-request-id", "[a-z]{0,4}"), 0..6),
        ids in proptest::collection::vec("[0-9a-f]{1,8}", 1..3),
        peer in prop_oneof![Just("203.0.113.9"), Just("::1"), Just("::ffff:192.0.2.1"), Just("2001:db8::1")],
        hosts in proptest::collection::vec("[a-c]{1,3}(:80)?", 1..3),
        version in prop_oneof![Just(Version::HTTP_10), Just(Version::HTTP_11), Just(Version::HTTP_2)],
        scheme in prop_oneof![Just(Scheme::Http), Just(Scheme::Https)],
        has_target_host: bool,
    ) {
        let sent: Vec<(&str, &str)> = sent.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let peer = peer.parse().ok();
        // A connection keeps its lines between requests.
        let mut introduced = None;
        for (id, host) in ids.iter().zip(hosts.iter().cycle()) {
            let host: HeaderValue = host.parse().unwrap();
            let origin = Origin { peer, client: peer, trusted: None, host: Some(&host), scheme, version, has_target_host };
            let given = fields(&sent);
            if lines::has_ours(&given, &origin) {
                continue;
            }
            let prepared_lines = lines::prepared(&origin, &mut introduced).unwrap();
            let written = format!("{}{}{id}\r\n", fields_text(&given), str::from_utf8(&prepared_lines.lines).unwrap());
            let mut added = given;
            announce(&mut added, &origin, &mut None);
            add_via(&mut added, version);
            if has_target_host {
                added.insert(header::HOST, host.clone());
            }
            added.insert("x-request-id", id.parse().unwrap());
            prop_assert_eq!(written, fields_text(&added));
        }
    }
}
