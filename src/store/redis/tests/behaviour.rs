//! The effects of a decision on the store, and its cost in calls.

use super::support::{Client, Server, fixed_window, leaky_bucket, limit, token_bucket};
use crate::clock::Timestamp;
use crate::limit::rate::Cost;
use crate::limit::verdict::{Ruling, Wait};
use crate::limit::{Limit, wire};
use crate::store::RedisEndpoint;
use crate::store::check::Check;
use crate::store::decision::StoreDecision;
use crate::store::error::StoreError;
use crate::store::redis::RedisStore;
use crate::store::redis::wire::question::{self, Question};
use crate::store::reservation::Amendment;
use crate::store::settings::RedisTarget;
use bb8_redis::redis::Value;
use std::sync::Arc;
use std::time::{Duration, Instant};

const NOW: Timestamp = Timestamp::from_micros(1_790_000_000_000_000);

fn admitted(decided: &StoreDecision) -> bool {
    matches!(decided.decision.ruling, Ruling::Admit { .. })
}

fn with_cost<'a>(limit: &'a Arc<Limit>, key: &'a [u8], cost: u64) -> Check<'a> {
    Check {
        cost: Cost::new(cost),
        ..Check::new(limit, key)
    }
}

fn set(client: &mut Client, key: &str, value: &[u8]) {
    client.raw(&[b"SET", key.as_bytes(), value]);
}

#[tokio::test(flavor = "local")]
async fn a_burst_is_admitted_and_then_the_wait_is_exact() {
    let server = Server::start();
    let store = server.patient_store().await;
    let limit = limit("slow", token_bucket(1, 1_000_000, 3));
    for left in [2, 1, 0] {
        let decided = store.at(NOW).decide(&[Check::new(&limit, b"a")]).await;
        let decided = decided.unwrap();
        assert!(admitted(&decided));
        assert_eq!(decided.decision.verdicts[0].remaining, left);
        assert_eq!(decided.decision.at, NOW);
    }
    let later = NOW.plus(400_000);
    let decided = store.at(later).decide(&[Check::new(&limit, b"a")]).await;
    let wait = Wait::Micros(600_000);
    let ruling = Ruling::Refuse { by: 0, wait };
    assert_eq!(decided.unwrap().decision.ruling, ruling);
    let other = store.at(later).decide(&[Check::new(&limit, b"b")]).await;
    assert!(admitted(&other.unwrap()));
}

#[tokio::test(flavor = "local")]
async fn the_servers_clock_decides() {
    let server = Server::start();
    let store = server.patient_store().await;
    let limit = limit("any", token_bucket(1, 1_000_000, 3));
    let before = crate::clock::wall();
    let decided = store.decide(&[Check::new(&limit, b"a")]).await.unwrap();
    let after = crate::clock::wall();
    assert!(before <= decided.decision.at && decided.decision.at <= after);
}

#[tokio::test(flavor = "local")]
async fn a_refused_request_changes_no_byte() {
    let server = Server::start();
    let store = server.patient_store().await;
    let mut client = server.client();
    let wide = limit("wide", token_bucket(100, 1_000_000, 100));
    let queue = limit("queue", leaky_bucket(7, 3_000_000, 1, 50, 9_000_000));
    let narrow = limit("narrow", fixed_window(2, 60_000_000));
    let all = [
        Check::new(&wide, b"a"),
        Check::new(&queue, b"a"),
        Check::new(&narrow, b"a"),
    ];
    for _ in 0..2 {
        assert!(admitted(&store.at(NOW).decide(&all).await.unwrap()));
    }
    let before = client.dump();
    assert_eq!(before.len(), 3);
    for _ in 0..20 {
        let refused = store.at(NOW).decide(&all).await.unwrap().decision;
        assert!(matches!(refused.ruling, Ruling::Refuse { by: 2, .. }));
        assert_eq!(refused.verdicts.len(), 3);
    }
    assert_eq!(client.dump(), before);
}

#[tokio::test(flavor = "local")]
async fn a_foreign_key_spoils_its_own_request_and_no_other() {
    let server = Server::start();
    let store = server.patient_store().await;
    let mut client = server.client();
    let limit = limit("per-key", token_bucket(1, 60_000_000, 5));
    let wide = super::support::limit("wide", fixed_window(100, 60_000_000));
    client.say("RPUSH tollgate:1:per-key:tb:{bad} x");
    let before = client.dump();

    let good = [Check::new(&wide, b"good"), Check::new(&limit, b"good")];
    let bad = [Check::new(&wide, b"bad"), Check::new(&limit, b"bad")];
    let lone = [Check::new(&limit, b"bad")];
    // The first decision is sent alone, the second on the other lane; the rest share a call.
    let (a, b, c, d, e) = tokio::join!(
        store.decide(&good),
        store.decide(&bad),
        store.decide(&good),
        store.decide(&lone),
        store.decide(&good),
    );
    for answer in [a, c, e] {
        assert!(admitted(&answer.unwrap()));
    }
    for answer in [b, d] {
        let Err(StoreError::Answer { limit, reason }) = answer else {
            panic!("{answer:?}");
        };
        assert_eq!(&*limit, "per-key");
        assert!(reason.contains("WRONGTYPE"), "{reason}");
    }
    assert!(store.is_up());
    let mut after = client.dump();
    after.retain(|(key, _)| !key.ends_with(b"{good}"));
    assert_eq!(after, before, "nothing was written for the bad one");
    assert_eq!(store.stats().errors.get(), 2);
}

