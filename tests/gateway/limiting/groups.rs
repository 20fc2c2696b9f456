//! Groups: their tiers, their exemptions, and keys that belong to no group.

use super::super::store_kind::{Place, on_both_stores};
use crate::support::{Answer, File, Gateway, Upstream, Wire, get, request};
use std::path::Path;

on_both_stores! {
    a_member_has_its_own_numbers_and_everybody_else_the_limits
    the_first_group_of_the_file_decides
    who_changes_tier_starts_afresh_there
    a_group_can_be_exempt_and_its_members_need_no_key
    keys_that_nobody_knows_count_by_address
    keys_that_nobody_knows_are_refused
    every_kind_of_number_may_differ
    a_list_of_rates_has_as_many_in_its_tier
    nobody_leaves_a_group_by_saying_it_twice
}

/// The output of `printf 'a b' | sha256sum`.
const A_B: &str = "c8687a08aa5d6ed2044328fa6a697ab8e96dc34291e8c2034ae8c38e6fcc6d65";

/// The output of `printf %s gold-2 | sha256sum`.
const GOLD_2: &str = "f2d7529f3c415f811c2e82ab5969537495ee3e524608de85583e9519da9a81e9";

/// Sends requests until one is refused. Returns the number of admitted requests, and the refusal.
async fn burst(client: &mut Wire, target: &str, fields: &[(&str, &str)]) -> (u64, Answer) {
    for admitted in 0.. {
        let answer = client.ask(request("GET", target, fields)).await;
        if answer.status == 429 {
            return (admitted, answer);
        }
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    unreachable!("it is refused in the end")
}

async fn a_member_has_its_own_numbers_and_everybody_else_the_limits(place: Place) {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &["key"])
        .with(&format!("[groups.gold]\nby = \"header:x-api-key\"\nmembers = [\"gold-1\", \"sha256:{GOLD_2}\"]"))
        .limit("key", "by = \"header:x-api-key\"\nmissing = \"refuse\"\nrate = \"3/h\"\ntiers.gold = { rate = \"60/h\", burst = 7 }");
    let gateway = place.gateway(file).await;
    let mut client = gateway.connect().await;
    let (many, refused) = burst(&mut client, "/", &[("X-Api-Key", "silver")]).await;
    assert_eq!(many, 3);
    assert_eq!(refused.field("ratelimit-policy"), "\"key\";q=3;w=3600");
    let first = client
        .ask(request("GET", "/", &[("X-Api-Key", "gold-1")]))
        .await;
    assert_eq!(first.field("ratelimit-policy"), "\"key\";q=7;w=420");
    assert_eq!(first.field("x-ratelimit-limit"), "7");
    assert_eq!(first.remaining("key"), 6);
    let (many, refused) = burst(&mut client, "/", &[("X-Api-Key", "gold-1")]).await;
    assert_eq!(many, 6);
    // One token comes every minute.
    assert!(
        (50..=60).contains(&refused.number("retry-after")),
        "{refused:?}"
    );
    for (answer, groups) in [
        (first, serde_json::json!({ "key": "gold" })),
        (refused, serde_json::json!({ "key": "gold" })),
    ] {
        assert_eq!(gateway.line_of(&answer).await["groups"], groups);
    }
    let other = client
        .ask(request("GET", "/", &[("X-Api-Key", "bronze")]))
        .await;
    assert_eq!(
        gateway.line_of(&other).await["groups"],
        serde_json::json!({})
    );
    let (many, _) = burst(&mut client, "/", &[("X-Api-Key", "gold-2")]).await;
    assert_eq!(many, 7, "known by its digest");
    client.ask(get("/")).await.expect(401);
}

