//! Members of groups without names: values, networks, and what has changed.

use super::customers::tests::Target;
use super::*;
use crate::key::cookie::Cookies;
use crate::key::{Content, CustomerSearch, Mask, MissingKey, NoIdentity};
use http::{HeaderMap, HeaderName, Method};

fn header(name: &'static str) -> KeyPart {
    KeyPart::Header {
        name: HeaderName::from_static(name),
        secret: crate::key::is_secret(name),
    }
}

fn values(by: KeyPart, members: &[&str]) -> Group {
    let digests = members.iter().map(|text| Group::digest(text.as_bytes()));
    Group::of_values("g".into(), by, digests)
}

#[test]
fn a_member_is_found_by_its_value_whether_or_not_a_key_has_it() {
    let long = "l".repeat(100);
    let odd = "a b|c%é";
    for name in ["x-api-key", "x-tenant"] {
        let group = values(header(name), &["gold", &long, odd]);
        for (value, is_member) in [
            ("gold", true),
            ("Gold", false),
            (" gold ", true),
            (long.as_str(), true),
            (odd, true),
            ("", false),
            ("%sha=00", false),
        ] {
            let mut fields = HeaderMap::new();
            let value = http::HeaderValue::from_bytes(value.as_bytes()).unwrap();
            fields.insert(HeaderName::from_static(name), value);
            let caller = Caller {
                address: "203.0.113.9".parse().ok(),
                route: "r",
                method: &Method::GET,
                fields: &fields,
                location: &Target(""),
                cookies: &Cookies::of(&fields),
                customers: &CustomerSearch::default(),
                identity: &NoIdentity,
                content: Content::Absent,
                certificate: None,
            };
            let template = KeyTemplate {
                parts: vec![KeyPart::Route, header(name)],
                missing: MissingKey::Ip,
                unknown: None,
                case: KeyCase::Sensitive,
            };
            let mut keys = b"before".to_vec();
            let start = keys.len();
            template.write(&caller, &mut keys);
            let whole = keys.clone();
            let mut found =
                |written| Memberships::default().is_in(&group, &caller, &mut keys, written);
            assert_eq!(found(None), Ok(is_member), "{name} {fields:?}");
            assert_eq!(found(Some((&template, start))), Ok(is_member), "{fields:?}");
            assert_eq!(keys, whole);
        }
    }
}

#[test]
fn networks_are_found_at_every_length() {
    let networks = [
        "10.0.0.0/8",
        "192.0.2.7/32",
        "2001:db8::/32",
        "198.51.100.5/24",
    ];
    let networks = networks.map(|text| text.parse::<IpNet>().unwrap());
    let group = Group::of_networks("g".into(), KeyPart::Ip(Mask::DEFAULT), networks);
    let Members::Networks(networks) = &group.members else {
        panic!("networks");
    };
    for (address, is_member) in [
        ("10.1.2.3", true),
        ("::ffff:10.1.2.3", true),
        ("11.1.2.3", false),
        ("192.0.2.7", true),
        ("192.0.2.8", false),
        ("198.51.100.77", true),
        ("2001:db8:1::1", true),
        ("2001:db9::1", false),
    ] {
        assert_eq!(
            networks.contains(address.parse().unwrap()),
            is_member,
            "{address}"
        );
    }
    assert_eq!(group.len(), 4);
    let everyone = ["0.0.0.0/0", "::/0"].map(|text| text.parse::<IpNet>().unwrap());
    let all = Group::of_networks("g".into(), KeyPart::Ip(Mask::DEFAULT), everyone);
    assert_eq!(all.joined_and_left(&group), (2, 4));
    assert_eq!(group.joined_and_left(&group), (0, 0));
}

#[test]
fn who_came_and_who_left_is_counted() {
    let (old, new) = (
        values(header("x-api-key"), &["a", "b"]),
        values(header("x-api-key"), &["b", "c", "d", "e"]),
    );
    assert_eq!(new.joined_and_left(&old), (3, 1));
    assert!(!format!("{new:?}").contains('['), "{new:?}");
}
