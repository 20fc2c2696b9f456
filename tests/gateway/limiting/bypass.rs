//! Ways to get a second counter, or no counter: each of them ends in a refusal.

use super::super::store_kind::{Place, on_both_stores};
use crate::support::{Feed, File, Gateway, Upstream, request};
use http::Request;
use std::sync::atomic::{AtomicUsize, Ordering};

on_both_stores! {
    no_spelling_of_a_path_leaves_its_route_or_its_counter
    no_way_of_saying_a_key_twice_makes_another_of_it
    no_spelling_of_a_cookie_makes_another_of_it
    no_forged_address_is_believed
    no_address_of_a_network_is_another_client
}

/// A gateway with one limit on one route, whose quota is used up, and its upstream.
async fn spent(place: &Place, by: &str, path: &str, server: &str) -> (Gateway, Upstream) {
    let upstream = Upstream::echo().await;
    static FILES: AtomicUsize = AtomicUsize::new(0);
    let number = FILES.fetch_add(1, Ordering::Relaxed);
    let file = File::default()
        .server(server)
        .store(&format!("prefix = \"counts-{number}\""))
        .limit("one", by)
        .upstream("api", &[&upstream])
        .route("orders", path, "api", &["one"]);
    (place.gateway(file).await, upstream)
}

async fn no_spelling_of_a_path_leaves_its_route_or_its_counter(place: Place) {
    for by in [
        "[\"ip\", \"route\"]",
        "[\"ip\", \"path:id\"]",
        "[\"ip\", \"host\"]",
        "[\"ip\", \"method\"]",
    ] {
        let lines = format!("by = {by}\nrate = \"1/h\"");
        let (gateway, _upstream) = spent(&place, &lines, "/v1/orders/{id}", "").await;
        let mut client = gateway.connect().await;
        client
            .ask(request("GET", "/v1/orders/7", &[]))
            .await
            .expect(200);
        for target in [
            "/v1/orders/7",
            "/v1/orders/7/",
            "/v1/orders/7?x=1",
            "/v1/orders/7?",
            "//v1///orders//7",
            "/./v1/./orders/./7",
            "/v1/users/../orders/7",
            "/v1/orders/8/../7",
            "/v1/orders/7/.",
            "/v1/orders/7/x/..",
            "/%76%31/orders/7",
            "/v1/orders/%37",
            "/v1/%6Frders/7",
            "/v1/%6frders/7",
            "/v1/orders/%2e/7",
            "/v1/orders/8/%2e%2e/7",
            "/v1/orders/8/.%2E/7",
            "/v1;a=b/orders/7",
            "/v1/orders/7;jsessionid=1",
            "/v1/orders;/7;",
            "http://gateway.test/v1/orders/7",
        ] {
            let answer = client.ask(request("GET", target, &[])).await;
            assert_eq!(answer.status, 429, "{by} {target}");
        }
        for target in [
            "/v1%2forders/7",
            "/../v1/orders/7",
            "/v1/orders/7%00",
            "/v1\\orders\\7",
            "/v1/orders/%5c7",
            "/v1/orders/7%",
        ] {
            let answer = client.ask(request("GET", target, &[])).await;
            assert!(
                [400, 429].contains(&answer.status),
                "{by} {target}: {}",
                answer.status
            );
            client = gateway.connect().await;
        }
    }
}

