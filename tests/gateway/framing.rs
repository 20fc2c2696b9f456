//! Requests that must not pass, byte for byte: the gateway refuses them before an upstream sees anything, and does not
//! guess their meaning.

use crate::support::{End, Feed, File, Gateway, H2, PATIENCE, Upstream, get, request};
use http::Request;

/// A request that is refused with one of these statuses. After that the connection is closed, or is still in step.
pub(super) struct Refused {
    what: &'static str,
    bytes: String,
    statuses: &'static [u16],
}

pub(super) fn refused(
    what: &'static str,
    bytes: impl Into<String>,
    statuses: &'static [u16],
) -> Refused {
    Refused {
        what,
        bytes: bytes.into(),
        statuses,
    }
}

/// Sends each request on its own connection and reads the answer. Nothing may reach the upstream.
pub(super) async fn assert_refused(cases: Vec<Refused>) {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let mut wrong = Vec::new();
    for Refused {
        what,
        bytes,
        statuses,
    } in cases
    {
        let mut client = gateway.connect().await;
        client.send(&bytes).await;
        match client.try_answer().await {
            Ok(answer) if statuses.contains(&answer.status) => {}
            Ok(answer) => wrong.push(format!("{what}: {} {}", answer.status, answer.text())),
            Err(end) => wrong.push(format!("{what}: {end:?} without an answer")),
        }
    }
    let passed: Vec<String> = upstream
        .requests()
        .iter()
        .map(|seen| format!("{:?}", seen.head))
        .collect();
    assert!(
        wrong.is_empty() && passed.is_empty(),
        "wrong: {wrong:#?}\npassed: {passed:#?}"
    );
}

#[tokio::test]
async fn a_request_names_one_host() {
    let mut cases = vec![
        refused("no host", "GET / HTTP/1.1\r\n\r\n", &[400]),
        refused(
            "two hosts",
            request("GET", "/", &[("Host", "a.test"), ("Host", "b.test")]),
            &[400],
        ),
        refused(
            "the same host twice",
            request("GET", "/", &[("Host", "a.test"), ("Host", "a.test")]),
            &[400],
        ),
        refused(
            "two hosts and an absolute target",
            request(
                "GET",
                "http://a.test/",
                &[("Host", "a.test"), ("Host", "b.test")],
            ),
            &[400],
        ),
    ];
    for host in [
        "a b",
        "a/b",
        "a?b",
        "a#b",
        "a,b",
        "user@a.test",
        "a:b",
        "a:80:80",
        "[::1",
        "a.test:99999",
        "a\\b",
        "a<b",
    ] {
        cases.push(refused(
            "a bad host",
            request("GET", "/", &[("Host", host)]),
            &[400],
        ));
    }
    assert_refused(cases).await;
}

#[tokio::test]
async fn an_empty_port_is_none() {
    let upstream = Upstream::echo().await;
    let file = File::default()
        .upstream("main", &[&upstream])
        .with("[routes.a]\nhost = \"a.test\"\nupstream = \"main\"")
        .with("[routes.six]\nhost = \"[::1]\"\nupstream = \"main\"");
    let gateway = Gateway::start(&file).await;
    for (target, host, seen) in [
        ("/", "a.test:", "a.test"),
        ("/", "[::1]:", "[::1]"),
        ("http://a.test:/", "other.test", "a.test"),
    ] {
        let answer = gateway.get_with(target, &[("Host", host)]).await;
        let echoed = answer.expect(200).echoed();
        assert_eq!(echoed.fields.all("host"), [seen], "{echoed:?}");
        assert_eq!(echoed.fields.get("x-forwarded-host"), Some(seen));
    }
}

#[tokio::test]
async fn good_hosts_pass() {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    for host in [
        "a.test",
        "A.Test:80",
        "127.0.0.1",
        "127.0.0.1:8080",
        "[::1]",
        "[::1]:8080",
        "a-b.test.",
        "xn--bcher-kva.test",
    ] {
        let echoed = gateway
            .get_with("/", &[("Host", host)])
            .await
            .expect(200)
            .echoed();
        assert!(
            echoed
                .fields
                .get("host")
                .is_some_and(|seen| seen.eq_ignore_ascii_case(host)),
            "{host}: {echoed:?}"
        );
    }
}

