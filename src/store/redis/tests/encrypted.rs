//! Sentinels with TLS only, for a master and a replica with TLS only; and a cluster with TLS only.

use super::certificates::{Authority, Files, Pair, TlsServer, has_tls};
use super::clusters::{command_text, eventually};
use super::support::{Server, fixed_window, free_port, limit, look, until, until_up};
use super::watched::{FAILOVER, Sentinel, by};
use crate::store::check::Check;
use crate::store::redis::link::login::{LoginPeer, connect};
use crate::store::redis::link::signals::ConnectionSignals;
use crate::store::redis::link::transport::RedisDestination;
use crate::store::redis::{RedisStore, probe, slot_of};
use crate::store::{Address, RedisEndpoint, RedisTarget, StoreSettings};
use crate::tls::{ClientTls, PemFiles};
use bb8_redis::redis::{Cmd, Value};
use std::collections::BTreeSet;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The name in all certificates of servers: sentinels hand out addresses.
const NAME: &str = "redis.internal";

struct Encrypted {
    authority: Authority,
    master: TlsServer,
    replica: TlsServer,
    sentinel: Sentinel,
    _files: Files,
}

impl Encrypted {
    /// All servers require a certificate of their clients.
    fn start() -> Self {
        let authority = Authority::new();
        let pair = authority.signs(NAME);
        let with = |more: &[&str]| {
            let more = [&["--tls-replication", "yes"], more].concat();
            TlsServer::start_with(&authority, &pair, "yes", &more)
        };
        let master = with(&[]);
        let port = master.port.to_string();
        let replica = with(&[
            "--replicaof",
            "127.0.0.1",
            &port,
            "--repl-diskless-sync-delay",
            "0",
        ]);
        eventually("the replica follows", || {
            let reply = replica.server.client().info("replication");
            reply.contains("master_link_status:up")
        });
        let files = Files::of(&authority, &pair);
        let sentinel = Sentinel::start_encrypted(master.port, &files.lines("yes"));
        Self {
            authority,
            master,
            replica,
            sentinel,
            _files: files,
        }
    }

    fn target(&self, material: PemFiles<'_>) -> RedisTarget {
        RedisTarget {
            tls: Some(ClientTls::new(material).unwrap()),
            ..by(&[self.sentinel.address()], "cache", None)
        }
    }
}

fn presents(pair: &Pair) -> Option<(&[u8], &[u8])> {
    Some((pair.cert.as_bytes(), pair.key.as_bytes()))
}

async fn knows_a_replica(sentinel: &Sentinel, target: &RedisTarget) -> bool {
    let alone = RedisTarget {
        tls: target.tls.clone(),
        ..RedisTarget::new(RedisEndpoint::Tcp(sentinel.address()))
    };
    let destination = RedisDestination::of(&alone);
    let connected = connect(
        destination,
        LoginPeer::Sentinels,
        &Arc::<ConnectionSignals>::default(),
    )
    .await;
    let mut connection = connected.unwrap();
    let mut ask = Cmd::new();
    ask.arg("SENTINEL").arg("REPLICAS").arg("cache");
    let reply = connection.send(&ask).await.unwrap();
    matches!(reply, Value::Array(list) if !list.is_empty())
}

