//! Failed orders: `check` shows the kept failures, and a signal makes the orders again at once.

use crate::support::{
    AcmeDirectory, File, Gateway, PATIENCE, Pebble, PebbleWish, Redis, Upstream, eventually,
    tollgate,
};
use serde_json::Value;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

const SECRET: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

async fn gateway(
    directory: &AcmeDirectory,
    upstream: &Upstream,
    storage: &str,
    store: &str,
) -> Gateway {
    let (url, ca) = (directory.url(), directory.ca());
    ordering_from(&url, &ca, upstream, storage, store).await
}

async fn ordering_from(
    url: &str,
    ca: &Path,
    upstream: &Upstream,
    storage: &str,
    store: &str,
) -> Gateway {
    let folder = tempfile::tempdir().unwrap();
    let listen = "listen = [\"127.0.0.1:0\", { address = \"127.0.0.2:0\", tls = true }]";
    let mut file = File::default()
        .server(listen)
        .upstream("main", &[upstream])
        .route("all", "/{*rest}", "main", &[])
        .with("[tls.shop]\nacme = \"test\"\nhosts = \"shop.example.com\"")
        .with(&format!(
            "[acme.test]\nagree = true\nchallenge = \"http-01\"\ndirectory = \"{url}\"\nca = {ca:?}\n{storage}"
        ));
    if !store.is_empty() {
        file = file.store(store);
    }
    fs::write(folder.path().join("acme.secret"), SECRET).unwrap();
    let path = folder.path().join("gateway.toml");
    fs::write(&path, file.text()).unwrap();
    Gateway::run(folder, &path).await
}

async fn checked(folder: &Path, arguments: &[&str]) -> String {
    tollgate(folder, arguments).await.stdout
}

async fn is_made_again_at_a_signal(storage: &str, store: &str) {
    let (directory, upstream) = (AcmeDirectory::start().await, Upstream::echo().await);
    directory.refuse_first();
    let gateway = gateway(&directory, &upstream, storage, store).await;
    let failed = |line: &str| line.contains("the next attempt is in 1 min");
    gateway.said.line(0, "the failure", failed).await;
    let told = "no certificate has come yet, 1 order has failed, the next is made at ";
    eventually(PATIENCE, "the failure is kept", async || {
        checked(gateway.folder(), &["check"]).await.contains(told)
    })
    .await;
    let connected = checked(gateway.folder(), &["check", "--connect"]).await;
    assert!(connected.contains(told), "{connected}");
    let cause = ": shop.example.com was not found to be ours by http-01: ";
    assert!(
        connected.contains("Z; the last failed at 20") && connected.contains(cause),
        "{connected}"
    );
    let json = checked(gateway.folder(), &["check", "--format", "json"]).await;
    assert!(
        json.contains("\"failures\":1") && json.contains("\"last_failure\":{\"at\":\"20"),
        "{json}"
    );
    let start = gateway.said.lines().len();
    gateway.signal("HUP");
    let came = |line: &str| line.contains("a certificate for shop.example.com has come");
    gateway.said.line(start, "the certificate", came).await;
    assert_eq!(directory.orders().len(), 2);
    eventually(PATIENCE, "the failure is forgotten", async || {
        let told = checked(gateway.folder(), &["check"]).await;
        told.contains(", renewed by ") && !told.contains("failed")
    })
    .await;
    // If no order has failed, a signal causes no order.
    let start = gateway.said.lines().len();
    gateway.signal("HUP");
    let unchanged = |line: &str| line.contains("is unchanged");
    gateway.said.line(start, "the signal", unchanged).await;
    gateway.get("/").await.expect(200);
    assert_eq!(directory.orders().len(), 2);
}

#[tokio::test]
async fn an_order_that_failed_is_made_again_at_a_signal_with_a_folder() {
    is_made_again_at_a_signal("storage = \"acme\"", "").await;
}

#[tokio::test]
async fn an_order_that_failed_is_made_again_at_a_signal_with_a_store() {
    let redis = Redis::start().await;
    let storage = "storage = \"store\"\nsecret = { file = \"acme.secret\" }";
    let store = format!("url = \"{}\"", redis.url());
    is_made_again_at_a_signal(storage, &store).await;
}

/// The log lines about a hurried order that has to wait all the same. They say when it will be made.
fn waits(gateway: &Gateway) -> Vec<String> {
    let lines = gateway.said.lines().into_iter();
    lines
        .filter(|line| line.contains("the next order is made in "))
        .collect()
}

async fn waits_for_the_authority_alone(storage: &str, store: &str) {
    let (directory, upstream) = (AcmeDirectory::start().await, Upstream::echo().await);
    directory.limit("new-order", 6);
    let gateway = gateway(&directory, &upstream, storage, store).await;
    let failed = |line: &str| line.contains("the next attempt is in 1 min");
    gateway.said.line(0, "the failure", failed).await;
    directory.unlimit();
    let start = gateway.said.lines().len();
    gateway.signal("HUP");
    let came = |line: &str| line.contains("a certificate for shop.example.com has come");
    gateway.said.line(start, "the certificate", came).await;
    let waits = waits(&gateway);
    assert!(waits.len() <= 1, "{waits:?}");
    assert!(waits.iter().all(|line| line.contains(" s: ")), "{waits:?}");
}

