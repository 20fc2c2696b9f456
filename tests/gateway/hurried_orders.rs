//! Orders that have failed: what is kept of them is told by `check`, and a signal has them made again at once.

use crate::support::{
    AcmeDirectory, File, Gateway, PATIENCE, Redis, Upstream, eventually, tollgate,
};
use std::fs;
use std::path::Path;

const SECRET: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

async fn gateway(
    directory: &AcmeDirectory,
    upstream: &Upstream,
    storage: &str,
    store: &str,
) -> Gateway {
    let folder = tempfile::tempdir().unwrap();
    let listen = "listen = [\"127.0.0.1:0\", { address = \"127.0.0.2:0\", tls = true }]";
    let (url, ca) = (directory.url(), directory.ca());
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
    let failed = |line: &str| line.contains("tried again in 1 min");
    gateway.said.line(0, "the failure", failed).await;
    let told = "no certificate has come yet, 1 order has failed, the next is made at ";
    eventually(PATIENCE, "the failure is kept", async || {
        checked(gateway.folder(), &["check"]).await.contains(told)
    })
    .await;
    let connected = checked(gateway.folder(), &["check", "--connect"]).await;
    assert!(connected.contains(told), "{connected}");
    let json = checked(gateway.folder(), &["check", "--format", "json"]).await;
    assert!(json.contains("\"failures\":1"), "{json}");
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
    // Where nothing has failed, a signal orders nothing.
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
    let line = "ordered from test for all gateways, what is kept of it cannot be read: ";
    assert!(told.stdout.contains(line), "{}", told.stdout);
}
