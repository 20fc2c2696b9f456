//! Header and trailer fields: hop-by-hop fields are removed, end-to-end fields stay, and the gateway adds its own.

use crate::support::{Connection, Feed, File, Gateway, Upstream, h2, request};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request};
use hyper::body::Frame;

#[tokio::test]
async fn fields_between_hops_are_removed_from_requests() {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let echoed = gateway
        .get_with(
            "/",
            &[
                ("Connection", "keep-alive, X-One"),
                ("X-One", "1"),
                ("connection", "x-two ,, X-Three"),
                ("X-Two", "2"),
                ("X-Three", "3"),
                ("Keep-Alive", "timeout=5"),
                ("Proxy-Connection", "keep-alive"),
                ("TE", "gzip"),
                ("X-Stays", "yes"),
            ],
        )
        .await
        .expect(200)
        .echoed();
    for gone in [
        "x-one",
        "x-two",
        "x-three",
        "keep-alive",
        "proxy-connection",
        "te",
    ] {
        assert!(!echoed.fields.has(gone), "{gone} passed: {echoed:?}");
    }
    assert_eq!(echoed.fields.get("x-stays"), Some("yes"));
    let connection = echoed
        .fields
        .all("connection")
        .join(",")
        .to_ascii_lowercase();
    assert!(!connection.contains("x-"), "{connection}");
}

#[tokio::test]
async fn fields_between_hops_are_removed_from_responses() {
    let upstream = Upstream::answering(
        "HTTP/1.1 200 OK\r\nConnection: X-One\r\nX-One: 1\r\nConnection: x-two\r\nX-Two: 2\r\n\
         Keep-Alive: timeout=5\r\nX-Stays: yes\r\nContent-Length: 2\r\n\r\nok",
    )
    .await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let answer = gateway.get("/").await.expect(200);
    for gone in ["x-one", "x-two", "keep-alive"] {
        assert!(!answer.fields.has(gone), "{gone} passed: {answer:?}");
    }
    assert_eq!(answer.field("x-stays"), "yes");
    assert_eq!(answer.text(), "ok");
}

