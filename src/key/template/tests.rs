//! Keys: framed, bounded, and equal for equal values.

use super::*;
use crate::key::cookie::Cookies;
use crate::key::{Content, CustomerSearch, Location, Mask, NoIdentity};
use http::{HeaderMap, HeaderName, Method};
use std::borrow::Cow;

fn template(parts: Vec<KeyPart>, missing: MissingKey) -> KeyTemplate {
    KeyTemplate {
        parts,
        missing,
        unknown: None,
        case: KeyCase::Sensitive,
    }
}

fn header(name: &'static str) -> KeyPart {
    KeyPart::Header {
        name: HeaderName::from_static(name),
        secret: false,
    }
}

/// `GET http://Example.com:80/orders/7?...`, as it matches a route `/orders/{id}`.
#[derive(Debug)]
struct Order<'a>(Option<&'a str>);

impl Location for Order<'_> {
    fn host(&self) -> Cow<'_, str> {
        "example.com".into()
    }

    fn parameter(&self, name: &str) -> Option<Cow<'_, str>> {
        (name == "id").then_some("7".into())
    }

    fn path(&self) -> Option<Cow<'_, str>> {
        Some("/orders/7".into())
    }

    fn query(&self) -> Option<&str> {
        self.0
    }
}

fn key_of(template: &KeyTemplate, fields: &HeaderMap) -> Option<String> {
    key_in(template, &Method::GET, fields, None)
}

fn key_in(
    template: &KeyTemplate,
    method: &Method,
    fields: &HeaderMap,
    query: Option<&str>,
) -> Option<String> {
    let mut out = Vec::new();
    let caller = Caller {
        address: "203.0.113.9".parse().ok(),
        route: "orders",
        method,
        fields,
        location: &Order(query),
        cookies: &Cookies::of(fields),
        customers: &CustomerSearch::default(),
        identity: &NoIdentity,
        content: Content::Absent,
        certificate: None,
    };
    (template.write(&caller, &mut out) == KeyOutcome::Key).then(|| String::from_utf8(out).unwrap())
}

