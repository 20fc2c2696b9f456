//! The cost of clients that come and go to a Redis: `cargo bench --bench churn`. The measurement starts a server of its
//! own.
//!
//! First, the gateway's own script writes `KEYS` counters. Each lives `LIFE` minutes, and their ages are spread evenly.
//! Then, for `MINUTES`, as many new clients come as old ones end; the clients of each `TICK` milliseconds come
//! together. Every minute prints a line. `EFFORT` is the server's `active-expire-effort`.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a measurement says by stopping where the world was not as it must be"
)]

mod server;

use server::{Server, Told, cpu, environment};
use std::cell::{Cell, RefCell};
use std::net::Ipv4Addr;
use std::num::{NonZeroU32, NonZeroU64};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};
use tollgate::key::{KeyCase, KeyTemplate, MissingKey};
use tollgate::limit::rate::{Cost, Rate};
use tollgate::limit::token_bucket::TokenBucket;
use tollgate::limit::verdict::Ruling;
use tollgate::limit::{Limit, Policy, Rule};
use tollgate::store::Check;
use tollgate::store::redis::RedisStore;

/// The number of clients that ask at once while the server is filled.
const AT_ONCE: usize = 256;
/// The most new clients that come together, where many are late.
const TOGETHER: u64 = 64;
const MINUTE: Duration = Duration::from_secs(60);

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(Default::default())
        .unwrap();
    runtime.block_on(async {
        let plan = Plan::of_environment();
        let effort = environment("EFFORT", 1, 10).to_string();
        let server = Server::start_with(&["--active-expire-effort", &effort]).await;
        let clients = Rc::new(Clients::new(server.store().await, plan));
        fill(&clients).await;
        churn(&clients, &server).await;
    });
}

#[derive(Clone, Copy)]
struct Plan {
    /// The number of live counters.
    keys: u32,
    /// The time in which clients come and go, in minutes.
    minutes: u32,
    /// The life of a counter.
    life: Duration,
    /// The time between two groups of new clients.
    tick: Duration,
}

impl Plan {
    fn of_environment() -> Self {
        Self {
            keys: environment("KEYS", 200_000, 50_000_000),
            minutes: environment("MINUTES", 3, 24 * 60),
            life: MINUTE * environment("LIFE", 3, 24 * 60),
            tick: Duration::from_millis(environment("TICK", 20, 1000).into()),
        }
    }
}

/// The clients so far: each comes once, and has an address of its own.
struct Clients {
    store: RedisStore,
    limit: Arc<Limit>,
    plan: Plan,
    begun: Instant,
    come: Cell<u32>,
    random: RefCell<fastrand::Rng>,
    /// The number of counters that end in each second since the beginning.
    ends: RefCell<Vec<u32>>,
}

impl Clients {
    fn new(store: RedisStore, plan: Plan) -> Self {
        Self {
            store,
            limit: milliseconds(),
            plan,
            begun: Instant::now(),
            come: Cell::new(0),
            random: RefCell::new(fastrand::Rng::with_seed(1)),
            ends: RefCell::default(),
        }
    }

    /// Lets the next client come, whose counter lives for `life`.
    async fn next(&self, life: Duration) {
        let number = self.come.replace(self.come.get() + 1);
        // The factor is odd, so that every number has another address.
        let key = Ipv4Addr::from(number.wrapping_mul(2_654_435_761)).to_string();
        let check = Check {
            cost: Cost::new(u64::try_from(life.as_millis()).unwrap()),
            ..Check::new(&self.limit, key.as_bytes())
        };
        let decided = self.store.decide(&[check]).await.unwrap();
        assert!(matches!(decided.decision.ruling, Ruling::Admit { .. }));
        let end = usize::try_from((self.begun.elapsed() + life).as_secs()).unwrap();
        let mut ends = self.ends.borrow_mut();
        if ends.len() <= end {
            ends.resize(end + 1, 0);
        }
        ends[end] += 1;
    }

    /// The number of counters whose life is not over.
    fn live(&self) -> u32 {
        let now = usize::try_from(self.begun.elapsed().as_secs()).unwrap();
        self.ends.borrow().iter().skip(now).sum()
    }

    /// A random life that ends within `LIFE` of the instant at which all clients have come, at the pace so far.
    fn rest_of_a_life(&self) -> Duration {
        let (come, left) = (self.come.get(), self.plan.keys - self.come.get());
        let wait = match come {
            0..1000 => Duration::ZERO,
            _ => self
                .begun
                .elapsed()
                .mul_f64(f64::from(left) / f64::from(come)),
        };
        wait + self.plan.life.mul_f64(self.random.borrow_mut().f64())
    }
}

