//! A process has the certificates of the store before it accepts its first connection: by hand-over, or read anew.

use super::{HOST, SECRET, Scene, all_show, shown};
use crate::support::tls::TlsClient;
use crate::support::{Gateway, PATIENCE, Redis, eventually, long};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::task::JoinSet;

/// Clients that open connections without a pause.
struct Clients {
    stop: Arc<AtomicBool>,
    shaken: Arc<AtomicUsize>,
    tasks: JoinSet<Vec<String>>,
}

impl Clients {
    fn of(address: SocketAddr) -> Self {
        let (stop, shaken) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let mut tasks = JoinSet::new();
        for _ in 0..4 {
            let (stop, shaken) = (Arc::clone(&stop), Arc::clone(&shaken));
            tasks.spawn(async move {
                let mut refused = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    match TlsClient::looking().connect(address, HOST).await {
                        Ok(_) => drop(shaken.fetch_add(1, Ordering::Relaxed)),
                        Err(error) => refused.push(error.to_string()),
                    }
                }
                refused
            });
        }
        Self {
            stop,
            shaken,
            tasks,
        }
    }

    /// Waits until this number of further handshakes has succeeded.
    async fn go_on(&self, more: usize) {
        let before = self.shaken.load(Ordering::Relaxed);
        eventually(PATIENCE, "handshakes go on", async || {
            self.shaken.load(Ordering::Relaxed) >= before + more
        })
        .await;
    }

    /// The errors of all refused handshakes.
    async fn stop(self) -> Vec<String> {
        self.stop.store(true, Ordering::Relaxed);
        self.tasks.join_all().await.concat()
    }
}

async fn hand_over(gateway: &mut Gateway, clients: &Clients, times: usize) {
    for _ in 0..times {
        gateway.hand_over().await;
        clients.go_on(20).await;
    }
}

#[tokio::test]
async fn no_handshake_is_refused_by_successors_whether_the_store_is_there_or_not() {
    let (scene, mut redis) = Scene::new(None).await;
    let mut gateway = scene.gateway(SECRET).await;
    scene.balancer.lead_to(&[&gateway]).await;
    let certificate = all_show(&[&gateway], None).await;
    let (there, away) = if long() { (15, 5) } else { (3, 2) };
    let clients = Clients::of(gateway.tls().await);
    hand_over(&mut gateway, &clients, there).await;
    redis.kill().await;
    hand_over(&mut gateway, &clients, away).await;
    let refused = clients.stop().await;
    assert!(refused.is_empty(), "{} refused: {refused:?}", refused.len());
    assert_eq!(shown(&gateway).await, Some(certificate));
    // The store comes back empty. The successor puts its certificates there again, and does not order them.
    let start = gateway.said.lines().len();
    redis.come().await;
    let again = |line: &str| line.contains("was missing in the store, and was put there again");
    gateway.said.line(start, "it is put there", again).await;
    assert_eq!(scene.pebble.logged("Added order"), 1);
    no_key_is_in_its_environment(&gateway);
}

/// The bequest is neither in the environment nor in the arguments of the successor.
fn no_key_is_in_its_environment(gateway: &Gateway) {
    for what in ["environ", "cmdline"] {
        let path = format!("/proc/{}/{what}", gateway.pid());
        let read = std::fs::read(path).unwrap();
        let text = String::from_utf8_lossy(&read);
        assert!(!read.is_empty() && !text.contains("BEGIN"), "{text}");
    }
}

#[tokio::test]
async fn a_cold_start_shows_what_the_store_keeps_with_its_first_handshake() {
    let (scene, _redis) = Scene::new(None).await;
    let first = scene.gateway(SECRET).await;
    scene.balancer.lead_to(&[&first]).await;
    let certificate = all_show(&[&first], None).await;
    let second = scene.gateway(SECRET).await;
    assert_eq!(shown(&second).await, Some(certificate));
    let lines = second.said.lines();
    let position = |text: &str| lines.iter().position(|line| line.contains(text));
    let taken = position("was taken from the store, good for").unwrap();
    assert!(
        taken < position("listening  https://").unwrap(),
        "{lines:?}"
    );
    assert_eq!(position("handshakes are refused until it comes"), None);
}

#[tokio::test]
async fn a_cold_start_without_the_store_says_what_is_missing_and_why() {
    let redis = Redis::absent();
    let store = format!("url = \"{}\"", redis.url());
    let scene = Scene::with_store(None, store).await;
    let gateway = scene.gateway(SECRET).await;
    let ready = gateway.admin_get("/readyz").await.expect(200).text();
    let line = "tls: no certificate yet for shop (the store that keeps certificates does not answer), handshakes there are refused\n";
    assert!(ready.contains(line), "{ready}");
    assert_eq!(shown(&gateway).await, None);
}
