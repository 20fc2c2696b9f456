//! Certificates of many gateways with one store: one account and one order for all, even if a gateway or the store
//! fails in the middle.

use super::fleet::{AHEAD, Front, Member, PACE, SECRET, ahead, contents};
use crate::support::{Line, PATIENCE, Pebble, PebbleWish, Redis, Relay, eventually};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tollgate::acme::{ChallengeKind, SealingKey, Storage};
use tollgate::client::Client;
use tollgate::store::{RedisEndpoint, RedisTarget};

const HOSTS: [&str; 2] = ["shop.example.com", "www.shop.example.com"];
const LOCK: &str = "edge:acme:lock:identity:shop";

fn asking() -> PebbleWish {
    PebbleWish {
        asks_always: true,
        ..PebbleWish::default()
    }
}

#[tokio::test]
async fn three_gateways_at_once_have_one_account_and_order_once() {
    for kind in [ChallengeKind::Http01, ChallengeKind::TlsAlpn01] {
        let (pebble, redis) = (Pebble::start(asking()), Redis::start().await);
        let mut members = [0; 3].map(|_| Member::of(&pebble, &redis));
        let [a, b, c] = &members;
        let _front = Front::before(&pebble, &[a, b, c]);
        for member in &mut members {
            member.authority.challenges = vec![kind];
            member.want("shop", &HOSTS);
            member.open();
        }
        let first = members[0].certificate().await;
        for member in &members {
            assert_eq!(member.certificate().await, first, "all serve the same");
        }
        assert_eq!(pebble.logged("There are now 1 accounts"), 1);
        assert_eq!(pebble.logged("There are now 2 accounts"), 0);
        assert_eq!(pebble.logged("Added order"), 1, "{}", pebble.log());
        let sum = |count: fn(&Member) -> u64| members.iter().map(count).sum::<u64>();
        assert_eq!(sum(Member::obtained), 1);
        assert_eq!(sum(Member::taken), 2);
        let found = sum(|one| one.metric("tollgate_acme_lookups_total{result=\"found\"} "));
        assert!(found >= 2, "the authority came to another gateway: {found}");
        nothing_in_clear(&redis, first.pem()).await;
    }
}

/// Checks that no stored value contains a part of the key, or of any text that is kept.
async fn nothing_in_clear(redis: &Redis, pem: &str) {
    let all = contents(redis).await;
    for part in ["account:", "attempts:shop", "certificate:shop"] {
        let key = format!("edge:acme:{part}");
        assert!(all.iter().any(|(one, _)| one.starts_with(&key)), "{all:?}");
    }
    let begin = pem.find("PRIVATE KEY-----").unwrap();
    let lines: Vec<&str> = pem[begin..].lines().skip(1).collect();
    let text: String = lines
        .iter()
        .filter(|line| !line.contains("---"))
        .copied()
        .collect();
    let der = BASE64_STANDARD.decode(&text).unwrap();
    // The private number is in the middle of the DER.
    let mut secrets = vec![der[30..60].to_vec(), SECRET.as_bytes()[..20].to_vec()];
    secrets.extend(lines.iter().map(|line| line.as_bytes().to_vec()));
    secrets.extend(["BEGIN", "key_pkcs8", "\"failures\"", "kid", "http"].map(Into::into));
    for (key, value) in &all {
        for secret in secrets.iter().filter(|one| !one.is_empty()) {
            let has = value.windows(secret.len()).any(|part| part == secret);
            assert!(!has, "{key} has {:?}", String::from_utf8_lossy(secret));
        }
    }
}

#[tokio::test]
async fn refused_nonces_make_no_second_account_and_no_second_certificate() {
    let pebble = Pebble::start(PebbleWish {
        refused_nonces: 50,
        ..asking()
    });
    let redis = Redis::start().await;
    let mut members = [0; 3].map(|_| Member::of(&pebble, &redis));
    let [a, b, c] = &members;
    let _front = Front::before(&pebble, &[a, b, c]);
    for member in &mut members {
        member.want("shop", &HOSTS);
        member.open();
    }
    let first = members[0].certificate().await;
    for member in &members {
        assert_eq!(member.certificate().await, first);
    }
    assert_eq!(pebble.logged("Added order"), 1, "{}", pebble.log());
    assert_eq!(pebble.logged("Issued certificate"), 1, "{}", pebble.log());
    assert_eq!(pebble.logged("There are now 2 accounts"), 0);
}