#[tokio::test]
async fn a_body_has_one_framing() {
    let post = |fields: &[(&str, &str)]| request("POST", "/", fields);
    assert_refused(vec![
        refused(
            "a coding before chunked",
            post(&[("Transfer-Encoding", "gzip, chunked")]) + "0\r\n\r\n",
            &[400, 501],
        ),
        refused(
            "a coding after chunked",
            post(&[("Transfer-Encoding", "chunked, gzip")]) + "0\r\n\r\n",
            &[400, 501],
        ),
        refused(
            "two coding lines",
            post(&[
                ("Transfer-Encoding", "gzip"),
                ("Transfer-Encoding", "chunked"),
            ]) + "0\r\n\r\n",
            &[400, 501],
        ),
        refused(
            "chunked twice",
            post(&[("Transfer-Encoding", "chunked, chunked")]) + "0\r\n\r\n",
            &[400, 501],
        ),
        refused(
            "chunked on two lines",
            post(&[
                ("Transfer-Encoding", "chunked"),
                ("Transfer-Encoding", "chunked"),
            ]) + "0\r\n\r\n",
            &[400, 501],
        ),
        refused(
            "identity",
            post(&[("Transfer-Encoding", "identity")]),
            &[400, 501],
        ),
        refused(
            "an unknown coding",
            post(&[("Transfer-Encoding", "xchunked")]) + "0\r\n\r\n",
            &[400, 501],
        ),
        refused(
            "an empty coding",
            post(&[("Transfer-Encoding", "")]) + "0\r\n\r\n",
            &[400, 501],
        ),
        refused(
            "chunks in HTTP/1.0",
            "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            &[400, 501],
        ),
        refused(
            "two lengths",
            post(&[("Content-Length", "4"), ("Content-Length", "5")]) + "body!",
            &[400],
        ),
        refused(
            "a list of lengths",
            post(&[("Content-Length", "4, 5")]) + "body!",
            &[400],
        ),
        refused(
            "a signed length",
            post(&[("Content-Length", "+4")]) + "body",
            &[400],
        ),
        refused(
            "a negative length",
            post(&[("Content-Length", "-4")]) + "body",
            &[400],
        ),
        refused(
            "a length with a tail",
            post(&[("Content-Length", "4x")]) + "body",
            &[400],
        ),
        refused(
            "a hexadecimal length",
            post(&[("Content-Length", "0x4")]) + "body",
            &[400],
        ),
        refused(
            "an empty length",
            post(&[("Content-Length", "")]) + "body",
            &[400],
        ),
        refused(
            "a length beyond counting",
            post(&[("Content-Length", "18446744073709551621")]) + "body",
            &[400, 413],
        ),
    ])
    .await;
}

#[tokio::test]
async fn field_lines_are_what_they_look_like() {
    let lines = |lines: &str| format!("GET / HTTP/1.1\r\nHost: a.test\r\n{lines}\r\n\r\n");
    assert_refused(vec![
        refused("a folded line", lines("X-One: 1\r\n more"), &[400]),
        refused("a blank before the colon", lines("X-One : 1"), &[400]),
        refused(
            "a blank before the name",
            "GET / HTTP/1.1\r\n Host: a.test\r\n\r\n",
            &[400],
        ),
        refused("no colon", lines("X-One 1"), &[400]),
        refused("no name", lines(": 1"), &[400]),
        refused("a name that is no token", lines("X(One): 1"), &[400]),
        refused("a zero byte in a value", lines("X-One: a\0b"), &[400]),
        refused(
            "a lone carriage return in a value",
            lines("X-One: a\rb"),
            &[400],
        ),
    ])
    .await;
}

#[tokio::test]
async fn heads_have_bounds() {
    let many: String = (0..200).map(|n| format!("X-Field-{n}: 1\r\n")).collect();
    let big = "x".repeat(1 << 20);
    assert_refused(vec![
        refused(
            "a long target",
            get(&format!("/{}", "a".repeat(40_000))),
            &[414],
        ),
        refused(
            "many fields",
            format!("GET / HTTP/1.1\r\nHost: a.test\r\n{many}\r\n"),
            &[431],
        ),
    ])
    .await;
    // A head that is larger than any buffer may be answered, and its connection ended, before the gateway has read all
    // of it.
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let mut client = gateway.connect().await;
    let _ = client
        .try_send(request("GET", "/", &[("X-Big", &big)]))
        .await;
    if let Ok(answer) = client.try_answer().await {
        assert_eq!(answer.status, 431);
    }
    assert_eq!(upstream.seen(), 0);
    gateway.get("/").await.expect(200);
}

#[tokio::test]
async fn a_broken_chunk_never_becomes_a_whole_request() {
    let broken = [
        ("a size that is none", "zz\r\nbody\r\n0\r\n\r\n"),
        ("a negative size", "-4\r\nbody\r\n0\r\n\r\n"),
        ("a size with a prefix", "0x4\r\nbody\r\n0\r\n\r\n"),
        (
            "a size beyond counting",
            "FFFFFFFFFFFFFFFFF\r\nbody\r\n0\r\n\r\n",
        ),
        (
            "data longer than its size",
            "4\r\nbody and more\r\n0\r\n\r\n",
        ),
        (
            "data shorter than its size",
            "8\r\nbody\r\n0\r\n\r\n\r\n\r\n",
        ),
        ("a lone line feed behind a size", "4\nbody\r\n0\r\n\r\n"),
    ];
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&File::to(&upstream, &[]).server("idle = \"1s\"")).await;
    for (what, body) in broken {
        let mut client = gateway.connect().await;
        client
            .send(request("POST", "/", &[("Transfer-Encoding", "chunked")]) + body)
            .await;
        match client.try_answer().await {
            // The upstream echoes only complete requests.
            Ok(answer) => assert!(
                matches!(answer.status, 400 | 408 | 502),
                "{what}: {answer:?}"
            ),
            Err(end) => assert_ne!(end, End::Open, "{what}"),
        }
        assert_ne!(
            client.ended(PATIENCE).await,
            End::Open,
            "{what}: nothing on this connection can be trusted"
        );
    }
    gateway.get("/").await.expect(200);
}

#[tokio::test]
async fn an_http2_request_cannot_smuggle_either() {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let client: H2 = gateway.h2().await;
    let ask = |target: &str, host: Option<&str>| {
        let mut request = Request::get(target);
        if let Some(host) = host {
            request = request.header("host", host);
        }
        client.ask(request.body(Feed::empty()).unwrap())
    };
    ask("http://a.test/", Some("b.test")).await.expect(400);
    ask("http://user@a.test/", None).await.expect(400);
    ask("http://a.test/a%2fb", None).await.expect(400);
    ask("http://a.test/../a", None).await.expect(400);
    assert_eq!(upstream.seen(), 0);
    ask("http://a.test/", None).await.expect(200);
}
