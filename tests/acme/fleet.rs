//! The certificates of gateways with a common store: several tasks that order, one Redis, and an authority whose looks
//! may reach any of the tasks.

use crate::support::{PATIENCE, Pebble, Redis, eventually};
use http::Uri;
use rustls::server::Acceptor;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tollgate::acme::{
    Authority, Bundle, ChallengeKind, IssuedCertificates, OrderedIdentity, Pace, Renewals,
    SealingKey, SharedStorage, Storage, WallClock,
};
use tollgate::client::Client;
use tollgate::clock::{self, Timestamp};
use tollgate::store::redis::SharedKeys;
use tollgate::store::{RedisEndpoint, RedisTarget};
use tollgate::telemetry::metrics::{Metrics, TextFormat};
use tollgate::tls::{AuthorityChallenges, CHALLENGE_PATH, ClientTls, PemFiles};

pub(super) const SECRET: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

/// Short intervals, so that a test can wait for each look. The lock lasts longer than any pause of a busy machine.
pub(super) const PACE: Pace = Pace {
    read: Duration::from_millis(300),
    lock: Duration::from_secs(60),
    renew: Duration::from_secs(1),
    watch: Duration::from_millis(100),
    notice: Duration::from_millis(400),
};

/// Seconds by which the gateways' clocks are ahead in the one test that sets them.
pub(super) static AHEAD: AtomicI64 = AtomicI64::new(0);

/// A clock that [`AHEAD`] sets.
pub(super) fn ahead() -> Timestamp {
    let ahead = AHEAD.load(Ordering::SeqCst).unsigned_abs() * 1_000_000;
    Timestamp::from_micros(clock::wall().micros() + ahead)
}

/// The part of a gateway that orders.
pub(super) struct Member {
    pub(super) authority: Authority,
    wanted: watch::Sender<Arc<[OrderedIdentity]>>,
    pub(super) issued: IssuedCertificates,
    pub(super) challenges: AuthorityChallenges,
    metrics: Arc<Metrics>,
    pub(super) clock: WallClock,
    shared: SharedStorage,
    task: Option<JoinHandle<()>>,
}

impl Member {
    pub(super) fn of(pebble: &Pebble, redis: &Redis) -> Self {
        Self::at(
            pebble,
            &RedisTarget::new(RedisEndpoint::tcp("127.0.0.1", redis.port())),
        )
    }

    /// A member that orders nothing yet.
    pub(super) fn at(pebble: &Pebble, target: &RedisTarget) -> Self {
        let ca = fs::read(pebble.ca()).unwrap();
        let files = PemFiles {
            ca: Some(&ca),
            ..PemFiles::default()
        };
        Self {
            authority: Authority {
                name: "pebble".into(),
                directory: pebble.directory(),
                tls: ClientTls::new(files).unwrap(),
                contact: None,
                storage: Storage::Store(SealingKey::read(SECRET).unwrap()),
                challenges: vec![ChallengeKind::TlsAlpn01, ChallengeKind::Http01],
                profile: None,
                external: None,
            },
            wanted: watch::Sender::new(Arc::new([])),
            issued: IssuedCertificates::default(),
            challenges: AuthorityChallenges::default(),
            metrics: Metrics::new(),
            clock: clock::wall,
            shared: SharedStorage::new(SharedKeys::new(target), "edge").at_pace(PACE),
            task: None,
        }
    }

    /// The same member with a lock that ends while a test waits.
    pub(super) fn with_brief_lock(self) -> Self {
        let lock = Duration::from_secs(4);
        let shared = self.shared.at_pace(Pace { lock, ..PACE });
        Self { shared, ..self }
    }

    /// Starts the task.
    pub(super) fn open(&mut self) {
        // The log of the gateway appears only if the test fails.
        let _ = tracing_subscriber::fmt().with_test_writer().try_init();
        let renewals = Renewals::new(
            self.wanted.subscribe(),
            self.issued.clone(),
            self.challenges.clone(),
            Arc::clone(&self.metrics),
            self.clock,
        );
        let renewals = renewals.sharing(self.shared.clone());
        self.task = Some(tokio::spawn(renewals.run()));
    }

    /// Ends the task as a killed process would.
    pub(super) async fn kill(&mut self) {
        let task = self.task.take().unwrap();
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
    }

    pub(super) fn want(&self, name: &str, hosts: &[&str]) {
        let identity = OrderedIdentity {
            name: name.into(),
            hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
            authority: Arc::new(self.authority.clone()),
        };
        self.wanted.send_replace(Arc::new([identity]));
    }

    pub(super) async fn certificate(&self) -> Bundle {
        eventually(PATIENCE, "a certificate", async || {
            self.issued.of("shop").is_some()
        })
        .await;
        self.issued.of("shop").unwrap()
    }

    pub(super) fn metric(&self, line: &str) -> u64 {
        let text = self.metrics.render(TextFormat::Prometheus);
        let found = text.lines().find_map(|one| one.strip_prefix(line));
        found.map_or(0, |count| count.trim().parse().unwrap())
    }

