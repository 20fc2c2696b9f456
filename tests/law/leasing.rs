//! Permits in hand: several gateways on one hot key, never more than the limit, nearly all of it, with few calls.

use super::numbers::{
    SECOND, clock_window, fixed_window, leaky_bucket, limit, sliding_window, token_bucket,
};
use super::sparing::gateway;
use super::under_test::{admitted, connect};
use crate::support::{Redis, long};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use tollgate::clock;
use tollgate::limit::rate::Rate;
use tollgate::limit::{LeaseSetting, Limit, Rule};
use tollgate::store::{Check, Decider, SharedStore, Store};

const KEY: &[u8] = b"hot";

/// How hard each gateway is pressed.
#[derive(Debug, Clone, Copy)]
struct Load {
    gateways: u64,
    tasks: u64,
    /// Between a task's requests, at most.
    pause: Duration,
    /// Instead: how far apart they come, at random instants.
    every: Duration,
    time: Duration,
    /// Each task ends when it was spared a call so often.
    spared: u64,
    /// Or after so many requests, or when so many in a row have taken no call of their gateway's.
    requests: u64,
    run: u64,
}

/// What came of it.
#[derive(Debug, Default)]
struct Outcome {
    /// When requests were admitted, from the beginning on.
    admitted: Vec<Duration>,
    requests: u64,
    /// Those of them for which a permit was in hand, or a refusal remembered.
    spared: u64,
    calls: u64,
    /// Most requests in a row without a call: the least of all gateways.
    run: u64,
}

/// How many requests in a row one gateway has decided without having called meanwhile.
#[derive(Debug, Default)]
pub(super) struct Runs {
    calls: Cell<u64>,
    run: Cell<u64>,
    pub(super) longest: Cell<u64>,
}

impl Runs {
    pub(super) fn decided(&self, store: &Store) {
        let Store::Shared(SharedStore { redis: shared, .. }) = store else {
            panic!("it was made so");
        };
        let calls = shared.stats().calls.get();
        let goes_on = self.calls.replace(calls) == calls;
        self.run.set(if goes_on { self.run.get() + 1 } else { 1 });
        self.longest.set(self.longest.get().max(self.run.get()));
    }
}

/// Runs so many gateways, each on a thread of its own, as gateways are.
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

