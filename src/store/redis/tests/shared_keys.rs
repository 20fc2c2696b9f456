//! Shared keys other than counters: in one Redis, in a cluster whose slots move, behind sentinels, over TLS.

use super::certificates::{Authority, TlsServer, has_tls};
use super::clusters::{Servers, eventually, migrate};
use super::support::{Server, until};
use super::watched::{FAILOVER, Watched};
use crate::store::redis::SharedKeys;
use crate::store::redis::wire::slot::of_tag;
use crate::store::{Address, RedisEndpoint, RedisTarget, StoreError};
use crate::tls::PemFiles;
use std::time::{Duration, Instant};

const LIFE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_value_is_replaced_by_whoever_knows_it_and_a_lock_is_its_holders() {
    let server = Server::start();
    let keys = SharedKeys::new(&server.target());
    assert_eq!(keys.get("a").await.unwrap(), None);
    assert!(keys.swap("a", b"", b"1", None).await.unwrap());
    assert!(keys.swap("a", b"", b"1", None).await.unwrap(), "repeated");
    assert!(!keys.swap("a", b"", b"2", None).await.unwrap());
    assert!(keys.swap("a", b"1", b"2", Some(LIFE)).await.unwrap());
    assert_eq!(keys.get("a").await.unwrap().as_deref(), Some(&b"2"[..]));
    assert!(keys.lock("l", "mine", LIFE).await.unwrap());
    assert!(keys.lock("l", "mine", LIFE).await.unwrap(), "repeated");
    assert!(!keys.lock("l", "other", LIFE).await.unwrap());
    assert!(!keys.prolong("l", b"other", LIFE).await.unwrap());
    assert!(!keys.release("l", b"other").await.unwrap());
    assert!(keys.prolong("l", b"mine", LIFE).await.unwrap());
    assert!(keys.release("l", b"mine").await.unwrap());
    assert!(!keys.prolong("l", b"mine", LIFE).await.unwrap());
    let short = Duration::from_millis(30);
    assert!(keys.lock("l", "mine", short).await.unwrap());
    tokio::time::sleep(short * 3).await;
    assert!(!keys.prolong("l", b"mine", LIFE).await.unwrap());
    // A connection that ended meanwhile is replaced, without an error.
    server.client().say("CLIENT KILL TYPE normal SKIPME yes");
    assert!(keys.lock("l", "other", LIFE).await.unwrap());
}

#[tokio::test]
async fn a_silent_store_is_not_waited_for() {
    let keys = SharedKeys::new(&RedisTarget::new(RedisEndpoint::tcp("127.0.0.1", 1)));
    let begun = Instant::now();
    assert!(keys.get("a").await.is_err());
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let keys = SharedKeys::new(&RedisTarget::new(RedisEndpoint::tcp("127.0.0.1", port)));
    let error = keys.get("a").await.unwrap_err();
    assert!(matches!(error, StoreError::Timeout { .. }), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(10));
}

/// Keys of all three masters; one slot moves while its key is read and written.
#[tokio::test]
async fn keys_are_found_wherever_in_a_cluster_they_are() {
    let servers = Servers::start(3, false, &[]);
    let seeds = [Address::new("127.0.0.1", servers.masters[0].port)];
    let target = RedisTarget::new(RedisEndpoint::Cluster {
        seeds: seeds.into(),
    });
    let keys = SharedKeys::new(&target);
    let names: Vec<String> = (0..24).map(|one| format!("edge:acme:{one}")).collect();
    for name in &names {
        assert!(keys.swap(name, b"", b"1", None).await.unwrap());
        assert!(keys.lock(&format!("{name}:l"), "mine", LIFE).await.unwrap());
    }
    let sizes = servers.masters.iter().map(|master| {
        let size = master.client().say("DBSIZE");
        assert_ne!(format!("{size:?}"), "int(0)", "all masters have some");
        size
    });
    assert_eq!(sizes.count(), 3);
    let slot = of_tag(names[0].as_bytes());
    let (from, to) = (servers.home(slot), (servers.home(slot) + 1) % 3);
    let ports = (servers.masters[from].port, servers.masters[to].port);
    let moving = std::thread::spawn(move || migrate(slot, ports, Duration::from_millis(100)));
    let mut after = 0;
    let mut value = 1_u64;
    while after < 5 {
        after += u32::from(moving.is_finished());
        let (before, next) = (value.to_string(), (value + 1).to_string());
        let swapped = keys.swap(&names[0], before.as_bytes(), next.as_bytes(), None);
        assert!(swapped.await.unwrap(), "{before}");
        value += 1;
        let read = keys.get(&names[0]).await.unwrap();
        assert_eq!(read.as_deref(), Some(next.as_bytes()));
    }
    moving.join().unwrap();
}

#[tokio::test]
async fn the_first_command_after_a_master_was_replaced_finds_the_new_one() {
    let mut servers = Servers::start(3, true, &["--cluster-require-full-coverage", "no"]);
    let seeds = [Address::new("127.0.0.1", servers.masters[0].port)];
    let target = RedisTarget::new(RedisEndpoint::Cluster {
        seeds: seeds.into(),
    });
    let keys = SharedKeys::new(&target);
    let names = (0..).map(|one| format!("edge:acme:{one}"));
    let mut names = names.filter(|name| servers.home(of_tag(name.as_bytes())) == 1);
    let (used, fresh) = (names.next().unwrap(), names.next().unwrap());
    assert_eq!(keys.get(&used).await, Ok(None));
    servers.masters[1].kill();
    let successor = format!(":{}@", servers.replicas[1].port);
    eventually("a replica takes over", || {
        let nodes = format!("{:?}", servers.masters[0].client().say("CLUSTER NODES"));
        let mut nodes = nodes.split("\\n").flat_map(|line| line.split('\n'));
        nodes.any(|line| line.contains(&successor) && line.contains("master"))
    });
    for name in [&used, &fresh] {
        assert_eq!(keys.get(name).await, Ok(None), "{name}");
    }
}

#[tokio::test]
async fn the_master_is_followed_where_sentinels_name_it() {
    let mut watched = Watched::start();
    let keys = SharedKeys::new(&watched.target());
    assert!(keys.swap("a", b"", b"1", None).await.unwrap());
    eventually("the replica has it", || {
        watched.replica.client().info("keyspace").contains("keys=1")
    });
    watched.master.kill();
    until(FAILOVER, "another master is found", async || {
        keys.swap("a", b"1", b"2", None).await == Ok(true)
    })
    .await;
}

#[tokio::test]
async fn the_encrypted_port_is_spoken_to() {
    if !has_tls() {
        return;
    }
    let authority = Authority::new();
    let server = TlsServer::start(&authority, &authority.signs("redis.internal"), "no");
    let ca = authority.pem();
    let trusting = |name| PemFiles {
        ca: Some(ca.as_bytes()),
        server_name: Some(name),
        ..PemFiles::default()
    };
    let keys = SharedKeys::new(&server.target(trusting("redis.internal")));
    assert!(keys.swap("a", b"", b"1", None).await.unwrap());
    let keys = SharedKeys::new(&server.target(trusting("other.internal")));
    assert!(keys.get("a").await.is_err());
}
