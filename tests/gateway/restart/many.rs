//! Restarts one after the other under load, with idle WebSockets open: a few restarts, and in the long form 50 of each
//! kind.

use super::clients::{Clients, Tally, Way};
use super::{WebSocket, gone, upstream};
use crate::support::tls::Authority;
use crate::support::{End, File, Gateway, PATIENCE, Upstream, long, process};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// The time between two restarts.
const BETWEEN: Duration = Duration::from_millis(250);

fn restarts() -> usize {
    if long() { 50 } else { 4 }
}

fn assert_unnoticed(what: &str, tally: &Tally, start: Instant, stale: usize) {
    let restarts = restarts();
    println!(
        "{restarts} restarts {what} in {:?}: {} answers, {} refused, {} lost, {} stale, longest {:?}",
        start.elapsed(),
        tally.answered,
        tally.refused,
        tally.lost,
        tally.stale,
        tally.longest
    );
    assert_eq!((tally.refused, tally.lost), (0, 0), "{:?}", tally.why);
    assert!(tally.answered > 10 * restarts, "{tally:?}");
    // Clients check their connection before they send. The remaining race of HTTP/1.1 can happen once at most for each
    // connection and restart.
    assert!(tally.stale <= restarts * stale, "{tally:?}");
}

/// A drain of half a second, which idle WebSockets use up.
const DRAIN: &str = "drain = \"500ms\"";

#[tokio::test]
async fn successors_take_over_under_load() {
    let upstream = upstream().await;
    let ca = Authority::new();
    let listen =
        "listen = [\"127.0.0.1:0\", { address = \"127.0.0.2:0\", tls = true }, \"unix:http.sock\"]";
    let file = File::to(&upstream, &[])
        .server(&format!("{listen}\n{DRAIN}"))
        .with(&ca.identity("api", &["api.test"]));
    let mut gateway = Gateway::start(&file).await;
    let way = Way::Tcp(gateway.address());
    let clients = Clients::new()
        .keep(4, &way, "/")
        .keep(2, &way, "/slow")
        .connect(4, &way)
        .keep(
            1,
            &Way::Tls(gateway.tls().await, Box::new(ca.trusting())),
            "/",
        )
        .connect(1, &Way::Tls(gateway.tls().await, Box::new(ca.trusting())))
        .keep(1, &Way::Unix(gateway.folder().join("http.sock")), "/")
        .connect(1, &Way::Unix(gateway.folder().join("http.sock")))
        .http2(1, gateway.address());
    let start = Instant::now();
    for _ in 0..restarts() {
        let mut tunnels = vec![
            WebSocket::open(&gateway).await,
            WebSocket::open(&gateway).await,
        ];
        let before = gateway.hand_over().await;
        for tunnel in &mut tunnels {
            tunnel.lives().await;
        }
        sleep(BETWEEN).await;
        gone(before).await;
        for tunnel in &mut tunnels {
            assert_ne!(tunnel.0.ended(Duration::ZERO).await, End::Open);
        }
    }
    let tally = clients.stop().await;
    // Kept connections stay open for a moment, and their clients learn that an answer is the last one.
    assert_unnoticed("by SIGUSR2", &tally, start, 1);
    assert!(tally.longest < Duration::from_secs(5), "{tally:?}");
    gateway.stop().await;
}

/// Sockets that outlive gateways, as systemd's sockets do.
struct HeldSockets {
    folder: tempfile::TempDir,
    web: TcpListener,
    local: UnixListener,
    admin: TcpListener,
}

impl HeldSockets {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let tcp = || TcpListener::bind("127.0.0.1:0").unwrap();
        let local = UnixListener::bind(folder.path().join("local.sock")).unwrap();
        Self {
            folder,
            web: tcp(),
            local,
            admin: tcp(),
        }
    }

    async fn gateway(&self, upstream: &Upstream) -> Gateway {
        let file = File::to(upstream, &[])
            .server(&format!(
                "listen = [\"systemd:web\", \"systemd:local\"]\n{DRAIN}"
            ))
            .admin("listen = \"systemd:admin\"");
        let sockets: Vec<(&str, OwnedFd)> = vec![
            ("web", self.web.try_clone().unwrap().into()),
            ("local", self.local.try_clone().unwrap().into()),
            ("admin", self.admin.try_clone().unwrap().into()),
        ];
        Gateway::with_sockets(tempfile::tempdir().unwrap(), &file, sockets).await
    }
}

#[tokio::test]
async fn gateways_follow_each_other_on_sockets_that_stay_open() {
    let upstream = upstream().await;
    let held = HeldSockets::new();
    let mut gateway = held.gateway(&upstream).await;
    let way = Way::Tcp(gateway.address());
    let unix = Way::Unix(held.folder.path().join("local.sock"));
    let clients = Clients::new()
        .keep(4, &way, "/")
        .keep(2, &way, "/slow")
        .connect(4, &way)
        .keep(1, &unix, "/")
        .connect(1, &unix)
        .http2(1, gateway.address());
    let start = Instant::now();
    for _ in 0..restarts() {
        let _tunnels = [
            WebSocket::open(&gateway).await,
            WebSocket::open(&gateway).await,
        ];
        sleep(BETWEEN).await;
        process::signal(gateway.pid(), "TERM");
        assert_eq!(gateway.exit(PATIENCE).await, Some(0));
        gateway = held.gateway(&upstream).await;
    }
    let tally = clients.stop().await;
    // At a stop, kept connections stay open for a moment, so that hardly any client meets the race.
    assert_unnoticed("on sockets of systemd", &tally, start, 1);
    gateway.stop().await;
}