#[tokio::test]
async fn a_renewal_is_ordered_once_for_all() {
    let pebble = Pebble::start(PebbleWish {
        life: Some(12),
        ..PebbleWish::default()
    });
    let redis = Redis::start().await;
    let mut members = [0; 3].map(|_| Member::of(&pebble, &redis));
    let [a, b, c] = &members;
    let _front = Front::before(&pebble, &[a, b, c]);
    for member in &mut members {
        member.want("shop", &HOSTS);
        member.open();
    }
    let mut before = members[0].certificate().await;
    for round in 2..=3 {
        let mut renewed = Vec::new();
        for member in &members {
            eventually(PATIENCE, "a renewal", async || {
                member.issued.of("shop").is_some_and(|one| one != before)
            })
            .await;
            renewed.push(member.issued.of("shop").unwrap());
        }
        assert!(
            renewed.iter().all(|one| *one == renewed[0]),
            "round {round}"
        );
        assert_eq!(
            pebble.logged("Issued certificate"),
            round,
            "{}",
            pebble.log()
        );
        let key = |pem: &str| pem[pem.find("PRIVATE KEY").unwrap()..].to_owned();
        assert_ne!(key(before.pem()), key(renewed[0].pem()));
        before = renewed.swap_remove(0);
    }
    assert_eq!(pebble.logged("There are now 1 accounts"), 1);
    assert_eq!(pebble.logged("There are now 2 accounts"), 0);
}

#[tokio::test]
async fn an_order_whose_gateway_was_killed_is_taken_over_after_the_wait_of_a_failure() {
    let (pebble, redis) = (Pebble::start(asking()), Redis::start().await);
    let mut first = Member::of(&pebble, &redis).with_brief_lock();
    let mut second = Member::of(&pebble, &redis);
    for member in [&mut first, &mut second] {
        member.clock = ahead;
        member.want("shop", &HOSTS);
    }
    let front = Front::before(&pebble, &[&first, &second]);
    front.shut();
    first.open();
    front.looked().await;
    second.open();
    first.kill().await;
    front.lead_to(&[&second]);
    front.open();
    // The second gateway waits until the lock ends, and then as long as after a failure.
    eventually(PATIENCE, "the lock ends", async || {
        redis.command::<i64>(&["EXISTS", LOCK]).await == 0
    })
    .await;
    tokio::time::sleep(PACE.read * 3).await;
    assert_eq!(pebble.logged("Added order"), 1, "{}", pebble.log());
    AHEAD.store(12, Ordering::SeqCst);
    second.certificate().await;
    assert_eq!(pebble.logged("Added order"), 2, "{}", pebble.log());
    assert_eq!(pebble.logged("Issued certificate"), 1);
    assert_eq!(pebble.logged("There are now 2 accounts"), 0);
}

#[tokio::test]
async fn a_lock_that_was_lost_ends_the_order_before_its_certificate() {
    let (pebble, redis) = (Pebble::start(asking()), Redis::start().await);
    let mut member = Member::of(&pebble, &redis);
    let front = Front::before(&pebble, &[&member]);
    front.shut();
    member.want("shop", &HOSTS);
    member.open();
    front.looked().await;
    redis.put(LOCK, b"another gateway").await;
    let attempts = redis
        .command::<Vec<u8>>(&["GET", "edge:acme:attempts:shop"])
        .await;
    front.open();
    eventually(PATIENCE, "the order fails", async || member.failed() == 1).await;
    assert_eq!(pebble.logged("Issued certificate"), 0, "{}", pebble.log());
    let lock: String = redis.command(&["GET", LOCK]).await;
    assert_eq!(lock, "another gateway", "it was released");
    let after = redis
        .command::<Vec<u8>>(&["GET", "edge:acme:attempts:shop"])
        .await;
    assert_eq!(attempts, after, "what is another's was written");
}

#[tokio::test]
async fn a_store_that_dies_in_the_middle_ends_the_order_and_what_is_held_is_served() {
    let (pebble, mut redis) = (Pebble::start(asking()), Redis::start().await);
    let mut member = Member::of(&pebble, &redis).with_brief_lock();
    let front = Front::before(&pebble, &[&member]);
    member.want("shop", &HOSTS);
    member.open();
    let held = member.certificate().await;
    front.shut();
    let looks = pebble.logged("Added order");
    member.want("shop", &["shop.example.com"]);
    eventually(PATIENCE, "an order", async || {
        pebble.logged("Added order") > looks
    })
    .await;
    redis.kill().await;
    front.open();
    eventually(PATIENCE, "the order fails", async || member.failed() == 1).await;
    assert_eq!(pebble.logged("Issued certificate"), 1, "{}", pebble.log());
    assert_eq!(member.issued.of("shop"), Some(held));
    eventually(PATIENCE, "it is known to be away", async || {
        member.metric("tollgate_acme_store_up ") == 0
    })
    .await;
    // Redis comes back empty and learns of the failure, so the next order waits.
    redis.come().await;
    eventually(PATIENCE, "the failure is kept", async || {
        redis
            .command::<i64>(&["EXISTS", "edge:acme:attempts:shop"])
            .await
            == 1
    })
    .await;
    assert_eq!(pebble.logged("Added order"), looks + 1, "{}", pebble.log());
}

