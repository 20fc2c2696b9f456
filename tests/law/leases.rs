//! Leases in real time, at a Redis: several gateways that share one hot key never admit more than the limit, and nearly
//! all of it. The trials of every algorithm and every demand run on a simulated clock (`src/store/lease/tests.rs`).

use super::numbers::{
    SECOND, clock_window, fixed_window, leaky_bucket, limit, sliding_window, token_bucket,
};
use super::remembered_refusals::gateway;
use super::under_test::{admitted, connect};
use crate::support::{Redis, long};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use tollgate::limit::rate::Rate;
use tollgate::limit::{LeaseSetting, Limit, Rule};
use tollgate::store::{Check, Decider, SharedStore, Store};

const KEY: &[u8] = b"hot";

/// The load of each gateway.
#[derive(Debug, Clone, Copy)]
struct Load {
    gateways: u64,
    tasks: u64,
    /// The longest pause between two requests of a task.
    pause: Duration,
    time: Duration,
    /// The number of spared calls after which a task ends.
    spared: u64,
}

/// The result of a trial.
#[derive(Debug, Default)]
struct Outcome {
    /// The instants of admission, since the beginning.
    admitted: Vec<Duration>,
    requests: u64,
    /// The number of requests that found a permit in hand or a remembered refusal.
    spared: u64,
    calls: u64,
}

/// Runs `many` gateways, each on a thread of its own.
pub(super) fn on_threads<O: Send>(many: u64, one: impl AsyncFn(u64) -> O + Sync) -> Vec<O> {
    let run = |number| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build_local(Default::default())
            .unwrap();
        runtime.block_on(one(number))
    };
    let run = &run;
    tokio::task::block_in_place(|| {
        thread::scope(|scope| {
            let threads: Vec<_> = (0..many)
                .map(|number| scope.spawn(move || run(number)))
                .collect();
            let all = threads.into_iter().map(|thread| thread.join().unwrap());
            all.collect()
        })
    })
}

/// Puts the load of all gateways on one key.
fn press(server: &Redis, limit: &Arc<Limit>, load: Load) -> Outcome {
    let begun = Instant::now();
    let one = async |seed: u64| {
        let store = gateway(connect(server).await);
        let ask = |task| {
            let limit = Arc::clone(limit);
            ask(store.clone(), limit, begun, load, seed * 100 + task)
        };
        let asking: Vec<_> = (0..load.tasks)
            .map(|task| tokio::task::spawn_local(ask(task)))
            .collect();
        let mut outcome = Outcome::default();
        for task in asking {
            outcome.add(task.await.unwrap());
        }
        let Store::Shared(SharedStore { redis: shared, .. }) = &store else {
            panic!("it was made so");
        };
        outcome.calls = shared.stats().calls.get();
        store.settle().await;
        outcome
    };
    let mut all = Outcome::default();
    for outcome in on_threads(load.gateways, one) {
        all.add(outcome);
    }
    all.admitted.sort();
    all
}

async fn ask(store: Store, limit: Arc<Limit>, begun: Instant, load: Load, seed: u64) -> Outcome {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut outcome = Outcome::default();
    // All gateways connect before the load begins.
    let start = begun + Duration::from_millis(100);
    tokio::time::sleep_until(start.into()).await;
    while outcome.spared < load.spared && start.elapsed() < load.time {
        let (decided, by) = store.decide(&[Check::new(&limit, KEY)]).await.unwrap();
        outcome.requests += 1;
        outcome.spared += u64::from(matches!(by, Decider::Lease | Decider::Remembered));
        if admitted(&decided.unwrap()) {
            outcome.admitted.push(begun.elapsed());
        }
        if !load.pause.is_zero() {
            tokio::time::sleep(load.pause.mul_f64(random.f64())).await;
        } else if outcome.requests.is_multiple_of(16) {
            tokio::task::yield_now().await;
        }
    }
    outcome
}

impl Outcome {
    fn add(&mut self, other: Self) {
        self.admitted.extend(other.admitted);
        self.requests += other.requests;
        self.spared += other.spared;
        self.calls += other.calls;
    }
}

pub(super) fn leased(rule: (Rate, Rule), leasing: LeaseSetting, name: &str) -> Arc<Limit> {
    Arc::new(limit(name, rule).edited(|policy| policy.leasing = leasing))
}

/// The highest level of a bucket of this rate, in units.
fn fullest(admitted: &[Duration], per_second: f64) -> f64 {
    let (mut level, mut fullest, mut last) = (0_f64, 0_f64, Duration::ZERO);
    for at in admitted {
        level = (level - (*at - last).as_secs_f64() * per_second).max(0.0) + 1.0;
        fullest = fullest.max(level);
        last = *at;
    }
    fullest
}

