//! The fault of a server's answer is in the log, in the request's line and in the output of `check --connect`. Such a
//! server is ejected like one that breaks off.

use crate::support::{Connection, Feed, File, Gateway, Upstream, get, grpc, tollgate};

const FIRST: &str = "HTTP/1.1 200 OK\r\n";

/// A head that has this line among others.
fn with(line: &str) -> String {
    format!("{FIRST}server: a\r\n{line}\r\ncontent-length: 0\r\n\r\n")
}

#[tokio::test]
async fn each_cause_is_told_with_the_line_that_is_to_blame() {
    let long = with(&format!("bad name: {}", "\u{1}".repeat(300)));
    for (answer, reason, cause, line) in [
        (
            with("bad name: 1"),
            "upstream_invalid",
            "field's name",
            "bad name: 1",
        ),
        (
            with("x-a: 1\r\n folded"),
            "upstream_invalid",
            "folded",
            "\" folded\"",
        ),
        (
            with("x-a: a\u{1}b"),
            "upstream_invalid",
            "control character",
            "x-a: a\\x01b",
        ),
        (
            with("transfer-encoding: chunked\r\ntransfer-encoding: chunked"),
            "upstream_invalid",
            "is there twice",
            "transfer-encoding: chunked",
        ),
        (
            with("transfer-encoding: gzip, chunked"),
            "upstream_invalid",
            "did not ask for",
            "gzip, chunked",
        ),
        (
            with("content-length: 7"),
            "upstream_invalid",
            "lengths",
            "content-length: 0",
        ),
        (
            "garbage\r\n\r\n".to_owned(),
            "upstream_invalid",
            "first line",
            "\"garbage\"",
        ),
        (
            FIRST.replace("OK", "O\u{1}K") + "\r\n",
            "upstream_invalid",
            "the reason phrase",
            "200 O\\x01K",
        ),
        (
            FIRST.replace("200", "2x0") + "\r\n",
            "upstream_invalid",
            "the status is not valid",
            "HTTP/1.1 2x0",
        ),
        (
            format!("{FIRST}transfer-encoding: chunked\r\n\r\nzz\r\n"),
            "upstream_invalid",
            "chunk size",
            "\"zz\"",
        ),
        (
            format!("{FIRST}x-half: "),
            "upstream_reset",
            "inside the answer's head",
            "x-half",
        ),
        (
            String::new(),
            "upstream_reset",
            "ended before the answer",
            "",
        ),
        (
            long,
            "upstream_invalid",
            "field's name",
            "bad name: \\x01\\x01",
        ),
    ] {
        let upstream = Upstream::saying(&answer).await;
        let gateway = Gateway::start(&File::to(&upstream, &[])).await;
        for _ in 0..3 {
            let answered = gateway.get("/").await.expect(502);
            let told = gateway.line_of(&answered).await;
            assert_eq!(told["reason"], reason, "{answer:?}");
            let fault = told["upstream_fault"].as_str().unwrap_or_default();
            assert!(fault.contains(cause), "{answer:?}: {told}");
            assert!(
                !fault.contains("invalid header"),
                "one fault in one way: {told}"
            );
        }
        let said = gateway
            .said
            .line(0, "the cause", |line| line.contains("no valid answer"))
            .await;
        assert!(said.contains(cause) && said.contains(line), "{said}");
        assert!(
            said.contains(&format!("127.0.0.1:{}", upstream.port())),
            "{said}"
        );
        let quoted = said.split('"').nth(1).unwrap_or_default();
        assert!(quoted.len() <= 128, "{quoted}");
        let lines = gateway.said.lines();
        let count = lines.iter().filter(|line| line.contains("no valid answer"));
        assert_eq!(count.count(), 1, "one a minute");
    }
}

#[tokio::test]
async fn a_request_that_is_answered_has_no_such_field() {
    let upstream = Upstream::echo().await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let answered = gateway.get("/").await.expect(200);
    assert!(
        gateway
            .line_of(&answered)
            .await
            .get("upstream_fault")
            .is_none()
    );
}