async fn the_first_group_of_the_file_decides(place: Place) {
    let upstream = Upstream::echo().await;
    let group = |name: &str, by: &str, members: &str| {
        format!("[groups.{name}]\nby = \"{by}\"\nmembers = {members}")
    };
    let file = File::to(&upstream, &["calls"])
        .server("trust = [\"127.0.0.0/8\"]")
        .with(&group("office", "ip", "[\"198.51.100.0/24\", \"2001:db8::/32\"]"))
        .with(&group("gold", "header:x-api-key", "\"k\""))
        // The group is written in the other form, and is found by another source than the limit counts by.
        .limit("calls", "by = \"header:x-user\"\nmissing = \"ip\"\nrate = \"1/h\"\ntiers.gold = { rate = \"2/h\" }\ntiers.office = { rate = \"3/h\" }");
    let gateway = place.gateway(file).await;
    let mut client = gateway.connect().await;
    for (user, from, key, many) in [
        ("a", "203.0.113.1", "", 1),
        ("b", "203.0.113.1", "k", 2),
        ("c", "198.51.100.7", "", 3),
        ("d", "198.51.100.7", "k", 3),
        ("e", "2001:db8:7::1", "k", 3),
        ("f", "::ffff:198.51.100.7", "k", 3),
        ("g", "203.0.113.1", "K", 1),
    ] {
        let mut fields = vec![("X-User", user), ("X-Forwarded-For", from)];
        if !key.is_empty() {
            fields.push(("X-Api-Key", key));
        }
        assert_eq!(burst(&mut client, "/", &fields).await.0, many, "{user}");
    }
}

async fn who_changes_tier_starts_afresh_there(place: Place) {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &["calls"])
        .with("[groups.gold]\nby = \"header:x-api-key\"\nmembers = \"k\"")
        .limit("calls", "by = \"ip\"\nalgorithm = \"fixed-window\"\nrate = \"2/h\"\ntiers.gold = { rate = \"5/h\" }");
    let gateway = place.gateway(file).await;
    let mut client = gateway.connect().await;
    let gold = [("X-Api-Key", "k")];
    client.ask(get("/")).await.expect(200);
    assert_eq!(burst(&mut client, "/", &gold).await.0, 5);
    client.ask(get("/")).await.expect(200);
    client.ask(get("/")).await.expect(429);
}

async fn a_group_can_be_exempt_and_its_members_need_no_key(place: Place) {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &["keyed"])
        .with("[groups.probe]\nby = \"cookie:probe\"\nmembers = \"p\"")
        .limit("keyed", "by = \"header:x-api-key\"\nmissing = \"refuse\"\nrate = \"1/h\"\nexempt = { groups = [\"probe\"] }");
    let gateway = place.gateway(file).await;
    let mut client = gateway.connect().await;
    for (cookie, status) in [
        ("probe=p", 200),
        ("a=b; probe=p", 200),
        ("probe=q", 401),
        ("probe=p; probe=q", 401),
    ] {
        let answer = client.ask(request("GET", "/", &[("Cookie", cookie)])).await;
        assert_eq!(answer.status, status, "{cookie}");
        let line = gateway.line_of(&answer).await;
        assert_eq!(line["keys"], serde_json::json!({}));
        let groups = match status {
            200 => serde_json::json!({ "keyed": "probe" }),
            _ => serde_json::json!({}),
        };
        assert_eq!(line["groups"], groups, "{cookie}");
    }
    let both = [("Cookie", "probe=p"), ("X-Api-Key", "k")];
    for _ in 0..3 {
        client.ask(request("GET", "/", &both)).await.expect(200);
    }
    client
        .ask(request("GET", "/", &both[1..]))
        .await
        .expect(200);
    client
        .ask(request("GET", "/", &both[1..]))
        .await
        .expect(429);
}

