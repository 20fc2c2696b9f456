//! Orders of several gateways behind a balancer, while strangers ask for challenges that do not exist: each order
//! succeeds at the first attempt, whichever gateway the authority reaches.

use super::{Balancer, SECRET};
use crate::support::tls::TlsClient;
use crate::support::{
    File, Gateway, Line, PATIENCE, Pebble, PebbleWish, Redis, Relay, Upstream, eventually, long,
    request,
};
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{MissedTickBehavior, interval};

/// The pause between two questions of strangers at one port. Both kinds together are a hundred questions a second.
const PAUSE: Duration = Duration::from_millis(20);

fn hosts() -> Vec<String> {
    let count = if long() { 60 } else { 8 };
    (0..count)
        .map(|number| format!("n{number}.example.net"))
        .collect()
}

/// The lines of `[acme.test]` that say where certificates are kept, and those of `[store]`.
struct Place {
    storage: String,
    store: String,
}

async fn gateway(pebble: &Pebble, upstream: &Upstream, place: &Place) -> Gateway {
    let folder = tempfile::tempdir().unwrap();
    let listen = "listen = [{ address = \"127.0.0.1:0\", redirect = \"https\" }, { address = \"127.0.0.2:0\", tls = true }]";
    let (directory, ca) = (pebble.directory(), pebble.ca());
    let mut file = File::default()
        .server(listen)
        .upstream("main", &[upstream])
        .route("all", "/{*rest}", "main", &[])
        .with(&format!(
            "[acme.test]\nagree = true\ndirectory = \"{directory}\"\nca = {ca:?}\n{}",
            place.storage
        ));
    for (number, host) in hosts().iter().enumerate() {
        let table = format!("[tls.n{number}]\nacme = \"test\"\nhosts = \"{host}\"");
        file = file.with(&table);
    }
    if !place.store.is_empty() {
        file = file.store(&place.store);
    }
    fs::write(folder.path().join("acme.secret"), SECRET).unwrap();
    let path = folder.path().join("gateway.toml");
    fs::write(&path, file.text()).unwrap();
    Gateway::run(folder, &path).await
}

/// The source addresses of strangers.
#[derive(Debug, Clone, Copy)]
enum Origin {
    /// The address of the balancer, which the authority's looks have too.
    Authority,
    /// Two hundred addresses of their own.
    Many,
}

impl Origin {
    async fn connect(self, to: SocketAddr, number: usize) -> io::Result<TcpStream> {
        let last = u8::try_from(number % 200 + 1).unwrap();
        let socket = TcpSocket::new_v4()?;
        if let Self::Many = self {
            socket.bind((Ipv4Addr::new(127, 0, 1, last), 0).into())?;
        }
        socket.connect(to).await
    }
}

/// Asks for tokens that do not exist and for handshakes, until it is dropped.
struct Strangers(Vec<JoinHandle<()>>);

impl Strangers {
    async fn before(gateways: &[&Gateway], origin: Origin) -> Self {
        let mut tasks = Vec::new();
        let plain: Vec<SocketAddr> = gateways.iter().map(|one| one.address()).collect();
        let mut tls = Vec::new();
        for gateway in gateways {
            tls.push(gateway.tls().await);
        }
        tasks.push(tokio::spawn(ask(
            plain,
            move |to, host, number| async move {
                let path = format!("/.well-known/acme-challenge/{number:043}");
                let asked = request("GET", &path, &[("Host", &host)]);
                if let Ok(stream) = origin.connect(to, number).await {
                    let mut wire = crate::support::Wire::over(stream);
                    let _ = wire.try_send(asked).await;
                    let _ = wire.try_answer().await;
                }
            },
        )));
        tasks.push(tokio::spawn(ask(tls, move |to, host, number| async move {
            let client = TlsClient::looking().speaking(&["acme-tls/1"]);
            if let Ok(stream) = origin.connect(to, number).await {
                let _ = client.over(stream, &host).await;
            }
        })));
        Self(tasks)
    }
}

impl Drop for Strangers {
    fn drop(&mut self) {
        for task in &self.0 {
            task.abort();
        }
    }
}

