//! Clients that send requests without end while gateways start and stop, and the counts of the outcomes.

use crate::support::tls::TlsClient;
use crate::support::{End, H2, Wire, get, h2};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::net::UnixStream;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// The time between the requests of one client.
const PAUSE: Duration = Duration::from_millis(5);

/// The address and the protocol of a client's connections.
#[derive(Clone)]
pub(super) enum Way {
    Tcp(SocketAddr),
    Unix(PathBuf),
    Tls(SocketAddr, Box<TlsClient>),
}

impl Way {
    async fn connect(&self) -> io::Result<Wire> {
        match self {
            Self::Tcp(address) => Wire::try_to(*address).await,
            Self::Unix(path) => Ok(Wire::over_unix(UnixStream::connect(path).await?)),
            Self::Tls(address, client) => {
                Ok(Wire::over_tls(client.connect(*address, "api.test").await?))
            }
        }
    }
}

/// The outcomes of requests.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) answered: usize,
    /// The number of connections that were not accepted.
    pub(super) refused: usize,
    /// The number of requests without a whole answer although they went out on a new connection or the answer had
    /// begun, and of answers with another status than 200.
    pub(super) lost: usize,
    /// The number of requests on a kept connection that ended before any answer, as HTTP/1.1 permits. Each of them was
    /// sent again once.
    pub(super) stale: usize,
    /// The longest time for connecting and one request.
    pub(super) longest: Duration,
    /// Descriptions of the lost and refused requests.
    pub(super) why: Vec<String>,
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.answered += other.answered;
        self.refused += other.refused;
        self.lost += other.lost;
        self.stale += other.stale;
        self.longest = self.longest.max(other.longest);
        self.why.extend(other.why);
    }

    fn lose(&mut self, why: String) {
        self.lost += 1;
        self.why.push(why);
    }
}

/// A number of running clients.
pub(super) struct Clients {
    over: Arc<AtomicBool>,
    at_work: JoinSet<Tally>,
}

impl Clients {
    pub(super) fn new() -> Self {
        Self {
            over: Arc::default(),
            at_work: JoinSet::new(),
        }
    }

    /// Adds clients that keep their connection as long as they may.
    pub(super) fn keep(mut self, count: usize, way: &Way, target: &'static str) -> Self {
        for _ in 0..count {
            let (way, over) = (way.clone(), Arc::clone(&self.over));
            self.at_work.spawn(keep_asking(way, target, true, over));
        }
        self
    }

    /// Adds clients that open a connection for each request.
    pub(super) fn connect(mut self, count: usize, way: &Way) -> Self {
        for _ in 0..count {
            let (way, over) = (way.clone(), Arc::clone(&self.over));
            self.at_work.spawn(keep_asking(way, "/", false, over));
        }
        self
    }

    /// Adds HTTP/2 clients that keep their connection as long as they may.
    pub(super) fn http2(mut self, count: usize, address: SocketAddr) -> Self {
        for _ in 0..count {
            let over = Arc::clone(&self.over);
            self.at_work.spawn(keep_asking_by_http2(address, over));
        }
        self
    }

    pub(super) async fn stop(self) -> Tally {
        self.over.store(true, Ordering::Relaxed);
        let mut all = Tally::default();
        for tally in self.at_work.join_all().await {
            all.add(tally);
        }
        all
    }
}

async fn keep_asking(way: Way, target: &'static str, keeps: bool, over: Arc<AtomicBool>) -> Tally {
    let mut tally = Tally::default();
    let mut kept: Option<Wire> = None;
    while !over.load(Ordering::Relaxed) {
        let start = Instant::now();
        // Like clients with pools, the client checks before it sends whether its connection has been closed.
        let mut wire = kept.take();
        if let Some(kept) = &mut wire
            && kept.ended(Duration::ZERO).await != End::Open
        {
            wire = None;
        }
        if let Some(wire) = wire {
            match ask(wire, target, &mut tally).await {
                Ok(wire) => kept = wire.filter(|_| keeps),
                Err(_) => tally.stale += 1,
            }
        }
        if kept.is_none() {
            match way.connect().await {
                Ok(wire) => match ask(wire, target, &mut tally).await {
                    Ok(wire) => kept = wire.filter(|_| keeps),
                    Err(end) => tally.lose(format!("{target} on a fresh connection: {end:?}")),
                },
                Err(error) => {
                    tally.refused += 1;
                    tally.why.push(error.to_string());
                }
            }
        }
        tally.longest = tally.longest.max(start.elapsed());
        sleep(PAUSE).await;
    }
    tally
}

/// Sends one request. Returns the connection if it can be used again, or its end if that came before any answer.
async fn ask(mut wire: Wire, target: &str, tally: &mut Tally) -> Result<Option<Wire>, End> {
    if wire.try_send(get(target)).await.is_err() {
        return Err(End::Reset);
    }
    let head = wire.try_head().await?;
    let is_last = head.fields.get("connection") == Some("close");
    match wire.rest_of(head).await {
        Ok(answer) if answer.status == 200 => tally.answered += 1,
        Ok(answer) => tally.lose(format!("{target}: {} {}", answer.status, answer.text())),
        Err(end) => {
            tally.lose(format!("{target}: {end:?} within the answer"));
            return Ok(None);
        }
    }
    Ok(Some(wire).filter(|_| !is_last))
}

async fn keep_asking_by_http2(address: SocketAddr, over: Arc<AtomicBool>) -> Tally {
    let mut tally = Tally::default();
    let mut client = H2::to(address).await;
    while !over.load(Ordering::Relaxed) {
        if client.closed() {
            client = H2::to(address).await;
        }
        let start = Instant::now();
        match client.try_ask(h2::get("/")).await {
            Ok(answer) if answer.status == 200 => tally.answered += 1,
            Ok(answer) => tally.lose(format!("HTTP/2: {}", answer.status)),
            // The request was never sent, and goes out in the next round.
            Err(error) if error.is_canceled() => tally.stale += 1,
            Err(error) => tally.lose(format!("HTTP/2: {error:?}")),
        }
        tally.longest = tally.longest.max(start.elapsed());
        sleep(PAUSE).await;
    }
    tally
}