#[tokio::test]
async fn a_hurried_order_waits_for_the_pause_of_its_authority_alone_with_a_folder() {
    waits_for_the_authority_alone("storage = \"acme\"", "").await;
}

#[tokio::test]
async fn a_hurried_order_waits_for_the_pause_of_its_authority_alone_with_a_store() {
    let redis = Redis::start().await;
    let storage = "storage = \"store\"\nsecret = { file = \"acme.secret\" }";
    let store = format!("url = \"{}\"", redis.url());
    waits_for_the_authority_alone(storage, &store).await;
}

/// Forwards connections to a port of this machine to `target`.
async fn lead(port: u16, target: SocketAddr) {
    let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut onward = TcpStream::connect(target).await?;
                copy_bidirectional(&mut stream, &mut onward).await
            });
        }
    });
}

/// Makes the kept failures of an identity an hour older, less these seconds.
fn age(kept: &Path, seconds: i64) {
    let text = fs::read_to_string(kept).unwrap();
    let mut attempts: Value = serde_json::from_str(&text).unwrap();
    let last = attempts["last"].as_array_mut().unwrap();
    assert_eq!(last.len(), 4);
    for at in last {
        *at = (at.as_i64().unwrap() - 3600 + seconds).into();
    }
    fs::write(kept, attempts.to_string()).unwrap();
}

#[tokio::test]
async fn signals_make_four_failures_an_hour_and_the_next_order_when_it_is_over() {
    let (pebble, upstream) = (Pebble::start(PebbleWish::default()), Upstream::echo().await);
    let (url, ca) = (pebble.directory(), pebble.ca());
    let gateway = ordering_from(&url, &ca, &upstream, "storage = \"acme\"", "").await;
    for number in 1..=4 {
        let failed = |line: &str| line.contains("ERROR tls.shop: no certificate: ");
        eventually(PATIENCE, "an order fails", async || {
            let lines = gateway.said.lines();
            lines.iter().filter(|line| failed(line)).count() == number
        })
        .await;
        let told = format!("{number} order");
        eventually(PATIENCE, "the failure is kept", async || {
            checked(gateway.folder(), &["check"]).await.contains(&told)
        })
        .await;
        if number < 4 {
            gateway.signal("HUP");
        }
    }
    let told = checked(gateway.folder(), &["check"]).await;
    let cause = ": shop.example.com was not found to be ours by http-01: ";
    assert!(
        told.contains("4 orders in a row have failed, the next is made at ")
            && told.contains("Z; the last failed at 20")
            && told.contains(cause),
        "{told}"
    );
    assert_eq!(waits(&gateway), Vec::<String>::new());
    // Without a signal the order waits for two hours, and with a signal only for the rest of the hour.
    lead(pebble.http, gateway.address()).await;
    age(&gateway.folder().join("acme/attempts/shop.json"), 8);
    let start = gateway.said.lines().len();
    gateway.signal("HUP");
    let came = |line: &str| line.contains("a certificate for shop.example.com has come");
    gateway.said.line(start, "the certificate", came).await;
    let waits = waits(&gateway);
    assert_eq!(waits.len(), 1, "{waits:?}");
    assert!(
        waits[0].contains(" s: four orders have failed"),
        "{waits:?}"
    );
    assert_eq!(pebble.logged("Added order"), 5);
}

#[tokio::test]
async fn check_says_why_it_knows_nothing_of_what_a_store_keeps() {
    let redis = Redis::absent();
    let folder = tempfile::tempdir().unwrap();
    let text = File::default()
        .server("listen = [\"127.0.0.1:0\", { address = \"127.0.0.1:8443\", tls = true }]")
        .store(&format!("url = \"{}\"", redis.url()))
        .with("[tls.shop]\nacme = \"test\"\nhosts = \"shop.example.com\"")
        .with("[upstreams.main]\nservers = \"http://127.0.0.1:1\"")
        .route("all", "/{*rest}", "main", &[])
        .with("[acme.test]\nagree = true\nstorage = \"store\"\nsecret = { file = \"acme.secret\" }")
        .text();
    fs::write(folder.path().join("acme.secret"), SECRET).unwrap();
    fs::write(folder.path().join("gateway.toml"), text).unwrap();
    let told = tollgate(folder.path(), &["check"]).await;
    assert_eq!(told.code, Some(0), "{}", told.stderr);
    let line = "ordered from test for all gateways, its kept files cannot be read: ";
    assert!(told.stdout.contains(line), "{}", told.stdout);
}