#[tokio::test]
async fn a_server_without_a_connection_is_told_in_the_line() {
    let port = crate::support::free_port();
    let file = File::default()
        .with(&format!(
            "[upstreams.main]\nservers = \"http://127.0.0.1:{port}\""
        ))
        .route("all", "/{*rest}", "main", &[]);
    let gateway = Gateway::start(&file).await;
    let answered = gateway.get("/").await.expect(502);
    let told = gateway.line_of(&answered).await;
    let fault = told["upstream_fault"].as_str().unwrap_or_default();
    assert!(fault.contains("refused"), "{told}");
}

#[tokio::test]
async fn a_server_that_answers_garbage_is_ejected() {
    for answer in [
        "garbage\r\n\r\n".to_owned(),
        with("bad name: 1"),
        with("transfer-encoding: chunked, chunked"),
        format!("{FIRST}transfer-encoding: chunked\r\n\r\nzz\r\n"),
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n".to_owned(),
    ] {
        let (good, bad) = (Upstream::echo().await, Upstream::saying(&answer).await);
        let file = File::default()
            .server("workers = 1")
            .upstream("main", &[&good, &bad])
            .route("all", "/{*rest}", "main", &[]);
        let gateway = Gateway::start(&file).await;
        let mut failed = 0;
        for _ in 0..40 {
            failed += u32::from(gateway.get("/").await.status == 502);
        }
        assert_eq!(failed, 5, "five in a row eject it: {answer:?}");
        let said = gateway
            .said
            .line(0, "the ejection", |line| line.contains("gets no requests"))
            .await;
        let whole = gateway
            .said
            .line(0, "the cause", |line| line.contains("no valid answer"))
            .await;
        let (_, cause) = said.split_once("the last with: ").unwrap();
        assert!(whole.contains(cause), "the whole cause: {said}");
        assert_eq!(bad.seen(), 5);
    }
}

/// A client that makes a gRPC call to a server of HTTP/1.1 does not eject the server.
#[tokio::test]
async fn a_call_to_servers_of_http1_ejects_nobody_and_is_told() {
    let servers = [Upstream::echo().await, Upstream::echo().await];
    let file = File::default()
        .server("workers = 1")
        .upstream("main", &[&servers[0], &servers[1]])
        .route("all", "/{*rest}", "main", &[]);
    let gateway = Gateway::start(&file).await;
    let client = gateway.h2().await;
    for _ in 0..20 {
        client.ask(grpc::call("Echo", &[], Feed::empty())).await;
    }
    let shown = gateway.admin_get("/v1/upstreams").await.json();
    assert_eq!(shown["upstreams"][0]["available"], 2, "{shown}");
    let said = gateway
        .said
        .line(0, "the cause", |line| line.contains("no valid answer"))
        .await;
    assert!(said.contains("gRPC needs HTTP/2: write `h2c://`"), "{said}");
}

#[tokio::test]
async fn check_connect_tells_it_where_health_asks() {
    let bad = Upstream::saying(&with("bad name: 1")).await;
    let folder = tempfile::tempdir().unwrap();
    let text = |health: &str| {
        format!(
            "[upstreams.main]\nservers = \"{}\"\n{health}\n[routes.all]\nupstream = \"main\"\n",
            bad.url()
        )
    };
    for (health, code, words) in [
        ("health = \"/healthz\"", 3, "bad name: 1"),
        ("", 0, "connected in"),
    ] {
        std::fs::write(folder.path().join("gateway.toml"), text(health)).unwrap();
        let told = tollgate(folder.path(), &["check", "--connect", "gateway.toml"]).await;
        assert_eq!(told.code, Some(code), "{}{}", told.stdout, told.stderr);
        assert!(told.stdout.contains(words), "{}", told.stdout);
    }
    let twice = Upstream::saying(&with("transfer-encoding: chunked, chunked")).await;
    let asked = text("health = \"/healthz\"").replace(&bad.url(), &twice.url());
    std::fs::write(folder.path().join("gateway.toml"), asked).unwrap();
    let told = tollgate(folder.path(), &["check", "--connect", "gateway.toml"]).await;
    assert!(told.stdout.contains("is there twice"), "{}", told.stdout);
}