#[tokio::test(flavor = "local")]
async fn foreign_bytes_are_no_state_and_are_overwritten() {
    let server = Server::start();
    let store = server.patient_store().await;
    let mut client = server.client();
    let limit = limit("per-key", token_bucket(1, 60_000_000, 5));
    for foreign in [
        b"".as_slice(),
        b"7",
        b"\xff\xff\xff\xff\xff\xff\xff\xff",
        b"1234567890123456",
    ] {
        set(&mut client, "tollgate:1:per-key:tb:{a}", foreign);
        let decided = store.decide(&[Check::new(&limit, b"a")]).await.unwrap();
        assert_eq!(decided.decision.verdicts[0].remaining, 4, "{foreign:?}");
    }
}

#[tokio::test(flavor = "local")]
async fn every_write_has_a_life_and_the_key_is_gone_after_it() {
    let server = Server::start();
    let store = server.patient_store().await;
    let mut client = server.client();
    let limits = [
        limit("tokens", token_bucket(10, 1_000_000, 10)),
        limit("smooth", leaky_bucket(10, 1_000_000, 1, 5, 1_000_000)),
        limit("window", fixed_window(10, 100_000)),
        // A life of a hundred nanoseconds is rounded up to a millisecond, never down to zero.
        limit("fast", token_bucket(10_000_000, 1_000_000, 10)),
    ];
    for (limit, most) in limits.iter().zip([100, 100, 100, 1]) {
        let key = format!("tollgate:1:{}:{}:{{a}}", limit.name, limit.rule.kind());
        let decided = store.decide(&[Check::new(limit, b"a")]).await.unwrap();
        assert!(admitted(&decided));
        let Value::Int(life) = client.say(&format!("PTTL {key}")) else {
            panic!("PTTL answers a number");
        };
        assert!(
            life <= most && (life > 0 || most == 1),
            "{}: {life}",
            limit.name
        );
    }
    tokio::time::sleep(Duration::from_millis(120)).await;
    assert!(client.dump().is_empty());
}

#[tokio::test(flavor = "local")]
async fn a_batch_equals_its_sequence_also_on_one_key() {
    let server = Server::start();
    drop(server.patient_store().await);
    let mut client = server.client();
    let tokens = limit("tokens", token_bucket(7, 3_000_000, 6));
    let window = limit("window", fixed_window(4, 1_000_000));
    let mut random = fastrand::Rng::with_seed(7);
    let questions: Vec<Question> = (0..64)
        .map(|_| {
            let mut question = Question::default();
            for limit in [&tokens, &window].into_iter().take(random.usize(1..3)) {
                let cost = Cost::new(random.u64(0..3));
                let block = wire::block(&limit.rule, cost);
                let prefix = format!("PLACE{}{{", limit.name);
                let key: &[u8] = [b"one".as_slice(), b"one", b"two"][random.usize(..3)];
                question.push(prefix.as_bytes(), key, &block);
            }
            question
        })
        .collect();
    let together = client.many(vec![question::decide(Some(NOW), questions.iter())]);
    let stored = client.dump();
    client.say("FLUSHALL");
    let single_questions = questions
        .iter()
        .map(|question| question::decide(Some(NOW), std::iter::once(question)))
        .collect();
    let mut sequence = Vec::new();
    for value in client.many(single_questions) {
        let Value::BulkString(bytes) = value else {
            panic!("{value:?}");
        };
        if sequence.is_empty() {
            sequence.extend(bytes)
        } else {
            sequence.extend(&bytes[8..])
        }
    }
    assert_eq!(together, vec![Value::BulkString(sequence)]);
    assert_eq!(client.dump(), stored);
}