#[tokio::test(flavor = "local")]
async fn a_failover_is_followed_where_nobody_speaks_in_the_clear() {
    if !has_tls() {
        return;
    }
    let mut all = Encrypted::start();
    let (ca, certificate) = (all.authority.pem(), all.authority.signs("gateway"));
    let target = all.target(PemFiles {
        ca: Some(ca.as_bytes()),
        identity: presents(&certificate),
        server_name: Some(NAME),
        insecure: false,
    });
    assert!(
        target
            .to_string()
            .starts_with("rediss+sentinel://127.0.0.1:")
    );
    let store = RedisStore::new(&target, &StoreSettings::default());
    until_up(&store, FAILOVER).await;
    let some = limit("some", fixed_window(1_000_000, 3_600_000_000));
    let decide = async || {
        let decided = store.decide(&[Check::new(&some, b"a")]).await;
        decided.map(|decided| decided.decision.verdicts[0].remaining)
    };
    assert_eq!(decide().await, Ok(999_999));
    let at = |server: &TlsServer| Some(Address::new("127.0.0.1", server.port));
    assert_eq!(look(&target).await.unwrap().master, at(&all.master));
    until(FAILOVER, "the sentinel finds a replica", async || {
        knows_a_replica(&all.sentinel, &target).await
    })
    .await;
    // Writes that the replica does not have yet are lost with the master.
    until(FAILOVER, "the replica has the counter", async || {
        let mut replica = all.replica.server.client();
        replica.info("keyspace").contains("db0:")
    })
    .await;
    all.master.server.kill();
    while decide().await.is_ok() {}
    // One broken connection is no outage yet. The outage begins when none can be made.
    let give_up = Instant::now() + FAILOVER;
    let left = loop {
        match decide().await {
            Ok(left) => break left,
            Err(_) => assert!(Instant::now() < give_up, "nobody takes over"),
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    };
    // The replica continues to count.
    assert!(left < 999_999, "{left}");
    assert_eq!(look(&target).await.unwrap().master, at(&all.replica));
}

#[tokio::test(flavor = "local")]
async fn what_is_wrong_between_us_and_a_sentinel_is_said() {
    if !has_tls() {
        return;
    }
    let all = Encrypted::start();
    let (ca, certificate) = (all.authority.pem(), all.authority.signs("gateway"));
    let other = Authority::new();
    let (other_ca, strange) = (other.pem(), other.signs("gateway"));
    let good = PemFiles {
        ca: Some(ca.as_bytes()),
        identity: presents(&certificate),
        server_name: Some(NAME),
        insecure: false,
    };
    let at = all.sentinel.address().to_string();
    for (material, expected) in [
        (
            PemFiles {
                ca: Some(other_ca.as_bytes()),
                ..good
            },
            "the certificate's authority is not trusted: name it as `ca`",
        ),
        (
            PemFiles {
                server_name: None,
                ..good
            },
            "the certificate is for another name",
        ),
        (
            PemFiles {
                server_name: Some("sentinel.internal"),
                ..good
            },
            "write the name that it has as `server_name`",
        ),
        (
            PemFiles {
                identity: None,
                ..good
            },
            "does it demand a client's certificate? Name it as `cert` and `key`",
        ),
        (
            PemFiles {
                identity: presents(&strange),
                ..good
            },
            "the server does not trust the authority of our certificate",
        ),
    ] {
        let said = look(&all.target(material)).await.unwrap_err().to_string();
        assert!(said.contains(expected), "{said}");
        // The error names the sentinel as the cause, not the master that it names.
        assert!(said.contains(&at) && !said.contains("it names"), "{said}");
    }
    let plain = by(&[all.sentinel.address()], "cache", None);
    let said = look(&plain).await.unwrap_err().to_string();
    assert!(
        said.contains("write `rediss` in place of `redis`"),
        "{said}"
    );
}

/// One side uses TLS and the other does not.
#[tokio::test(flavor = "local")]
async fn sentinels_and_masters_that_do_not_both_speak_tls_are_told_apart() {
    if !has_tls() {
        return;
    }
    let (authority, plain) = (Authority::new(), Server::start());
    let ca = authority.pem();
    let target = |sentinel: &Sentinel| RedisTarget {
        tls: Some(
            ClientTls::new(PemFiles {
                ca: Some(ca.as_bytes()),
                identity: None,
                server_name: Some(NAME),
                insecure: false,
            })
            .unwrap(),
        ),
        ..by(&[sentinel.address()], "cache", None)
    };
    // A sentinel without TLS: its reaction to a handshake depends on the bytes of the handshake.
    let open = Sentinel::start(plain.port, "");
    for _ in 0..5 {
        let said = look(&target(&open)).await.unwrap_err().to_string();
        assert!(
            said.contains("write `redis` in place of `rediss`") && !said.contains("it names"),
            "{said}"
        );
    }
    // A sentinel with TLS that names a port without TLS.
    let files = Files::of(&authority, &authority.signs(NAME));
    let lines = files.lines("no").replace("tls-replication yes", "");
    let closed = Sentinel::start_encrypted(plain.port, &lines);
    let names = format!("it names 127.0.0.1:{}", plain.port);
    for _ in 0..5 {
        let said = look(&target(&closed)).await.unwrap_err().to_string();
        assert!(said.contains(&names) && said.contains("TLS"), "{said}");
    }
}

/// Three masters whose bus is encrypted, too: they announce their ports with TLS.
struct Masters {
    nodes: Vec<(Server, u16)>,
    _files: Files,
}

impl Masters {
    fn start(authority: &Authority) -> Self {
        let files = Files::of(authority, &authority.signs(NAME));
        let mut words = vec!["--cluster-enabled", "yes", "--tls-cluster", "yes"];
        let lines = files.lines("yes");
        let files_of = lines.lines().filter_map(|line| line.split_once(' '));
        let named: Vec<(String, &str)> = files_of
            .map(|(name, value)| (format!("--{name}"), value))
            .collect();
        for (name, value) in &named {
            words.extend([name.as_str(), *value]);
        }
        let one = || loop {
            // The bus between the nodes uses a port 10,000 above.
            let port = fastrand::u16(10_001..22_000);
            let free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
            let tls = port.to_string();
            let words = [&words[..], &["--tls-port", &tls]].concat();
            if free(port)
                && free(port + 10_000)
                && let Some(server) = Server::start_on(free_port(), &words)
            {
                break (server, port);
            }
        };
        let nodes: Vec<_> = (0..3).map(|_| one()).collect();
        let all = Self {
            nodes,
            _files: files,
        };
        let share = |index: u16| index * 5461 + index.min(1);
        for (index, (server, _)) in (0..).zip(&all.nodes) {
            let slots: Vec<String> = (share(index)..share(index + 1))
                .map(|slot| slot.to_string())
                .collect();
            let mut client = server.client();
            client.say(&format!("CLUSTER SET-CONFIG-EPOCH {}", index + 1));
            client.say(&format!("CLUSTER ADDSLOTS {}", slots.join(" ")));
        }
        for (_, port) in &all.nodes[1..] {
            let meet = format!("CLUSTER MEET 127.0.0.1 {port}");
            all.nodes[0].0.client().say(&meet);
        }
        eventually("the cluster serves", || {
            all.nodes.iter().all(|(server, _)| {
                command_text(server, "CLUSTER INFO").contains("cluster_state:ok")
                    && command_text(server, "CLUSTER NODES")
                        .matches(" connected")
                        .count()
                        == 3
            })
        });
        all
    }
}

#[tokio::test(flavor = "local")]
async fn a_cluster_that_speaks_tls_is_used_and_its_redirects_followed() {
    if !has_tls() {
        return;
    }
    let authority = Authority::new();
    let masters = Masters::start(&authority);
    let (ca, certificate) = (authority.pem(), authority.signs("gateway"));
    let seeds: Vec<Address> = vec![Address::new("127.0.0.1", masters.nodes[1].1)];
    let with = |material| RedisTarget {
        tls: Some(ClientTls::new(material).unwrap()),
        ..RedisTarget::new(RedisEndpoint::Cluster {
            seeds: seeds.clone().into(),
        })
    };
    let good = PemFiles {
        ca: Some(ca.as_bytes()),
        identity: presents(&certificate),
        server_name: Some(NAME),
        insecure: false,
    };
    let target = with(good);
    let settings = StoreSettings {
        timeout: Duration::from_secs(2),
        ..StoreSettings::default()
    };
    let store = RedisStore::new(&target, &settings);
    until_up(&store, FAILOVER).await;
    let some = limit("some", fixed_window(1_000_000, 3_600_000_000));
    for number in 0..50 {
        let key = format!("key-{number}");
        let decided = store.decide(&[Check::new(&some, key.as_bytes())]).await;
        assert!(decided.is_ok(), "{decided:?}");
    }
    let calls = |node: &(Server, u16)| node.0.client().script_calls().0;
    assert!(masters.nodes.iter().all(|node| calls(node) > 0));
    // An empty slot has another owner, and no node has announced it.
    let slot = slot_of(&some, b"moves");
    let home = usize::from(slot) * 3 / 16_384;
    let next = (home + 1) % 3;
    let id = command_text(&masters.nodes[next].0, "CLUSTER MYID");
    for node in [next, home] {
        let set = format!("CLUSTER SETSLOT {slot} NODE {id}");
        masters.nodes[node].0.client().say(&set);
    }
    let before = calls(&masters.nodes[next]);
    let decided = store.decide(&[Check::new(&some, b"moves")]).await;
    assert!(decided.is_ok(), "{decided:?}");
    assert!(calls(&masters.nodes[next]) > before);
    let found = probe(&target, "tollgate").await.unwrap();
    let ports: BTreeSet<u16> = masters.nodes.iter().map(|(_, port)| *port).collect();
    let ports_found = found.iter().filter(|(_, found)| found.is_ok());
    let ports_found: BTreeSet<u16> = ports_found
        .filter_map(|(at, _)| Some(at.as_ref()?.port))
        .collect();
    assert_eq!(ports_found, ports);

    let nameless = PemFiles {
        server_name: None,
        ..good
    };
    let said = probe(&with(nameless), "tollgate").await.unwrap_err();
    let said = said.to_string();
    assert!(said.contains("as `server_name`"), "{said}");
}
