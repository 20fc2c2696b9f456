//! The script of changes against its twin: random histories, replies and stored bytes equal after every step; and what
//! a store answers to values of strangers.

use super::support::{Client, Server};
use crate::clock::{Timestamp, micros};
use crate::limit::wire::double;
use crate::store::changes::{
    Acceptance, ChangeBook, ChangeId, ChangeKind, ChangeRequest, ChangeTarget, FORMAT,
};
use crate::store::redis::wire::layout;
use crate::store::redis::wire::script::{CHANGES, Script};
use bb8_redis::redis::{Cmd, RedisResult, Value, cmd};
use std::time::Duration;

const NOON: u64 = 1_790_000_000_000_000;

fn key(nth: usize) -> String {
    layout::everyones_key("t", layout::CHANGES[nth])
}

/// A call of the script at this instant, with further keys.
fn call(now: u64, operation: &str, keys: &[Vec<u8>], arguments: &[Vec<u8>]) -> Cmd {
    let script: &Script = &CHANGES;
    let mut command = cmd("EVAL");
    command.arg(script.text()).arg(3 + keys.len());
    for nth in 0..3 {
        command.arg(key(nth));
    }
    for key in keys {
        command.arg(key);
    }
    command.arg(&double(now)).arg(operation);
    for argument in arguments {
        command.arg(argument);
    }
    command
}

fn change(now: u64, request: &ChangeRequest, keys: &[Vec<u8>]) -> Cmd {
    let seen = request.if_version.map(double);
    let lives = vec![double(60_000); keys.len() / 3].concat();
    let arguments = [
        request.id.0.to_vec(),
        [&[request.kind.byte()][..], &request.target.0].concat(),
        double(micros(request.life)).to_vec(),
        [&[FORMAT][..], &request.payload].concat(),
        seen.map_or_else(Vec::new, |seen| seen.to_vec()),
        lives,
    ];
    call(now, "c", keys, &arguments)
}

fn request(id: &str, kind: u8, target: &str, life: Duration) -> ChangeRequest {
    ChangeRequest {
        id: ChangeId::of(id),
        kind: ChangeKind::of(kind),
        target: ChangeTarget::of(&[target.as_bytes()]),
        life,
        payload: format!("{{\"id\":\"{id}\"}}").into_bytes(),
        if_version: None,
    }
}

fn poll(now: u64, me: u64, mine: u64, is_new: bool) -> Cmd {
    let arguments = [
        me.to_be_bytes().to_vec(),
        double(mine).to_vec(),
        if is_new { b"1".to_vec() } else { b"0".to_vec() },
    ];
    call(now, "p", &[], &arguments)
}

fn bytes(value: RedisResult<Value>) -> Vec<u8> {
    match value {
        Ok(Value::BulkString(bytes)) => bytes,
        Ok(Value::Nil) => Vec::new(),
        other => panic!("{other:?}"),
    }
}

fn stored(client: &mut Client, nth: usize) -> Vec<u8> {
    let mut get = cmd("GET");
    get.arg(key(nth));
    bytes(client.ask(&get))
}

