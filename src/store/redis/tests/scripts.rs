//! The scripts as texts: parsed by a server, with either protocol.

use super::editions::editions;
use super::support::{
    Client, Server, fixed_window, knows_functions, limit, token_bucket, until_up,
};
use crate::clock::Timestamp;
use crate::key::RepeatId;
use crate::limit::rate::Cost;
use crate::limit::wire;
use crate::store::check::Check;
use crate::store::redis::RedisStore;
use crate::store::redis::wire::question::{self, Question};
use crate::store::redis::wire::{layout, script};
use crate::store::{RedisTarget, StoreSettings};
use bb8_redis::redis::{self, Value};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const NOW: Timestamp = Timestamp::from_micros(1_790_000_000_000_000);

#[test]
fn d4_every_script_compiles_under_the_digest_that_it_is_called_by() {
    let server = Server::start();
    let mut client = server.client();
    for script in script::ALL {
        let called = script.call(0, 0).get_packed_command();
        let Value::BulkString(digest) = client.many(vec![script.load()]).remove(0) else {
            panic!("a digest is a text");
        };
        let called = String::from_utf8_lossy(&called).into_owned();
        let digest = String::from_utf8(digest).unwrap();
        assert!(called.contains(&digest), "{digest}");
    }
}

#[test]
fn bt1_no_script_names_what_nobody_has_defined() {
    // A name that does not exist is an error only when it is read, so that every algorithm must have been used once.
    let server = Server::start();
    let mut client = server.client();
    for script in script::ALL {
        client.many(vec![script.load()]);
    }
    for limits in editions() {
        for limit in limits {
            for cost in [0, 1, 2, u64::from(u32::MAX)] {
                let mut question = Question::default();
                let check = Check {
                    limit: &limit,
                    key: b"first",
                    cost: Cost::new(cost),
                    id: Some(RepeatId::of("POST", "/pay", 1, b"id")),
                };
                client.say("FLUSHALL");
                question.check(&layout::key_prefix("t", &limit), &check, Some(NOW), None);
                let command = question::decide(Some(NOW), std::iter::once(&question));
                let Value::BulkString(bytes) = client.many(vec![command]).remove(0) else {
                    panic!("an answer is bytes");
                };
                // 4: the request could not be decided (`failed` in lua/check.lua).
                assert_ne!(
                    bytes[8] & 0x0f,
                    4,
                    "{}: {}",
                    limit.name,
                    bytes.escape_ascii()
                );
            }
        }
    }
}

#[test]
fn bf1_a_refusal_is_as_much_of_an_answer_as_an_admission() {
    let server = Server::start();
    let two = limit("two", token_bucket(2, 1_000_000, 2));
    let mut replies = Vec::new();
    for protocol in ["", "?protocol=resp3"] {
        let url = format!("redis://127.0.0.1:{}/{protocol}", server.port);
        let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
        for script in script::ALL {
            script.load().query::<Value>(&mut connection).unwrap();
        }
        let key = protocol.as_bytes();
        let mut question = Question::default();
        question.push(b"bf1{", key, &wire::block(&two.rule, Cost::ONE));
        for turn in 0..5 {
            let command = question::decide(Some(NOW), std::iter::once(&question));
            let Value::BulkString(bytes) = command.query(&mut connection).unwrap() else {
                panic!("turn {turn} over {protocol:?} is answered by no bytes");
            };
            // The time; a byte for the outcome, then whole and part; of a refusal the wait as well.
            let wait = if bytes[8] & 0x0f == 0 { 0 } else { 8 };
            assert_eq!(bytes.len(), 8 + 1 + 8 + 4 + wait);
            replies.push(bytes);
        }
    }
    let (second, third) = replies.split_at(5);
    assert_eq!(second, third);
    assert_ne!(
        replies[1], replies[2],
        "a refusal is told from an admission"
    );
}

/// An operator flushes the scripts each time. A call whose script is unknown was not run, so that nothing is lost and
/// nothing is counted twice.
#[tokio::test(flavor = "local")]
async fn what_is_forgotten_at_every_turn_is_told_again() {
    const ASKED: u64 = 300;
    let server = Server::start();
    let has_functions = knows_functions(&mut server.client());
    let (over, port) = (Arc::new(AtomicBool::new(false)), server.port);
    let flushing = std::thread::spawn({
        let over = Arc::clone(&over);
        move || {
            let (mut client, mut flushes) = (Client::at(port), 0_u32);
            while !over.load(Ordering::Relaxed) {
                client.say("SCRIPT FLUSH");
                if has_functions {
                    client.say("FUNCTION FLUSH");
                }
                flushes += 1;
                std::thread::sleep(Duration::from_millis(3));
            }
            flushes
        }
    });
    for functions in [false, true] {
        if functions && !has_functions {
            continue;
        }
        let target = RedisTarget {
            functions,
            ..server.target()
        };
        let settings = StoreSettings {
            timeout: Duration::from_secs(2),
            ..server.settings()
        };
        let store = RedisStore::new(&target, &settings);
        until_up(&store, Duration::from_secs(20)).await;
        let falls = store.stats().falls.get();
        let all = limit(
            &format!("all-{functions}"),
            fixed_window(100_000, 3_600_000_000),
        );
        for asked in 1..=ASKED {
            let decided = store.decide(&[Check::new(&all, b"a")]).await;
            let left = decided.map(|decided| decided.decision.verdicts[0].remaining);
            assert_eq!(left, Ok(100_000 - asked), "functions: {functions}");
        }
        assert_eq!(store.stats().falls.get(), falls);
    }
    over.store(true, Ordering::Relaxed);
    assert!(flushing.join().unwrap() > 5);
}
