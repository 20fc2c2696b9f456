//! The cost of a fleet of gateways to a Redis Cluster: `cargo bench --bench fleet`. The measurement starts a cluster of
//! its own.
//!
//! `GATEWAYS` is the number of gateways. Each has one worker's way to the store, with leases, remembered refusals,
//! connections and signs of life, and has requests at instants of its own. All are on one thread. `MASTERS` is the
//! number of masters, `SECONDS` the time for each kind of traffic. `CALM` is the number of requests a second of each
//! gateway that ask Redis, `BUSY` the number of those that meet at few keys. `ONLY` picks kinds by a part of their
//! name.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a measurement says by stopping where the world was not as it must be"
)]

mod server;

use server::cluster::Cluster;
use server::{Told, cpu, environment};
use std::cell::Cell;
use std::net::Ipv4Addr;
use std::num::{NonZeroU32, NonZeroU64};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::{sleep, sleep_until};
use tollgate::clock::Clock;
use tollgate::key::{KeyCase, KeyTemplate, MissingKey};

use tollgate::limit::fixed_window::FixedWindow;
use tollgate::limit::rate::Rate;
use tollgate::limit::token_bucket::TokenBucket;
use tollgate::limit::verdict::Ruling;
use tollgate::limit::{LeaseSetting, Limit, Policy, Rule};
use tollgate::store::redis::RedisStore;
use tollgate::store::{
    Backend, Check, Decider, Fleet, Invalidation, MemoryStore, OnDown, SharedStore, Store,
    StoreSettings, WorkerCache,
};
use tollgate::telemetry::metrics::Metrics;

/// The number of clients within their limit.
const CLIENTS: u32 = 100_000;
/// The most requests that one gateway has under way; a further one is left out, and reported.
const MOST: u32 = 512;
/// The time before the measurement, in which connections are made and keys are found to be busy.
const WARM_UP: Duration = Duration::from_secs(5);

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(Default::default())
        .unwrap();
    runtime.block_on(async {
        let masters = environment("MASTERS", 3, 32) as u16;
        let gateways = environment("GATEWAYS", 100, 1000);
        let mut cluster = Cluster::start(masters).await;
        println!("{gateways} gateways of one worker, {masters} masters");
        let only = std::env::var("ONLY").unwrap_or_default();
        let wanted = |traffic: &Traffic| traffic.name.contains(&only);
        for traffic in kinds(gateways).into_iter().filter(wanted) {
            run(&mut cluster, gateways, Rc::new(traffic)).await;
        }
    });
}

/// The traffic of each gateway.
struct Traffic {
    name: &'static str,
    /// Requests a second of clients within their limit.
    own: u32,
    /// Requests a second that meet at few keys: their number, the number of keys, and the limit that counts them.
    hot: u32,
    keys: u32,
    limit: Arc<Limit>,
    /// Are the requests of `own` counted by `limit`, too?
    both: bool,
}

fn kinds(gateways: u32) -> Vec<Traffic> {
    let (calm, busy) = (
        environment("CALM", 100, 10_000),
        environment("BUSY", 400, 10_000),
    );
    let some = calm.div_ceil(2);
    // The wide limit has room for twice the requests, the narrow one for half of them.
    let asked = (gateways * busy).max(1000);
    let wide = |leasing| {
        bucket("everyone", asked * 2, asked * 2).edited(|policy| policy.leasing = leasing)
    };
    let window =
        window("everyone", asked * 20, 10).edited(|policy| policy.leasing = LeaseSetting::Auto);
    let narrow = bucket("everyone", asked / 2, asked / 2)
        .edited(|policy| policy.leasing = LeaseSetting::Auto);
    let over = || bucket("over", 1, 1);
    let kind = |name, (own, hot, keys), limit, both| Traffic {
        name,
        own,
        hot,
        keys,
        limit: Arc::new(limit),
        both,
    };
    use LeaseSetting::{Auto, Off};
    vec![
        kind("own keys", (calm, 0, 1), wide(Off), false),
        kind("own and everyone", (some, 0, 1), wide(Off), true),
        kind("busy own and everyone", (busy, 0, 1), wide(Off), true),
        kind(
            "busy own and everyone, leases",
            (busy, 0, 1),
            wide(Auto),
            true,
        ),
        kind("half hot, no leases", (some, some, 1), wide(Off), false),
        kind("half hot, leases", (some, some, 1), wide(Auto), false),
        kind("hot bucket, leases", (some, busy, 1), wide(Auto), false),
        kind("hot window, leases", (some, busy, 1), window, false),
        kind("twice the hot limit", (some, busy, 1), narrow, false),
        kind("10 over theirs", (some, busy, 10), over(), false),
        kind("10,000 over theirs", (some, some, 10_000), over(), false),
    ]
}