async fn keys_that_nobody_knows_count_by_address(place: Place) {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &["key"])
        .server("trust = [\"127.0.0.0/8\"]")
        .with("[groups.silver]\nby = \"header:x-api-key\"\nmembers = [\"s1\", \"s2\"]")
        .with("[groups.gold]\nby = \"header:x-api-key\"\nmembers = [\"g\"]")
        .limit("key", "by = [\"header:x-api-key\", \"method\"]\nmissing = \"ip\"\nunknown = \"ip\"\nrate = \"2/h\"\ntiers.gold = { burst = 4 }");
    let gateway = place.gateway(file).await;
    let mut client = gateway.connect().await;
    let mut admitted = Vec::new();
    for (key, from) in [
        ("s1", "203.0.113.1"),
        ("s2", "203.0.113.1"),
        ("g", "203.0.113.1"),
        // All invented keys, and a missing key, share one counter.
        ("x1", "203.0.113.1"),
        ("x2", "203.0.113.1"),
        ("", "203.0.113.1"),
        ("x1", "203.0.113.2"),
        // No client can imitate an address by a key.
        ("%ip=203.0.113.9", "203.0.113.2"),
    ] {
        let fields = [("X-Forwarded-For", from), ("X-Api-Key", key)];
        let fields = if key.is_empty() {
            &fields[..1]
        } else {
            &fields
        };
        admitted.push(burst(&mut client, "/", fields).await.0);
    }
    assert_eq!(admitted, [2, 2, 4, 2, 0, 0, 2, 0]);
    let refused = client
        .ask(request(
            "GET",
            "/",
            &[("X-Api-Key", "x3"), ("X-Forwarded-For", "203.0.113.1")],
        ))
        .await;
    let line = gateway.line_of(&refused).await;
    assert_eq!(line["keys"]["key"], "%ip=203.0.113.1|GET");
}

async fn keys_that_nobody_knows_are_refused(place: Place) {
    let upstream = Upstream::echo().await;
    let known = "by = [\"method\", \"header:x-api-key\"]\nmissing = \"skip\"\nunknown = \"refuse\"\nrate = \"2/h\"";
    let file = File::default()
        .upstream("main", &[&upstream])
        .with("[groups.silver]\nby = \"header:x-api-key\"\nmembers = [\"s\"]")
        .limit("key", known)
        .limit("other", &format!("{known}\nmissing_status = 403"))
        .limit("shadow", &format!("{known}\nmode = \"shadow\""))
        .limit("all", "by = \"everyone\"\nrate = \"10/h\"")
        .route("key", "/key", "main", &["all", "key"])
        .route("other", "/other", "main", &["other"])
        .route("shadow", "/shadow", "main", &["shadow"]);
    let gateway = place.gateway(file).await;
    let mut client = gateway.connect().await;
    let with = |target, key| request("GET", target, &[("X-Api-Key", key)]);
    for invented in ["x1", "x2", "x3", "x4", "x5", "%ip=127.0.0.1"] {
        let answer = client.ask(with("/key", invented)).await.expect(401);
        assert_eq!(
            answer.field("www-authenticate"),
            "ApiKey field=\"x-api-key\""
        );
        assert!(!answer.fields.has("retry-after"), "{answer:?}");
        let told = "No group contains the value of the field x-api-key.";
        assert_eq!(answer.json()["detail"], told);
        let line = gateway.line_of(&answer).await;
        assert_eq!(line["reason"], "unknown_key");
        assert_eq!(line["limit"], "key");
    }
    // The requests were charged by the limits that could be asked. A client without a key is not counted with clients
    // that have a wrong key.
    for (key, left) in [("s", 3), ("s", 2), ("", 1)] {
        let answer = client.ask(with("/key", key)).await.expect(200);
        assert_eq!(answer.remaining("all"), left, "{key}");
    }
    assert_eq!(burst(&mut client, "/key", &[("X-Api-Key", "s")]).await.0, 0);
    let answer = client.ask(with("/other", "x")).await.expect(403);
    assert!(!answer.fields.has("www-authenticate"), "{answer:?}");
    let answer = client.ask(with("/shadow", "x")).await.expect(200);
    assert_eq!(gateway.line_of(&answer).await["shadow"][0], "shadow");
}

