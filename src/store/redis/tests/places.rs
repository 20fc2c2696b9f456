//! Unix sockets, databases, users, and the library of functions.

use super::editions::editions;
use super::support::{Server, fixed_window, limit, token_bucket, until_up};
use crate::clock::Timestamp;
use crate::key::RepeatId;
use crate::limit::rate::Cost;
use crate::store::check::Check;
use crate::store::endpoint::Address;
use crate::store::error::StoreError;
use crate::store::redis::tests::support::look;
use crate::store::redis::watch::probe;
use crate::store::redis::wire::question::{self, Question};
use crate::store::redis::wire::{layout, library, script};
use crate::store::redis::{Presence, RedisReport, RedisStore};
use crate::store::reservation::Amendment;
use crate::store::{RedisEndpoint, RedisTarget, Secret, StoreSettings};
use bb8_redis::redis::Value;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(5);
const NOW: Timestamp = Timestamp::from_micros(1_790_000_000_000_000);

async fn connected(target: &RedisTarget) -> RedisStore {
    let store = RedisStore::new(target, &StoreSettings::default());
    until_up(&store, PATIENCE).await;
    store
}

async fn decides(store: &RedisStore) -> Result<(), StoreError> {
    let some = limit("some", token_bucket(1000, 1_000_000, 1000));
    store.decide(&[Check::new(&some, b"a")]).await.map(drop)
}

#[tokio::test(flavor = "local")]
async fn a_socket_and_a_database() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("redis.sock").display().to_string();
    let server = Server::start_with(&["--unixsocket", &path]);
    let target = RedisTarget {
        database: 3,
        ..RedisTarget::new(RedisEndpoint::Unix(path.as_str().into()))
    };
    assert_eq!(target.to_string(), format!("unix:{path}?db=3"));
    let store = connected(&target).await;
    assert_eq!(decides(&store).await, Ok(()));
    let mut client = server.client();
    assert_eq!(client.say("DBSIZE"), Value::Int(0));
    client.say("SELECT 3");
    assert_ne!(client.say("DBSIZE"), Value::Int(0));
    assert!(look(&target).await.is_ok());
}

#[tokio::test(flavor = "local")]
async fn functions_decide_as_scripts_do() {
    let server = Server::start();
    let mut client = server.client();
    if !super::support::knows_functions(&mut client) {
        return;
    }
    client.many(vec![library::load()]);
    for script in script::ALL {
        client.many(vec![script.load()]);
    }
    for limits in editions() {
        for limit in limits {
            let mut question = Question::default();
            let check = Check {
                limit: &limit,
                key: b"first",
                cost: Cost::new(2),
                id: Some(RepeatId::of("POST", "/pay", 1, b"id")),
            };
            question.check(&layout::key_prefix("t", &limit), &check, Some(NOW), None);
            let script = question::decide(Some(NOW), std::iter::once(&question));
            client.say("FLUSHALL");
            let by_script = (client.many(vec![script.clone()]), client.dump());
            client.say("FLUSHALL");
            let by_function = (client.many(vec![library::call(&script)]), client.dump());
            assert_eq!(by_script, by_function, "{}", limit.name);
        }
    }
}

#[tokio::test(flavor = "local")]
async fn a_library_is_written_once_and_again_when_it_is_gone() {
    let server = Server::start();
    let mut client = server.client();
    if !super::support::knows_functions(&mut client) {
        return;
    }
    let target = RedisTarget {
        functions: true,
        ..server.target()
    };
    let some = limit("some", fixed_window(10, 3_600_000_000));
    let mut written = Vec::new();
    for _ in 0..2 {
        let store = connected(&target).await;
        let decided = store.decide(&[Check::new(&some, b"a")]).await.unwrap();
        let charge = decided.reservation(0, &Check::new(&some, b"a")).unwrap();
        store.amend(&charge, Amendment::Refund);
        store.settle().await;
        assert_eq!(store.stats().refunds.get(), 1);
        let stats = client.info("commandstats");
        assert!(!stats.contains("cmdstat_evalsha"), "{stats}");
        let load = stats
            .lines()
            .find(|line| line.starts_with("cmdstat_function|load:"));
        written.push(load.unwrap().to_owned());
    }
    assert_eq!(written[0], written[1], "it was there already");

    let store = connected(&target).await;
    client.say("FUNCTION FLUSH");
    assert_eq!(decides(&store).await, Ok(()));
    assert_eq!(store.stats().falls.get(), 0);
}