/// An answer that becomes faulty after its head has its own status, and the log has the cause.
#[tokio::test]
async fn an_answer_that_breaks_is_told() {
    let upstream = Upstream::playing(async |mut connection: Connection| {
        if connection.request().await.is_ok() {
            let head = format!("{FIRST}transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n");
            connection.wire.send(head).await;
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            let _ = connection.wire.try_send("not-a-size\r\n").await;
        }
    })
    .await;
    let gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let mut client = gateway.connect().await;
    client.send(get("/broken")).await;
    client.everything().await;
    let told = gateway.line_where("path", "/broken").await;
    assert_eq!(told["status"], 200, "{told}");
    let fault = told["upstream_fault"].as_str().unwrap_or_default();
    assert!(fault.contains("chunk size"), "{told}");
    let said = gateway
        .said
        .line(0, "the line", |line| line.contains("not-a-size"))
        .await;
    assert!(said.contains("no valid answer"), "{said}");
}

/// The fault has its own words, not the words for a server that has not answered.
#[tokio::test]
async fn an_answer_that_breaks_off_is_told() {
    for framing in ["content-length: 50", "transfer-encoding: chunked"] {
        let upstream = Upstream::saying(&format!("{FIRST}{framing}\r\n\r\n5\r\nhello\r\n")).await;
        let gateway = Gateway::start(&File::to(&upstream, &[])).await;
        let mut client = gateway.connect().await;
        client.send(get("/cut")).await;
        client.everything().await;
        let told = gateway.line_where("path", "/cut").await;
        assert_eq!(told["reason"], "upstream_reset", "{told}");
        let words = "the connection ended inside the answer's body";
        assert_eq!(told["upstream_fault"], words, "{told}");
        let said = gateway
            .said
            .line(0, "the line", |line| line.contains(words));
        assert!(said.await.contains("no valid answer"));
    }
}

/// A probe finds the same faults as a request, also in the body.
#[tokio::test]
async fn a_probe_reads_the_body_too() {
    let switching = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n";
    let chunked = format!("{FIRST}transfer-encoding: chunked\r\n\r\n");
    let large = "x".repeat(200_000);
    for (answer, code, words) in [
        (format!("{chunked}2\r\nok\r\n0\r\n\r\n"), 0, "is good"),
        (format!("{FIRST}content-length: 2\r\n\r\nok"), 0, "is good"),
        (format!("{FIRST}\r\nuntil the end"), 0, "is good"),
        (
            format!("{FIRST}content-length: 200000\r\n\r\n{large}"),
            0,
            "is good",
        ),
        ("HTTP/1.1 204 No Content\r\n\r\n".to_owned(), 0, "is good"),
        (format!("{chunked}zz\r\n"), 3, "\"zz\""),
        (format!("{chunked}5\r\nhel"), 3, "inside the answer's body"),
        (
            format!("{FIRST}content-length: 9\r\n\r\nshort"),
            3,
            "inside the answer's body",
        ),
        (switching.to_owned(), 3, "switched to another protocol"),
    ] {
        let upstream = Upstream::saying(&answer).await;
        let folder = tempfile::tempdir().unwrap();
        let file = format!(
            "[upstreams.main]\nservers = \"{}\"\nhealth = {{ path = \"/\", status = [\"100-399\"] }}\n\
             [routes.all]\nupstream = \"main\"\n",
            upstream.url()
        );
        std::fs::write(folder.path().join("gateway.toml"), file).unwrap();
        let told = tollgate(folder.path(), &["check", "--connect", "gateway.toml"]).await;
        assert_eq!(told.code, Some(code), "{}{}", told.stdout, told.stderr);
        assert!(told.stdout.contains(words), "{words}: {}", told.stdout);
    }
}
