//! The cost of a decision by Redis, to the gateway and to the server: `cargo bench --bench store`. The measurement
//! starts a server of its own.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a measurement says by stopping where the world was not as it must be"
)]

mod server;

use redis::aio::MultiplexedConnection;
use server::{Server, cpu};
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tollgate::clock::Clock;
use tollgate::key::{IdField, KeyCase, KeyTemplate, MissingKey, RepeatId, Sameness};
use tollgate::limit::clock_window::ClockWindow;
use tollgate::limit::concurrency::Concurrency;
use tollgate::limit::dedupe::Dedupe;
use tollgate::limit::fixed_window::FixedWindow;
use tollgate::limit::leaky_bucket::LeakyBucket;
use tollgate::limit::rate::Rate;
use tollgate::limit::sliding_log::SlidingLog;
use tollgate::limit::sliding_window::SlidingWindow;
use tollgate::limit::token_bucket::TokenBucket;
use tollgate::limit::{Limit, Policy, Rule};
use tollgate::store::redis::RedisStore;
use tollgate::store::{Check, MemoryStore};

const SECOND: u64 = 1_000_000;
/// The number of rounds, of which the median is reported.
const ROUNDS: usize = 7;
/// The number of requests in a round, a multiple of every batch's size.
const REQUESTS: usize = 2560;
/// The number of requests for each key before its size is taken.
const ASKED: usize = 20;

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(Default::default())
        .unwrap();
    runtime.block_on(async {
        let server = Server::start().await;
        println!("Each algorithm alone, a thousand keys of which each has asked {ASKED} times:");
        what_each_algorithm_costs(&server).await;
        println!("\nThe server's time, median of {ROUNDS} rounds and (least):");
        what_a_call_costs(&server).await;
        println!("\nTasks that decide all the time, each for a key of its own:");
        what_a_decision_costs(&server).await;
    });
}

/// Prints the cost of a decision in memory, of a call of the script, and of a key's memory in Redis.
async fn what_each_algorithm_costs(server: &Server) {
    let store = server.store().await;
    let mut side = server.connection().await;
    for (name, limit) in moderate() {
        let keys: Vec<String> = (0..1000).map(|key| format!("203.0.113.{key}")).collect();
        let memory = in_memory(&limit, &keys);
        let before = script_calls(&mut side).await;
        for key in keys.iter().cycle().take(keys.len() * ASKED) {
            decide(&store, std::slice::from_ref(&limit), key).await;
        }
        let after = script_calls(&mut side).await;
        let micros = (after.1 - before.1) as f64 / (after.0 - before.0) as f64;
        let bytes = bytes_of(&mut side, &limit.name).await;
        println!(
            "{name:<22} {memory:>5.0} ns in memory, {micros:>5.1} us a call, {bytes:>5} bytes a key in Redis"
        );
    }
}

/// A limit of each algorithm, with room for all requests of the measurement, and with a state that outlives it.
fn moderate() -> [(&'static str, Arc<Limit>); 9] {
    let rate = rate(600, 60 * SECOND);
    let max = rate.count;
    let parts = |parts, strict| {
        let parts = NonZeroU32::new(parts).unwrap();
        Rule::SlidingWindow(SlidingWindow::new(rate, parts, strict))
    };
    let leaky = LeakyBucket::new(rate, NonZeroU64::MIN, 600, 60 * SECOND);
    let ttl = 30 * SECOND;
    let rules = [
        (
            "token-bucket",
            Rule::TokenBucket(TokenBucket::new(rate, max)),
        ),
        ("leaky-bucket", Rule::LeakyBucket(leaky)),
        ("fixed-window", Rule::FixedWindow(FixedWindow::new(rate))),
        (
            "fixed-window by clock",
            Rule::ClockWindow(ClockWindow::by_clock(rate, 0)),
        ),
        ("sliding-window", parts(1, false)),
        ("in 6 parts", parts(6, false)),
        ("in 60 parts, strict", parts(60, true)),
        ("sliding-log", Rule::SlidingLog(SlidingLog::new(rate))),
        (
            "concurrency",
            Rule::Concurrency(Concurrency {
                max: NonZeroU32::new(600).unwrap(),
                ttl,
            }),
        ),
    ];
    rules.map(|(name, rule)| (name, limit(&name.replace(' ', "-"), rate, rule)))
}

/// The nanoseconds of a decision, in the best of the rounds.
fn in_memory(limit: &Arc<Limit>, keys: &[String]) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..ROUNDS {
        // A new store in each round, since slots are never given back here.
        let store = MemoryStore::new(Clock::system(), usize::MAX);
        let ask = |key: &String| store.decide(&[Check::new(limit, key.as_bytes())]);
        keys.iter().for_each(|key| drop(ask(key)));
        let before = cpu();
        for key in keys.iter().cycle().take(keys.len() * (ASKED - 1)) {
            std::hint::black_box(ask(key));
        }
        best = best.min((cpu() - before) * 1000.0 / (keys.len() * (ASKED - 1)) as f64);
    }
    best
}

