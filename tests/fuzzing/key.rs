//! Any bytes as the head of a request, from which keys are made. The target in `fuzz/` includes this file.

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr};
use tollgate::key::client_ip::Trust;
use tollgate::key::cookie::Cookies;
use tollgate::key::{
    Caller, Content, CustomerSearch, KeyCase, KeyOutcome, KeyPart, KeyTemplate, Location, Mask,
    MissingKey, NoIdentity,
};

/// The host, path and query of a made-up request, from the first line of the bytes.
#[derive(Debug)]
struct Somewhere<'a> {
    host: &'a str,
    path: &'a str,
    query: Option<&'a str>,
}

impl Location for Somewhere<'_> {
    fn host(&self) -> Cow<'_, str> {
        self.host.into()
    }

    fn parameter(&self, name: &str) -> Option<Cow<'_, str>> {
        (name == "id").then(|| self.path.into())
    }

    fn path(&self) -> Option<Cow<'_, str>> {
        Some(self.path.into())
    }

    fn query(&self) -> Option<&str> {
        self.query
    }
}

/// Makes every kind of key of a request. The first line of the bytes is `HOST PATH?QUERY`, and the other lines are
/// fields. Bytes that are no such request are left out. How many keys were there?
///
/// # Panics
/// If a key contains a byte that no key may have, or if a key is written although there is none.
pub(crate) fn request(bytes: &[u8]) -> usize {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.split('\n');
    let first = lines.next().unwrap_or_default();
    let (host, target) = first.split_once(' ').unwrap_or((first, ""));
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    let mut fields = HeaderMap::new();
    for line in lines.take(64) {
        let Some((name, value)) = line.split_once(':') else {
            continue;
        };
        let name = HeaderName::from_bytes(name.as_bytes());
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(value.trim().as_bytes())) {
            fields.append(name, value);
        }
    }
    let networks = ["10.0.0.0/8", "fd00::/8"].iter();
    let trust = Trust::new(networks.filter_map(|text| text.parse().ok()).collect());
    let peer = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    let walk = trust.explain(Some(peer), &fields);
    let address = trust.client(Some(peer), &fields);
    assert_eq!(walk.client, address, "explained otherwise than it is");
    let caller = Caller {
        address,
        route: "r",
        method: &Method::GET,
        fields: &fields,
        location: &Somewhere { host, path, query },
        cookies: &Cookies::of(&fields),
        customers: &CustomerSearch::default(),
        identity: &NoIdentity,
        content: Content::Absent,
        certificate: None,
    };
    let missing = [
        MissingKey::Refuse,
        MissingKey::Ip,
        MissingKey::Skip,
        MissingKey::Shared,
    ];
    let mut keys = 0;
    for template in templates().flat_map(|parts| missing.map(|missing| (parts.clone(), missing))) {
        let (parts, missing) = template;
        keys += usize::from(made(
            &KeyTemplate {
                parts,
                missing,
                unknown: None,
                case: KeyCase::Sensitive,
            },
            &caller,
        ));
    }
    keys
}

fn made(template: &KeyTemplate, caller: &Caller<'_>) -> bool {
    let mut key = b"before".to_vec();
    let found = template.write(caller, &mut key);
    let found = matches!(found, KeyOutcome::Key);
    let written = key.strip_prefix(b"before").unwrap_or_default();
    assert!(
        found || written.is_empty(),
        "something was written that is no key"
    );
    assert!(
        written.iter().all(u8::is_ascii_graphic),
        "a byte that no key may have: {written:?}"
    );
    found
}

/// Every part of a key alone, and all parts together.
fn templates() -> impl Iterator<Item = Vec<KeyPart>> {
    let header = |secret| KeyPart::Header {
        name: HeaderName::from_static("x-a"),
        secret,
    };
    let query = |secret| KeyPart::Query {
        name: "q".into(),
        secret,
    };
    let all = vec![
        KeyPart::Ip(Mask::DEFAULT),
        header(false),
        header(true),
        KeyPart::Header {
            name: http::header::AUTHORIZATION,
            secret: true,
        },
        KeyPart::Cookie("c".into()),
        KeyPart::BasicUser,
        KeyPart::Basic,
        query(false),
        query(true),
        KeyPart::Path("id".into()),
        KeyPart::Method,
        KeyPart::Host,
        KeyPart::Route,
    ];
    let alone: Vec<Vec<KeyPart>> = all.iter().map(|part| vec![part.clone()]).collect();
    alone.into_iter().chain([all])
}
