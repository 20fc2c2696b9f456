//! Two questions about a healthy Redis far away: is it ever taken for away, and which load does it carry? `cargo bench
//! --bench far`. The measurement starts a server of its own, and in front of it a wire of each length, which delays
//! every byte and holds none up.
//!
//! `SECONDS` is the time of each cell (60). `TRIPS` are round trips in milliseconds, `FACTORS` the timeouts as
//! multiples of a trip, and `CLIENTS` the numbers of clients that ask all the time over one worker's way to the store;
//! these lists have commas. At the end of each row, 1,000 clients ask at once.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a measurement says by stopping where the world was not as it must be"
)]

mod server;

use server::{Server, environment};
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tollgate::key::{KeyCase, KeyTemplate, MissingKey};
use tollgate::limit::fixed_window::FixedWindow;
use tollgate::limit::rate::Rate;
use tollgate::limit::{Limit, Policy, Rule};
use tollgate::store::redis::RedisStore;
use tollgate::store::{Check, Fleet, RedisEndpoint, RedisTarget, StoreSettings};

/// The number of requests at once at the end of a row.
const AT_ONCE: usize = 1000;

fn main() {
    let seconds = environment("SECONDS", 60, 3600);
    let (trips, factors, clients) = (
        numbers("TRIPS", "5,20,60,150"),
        numbers("FACTORS", "2,3,4,5"),
        numbers("CLIENTS", "16,64,256"),
    );
    // The wires run on threads of their own, since they are not measured.
    let wires = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let here = Builder::new_current_thread()
        .enable_all()
        .build_local(Default::default())
        .unwrap();
    here.block_on(async {
        let server = Server::start().await;
        for trip in trips {
            for factor in &factors {
                let trip = Duration::from_millis(trip);
                let timeout = trip * u32::try_from(*factor).unwrap();
                for many in &clients {
                    let store = far(&wires, &server, trip, timeout).await;
                    let many = usize::try_from(*many).unwrap();
                    ask_all_the_time(&store, many, seconds).await.say(&format!(
                        "{trip:?} away, timeout {timeout:?}, {many:>3} clients"
                    ));
                }
                let store = far(&wires, &server, trip, timeout).await;
                ask_at_once(&store).await.say(&format!(
                    "{trip:?} away, timeout {timeout:?}, {AT_ONCE} at once"
                ));
            }
        }
    });
}

fn numbers(name: &str, default: &str) -> Vec<u64> {
    let text = std::env::var(name).unwrap_or_else(|_| default.to_owned());
    let numbers = text.split(',').map(|word| word.parse());
    numbers
        .collect::<Result<_, _>>()
        .expect("whole numbers and commas")
}

/// A connected store over a wire with this round trip.
async fn far(wires: &Runtime, server: &Server, trip: Duration, timeout: Duration) -> RedisStore {
    let port = wires.spawn(wire(server.port, trip / 2)).await.unwrap();
    let target = RedisTarget::new(RedisEndpoint::tcp("127.0.0.1", port));
    let settings = StoreSettings {
        timeout,
        ..StoreSettings::default()
    };
    let store = RedisStore::new(&target, &settings);
    while !store.is_up() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    store
}

/// The results of some requests.
struct Came {
    took: Vec<Duration>,
    failed: usize,
    falls: u64,
    calls: u64,
}

impl Came {
    fn of(store: &RedisStore, answers: Vec<(Duration, bool)>, before: (u64, u64)) -> Self {
        let mut took: Vec<_> = answers.iter().map(|(took, _)| *took).collect();
        took.sort();
        Self {
            failed: answers.iter().filter(|(_, decided)| !decided).count(),
            took,
            falls: store.stats().falls.get() - before.0,
            calls: store.stats().calls.get() - before.1,
        }
    }