/// The memory of one of the limit's keys by Redis' account, its name included.
async fn bytes_of(side: &mut MultiplexedConnection, limit: &str) -> u64 {
    let pattern = format!("*:{limit}:*");
    let mut keys = redis::cmd("KEYS");
    let found: Vec<String> = keys.arg(pattern).query_async(side).await.unwrap();
    let key = found.last().expect("its states outlive the asking");
    let mut usage = redis::cmd("MEMORY");
    usage.arg("USAGE").arg(key).arg("SAMPLES").arg(0);
    usage.query_async(side).await.unwrap()
}

/// Prints the scripts' own time for calls of several shapes.
async fn what_a_call_costs(server: &Server) {
    let [tokens, smooth, window] = limits();
    let odd = token_bucket("odd", 7_000_001, SECOND, 1_000_000);
    let none = token_bucket("none", 1, 86_400 * SECOND, 1);
    let [clock, two, six, sixty, log, flight] = others();
    let [first, again] = [3, u32::MAX].map(once);
    let cases: [(&str, &[&Arc<Limit>], usize); 17] = [
        ("token bucket", &[&tokens], 1),
        ("with a fraction", &[&odd], 1),
        ("leaky bucket", &[&smooth], 1),
        ("fixed window", &[&window], 1),
        ("refused", &[&none], 1),
        ("three limits", &[&tokens, &smooth, &window], 1),
        ("16 requests", &[&tokens], 16),
        ("16 of three limits", &[&tokens, &smooth, &window], 16),
        ("64 requests", &[&tokens], 64),
        ("window by the clock", &[&clock], 1),
        ("sliding window", &[&two], 1),
        ("in 6 parts", &[&six], 1),
        ("in 60 parts, strict", &[&sixty], 1),
        ("sliding log", &[&log], 1),
        ("concurrency", &[&flight], 1),
        ("an id", &[&first], 1),
        ("its repeat", &[&again], 1),
    ];
    let store = server.store().await;
    let mut side = server.connection().await;
    let mut random = fastrand::Rng::with_seed(1);
    for (name, limits, together) in cases {
        // A client is refused from its second request on.
        round(&store, limits, together, &mut random).await;
        let (mut per_call, mut per_request) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let before = script_calls(&mut side).await;
            round(&store, limits, together, &mut random).await;
            let after = script_calls(&mut side).await;
            let (calls, micros) = (after.0 - before.0, after.1 - before.1);
            assert_eq!(calls, (REQUESTS / together) as u64, "they went together");
            per_call.push(micros as f64 / calls as f64);
            per_request.push(micros as f64 / REQUESTS as f64);
        }
        per_call.sort_by(f64::total_cmp);
        per_request.sort_by(f64::total_cmp);
        println!(
            "{name:<20} {:>6.1} us a call ({:.1}), {:>5.2} us a request",
            per_call[ROUNDS / 2],
            per_call[0],
            per_request[ROUNDS / 2],
        );
    }
}

/// Requests that begin at one instant share a call.
async fn round(
    store: &RedisStore,
    limits: &[&Arc<Limit>],
    together: usize,
    random: &mut fastrand::Rng,
) {
    for _ in 0..REQUESTS / together {
        let mut requests = JoinSet::new();
        for _ in 0..together {
            let (store, key) = (store.clone(), format!("10.0.{}", random.u32(..1000)));
            let limits: Vec<_> = limits.iter().map(|limit| Arc::clone(limit)).collect();
            requests.spawn_local(async move { decide(&store, &limits, &key).await });
        }
        requests.join_all().await;
    }
}

async fn decide(store: &RedisStore, limits: &[Arc<Limit>], key: &str) {
    let checks: Vec<_> = limits
        .iter()
        .map(|limit| Check {
            id: limit.dedupe.as_ref().map(id),
            ..Check::new(limit, key.as_bytes())
        })
        .collect();
    store.decide(&checks).await.unwrap();
}

/// A bucket that charges each id once.
fn once(repeats: u32) -> Arc<Limit> {
    let bucket = token_bucket("once", 1_000_000, SECOND, 1_000_000);
    let field = IdField(http::HeaderName::from_static("idempotency-key"));
    let dedupe = Dedupe {
        field,
        ttl: 600 * SECOND,
        repeats,
        of: Sameness::Path,
    };
    Arc::new(bucket.edited(|policy| policy.dedupe = Some(dedupe)))
}

