//! Keys of limits: the key itself, requests without a key, and routes that share a counter.

use crate::gateway::store_kind::{Place, on_both_stores};
use crate::support::{File, Gateway, Redis, Upstream};

on_both_stores! {
    clients_are_told_apart_by_a_field
    a_missing_key_is_refused
    a_missing_key_counts_by_address
    a_missing_key_skips_the_limit
    missing_keys_share_one_counter
    a_limit_by_route_counts_each_route
    a_limit_for_everyone_counts_all
    a_list_of_keys_is_one_key
    every_part_of_a_request_tells_clients_apart
    routes_share_the_limits_of_their_upstream
    a_limit_named_by_route_and_upstream_is_charged_once
}

fn by_user(upstream: &Upstream, missing: &str) -> File {
    let lines = format!("by = \"header:x-user\"\nmissing = \"{missing}\"\nrate = \"2/h\"");
    File::to(upstream, &["user"]).limit("user", &lines)
}

async fn statuses<const N: usize>(gateway: &Gateway, users: [Option<&str>; N]) -> [u16; N] {
    let mut statuses = [0; N];
    for (status, user) in statuses.iter_mut().zip(users) {
        let fields: Vec<_> = user.iter().map(|user| ("X-User", *user)).collect();
        *status = gateway.get_with("/", &fields).await.status;
    }
    statuses
}

async fn clients_are_told_apart_by_a_field(place: Place) {
    let upstream = Upstream::echo().await;
    let gateway = place.gateway(by_user(&upstream, "refuse")).await;
    let (ann, ben) = (Some("ann"), Some("ben"));
    assert_eq!(
        statuses(&gateway, [ann, ann, ann, ben, ben, ben]).await,
        [200, 200, 429, 200, 200, 429]
    );
}

async fn a_missing_key_is_refused(place: Place) {
    let upstream = Upstream::echo().await;
    let gateway = place.gateway(by_user(&upstream, "refuse")).await;
    let answer = gateway.get("/").await.expect(401);
    assert_eq!(answer.field("content-type"), "application/problem+json");
    assert!(answer.fields.has("www-authenticate"), "{answer:?}");
    assert!(answer.text().contains("x-user"), "{answer:?}");
    assert_eq!(upstream.seen(), 0);
    // The request was charged nothing.
    assert_eq!(
        statuses(&gateway, [Some("ann"), Some("ann")]).await,
        [200, 200]
    );
}

async fn a_missing_key_counts_by_address(place: Place) {
    let upstream = Upstream::echo().await;
    let gateway = place
        .gateway(by_user(&upstream, "ip").server("trust = [\"127.0.0.1\"]"))
        .await;
    assert_eq!(
        statuses(&gateway, [None, None, None, Some("ann")]).await,
        [200, 200, 429, 200]
    );
    gateway
        .get_with("/", &[("X-Forwarded-For", "192.0.2.1")])
        .await
        .expect(200);
    // A user whose name looks like an address is not the client at that address.
    assert_eq!(statuses(&gateway, [Some("127.0.0.1")]).await, [200]);
}

async fn a_missing_key_skips_the_limit(place: Place) {
    let upstream = Upstream::echo().await;
    let gateway = place.gateway(by_user(&upstream, "skip")).await;
    assert_eq!(statuses(&gateway, [None, None, None, None]).await, [200; 4]);
    assert!(
        !gateway.get("/").await.fields.has("ratelimit"),
        "a limit that does not apply says nothing"
    );
}

async fn missing_keys_share_one_counter(place: Place) {
    let upstream = Upstream::echo().await;
    let gateway = place
        .gateway(by_user(&upstream, "shared").server("trust = [\"127.0.0.1\"]"))
        .await;
    for (address, status) in [("192.0.2.1", 200), ("192.0.2.2", 200), ("192.0.2.3", 429)] {
        gateway
            .get_with("/", &[("X-Forwarded-For", address)])
            .await
            .expect(status);
    }
    assert_eq!(statuses(&gateway, [Some(""), Some("ann")]).await[1], 200);
}

fn two_routes(upstream: &Upstream, by: &str) -> File {
    let missing = if by.contains("header") {
        "missing = \"refuse\""
    } else {
        ""
    };
    File::default()
        .limit("calls", &format!("by = {by}\n{missing}\nrate = \"2/h\""))
        .upstream("main", &[upstream])
        .route("one", "/one", "main", &["calls"])
        .route("two", "/two", "main", &["calls"])
}

async fn targets<const N: usize>(gateway: &Gateway, targets: [&str; N]) -> [u16; N] {
    let mut statuses = [0; N];
    for (status, target) in statuses.iter_mut().zip(targets) {
        *status = gateway.get(target).await.status;
    }
    statuses
}

