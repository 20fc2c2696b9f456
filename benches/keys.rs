//! The memory and the time that a live key of the memory store takes: `cargo bench --bench keys`, or with `KEYS` the
//! number of keys.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a measurement says by stopping where the world was not as it must be"
)]

use std::env;
use std::num::{NonZeroU32, NonZeroU64};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tollgate::clock::Clock;
use tollgate::key::{KeyCase, KeyTemplate, MissingKey};
use tollgate::limit::fixed_window::FixedWindow;
use tollgate::limit::leaky_bucket::LeakyBucket;
use tollgate::limit::rate::Rate;
use tollgate::limit::sliding_log::SlidingLog;
use tollgate::limit::sliding_window::SlidingWindow;
use tollgate::limit::token_bucket::TokenBucket;
use tollgate::limit::{Limit, Policy, Rule};
use tollgate::store::{Check, MemoryStore};

/// The gateway's allocator: what it rounds up, keys pay for.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const HOUR: u64 = 3_600_000_000;
/// The name of an algorithm whose store a process of its own measures.
const ALGORITHM: &str = "ALGORITHM";
/// Decisions by keys in random order, in each round.
const DECISIONS: usize = 1_000_000;
/// Rounds, of which the best is reported.
const ROUNDS: usize = 5;

/// The forms of a key.
const FORMS: [&str; 3] = ["12 letters", "a digest", "36 letters"];

fn main() {
    let keys = env::var("KEYS").map_or(796_000, |keys| keys.parse().unwrap());
    if let Ok(name) = env::var(ALGORITHM) {
        let (_, rule) = rules().into_iter().find(|(of, _)| *of == name).unwrap();
        let form = env::var("FORM").unwrap();
        return measure(&limit(rule), &form, keys);
    }
    println!("{keys} live keys:");
    for (index, (name, _)) in rules().into_iter().enumerate() {
        for form in FORMS.iter().take(if index == 0 { FORMS.len() } else { 1 }) {
            print!("{name:<16} {form:<12} ");
            let mut own = Command::new(env::current_exe().unwrap());
            own.env(ALGORITHM, name).env("FORM", form);
            assert!(own.status().unwrap().success());
        }
    }
}

fn measure(limit: &Arc<Limit>, form: &str, keys: usize) {
    let store = MemoryStore::new(Clock::system(), usize::MAX);
    let before = resident();
    for key in 0..keys {
        ask(&store, limit, &written(form, key));
    }
    settle();
    let bytes = (resident() - before) as f64 / keys as f64;
    assert_eq!(store.len(), keys);
    let (many, few) = (
        nanos(&store, limit, form, keys),
        nanos(&store, limit, form, 1000),
    );
    println!("{bytes:>6.1} bytes a key, {many:>5.0} ns a decision, {few:>5.0} ns among 1000 keys");
}

fn ask(store: &MemoryStore, limit: &Arc<Limit>, key: &[u8]) {
    std::hint::black_box(store.decide(&[Check::new(limit, key)]));
}

/// The time of a decision, the writing of its key included.
fn nanos(store: &MemoryStore, limit: &Arc<Limit>, form: &str, keys: usize) -> f64 {
    let mut random = fastrand::Rng::with_seed(7);
    let order: Vec<Vec<u8>> = (0..DECISIONS / 4)
        .map(|_| written(form, random.usize(..keys)))
        .collect();
    let mut best = f64::MAX;
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        order.iter().for_each(|key| ask(store, limit, key));
        best = best.min(begun.elapsed().as_nanos() as f64 / order.len() as f64);
    }
    best
}

fn written(form: &str, key: usize) -> Vec<u8> {
    match form {
        "12 letters" => format!("key-{key:08}").into_bytes(),
        "36 letters" => format!("0f0e0d0c-0000-4000-8000-{key:012x}").into_bytes(),
        _ => {
            let digest = (key as u128).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
            format!("%sha={digest:032x}").into_bytes()
        }
    }
}

/// Rules that never refuse here, with states that outlive the measurement.
fn rules() -> [(&'static str, Rule); 5] {
    let rate = Rate {
        count: NonZeroU32::new(100_000).unwrap().into(),
        period: NonZeroU64::new(HOUR).unwrap(),
    };
    let max = rate.count;
    let leaky = LeakyBucket::new(rate, NonZeroU64::MIN, 100_000, HOUR);
    let window = SlidingWindow::new(rate, NonZeroU32::MIN, false);
    [
        (
            "token-bucket",
            Rule::TokenBucket(TokenBucket::new(rate, max)),
        ),
        ("leaky-bucket", Rule::LeakyBucket(leaky)),
        ("fixed-window", Rule::FixedWindow(FixedWindow::new(rate))),
        ("sliding-window", Rule::SlidingWindow(window)),
        ("sliding-log", Rule::SlidingLog(SlidingLog::new(rate))),
    ]
}

fn limit(rule: Rule) -> Arc<Limit> {
    let rate = Rate {
        count: NonZeroU32::new(100_000).unwrap().into(),
        period: NonZeroU64::new(HOUR).unwrap(),
    };
    let by = KeyTemplate {
        parts: Vec::new(),
        missing: MissingKey::Refuse,
        unknown: None,
        case: KeyCase::Sensitive,
    };
    Arc::new(Limit::new(Policy::new("keys".into(), by, rate), rule))
}

/// Lets the allocator give back what it has kept of smaller tables, as it does while a gateway serves requests.
fn settle() {
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(100));
        let some: Vec<Box<[u8]>> = (0..2000).map(|_| vec![1; 512].into()).collect();
        drop(std::hint::black_box(some));
    }
}

/// The process's resident memory, in bytes.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = text.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}
