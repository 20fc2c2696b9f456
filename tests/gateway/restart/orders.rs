//! Certificates that are ordered while a successor takes over: no order is made twice. The successor answers for the
//! order under way, and orders by itself when that order has ended.

use super::gone;
use crate::support::tls::TlsClient;
use crate::support::{AcmeDirectory, Gateway, Pebble, PebbleWish, Site, free_port, get};

const HOST: &str = "shop.example.com";
const SHOP: &str = "[tls.shop]\nacme = \"test\"\nhosts = [\"shop.example.com\"]\n";

async fn says(gateway: &Gateway, start: usize, text: &str) {
    let said = gateway.said.line(start, text, |line| line.contains(text));
    said.await;
}

#[tokio::test]
async fn an_order_under_way_comes_to_its_end_and_the_successor_answers_for_it() {
    for kind in ["http-01", "tls-alpn-01"] {
        let directory = AcmeDirectory::start().await;
        directory.wait(true);
        let site = Site::at(free_port(), free_port()).await;
        let tables = format!("challenge = \"{kind}\"\n{SHOP}");
        let server = format!("{}drain = \"1min\"\n", site.listen(""));
        let text = site.file(&server, &directory.url(), &directory.ca(), &tables);
        let mut gateway = site.start(&text).await;
        says(&gateway, 0, &format!("verifies {HOST} by {kind}")).await;
        let before = gateway.hand_over().await;
        says(&gateway, 0, "another process orders into").await;
        if kind == "http-01" {
            let token = AcmeDirectory::token(0);
            let path = format!("/.well-known/acme-challenge/{token}");
            let answer = gateway.get_with(&path, &[("Host", HOST)]).await;
            assert!(answer.expect(200).text().starts_with(&token));
        } else {
            let looking = TlsClient::looking().speaking(&["acme-tls/1"]);
            looking.connect(site.tls(), HOST).await.unwrap();
        }
        let metrics = gateway.metrics().await;
        let found = "tollgate_acme_lookups_total{result=\"found\"} 1\n";
        assert!(metrics.contains(found), "{metrics}");
        directory.wait(false);
        site.serves("shop", HOST).await;
        gone(before).await;
        says(&gateway, 0, "this process orders into").await;
        assert_eq!(directory.orders().len(), 1);
        let attempts = site.kept("attempts/shop.json");
        assert!(attempts.contains("\"failures\":0"), "{attempts}");
        gateway.stop().await;
    }
}

#[tokio::test]
async fn an_order_that_outlasts_the_drain_is_given_up_and_the_successor_orders() {
    let directory = AcmeDirectory::start().await;
    directory.wait(true);
    let site = Site::at(free_port(), free_port()).await;
    let server = format!("{}drain = \"2s\"\n", site.listen(""));
    let text = site.file(&server, &directory.url(), &directory.ca(), SHOP);
    let mut gateway = site.start(&text).await;
    says(&gateway, 0, &format!("verifies {HOST}")).await;
    let before = gateway.hand_over().await;
    says(&gateway, 0, "the order is given up: the gateway stops").await;
    gone(before).await;
    says(&gateway, 0, "this process orders into").await;
    directory.wait(false);
    site.serves("shop", HOST).await;
    assert_eq!(directory.orders().len(), 2);
    gateway.stop().await;
}

#[tokio::test]
async fn renewals_go_on_over_hand_overs() {
    let pebble = Pebble::start(PebbleWish {
        life: Some(9),
        asks_always: true,
        ..PebbleWish::default()
    });
    let site = Site::at(pebble.http, pebble.tls).await;
    let text = site.file(&site.listen(""), &pebble.directory(), &pebble.ca(), SHOP);
    let mut gateway = site.start(&text).await;
    site.serves("shop", HOST).await;
    for _ in 0..3 {
        let before = gateway.hand_over().await;
        let client = site.client("shop").unwrap();
        let mut wire = client.wire(site.tls(), HOST).await;
        assert_eq!(wire.ask(get("/")).await.status, 200);
        drop(wire);
        let start = gateway.said.lines().len();
        says(
            &gateway,
            start,
            "a certificate for shop.example.com has come",
        )
        .await;
        gone(before).await;
    }
    let said = gateway.said.text();
    assert!(!said.contains("no certificate: "), "{said}");
    let orders = said.matches("is ordered from acme.test").count();
    // The log may be read in the middle of an order.
    assert!(pebble.logged("Added order") <= orders + 1, "{said}");
    assert_eq!(pebble.logged("There are now 1 accounts"), 1);
    assert_eq!(pebble.logged("There are now 2 accounts"), 0);
    gateway.stop().await;
}