fn bucket(name: &str, a_second: u32, burst: u32) -> Limit {
    let rate = rate(a_second, 1);
    let burst = NonZeroU32::new(burst).unwrap().into();
    limit(name, rate, Rule::TokenBucket(TokenBucket::new(rate, burst)))
}

fn window(name: &str, quota: u32, seconds: u64) -> Limit {
    let rate = rate(quota, seconds);
    limit(name, rate, Rule::FixedWindow(FixedWindow::new(rate)))
}

fn rate(count: u32, seconds: u64) -> Rate {
    Rate {
        count: NonZeroU32::new(count).unwrap().into(),
        period: NonZeroU64::new(seconds * 1_000_000).unwrap(),
    }
}

fn limit(name: &str, rate: Rate, rule: Rule) -> Limit {
    let by = KeyTemplate {
        parts: Vec::new(),
        missing: MissingKey::Refuse,
        unknown: None,
        case: KeyCase::Sensitive,
    };
    Limit::new(Policy::new(name.into(), by, rate), rule)
}

/// One gateway's only worker.
struct Gateway {
    store: Store,
    shared: RedisStore,
    under_way: Cell<u32>,
    own: Arc<Limit>,
    counts: Rc<Counts>,
}

/// Decisions of all gateways.
#[derive(Default)]
struct Counts {
    decided: Cell<u64>,
    by_redis: Cell<u64>,
    by_lease: Cell<u64>,
    remembered: Cell<u64>,
    refused: Cell<u64>,
    left_out: Cell<u64>,
    failed: Cell<u64>,
    /// Admitted requests of clients within their limit.
    own: Cell<u64>,
    /// Requests that the limit at which they meet has admitted.
    hot: Cell<u64>,
}

impl Counts {
    /// Counts a decision that failed, and prints the cause of the first.
    fn failed(&self, why: &str) {
        if self.failed.get() == 0 {
            println!("\nnot decided: {why}");
        }
        add(&self.failed);
    }
}

fn add(count: &Cell<u64>) {
    count.set(count.get() + 1);
}

impl Gateway {
    fn new(cluster: &Cluster, counts: &Rc<Counts>) -> Self {
        let settings = StoreSettings {
            source: Backend::Redis(cluster.target()),
            timeout: Duration::from_secs(2),
            on_down: OnDown::Closed,
            ..StoreSettings::default()
        };
        let shared = RedisStore::new(&cluster.target(), &settings);
        let (fleet, metrics) = (Arc::<Fleet>::default(), Metrics::default().store());
        let near = WorkerCache::new(Invalidation::default(), settings.timeout, Clock::system());
        near.follow(&shared, &metrics);
        tokio::task::spawn_local(Arc::clone(&fleet).keep(shared.clone()));
        let store = Store::Shared(SharedStore {
            redis: shared.clone(),
            local: Arc::new(MemoryStore::for_one_thread(Clock::system())),
            on_down: settings.on_down,
            fleet,
            metrics,
            cache: near,
        });
        Self {
            store,
            shared,
            under_way: Cell::new(0),
            own: Arc::new(bucket("per-client", 1000, 1000)),
            counts: Rc::clone(counts),
        }
    }

