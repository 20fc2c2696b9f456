//! The certificates of several running gateways behind one name, kept in Redis: one gateway orders and renews them, and
//! all serve them.

mod clear_text;
mod hand_overs;
mod kinds_of_store;
mod strangers;

use crate::support::tls::TlsClient;
use crate::support::{
    File, Gateway, PATIENCE, Pebble, PebbleWish, Redis, Upstream, eventually, long, tollgate,
};
use rustls::pki_types::CertificateDer;
use std::fs;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use x509_parser::prelude::{FromDer as _, X509Certificate};

const SECRET: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
const HOST: &str = "shop.example.com";

/// The common parts of several gateways.
struct Scene {
    pebble: Pebble,
    /// The lines of `[store]`.
    store: String,
    upstream: Upstream,
    balancer: Balancer,
}

impl Scene {
    /// A scene with certificates that are valid for this number of seconds, and a Redis.
    async fn new(life: Option<u32>) -> (Self, Redis) {
        let redis = Redis::start().await;
        let store = format!("url = \"{}\"", redis.url());
        (Self::with_store(life, store).await, redis)
    }

    async fn with_store(life: Option<u32>, store: String) -> Self {
        let pebble = Pebble::start(PebbleWish {
            life,
            asks_always: true,
            ..PebbleWish::default()
        });
        Self {
            balancer: Balancer::before(&pebble).await,
            pebble,
            store,
            upstream: Upstream::echo().await,
        }
    }

    async fn gateway(&self, secret: &str) -> Gateway {
        let folder = tempfile::tempdir().unwrap();
        let listen = "listen = [{ address = \"127.0.0.1:0\", redirect = \"https\" }, { address = \"127.0.0.2:0\", tls = true }]";
        let (directory, ca) = (self.pebble.directory(), self.pebble.ca());
        let text = File::default()
            .server(listen)
            .store(&format!("{}\nprefix = \"edge\"", self.store))
            .upstream("main", &[&self.upstream])
            .route("all", "/{*rest}", "main", &[])
            .with(&format!("[tls.shop]\nacme = \"test\"\nhosts = \"{HOST}\""))
            .with(&format!(
                "[acme.test]\nagree = true\ndirectory = \"{directory}\"\nca = {ca:?}\nstorage = \"store\"\nsecret = {{ file = \"acme.secret\" }}"
            ))
            .text();
        fs::write(folder.path().join("acme.secret"), secret).unwrap();
        let path = folder.path().join("gateway.toml");
        fs::write(&path, text).unwrap();
        Gateway::run(folder, &path).await
    }
}

/// The balancer in front of the gateways: connections go to each gateway in turn.
#[derive(Clone, Default)]
struct Balancer {
    plain: Arc<Mutex<Vec<SocketAddr>>>,
    tls: Arc<Mutex<Vec<SocketAddr>>>,
    seen: Arc<AtomicUsize>,
}

impl Balancer {
    /// Starts before the gateways: an authority may look for the first gateway's certificate before the second gateway
    /// has started. Connections wait until they can be forwarded.
    async fn before(pebble: &Pebble) -> Self {
        let balancer = Self::default();
        for (port, targets) in [
            (pebble.http, Arc::clone(&balancer.plain)),
            (pebble.tls, Arc::clone(&balancer.tls)),
        ] {
            let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
            tokio::spawn(balancer.clone().serve(listener, targets));
        }
        balancer
    }

    async fn lead_to(&self, gateways: &[&Gateway]) {
        let mut tls = Vec::new();
        for gateway in gateways {
            tls.push(gateway.tls().await);
        }
        *self.tls.lock().unwrap() = tls;
        *self.plain.lock().unwrap() = gateways.iter().map(|one| one.address()).collect();
    }

