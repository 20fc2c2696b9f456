//! Certificates that the running gateway orders: the first certificate with each kind of challenge, reloads and
//! restarts, renewals under load, and an authority that is away.

use crate::support::tls::Authority;
use crate::support::{Gateway, PATIENCE, Pebble, PebbleWish, Site, eventually, get, tollgate};
use rustls::{AlertDescription, Error};
use serde_json::Value;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A file whose plain listener redirects all requests to https, and whose certificates `pebble` issues.
fn file(site: &Site, pebble: &Pebble, tables: &str) -> String {
    let listen = site.listen(", redirect = \"https\"");
    site.file(&listen, &pebble.directory(), &pebble.ca(), tables)
}

const SHOP: &str = "[tls.shop]\nacme = \"test\"\nhosts = [\"shop.example.com\"]\n";

async fn metric(gateway: &Gateway, line: &str) {
    eventually(PATIENCE, line, async || {
        gateway.metrics().await.lines().any(|one| one == line)
    })
    .await;
}

#[tokio::test]
async fn the_first_certificate_comes_by_each_challenge() {
    for kind in ["http-01", "tls-alpn-01"] {
        let pebble = Pebble::start(PebbleWish {
            asks_always: true,
            ..PebbleWish::default()
        });
        let site = Site::at(pebble.http, pebble.tls).await;
        let text = file(&site, &pebble, &format!("challenge = \"{kind}\"\n{SHOP}"));
        let mut gateway = site.start(&text).await;
        site.serves("shop", "shop.example.com").await;
        metric(
            &gateway,
            "tollgate_acme_orders_total{identity=\"shop\",result=\"obtained\"} 1",
        )
        .await;
        metric(&gateway, "tollgate_tls_files_ok{identity=\"shop\"} 1").await;
        let metrics = gateway.metrics().await;
        assert!(
            metrics.contains("not_after_timestamp_seconds{identity=\"shop\"} 1"),
            "{metrics}"
        );
        let ready = gateway.admin_get("/readyz").await;
        assert_eq!(ready.text(), "ready\n");
        if kind == "http-01" {
            let line = gateway.line_where("reason", "acme_challenge").await;
            assert_eq!(line["status"], 200);
            assert_eq!(line["host"], format!("shop.example.com:{}", pebble.http));
            let answer = gateway.get("/").await;
            assert_eq!(answer.status, 308, "others are sent on");
        } else {
            let looks = "tollgate_tls_handshakes_total{identity=\"none\",version=\"none\",result=\"challenge\"} ";
            assert!(gateway.metrics().await.contains(looks));
        }
        let folder = gateway.folder();
        let checked = tollgate(folder, &["check"]).await;
        let told = checked.stdout;
        assert!(
            told.contains("identity shop: shop.example.com; ECDSA P-256, ends at ")
                && told.contains("; ordered from test, renewed by 20")
                && told.contains("authority test: https://localhost:"),
            "{told}"
        );
        let asked = ["explain", "GET", "https://shop.example.com/"];
        let told = tollgate(folder, &asked).await.stdout;
        assert!(
            told.contains(
                "its certificate is ordered from test, and the kept certificate ends at 20"
            ),
            "{told}"
        );
        let said = gateway.said.text();
        for line in [
            "tls.shop: no certificate for shop.example.com yet; it is ordered from acme.test",
            "tls.shop: a certificate for shop.example.com has come, good for 8",
        ] {
            assert!(said.contains(line), "{line}: {said}");
        }
        gateway.stop().await;
    }
}

#[tokio::test]
async fn reloads_and_restarts_lose_no_certificate_and_order_only_what_is_new() {
    let pebble = Pebble::start(PebbleWish {
        refused_nonces: 20,
        ..PebbleWish::default()
    });
    let site = Site::at(pebble.http, pebble.tls).await;
    let gateway = site.start(&file(&site, &pebble, SHOP)).await;
    site.serves("shop", "shop.example.com").await;

    let blog = "[tls.blog]\nacme = \"test\"\nhosts = [\"blog.example.com\"]\n";
    gateway.rename_over(&file(&site, &pebble, &format!("{SHOP}{blog}")));
    site.serves("blog", "blog.example.com").await;
    site.serves("shop", "shop.example.com").await;
    assert_eq!(pebble.logged("Added order"), 2);

    // One table gets another name, and one gets another host: the previous certificates are served throughout.
    let renamed = blog.replace("tls.blog", "tls.news");
    let wider = SHOP.replace("[\"shop.", "[\"www.example.com\", \"shop.");
    let stop = Arc::new(AtomicBool::new(false));
    let (stopped, address) = (Arc::clone(&stop), site.tls());
    let clients =
        ["blog", "shop"].map(|one| (site.client(one).unwrap(), format!("{one}.example.com")));
    let watching = tokio::spawn(async move {
        let mut served = 0;
        while !stopped.load(Ordering::SeqCst) {
            for (client, host) in &clients {
                let answer = client.wire(address, host).await.ask(get("/")).await;
                assert_eq!(answer.status, 200, "{host}");
                served += 1;
            }
        }
        served
    });
    gateway.rename_over(&file(&site, &pebble, &format!("{wider}{renamed}")));
    site.serves("news", "blog.example.com").await;
    site.serves("shop", "www.example.com").await;
    stop.store(true, Ordering::SeqCst);
    assert!(watching.await.unwrap() > 2);
    let orders = pebble.logged("Added order");
    assert_eq!(orders, 4, "{}", pebble.log());

    let text = file(&site, &pebble, &format!("{wider}{renamed}"));
    drop(gateway);
    let mut gateway = site.start(&text).await;
    for (identity, host) in [("news", "blog.example.com"), ("shop", "www.example.com")] {
        assert_eq!(site.ask(identity, host).await.status, 200, "at once");
    }
    // An unchanged order causes no log line, whatever else changes.
    gateway.rename_over(&text.replace("[acme.test]", "[acme.test]\ncontact = \"ops@example.com\""));
    gateway
        .said
        .line(0, "the reload", |line| {
            line.contains("reloaded: generation 2")
        })
        .await;
    assert_eq!(site.ask("news", "blog.example.com").await.status, 200);
    assert!(
        !gateway.said.text().contains("yet"),
        "{}",
        gateway.said.text()
    );
    assert_eq!(pebble.logged("Added order"), orders);
    gateway.stop().await;
}