/// A bucket that gets one unit back in a millisecond: the cost of a client's request is the life of its counter in
/// milliseconds.
fn milliseconds() -> Arc<Limit> {
    let by = KeyTemplate {
        parts: Vec::new(),
        missing: MissingKey::Refuse,
        unknown: None,
        case: KeyCase::Sensitive,
    };
    let rate = Rate {
        count: NonZeroU32::new(1000).unwrap().into(),
        period: NonZeroU64::new(1_000_000).unwrap(),
    };
    let rule = Rule::TokenBucket(TokenBucket::new(rate, NonZeroU64::new(1 << 30).unwrap()));
    Arc::new(Limit::new(Policy::new("per-ip".into(), by, rate), rule))
}

/// Lets all clients come, as fast as the store decides.
async fn fill(clients: &Rc<Clients>) {
    let mut tasks = JoinSet::new();
    for _ in 0..AT_ONCE {
        let clients = Rc::clone(clients);
        tasks.spawn_local(async move {
            while clients.come.get() < clients.plan.keys {
                clients.next(clients.rest_of_a_life()).await;
            }
        });
    }
    tasks.join_all().await;
    let took = clients.begun.elapsed();
    println!("{} counters in {took:.0?}", clients.come.get());
}

/// Lets as many clients come as go. Prints the state of the server and the cost of each minute.
async fn churn(clients: &Rc<Clients>, server: &Server) {
    let Plan {
        keys,
        minutes,
        life,
        tick,
    } = clients.plan;
    let mut side = server.connection().await;
    println!(
        "minute      live      keys  used MB  bytes   rss MB  ratio stale% | come/s ends/s server% driver% | us/call us/client | call ms p50    p99    max"
    );
    let mut before = Minute::now(clients, Told::by(&mut side).await);
    before.tell(&before, 0, &mut Vec::new());
    let begun = Instant::now();
    let first = clients.come.get();
    let per_second = f64::from(keys) / life.as_secs_f64();
    let mut ticks = interval(tick);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for minute in 1..=minutes {
        let mut waits = Vec::new();
        while begun.elapsed() < MINUTE * minute {
            ticks.tick().await;
            let due = begun.elapsed().as_secs_f64() * per_second;
            let due = due as u64 - u64::from(clients.come.get() - first);
            let mut tasks = JoinSet::new();
            for _ in 0..due.min(TOGETHER) {
                let clients = Rc::clone(clients);
                tasks.spawn_local(async move { clients.next(life).await });
            }
            let asked = Instant::now();
            if !tasks.is_empty() {
                tasks.join_all().await;
                waits.push(asked.elapsed().as_secs_f64() * 1000.0);
            }
        }
        let now = Minute::now(clients, Told::by(&mut side).await);
        now.tell(&before, minute, &mut waits);
        before = now;
    }
}

/// All figures at an instant.
struct Minute {
    at: Instant,
    cpu: f64,
    come: u32,
    live: u32,
    told: Told,
}

impl Minute {
    fn now(clients: &Clients, told: Told) -> Self {
        Self {
            at: Instant::now(),
            cpu: cpu(),
            come: clients.come.get(),
            live: clients.live(),
            told,
        }
    }

    fn tell(&self, before: &Self, minute: u32, waits: &mut [f64]) {
        let told = &self.told;
        let seconds = (self.at - before.at).as_secs_f64().max(1e-9);
        let come = f64::from(self.come - before.come);
        let more = |name| told.number(name) - before.told.number(name);
        let scripts = |name| {
            let of = |told: &Told| told.number_in("cmdstat_evalsha", name);
            of(told) - of(&before.told)
        };
        let (keys, used) = (told.number_in("db0", "keys"), told.number("used_memory"));
        waits.sort_by(f64::total_cmp);
        let wait = |share: f64| {
            let index = (waits.len() as f64 * share) as usize;
            let last = waits.len().saturating_sub(1);
            waits.get(index.min(last)).copied().unwrap_or_default()
        };
        println!(
            "{minute:>6} {:>9} {keys:>9} {:>8.1} {:>6.1} {:>8.1} {:>6.3} {:>6.2} | {:>6.0} {:>6.0} {:>7.2} {:>7.2} | {:>7.1} {:>9.2} | {:>11.2} {:>6.2} {:>6.1}",
            self.live,
            used / 1e6,
            used / keys,
            told.number("used_memory_rss") / 1e6,
            told.number("mem_fragmentation_ratio"),
            told.number("expired_stale_perc"),
            come / seconds,
            more("expired_keys") / seconds,
            (told.cpu() - before.told.cpu()) / seconds * 100.0,
            (self.cpu - before.cpu) / seconds / 1e4,
            scripts("usec") / scripts("calls").max(1.0),
            scripts("usec") / come.max(1.0),
            wait(0.5),
            wait(0.99),
            wait(1.0),
        );
    }
}