async fn no_way_of_saying_a_key_twice_makes_another_of_it(place: Place) {
    for (by, missing, good) in [
        ("header:x-api-key", "refuse", ("X-Api-Key", "k")),
        ("header:x-api-key", "skip", ("X-Api-Key", "k")),
        ("header:x-tenant", "shared", ("X-Tenant", "k")),
        ("cookie:session", "refuse", ("Cookie", "session=k")),
        ("header:authorization", "ip", ("Authorization", "Bearer k")),
    ] {
        let lines = format!("by = \"{by}\"\nmissing = \"{missing}\"\nrate = \"1/h\"");
        let (gateway, _upstream) = spent(&place, &lines, "/", "").await;
        let mut client = gateway.connect().await;
        client.ask(request("GET", "/", &[good])).await.expect(200);
        let (name, value) = good;
        let (upper, lower) = (name.to_ascii_uppercase(), name.to_ascii_lowercase());
        let padded = format!(" {value}\t");
        let other = value.replace('k', "j");
        let alias = name.replace('-', "_");
        let mut ways = vec![
            vec![(&*upper, value)],
            vec![(&*lower, value)],
            vec![(name, &*padded)],
            vec![good, good],
            vec![good, (&*lower, value)],
            vec![good, (name, &*other)],
            vec![(name, &*other), good],
            vec![good, good, (name, &*other)],
        ];
        if alias != name {
            ways.push(vec![good, (&*alias, &*other)]);
            ways.push(vec![(&*alias, &*other), good]);
        }
        for fields in ways {
            let answer = client.ask(request("GET", "/", &fields)).await;
            let refused = [400, 401, 429].contains(&answer.status);
            assert!(refused, "{by} {missing} {fields:?}: {}", answer.status);
        }
    }
}

async fn no_spelling_of_a_cookie_makes_another_of_it(place: Place) {
    let lines = "by = \"cookie:session\"\nmissing = \"refuse\"\nrate = \"1/h\"";
    let (gateway, _upstream) = spent(&place, lines, "/", "").await;
    let mut client = gateway.connect().await;
    let plain = [("Cookie", "session=s:k.Zz/0=")];
    client.ask(request("GET", "/", &plain)).await.expect(200);
    for spelling in [
        "session=s:k.Zz/0=",
        "session=\"s:k.Zz/0=\"",
        "session=s%3Ak.Zz%2F0%3D",
        "session=s%3ak.Zz%2f0%3d",
        "session=%73%3a%6b.Zz/0=",
        "session=\"s%3Ak.Zz/0=\"",
        "session=\"\\163:k.Zz/0=\"",
        "session=\"\\s:k.Zz/0=\"",
        " session = s:k.Zz/0= ; theme=dark",
        "session=s:k.Zz/0=; session=\"s:k.Zz/0=\"",
    ] {
        let answer = client
            .ask(request("GET", "/", &[("Cookie", spelling)]))
            .await;
        assert_eq!(answer.status, 429, "{spelling}");
    }
}

async fn no_forged_address_is_believed(place: Place) {
    let lines = "by = \"ip\"\nrate = \"1/h\"";
    for server in ["", "trust = [\"192.0.2.0/24\"]"] {
        let (gateway, _upstream) = spent(&place, lines, "/", server).await;
        let mut client = gateway.connect().await;
        client.ask(request("GET", "/", &[])).await.expect(200);
        for fields in [
            &[("X-Forwarded-For", "203.0.113.9")][..],
            &[("X-Forwarded-For", "203.0.113.9, 192.0.2.1")],
            &[("Forwarded", "for=203.0.113.9")],
            &[
                ("Forwarded", "for=203.0.113.9"),
                ("X-Forwarded-For", "203.0.113.10"),
            ],
            &[("X-Real-IP", "203.0.113.9")],
            &[("X-Client-IP", "203.0.113.9")],
            &[("True-Client-IP", "203.0.113.9")],
            &[("CF-Connecting-IP", "203.0.113.9")],
            &[("Via", "1.1 203.0.113.9")],
        ] {
            let answer = client.ask(request("GET", "/", fields)).await;
            assert_eq!(answer.status, 429, "{fields:?}");
        }
    }
    // Behind a trusted proxy, the addresses on the left come from the client itself.
    let (gateway, _upstream) = spent(&place, lines, "/", "trust = [\"127.0.0.0/8\"]").await;
    let mut client = gateway.connect().await;
    let from = |chain: &'static str| request("GET", "/", &[("X-Forwarded-For", chain)]);
    client.ask(from("203.0.113.9")).await.expect(200);
    for chain in [
        "198.51.100.1, 203.0.113.9",
        "garbage, 203.0.113.9",
        "127.0.0.1, 203.0.113.9",
        ", ,203.0.113.9",
        "203.0.113.9, 127.0.0.1",
        "::ffff:203.0.113.9",
        "203.0.113.9:4711",
    ] {
        assert_eq!(client.ask(from(chain)).await.status, 429, "{chain}");
    }
}

