//! Exemptions from limits.

use super::super::store_kind::{Place, on_both_stores};
use crate::support::{File, Upstream, request};

on_both_stores! {
    what_is_exempt_is_neither_charged_nor_asked_for_a_key
}

async fn what_is_exempt_is_neither_charged_nor_asked_for_a_key(place: Place) {
    let upstream = Upstream::echo().await;
    let lines = "by = \"header:x-key\"\nmissing = \"refuse\"\nrate = \"1/h\"\n\
        exempt = { ip = [\"198.51.100.0/24\"], methods = [\"OPTIONS\"], paths = [\"/open/a\"] }";
    let file = File::to(&upstream, &["keyed"])
        .server("trust = [\"127.0.0.0/8\"]")
        .limit("keyed", lines);
    let gateway = place.gateway(file).await;
    let mut client = gateway.connect().await;
    for (method, target, from, key, status) in [
        ("GET", "/", "203.0.113.1", "", 401),
        ("GET", "/", "198.51.100.7", "", 200),
        ("GET", "/", "198.51.101.7", "", 401),
        ("OPTIONS", "/", "203.0.113.1", "", 200),
        ("options", "/", "203.0.113.1", "", 401),
        ("GET", "/open/a", "203.0.113.1", "", 200),
        ("GET", "/open/./%61/b;x", "203.0.113.1", "", 200),
        ("GET", "/open/ab", "203.0.113.1", "", 401),
        ("GET", "/open/a/../b", "203.0.113.1", "", 401),
        ("GET", "/", "203.0.113.1", "k", 200),
        ("GET", "/", "203.0.113.1", "k", 429),
        ("OPTIONS", "/", "203.0.113.1", "k", 200),
    ] {
        let mut fields = vec![("X-Forwarded-For", from)];
        if !key.is_empty() {
            fields.push(("X-Key", key));
        }
        let answer = client.ask(request(method, target, &fields)).await;
        assert_eq!(answer.status, status, "{method} {target} {from} {key}");
        let counted = matches!((status, key), (200 | 429, "k")) && method == "GET";
        assert_eq!(answer.fields.has("ratelimit"), counted, "{answer:?}");
    }
}
