//! Twelve thousand connections that only occupy the gateway, and one client that must be served. This test belongs to
//! the long form and needs a machine that does nothing else (`TOLLGATE_LONG=1 tests/run saturation`).

use crate::support::{File, Gateway, Upstream, Wire, get, long};
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

/// The number of occupying connections.
const MANY: usize = 12_000;
/// The number of requests of the client that needs to be served.
const WANTED: usize = 200;

/// The behaviour of the occupying connections.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Siege {
    /// Sends one request, and stays open.
    Idle,
    /// Sends half a head.
    HalfHead,
    /// Sends a byte of a body.
    SlowBody,
}

/// The source address of connection `nth`. The connections share `addresses` addresses.
fn address(nth: usize, addresses: usize) -> IpAddr {
    let [.., high, low] = u32::try_from(nth % addresses).unwrap().to_be_bytes();
    IpAddr::V4(Ipv4Addr::new(127, 2, high, low.max(1)))
}

async fn besieger(gateway: &Gateway, siege: Siege, source: IpAddr) -> Option<TcpStream> {
    let socket = TcpSocket::new_v4().ok()?;
    // Without this call each connection would occupy its port at all addresses.
    socket.bind((source, 0).into()).ok()?;
    let connecting = timeout(Duration::from_secs(5), socket.connect(gateway.address()));
    let mut stream = connecting.await.ok()?.ok()?;
    let said: &[u8] = match siege {
        Siege::Idle => b"GET /own HTTP/1.1\r\nHost: a.test\r\n\r\n",
        Siege::HalfHead => b"GET / HTTP/1.1\r\nHost: a",
        Siege::SlowBody => b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 1000\r\n\r\nx",
    };
    stream.write_all(said).await.ok()?;
    if siege == Siege::Idle {
        let mut answer = [0; 1024];
        let read = timeout(Duration::from_secs(5), stream.read(&mut answer)).await;
        read.ok()?.ok()?;
    }
    Some(stream)
}

async fn besieged(siege: Siege, addresses: usize) {
    if !long() {
        return;
    }
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &[])
        .with("[routes.own]\npath = \"/own\"\nrespond = { status = 200, body = \"here\" }");
    let gateway = Gateway::start_after("ulimit -n 20000", &file).await;
    let mut held = Vec::new();
    for nth in 0..MANY {
        held.extend(besieger(&gateway, siege, address(nth, addresses)).await);
    }
    let (mut times, mut served) = (Vec::new(), 0);
    for _ in 0..WANTED {
        let began = Instant::now();
        let mut wire = Wire::from(Ipv4Addr::new(127, 9, 9, 9).into(), gateway.address()).await;
        if wire.try_send(get("/")).await.is_ok()
            && let Ok(answer) = wire.try_answer().await
        {
            served += usize::from(answer.status == 200);
        }
        times.push(began.elapsed());
    }
    times.sort();
    let metrics = gateway.metrics().await;
    let told = metrics.lines().filter(|line| {
        line.starts_with("tollgate_connections") || line.starts_with("process_open_fds")
    });
    println!(
        "{siege:?} from {addresses}: {served} of {WANTED} served, p50 {:?}, p99 {:?}\n  {}",
        times[WANTED / 2],
        times[WANTED * 99 / 100],
        told.collect::<Vec<_>>().join("\n  ")
    );
    assert_eq!(served, WANTED);
}

#[tokio::test]
async fn by_idle_connections_of_one_address() {
    besieged(Siege::Idle, 1).await;
}

#[tokio::test]
async fn by_idle_connections_of_a_thousand_addresses() {
    besieged(Siege::Idle, 1000).await;
}

#[tokio::test]
async fn by_half_heads_of_one_address() {
    besieged(Siege::HalfHead, 1).await;
}

#[tokio::test]
async fn by_half_heads_of_a_thousand_addresses() {
    besieged(Siege::HalfHead, 1000).await;
}

#[tokio::test]
async fn by_slow_bodies_of_one_address() {
    besieged(Siege::SlowBody, 1).await;
}
