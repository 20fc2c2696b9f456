//! A server that runs out of memory under load: each request is charged everywhere or nowhere.

use super::support::{
    Client, Server, clock_window, concurrency, fixed_window, leaky_bucket, limit, sliding_log,
    sliding_window, token_bucket,
};
use crate::clock::Timestamp;
use crate::limit::Limit;
use crate::limit::rate::Cost;
use crate::limit::verdict::Wait;
use crate::store::check::Check;
use crate::store::redis::link::reply::{self, ReplyError, ScriptReply};
use crate::store::redis::wire::question::{self, Question};
use crate::store::redis::wire::{layout, script};
use bb8_redis::redis::{Value, cmd};
use std::sync::Arc;

const NOW: Timestamp = Timestamp::from_micros(1_790_000_000_000_000);
/// Memory for the counters of a test, in addition to the server's own.
const ROOM: u64 = 400_000;
/// Requests to a full server.
const MEETINGS: usize = 60;

fn limits() -> Vec<(Arc<Limit>, u64)> {
    const HOUR: u64 = 3_600_000_000;
    vec![
        (limit("tokens", token_bucket(7, HOUR, 9)), 2),
        (limit("queue", leaky_bucket(7, HOUR, 2, 9, HOUR * 2)), 2),
        (limit("window", fixed_window(9, HOUR)), 2),
        (limit("clock", clock_window(9, HOUR, 0)), 2),
        (limit("sliding", sliding_window(9, HOUR, 60, true)), 2),
        (limit("log", sliding_log(9000, HOUR)), 4500),
        (limit("flight", concurrency(90, HOUR)), 20),
    ]
}

fn used(client: &mut Client) -> u64 {
    let Value::BulkString(text) = client.say("INFO memory") else {
        panic!("INFO answers a text");
    };
    let text = String::from_utf8(text).unwrap();
    let line = text.lines().find_map(|l| l.strip_prefix("used_memory:"));
    line.unwrap().parse().unwrap()
}

/// One request of several limits, and the number of its keys that exist afterwards.
fn ask(client: &mut Client, key: &[u8], asked: &[&(Arc<Limit>, u64)]) -> (ScriptReply, usize) {
    let mut question = Question::default();
    let mut exists = cmd("EXISTS");
    for (limit, cost) in asked {
        let prefix = layout::key_prefix("t", limit);
        let cost = Cost::new(*cost);
        question.check(
            &prefix,
            &Check {
                limit,
                key,
                cost,
                id: None,
            },
            Some(NOW),
            None,
        );
        exists.arg([&prefix, key, b"}"].concat());
    }
    let command = question::decide(Some(NOW), std::iter::once(&question));
    let answers = client.many(vec![command, exists]);
    let [Value::BulkString(bytes), Value::Int(there)] = &answers[..] else {
        panic!("{answers:?}");
    };
    let replies = reply::read_replies(bytes, std::iter::once(asked.len())).unwrap();
    (replies[0].clone(), usize::try_from(*there).unwrap())
}

#[test]
fn while_memory_runs_out_a_request_is_charged_everywhere_or_nowhere() {
    let server = Server::start_with(&["--maxmemory-policy", "noeviction"]);
    let mut client = server.client();
    for script in script::ALL {
        client.many(vec![script.load()]);
    }
    let limits = limits();
    // Scripts and buffers take their memory before it is measured.
    let all: Vec<_> = limits.iter().collect();
    ask(&mut client, b"first", &all).0.unwrap();
    let most = used(&mut client) + ROOM;
    client.say(&format!("CONFIG SET maxmemory {most}"));
    let mut random = fastrand::Rng::new();
    let mut held: Vec<String> = Vec::new();
    let (mut met, mut charged) = (0, 0);
    while met < MEETINGS {
        let key = format!("client-{}", random.u64(..));
        let mut asked: Vec<_> = limits.iter().collect();
        random.shuffle(&mut asked);
        asked.truncate(random.usize(1..=limits.len()));
        match ask(&mut client, key.as_bytes(), &asked) {
            (Ok((_, measured)), there) => {
                assert!(measured.iter().all(|m| m.wait == Wait::Micros(0)));
                assert_eq!(there, asked.len());
                charged += 1;
                let names = asked.iter().map(|(limit, _)| {
                    let prefix = layout::key_prefix("t", limit);
                    format!("{}{key}}}", String::from_utf8_lossy(&prefix))
                });
                held.extend(names);
            }
            (Err(ReplyError::Limit { reason, .. }), there) => {
                assert!(reply::server_wide(&reason), "{reason}");
                assert_eq!(there, 0, "{asked:?}");
                met += 1;
                // Some counters end, and there is room again for others.
                for _ in 0..random.usize(1..12) {
                    if !held.is_empty() {
                        let gone = held.swap_remove(random.usize(..held.len()));
                        client.say(&format!("DEL {gone}"));
                    }
                }
            }
            (Err(ReplyError::Store(error)), _) => panic!("{error}"),
        }
        assert!(charged < 100_000, "memory never runs out");
    }
    assert!(charged > 0);
}

#[test]
fn without_memory_what_writes_nothing_is_still_answered() {
    let server = Server::start_with(&["--maxmemory-policy", "noeviction"]);
    let mut client = server.client();
    for script in script::ALL {
        client.many(vec![script.load()]);
    }
    let limits = limits();
    for (limit, _) in &limits {
        let all = limit.rule.most();
        ask(&mut client, b"a", &[&(limit.clone(), all)]).0.unwrap();
    }
    client.say("CONFIG SET maxmemory 1");
    for (limit, _) in &limits {
        let (peek, there) = ask(&mut client, b"a", &[&(limit.clone(), 0)]);
        assert_eq!(peek.unwrap().1[0].wait, Wait::Micros(0));
        assert_eq!(there, 1);
        // The server is full, and answers so.
        let (full, _) = ask(&mut client, b"a", &[&(limit.clone(), 1)]);
        assert!(full.unwrap().1[0].wait > Wait::Micros(0), "{}", limit.name);
    }
}