async fn every_kind_of_number_may_differ(place: Place) {
    let upstream = Upstream::echo().await;
    let file = File::default()
        .upstream("main", &[&upstream])
        .with("[groups.gold]\nby = \"header:x-api-key\"\nmembers = \"k\"")
        .limit("cost", "by = \"route\"\nrate = \"12/h\"\ncost = 4\ntiers.gold = { cost = 2 }")
        .limit("window", "by = \"route\"\nalgorithm = \"sliding-log\"\nrate = \"2/h\"\ntiers.gold = { rate = \"3/min\" }")
        .limit("queue", "by = \"route\"\nalgorithm = \"leaky-bucket\"\nrate = \"1/200ms\"\nqueue = 1\ntiers.gold = { queue = 3 }")
        .route("cost", "/cost", "main", &["cost"])
        .route("window", "/window", "main", &["window"])
        .route("queue", "/queue", "main", &["queue"]);
    let gateway = place.gateway(file).await;
    let mut client = gateway.connect().await;
    let gold = [("X-Api-Key", "k")];
    client.ask(get("/cost")).await.expect(200);
    assert_eq!(burst(&mut client, "/cost", &gold).await.0, 6);
    assert_eq!(burst(&mut client, "/window", &[]).await.0, 2);
    assert_eq!(burst(&mut client, "/window", &gold).await.0, 3);
    let mut held = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let mut client = gateway.connect().await;
        held.spawn(async move {
            let gold = [("X-Api-Key", "k")];
            client.ask(request("GET", "/queue", &gold)).await.status
        });
    }
    let all = held.join_all().await;
    let passed = all.iter().filter(|status| **status == 200).count();
    // One request goes on at once, and three wait. While a slow machine sends, one more may fit.
    assert!((4..=5).contains(&passed), "{all:?}");
}

async fn a_list_of_rates_has_as_many_in_its_tier(place: Place) {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &["calls"])
        .with("[groups.gold]\nby = \"header:x-api-key\"\nmembers = \"k\"")
        .limit("calls", "by = \"header:x-api-key\"\nmissing = \"ip\"\nrate = [\"5/min\", \"2/h\"]\nalgorithm = \"fixed-window\"\ntiers.gold = { rate = [\"6/min\", \"4/h\"] }");
    let gateway = place.gateway(file).await;
    let mut client = gateway.connect().await;
    let (many, refused) = burst(&mut client, "/", &[]).await;
    assert_eq!((many, &refused.json()["window"]), (2, &"2/h".into()));
    let (many, refused) = burst(&mut client, "/", &[("X-Api-Key", "k")]).await;
    assert_eq!((many, &refused.json()["window"]), (4, &"4/h".into()));
    assert_eq!(gateway.line_of(&refused).await["window"], "4/h");
    assert_eq!(
        refused.field("ratelimit-policy"),
        "\"calls:min\";q=6;w=60, \"calls:h\";q=4;w=3600"
    );
}

/// The example in `deploy/`, with the upstreams and keys of the test.
async fn example(orders: &Upstream, site: &Upstream, total: &str) -> Gateway {
    let text = include_str!("../../../deploy/api-keys.toml");
    assert!(text.lines().count() <= 30);
    let text = text
        .replace("\":8080\"", "\"127.0.0.1:0\"")
        .replace("http://127.0.0.1:3000", &orders.url())
        .replace("http://127.0.0.1:3001", &site.url())
        .replace("\"5000/s\"", total);
    let folder = tempfile::tempdir().unwrap();
    let keys: String = (0..4).map(|n| format!("gold-{n}\n")).collect();
    std::fs::write(folder.path().join("gold-keys.txt"), keys).unwrap();
    let file = folder.path().join("gateway.toml");
    std::fs::write(&file, text).unwrap();
    Gateway::run(folder, Path::new(&file)).await
}