async fn a_limit_by_route_counts_each_route(place: Place) {
    let upstream = Upstream::echo().await;
    let gateway = place.gateway(two_routes(&upstream, "\"route\"")).await;
    let seen = targets(&gateway, ["/one", "/one", "/one", "/two", "/two", "/two"]).await;
    assert_eq!(seen, [200, 200, 429, 200, 200, 429]);
}

async fn a_limit_for_everyone_counts_all(place: Place) {
    let upstream = Upstream::echo().await;
    let gateway = place
        .gateway(two_routes(&upstream, "\"everyone\"").server("trust = [\"127.0.0.1\"]"))
        .await;
    assert_eq!(
        targets(&gateway, ["/one", "/two", "/one"]).await,
        [200, 200, 429]
    );
    gateway
        .get_with("/two", &[("X-Forwarded-For", "192.0.2.1")])
        .await
        .expect(429);
}

async fn a_list_of_keys_is_one_key(place: Place) {
    let upstream = Upstream::echo().await;
    let gateway = place
        .gateway(two_routes(&upstream, "[\"header:x-user\", \"route\"]"))
        .await;
    for (target, user, status) in [
        ("/one", "ann", 200),
        ("/one", "ann", 200),
        ("/one", "ann", 429),
        ("/two", "ann", 200),
        ("/one", "ben", 200),
    ] {
        gateway
            .get_with(target, &[("X-User", user)])
            .await
            .expect(status);
    }
    gateway.get("/one").await.expect(401);
}

async fn every_part_of_a_request_tells_clients_apart(place: Place) {
    let upstream = Upstream::echo().await;
    let once = |by: &str| format!("by = \"{by}\"\nrate = \"1/h\"");
    let skipped = |by: &str| once(by) + "\nmissing = \"skip\"";
    let mut file = File::default().upstream("main", &[&upstream]);
    for (limit, lines) in [
        ("cookie", skipped("cookie:sid")),
        ("query", skipped("query:user")),
        ("path", once("path:id")),
        ("rest", once("path:rest")),
        ("method", once("method")),
        ("host", once("host")),
    ] {
        file = file.limit(limit, &lines);
    }
    for (route, path) in [
        ("cookie", "/cookie"),
        ("query", "/query"),
        ("path", "/path/{id}/x"),
        ("rest", "/rest/{*rest}"),
        ("method", "/method"),
        ("host", "/host"),
    ] {
        file = file.route(route, path, "main", &[route]);
    }
    let gateway = place.gateway(file).await;
    let mut client = gateway.connect().await;
    for (line, host, cookie, status) in [
        ("GET /cookie", "a", "sid=1", 200),
        ("GET /cookie", "a", "x=2; sid=1", 429),
        ("GET /cookie", "a", "sid=2; x=1", 200),
        ("GET /cookie", "a", "x=1", 200),
        ("GET /cookie", "a", "x=1", 200),
        ("GET /query?user=ann", "a", "", 200),
        ("GET /query?x=1&us%65r=%61nn", "a", "", 429),
        ("GET /query?user=ben", "a", "", 200),
        ("GET /query", "a", "", 200),
        ("GET /query?user=", "a", "", 200),
        ("GET /path/7/x", "a", "", 200),
        ("GET /path/%37;v=1/./x/", "a", "", 429),
        ("GET /path/8/x", "a", "", 200),
        ("GET /rest", "a", "", 200),
        ("GET /rest/", "a", "", 429),
        ("GET /rest/a/b", "a", "", 200),
        ("GET /rest//a/b/", "a", "", 429),
        ("GET /method", "a", "", 200),
        ("POST /method", "a", "", 200),
        ("POST /method", "a", "", 429),
        ("BREW /method", "a", "", 200),
        ("STIR /method", "a", "", 429),
        ("GET /host", "a.example", "", 200),
        ("GET /host", "A.EXAMPLE.:80", "", 429),
        ("GET /host", "b.example", "", 200),
    ] {
        let head = format!(
            "{line} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\nCookie: {cookie}\r\n\r\n"
        );
        let answer = client.ask(head).await;
        assert_eq!(answer.status, status, "{line} {host} {cookie}");
    }
}

#[tokio::test]
async fn a_cookie_or_parameter_that_is_demanded_is_named() {
    let upstream = Upstream::echo().await;
    let demanded = |by: &str| format!("by = \"{by}\"\nrate = \"1/h\"\nmissing = \"refuse\"");
    let file = File::default()
        .upstream("main", &[&upstream])
        .limit("cookie", &demanded("cookie:sid"))
        .limit("query", &demanded("query:user"))
        .route("cookie", "/cookie", "main", &["cookie"])
        .route("query", "/query", "main", &["query"]);
    let gateway = Gateway::start(&file).await;
    for (target, challenge, words) in [
        ("/cookie", "ApiKey cookie=\"sid\"", "the cookie sid"),
        (
            "/query?x",
            "ApiKey query=\"user\"",
            "the query parameter user",
        ),
    ] {
        let answer = gateway.get(target).await.expect(401);
        assert_eq!(answer.field("www-authenticate"), challenge);
        assert!(answer.text().contains(words), "{answer:?}");
    }
}

