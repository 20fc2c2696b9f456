//! The identity that a client gets, and the hosts that its connection may serve.

use super::*;
use crate::tls::server_identity::tests::{Authority, parts};
use crate::tls::{ClientParts, ClientVerify, IdentityParts, ServedName};

fn identity(
    name: &str,
    hosts: &[&str],
    change: impl FnOnce(&mut IdentityParts),
) -> Arc<ServerIdentity> {
    let mut parts = parts(name, hosts);
    change(&mut parts);
    Arc::new(ServerIdentity::new(parts).unwrap())
}

fn plain(name: &str, hosts: &[&str]) -> Arc<ServerIdentity> {
    identity(name, hosts, |_| {})
}

fn asking(name: &str, hosts: &[&str], ca: &Authority, verify: ClientVerify) -> Arc<ServerIdentity> {
    identity(name, hosts, |parts| {
        parts.client = Some(ClientParts {
            ca_pem: vec![ca.pem()],
            verify,
            crl_pem: Vec::new(),
        });
    })
}

fn chosen<'a>(offer: &'a Offer, host: Option<&str>) -> Option<&'a str> {
    offer.choose(host).map(|identity| identity.name())
}

#[test]
fn an_exact_name_comes_before_a_wildcard_and_both_before_the_default() {
    let offer = Offer::new(vec![
        plain("wild", &["*.example.com"]),
        plain("exact", &["a.example.com"]),
        identity("rest", &["example.com"], |parts| parts.is_default = true),
    ])
    .unwrap();
    for (host, name) in [
        (Some("a.example.com"), "exact"),
        (Some("b.example.com"), "wild"),
        (Some("example.com"), "rest"),
        (Some("a.b.example.com"), "rest"),
        (Some("192.0.2.1"), "rest"),
        (None, "rest"),
    ] {
        assert_eq!(chosen(&offer, host), Some(name), "{host:?}");
    }
    assert_eq!(offer.default_identity().unwrap().name(), "rest");
}

#[test]
fn strangers_get_an_identity_only_where_it_is_alone_or_the_default() {
    let two = Offer::new(vec![plain("a", &["a.test"]), plain("b", &["b.test"])]).unwrap();
    assert_eq!(chosen(&two, Some("c.test")), None);
    assert_eq!(chosen(&two, None), None);
    let alone = Offer::new(vec![plain("a", &["a.test"])]).unwrap();
    assert_eq!(chosen(&alone, Some("c.test")), Some("a"));
    assert_eq!(chosen(&alone, None), Some("a"));
    let none = Offer::new(Vec::new()).unwrap();
    assert_eq!(chosen(&none, Some("a.test")), None);
    assert_eq!(chosen(&none, None), None);
}

#[test]
fn a_name_has_one_identity() {
    let twice = Offer::new(vec![
        identity("a", &["a.test", "*.b.test"], |parts| {
            parts.is_default = true
        }),
        identity("b", &["A.test.", "*.b.test", "x.b.test"], |parts| {
            parts.is_default = true
        }),
    ])
    .unwrap_err();
    let names: Vec<_> = twice.iter().map(|one| one.name.as_deref()).collect();
    assert_eq!(names, [Some("a.test"), Some("*.b.test"), None]);
    assert_eq!(twice[0].identities, ["a".to_owned(), "b".to_owned()]);
}

#[test]
fn a_host_of_an_identity_that_asks_clients_is_served_on_its_own_connections() {
    let ca = Authority::new();
    let open = identity("open", &["open.test"], |parts| parts.is_default = true);
    let shop = plain("shop", &["shop.test"]);
    let inner = asking("inner", &["inner.test"], &ca, ClientVerify::Required);
    let other = asking("other", &["other.test"], &ca, ClientVerify::Optional);
    let all = vec![open.clone(), shop, inner.clone(), other.clone()];
    let offer = Offer::new(all).unwrap();
    for (connection, host, may) in [
        (&open, Some("open.test"), true),
        (&open, Some("shop.test"), true),
        (&open, Some("inner.test"), false),
        (&open, Some("other.test"), false),
        (&open, None, true),
        (&inner, Some("inner.test"), true),
        (&inner, Some("other.test"), false),
        (&inner, Some("open.test"), false),
        (&inner, Some("unknown.test"), false),
        (&inner, None, false),
        (&other, Some("inner.test"), false),
    ] {
        let served = offer.may_serve(connection, host);
        assert_eq!(served, may, "{} {host:?}", connection.name());
    }
    let strict = Offer::new(vec![inner.clone(), other]).unwrap();
    assert!(strict.may_serve(&inner, Some("unknown.test")));
}