#[tokio::test]
async fn one_sentence_is_one_short_file_and_every_number_holds() {
    let (orders, site) = (Upstream::echo().await, Upstream::echo().await);
    let gateway = example(&orders, &site, "\"5000/s\"").await;
    let mut client = gateway.connect().await;
    let (silver, gold) = ([("X-Api-Key", "silver")], [("X-Api-Key", "gold-0")]);
    let told = client
        .ask(request("GET", "/api/orders/7", &silver))
        .await
        .expect(200);
    assert_eq!(
        told.field("ratelimit-policy"),
        "\"per-key\";q=20;w=12, \"orders-total\";q=5000;w=1"
    );
    // The tokens that come back while a slow machine sends: one every 600 ms, for gold one every 60 ms.
    let asked = std::time::Instant::now();
    let (many, refused) = burst(&mut client, "/api/orders/7", &silver).await;
    let more = u64::try_from(asked.elapsed().as_millis()).unwrap() / 600 + 1;
    assert!((19..=19 + more).contains(&many), "{many}");
    assert!(refused.number("retry-after-ms") <= 600);
    let asked = std::time::Instant::now();
    let (many, refused) = burst(&mut client, "/api/orders", &gold).await;
    let more = u64::try_from(asked.elapsed().as_millis()).unwrap() / 60 + 1;
    assert!((200..=200 + more).contains(&many), "{many}");
    assert!(refused.number("retry-after-ms") <= 60);
    client.ask(get("/api/orders/")).await.expect(401);
    for _ in 0..300 {
        let answer = client.ask(get("/elsewhere")).await.expect(200);
        assert!(!answer.fields.has("ratelimit"));
    }
    assert_eq!(site.seen(), 300);

    // The limit in front of `orders` counts all clients together.
    let gateway = example(&orders, &site, "\"300/h\"").await;
    let before = orders.seen();
    let mut client = gateway.connect().await;
    for n in 0..4 {
        let key = format!("gold-{n}");
        burst(&mut client, "/api/orders/x", &[("X-Api-Key", &key)]).await;
    }
    assert_eq!(orders.seen() - before, 300);
    let gold = [("X-Api-Key", "gold-3")];
    let refused = client
        .ask(request("GET", "/api/orders/x", &gold))
        .await
        .expect(429);
    assert_eq!(
        refused.json()["violated-policies"],
        serde_json::json!(["orders-total"])
    );
    client.ask(get("/elsewhere")).await.expect(200);
}

async fn nobody_leaves_a_group_by_saying_it_twice(place: Place) {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &["all", "watch"])
        .with("[groups.slow]\nby = \"header:x-api-key\"\nmembers = [\"slow-1\"]")
        .limit(
            "all",
            "by = \"ip\"\nrate = \"60/h\"\nburst = 60\ntiers.slow = { rate = \"1/h\", burst = 1 }",
        )
        .limit(
            "watch",
            "by = \"ip\"\nrate = \"60/h\"\nmode = \"shadow\"\ntiers.slow = { rate = \"1/h\" }",
        );
    let gateway = place.gateway(file).await;
    let mut client = gateway.connect().await;
    let slow = ("X-Api-Key", "slow-1");
    client.ask(request("GET", "/", &[slow])).await.expect(200);
    for (fields, status) in [
        (&[slow, slow][..], 429),
        (&[slow, ("X-Api-Key", "x")], 400),
        (&[("X-Api-Key", "x"), slow], 400),
        (&[("X-Api-Key", "x")], 200),
    ] {
        let answer = client.ask(request("GET", "/", fields)).await;
        assert_eq!(answer.status, status, "{fields:?}");
    }
    let file = File::to(&upstream, &["some"])
        .with("[groups.free]\nby = \"header:x-api-key\"\nmembers = [\"free-1\"]")
        .limit(
            "some",
            "by = \"ip\"\nrate = \"1/h\"\nexempt = { groups = [\"free\"] }",
        );
    let gateway = place.gateway(file).await;
    let mut client = gateway.connect().await;
    let twice = [("X-Api-Key", "free-1"), ("X-Api-Key", "x")];
    client.ask(request("GET", "/", &twice)).await.expect(400);
}

/// The digest of a cookie is the digest of its value, in whatever form the cookie is written.
#[tokio::test]
async fn a_cookie_is_known_by_the_digest_of_what_it_means() {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &["calls"])
        .with(&format!(
            "[groups.own]\nby = \"cookie:session\"\nmembers = [\"sha256:{A_B}\", \"c%20d\"]"
        ))
        .limit(
            "calls",
            "by = \"ip\"\nrate = \"1/h\"\nexempt = { groups = \"own\" }",
        );
    let gateway = Gateway::start(&file).await;
    let mut client = gateway.connect().await;
    client.ask(get("/")).await.expect(200);
    for (cookie, status) in [
        ("session=a%20b", 200),
        ("session=\"a b\"", 200),
        ("session=\"c d\"", 200),
        ("session=a%2520b", 429),
        ("session=a+b", 429),
    ] {
        let answer = client.ask(request("GET", "/", &[("Cookie", cookie)])).await;
        assert_eq!(answer.status, status, "{cookie}");
    }
}
