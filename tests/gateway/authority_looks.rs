//! The looks of a certification authority at one of the gateway's hosts, and strangers that imitate these looks. The
//! authority belongs to the tests: its challenges stay open for as long as a test needs.

use crate::support::tls::{Authority, TlsClient};
use crate::support::{AcmeDirectory, Gateway, PATIENCE, Site, eventually, free_port, get, request};
use rustls::{AlertDescription, Error};
use tokio::io::AsyncReadExt as _;
use tokio::time::timeout;

const HOST: &str = "shop.example.com";
const PATH: &str = "/.well-known/acme-challenge/";

/// A gateway with an order under way, whose challenge is of this `kind`, and its authority.
async fn looked_at(kind: &str, more: &str) -> (AcmeDirectory, Site, Gateway) {
    let directory = AcmeDirectory::start().await;
    directory.wait(true);
    let site = Site::at(free_port(), free_port()).await;
    let gateway = site.start(&file(&site, &directory, kind, more)).await;
    gateway
        .said
        .line(0, "an order", |line| {
            line.contains(&format!("verifies {HOST} by {kind}"))
        })
        .await;
    (directory, site, gateway)
}

fn file(site: &Site, directory: &AcmeDirectory, kind: &str, more: &str) -> String {
    let rest = format!(
        "challenge = \"{kind}\"\n[tls.shop]\nacme = \"test\"\nhosts = [\"{HOST}\"]\n{more}"
    );
    let server = format!("{}drain = \"15s\"\n", site.listen(""));
    site.file(&server, &directory.url(), &directory.ca(), &rest)
}

#[tokio::test]
async fn a_known_token_is_answered_before_everything_and_all_else_goes_its_way() {
    let own = Authority::new();
    let limits = "[limits.few]\nby = \"everyone\"\nrate = \"20/d\"\n[defaults]\nlimits = \"few\"\n";
    let (_directory, site, gateway) = looked_at(
        "http-01",
        &format!("{limits}{}", own.identity("api", &["api.test"])),
    )
    .await;
    let token = AcmeDirectory::token(0);
    let known = format!("{PATH}{token}");
    let fields = [("Host", HOST)];
    // The authority looks more often than the limit allows. The port and the case of the host do not matter.
    for host in [
        HOST,
        "shop.example.com:80",
        "SHOP.example.com.",
        "shop.example.com:",
    ] {
        for _ in 0..8 {
            let asked = request("GET", &known, &[("Host", host)]);
            let answer = gateway.connect().await.ask(asked).await.expect(200);
            assert!(
                answer.text().starts_with(&format!("{token}.")),
                "{}",
                answer.text()
            );
            assert_eq!(answer.field("content-type"), "application/octet-stream");
            assert!(answer.fields.get("ratelimit").is_none());
            assert_eq!(gateway.line_of(&answer).await["reason"], "acme_challenge");
        }
    }
    let whole = format!("http://{HOST}{known}?a=b");
    gateway.get_with(&whole, &fields).await.expect(200);
    let mut wire = gateway.connect().await;
    wire.send(request("HEAD", &known, &fields)).await;
    assert_eq!(wire.answer_to_head().await.status, 200);
    // Some other server sends clients of port 80 on to https, and the authority follows.
    let mut over_tls = own.trusting().wire(site.tls(), "api.test").await;
    let answer = over_tls.ask(request("GET", &known, &fields)).await;
    assert!(answer.expect(200).text().starts_with(&token));
    assert_eq!(site.upstream.seen(), 0);
    let strangers = [
        ("GET", format!("{PATH}{}", token.to_uppercase()), HOST),
        ("GET", format!("{PATH}{}", &token[1..]), HOST),
        ("GET", format!("{PATH}{token}/"), HOST),
        ("GET", format!("{PATH}{token}%00"), HOST),
        ("GET", format!("{PATH}%74{}", &token[1..]), HOST),
        ("GET", format!("/x/..{known}"), HOST),
        ("GET", format!("/{known}"), HOST),
        ("GET", format!("{PATH}../acme-challenge/{token}"), HOST),
        ("GET", format!("{PATH}{}", "a".repeat(4000)), HOST),
        ("GET", PATH.to_owned(), HOST),
        ("GET", known.clone(), "other.example.com"),
        ("POST", known.clone(), HOST),
    ];
    for (number, (method, target, host)) in strangers.iter().enumerate() {
        let asked = request(method, target, &[("Host", host), ("Content-Length", "0")]);
        let answer = gateway.connect().await.ask(asked).await;
        assert!(!answer.text().contains(&format!("{token}.")), "{target}");
        let line = gateway.line_of(&answer).await;
        assert_ne!(line["reason"], "acme_challenge", "{number}: {target}");
    }
    assert!(site.upstream.seen() >= strangers.len() - 2);
}

