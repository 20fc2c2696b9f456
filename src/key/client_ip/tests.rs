//! The client of a request, chosen among its peer and the addresses that proxies name.

use super::*;

fn client(trust: &[&str], peer: &str, name: &'static str, lines: &[&str]) -> String {
    let trust = Trust::new(
        trust
            .iter()
            .map(|network| network.parse().unwrap())
            .collect(),
    );
    let mut fields = HeaderMap::new();
    for line in lines {
        fields.append(HeaderName::from_static(name), line.parse().unwrap());
    }
    let client = trust.client(peer.parse().ok(), &fields);
    client.unwrap().to_string()
}

#[test]
fn a_stranger_is_never_believed() {
    assert_eq!(
        client(&[], "198.51.100.1", "x-forwarded-for", &["1.1.1.1"]),
        "198.51.100.1"
    );
    assert_eq!(
        client(
            &["10.0.0.0/8"],
            "198.51.100.1",
            "x-forwarded-for",
            &["1.1.1.1"]
        ),
        "198.51.100.1"
    );
}

#[test]
fn the_walk_stops_at_the_first_untrusted_hop() {
    let walk = |line: &str| client(&["10.0.0.0/8"], "10.0.0.1", "x-forwarded-for", &[line]);
    assert_eq!(walk("6.6.6.6, 203.0.113.9, 10.0.0.7"), "203.0.113.9");
    assert_eq!(walk("6.6.6.6, nonsense, 10.0.0.7"), "10.0.0.7");
    assert_eq!(walk("[2001:db8::1]:443"), "2001:db8::1");
    assert_eq!(walk("203.0.113.9:5000"), "203.0.113.9");
    assert_eq!(walk("::ffff:203.0.113.9"), "203.0.113.9");
    assert_eq!(walk("fe80::1%eth0"), "fe80::1");
    assert_eq!(walk(""), "10.0.0.1");
}

#[test]
fn several_lines_are_one_list() {
    let lines = ["6.6.6.6", "203.0.113.9", "10.0.0.7"];
    assert_eq!(
        client(&["10.0.0.0/8"], "10.0.0.1", "x-forwarded-for", &lines),
        "203.0.113.9"
    );
}

#[test]
fn forwarded_is_read_by_its_for() {
    let walk = |line: &str| client(&["10.0.0.0/8"], "10.0.0.1", "forwarded", &[line]);
    assert_eq!(
        walk("for=6.6.6.6, proto=https;For=\"[2001:db8::1]:47011\";by=10.0.0.2"),
        "2001:db8::1"
    );
    assert_eq!(walk("for=unknown"), "10.0.0.1");
    assert_eq!(walk("for=_hidden, for=10.0.0.9"), "10.0.0.9");
}

/// The client that these two fields name to a gateway that trusts 10.0.0.0/8.
fn of_both(only: Option<Field>, listed: &str, forwarded: &str) -> String {
    let trust = Trust::new(vec!["10.0.0.0/8".parse().unwrap()])
        .reading(only.map(NamingField::Chain).as_ref());
    let mut fields = HeaderMap::new();
    fields.append("x-forwarded-for", listed.parse().unwrap());
    fields.append("forwarded", forwarded.parse().unwrap());
    let client = trust.client("10.0.0.1".parse().ok(), &fields);
    client.unwrap().to_string()
}

#[test]
fn a_field_that_no_proxy_has_written_moves_nobody() {
    let sender = "203.0.113.9";
    for forged in ["for=6.6.6.6", "for=10.0.0.7", "for=unknown", "x", ""] {
        assert_eq!(of_both(None, sender, forged), sender, "{forged}");
        let only = Some(Field::XForwardedFor);
        assert_eq!(of_both(only, sender, forged), sender, "{forged}");
    }
    for forged in ["6.6.6.6", "10.0.0.7", "nonsense", ""] {
        let only = Some(Field::Forwarded);
        assert_eq!(of_both(only, forged, "for=203.0.113.9"), sender, "{forged}");
    }
}

#[test]
fn of_two_walks_one_that_leads_out_counts() {
    // The outer proxy writes one of the fields, the inner one both.
    assert_eq!(
        of_both(None, "203.0.113.9, 10.0.0.2", "for=10.0.0.2"),
        "203.0.113.9"
    );
    assert_eq!(
        of_both(None, "10.0.0.2", "for=203.0.113.9, for=10.0.0.2"),
        "203.0.113.9"
    );
    assert_eq!(of_both(None, "10.0.0.2", "for=10.0.0.3"), "10.0.0.2");
    // If the inner proxy names no address, no other field may name one.
    for unnamed in [
        "unknown",
        "",
        "6.6.6.6, unknown",
        "6.6.6.6, unknown, 10.0.0.2",
    ] {
        let client = of_both(None, unnamed, "for=6.6.6.6");
        assert!(client.starts_with("10."), "{unnamed}: {client}");
    }
}

#[test]
fn an_element_with_two_nodes_has_none() {
    let walk = |line: &str| client(&["10.0.0.0/8"], "10.0.0.1", "forwarded", &[line]);
    assert_eq!(walk("for=6.6.6.6;for=7.7.7.7"), "10.0.0.1");
    let blank = "\u{a0}6.6.6.6";
    assert_eq!(read_node(blank.as_bytes()), ForwardedNode::Malformed);
}