    async fn decide(&self, traffic: &Traffic, is_hot: bool) {
        let of = |many| Ipv4Addr::from(0x0a00_0000 + fastrand::u32(..many)).to_string();
        let (key, whom) = match traffic.keys {
            _ if !is_hot => (of(CLIENTS), String::new()),
            1 => (String::new(), String::new()),
            many => (String::new(), of(many)),
        };
        let own = Check::new(&self.own, key.as_bytes());
        let hot = Check::new(&traffic.limit, whom.as_bytes());
        let answer = match (is_hot, traffic.both) {
            (true, _) => self.store.decide(&[hot]).await,
            (false, false) => self.store.decide(&[own]).await,
            (false, true) => self.store.decide(&[own, hot]).await,
        };
        let counts = &self.counts;
        let (decided, by) = match answer {
            Ok((Some(decided), by)) => (decided, by),
            Ok((None, by)) => return counts.failed(&format!("{by:?}")),
            Err(error) => return counts.failed(&error.to_string()),
        };
        add(&counts.decided);
        if !is_hot {
            add(&counts.own);
        }
        match by {
            Decider::Redis => add(&counts.by_redis),
            Decider::Lease => add(&counts.by_lease),
            Decider::Remembered => add(&counts.remembered),
            other => counts.failed(&format!("{other:?}")),
        }
        match decided.decision.ruling {
            Ruling::Admit { .. } if is_hot || traffic.both => add(&counts.hot),
            Ruling::Admit { .. } => {}
            Ruling::Refuse { .. } => add(&counts.refused),
        }
    }

    /// Sends requests at random instants, whatever becomes of the requests before.
    async fn requests(self: Rc<Self>, traffic: Rc<Traffic>, until: Instant) {
        let rate = f64::from(traffic.own + traffic.hot);
        let share = f64::from(traffic.hot) / rate;
        let mut next = Instant::now();
        loop {
            next += Duration::from_secs_f64(-(1.0 - fastrand::f64()).ln() / rate);
            if next >= until {
                return;
            }
            sleep_until(next.into()).await;
            if self.under_way.get() >= MOST {
                add(&self.counts.left_out);
                continue;
            }
            self.under_way.set(self.under_way.get() + 1);
            let (me, traffic) = (Rc::clone(&self), Rc::clone(&traffic));
            let is_hot = fastrand::f64() < share;
            tokio::task::spawn_local(async move {
                me.decide(&traffic, is_hot).await;
                me.under_way.set(me.under_way.get() - 1);
            });
        }
    }
}

async fn run(cluster: &mut Cluster, many: u32, traffic: Rc<Traffic>) {
    cluster.flush().await;
    let lasts = Duration::from_secs(environment("SECONDS", 20, 600).into());
    let counts = Rc::<Counts>::default();
    let gateways: Vec<_> = (0..many)
        .map(|_| Rc::new(Gateway::new(cluster, &counts)))
        .collect();
    let connecting = Instant::now();
    while !gateways.iter().all(|gateway| gateway.shared.is_up()) {
        assert!(
            connecting.elapsed() < Duration::from_secs(60),
            "not all are connected"
        );
        sleep(Duration::from_millis(20)).await;
    }
    let begun = Instant::now();
    for gateway in &gateways {
        let until = begun + WARM_UP + lasts;
        tokio::task::spawn_local(Rc::clone(gateway).requests(Rc::clone(&traffic), until));
    }
    sleep_until((begun + WARM_UP).into()).await;
    let before = Figures::now(cluster, &gateways, &counts).await;
    sleep_until((begun + WARM_UP + lasts).into()).await;
    let after = Figures::now(cluster, &gateways, &counts).await;
    while gateways.iter().any(|gateway| gateway.under_way.get() > 0) {
        sleep(Duration::from_millis(5)).await;
    }
    after.tell(&before, &traffic, f64::from(many));
    bounded(&traffic, &counts, begun.elapsed());
    for gateway in &gateways {
        gateway.store.settle().await;
    }
}

/// Checks that all gateways together have admitted no more than one bucket for each key would have.
fn bounded(traffic: &Traffic, counts: &Counts, took: Duration) {
    if traffic.hot == 0 && !traffic.both {
        return;
    }
    let Rate { count, period } = traffic.limit.rate;
    let periods = took.as_secs_f64() * 1e6 / period.get() as f64;
    // A bucket is full at first, and its burst comes back in one period. A window that the time cuts off counts in
    // full.
    let allowed = match traffic.limit.rule {
        Rule::TokenBucket(_) => 1.0 + periods,
        _ => 1.0 + periods.ceil(),
    } * count.get() as f64
        * f64::from(traffic.keys);
    let admitted = counts.hot.get() as f64;
    println!("    admitted where requests meet: {admitted}, of {allowed:.0} allowed");
    assert!(admitted <= allowed, "too many");
}