async fn ask<F: Future<Output = ()> + Send + 'static>(
    gateways: Vec<SocketAddr>,
    one: impl Fn(SocketAddr, String, usize) -> F,
) {
    let (hosts, mut asking) = (hosts(), JoinSet::new());
    let mut ticks = interval(PAUSE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for number in 0.. {
        ticks.tick().await;
        let host = hosts[number % hosts.len()].clone();
        asking.spawn(one(gateways[number % gateways.len()], host, number));
        while asking.try_join_next().is_some() {}
    }
}

/// The number of orders that ended with this result, over all gateways and identities.
async fn ended(gateways: &[&Gateway], result: &str) -> usize {
    let label = format!("result=\"{result}\"");
    let mut sum = 0;
    for gateway in gateways {
        let text = gateway.metrics().await;
        let lines = text
            .lines()
            .filter(|line| line.starts_with("tollgate_acme_orders_total") && line.contains(&label));
        sum += lines
            .filter_map(|line| line.rsplit_once(' ')?.1.parse::<usize>().ok())
            .sum::<usize>();
    }
    sum
}

/// Each gateway logs a challenge that it finds at another gateway once, however often clients ask for it.
fn each_challenge_is_told_once(gateways: &[&Gateway]) {
    for gateway in gateways {
        let lines = gateway.said.lines();
        for host in hosts() {
            let told = format!(
                "{host}: an authority or a stranger asked this gateway for another gateway's challenge, and got it"
            );
            let count = lines.iter().filter(|line| line.contains(&told)).count();
            assert!(count <= 1, "{told}: {count} times");
        }
    }
}

async fn every_order_succeeds(kind: &str, storage: &str, store: String, origin: Origin) {
    let pebble = Pebble::start(PebbleWish {
        asks_always: true,
        ..PebbleWish::default()
    });
    let (upstream, balancer) = (Upstream::echo().await, Balancer::before(&pebble).await);
    let place = Place {
        storage: format!("{storage}\nchallenge = \"{kind}\""),
        store,
    };
    let mut all = Vec::new();
    for _ in 0..4 {
        all.push(gateway(&pebble, &upstream, &place).await);
    }
    let all: Vec<&Gateway> = all.iter().collect();
    let strangers = Strangers::before(&all, origin).await;
    balancer.lead_to(&all).await;
    let count = hosts().len();
    eventually(PATIENCE * 8, "every certificate comes", async || {
        ended(&all, "obtained").await >= count
    })
    .await;
    drop(strangers);
    each_challenge_is_told_once(&all);
    for result in ["refused", "not_ours", "unreachable", "failed"] {
        assert_eq!(ended(&all, result).await, 0, "{kind}: {result}");
    }
    assert_eq!(pebble.logged("Added order"), count, "{}", pebble.log());
    // Every gateway serves every certificate.
    for gateway in &all {
        let address = gateway.tls().await;
        for host in hosts() {
            eventually(PATIENCE, "all have it", async || {
                TlsClient::looking().connect(address, &host).await.is_ok()
            })
            .await;
        }
    }
}

#[tokio::test]
async fn orders_with_a_store_succeed_while_strangers_ask_for_texts() {
    let redis = Redis::start().await;
    let store = format!("url = \"{}\"", redis.url());
    let storage = "storage = \"store\"\nsecret = { file = \"acme.secret\" }";
    every_order_succeeds("http-01", storage, store, Origin::Authority).await;
}

#[tokio::test]
async fn orders_with_a_store_succeed_while_strangers_shake_hands() {
    let redis = Redis::start().await;
    let store = format!("url = \"{}\"", redis.url());
    let storage = "storage = \"store\"\nsecret = { file = \"acme.secret\" }";
    every_order_succeeds("tls-alpn-01", storage, store, Origin::Many).await;
}

/// A test of the long form: with many identities, strangers cause so many reads of the store. These reads must not
/// delay the reading of open challenges.
#[tokio::test]
async fn orders_with_a_store_that_is_far_away_succeed_while_strangers_ask() {
    if !long() {
        return;
    }
    let redis = Redis::start().await;
    let far = Relay::to(redis.port()).await;
    far.turn(Line::Slow(Duration::from_millis(30)));
    let store = format!("url = \"{}\"", far.url());
    let storage = "storage = \"store\"\nsecret = { file = \"acme.secret\" }";
    every_order_succeeds("http-01", storage, store, Origin::Many).await;
}

#[tokio::test]
async fn orders_with_a_shared_folder_succeed_while_strangers_ask() {
    for (kind, origin) in [
        ("http-01", Origin::Many),
        ("tls-alpn-01", Origin::Authority),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let storage = format!("storage = {:?}", folder.path().join("acme"));
        every_order_succeeds(kind, &storage, String::new(), origin).await;
    }
}