#[test]
fn the_script_answers_and_stores_what_its_twin_does() {
    let seed = match std::env::var("TWIN_SEED") {
        Ok(text) => text.parse().expect("TWIN_SEED is a number"),
        Err(_) => fastrand::u64(..),
    };
    let mut random = fastrand::Rng::with_seed(seed);
    let server = Server::start();
    let mut client = server.client();
    let (mut book, mut now) = (ChangeBook::default(), NOON);
    let (mut full, mut same, mut replaced) = (0, 0, 0);
    for step in 0..4_000 {
        // Now and then many changes are made at once, until there is no room.
        let many = step % 1_000 > 700;
        match random.u8(..8) {
            0 => now -= random.u64(..2_000_000),
            1 if !many => now += random.u64(..200_000_000),
            _ => now += random.u64(..400_000),
        }
        let at = Timestamp::from_micros(now);
        let (answer, wanted) = match random.u8(..8) {
            0..=4 => {
                let life = match random.u8(..4) {
                    0 if !many => Duration::ZERO,
                    1 if !many => Duration::from_secs(random.u64(..30)),
                    _ => Duration::from_secs(600),
                };
                let id = format!("id-{}", random.u32(..if many { 5_000 } else { 60 }));
                let target = format!("target-{}", random.u32(..8));
                let kind = [1, 1, 2, 9][random.usize(..4)];
                let mut asked = request(&id, if many { 1 } else { kind }, &target, life);
                let least = if many { 700 } else { 0 };
                asked.payload.resize(random.usize(least..1_100), b'x');
                if !many && random.u8(..4) == 0 {
                    asked.if_version = Some(now - random.u64(..3_000_000));
                }
                let wanted = book.change(at, &asked).unwrap();
                match Acceptance::read(&wanted).unwrap() {
                    Acceptance::Full => full += 1,
                    Acceptance::Same { .. } => same += 1,
                    Acceptance::Done {
                        replaced: Some(_), ..
                    } => replaced += 1,
                    _ => {}
                }
                (client.ask(&change(now, &asked, &[])), wanted)
            }
            5 | 6 => {
                let version = bytes_of_version(&book);
                let mine = if random.bool() {
                    version
                } else {
                    random.u64(..3)
                };
                let (me, is_new) = (random.u64(..4), random.bool());
                let wanted = book.poll(at, me, mine, is_new).unwrap();
                (client.ask(&poll(now, me, mine, is_new)), wanted)
            }
            _ => {
                let mut gateways = Vec::new();
                for me in 0..4_u64 {
                    if random.u8(..4) > 0 {
                        let report = now + 5_000_000 - random.u64(..20_000_000);
                        gateways.extend([me.to_be_bytes(), double(report)].concat());
                    }
                }
                let mut set = cmd("SET");
                set.arg("t:1:gateways:{*}").arg(&gateways);
                client.ask(&set).unwrap();
                let life = Duration::from_secs(10);
                let least = bytes_of_version(&book) - random.u64(..2);
                let since = now - random.u64(..3_000_000);
                let arguments = [least, since, micros(life)].map(|number| double(number).to_vec());
                let keys = [b"t:1:gateways:{*}".to_vec()];
                let wanted = book.look(at, &gateways, least, Timestamp::from_micros(since), life);
                (client.ask(&call(now, "l", &keys, &arguments)), wanted)
            }
        };
        assert_eq!(bytes(answer), wanted, "TWIN_SEED={seed}, step {step}");
        let held = [&book.version, &book.changes, &book.heard];
        for (nth, held) in held.into_iter().enumerate() {
            assert_eq!(
                stored(&mut client, nth),
                *held,
                "TWIN_SEED={seed}, step {step}, {}",
                key(nth)
            );
        }
    }
    assert!(
        full > 10 && same > 50 && replaced > 30,
        "{full} {same} {replaced}"
    );
}

fn bytes_of_version(book: &ChangeBook) -> u64 {
    let version = book
        .version
        .first_chunk()
        .map(|bytes| f64::from_be_bytes(*bytes));
    version.unwrap_or(1.0) as u64
}

#[test]
fn of_two_operators_no_change_is_lost() {
    let server = Server::start();
    let threads: Vec<_> = (0..2)
        .map(|operator| {
            let mut client = Client::at(server.port);
            std::thread::spawn(move || {
                let mut versions = Vec::new();
                for nth in 0..100 {
                    let id = format!("{operator}-{nth}");
                    let asked = request(&id, 1, &id, Duration::from_secs(600));
                    let script: &Script = &CHANGES;
                    let mut command = change(0, &asked, &[]);
                    // By the server's clock.
                    let packed = double(0);
                    let words: Vec<Vec<u8>> = command
                        .args_iter()
                        .map(|word| match word {
                            bb8_redis::redis::Arg::Simple(word) if *word == packed => Vec::new(),
                            bb8_redis::redis::Arg::Simple(word) => word.to_vec(),
                            _ => Vec::new(),
                        })
                        .collect();
                    assert_eq!(words[1], script.text().as_bytes());
                    command = Cmd::new();
                    for word in &words {
                        command.arg(word);
                    }
                    match Acceptance::read(&bytes(client.ask(&command))).unwrap() {
                        Acceptance::Done { version, .. } => versions.push(version),
                        other => panic!("{other:?}"),
                    }
                }
                versions
            })
        })
        .collect();
    let versions = threads.into_iter().map(|thread| thread.join().unwrap());
    let mut versions: Vec<u64> = versions.flatten().collect();
    versions.sort_unstable();
    versions.dedup();
    assert_eq!(versions.len(), 200, "each has a version of its own");
    let list = stored(&mut server.client(), 1);
    let all = crate::store::changes::ChangeList::read(&list).unwrap().0;
    assert_eq!(all.len(), 200);
}