/// One trial with random numbers: the limit is not exceeded, and it is used up where enough is asked for.
fn trial(server: &Redis, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let count = random.u64(1000..8000);
    let time = Duration::from_millis(random.u64(300..700));
    let hour = 3600 * SECOND;
    // The units and the period, and whether all units are available at once.
    let (rule, at_once) = match random.u8(..8) {
        0 => (fixed_window(count, hour), true),
        1 => (clock_window(count, 24 * hour, hour), true),
        2 => (sliding_window(count, hour, 1, false), true),
        3 => (sliding_window(count, hour, 6, true), true),
        4 => (leaky_bucket((count, hour), count, 0, 0), true),
        _ => (token_bucket(count * 2, SECOND, count), false),
    };
    // The permits in hand at the end are not used. In a short time they would be a large share of a bucket.
    let time = if at_once { time } else { time * 4 };
    let load = Load {
        gateways: random.u64(2..=3),
        tasks: random.u64(4..=24),
        pause: Duration::from_micros(random.choice([0, 500, 2000]).unwrap()),
        time,
        spared: u64::MAX,
    };
    let limit = leased(rule.clone(), LeaseSetting::Auto, &format!("trial-{seed}"));
    let outcome = press(server, &limit, load);
    let many = outcome.admitted.len() as f64;
    let (most, burst) = match at_once {
        // The bucket of an hour gets a few units back meanwhile.
        true if matches!(rule.1, Rule::LeakyBucket(_)) => {
            let back = time.as_secs_f64() * count as f64 / 3600.0;
            (count as f64 + back.ceil() + 1.0, count as f64)
        }
        true => (count as f64, count as f64),
        false => {
            let (per_second, burst) = ((count * 2) as f64, count as f64);
            let took = *outcome.admitted.last().unwrap() - outcome.admitted[0];
            // An answer may be on its way for as long as the machine is busy.
            let slack = per_second * 0.02 + 1.0;
            let full = fullest(&outcome.admitted, per_second);
            assert!(full <= burst + slack, "{seed}: {full} in {burst}");
            (
                burst + per_second * took.as_secs_f64() + slack,
                burst + per_second * time.as_secs_f64(),
            )
        }
    };
    assert!(many <= most, "{seed}: {many} of {most}: {load:?} {rule:?}");
    // Fewer units may have been asked for than there were.
    let wanted = burst.min(outcome.requests as f64);
    let used = many / wanted;
    println!(
        "{seed}: {}, {} gateways, {} tasks, {many} of {wanted} ({used:.3}), {} requests, {} calls",
        limit.kind, load.gateways, load.tasks, outcome.requests, outcome.calls
    );
    // If the requests ask for hardly more units than there are, one gateway sometimes has permits in hand that another
    // lacks.
    let least = if outcome.requests as f64 > wanted * 1.5 {
        0.95
    } else {
        0.85
    };
    assert!(used >= least, "{seed}: {used}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateways_with_permits_in_hand_never_exceed_the_limit_and_use_it() {
    let server = Redis::start().await;
    let trials = if long() { 50 } else { 3 };
    for seed in 0..trials {
        trial(&server, seed);
    }
}

/// Rules of hot keys: three kinds with plenty of room, and one with less room than the requests ask for.
fn hot() -> [(&'static str, (Rate, Rule)); 4] {
    [
        ("bucket", token_bucket(2_000_000, SECOND, 2_000_000)),
        ("full", token_bucket(2000, SECOND, 2000)),
        ("window", fixed_window(100_000_000, 3600 * SECOND)),
        ("sliding", sliding_window(2_000_000, 2 * SECOND, 4, false)),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_finds_a_permit_of_a_hot_key_asks_nobody() {
    let server = Redis::start().await;
    let load = Load {
        gateways: 2,
        tasks: 16,
        pause: Duration::ZERO,
        time: Duration::from_secs(60),
        spared: 150,
    };
    for (name, rule) in hot() {
        let limit = leased(rule, LeaseSetting::Auto, name);
        let outcome = press(&server, &limit, load);
        let (requests, spared, calls) = (outcome.requests, outcome.spared, outcome.calls);
        let told = format!("{name}: {requests} requests, {spared} spared, {calls} calls");
        assert!(spared >= 2 * 16 * 150, "{told}");
        // A call is made only for a request that found no permit.
        assert!(calls <= requests - spared, "{told}");
    }
}