/// All figures at an instant.
struct Figures {
    at: Instant,
    cpu: f64,
    nodes: Vec<Told>,
    counts: [u64; 9],
    calls: u64,
    decisions: u64,
}

impl Figures {
    async fn now(cluster: &mut Cluster, gateways: &[Rc<Gateway>], counts: &Counts) -> Self {
        let stats: Vec<_> = gateways.iter().map(|one| one.shared.stats()).collect();
        let Counts {
            decided,
            by_redis,
            by_lease,
            remembered,
            refused,
            left_out,
            failed,
            own,
            hot,
        } = counts;
        let counts = [
            decided, by_redis, by_lease, remembered, refused, left_out, failed, own, hot,
        ];
        Self {
            at: Instant::now(),
            cpu: cpu(),
            nodes: cluster.told().await,
            counts: counts.map(Cell::get),
            calls: stats.iter().map(|one| one.calls.get()).sum(),
            decisions: stats.iter().map(|one| one.decisions.get()).sum(),
        }
    }

    fn tell(&self, before: &Self, traffic: &Traffic, gateways: f64) {
        let seconds = (self.at - before.at).as_secs_f64();
        let counts: [f64; 9] =
            std::array::from_fn(|index| (self.counts[index] - before.counts[index]) as f64);
        let [
            decided,
            by_redis,
            by_lease,
            remembered,
            refused,
            left_out,
            failed,
            own,
            hot,
        ] = counts;
        let calls = self.calls - before.calls;
        let nodes: Vec<Node> = self.nodes.iter().zip(&before.nodes).map(Node::of).collect();
        let served: f64 = nodes.iter().map(|node| node.calls).sum();
        let spent: f64 = nodes.iter().map(|node| node.cpu).sum();
        let percent = |part: f64| part / decided * 100.0;
        println!(
            "\n{}: {:.0} decisions/s, {:.0} % by redis, {:.0} % by lease, {:.0} % remembered; {:.0} % refused; {left_out} left out, {failed} failed",
            traffic.name,
            decided / seconds,
            percent(by_redis),
            percent(by_lease),
            percent(remembered),
            percent(refused),
        );
        println!(
            "    {:.3} calls a decision, {:.2} decisions in a call, {:.1} us here and {:.1} us of redis a decision",
            served / decided,
            (self.decisions - before.decisions) as f64 / calls as f64,
            (self.cpu - before.cpu) / decided,
            spent / decided,
        );
        if own > 0.0 && decided > own {
            println!(
                "    {:.3} calls for each that meets others, were the rest one each; {:.1} such calls a second of each gateway; {:.0} admitted a second",
                (served - own) / (decided - own),
                (served - own) / seconds / gateways,
                hot / seconds,
            );
        }
        for (index, node) in nodes.iter().enumerate() {
            println!(
                "    master {index}: {:>5.1} % of the calls, {:>6.0} calls/s, {:>5.1} us of processor a call; {} connections, {:.1} signs of life a second",
                node.calls / served * 100.0,
                node.calls / seconds,
                node.cpu / node.calls,
                node.connections,
                node.signs / seconds,
            );
        }
    }
}

/// The work of one master between two instants; times in microseconds.
struct Node {
    calls: f64,
    signs: f64,
    cpu: f64,
    connections: f64,
}

impl Node {
    fn of((after, before): (&Told, &Told)) -> Self {
        let calls =
            |command| after.number_in(command, "calls") - before.number_in(command, "calls");
        Self {
            calls: calls("cmdstat_evalsha"),
            signs: calls("cmdstat_eval"),
            cpu: (after.cpu() - before.cpu()) * 1e6,
            // One connection is the measurement's own.
            connections: after.number("connected_clients") - 1.0,
        }
    }
}
