//! Conditions of routes: the access log shows the route of each request.

use crate::support::{File, Gateway, Upstream, h2, request};

async fn route_of(gateway: &Gateway, target: &str, fields: &[(&str, &str)]) -> String {
    let answer = gateway.get_with(target, fields).await.expect(200);
    let line = gateway.line_of(&answer).await;
    line["route"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn fields_and_parameters_choose_the_route() {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &[])
        .route("plain", "/a", "main", &[])
        .route("two", "/a", "main", &[])
        .with("headers = { X-Version = \"2\" }")
        .route("two-debug", "/a", "main", &[])
        .with("headers = { x-version = \"2\", x-debug = true }")
        .route("query", "/q", "main", &[])
        .with("query = { v = \"2 x\", \"a b\" = true }");
    let gateway = Gateway::start(&file).await;
    for (target, fields, route) in [
        ("/a", &[][..], "plain"),
        ("/a", &[("x-version", "1")][..], "plain"),
        ("/a", &[("x-version", "2")][..], "two"),
        (
            "/a",
            &[("X-VERSION", "2"), ("X-Debug", "")][..],
            "two-debug",
        ),
        // Two lines form one value, and neither line alone matches.
        ("/a", &[("x-version", "2"), ("x-version", "1")][..], "plain"),
        ("/a", &[("x_version", "2")][..], "plain"),
        ("/q?v=2+x&a%20b", &[][..], "query"),
        ("/q?a+b=7&%76=2%20x", &[][..], "query"),
        ("/q?v=2+x", &[][..], "all"),
        ("/q?v=2+x&a+b&v=3", &[][..], "all"),
        ("/q?v=2&a+b", &[][..], "all"),
        ("/q", &[][..], "all"),
    ] {
        assert_eq!(
            route_of(&gateway, target, fields).await,
            route,
            "{target} {fields:?}"
        );
    }
}

#[tokio::test]
async fn a_limit_is_that_of_the_route_whose_conditions_hold() {
    let upstream = Upstream::echo().await;
    let file = File::default()
        .limit("few", "by = \"everyone\"\nrate = \"1/h\"")
        .upstream("main", &[&upstream])
        .route("old", "/{*rest}", "main", &[])
        .with("headers = { x-version = \"1\" }")
        .route("new", "/{*rest}", "main", &["few"])
        .with("headers = { x-version = true }\nquery = { key = true }");
    let gateway = Gateway::start(&file).await;
    let ask = async |target, version| gateway.get_with(target, &[("x-version", version)]).await;
    ask("/?key=1", "2").await.expect(200);
    ask("/?key=1", "2").await.expect(429);
    ask("/?key=1", "1").await.expect(429);
    ask("/", "1").await.expect(200);
    // A route exists, but its condition is not met.
    ask("/", "2").await.expect(404);
}

#[tokio::test]
async fn a_stranger_is_not_believed_about_the_scheme() {
    let upstream = Upstream::echo().await;
    let file = |trust: &str| {
        File::default()
            .server(trust)
            .upstream("main", &[&upstream])
            .route("clear", "/{*rest}", "main", &[])
            .route("secure", "/{*rest}", "main", &[])
            .with("scheme = \"https\"")
    };
    let trusting = Gateway::start(&file("trust = [\"127.0.0.1/32\"]")).await;
    let wary = Gateway::start(&file("")).await;
    for (proto, route) in [
        (&[("x-forwarded-proto", "https")][..], "secure"),
        (&[("x-forwarded-proto", "HTTPS")][..], "secure"),
        (&[("x-forwarded-proto", "http, https")][..], "secure"),
        // The trusted peer wrote only the last word; the words in front of it may come from anybody.
        (&[("x-forwarded-proto", "https, http")][..], "clear"),
        (
            &[
                ("x-forwarded-proto", "https"),
                ("x-forwarded-proto", "http"),
            ][..],
            "clear",
        ),
        (&[][..], "clear"),
    ] {
        assert_eq!(route_of(&trusting, "/", proto).await, route, "{proto:?}");
        assert_eq!(route_of(&wary, "/", proto).await, "clear", "{proto:?}");
    }
    // The field that the proxy writes counts. A field that the proxy only lets pass does not.
    let both = [
        ("x-forwarded-for", "192.0.2.9"),
        ("forwarded", "for=192.0.2.9;proto=https"),
    ];
    assert_eq!(route_of(&trusting, "/", &both).await, "clear");
    let named = "trust = [\"127.0.0.1/32\"]\ntrust_field = \"forwarded\"";
    let named = Gateway::start(&file(named)).await;
    assert_eq!(route_of(&named, "/", &both).await, "secure");
    let beside = [
        ("forwarded", "for=192.0.2.9;proto=http"),
        ("x-forwarded-proto", "https"),
    ];
    assert_eq!(route_of(&named, "/", &beside).await, "clear");
    for (gateway, route) in [(&trusting, "secure"), (&wary, "clear")] {
        let mut secure = h2::get("/");
        *secure.uri_mut() = "https://gateway.test/".parse().unwrap();
        let answer = gateway.h2().await.ask(secure).await.expect(200);
        assert_eq!(gateway.line_of(&answer).await["route"], route);
    }
}

#[tokio::test]
async fn head_takes_the_way_of_get() {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &[])
        .route("get", "/a", "main", &[])
        .with("methods = \"GET\"\nheaders = { x-v = \"1\" }");
    let gateway = Gateway::start(&file).await;
    let mut wire = gateway.connect().await;
    wire.send(request("HEAD", "/a", &[("x-v", "1")])).await;
    let answer = wire.answer_to_head().await.expect(200);
    assert_eq!(gateway.line_of(&answer).await["route"], "get");
}