async fn routes_share_the_limits_of_their_upstream(place: Place) {
    let upstream = Upstream::echo().await;
    let file = File::default()
        .limit("own", "by = \"route\"\nrate = \"100/h\"")
        .limit("all", "by = \"everyone\"\nrate = \"3/h\"")
        .upstream("main", &[&upstream])
        .with("limits = [\"all\"]")
        .route("one", "/one", "main", &["own"])
        .route("two", "/two", "main", &[]);
    let gateway = place.gateway(file).await;
    let first = gateway.get("/one").await.expect(200);
    assert_eq!(
        first.field("ratelimit-policy"),
        "\"own\";q=100;w=3600, \"all\";q=3;w=3600"
    );
    assert_eq!(targets(&gateway, ["/two", "/one"]).await, [200, 200]);
    assert_eq!(gateway.get("/one").await.expect(429).remaining("own"), 98);
    assert_eq!(targets(&gateway, ["/two", "/one"]).await, [429, 429]);
}

async fn a_limit_named_by_route_and_upstream_is_charged_once(place: Place) {
    let upstream = Upstream::echo().await;
    let file = File::default()
        .limit("all", "by = \"everyone\"\nrate = \"10/h\"")
        .upstream("main", &[&upstream])
        .with("limits = [\"all\"]")
        .route("one", "/{*rest}", "main", &["all"]);
    let gateway = place.gateway(file).await;
    assert_eq!(gateway.get("/").await.expect(200).remaining("all"), 9);
}

#[tokio::test]
async fn a_stranger_cannot_name_his_own_address() {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &["ip"]).limit("ip", "by = \"ip\"\nrate = \"1/h\"");
    let gateway = Gateway::start(&file).await;
    gateway
        .get_with("/", &[("X-Forwarded-For", "192.0.2.1")])
        .await
        .expect(200);
    for field in [
        "X-Forwarded-For",
        "X-Real-IP",
        "True-Client-IP",
        "X-Client-IP",
    ] {
        gateway
            .get_with("/", &[(field, "192.0.2.2")])
            .await
            .expect(429);
    }
    gateway
        .get_with("/", &[("Forwarded", "for=192.0.2.2")])
        .await
        .expect(429);
}

#[tokio::test]
async fn a_trusted_proxy_names_its_clients_and_they_do_not_name_themselves() {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &["ip"]).limit("ip", "by = \"ip\"\nrate = \"1/h\"");
    let gateway = Gateway::start(&file.server("trust = [\"127.0.0.0/8\"]")).await;
    for (hops, status) in [
        ("192.0.2.1", 200),
        ("192.0.2.2", 200),
        ("192.0.2.1", 429),
        // The addresses that the client itself wrote are further left, and are not trusted.
        ("198.51.100.1, 192.0.2.1", 429),
        // A trusted hop is skipped.
        ("192.0.2.3, 127.0.0.9", 200),
        ("192.0.2.3", 429),
    ] {
        gateway
            .get_with("/", &[("X-Forwarded-For", hops)])
            .await
            .expect(status);
    }
}

#[tokio::test]
async fn secrets_that_tell_clients_apart_stay_out_of_redis_and_logs() {
    let redis = Redis::start().await;
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &["key"])
        .limit(
            "key",
            "by = \"header:x-api-key\"\nmissing = \"refuse\"\nrate = \"5/h\"",
        )
        .redis(&redis, "timeout = \"2s\"\non_down = \"closed\"");
    let mut gateway = Gateway::start(&file).await;
    gateway
        .get_with("/", &[("X-Api-Key", "hunter2-hunter2")])
        .await
        .expect(200);
    let keys = redis.keys().await;
    assert!(
        !keys.is_empty() && keys.iter().all(|key| !key.contains("hunter2")),
        "{keys:?}"
    );
    gateway.stop().await;
    let written = gateway.access.text() + &gateway.said.text();
    assert!(!written.contains("hunter2"), "{written}");
}

#[tokio::test]
async fn texts_that_differ_in_case_may_be_one_key() {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &["user"]).limit(
        "user",
        "by = \"query:user\"\nmissing = \"refuse\"\nrate = \"1/h\"\nkey_case = \"insensitive\"",
    );
    let gateway = Gateway::start(&file).await;
    gateway.get("/?user=ANNE").await.expect(200);
    for same in ["anne", "Anne", "%20anne+", "AnnE", "anne&user=ANNE"] {
        gateway.get(&format!("/?user={same}")).await.expect(429);
    }
    gateway.get("/?user=%C3%84nne").await.expect(200);
    gateway.get("/?user=%C3%A4NNE").await.expect(429);
    gateway.get("/?user=+").await.expect(401);
    gateway.get("/?user=anne&user=bert").await.expect(400);
}