#[tokio::test(flavor = "local")]
async fn functions_are_not_asked_of_a_server_that_has_none() {
    let mut server = Server::start();
    if super::support::knows_functions(&mut server.client()) {
        server = Server::start_with(&["--rename-command", "FUNCTION", ""]);
    }
    let target = RedisTarget {
        functions: true,
        ..server.target()
    };
    let said = look(&target).await.unwrap_err().to_string();
    assert!(said.contains("leave `functions` out"), "{said}");
}

/// All commands of a gateway, sent by the user of the example.
#[tokio::test(flavor = "local")]
async fn the_user_of_the_example_may_do_all_that_is_needed_and_nothing_more() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("users.acl");
    let operator = "user operator on >pass ~* &* +@all\n";
    let users = include_str!("../../../../deploy/redis/users.acl");
    std::fs::write(&file, format!("{users}{operator}")).unwrap();
    let server = Server::start_with(&["--aclfile", file.to_str().unwrap()]);
    let mut client = server.client();
    assert!(!probe::is_open_to_all(&server.target(), &here(&server), "tollgate").await);
    let unauthenticated = client.ask(bb8_redis::redis::cmd("GET").arg("tollgate:1"));
    assert_eq!(unauthenticated.unwrap_err().code(), Some("NOAUTH"));
    client.say("AUTH operator pass");
    client.say("ACL SETUSER tollgate >pass");
    for functions in [false, true] {
        if functions && !super::support::knows_functions(&mut client) {
            break;
        }
        let target = RedisTarget {
            username: Some("tollgate".into()),
            password: Some(Secret::new("pass")),
            functions,
            ..server.target()
        };
        if functions {
            client.say("ACL SETUSER tollgate +fcall +function|list +function|load");
        }
        client.say("ACL LOG RESET");
        shared_keys(&target).await;
        let found = look(&target).await.unwrap();
        assert!(found.version.contains('.'), "{found}");
        let store = connected(&target).await;
        for limits in editions() {
            for limit in limits {
                for cost in [1, 2] {
                    let check = Check {
                        limit: &limit,
                        key: b"first",
                        cost: Cost::new(cost),
                        id: Some(RepeatId::of("POST", "/pay", 1, b"id")),
                    };
                    let decided = store.decide(&[check]).await.unwrap();
                    let Some(charge) = decided.reservation(0, &check) else {
                        continue;
                    };
                    for cost in [0, 3] {
                        store.amend(&charge, Amendment::Settlement(Cost::new(cost)));
                    }
                    store.amend(&charge, Amendment::Renewal);
                    store.amend(&charge, Amendment::Refund);
                }
                store.reset(&limit, b"first").await.unwrap();
            }
        }
        assert_eq!(store.beat(7, Presence::There, PATIENCE).await, Ok(1));
        store.settle().await;
        assert_eq!(store.stats().refunds_lost.get(), 0);
        // No gateway needs the driver's identification command. Redis 7.0 does not know it, and 6.2 logs the command
        // alone.
        let mut denied = denied(client.say("ACL LOG"));
        denied
            .retain(|entry| !entry.contains("client|setinfo") && !entry.contains(r#"'"client"'"#));
        assert!(denied.is_empty(), "{denied:?}");
    }

    let url = format!("redis://tollgate:pass@127.0.0.1:{}/", server.port);
    let plain = bb8_redis::redis::Client::open(url).unwrap();
    let mut user = plain.get_connection().unwrap();
    for line in [
        "GET another:key",
        "SET another:key 1",
        "KEYS *",
        "SCAN 0",
        "FLUSHALL",
        "CONFIG GET *",
        "SCRIPT FLUSH",
        "ACL LIST",
        "SUBSCRIBE news",
        "SHUTDOWN",
    ] {
        let mut words = line.split(' ');
        let mut command = bb8_redis::redis::cmd(words.next().unwrap());
        for word in words {
            command.arg(word);
        }
        let answer = command.query::<Value>(&mut user);
        let refused = answer.unwrap_err();
        assert_eq!(refused.code(), Some("NOPERM"), "{line}: {refused}");
    }
}

/// Without users a Redis is open to all: the report states that if other machines can reach it.
#[tokio::test(flavor = "local")]
async fn a_server_that_lets_anybody_in_is_seen() {
    let server = Server::start();
    let at = here(&server);
    assert!(probe::is_open_to_all(&server.target(), &at, "tollgate").await);
    // The Redis as seen by a gateway with its own user.
    server
        .client()
        .say("ACL SETUSER tollgate on >pass ~* &* +@all");
    let target = RedisTarget {
        username: Some("tollgate".into()),
        password: Some(Secret::new("pass")),
        ..server.target()
    };
    assert!(probe::is_open_to_all(&target, &at, "tollgate").await);
    let found = look(&target).await.unwrap();
    assert!(!found.open, "nobody else reaches a loopback address");
    let report = RedisReport {
        open: true,
        ..found
    }
    .to_string();
    assert!(
        report.ends_with("; open to every client that reaches it"),
        "{report}"
    );
    server.client().say("CONFIG SET requirepass secret");
    assert!(!probe::is_open_to_all(&target, &at, "tollgate").await);
    for (host, is_remote) in [
        ("127.0.0.1", false),
        ("127.8.0.1", false),
        ("::1", false),
        ("::ffff:127.0.0.1", false),
        ("192.0.2.1", true),
        ("0.0.0.0", false),
        ("::", false),
        ("2001:db8::1", true),
    ] {
        assert_eq!(
            probe::is_remote(&Address::new(host, 1)).await,
            is_remote,
            "{host}"
        );
    }
}

/// For a user that may not read its permissions, commands without an effect are tried.
#[tokio::test(flavor = "local")]
async fn a_stranger_who_may_change_anything_is_seen_whatever_they_may_not() {
    let server = Server::start();
    let mut client = server.client();
    client.say("ACL SETUSER operator on >pass ~* &* +@all");
    client.say("AUTH operator pass");
    client.say("SET tollgate:kept 1");
    for (rules, is_open) in [
        ("on nopass ~* &* +@all -acl", true),
        ("on nopass ~* &* +@all -acl -eval -config -flushall", true),
        ("on nopass ~other:* +@all -acl -eval", true),
        ("on nopass -@all +eval", true),
        ("on nopass -@all +config", true),
        ("on nopass -@all +acl +flushall", true),
        ("on nopass ~* -@all +@write", true),
        ("on nopass ~* -@all +@read +@connection +info", false),
        ("on nopass ~* -@all +@read +acl|getuser", false),
        ("on nopass -@all +ping", false),
        ("on >secret ~* &* +@all", false),
        ("off nopass ~* &* +@all", false),
    ] {
        client.say(&format!("ACL SETUSER default reset {rules}"));
        let found = probe::is_open_to_all(&server.target(), &here(&server), "tollgate").await;
        assert_eq!(found, is_open, "{rules}");
    }
    assert_eq!(client.say("DBSIZE"), Value::Int(1), "nothing was changed");
}

/// Shared data of gateways other than counters (ACME).
async fn shared_keys(target: &RedisTarget) {
    let keys = crate::store::redis::SharedKeys::new(target);
    let (name, life) = ("tollgate:acme:a", Duration::from_secs(60));
    let _ = keys.remove(name).await;
    assert!(keys.swap(name, b"", b"1", None).await.unwrap());
    assert!(keys.swap(name, b"1", b"2", Some(life)).await.unwrap());
    assert_eq!(keys.get(name).await.unwrap().as_deref(), Some(&b"2"[..]));
    keys.put(name, b"3", life).await.unwrap();
    assert!(!keys.lock(name, "4", life).await.unwrap());
    assert!(keys.prolong(name, b"3", life).await.unwrap());
    assert!(keys.release(name, b"3").await.unwrap());
    keys.remove(name).await.unwrap();
}

fn here(server: &Server) -> Address {
    Address::new("127.0.0.1", server.port)
}

#[test]
fn the_user_of_the_example_may_call_what_the_scripts_call() {
    let file = include_str!("../../../../deploy/redis/users.acl");
    let mut allowed: Vec<&str> = file
        .split_whitespace()
        .filter_map(|word| word.strip_prefix('+'))
        .collect();
    // The calls of the gateway itself.
    for word_needed in [
        "evalsha",
        "eval",
        "script|load",
        "select",
        "info",
        "role",
        "wait",
    ] {
        let at = allowed.iter().position(|word| *word == word_needed);
        allowed.remove(at.unwrap_or_else(|| panic!("{word_needed} is not in it")));
    }
    let mut called: Vec<String> = script::ALL
        .iter()
        .flat_map(|script| script.text().split("call(\"").skip(1))
        .filter_map(|rest| rest.split_once('"'))
        .map(|(name, _)| name.to_ascii_lowercase())
        .collect();
    called.sort();
    called.dedup();
    allowed.sort_unstable();
    assert_eq!(called, allowed);
}

/// The commands that a user was denied.
fn denied(log: Value) -> Vec<String> {
    let Value::Array(entries) = log else {
        panic!("a log is a list");
    };
    entries.iter().map(|entry| format!("{entry:?}")).collect()
}