#[test]
fn the_256th_is_refused_and_the_same_id_twice_is_the_same() {
    let server = Server::start();
    let mut client = server.client();
    let life = Duration::from_secs(600);
    let mut ask = |id: &str| {
        let asked = request(id, 1, id, life);
        Acceptance::read(&bytes(client.ask(&change(NOON, &asked, &[])))).unwrap()
    };
    for nth in 0..255 {
        assert!(matches!(ask(&nth.to_string()), Acceptance::Done { .. }));
    }
    assert_eq!(ask("255"), Acceptance::Full);
    let Acceptance::Same { entry, .. } = ask("7") else {
        panic!("it is there");
    };
    assert_eq!(entry.id, ChangeId::of("7"));
}

#[test]
fn a_reset_empties_its_counters_once_and_leaves_marks() {
    let server = Server::start();
    let mut client = server.client();
    let names = ["l:{a}", "l:{a}:b", "l:{a}:z"].map(|name| name.as_bytes().to_vec());
    client.say("SET l:{a} used");
    client.say("SET l:{a}:b blocked");
    let asked = request("once", 1, "a", Duration::from_secs(600));
    client.ask(&change(NOON, &asked, &names)).unwrap();
    let there = |client: &mut Client| client.say("EXISTS l:{a} l:{a}:b l:{a}:z");
    assert_eq!(there(&mut client), Value::Int(1));
    assert_eq!(
        client.say("GET l:{a}:z"),
        Value::BulkString(double(NOON).to_vec())
    );
    client.say("SET l:{a} new");
    client.ask(&change(NOON + 5, &asked, &names)).unwrap();
    assert_eq!(
        there(&mut client),
        Value::Int(2),
        "the same id does nothing"
    );
    // Refused, nothing is emptied.
    let mut late = request("other", 1, "a", Duration::from_secs(600));
    late.if_version = Some(7);
    client.ask(&change(NOON + 9, &late, &names)).unwrap();
    assert_eq!(there(&mut client), Value::Int(2));
}

/// Another value at each of the keys is told, and nothing is changed anywhere.
#[test]
fn a_strangers_value_is_told_and_left() {
    let server = Server::start();
    let mut client = server.client();
    let names = ["l:{a}", "l:{a}:b", "l:{a}:z"].map(|name| name.as_bytes().to_vec());
    let asked = request("id", 1, "a", Duration::from_secs(600));
    for (nth, value, word) in [
        (0, "LPUSH {} x", "WRONGTYPE"),
        (1, "LPUSH {} x", "WRONGTYPE"),
        (2, "LPUSH {} x", "WRONGTYPE"),
        (0, "SET {} eleven-bytes", "FOREIGN"),
        (1, "SET {} something", "FOREIGN"),
    ] {
        client.say("FLUSHALL");
        client.say("SET l:{a} used");
        client.say(&value.replace("{}", &key(nth)));
        let before = client.dump();
        let wrong = client.ask(&change(NOON, &asked, &names)).unwrap_err();
        let text = wrong.to_string();
        assert!(text.contains(word) && text.contains(&key(nth)), "{text}");
        let polled = client.ask(&poll(NOON, 1, 5, true));
        assert!(nth == 2 || polled.is_err(), "{polled:?}");
        assert_eq!(client.dump(), before, "{word} at {}", key(nth));
    }
}