fn fields(pairs: &[(&'static str, &str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in pairs {
        map.append(HeaderName::from_static(name), value.parse().unwrap());
    }
    map
}

#[test]
fn no_value_imitates_a_separator_or_a_substitute() {
    let two = template(vec![header("a"), header("b")], MissingKey::Shared);
    let left = key_of(&two, &fields(&[("a", "x|y"), ("b", "z")]));
    let right = key_of(&two, &fields(&[("a", "x"), ("b", "y|z")]));
    assert_ne!(left, right);
    // Unescaped braces would choose the slot of a cluster.
    let braced = key_of(&two, &fields(&[("a", "}{x"), ("b", "z")]));
    assert_eq!(braced.as_deref(), Some("%7D%7Bx|z"));
    let absent = key_of(&two, &fields(&[("a", "x")]));
    let forged = key_of(&two, &fields(&[("a", "x"), ("b", "%none")]));
    assert_ne!(absent, forged);
    let by_ip = template(vec![header("a")], MissingKey::Ip);
    let substitute = key_of(&by_ip, &fields(&[]));
    let forged = key_of(&by_ip, &fields(&[("a", "%ip=203.0.113.9")]));
    assert_eq!(substitute.as_deref(), Some("%ip=203.0.113.9"));
    assert_ne!(substitute, forged);
}

#[test]
fn empty_is_absent_and_repeats_are_one_value() {
    let one = template(vec![header("a")], MissingKey::Skip);
    assert_eq!(key_of(&one, &fields(&[("a", " ")])), None);
    let repeated = fields(&[("a", "x"), ("a", " x ")]);
    assert_eq!(key_of(&one, &repeated).as_deref(), Some("x"));
    for several in [[("a", "x"), ("a", "y")], [("a", "x"), ("a", "")]] {
        assert_eq!(key_of(&one, &fields(&several)), None, "{several:?}");
    }
    assert_eq!(
        key_of(&one, &fields(&[("a", "x, y")])).as_deref(),
        Some("x%2C%20y")
    );
}

#[test]
fn secrets_and_long_values_are_digested() {
    let secret = KeyPart::Header {
        name: HeaderName::from_static("x-api-key"),
        secret: true,
    };
    let key = key_of(
        &template(vec![secret], MissingKey::Skip),
        &fields(&[("x-api-key", "hunter2")]),
    )
    .unwrap();
    assert!(key.starts_with("%sha=") && !key.contains("hunter2") && key.len() == 37);
    let long = "x".repeat(8192);
    let key = key_of(
        &template(vec![header("a")], MissingKey::Skip),
        &fields(&[("a", &long)]),
    )
    .unwrap();
    assert_eq!(key.len(), 37);
}

#[test]
fn addresses_count_by_network() {
    let mask = template(vec![KeyPart::Ip(Mask { v4: 24, v6: 64 })], MissingKey::Skip);
    assert_eq!(
        key_of(&mask, &HeaderMap::new()).as_deref(),
        Some("203.0.113.0/24")
    );
    let plain = Mask::DEFAULT;
    assert_eq!(
        plain.apply("::ffff:1.2.3.4".parse().unwrap()).to_string(),
        "1.2.3.4"
    );
    assert_eq!(
        plain
            .apply("2001:db8:7:1:2:3:4:5".parse().unwrap())
            .to_string(),
        "2001:db8:7:1::"
    );
}

#[test]
fn cookies_are_found_in_any_line_and_only_as_digests() {
    let cookie = template(vec![KeyPart::Cookie("sid".into())], MissingKey::Skip);
    let key = |lines: &[&str]| {
        let lines: Vec<_> = lines.iter().map(|line| ("cookie", *line)).collect();
        key_of(&cookie, &fields(&lines))
    };
    let one = key(&["sid=abc"]).unwrap();
    assert!(one.starts_with("%sha=") && one.len() == 37);
    for same in [
        &["a=1; sid=abc; b=2"][..],
        &["a=1", "sid=abc"],
        &["xsid=0; sid = abc ;"],
    ] {
        assert_eq!(key(same).as_ref(), Some(&one), "{same:?}");
    }
    for absent in [&[][..], &["sid"], &["sid="], &["a=sid=abc"]] {
        assert_eq!(key(absent), None, "{absent:?}");
    }
    // Other readers ignore the case of names, or split at commas.
    for elsewhere in [&["SID=abc"][..], &["x=1, sid=abc"]] {
        assert_eq!(key(elsewhere).as_deref(), Some("%ip=203.0.113.9"));
    }
    // Which of the two values the upstream uses is unknown.
    for two in [&["sid=abc; sid=def"][..], &["sid=abc", "sid=def"]] {
        assert_eq!(key(two).as_deref(), Some("%ip=203.0.113.9"));
    }
    assert_eq!(key(&["sid=abc; sid=abc"]).as_ref(), Some(&one));
    assert_ne!(key(&["sid=ABC"]), Some(one));
}

#[test]
fn query_parameters_are_compared_decoded() {
    let query = |secret| KeyPart::Query {
        name: "client id".into(),
        secret,
    };
    let key = |secret, text: &str| {
        let by = template(vec![query(secret)], MissingKey::Skip);
        key_in(&by, &Method::GET, &HeaderMap::new(), Some(text))
    };
    for same in [
        "client+id=a%2Fb",
        "x=1&client%20id=a/b&y",
        "%63lient+id=%61/b",
    ] {
        assert_eq!(key(false, same).as_deref(), Some("a/b"), "{same}");
    }
    for absent in ["", "x=1", "client+id=", "client+id"] {
        assert_eq!(key(false, absent), None, "{absent}");
    }
    for elsewhere in ["Client+id=a", "x;client+id=a"] {
        assert_eq!(key(false, elsewhere).as_deref(), Some("%ip=203.0.113.9"));
    }
    assert_eq!(
        key(false, "client+id=a&client%20id=%61").as_deref(),
        Some("a")
    );
    assert_eq!(key(false, "client+id=a&client+id=b"), None);
    assert!(key(true, "client+id=a").unwrap().starts_with("%sha="));
}

#[test]
fn methods_hosts_and_paths_are_always_there() {
    let by = template(
        vec![KeyPart::Method, KeyPart::Host, KeyPart::Path("id".into())],
        MissingKey::Skip,
    );
    assert!(!by.can_be_absent());
    let key = |method: &str| {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        key_in(&by, &method, &HeaderMap::new(), None).unwrap()
    };
    assert_eq!(key("DELETE"), "DELETE|example.com|7");
    assert_eq!(key("get"), key("BREW"));
    assert_eq!(key("BREW"), "%other|example.com|7");
}