    fn say(self, what: &str) {
        let all = self.took.len();
        let at = |share: f64| self.took[((all as f64 * share) as usize).min(all - 1)];
        println!(
            "{what}: {all:>7} asked, {:>5} not decided, away {} times, p50 {:>5.1} ms, p99 {:>5.1} ms, {:.1} a call",
            self.failed,
            self.falls,
            at(0.5).as_secs_f64() * 1e3,
            at(0.99).as_secs_f64() * 1e3,
            all as f64 / self.calls.max(1) as f64,
        );
    }
}

fn so_far(store: &RedisStore) -> (u64, u64) {
    (store.stats().falls.get(), store.stats().calls.get())
}

async fn ask_all_the_time(store: &RedisStore, many: usize, seconds: u32) -> Came {
    let before = so_far(store);
    let beats = tokio::task::spawn_local(Arc::<Fleet>::default().keep(store.clone()));
    let (limit, ends) = (
        plenty(),
        Instant::now() + Duration::from_secs(seconds.into()),
    );
    let mut tasks = JoinSet::new();
    for task in 0..many {
        let (store, limit) = (store.clone(), Arc::clone(&limit));
        tasks.spawn_local(async move {
            let (key, mut answers) = (format!("10.0.0.{task}"), Vec::new());
            while Instant::now() < ends {
                answers.push(ask(&store, &limit, &key).await);
            }
            answers
        });
    }
    let answers = tasks.join_all().await.into_iter().flatten().collect();
    beats.abort();
    Came::of(store, answers, before)
}

async fn ask_at_once(store: &RedisStore) -> Came {
    let (before, limit) = (so_far(store), plenty());
    let mut tasks = JoinSet::new();
    for task in 0..AT_ONCE {
        let (store, limit) = (store.clone(), Arc::clone(&limit));
        tasks.spawn_local(async move { ask(&store, &limit, &format!("10.0.1.{task}")).await });
    }
    let answers = tasks.join_all().await;
    Came::of(store, answers, before)
}

async fn ask(store: &RedisStore, limit: &Arc<Limit>, key: &str) -> (Duration, bool) {
    let begun = Instant::now();
    let decided = store.decide(&[Check::new(limit, key.as_bytes())]).await;
    if decided.is_err() {
        // A store that takes Redis for away answers at once.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    (begun.elapsed(), decided.is_ok())
}

/// A limit that never refuses.
fn plenty() -> Arc<Limit> {
    let rate = Rate {
        count: NonZeroU32::new(4_000_000_000).unwrap().into(),
        period: NonZeroU64::new(3_600_000_000).unwrap(),
    };
    let by = KeyTemplate {
        parts: Vec::new(),
        missing: MissingKey::Refuse,
        unknown: None,
        case: KeyCase::Sensitive,
    };
    let rule = Rule::FixedWindow(FixedWindow::new(rate));
    Arc::new(Limit::new(Policy::new("plenty".into(), by, rate), rule))
}

/// Opens a wire to this port with a delay of `length` each way, and returns the port at which it begins.
async fn wire(port: u16, length: Duration) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let begins = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let far = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            let _ = (near.set_nodelay(true), far.set_nodelay(true));
            let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
            tokio::spawn(one_way(near_in, far_out, length));
            tokio::spawn(one_way(far_in, near_out, length));
        }
    });
    begins
}

async fn one_way(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, length: Duration) {
    let (sender, mut on_the_wire) = mpsc::channel::<(Instant, Vec<u8>)>(4096);
    let arrive = async move {
        while let Some((due, piece)) = on_the_wire.recv().await {
            tokio::time::sleep_until(due.into()).await;
            if to.write_all(&piece).await.is_err() {
                return;
            }
        }
    };
    let read = async move {
        let mut piece = vec![0; 64 * 1024];
        while let Ok(read @ 1..) = from.read(&mut piece).await {
            let sent = (Instant::now() + length, piece[..read].to_vec());
            if sender.send(sent).await.is_err() {
                return;
            }
        }
    };
    tokio::join!(arrive, read);
}
