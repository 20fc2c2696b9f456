//! What a call costs the server. Run by hand: `cargo test --release figures -- --ignored --nocapture`.

use super::support::{Server, fixed_window, leaky_bucket, limit, token_bucket};
use crate::limit::Limit;
use crate::store::batch::Check;
use crate::store::redis::question::{self, Question};
use crate::store::redis::script::DECIDE;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn question(limits: &[&Arc<Limit>], random: &mut fastrand::Rng) -> Question {
    let mut question = Question::default();
    for limit in limits {
        let prefix = format!("tollgate:1:{}:{}:{{", limit.name, limit.rule.kind());
        let key = format!("10.0.{}", random.u32(..1000));
        question.push(prefix.as_bytes(), key.as_bytes(), &limit.block);
    }
    question
}

#[test]
#[ignore = "a measurement"]
fn microseconds_per_call() {
    let server = Server::start();
    let mut client = server.client();
    client.many(vec![DECIDE.load()]);
    let mut random = fastrand::Rng::with_seed(1);
    let tokens = limit("tokens", token_bucket(1_000_000, 1_000_000, 1_000_000));
    let smooth = limit(
        "smooth",
        leaky_bucket(1_000_000, 1_000_000, 1, 1_000_000, 9_000_000),
    );
    let window = limit("window", fixed_window(4_000_000_000, 60_000_000));
    let odd = limit("odd", token_bucket(7_000_001, 1_000_000, 1_000_000));
    let none = limit("none", token_bucket(1, 86_400_000_000, 1));
    let cases: [(&str, &[&Arc<Limit>], usize); 9] = [
        ("token bucket", &[&tokens], 1),
        ("with a fraction", &[&odd], 1),
        ("leaky bucket", &[&smooth], 1),
        ("fixed window", &[&window], 1),
        ("refused", &[&none], 1),
        ("three limits", &[&tokens, &smooth, &window], 1),
        ("16 requests", &[&tokens], 16),
        ("16 of three limits", &[&tokens, &smooth, &window], 16),
        ("64 requests", &[&tokens], 64),
    ];
    for (name, limits, requests) in cases {
        let mut seen: Vec<f64> = (0..7)
            .map(|_| {
                let before = client.script_calls();
                for _ in 0..40 {
                    let calls = (0..64_usize.div_ceil(requests))
                        .map(|_| {
                            let all: Vec<_> = (0..requests)
                                .map(|_| question(limits, &mut random))
                                .collect();
                            question::decide(None, all.iter())
                        })
                        .collect();
                    client.many(calls);
                }
                let after = client.script_calls();
                (after.1 - before.1) as f64 / (after.0 - before.0) as f64
            })
            .collect();
        seen.sort_by(f64::total_cmp);
        println!(
            "{name}: {:.1} us a call ({:.1}), {:.2} us a request",
            seen[3],
            seen[0],
            seen[3] / requests as f64
        );
    }
}

/// This thread's time on a processor, in microseconds.
fn cpu() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse::<f64>().unwrap() / 1000.0
}

async fn tasks_decide(server: &Server, many: usize, limits: &[Arc<Limit>]) {
    let store = server.store().await;
    let mut client = server.client();
    let (before, cpu_before, begun) = (client.script_calls(), cpu(), Instant::now());
    let tasks: Vec<_> = (0..many)
        .map(|task| {
            let (store, limits) = (store.clone(), limits.to_vec());
            tokio::task::spawn_local(async move {
                let key = format!("10.0.0.{task}");
                while begun.elapsed() < Duration::from_millis(1500) {
                    let checks: Vec<_> = limits
                        .iter()
                        .map(|l| Check::new(l, key.as_bytes()))
                        .collect();
                    store.decide(&checks).await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let (took, spent, after) = (begun.elapsed(), cpu() - cpu_before, client.script_calls());
    let decisions = store.stats().decisions.get() as f64;
    println!(
        "{many} tasks, {} limits: {:.0} decisions/s, {:.1} a call, {:.2} us here and {:.2} us there for each",
        limits.len(),
        decisions / took.as_secs_f64(),
        decisions / (after.0 - before.0) as f64,
        spent / decisions,
        (after.1 - before.1) as f64 / decisions,
    );
}

#[tokio::test(flavor = "local")]
#[ignore = "a measurement"]
async fn cost_of_a_decision() {
    let server = Server::start();
    let limits = [
        limit("tokens", token_bucket(1_000_000, 1_000_000, 1_000_000)),
        limit(
            "smooth",
            leaky_bucket(1_000_000, 1_000_000, 1, 1_000_000, 9_000_000),
        ),
        limit("window", fixed_window(4_000_000_000, 60_000_000)),
    ];
    for many in [1, 16, 64, 256] {
        tasks_decide(&server, many, &limits[..1]).await;
    }
    tasks_decide(&server, 64, &limits).await;
}