    async fn serve(self, listener: TcpListener, targets: Arc<Mutex<Vec<SocketAddr>>>) {
        while let Ok((mut stream, _)) = listener.accept().await {
            let turn = self.seen.fetch_add(1, Ordering::SeqCst);
            let targets = Arc::clone(&targets);
            tokio::spawn(async move {
                let target = loop {
                    let targets = targets.lock().unwrap().clone();
                    if !targets.is_empty() {
                        break targets[turn % targets.len()];
                    }
                    tokio::time::sleep(Duration::from_millis(20)).await;
                };
                let mut onward = TcpStream::connect(target).await?;
                copy_bidirectional(&mut stream, &mut onward).await
            });
        }
    }
}

/// The certificate that a gateway serves.
async fn shown(gateway: &Gateway) -> Option<CertificateDer<'static>> {
    let address = gateway.tls().await;
    let stream = TlsClient::looking().connect(address, HOST).await.ok()?;
    let (_, connection) = stream.get_ref();
    Some(connection.peer_certificates()?[0].clone().into_owned())
}

/// Waits until all gateways serve the same certificate, and not the previous one.
async fn all_show(
    gateways: &[&Gateway],
    before: Option<&CertificateDer<'static>>,
) -> CertificateDer<'static> {
    let found = Mutex::new(None);
    let said = gateways.iter().map(|one| one.said.text());
    let said = said.collect::<Vec<_>>().concat();
    // An order that fails, because of a busy machine or its store, is made again after a minute.
    eventually(PATIENCE * 8, &format!("all show one: {said}"), async || {
        let mut all = Vec::new();
        for gateway in gateways {
            all.push(shown(gateway).await);
        }
        let first = all[0].clone();
        let is_one = first.is_some() && all.iter().all(|one| *one == first);
        let is_new = first.as_ref() != before;
        *found.lock().unwrap() = first;
        is_one && is_new
    })
    .await;
    found.into_inner().unwrap().unwrap()
}

/// The sum of a counter over all gateways.
async fn sum(gateways: &[&Gateway], line: &str) -> u64 {
    let mut sum = 0;
    for gateway in gateways {
        let text = gateway.metrics().await;
        let found = text.lines().find_map(|one| one.strip_prefix(line));
        sum += found.map_or(0, |count| count.trim().parse().unwrap());
    }
    sum
}

const OBTAINED: &str = "tollgate_acme_orders_total{identity=\"shop\",result=\"obtained\"} ";
const TAKEN: &str = "tollgate_acme_taken_total{identity=\"shop\"} ";

#[tokio::test]
async fn a_certificate_is_ordered_once_served_by_both_and_renewed_once() {
    let (scene, redis) = Scene::new(Some(30)).await;
    let (first, second) = (scene.gateway(SECRET).await, scene.gateway(SECRET).await);
    let both = [&first, &second];
    scene.balancer.lead_to(&both).await;
    let ordered = all_show(&both, None).await;
    assert_eq!(scene.pebble.logged("Issued certificate"), 1);
    assert_eq!(sum(&both, OBTAINED).await, 1);
    assert_eq!(sum(&both, TAKEN).await, 1);
    let renewed = all_show(&both, Some(&ordered)).await;
    assert_ne!(ordered, renewed);
    let pebble = &scene.pebble;
    assert_eq!(pebble.logged("Issued certificate"), 2, "{}", pebble.log());
    assert_eq!(pebble.logged("There are now 1 accounts"), 1);
    assert_eq!(pebble.logged("There are now 2 accounts"), 0);
    assert_eq!(sum(&both, OBTAINED).await, 2);
    assert_eq!(sum(&both, TAKEN).await, 2);
    assert_eq!(sum(&both, "tollgate_acme_store_up ").await, 2);

    let said = [first.said.text(), second.said.text()].concat();
    for (step, count) in [
        ("certificates are kept in redis://127.0.0.1:", 2),
        ("acme.test: an account was made with", 1),
        (
            "a certificate for shop.example.com is ordered from acme.test",
            2,
        ),
        ("; the previous one is good for", 1),
        ("a certificate for shop.example.com has come, good for", 2),
        (
            "a certificate for shop.example.com was taken from the store, good for",
            2,
        ),
    ] {
        assert_eq!(said.matches(step).count(), count, "{step}: {said}");
    }
    each_step_is_counted(&both, &ordered, &renewed).await;
    clear_text::shows_no_key(&scene, &redis, &both).await;
    let checked = tollgate(first.folder(), &["check"]).await.stdout;
    assert!(
        checked.contains("ordered from test for all gateways")
            && checked.contains("certificates are kept in the store, sealed"),
        "{checked}"
    );
}

