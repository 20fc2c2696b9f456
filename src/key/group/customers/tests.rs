//! Which customer a request is of: one credential, several, none, and ones that nobody knows.

use super::*;
use crate::key::cookie::Cookies;
use crate::key::{
    Content, CustomerLookup as _, Group, Identity, KeyOutcome, KeyTemplate, KnownValues, Location,
    Mask, MissingKey, NamedMembers, NoIdentity, UnknownKey,
};
use http::{HeaderMap, HeaderName, Method};
use std::sync::Arc;

/// A request's target of which only the query matters.
#[derive(Debug)]
pub(in crate::key::group) struct Target<'a>(pub(in crate::key::group) &'a str);

impl Location for Target<'_> {
    fn host(&self) -> Cow<'_, str> {
        "".into()
    }

    fn parameter(&self, _: &str) -> Option<Cow<'_, str>> {
        None
    }

    fn path(&self) -> Option<Cow<'_, str>> {
        None
    }

    fn query(&self) -> Option<&str> {
        Some(self.0)
    }
}

/// A client with one claim.
#[derive(Debug)]
struct Claims(&'static str, &'static [&'static str]);

impl Identity for Claims {
    fn claim(&self, name: &str) -> Option<Cow<'_, str>> {
        (name == "client_id" && !self.0.is_empty()).then_some(self.0.into())
    }

    fn listed(&self, _: &str, each: &mut dyn FnMut(&str)) {
        self.1.iter().for_each(|entry| each(entry));
    }
}

fn header() -> KeyPart {
    KeyPart::Header {
        name: HeaderName::from_static("x-api-key"),
        secret: true,
    }
}

fn query() -> KeyPart {
    KeyPart::Query {
        name: "k".into(),
        secret: false,
    }
}

fn claim() -> KeyPart {
    KeyPart::Jwt {
        claim: "client_id".into(),
        secret: false,
    }
}

fn customers() -> Arc<Customers> {
    let mut builder = CustomersBuilder::default();
    let mut add = |by: KeyPart, value: &str, name: &str| {
        let customer = builder.name(name).unwrap();
        let digest = Group::digest(value.as_bytes());
        builder.value(&by, digest, customer);
    };
    add(header(), "key-1", "acme");
    add(header(), "key-2", "acme");
    add(header(), "key-3", "beta");
    add(query(), "key-1", "acme");
    add(query(), "key-3", "beta");
    add(claim(), "c-gamma", "gamma");
    builder.verified(&claim());
    for (network, name) in [("203.0.113.0/24", "office"), ("203.0.113.9/32", "acme")] {
        let customer = builder.name(name).unwrap();
        builder.network(network.parse().unwrap(), customer);
    }
    let beta = builder.name("beta").unwrap();
    // The first customer of a credential keeps it.
    builder.value(&header(), Group::digest(b"key-1"), beta);
    Arc::new(builder.build())
}

/// What the client of a request is read as, and the key of a limit by its customer.
fn read_customer(
    all: &Customers,
    (fields, target): (&[(&'static str, &str)], &str),
    address: &str,
    identity: &dyn Identity,
    template: &KeyTemplate,
) -> (String, String) {
    let mut map = HeaderMap::new();
    for (name, value) in fields {
        map.append(HeaderName::from_static(name), value.parse().unwrap());
    }
    let customers = CustomerSearch::of(Some(all));
    let caller = Caller {
        address: address.parse().ok(),
        route: "r",
        method: &Method::GET,
        fields: &map,
        location: &Target(target),
        cookies: &Cookies::of(&map),
        identity,
        customers: &customers,
        content: Content::Absent,
        certificate: None,
    };
    let mut key = b"before".to_vec();
    let outcome = match template.write(&caller, &mut key) {
        KeyOutcome::Key => String::from_utf8(key[6..].to_vec()).unwrap(),
        other => format!("{other:?}").split('(').next().unwrap().to_owned(),
    };
    assert!(key.starts_with(b"before"));
    let reading = match customers.name() {
        Some(name) => name.to_owned(),
        None => format!("{:?}", customers.reading().unwrap()),
    };
    (reading, outcome)
}

fn template(all: &Arc<Customers>, missing: MissingKey, otherwise: UnknownKey) -> KeyTemplate {
    let group = |by: KeyPart| {
        let group = Group::of_values("g".into(), by, []);
        let names = all.known(&group.by).map(|(_, index)| index);
        let names: Vec<CustomerIndex> = names.collect();
        Arc::new(group.naming(NamedMembers::new(all, names, false)))
    };
    KeyTemplate {
        parts: vec![KeyPart::Customer],
        missing,
        unknown: Some(KnownValues {
            groups: vec![vec![group(header()), group(query())]],
            otherwise,
        }),
        case: KeyCase::Sensitive,
    }
}

#[test]
fn one_name_is_one_customer_whichever_credential_is_shown() {
    let all = customers();
    let template = template(&all, MissingKey::Refuse, UnknownKey::Refuse);
    let elsewhere = "198.51.100.1";
    let none: &[(&'static str, &str)] = &[];
    let no_one = &NoIdentity as &dyn Identity;
    for ((fields, target), address, identity, expected) in [
        (
            (&[("x-api-key", "key-1")][..], ""),
            elsewhere,
            no_one,
            ("acme", "acme"),
        ),
        (
            (&[("x-api-key", " key-2 ")], ""),
            elsewhere,
            no_one,
            ("acme", "acme"),
        ),
        ((none, "k=key-3"), elsewhere, no_one, ("beta", "beta")),
        (
            (&[("x-api-key", "key-2")], "k=key-1"),
            elsewhere,
            no_one,
            ("acme", "acme"),
        ),
        (
            (&[("x-api-key", "key-1")], "k=key-3"),
            elsewhere,
            no_one,
            ("Different", "Doubt"),
        ),
        (
            (&[("x-api-key", "key-1"), ("x-api-key", "key-2")], ""),
            elsewhere,
            no_one,
            ("Several(0)", "Doubt"),
        ),
        (
            (&[("x-api-key", "key-1")], "k=other"),
            elsewhere,
            no_one,
            ("acme", "acme"),
        ),
        (
            (&[("x-api-key", "other")], "k=key-1"),
            elsewhere,
            no_one,
            ("acme", "acme"),
        ),
        (
            (&[("x-api-key", "other")], ""),
            elsewhere,
            no_one,
            ("Unknown(0)", "Unknown"),
        ),
        ((none, ""), elsewhere, no_one, ("Nothing", "Refuse")),
        ((none, ""), "203.0.113.8", no_one, ("office", "office")),
        ((none, ""), "203.0.113.9", no_one, ("acme", "acme")),
        (
            (&[("x-api-key", "key-3")], ""),
            "203.0.113.9",
            no_one,
            ("beta", "beta"),
        ),
        (
            (none, ""),
            elsewhere,
            &Claims("c-gamma", &[]),
            ("gamma", "gamma"),
        ),
        (
            (none, ""),
            elsewhere,
            &Claims("acme", &[]),
            ("acme", "acme"),
        ),
        (
            (none, ""),
            elsewhere,
            &Claims("new one", &[]),
            ("new%20one", "new%2520one"),
        ),
        (
            (&[("x-api-key", "key-1")], ""),
            elsewhere,
            &Claims("beta", &[]),
            ("Different", "Doubt"),
        ),
        (
            (&[("x-api-key", "key-1")], ""),
            elsewhere,
            &Claims("acme", &[]),
            ("acme", "acme"),
        ),
        (
            (none, ""),
            elsewhere,
            &Claims("", &["x", "c-gamma"]),
            ("gamma", "gamma"),
        ),
        (
            (none, ""),
            elsewhere,
            &Claims("x c-gamma", &["x", "c-gamma"]),
            ("gamma", "gamma"),
        ),
    ] {
        let (reading, key) = read_customer(&all, (fields, target), address, identity, &template);
        assert_eq!(
            (&*reading, &*key),
            expected,
            "{fields:?} {target} {address}"
        );
    }
}

#[test]
fn an_unknown_credential_is_worth_no_more_than_none() {
    let all = customers();
    let elsewhere = "198.51.100.1";
    for (missing, otherwise, none, unknown) in [
        (MissingKey::Refuse, UnknownKey::Refuse, "Refuse", "Unknown"),
        (
            MissingKey::Ip,
            UnknownKey::Ip,
            "%ip=198.51.100.1",
            "%ip=198.51.100.1",
        ),
        (MissingKey::Skip, UnknownKey::Skip, "Skip", "Skip"),
        (MissingKey::Shared, UnknownKey::Shared, "%none", "%none"),
        (MissingKey::Skip, UnknownKey::Refuse, "Skip", "Unknown"),
    ] {
        let template = template(&all, missing, otherwise);
        let key = |fields| read_customer(&all, (fields, ""), elsewhere, &NoIdentity, &template).1;
        assert_eq!(key(&[]), none, "{missing:?}");
        assert_eq!(key(&[("x-api-key", "other")]), unknown, "{missing:?}");
        assert_eq!(key(&[("x-api-key", "key-1")]), "acme", "{missing:?}");
    }
}

/// The upstream may read any of several cookies of one name: each of them counts.
#[test]
fn each_cookie_of_a_name_may_name_the_customer() {
    let by = KeyPart::Cookie("sid".into());
    let mut builder = CustomersBuilder::default();
    for (value, name) in [("s-1", "acme"), ("s-2", "acme"), ("s-3", "beta")] {
        let customer = builder.name(name).unwrap();
        builder.value(&by, Group::digest(value.as_bytes()), customer);
    }
    let all = Arc::new(builder.build());
    let names = all.names().filter_map(|name| all.find(name));
    let group = Group::of_values("g".into(), by, []).naming(NamedMembers::new(&all, names, false));
    let template = KeyTemplate {
        parts: vec![KeyPart::Customer],
        missing: MissingKey::Skip,
        unknown: Some(KnownValues {
            groups: vec![vec![Arc::new(group)]],
            otherwise: UnknownKey::Skip,
        }),
        case: KeyCase::Sensitive,
    };
    let elsewhere = "198.51.100.1";
    for (sent, reading, key) in [
        ("sid=s-1; sid=s-2", "acme", "acme"),
        ("sid=s-1; sid=other", "acme", "acme"),
        ("sid=other; sid=%22s-3; sid=s-3", "beta", "beta"),
        ("sid=s-1; sid=s-3", "Different", "Doubt"),
        ("sid=other; sid=s-3; sid=s-2", "Different", "Doubt"),
        ("sid=other; sid=others", "Unknown(0)", "Skip"),
        ("sid=other", "Unknown(0)", "Skip"),
        ("sid=", "Nothing", "Skip"),
        // Another reader finds a known one.
        ("sid=other; SID=s-1", "Unknown(0)", "%ip=198.51.100.1"),
        ("sid=other sid=s-1", "Unknown(0)", "%ip=198.51.100.1"),
        ("sid=s-1,x", "Unknown(0)", "%ip=198.51.100.1"),
    ] {
        let fields = (&[("cookie", sent)][..], "");
        let found = read_customer(&all, fields, elsewhere, &NoIdentity, &template);
        assert_eq!((&*found.0, &*found.1), (reading, key), "{sent}");
    }
}

#[test]
fn names_that_come_behind_the_credentials_have_none() {
    let mut builder = CustomersBuilder::default();
    let acme = builder.name("acme").unwrap();
    builder.value(&header(), Group::digest(b"key-1"), acme);
    builder.end_credentials();
    let gold = builder.name("gold").unwrap();
    assert!(builder.has_credential("acme") && !builder.has_credential("gold"));
    let all = builder.build();
    assert!(all.has_credential(acme) && !all.has_credential(gold));
    assert!(customers().has_credential(gold));
}

#[test]
fn the_part_that_a_client_lacks_is_a_credential() {
    let all = customers();
    let template = template(&all, MissingKey::Refuse, UnknownKey::Refuse);
    assert!(template.counts_customers() && template.asks_token());
    let map = HeaderMap::new();
    let customers = CustomerSearch::of(Some(&all));
    let caller = Caller {
        address: None,
        route: "r",
        method: &Method::GET,
        fields: &map,
        location: &Target(""),
        cookies: &Cookies::of(&map),
        identity: &NoIdentity,
        customers: &customers,
        content: Content::Absent,
        certificate: None,
    };
    let outcome = template.write(&caller, &mut Vec::new());
    assert_eq!(outcome, KeyOutcome::Refuse(&header()));
}

/// Otherwise a request without a key would have an unknown one, and limits by host would not count it.
#[test]
fn a_host_that_no_line_has_is_no_credential() {
    let mut builder = CustomersBuilder::default();
    let acme = builder.name("acme").unwrap();
    let (host, key) = (Group::digest(b"acme.test"), Group::digest(b"key-1"));
    builder.value(&KeyPart::Host, host, acme);
    builder.value(&header(), key, acme);
    let all = Arc::new(builder.build());
    let template = template(&all, MissingKey::Refuse, UnknownKey::Refuse);
    let none: &[(&'static str, &str)] = &[];
    for (fields, reading, outcome) in [
        (none, "Nothing", "Refuse"),
        (&[("x-api-key", "other")][..], "Unknown(1)", "Unknown"),
        (&[("x-api-key", "key-1")][..], "acme", "acme"),
    ] {
        let asked = (fields, "");
        let found = read_customer(&all, asked, "198.51.100.1", &NoIdentity, &template);
        assert_eq!((&*found.0, &*found.1), (reading, outcome), "{fields:?}");
    }
}

#[test]
fn members_are_names_and_changes_are_counted() {
    let group = |lines: &[(&str, &str)]| {
        let mut builder = CustomersBuilder::default();
        let mut names = Vec::new();
        for (name, value) in lines {
            let customer = builder.name(name).unwrap();
            names.push(customer);
            let digest = Group::digest(value.as_bytes());
            builder.value(&header(), digest, customer);
        }
        let all = Arc::new(builder.build());
        let group = Group::of_values("pro".into(), header(), []);
        group.naming(NamedMembers::new(&all, names, false))
    };
    let old = group(&[("acme", "1"), ("beta", "2"), ("gone", "3")]);
    assert_eq!((old.len(), old.customer_changes(&old)), (3, (0, 0, 0)));
    let new = group(&[
        ("beta", "2"),
        ("acme", "1b"),
        ("acme", "1c"),
        ("x", "4"),
        ("y", "3"),
    ]);
    assert_eq!(new.customer_changes(&old), (2, 1, 3));
    assert!(new.has(&Group::digest(b"1b")) && !new.has(&Group::digest(b"1")));
    assert!(!format!("{:?}", new.named().unwrap().all()).contains("acme"));
    let networks = Group::of_networks("n".into(), KeyPart::Ip(Mask::DEFAULT), []);
    assert!(!networks.names_customers() && networks.is_empty());
    let office = |network: &str| {
        let mut builder = CustomersBuilder::default();
        let acme = builder.name("acme").unwrap();
        builder.network(network.parse().unwrap(), acme);
        let all = Arc::new(builder.build());
        let group = Group::of_networks("n".into(), KeyPart::Ip(Mask::DEFAULT), []);
        group.naming(NamedMembers::new(&all, [acme], false))
    };
    let (old, new) = (office("10.0.0.0/9"), office("10.0.0.0/8"));
    assert_eq!(new.customer_changes(&old), (0, 0, 2));
    assert_eq!(new.customer_changes(&new), (0, 0, 0));
}

/// 200,000 credentials of 100,000 customers: tables of digests and numbers, and each name once.
#[test]
fn many_customers_take_little_memory_and_are_found_at_once() {
    let mut builder = CustomersBuilder::default();
    for number in 0..100_000 {
        let customer = builder.name(&format!("customer-{number}")).unwrap();
        for key in 0..2 {
            let digest = Group::digest(format!("{number}-{key}").as_bytes());
            builder.value(&header(), digest, customer);
        }
    }
    let all = builder.build();
    assert_eq!((all.len(), all.credentials()), (100_000, 200_000));
    let holder = all.holder(&header(), &Group::digest(b"77777-1")).unwrap();
    assert_eq!(all.name(holder), "customer-77777");
}
