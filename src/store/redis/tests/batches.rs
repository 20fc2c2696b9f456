//! A batch equals the same calls in sequence: every reply and every stored byte agree, even with few keys.

use super::editions::editions;
use super::support::{Client, Server, clock_window, limit, token_bucket};
use crate::clock::Timestamp;
use crate::key::RepeatId;
use crate::limit::Limit;
use crate::limit::rate::Cost;
use crate::store::check::Check;
use crate::store::redis::queue::equal_questions;
use crate::store::redis::wire::question::{self, Question};
use crate::store::redis::wire::{layout, script};
use bb8_redis::redis::Value;
use std::sync::Arc;

const NOW: Timestamp = Timestamp::from_micros(1_790_000_000_000_000);
const BATCHES: u64 = 60;

/// A batch about two clients, with limits of all algorithms. Most of it finds states that an earlier request has left.
fn batch(random: &mut fastrand::Rng) -> Vec<Question> {
    let limits = editions();
    let some = random.usize(1..=limits.len());
    let question = |random: &mut fastrand::Rng| {
        let mut names: Vec<usize> = (0..some).collect();
        random.shuffle(&mut names);
        names.truncate([1, 1, 2, 4][random.usize(..4)]);
        let mut question = Question::default();
        for name in names {
            let limit = &limits[name][random.usize(..limits[name].len().min(2))];
            let key: &[u8] = [b"one".as_slice(), b"one", b"one", b"two"][random.usize(..4)];
            let cost = Cost::new([0, 1, 1, 2, 3, 40][random.usize(..6)]);
            let nth = random.u8(..3);
            let id = (nth > 0).then(|| RepeatId::of("POST", "/pay", 1, &[nth]));
            let check = Check {
                limit,
                key,
                cost,
                id,
            };
            question.check(&layout::key_prefix("t", limit), &check, Some(NOW), None);
        }
        question
    };
    let mut batch: Vec<Question> = Vec::new();
    while batch.len() < 64 {
        // Some questions are repeated, at once and later again.
        let seed = random.u64(..);
        let copies = [1, 1, 2, 5, 20][random.usize(..5)];
        for _ in 0..copies {
            let place = match random.bool() {
                true => batch.len(),
                false => random.usize(..=batch.len()),
            };
            batch.insert(place, question(&mut fastrand::Rng::with_seed(seed)));
        }
    }
    batch.truncate(64);
    batch
}

/// The reply to `questions`, each sent in a separate call.
fn sequence(client: &mut Client, questions: &[Question], seed: &str) -> Vec<Vec<u8>> {
    let single_questions = questions
        .iter()
        .map(|question| question::decide(Some(NOW), std::iter::once(question)));
    let each = |value| match value {
        Value::BulkString(bytes) => bytes[8..].to_vec(),
        value => panic!("{seed}: {value:?}"),
    };
    client
        .many(single_questions.collect())
        .into_iter()
        .map(each)
        .collect()
}

/// Compares a batch with its sequence, in replies and in stored bytes. Returns whether anything was stored.
fn compare(client: &mut Client, questions: &[Question], seed: &str) -> bool {
    // Equal questions become adjacent, and have the answers that they would have in the order of their arrival.
    let groups = equal_questions::groups(questions.iter());
    let mut order: Vec<usize> = (0..questions.len()).collect();
    order.sort_by_key(|index| groups[*index]);
    let gathered = order.iter().map(|index| &questions[*index]);
    client.say("FLUSHALL");
    let together = client.many(vec![question::decide(Some(NOW), gathered)]);
    let stored = client.dump();
    client.say("FLUSHALL");
    let sequence = sequence(client, questions, seed);
    let expected = order.iter().flat_map(|index| &sequence[*index]).copied();
    let now = (NOW.micros() as f64).to_be_bytes();
    let expected = now.into_iter().chain(expected).collect();
    assert_eq!(together, vec![Value::BulkString(expected)], "{seed}");
    assert_eq!(client.dump(), stored, "{seed}");
    !stored.is_empty()
}

#[test]
fn a_batch_equals_its_sequence_under_every_algorithm() {
    let seed = fastrand::u64(..);
    let server = Server::start();
    let mut client = server.client();
    for script in script::ALL {
        client.many(vec![script.load()]);
    }
    let mut charging = 0;
    for turn in 0..BATCHES {
        let mut random = fastrand::Rng::with_seed(seed.wrapping_add(turn));
        let case = format!("seed {seed}, turn {turn}");
        // All of a random batch of one small limit may be refused, so that nothing is stored.
        charging += u64::from(compare(&mut client, &batch(&mut random), &case));
    }
    assert!(
        charging > BATCHES / 2,
        "{charging} of {BATCHES} batches stored something, seed {seed}"
    );
}

/// Equal questions that only look at a bucket, and whose answer says when it is empty, are followed by a question about
/// a window. The window's answer once had the bucket's time.
#[test]
fn a_look_at_other_numbers_leaves_nothing_for_the_next_answer() {
    let server = Server::start();
    let mut client = server.client();
    for script in script::ALL {
        client.many(vec![script.load()]);
    }
    let before = limit("tokens", token_bucket(10, 1_000_000, 10));
    let after = limit("tokens", token_bucket(7, 3_000_000, 20));
    let window = limit("window", clock_window(10, 1_000_000, 0));
    let question = |checks: &[(&Arc<Limit>, u64)]| {
        let mut question = Question::default();
        for (limit, cost) in checks {
            let check = Check {
                limit,
                key: b"one",
                cost: Cost::new(*cost),
                id: None,
            };
            question.check(&layout::key_prefix("t", limit), &check, Some(NOW), None);
        }
        question
    };
    let mut questions = vec![question(&[(&before, 5)])];
    questions.extend((0..3).map(|_| question(&[(&after, 0), (&window, 1)])));
    questions.push(question(&[(&window, 1)]));
    assert!(compare(&mut client, &questions, "a look"));
}

/// The number of times that the server read and stored a state for this number of requests in one call.
fn asked_and_stored(requests: u8, key: impl Fn(u8) -> Vec<u8>) -> [u64; 2] {
    let server = Server::start();
    let mut client = server.client();
    for script in script::ALL {
        client.many(vec![script.load()]);
    }
    let limit = &editions()[0][0];
    let questions: Vec<Question> = (0..requests)
        .map(|request| {
            let mut question = Question::default();
            let check = Check {
                limit,
                key: &key(request),
                cost: Cost::ONE,
                id: None,
            };
            question.check(&layout::key_prefix("t", limit), &check, Some(NOW), None);
            question
        })
        .collect();
    client.many(vec![question::decide(Some(NOW), questions.iter())]);
    let said = format!("{:?}", client.say("INFO commandstats"));
    ["get", "set"].map(|command| {
        let calls = said.split(&format!("cmdstat_{command}:calls=")).nth(1);
        let digits = calls.map_or("0", |rest| rest.split(',').next().unwrap_or("0"));
        digits.parse().expect("a count")
    })
}

#[test]
fn one_counter_of_many_requests_is_asked_for_once_and_stored_twice() {
    assert_eq!(asked_and_stored(3, |_| b"hot".to_vec()), [1, 1]);
    assert_eq!(asked_and_stored(2, |_| b"hot".to_vec()), [1, 2]);
    assert_eq!(asked_and_stored(1, |_| b"hot".to_vec()), [1, 1]);
    assert_eq!(asked_and_stored(3, |nth| vec![nth]), [3, 3]);
}