/// With one name the store goes away when the gateway asks whether it still has its lock, before the certificate is
/// signed. With two names the store mostly goes away when the gateway has its second answer ready.
#[tokio::test]
async fn a_store_that_is_away_for_a_moment_ends_no_order() {
    for hosts in [&HOSTS[..1], &HOSTS] {
        let (pebble, redis) = (Pebble::start(asking()), Redis::start().await);
        let wire = Relay::to(redis.port()).await;
        let target = RedisTarget::new(RedisEndpoint::tcp("127.0.0.1", wire.port()));
        let mut member = Member::at(&pebble, &target);
        let front = Front::before(&pebble, &[&member]);
        front.shut();
        member.want("shop", hosts);
        member.open();
        front.looked().await;
        wire.turn(Line::Reset);
        front.open();
        eventually(PATIENCE, "a name is found to be ours", async || {
            pebble.logged("set VALID by completed challenge") > 0
        })
        .await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(pebble.logged("Issued certificate"), 0, "{}", pebble.log());
        wire.turn(Line::Whole);
        member.certificate().await;
        assert_eq!(pebble.logged("Added order"), 1, "{}", pebble.log());
        assert_eq!(member.failed(), 0);
    }
}

#[tokio::test]
async fn a_store_that_is_away_at_the_start_is_waited_for() {
    let (pebble, mut redis) = (Pebble::start(asking()), Redis::absent());
    let silent = TcpListener::bind(("127.0.0.1", redis.port()))
        .await
        .unwrap();
    let mut member = Member::of(&pebble, &redis);
    let _front = Front::before(&pebble, &[&member]);
    member.want("shop", &HOSTS);
    member.open();
    for _ in 0..3 {
        drop(silent.accept().await.unwrap());
    }
    drop(silent);
    assert_eq!(member.metric("tollgate_acme_store_up "), 0);
    assert_eq!(pebble.logged("Added order"), 0);
    redis.come().await;
    member.certificate().await;
    assert_eq!(member.metric("tollgate_acme_store_up "), 1);
}

/// The store fails once the gateway has the lock and nothing else. The gateway asks the authority for nothing, and this
/// is no failure of an order.
#[tokio::test]
async fn a_store_that_keeps_nothing_costs_no_order() {
    let (pebble, redis) = (Pebble::start(asking()), Redis::start().await);
    let set_user = |rule: &'static str| ["ACL", "SETUSER", "default", rule];
    redis.command::<String>(&set_user("-eval")).await;
    let mut member = Member::of(&pebble, &redis);
    let _front = Front::before(&pebble, &[&member]);
    member.want("shop", &HOSTS);
    member.open();
    eventually(PATIENCE, "the lock cannot be let go either", async || {
        let stats: String = redis.command(&["INFO", "commandstats"]).await;
        let eval = stats.lines().find(|line| line.starts_with("cmdstat_eval:"));
        eval.is_some_and(|line| !line.contains("rejected_calls=1,"))
    })
    .await;
    redis.command::<i64>(&["DEL", LOCK]).await;
    assert_eq!((member.failed(), pebble.logged("Added order")), (0, 0));
    redis.command::<String>(&set_user("+eval")).await;
    member.certificate().await;
    assert_eq!((member.failed(), pebble.logged("Added order")), (0, 1));
}

#[tokio::test]
async fn another_secret_reads_nothing_orders_nothing_and_overwrites_nothing() {
    let (pebble, redis) = (Pebble::start(asking()), Redis::start().await);
    let mut member = Member::of(&pebble, &redis);
    let mut other = Member::of(&pebble, &redis);
    let front = Front::before(&pebble, &[&member]);
    member.want("shop", &HOSTS);
    member.open();
    member.certificate().await;
    member.kill().await;
    let before = contents(&redis).await;
    front.lead_to(&[&other]);
    other.authority.storage = Storage::Store(SealingKey::read(&"9".repeat(64)).unwrap());
    other.want("shop", &HOSTS);
    other.open();
    eventually(PATIENCE, "it has looked", async || {
        other.metric("tollgate_acme_store_up ") == 1
    })
    .await;
    // Another list of hosts needs another certificate, under the same account and with the same failures.
    other.want("shop", &["shop.example.com"]);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(other.issued.of("shop"), None);
    assert_eq!(pebble.logged("Added order"), 1);
    assert_eq!(pebble.logged("There are now 2 accounts"), 0);
    let mut after = contents(&redis).await;
    after.retain(|(key, _)| !key.contains(":lock:"));
    let mut before = before;
    before.retain(|(key, _)| !key.contains(":lock:"));
    assert_eq!(before, after);
}

