//! What a call costs the server. Run by hand: `cargo test --release figures -- --ignored --nocapture`.

use super::support::{Server, fixed_window, leaky_bucket, limit, token_bucket};
use crate::limit::Limit;
use crate::store::redis::question::{self, Question};
use crate::store::redis::script::DECIDE;
use std::sync::Arc;

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