/// Both gateways report the end of the present certificate, and the results of the authority's looks.
async fn each_step_is_counted(
    both: &[&Gateway],
    ordered: &CertificateDer<'static>,
    renewed: &CertificateDer<'static>,
) {
    let end = |of: &CertificateDer<'static>| {
        let (_, read) = X509Certificate::from_der(of).unwrap();
        read.validity().not_after.timestamp()
    };
    assert!(end(renewed) > end(ordered));
    for gateway in both {
        let metrics = gateway.metrics().await;
        let line = format!(
            "tollgate_tls_certificate_not_after_timestamp_seconds{{identity=\"shop\"}} {}\n",
            end(renewed)
        );
        assert!(metrics.contains(&line), "{line}: {metrics}");
        assert!(metrics.contains("tollgate_tls_files_ok{identity=\"shop\"} 1\n"));
    }
    // One order causes several looks, and some of them reach the gateway that did not make the order.
    assert!(sum(both, "tollgate_acme_lookups_total{result=\"found\"} ").await > 0);
    let all = OBTAINED.replace("obtained", "failed");
    assert_eq!(sum(both, &all).await, 0);
}

#[tokio::test]
async fn a_gateway_with_another_secret_says_so_and_changes_nothing() {
    let (scene, _redis) = Scene::new(None).await;
    let first = scene.gateway(SECRET).await;
    scene.balancer.lead_to(&[&first]).await;
    all_show(&[&first], None).await;
    let other = scene.gateway(&"9".repeat(64)).await;
    let line = other
        .said
        .line(0, "the error", |line| line.contains("another `secret`"));
    let line = line.await;
    assert!(line.contains("edge:acme:"), "{line}");
    assert_eq!(scene.pebble.logged("Added order"), 1);
    assert!(shown(&first).await.is_some());
}

#[tokio::test]
async fn a_gateway_starts_without_its_store_and_says_so() {
    let (scene, mut redis) = Scene::new(None).await;
    redis.kill().await;
    let gateway = scene.gateway(SECRET).await;
    scene.balancer.lead_to(&[&gateway]).await;
    let line = gateway.said.line(0, "a line about the store", |line| {
        line.contains("certificates are kept there, so none is ordered")
    });
    line.await;
    assert_eq!(sum(&[&gateway], "tollgate_acme_store_up ").await, 0);
    assert_eq!(gateway.get("/").await.status, 308, "it serves");
    redis.come().await;
    all_show(&[&gateway], None).await;
}

/// A test of the long form: a lock lasts a minute.
#[tokio::test]
async fn an_order_whose_gateway_was_killed_is_taken_over() {
    if !long() {
        return;
    }
    let (scene, _redis) = Scene::new(None).await;
    let (first, second) = (scene.gateway(SECRET).await, scene.gateway(SECRET).await);
    let balancer = &scene.balancer;
    eventually(PATIENCE, "an authority looks", async || {
        balancer.seen.load(Ordering::SeqCst) > 0
    })
    .await;
    let orders = |one: &Gateway| {
        one.said
            .text()
            .contains("a certificate for shop.example.com is ordered from")
    };
    let is_first = orders(&first);
    assert!(is_first != orders(&second), "one of them orders");
    let (killed, other) = if is_first {
        (&first, &second)
    } else {
        (&second, &first)
    };
    killed.signal("KILL");
    balancer.lead_to(&[other]).await;
    eventually(PATIENCE * 6, "the other takes over", async || {
        shown(other).await.is_some()
    })
    .await;
    let said = other.said.text();
    assert!(said.contains("this gateway takes over"), "{said}");
    assert_eq!(scene.pebble.logged("Issued certificate"), 1);
}