async fn no_address_of_a_network_is_another_client(place: Place) {
    let lines = "by = \"ip\"\nrate = \"1/h\"";
    let (gateway, _upstream) = spent(&place, lines, "/", "trust = [\"127.0.0.0/8\"]").await;
    let mut client = gateway.connect().await;
    let from = |address: &str| request("GET", "/", &[("X-Forwarded-For", address)]);
    client.ask(from("2001:db8:1:2::1")).await.expect(200);
    for address in [
        "2001:db8:1:2::2",
        "2001:db8:1:2:ffff:ffff:ffff:ffff",
        "2001:0DB8:0001:0002::1",
        "[2001:db8:1:2::3]",
        "[2001:db8:1:2::3]:443",
    ] {
        assert_eq!(client.ask(from(address)).await.status, 429, "{address}");
    }
    client.ask(from("2001:db8:1:3::1")).await.expect(200);
}

#[tokio::test]
async fn what_http_2_says_of_itself_counts_as_http_1_says_it() {
    let upstream = Upstream::echo().await;
    let lines = "by = [\"host\", \"path:id\"]\nrate = \"1/h\"";
    let file = File::default()
        .limit("one", lines)
        .upstream("api", &[&upstream])
        .route("orders", "/v1/{id}", "api", &["one"]);
    let gateway = Gateway::start(&file).await;
    gateway
        .get_with("/v1/7", &[("Host", "a.test")])
        .await
        .expect(200);
    for (uri, host) in [
        ("http://a.test/v1/7", None),
        ("http://A.TEST/v1/7", None),
        ("http://a.test:80/v1/7", None),
        ("http://a.test./v1/7", None),
        ("http://a.test/v1/%37", None),
        ("http://a.test//v1/7;x", None),
        ("http://a.test/v1/7", Some("b.test")),
    ] {
        let mut call = Request::get(uri);
        if let Some(host) = host {
            call = call.header("host", host);
        }
        let answer = gateway
            .h2()
            .await
            .ask(call.body(Feed::of("")).unwrap())
            .await;
        assert!(
            [400, 429].contains(&answer.status),
            "{uri} {host:?}: {}",
            answer.status
        );
    }
}

/// Members of a group and other clients share an address, and neither empties the bucket of the other.
#[tokio::test]
async fn a_tier_is_not_emptied_by_who_is_in_none() {
    let upstream = Upstream::echo().await;
    let lines = "by = \"ip\"\nrate = \"1/h\"\nburst = 2\ntiers.gold = { burst = 10 }";
    let file = File::to(&upstream, &["one"])
        .limit("one", lines)
        .with("[groups.gold]\nby = \"header:x-api-key\"\nmembers = [\"g\"]");
    let gateway = Gateway::start(&file).await;
    let mut client = gateway.connect().await;
    let (mut members, mut others) = (0, 0);
    for _ in 0..30 {
        let member = request("GET", "/", &[("X-Api-Key", "g")]);
        members += u32::from(client.ask(member).await.status == 200);
        let other = request("GET", "/", &[]);
        others += u32::from(client.ask(other).await.status == 200);
    }
    assert_eq!((members, others), (10, 2));
}

/// The gateway removes a field that `Connection` names. A limit must not count by it, since the upstream never sees it.
#[tokio::test]
async fn what_the_connection_takes_away_is_not_counted_by() {
    let upstream = Upstream::echo().await;
    let lines = "by = \"header:x-api-key\"\nmissing = \"refuse\"\nrate = \"9/h\"";
    let file = File::to(&upstream, &["one"]).limit("one", lines);
    let gateway = Gateway::start(&file).await;
    for named in [
        "x-api-key",
        "close, X-Api-Key",
        "keep-alive,x-other, x-api-key",
    ] {
        let fields = [("X-Api-Key", "k"), ("Connection", named)];
        gateway.get_with("/", &fields).await.expect(401);
    }
    let asks = ("Access-Control-Request-Method", "PUT");
    let preflight = [("Origin", "https://a.test"), asks, ("Connection", "origin")];
    let mut client = gateway.connect().await;
    client
        .ask(request("OPTIONS", "/", &preflight))
        .await
        .expect(401);
    gateway
        .get_with("/", &[("X-Api-Key", "k")])
        .await
        .expect(200);
}