#[tokio::test]
async fn a_handshake_of_an_authority_is_answered_for_its_host_alone_and_then_ends() {
    let (directory, site, gateway) = looked_at("tls-alpn-01", "").await;
    let looking = TlsClient::looking().speaking(&["acme-tls/1"]);
    let mut found = looking.connect(site.tls(), HOST).await.unwrap();
    {
        let (_, session) = found.get_ref();
        assert_eq!(session.alpn_protocol(), Some(&b"acme-tls/1"[..]));
        let shown = &session.peer_certificates().unwrap()[0];
        // The bytes of id-pe-acmeIdentifier, 1.3.6.1.5.5.7.1.31 (RFC 8737, section 3).
        let id = [0x2b, 6, 1, 5, 5, 7, 1, 31];
        assert!(shown.windows(id.len()).any(|part| part == id));
    }
    let ended = timeout(PATIENCE, found.read_u8()).await.unwrap();
    let ended = ended.unwrap_err();
    assert_eq!(ended.kind(), std::io::ErrorKind::UnexpectedEof);
    // rustls would report an end without `close_notify` as an error.
    assert!(ended.get_ref().is_none(), "{ended:?}");
    gateway
        .said
        .line(0, "the look", |line| {
            line.contains("has found shop.example.com to be ours")
        })
        .await;
    // A list with further protocols makes an ordinary handshake, and the certificate does not exist yet.
    for alpn in [
        &["acme-tls/1", "h2"][..],
        &["h2", "acme-tls/1"],
        &["http/1.1"],
    ] {
        let client = TlsClient::looking().speaking(alpn);
        let refused = client.refused(site.tls(), HOST).await;
        assert_eq!(
            refused,
            Error::AlertReceived(AlertDescription::AccessDenied),
            "{alpn:?}"
        );
    }
    let pending = Error::AlertReceived(AlertDescription::AccessDenied);
    assert_eq!(
        looking.refused(site.tls(), "other.example.com").await,
        pending
    );
    let no_overlap = Error::AlertReceived(AlertDescription::NoApplicationProtocol);
    directory.wait(false);
    site.serves("shop", HOST).await;
    assert_eq!(looking.refused(site.tls(), HOST).await, no_overlap);
    let mixed = TlsClient::looking().speaking(&["acme-tls/1", "http/1.1"]);
    let answer = mixed.wire(site.tls(), HOST).await.ask(get("/")).await;
    assert_eq!(answer.status, 200);
}

#[tokio::test]
async fn a_gateway_that_stops_gives_its_order_up_and_another_takes_the_folder() {
    let (directory, mut site, mut first) = looked_at("http-01", "").await;
    // An unfinished request keeps the drain open.
    let mut held = first.connect().await;
    held.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n12")
        .await;
    site.upstream.sees(1).await;
    assert!(site.kept("attempts/shop.json").contains("\"begun\":1"));
    first.signal("TERM");
    first
        .said
        .line(0, "the end of the order", |line| {
            line.contains("tls.shop: the order is given up: the gateway stops")
        })
        .await;
    eventually(PATIENCE, "the order counts as none", async || {
        let attempts = site.kept("attempts/shop.json");
        attempts.contains("\"begun\":null") && attempts.contains("\"failures\":0")
    })
    .await;
    directory.wait(false);
    site.move_to(free_port(), free_port());
    let second = site.start(&file(&site, &directory, "http-01", "")).await;
    site.serves("shop", HOST).await;
    assert!(!second.said.text().contains("another process orders"));
    assert_eq!(directory.orders().len(), 2);
    first.signal("TERM");
    assert_eq!(first.exit(PATIENCE).await, Some(0));
}

#[tokio::test]
async fn a_second_process_answers_for_the_first_and_serves_what_it_obtains() {
    for kind in ["http-01", "tls-alpn-01"] {
        let (directory, mut site, first) = looked_at(kind, "").await;
        site.move_to(free_port(), free_port());
        let second = site.start(&file(&site, &directory, kind, "")).await;
        let turn = second.said.line(0, "whose turn it is", |line| {
            line.contains("another process orders into")
        });
        turn.await;
        if kind == "http-01" {
            text_of_another(&second).await;
        } else {
            let looking = TlsClient::looking().speaking(&["acme-tls/1"]);
            looking.connect(site.tls(), HOST).await.unwrap();
            let other = looking.refused(site.tls(), "other.example.com").await;
            let pending = Error::AlertReceived(AlertDescription::AccessDenied);
            assert_eq!(other, pending);
        }
        let metrics = second.metrics().await;
        let found = "tollgate_acme_lookups_total{result=\"found\"} 1\n";
        assert!(metrics.contains(found), "{metrics}");
        directory.wait(false);
        site.serves("shop", HOST).await;
        assert_eq!(directory.orders().len(), 1);
        let taken = "tollgate_acme_taken_total{identity=\"shop\"} 1\n";
        assert!(second.metrics().await.contains(taken));
        assert!(second.said.text().contains("was taken from /"));
        let left = std::fs::read_dir(site.path("challenges")).unwrap().count();
        assert_eq!(left, 0, "the answer goes with its order");
        // When the first gateway ends, the second has the folder.
        first.signal("TERM");
        let turn = second.said.line(0, "whose turn it is", |line| {
            line.contains("this process orders into")
        });
        turn.await;
    }
}

/// Asks a process for the text of an order of another process, and for the text of no order.
async fn text_of_another(second: &Gateway) {
    let token = AcmeDirectory::token(0);
    let fields = [("Host", HOST)];
    let known = format!("{PATH}{token}");
    let answer = second.get_with(&known, &fields).await.expect(200);
    assert!(answer.text().starts_with(&format!("{token}.")));
    // Looks beyond the number that one second allows are answered like other requests, and are counted.
    let other = format!("{PATH}{}", "x".repeat(43));
    for _ in 0..40 {
        let answer = second.get_with(&other, &fields).await;
        assert_ne!(second.line_of(&answer).await["reason"], "acme_challenge");
    }
    let metrics = second.metrics().await;
    let count = |result: &str| -> usize {
        let line = format!("tollgate_acme_lookups_total{{result=\"{result}\"}} ");
        let found = metrics.lines().find_map(|one| one.strip_prefix(&line));
        found.unwrap().parse().unwrap()
    };
    assert_eq!(count("missing") + count("refused"), 40, "{metrics}");
    assert!(count("missing") >= 9);
}