#[test]
fn a_demand_covers_every_host_below_its_wildcard_unless_a_nearer_name_has_it() {
    let ca = Authority::new();
    let open = identity("open", &["open.test"], |parts| parts.is_default = true);
    let wide = asking("far", &["*.test"], &ca, ClientVerify::Required);
    let narrow = asking("near", &["*.a.par.test"], &ca, ClientVerify::Required);
    let asks = asking("asks", &["*.par.test"], &ca, ClientVerify::Optional);
    let exact = plain("exact", &["x.y.test", "*.z.test"]);
    let all = [&open, &wide, &narrow, &asks, &exact]
        .map(Arc::clone)
        .to_vec();
    let offer = Offer::new(all).unwrap();
    for (host, name) in [
        ("open.test", "open"),
        ("b.test", "far"),
        ("c.b.test", "far"),
        ("d.c.b.test", "far"),
        ("..b.test", "far"),
        ("x.y.test", "exact"),
        ("w.x.y.test", "far"),
        ("a.z.test", "exact"),
        ("b.a.z.test", "far"),
        ("b.par.test", "asks"),
        ("c.b.par.test", "far"),
        ("b.a.par.test", "near"),
        ("c.b.a.par.test", "near"),
        ("test", "open"),
        (".test", "open"),
        ("atest", "open"),
        ("b.test.other", "open"),
        ("", "open"),
    ] {
        assert_eq!(chosen(&offer, Some(host)), Some(name), "{host}");
        let is_open = matches!(name, "open" | "exact");
        assert_eq!(offer.may_serve(&open, Some(host)), is_open, "{host}");
    }
    let long = "x.".repeat(1000) + "test";
    assert_eq!(chosen(&offer, Some(&long)), Some("far"));
    let below = |suffix| {
        offer
            .below(suffix)
            .map(|one| one.map_or("", |one| one.name()))
    };
    assert_eq!(below(".par.test"), ["asks", "far"]);
    assert_eq!(below(".a.par.test"), ["near", "near"]);
    assert_eq!(below(".z.test"), ["exact", "far"]);
    assert_eq!(below(".other"), ["open", "open"]);
}

#[test]
fn a_reload_that_asks_more_of_clients_ends_the_use_of_earlier_connections() {
    let (first, second) = (Authority::new(), Authority::new());
    let with = |cas: &[&Authority], verify| {
        identity("api", &["api.test"], |parts| {
            parts.client = Some(ClientParts {
                ca_pem: cas.iter().map(|ca| ca.pem()).collect(),
                verify,
                crl_pem: Vec::new(),
            });
        })
    };
    let (one, both) = ([&first], [&first, &second]);
    let may = |had: &Arc<ServerIdentity>, now: &Arc<ServerIdentity>| {
        let offer = Offer::new(vec![Arc::clone(now)]).unwrap();
        offer.may_serve(had, Some("api.test"))
    };
    use ClientVerify::{Optional, Required};
    let renewed = with(&one, Required);
    assert!(may(&with(&one, Required), &renewed));
    assert!(may(&with(&one, Required), &with(&both, Required)));
    assert!(may(&with(&one, Required), &with(&one, Optional)));
    assert!(may(&with(&one, Required), &plain("api", &["api.test"])));
    assert!(!may(&with(&both, Required), &with(&one, Required)));
    assert!(!may(&with(&one, Optional), &with(&one, Required)));
    assert!(!may(&plain("api", &["api.test"]), &with(&one, Optional)));
}

#[test]
fn an_unchanged_identity_is_kept_over_a_reload() {
    let (a, b) = (parts("a", &["a.test"]), parts("b", &["b.test"]));
    let make = |parts: &IdentityParts| Arc::new(ServerIdentity::new(parts.clone()).unwrap());
    let old = Offer::new(vec![make(&a), make(&b)]).unwrap();
    let mut changed = b.clone();
    changed.hosts = Some(vec![ServedName::read("c.test").unwrap()]);
    let new = Offer::new(vec![make(&changed), make(&a)]).unwrap();
    let new = new.keeping(&old);
    assert!(Arc::ptr_eq(&new.identities()[1], &old.identities()[0]));
    assert!(!Arc::ptr_eq(&new.identities()[0], &old.identities()[1]));
    assert_eq!(chosen(&new, Some("c.test")), Some("b"));
    assert_eq!(chosen(&new, Some("b.test")), None);
}