/// All gateways press one key.
fn press(server: &Redis, limit: &Arc<Limit>, load: Load) -> Outcome {
    let begun = Instant::now();
    let one = async |seed: u64| {
        let (store, runs) = (gateway(connect(server).await), Rc::<Runs>::default());
        let ask = |task| {
            ask(
                store.clone(),
                Arc::clone(limit),
                (begun, load, Rc::clone(&runs)),
                seed * 100 + task,
            )
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
        outcome.run = runs.longest.get();
        store.settle().await;
        outcome
    };
    let mut all = Outcome {
        run: u64::MAX,
        ..Outcome::default()
    };
    for outcome in on_threads(load.gateways, one) {
        all.run = all.run.min(outcome.run);
        all.add(outcome);
    }
    all.admitted.sort();
    all
}

async fn ask(
    store: Store,
    limit: Arc<Limit>,
    (begun, load, runs): (Instant, Load, Rc<Runs>),
    seed: u64,
) -> Outcome {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut outcome = Outcome::default();
    // All connect first.
    let mut next = begun + Duration::from_millis(100);
    tokio::time::sleep_until(next.into()).await;
    while outcome.spared < load.spared
        && outcome.requests < load.requests
        && runs.longest.get() < load.run
        && begun.elapsed() < load.time + Duration::from_millis(100)
    {
        let (decided, by) = store.decide(&[Check::new(&limit, KEY)]).await.unwrap();
        outcome.requests += 1;
        runs.decided(&store);
        outcome.spared += u64::from(matches!(by, Decider::Lease | Decider::Remembered));
        if admitted(&decided.unwrap()) {
            outcome.admitted.push(begun.elapsed());
        }
        if !load.every.is_zero() {
            next += load.every.mul_f64(-random.f64().max(f64::EPSILON).ln());
            tokio::time::sleep_until(next.into()).await;
        } else if !load.pause.is_zero() {
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

/// The fullest that a bucket of this rate has been, in units.
fn fullest(admitted: &[Duration], per_second: f64) -> f64 {
    let (mut level, mut fullest, mut last) = (0_f64, 0_f64, Duration::ZERO);
    for at in admitted {
        level = (level - (*at - last).as_secs_f64() * per_second).max(0.0) + 1.0;
        fullest = fullest.max(level);
        last = *at;
    }
    fullest
}

/// One trial with numbers of its own: the limit is not exceeded, and used where it is asked for.
fn trial(server: &Redis, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let count = random.u32(1000..8000);
    let time = Duration::from_millis(random.u64(300..700));
    let hour = 3600 * SECOND;
    // Units and period; whether all of it is there at once.
    let (rule, at_once) = match random.u8(..8) {
        0 => (fixed_window(count, hour), true),
        1 => (clock_window(count, 24 * hour, hour), true),
        2 => (sliding_window(count, hour, 1, false), true),
        3 => (sliding_window(count, hour, 6, true), true),
        4 => (leaky_bucket((count, hour), count, 0, 0), true),
        _ => (token_bucket(count * 2, SECOND, count), false),
    };
    // What is in hand at the end is not used: of a bucket that would be a share of the time.
    let time = if at_once { time } else { time * 4 };
    let load = Load {
        gateways: random.u64(2..=3),
        tasks: random.u64(4..=24),
        pause: Duration::from_micros(random.choice([0, 500, 2000]).unwrap()),
        every: Duration::ZERO,
        time,
        spared: u64::MAX,
        requests: u64::MAX,
        run: u64::MAX,
    };
    let limit = leased(rule.clone(), LeaseSetting::Auto, &format!("trial-{seed}"));
    let outcome = press(server, &limit, load);
    let many = outcome.admitted.len() as f64;
    let (most, burst) = match at_once {
        // A bucket's hour brings a few back meanwhile.
        true if matches!(rule.1, Rule::LeakyBucket(_)) => {
            let back = time.as_secs_f64() * f64::from(count) / 3600.0;
            (f64::from(count) + back.ceil() + 1.0, f64::from(count))
        }
        true => (f64::from(count), f64::from(count)),
        false => {
            let (per_second, burst) = (f64::from(count * 2), f64::from(count));
            let took = *outcome.admitted.last().unwrap() - outcome.admitted[0];
            // An answer may lie on its way for as long as the machine is busy.
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
    // What was asked for may have been less than there was.
    let wanted = burst.min(outcome.requests as f64);
    let used = many / wanted;
    println!(
        "{seed}: {}, {} gateways, {} tasks, {many} of {wanted} ({used:.3}), {} requests, {} calls",
        limit.kind, load.gateways, load.tasks, outcome.requests, outcome.calls
    );
    // Asked for hardly more than there is, now and then, somebody has in hand what another lacks.
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
    let trials = if long() { 50 } else { 8 };
    for seed in 0..trials {
        trial(&server, seed);
    }
}

/// Rules of hot keys: plenty of three kinds, and one of which there is less than is asked for.
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
        every: Duration::ZERO,
        time: Duration::from_secs(60),
        spared: 150,
        requests: u64::MAX,
        run: u64::MAX,
    };
    for (name, rule) in hot() {
        let limit = leased(rule, LeaseSetting::Auto, name);
        let outcome = press(&server, &limit, load);
        let (requests, spared, calls) = (outcome.requests, outcome.spared, outcome.calls);
        let told = format!("{name}: {requests} requests, {spared} spared, {calls} calls");
        assert!(spared >= 2 * 16 * 150, "{told}");
        // A call is somebody's who found none.
        assert!(calls <= requests - spared, "{told}");
    }
}

/// A tenth of the calls: so many times as many requests as can be under way at once are decided by one. What always asks
/// calls for no more than those. How many come while permits last is the machine's speed: once it must be so.
pub(super) const TIMES: u64 = 10;
/// Of each task at most until that.
pub(super) const TRIES: u64 = 50_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hot_key_takes_a_tenth_of_the_calls() {
    let server = Redis::start().await;
    let load = Load {
        gateways: 2,
        tasks: 16,
        pause: Duration::ZERO,
        every: Duration::ZERO,
        time: Duration::from_secs(3600),
        spared: u64::MAX,
        requests: TRIES,
        run: 16 * TIMES,
    };
    // Of what is full refusals are remembered, with permits or without.
    for (name, rule) in hot().into_iter().filter(|(name, _)| *name != "full") {
        let limit = leased(rule, LeaseSetting::Auto, name);
        let outcome = press(&server, &limit, load);
        let (requests, run) = (outcome.requests, outcome.run);
        println!("{name}: {run} in a row of {requests} requests");
        assert!(run >= load.run, "{name}: {run} in a row of {requests}");
    }
}

/// What is admitted of a demand that is so many times the rate, without leases and with them. Where a busy machine did not
/// ask as often the second time, the first counts for as much less.
fn used(server: &Redis, (name, rule): (&str, &(Rate, Rule)), demand: f64) -> (f64, f64) {
    let (gateways, tasks) = (3, 8);
    let per_second = f64::from(rule.0.count.get()) * 1e6 / rule.0.period.get() as f64;
    let load = Load {
        gateways,
        tasks,
        pause: Duration::ZERO,
        every: Duration::from_secs_f64((gateways * tasks) as f64 / (per_second * demand)),
        time: Duration::from_millis(if long() { 4000 } else { 1500 }),
        spared: u64::MAX,
        requests: u64::MAX,
        run: u64::MAX,
    };
    let [without, with] = [LeaseSetting::Off, LeaseSetting::Auto].map(|leasing| {
        let limit = leased(rule.clone(), leasing, &format!("{name}-{demand}-{leasing}"));
        // Parts of sliding windows begin with the second: both see as many.
        let past = clock::wall().micros() % SECOND;
        thread::sleep(Duration::from_micros(SECOND + SECOND / 2 - past));
        press(server, &limit, load)
    });
    let (off, auto) = (without.admitted.len(), with.admitted.len());
    println!(
        "{name} at {demand}: {off} of {} with {} calls without leases, {auto} of {} with {} calls with them: {:.3}",
        without.requests,
        without.calls,
        with.requests,
        with.calls,
        auto as f64 / off as f64
    );
    let asked = (with.requests as f64 / without.requests as f64).min(1.0);
    (off as f64 * asked, auto as f64)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_used_of_a_limit_is_what_always_asking_uses() {
    let server = Redis::start().await;
    let rules = [
        ("bucket", token_bucket(3000, SECOND, 3000)),
        ("small", token_bucket(3000, SECOND, 1000)),
        ("meter", leaky_bucket((3000, SECOND), 3000, 0, 0)),
        ("fixed", fixed_window(3000, SECOND)),
        ("clock", clock_window(3000, SECOND, 0)),
        ("sliding", sliding_window(3000, SECOND, 1, false)),
        ("parts", sliding_window(3000, SECOND, 5, false)),
        ("strict", sliding_window(3000, SECOND, 5, true)),
    ];
    // The long form is a table of all; where it is least is near the limit, and where parts trickle.
    let (rules, demands): (&[_], &[f64]) = match long() {
        true => (&rules, &[0.5, 0.9, 1.0, 1.2, 3.0, 10.0]),
        false => (&rules[5..7], &[1.0]),
    };
    for (name, rule) in rules {
        for demand in demands {
            let (off, auto) = used(&server, (name, rule), *demand);
            assert!(auto >= off * 0.95, "{name} at {demand}: {auto} of {off}");
        }
    }
}
