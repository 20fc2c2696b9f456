//! The destination of a request: its line, its target, and the one normal form in which a path is matched and
//! forwarded.

use super::framing::{assert_refused, refused};
use crate::support::{File, Gateway, Upstream, get, request};

#[tokio::test]
async fn request_lines_are_what_they_look_like() {
    let line = |line: &str| format!("{line}\r\nHost: a.test\r\n\r\n");
    assert_refused(vec![
        refused(
            "a tunnel",
            "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n",
            &[400, 405, 501],
        ),
        refused("a star with GET", line("GET * HTTP/1.1"), &[400]),
        refused(
            "an authority as target",
            line("GET a.test:80 HTTP/1.1"),
            &[400],
        ),
        refused("a relative target", line("GET index.html HTTP/1.1"), &[400]),
        refused(
            "a foreign scheme",
            line("GET ftp://a.test/ HTTP/1.1"),
            &[400],
        ),
        refused(
            "user information",
            line("GET http://user@a.test/ HTTP/1.1"),
            &[400],
        ),
        refused(
            "no host in the target",
            line("GET http:///a HTTP/1.1"),
            &[400],
        ),
        refused("no version", line("GET /"), &[400]),
        refused("an unknown version", line("GET / HTTP/3.7"), &[400, 505]),
        refused(
            "a version in lower case",
            line("GET / http/1.1"),
            &[400, 505],
        ),
        refused("blanks in the target", line("GET /a b HTTP/1.1"), &[400]),
        refused(
            "a method that is no token",
            line("GE(T / HTTP/1.1"),
            &[400, 405, 501],
        ),
    ])
    .await;
}

#[tokio::test]
async fn paths_cannot_hide_what_they_mean() {
    let mut cases = Vec::new();
    for target in [
        "/a%2fb",
        "/a%2Fb",
        "/a%5cb",
        "/a%5Cb",
        "/a\\b",
        "/a%00b",
        "/a%zzb",
        "/a%",
        "/a%4",
        "/../a",
        "/a/../../b",
        "/%2e%2e/a",
        "/%2e./a",
        "/..;x/a",
        "http://a.test/..%2fb",
    ] {
        cases.push(refused(target, get(target), &[400]));
    }
    assert_refused(cases).await;
}

#[tokio::test]
async fn paths_are_forwarded_in_their_normal_form() {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    for (sent, forwarded) in [
        ("/", "/"),
        ("/a/b", "/a/b"),
        ("/a//b", "/a/b"),
        ("//a///b", "/a/b"),
        ("/a/./b/../c", "/a/c"),
        ("/a/%2e%2e/b", "/b"),
        ("/a/.%2E/b", "/b"),
        ("/%61%2Db%7e", "/a-b~"),
        ("/a%20b", "/a%20b"),
        ("/a/", "/a/"),
        ("/a;v=1/b;w", "/a;v=1/b;w"),
        ("/a?b=//../%2f%00&c", "/a?b=//../%2f%00&c"),
        ("/a?", "/a?"),
        ("http://a.test/a/../b?c", "/b?c"),
        ("http://a.test", "/"),
    ] {
        let echoed = gateway.get(sent).await.expect(200).echoed();
        assert_eq!(
            echoed.line,
            format!("GET {forwarded} HTTP/1.1"),
            "for {sent}"
        );
    }
}

#[tokio::test]
async fn the_host_of_an_absolute_target_wins() {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let echoed = gateway
        .get_with("http://real.test:81/a", &[("Host", "other.test")])
        .await
        .expect(200)
        .echoed();
    assert_eq!(echoed.fields.get("host"), Some("real.test:81"));
    assert_eq!(echoed.line, "GET /a HTTP/1.1");
}

#[tokio::test]
async fn a_star_with_options_is_for_the_gateway_itself() {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let answer = gateway
        .connect()
        .await
        .ask(request("OPTIONS", "*", &[]))
        .await;
    assert!((200..300).contains(&answer.status), "{answer:?}");
    assert_eq!(upstream.seen(), 0);
}