#[tokio::test(flavor = "local")]
async fn a_refund_restores_what_a_peek_saw() {
    let server = Server::start();
    let store = server.patient_store().await;
    let limits = [
        limit("tokens", token_bucket(7, 3_000_000, 6)),
        limit("smooth", leaky_bucket(7, 3_000_000, 1, 50, 60_000_000)),
        limit("window", fixed_window(10, 60_000_000)),
    ];
    let peek: Vec<_> = limits.iter().map(|l| with_cost(l, b"a", 0)).collect();
    let take: Vec<_> = limits.iter().map(|l| with_cost(l, b"a", 3)).collect();
    store.at(NOW).decide(&take[..]).await.unwrap();
    let before = store.at(NOW).decide(&peek).await.unwrap();
    let granted = store.at(NOW).decide(&take).await.unwrap();
    assert!(admitted(&granted));
    assert_ne!(store.at(NOW).decide(&peek).await.unwrap(), before);
    for (index, check) in take.iter().enumerate() {
        let charge = granted.reservation(index, check).unwrap();
        store.at(NOW).amend(&charge, Amendment::Cancellation);
    }
    store.settle().await;
    assert_eq!(store.stats().refunds.get(), 3);
    assert_eq!(store.at(NOW).decide(&peek).await.unwrap(), before);
}

#[tokio::test(flavor = "local")]
async fn a_lone_request_is_one_call() {
    let server = Server::start();
    let store = server.patient_store().await;
    let mut client = server.client();
    let limits = [
        limit("one", token_bucket(10, 1_000_000, 10)),
        limit("two", fixed_window(10, 1_000_000)),
        limit("three", leaky_bucket(10, 1_000_000, 10, 5, 1_000_000)),
    ];
    let (before, _) = client.script_calls();
    for _ in 0..5 {
        let checks: Vec<_> = limits.iter().map(|l| Check::new(l, b"a")).collect();
        store.decide(&checks).await.unwrap();
    }
    assert_eq!(client.script_calls().0 - before, 5);
    let stats = store.stats();
    assert_eq!((stats.decisions.get(), stats.calls.get()), (5, 5));
}

#[tokio::test(flavor = "local")]
async fn what_waits_goes_together() {
    let server = Server::start();
    let store = server.patient_store().await;
    let mut client = server.client();
    let limit = limit("one", token_bucket(1, 60_000_000, 100));
    let (before, _) = client.script_calls();
    for _ in 0..10 {
        let tasks: Vec<_> = (0..64)
            .map(|_| {
                let (store, limit) = (store.clone(), limit.clone());
                tokio::task::spawn_local(async move {
                    let decided = store.decide(&[Check::new(&limit, b"a")]).await.unwrap();
                    usize::from(admitted(&decided))
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    }
    let calls = client.script_calls().0 - before;
    assert!(calls <= 40, "{calls} calls for 640 decisions");
    let stats = store.stats();
    assert_eq!((stats.decisions.get(), stats.calls.get()), (640, calls));
}

#[tokio::test(flavor = "local")]
async fn many_tasks_on_one_key_never_pass_the_limit() {
    let server = Server::start();
    let store = server.patient_store().await;
    let limit = limit("one", token_bucket(100, 1_000_000, 50));
    // The limit is so small that even a busy machine requests more.
    let begun = Instant::now();
    let tasks: Vec<_> = (0..32)
        .map(|_| {
            let (store, limit) = (store.clone(), limit.clone());
            tokio::task::spawn_local(async move {
                let (mut admissions, mut refusals) = (0, 0);
                while begun.elapsed() < Duration::from_millis(500) || refusals == 0 {
                    let decided = store.decide(&[Check::new(&limit, b"a")]).await.unwrap();
                    if admitted(&decided) {
                        admissions += 1
                    } else {
                        refusals += 1
                    }
                }
                admissions
            })
        })
        .collect();
    let mut admissions = 0;
    for task in tasks {
        admissions += task.await.unwrap();
    }
    let most = 50.0 + 100.0 * begun.elapsed().as_secs_f64();
    assert!(f64::from(admissions) <= most, "{admissions} of {most}");
    // Each request was refused by a bucket that was empty then.
    assert!(admissions >= 50, "{admissions} of {most}");
}

#[tokio::test(flavor = "local")]
async fn a_dropped_request_that_was_not_sent_is_not_charged() {
    let server = Server::start();
    let store = server.patient_store().await;
    let limit = limit("one", token_bucket(1, 60_000_000, 5));
    {
        let checks = [Check::new(&limit, b"a")];
        let mut asked = Box::pin(store.decide(&checks));
        assert!(futures_poll_once(asked.as_mut()).is_none());
    }
    let decided = store.decide(&[Check::new(&limit, b"a")]).await.unwrap();
    assert_eq!(decided.decision.verdicts[0].remaining, 4);
}

fn futures_poll_once<F: Future>(future: std::pin::Pin<&mut F>) -> Option<F::Output> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match future.poll(&mut context) {
        std::task::Poll::Ready(output) => Some(output),
        std::task::Poll::Pending => None,
    }
}

#[tokio::test(flavor = "local")]
async fn no_limits_need_no_store() {
    let target = RedisTarget::new(RedisEndpoint::tcp("127.0.0.1", 1));
    let store = RedisStore::new(&target, &Default::default());
    let decided = store.decide(&[]).await.unwrap();
    assert!(admitted(&decided));
}