    pub(super) fn obtained(&self) -> u64 {
        self.metric("tollgate_acme_orders_total{identity=\"shop\",result=\"obtained\"} ")
    }

    pub(super) fn failed(&self) -> u64 {
        self.metric("tollgate_acme_orders_total{identity=\"shop\",result=\"failed\"} ")
    }

    pub(super) fn taken(&self) -> u64 {
        self.metric("tollgate_acme_taken_total{identity=\"shop\"} ")
    }
}

/// The two ports at which an authority looks, in front of several gateways. A connection goes to a gateway that did not
/// make the order, if there is one.
#[derive(Clone, Default)]
pub(super) struct Front {
    boards: Arc<Mutex<Vec<AuthorityChallenges>>>,
    /// Does each connection wait until the test lets it go on?
    is_shut: Arc<AtomicBool>,
    looks: Arc<AtomicUsize>,
}

impl Front {
    pub(super) fn before(pebble: &Pebble, members: &[&Member]) -> Self {
        let front = Self::default();
        front.lead_to(members);
        let (texts, handshakes) = (front.clone(), front.clone());
        let handle = Handle::current();
        front.serve(pebble.http, move |stream| texts.text(stream, &handle));
        let handle = Handle::current();
        front.serve(pebble.tls, move |stream| {
            handshakes.handshake(stream, &handle)
        });
        front
    }

    pub(super) fn lead_to(&self, members: &[&Member]) {
        let boards = members.iter().map(|one| one.challenges.clone());
        *self.boards.lock().unwrap() = boards.collect();
    }

    /// Makes the authority wait.
    pub(super) fn shut(&self) {
        self.is_shut.store(true, Ordering::SeqCst);
    }

    pub(super) fn open(&self) {
        self.is_shut.store(false, Ordering::SeqCst);
    }

    /// Resolves when the authority has looked.
    pub(super) async fn looked(&self) {
        eventually(PATIENCE, "an authority looks", async || {
            self.looks.load(Ordering::SeqCst) > 0
        })
        .await;
    }

    fn serve(&self, port: u16, answer: impl Fn(TcpStream) -> Option<()> + Send + Sync + 'static) {
        let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
        let (front, answer) = (self.clone(), Arc::new(answer));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                front.looks.fetch_add(1, Ordering::SeqCst);
                let (front, answer) = (front.clone(), Arc::clone(&answer));
                thread::spawn(move || {
                    while front.is_shut.load(Ordering::SeqCst) {
                        thread::sleep(Duration::from_millis(20));
                    }
                    answer(stream)
                });
            }
        });
    }

    fn choose(&self, has: impl Fn(&AuthorityChallenges) -> bool) -> Option<AuthorityChallenges> {
        let boards = self.boards.lock().unwrap();
        let other = boards.iter().find(|board| !has(board));
        other.or(boards.first()).cloned()
    }

    fn text(&self, mut stream: TcpStream, handle: &Handle) -> Option<()> {
        let mut head = [0; 4096];
        let length = stream.read(&mut head).ok()?;
        let head = str::from_utf8(&head[..length]).ok()?;
        let path: Uri = head.split(' ').nth(1)?.parse().ok()?;
        let host = head.lines().find_map(|line| line.strip_prefix("Host: "))?;
        let host = host.split(':').next()?;
        let token = path.path().strip_prefix(CHALLENGE_PATH)?;
        let board = self.choose(|board| board.text(host, token).is_some())?;
        let asker = Client::of(None);
        let text = handle.block_on(board.text_anywhere(host, token, asker))?;
        let length = text.len();
        write!(
            stream,
            "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{text}"
        )
        .ok()
    }

    fn handshake(&self, mut stream: TcpStream, handle: &Handle) -> Option<()> {
        let mut acceptor = Acceptor::default();
        let accepted = loop {
            acceptor.read_tls(&mut stream).ok()?;
            if let Some(accepted) = acceptor.accept().ok()? {
                break accepted;
            }
        };
        let host = accepted.client_hello().server_name()?.to_owned();
        let board = self.choose(|board| board.handshake(&host).is_some())?;
        let asker = Client::of(None);
        let config = handle.block_on(board.handshake_anywhere(&host, asker))?;
        let mut connection = accepted.into_connection(config).ok()?;
        while connection.is_handshaking() {
            connection.complete_io(&mut stream).ok()?;
        }
        Some(())
    }
}

/// All keys of a Redis with the bytes of their values.
pub(super) async fn contents(redis: &Redis) -> Vec<(String, Vec<u8>)> {
    let keys: Vec<String> = redis.command(&["KEYS", "*"]).await;
    let mut all = Vec::new();
    for key in keys {
        let value: Option<Vec<u8>> = redis.command(&["GET", &key]).await;
        all.push((key, value.unwrap_or_default()));
    }
    all.sort();
    all
}