#[test]
fn the_peer_of_a_unix_socket_is_believed_and_has_no_address() {
    let trust = Trust::new(vec!["10.0.0.0/8".parse().unwrap()]);
    for trust in [Trust::default(), trust] {
        let mut fields = HeaderMap::new();
        let walk = trust.explain(None, &fields);
        assert_eq!((walk.client, walk.why), (None, AddressReason::Unsaid));
        fields.append("x-forwarded-for", "6.6.6.6, 203.0.113.9".parse().unwrap());
        let client = trust.client(None, &fields);
        assert_eq!(client, "203.0.113.9".parse().ok());
        fields.append("forwarded", "for=_hidden".parse().unwrap());
        assert_eq!(trust.client(None, &fields), client);
        fields.insert("x-forwarded-for", "unknown".parse().unwrap());
        fields.remove("forwarded");
        assert_eq!(trust.client(None, &fields), None);
    }
}

#[test]
fn a_walk_is_explained_as_it_is_gone() {
    let trust = Trust::new(vec!["10.0.0.0/8".parse().unwrap()]);
    let explain = |peer: &str, lines: &[(&'static str, &'static str)]| {
        let mut fields = HeaderMap::new();
        for (name, line) in lines {
            fields.append(*name, line.parse().unwrap());
        }
        let peer = peer.parse().ok();
        let walk = trust.explain(peer, &fields);
        assert_eq!(walk.client, trust.client(peer, &fields));
        (walk.client.unwrap().to_string(), walk.why, walk.hops.len())
    };
    let listed = ("x-forwarded-for", "6.6.6.6, 203.0.113.9, 10.0.0.7");
    let walk_end = |address: &str, why| (address.to_owned(), why, 0);
    assert_eq!(
        explain("192.0.2.1", &[listed]),
        walk_end("192.0.2.1", AddressReason::Stranger)
    );
    assert_eq!(
        explain("10.0.0.1", &[]),
        walk_end("10.0.0.1", AddressReason::Unsaid)
    );
    assert_eq!(
        explain("10.0.0.1", &[listed]),
        (
            "203.0.113.9".into(),
            AddressReason::Said(Field::XForwardedFor),
            2
        )
    );
    let other = ("forwarded", "for=7.7.7.7");
    assert_eq!(
        explain("10.0.0.1", &[listed, other]),
        (
            "203.0.113.9".into(),
            AddressReason::Disagree(Field::XForwardedFor),
            3
        )
    );
    let alone = explain("10.0.0.1", &[("forwarded", "for=7.7.7.7, for=unknown")]);
    assert_eq!(
        alone,
        ("10.0.0.1".into(), AddressReason::Said(Field::Forwarded), 1)
    );
}

#[test]
fn a_field_of_one_address_names_the_client_alone() {
    let name: HeaderName = "cf-connecting-ip".parse().unwrap();
    let trust = Trust::new(vec!["10.0.0.0/8".parse().unwrap()])
        .reading(Some(&NamingField::Single(name.clone())));
    let peer: IpAddr = "10.0.0.1".parse().unwrap();
    let found = |lines: &[&str]| {
        let mut fields = HeaderMap::new();
        fields.insert("x-forwarded-for", "198.51.100.7".parse().unwrap());
        for line in lines {
            fields.append(name.clone(), line.parse().unwrap());
        }
        let found = trust.found(Some(peer), &fields);
        (found.address.unwrap().to_string(), found.unnamed)
    };
    for (line, client) in [
        ("192.0.2.1", "192.0.2.1"),
        (" 192.0.2.1:4711 ", "192.0.2.1"),
        ("[2001:db8::1]:443", "2001:db8::1"),
        ("2001:db8::1", "2001:db8::1"),
        ("fe80::1%eth0", "fe80::1"),
        ("10.0.0.9", "10.0.0.9"),
    ] {
        assert_eq!(found(&[line]), (client.to_owned(), None), "{line}");
    }
    for line in [
        "192.0.2.1, 192.0.2.2",
        "anna",
        "192.0.2.1;x",
        "\"192.0.2.1\"",
    ] {
        let (client, cause) = found(&[line]);
        assert_eq!(
            (client.as_str(), cause),
            ("10.0.0.1", Some(Unnamed::Malformed)),
            "{line}"
        );
    }
    let twice = found(&["192.0.2.1", "192.0.2.1"]);
    assert_eq!(twice, ("10.0.0.1".to_owned(), Some(Unnamed::Malformed)));
    assert_eq!(found(&["unknown"]).1, Some(Unnamed::Hidden));
    assert_eq!(found(&[]), ("10.0.0.1".to_owned(), Some(Unnamed::Absent)));
    // Another peer names nobody.
    let mut fields = HeaderMap::new();
    fields.insert(name, "192.0.2.1".parse().unwrap());
    let other: IpAddr = "203.0.113.1".parse().unwrap();
    assert_eq!(trust.client(Some(other), &fields), Some(other));
}