#[tokio::test]
async fn what_the_store_has_lost_is_put_there_again_without_an_order() {
    let (pebble, redis) = (Pebble::start(asking()), Redis::start().await);
    let mut member = Member::of(&pebble, &redis);
    let mut late = Member::of(&pebble, &redis);
    let _front = Front::before(&pebble, &[&member]);
    member.want("shop", &HOSTS);
    member.open();
    let held = member.certificate().await;
    redis.command::<String>(&["FLUSHALL"]).await;
    eventually(PATIENCE, "the certificate is back", async || {
        let all = contents(&redis).await;
        all.iter().any(|(key, _)| key.contains(":certificate:"))
    })
    .await;
    late.want("shop", &HOSTS);
    late.open();
    assert_eq!(late.certificate().await, held);
    assert_eq!(pebble.logged("Added order"), 1, "{}", pebble.log());
}

/// An order of 0.1.0 has a lock and an entry for its challenge, and is not in the list.
#[tokio::test]
async fn a_challenge_that_is_not_listed_is_found_while_its_order_has_the_lock() {
    for kind in [ChallengeKind::Http01, ChallengeKind::TlsAlpn01] {
        let (pebble, redis) = (Pebble::start(asking()), Redis::start().await);
        let mut members = [0; 2].map(|_| Member::of(&pebble, &redis));
        let [a, b] = &members;
        let front = Front::before(&pebble, &[a, b]);
        front.shut();
        for member in &mut members {
            member.authority.challenges = vec![kind];
            member.want("shop", &HOSTS[..1]);
            member.open();
        }
        front.looked().await;
        let lists: Vec<String> = redis.command(&["KEYS", "edge:acme:open:*"]).await;
        assert_eq!(lists.len(), 1);
        redis.command::<i64>(&["DEL", &lists[0]]).await;
        // Both gateways have read the list, which does not exist yet.
        tokio::time::sleep(PACE.watch * 5).await;
        front.open();
        for member in &members {
            member.certificate().await;
        }
        assert_eq!(pebble.logged("Added order"), 1, "{}", pebble.log());
    }
}

/// The number of calls of a command, as Redis counts them.
async fn calls(redis: &Redis, command: &str) -> u64 {
    let stats: String = redis.command(&["INFO", "commandstats"]).await;
    let line = format!("cmdstat_{command}:calls=");
    let found = stats.lines().find_map(|one| one.strip_prefix(&line));
    let count = found.and_then(|rest| rest.split(',').next());
    count.map_or(0, |count| count.parse().unwrap())
}

#[tokio::test]
async fn strangers_cause_no_look_while_no_order_is_open() {
    let (pebble, redis) = (Pebble::start(asking()), Redis::start().await);
    let mut member = Member::of(&pebble, &redis);
    let _front = Front::before(&pebble, &[&member]);
    member.want("shop", &HOSTS);
    member.open();
    member.certificate().await;
    let lists: Vec<String> = redis.command(&["KEYS", "edge:acme:*:*"]).await;
    assert!(!lists.iter().any(|key| key.contains(":open:")), "{lists:?}");
    let (before, start) = (calls(&redis, "get").await, Instant::now());
    let mut asking = JoinSet::new();
    for number in 0..400_u16 {
        let challenges = member.challenges.clone();
        let asker = Client::of(IpAddr::from([10, 0, 0, number.to_be_bytes()[1] % 20]));
        asking.spawn(async move {
            let token = format!("{number:032}");
            let text = challenges.text_anywhere(HOSTS[0], &token, asker).await;
            let handshake = challenges.handshake_anywhere(HOSTS[1], asker).await;
            text.is_none() && handshake.is_none()
        });
    }
    assert!(asking.join_all().await.into_iter().all(|missed| missed));
    let rounds = start.elapsed().as_millis() / PACE.watch.as_millis() + 2;
    let looks = calls(&redis, "get").await - before;
    // A gateway reads the list and the lock each second (here each tenth of a second), and more rarely the certificate
    // and its failures.
    assert!(
        u128::from(looks) <= 3 * rounds,
        "{looks} in {rounds} rounds"
    );
    let missing = member.metric("tollgate_acme_lookups_total{result=\"missing\"} ");
    assert_eq!(missing, 800);
}