/// An id: a new one for each request, or, with unlimited repeats, the same one for all.
fn id(dedupe: &Dedupe) -> RepeatId {
    let nth = match dedupe.repeats {
        u32::MAX => 0,
        _ => fastrand::u64(..),
    };
    RepeatId::of("POST", "/pay", 1, &nth.to_be_bytes())
}

/// Prints the time of both sides and the size of batches, under tasks that never rest.
async fn what_a_decision_costs(server: &Server) {
    let limits = limits();
    for many in [1, 16, 64, 256] {
        tasks_decide(server, many, &limits[..1]).await;
    }
    tasks_decide(server, 64, &limits).await;
}

async fn tasks_decide(server: &Server, many: usize, limits: &[Arc<Limit>]) {
    let store = server.store().await;
    let mut side = server.connection().await;
    let (before, cpu_before) = (script_calls(&mut side).await, cpu());
    let begun = Instant::now();
    let mut tasks = JoinSet::new();
    for task in 0..many {
        let (store, limits) = (store.clone(), limits.to_vec());
        tasks.spawn_local(async move {
            let key = format!("10.0.0.{task}");
            while begun.elapsed() < Duration::from_millis(1500) {
                decide(&store, &limits, &key).await;
            }
        });
    }
    tasks.join_all().await;
    let (took, spent) = (begun.elapsed(), cpu() - cpu_before);
    let after = script_calls(&mut side).await;
    let decisions = store.stats().decisions.get() as f64;
    println!(
        "{many:>3} tasks, {} limits: {:>6.0} decisions/s, {:>4.1} a call, {:>5.2} us here and {:>5.2} us there for each",
        limits.len(),
        decisions / took.as_secs_f64(),
        decisions / (after.0 - before.0) as f64,
        spent / decisions,
        (after.1 - before.1) as f64 / decisions,
    );
}

fn rate(count: u32, period: u64) -> Rate {
    Rate {
        count: NonZeroU32::new(count).unwrap().into(),
        period: NonZeroU64::new(period).unwrap(),
    }
}

fn limit(name: &str, rate: Rate, rule: Rule) -> Arc<Limit> {
    let by = KeyTemplate {
        parts: Vec::new(),
        missing: MissingKey::Refuse,
        unknown: None,
        case: KeyCase::Sensitive,
    };
    Arc::new(Limit::new(Policy::new(name.into(), by, rate), rule))
}

fn token_bucket(name: &str, count: u32, period: u64, burst: u32) -> Arc<Limit> {
    let rate = rate(count, period);
    let burst = NonZeroU32::new(burst).unwrap().into();
    limit(name, rate, Rule::TokenBucket(TokenBucket::new(rate, burst)))
}

/// Limits of three algorithms; none refuses here.
fn limits() -> [Arc<Limit>; 3] {
    let fast = rate(1_000_000, SECOND);
    let smooth = LeakyBucket::new(fast, NonZeroU64::MIN, 1_000_000, 9 * SECOND);
    let wide = rate(4_000_000_000, 60 * SECOND);
    [
        token_bucket("tokens", 1_000_000, SECOND, 1_000_000),
        limit("smooth", fast, Rule::LeakyBucket(smooth)),
        limit("window", wide, Rule::FixedWindow(FixedWindow::new(wide))),
    ]
}

/// Limits of the algorithms of the longer script.
fn others() -> [Arc<Limit>; 6] {
    let (wide, many) = (rate(1_000_000, 60 * SECOND), rate(10_000, 60 * SECOND));
    let parts = |parts, strict| {
        let parts = NonZeroU32::new(parts).unwrap();
        Rule::SlidingWindow(SlidingWindow::new(wide, parts, strict))
    };
    let max = NonZeroU32::new(10_000).unwrap();
    let flight = Concurrency { max, ttl: SECOND };
    [
        limit(
            "clock",
            wide,
            Rule::ClockWindow(ClockWindow::by_clock(wide, 0)),
        ),
        limit("two", wide, parts(1, false)),
        limit("six", wide, parts(6, false)),
        limit("sixty", wide, parts(60, true)),
        limit("log", many, Rule::SlidingLog(SlidingLog::new(many))),
        limit("flight", many, Rule::Concurrency(flight)),
    ]
}

/// The calls of scripts so far, and the microseconds that they took.
async fn script_calls(side: &mut MultiplexedConnection) -> (u64, u64) {
    let text: String = redis::cmd("INFO")
        .arg("commandstats")
        .query_async(side)
        .await
        .unwrap();
    let line = text.lines().find(|l| l.starts_with("cmdstat_evalsha:"));
    let number = |name: &str| {
        let (_, rest) = line?.split_once(name)?;
        rest.split(',').next()?.parse().ok()
    };
    (number("calls=").unwrap_or(0), number("usec=").unwrap_or(0))
}