#[tokio::test]
async fn naming_a_field_in_connection_cannot_take_away_what_the_gateway_says() {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let named =
        "close, Host, X-Forwarded-For, X-Forwarded-Proto, Forwarded, X-Request-Id, Content-Length";
    let mut client = gateway.connect().await;
    client
        .send(request(
            "POST",
            "/",
            &[("Connection", named), ("Content-Length", "4")],
        ))
        .await;
    client.send("body").await;
    let echoed = client.answer().await.expect(200).echoed();
    assert_eq!(echoed.fields.get("host"), Some("gateway.test"));
    assert_eq!(echoed.fields.get("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(echoed.fields.get("x-forwarded-proto"), Some("http"));
    assert_eq!(echoed.body, "body");
}

#[tokio::test]
async fn what_a_stranger_says_about_himself_is_replaced() {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let echoed = gateway
        .get_with(
            "/",
            &[
                ("X-Forwarded-For", "192.0.2.7"),
                ("X-Forwarded-For", "192.0.2.8"),
                ("X-Forwarded-Proto", "https"),
                ("X-Forwarded-Host", "evil.test"),
                ("Forwarded", "for=192.0.2.7;proto=https;host=evil.test"),
            ],
        )
        .await
        .expect(200)
        .echoed();
    assert_eq!(echoed.fields.get("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(echoed.fields.get("x-forwarded-proto"), Some("http"));
    assert_eq!(echoed.fields.get("x-forwarded-host"), Some("gateway.test"));
    let forwarded = echoed
        .fields
        .get("forwarded")
        .expect("Forwarded is set")
        .to_ascii_lowercase();
    assert!(
        forwarded.contains("for=127.0.0.1") || forwarded.contains("for=\"127.0.0.1"),
        "{forwarded}"
    );
    assert!(
        forwarded.contains("proto=http") && !forwarded.contains("https"),
        "{forwarded}"
    );
    assert!(
        !forwarded.contains("evil") && !forwarded.contains("192.0.2"),
        "{forwarded}"
    );
}

#[tokio::test]
async fn what_a_trusted_proxy_says_is_continued() {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &[]).server("trust = [\"127.0.0.0/8\"]");
    let gateway = Gateway::start(&file).await;
    let echoed = gateway
        .get_with(
            "/",
            &[
                ("X-Forwarded-For", "192.0.2.7"),
                ("X-Forwarded-Proto", "https"),
                ("X-Forwarded-Host", "shop.test"),
            ],
        )
        .await
        .expect(200)
        .echoed();
    let hops = echoed.fields.all("x-forwarded-for").join(", ");
    assert_eq!(hops, "192.0.2.7, 127.0.0.1");
    assert_eq!(echoed.fields.get("x-forwarded-proto"), Some("https"));
    assert_eq!(echoed.fields.get("x-forwarded-host"), Some("shop.test"));
}

#[tokio::test]
async fn the_host_that_was_asked_for_is_kept() {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let echoed = gateway
        .get_with("/", &[("Host", "shop.test:8443")])
        .await
        .expect(200)
        .echoed();
    assert_eq!(echoed.fields.get("host"), Some("shop.test:8443"));
    let request = Request::get("http://shop.test:8443/")
        .body(Feed::empty())
        .unwrap();
    let echoed = gateway.h2().await.ask(request).await.expect(200).echoed();
    assert_eq!(echoed.fields.get("host"), Some("shop.test:8443"));
}

#[tokio::test]
async fn cookies_in_crumbs_are_joined_for_an_http1_upstream() {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let request = Request::get("http://gateway.test/")
        .header("cookie", "a=1")
        .header("cookie", "b=2");
    let echoed = gateway
        .h2()
        .await
        .ask(request.body(Feed::empty()).unwrap())
        .await
        .expect(200)
        .echoed();
    assert_eq!(echoed.fields.get("cookie"), Some("a=1; b=2"));
}

#[tokio::test]
async fn every_answer_and_its_request_carry_one_id() {
    let upstream = Upstream::echo().await;
    let file = File::default()
        .upstream("main", &[&upstream])
        .route("one", "/here", "main", &[]);
    let gateway = Gateway::start(&file).await;
    let passed = gateway.get("/here").await.expect(200);
    assert_eq!(
        passed.echoed().fields.get("x-request-id"),
        Some(passed.field("x-request-id"))
    );
    let lost = gateway.get("/there").await.expect(404);
    assert_ne!(lost.field("x-request-id"), passed.field("x-request-id"));
    assert_eq!(gateway.line_of(&lost).await["status"], 404);
}

#[tokio::test]
async fn trailers_of_a_request_reach_the_upstream() {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let mut client = gateway.connect().await;
    client
        .send(request(
            "POST",
            "/",
            &[("Transfer-Encoding", "chunked"), ("Trailer", "X-Sum")],
        ))
        .await;
    client.send("4\r\nbody\r\n0\r\nX-Sum: 42\r\n\r\n").await;
    let echoed = client.answer().await.expect(200).echoed();
    assert_eq!(echoed.body, "body");
    assert_eq!(echoed.trailers.get("x-sum"), Some("42"));
}

/// Fields that may not be in trailers: a receiver that merges trailers into the head would take them for fields of the
/// head.
const NEVER_BEHIND: [&str; 12] = [
    "Tollgate-Granted",
    "X-Original-URL",
    "X-Rewrite-URL",
    "X-Forwarded-Prefix",
    "X-Forwarded-For",
    "Forwarded",
    "X-Real-IP",
    "X-Request-Id",
    "X_Sum",
    "Authorization",
    "HTTP2-Settings",
    "Expect",
];

#[tokio::test]
async fn what_decides_does_not_come_behind_the_body() {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let all = NEVER_BEHIND.join(", ") + ", X-Sum";
    let mut client = gateway.connect().await;
    let fields = [("Transfer-Encoding", "chunked"), ("Trailer", &all)];
    client.send(request("POST", "/", &fields)).await;
    let trailers: String = NEVER_BEHIND.map(|name| format!("{name}: 1\r\n")).concat();
    let rest = format!("4\r\nbody\r\n0\r\n{trailers}X-Sum: 42\r\n\r\n");
    let over_h1 = client.ask(rest).await;

    let (feeding, body) = Feed::open();
    let data = Frame::data(Bytes::from_static(b"body"));
    feeding.send(data).await.unwrap();
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", HeaderValue::from_static("42"));
    for name in NEVER_BEHIND {
        let name = HeaderName::try_from(name).unwrap();
        trailers.insert(name, HeaderValue::from_static("1"));
    }
    feeding.send(Frame::trailers(trailers)).await.unwrap();
    drop(feeding);
    let request = Request::post("http://gateway.test/").header("trailer", all);
    let over_h2 = gateway.h2().await.ask(request.body(body).unwrap()).await;

    for answer in [over_h1, over_h2] {
        let echoed = answer.expect(200).echoed();
        assert_eq!(echoed.trailers.get("x-sum"), Some("42"));
        for name in NEVER_BEHIND {
            assert!(!echoed.trailers.has(name), "{name}: {echoed:?}");
        }
    }
}

#[tokio::test]
async fn trailers_of_an_http2_request_reach_the_upstream() {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let (feeding, body) = Feed::open();
    feeding
        .send(Frame::data(Bytes::from_static(b"body")))
        .await
        .unwrap();
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", HeaderValue::from_static("42"));
    feeding.send(Frame::trailers(trailers)).await.unwrap();
    drop(feeding);
    let request = Request::post("http://gateway.test/")
        .header("trailer", "x-sum")
        .body(body)
        .unwrap();
    let echoed = gateway.h2().await.ask(request).await.expect(200).echoed();
    assert_eq!(echoed.body, "body");
    assert_eq!(echoed.trailers.get("x-sum"), Some("42"));
}

const WITH_TRAILERS: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n\
                             4\r\nbody\r\n0\r\nX-Sum: 42\r\n\r\n";

#[tokio::test]
async fn trailers_of_a_response_reach_a_client_that_takes_them() {
    let upstream = Upstream::answering(WITH_TRAILERS).await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let answer = gateway
        .get_with("/", &[("TE", "trailers"), ("Connection", "TE")])
        .await
        .expect(200);
    assert_eq!(answer.text(), "body");
    assert_eq!(answer.trailers.get("x-sum"), Some("42"));
    let te = &upstream.requests()[0].head.fields;
    assert_eq!(te.get("te"), Some("trailers"));
}

#[tokio::test]
async fn trailers_of_a_response_reach_an_http2_client() {
    let upstream = Upstream::answering(WITH_TRAILERS).await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let answer = gateway.h2().await.ask(h2::get("/")).await.expect(200);
    assert_eq!(answer.text(), "body");
    assert_eq!(answer.trailers.get("x-sum"), Some("42"));
}

#[tokio::test]
async fn trailers_nobody_asked_for_do_not_spoil_the_answer() {
    let upstream = Upstream::answering(WITH_TRAILERS).await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let mut client = gateway.connect().await;
    for _ in 0..2 {
        let answer = client.ask(request("GET", "/", &[])).await.expect(200);
        assert_eq!(answer.text(), "body");
    }
}

#[tokio::test]
async fn what_an_http2_answer_must_not_carry_is_left_out() {
    let upstream = Upstream::answering(
        "HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nKeep-Alive: timeout=5\r\nContent-Length: 2\r\n\r\nok",
    )
    .await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let answer = gateway.h2().await.get("/").await.expect(200);
    assert!(
        !answer.fields.has("connection") && !answer.fields.has("keep-alive"),
        "{answer:?}"
    );
    assert_eq!(answer.text(), "ok");
}

#[tokio::test]
async fn an_interim_answer_of_the_upstream_is_not_the_answer() {
    let upstream = Upstream::playing(async |mut connection: Connection| {
        while connection.request().await.is_ok() {
            let hints = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n";
            connection
                .wire
                .send(format!(
                    "{hints}HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
                ))
                .await;
        }
    })
    .await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    assert_eq!(gateway.get("/").await.expect(200).text(), "ok");
}