#[tokio::test]
async fn a_renewal_loses_no_request_and_no_connection() {
    let pebble = Pebble::start(PebbleWish {
        life: Some(9),
        ..PebbleWish::default()
    });
    let site = Site::at(pebble.http, pebble.tls).await;
    let gateway = site.start(&file(&site, &pebble, SHOP)).await;
    site.serves("shop", "shop.example.com").await;
    let client = site.client("shop").unwrap();
    let mut kept = client.wire(site.tls(), "shop.example.com").await;
    let first = site.kept("certificates/shop.pem");
    let mut requests = 0;
    let renewed = "tollgate_acme_orders_total{identity=\"shop\",result=\"obtained\"} 3";
    eventually(PATIENCE, renewed, async || {
        let answer = kept.ask(get("/")).await;
        assert_eq!(answer.status, 200);
        let answer = client.wire(site.tls(), "shop.example.com").await;
        assert_eq!({ answer }.ask(get("/")).await.status, 200);
        requests += 1;
        gateway.metrics().await.contains(renewed)
    })
    .await;
    assert!(requests > 20);
    assert_ne!(site.kept("certificates/shop.pem"), first);
    let said = gateway.said.text();
    assert_eq!(said.matches("has come").count(), 3, "{said}");
    assert!(said.contains("is ordered from acme.test; the previous one is good for "));
}

#[tokio::test]
async fn an_authority_that_is_away_keeps_no_gateway_from_serving() {
    let mut pebble = Pebble::start(PebbleWish::default());
    let site = Site::at(pebble.http, pebble.tls).await;
    let own = Authority::new();
    let tables = format!("{SHOP}{}", own.identity("api", &["api.test"]));
    let text = file(&site, &pebble, &tables);
    pebble.end();
    let mut gateway = site.start(&text).await;
    let mut wire = own.trusting().wire(site.tls(), "api.test").await;
    assert_eq!(wire.ask(get("/")).await.status, 200);
    let refused = own.trusting().refused(site.tls(), "shop.example.com").await;
    assert_eq!(
        refused,
        Error::AlertReceived(AlertDescription::AccessDenied)
    );
    gateway
        .said
        .line(0, "why the handshake fails", |line| {
            line.contains(
                "the certificate for its host is ordered and has not come yet (identity `shop`)",
            )
        })
        .await;
    metric(
        &gateway,
        "tollgate_acme_orders_total{identity=\"shop\",result=\"unreachable\"} 1",
    )
    .await;
    metric(&gateway, "tollgate_tls_files_ok{identity=\"shop\"} 0").await;
    gateway
        .said
        .line(0, "the failure", |line| {
            line.contains("tls.shop: no certificate: the authority does not answer")
                && line.ends_with("the next attempt is in 1 min")
        })
        .await;
    let ready = gateway.admin_get("/readyz").await;
    assert_eq!(ready.status, 200);
    assert_eq!(
        ready.text(),
        "ready\ntls: no certificate yet for shop, handshakes there are refused\n"
    );
    let told = tollgate(gateway.folder(), &["check"]).await.stdout;
    assert!(
        told.contains("identity shop: shop.example.com; ordered from test, no certificate has come yet, 1 order has failed, the next is made at 20"),
        "{told}"
    );
    let asked = ["check", "--format", "json"];
    let told = tollgate(gateway.folder(), &asked).await.stdout;
    let summary: Value = serde_json::from_str(told.lines().last().unwrap()).unwrap();
    let shop = &summary["identities"][0];
    assert_eq!(shop["acme"]["failures"], 1, "{shop}");
    assert_eq!(shop["acme"]["authority"], "test");
    assert!(shop["not_after"].is_null() && shop["acme"]["next_order"].is_string());
    let asked = ["explain", "GET", "https://shop.example.com/"];
    let told = tollgate(gateway.folder(), &asked).await.stdout;
    assert!(
        told.contains("has not come yet: the handshake is refused"),
        "{told}"
    );
    gateway.stop().await;

    // Another process continues to wait, and says so. When the time has come it orders.
    let attempts = site.kept("attempts/shop.json");
    assert!(attempts.contains("\"failures\":1"), "{attempts}");
    pebble.restart();
    let mut gateway = site.start(&text).await;
    gateway
        .said
        .line(0, "the time of the next order", |line| {
            line.contains("the previous order failed, and the next one is made at 20")
        })
        .await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(site.kept("attempts/shop.json"), attempts);
    assert_eq!(pebble.logged("Added order"), 0);
    gateway.stop().await;
    let start = attempts.find("\"next\":").unwrap();
    let end = attempts[start..]
        .find(',')
        .map_or(attempts.len() - 2, |at| start + at);
    let now = format!("{}\"next\":1{}", &attempts[..start], &attempts[end..]);
    fs::write(site.path("attempts/shop.json"), now).unwrap();
    let _gateway = site.start(&text).await;
    site.serves("shop", "shop.example.com").await;
}
