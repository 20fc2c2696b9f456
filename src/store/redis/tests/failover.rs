//! The gateway queries sentinels for the master, and leaves a server that is no longer the master.

use super::support::{Client, Late, Server, fixed_window, free_port, limit, until, until_up};
use super::watched::{FAILOVER, Sentinel, Watched, by};
use crate::clock::Clock;
use crate::limit::verdict::Ruling;
use crate::limit::{Limit, OnDown};
use crate::store::check::Check;
use crate::store::error::StoreError;
use crate::store::invalidation::Invalidation;
use crate::store::redis::RedisStore;
use crate::store::redis::link::sentinel::Sentinels;
use crate::store::redis::link::signals::ConnectionSignals;
use crate::store::redis::tests::support::look;
use crate::store::worker_cache::WorkerCache;
use crate::store::{
    Address, Decider, MemoryStore, RedisTarget, Secret, SharedStore, Store, StoreSettings,
};
use crate::telemetry::metrics::Metrics;
use bb8_redis::redis;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn some_limit() -> Arc<Limit> {
    limit("some", fixed_window(1_000_000, 3_600_000_000))
}

async fn decide(store: &RedisStore, limit: &Arc<Limit>) -> Result<(), StoreError> {
    store.decide(&[Check::new(limit, b"a")]).await.map(drop)
}

async fn connected(target: &RedisTarget) -> RedisStore {
    let store = RedisStore::new(target, &StoreSettings::default());
    until_up(&store, FAILOVER).await;
    store
}

/// Sends checks without a pause until `done`. No request waits longer than the deadline, apart from the delays of a
/// busy machine.
async fn under_load(store: &RedisStore, limit: &Arc<Limit>, done: impl Fn() -> bool) -> (u64, u64) {
    let give_up = Instant::now() + FAILOVER;
    let (mut counted, mut missed) = (0, 0);
    let (late, mut longest) = (Late::watch(), Duration::ZERO);
    while !done() {
        let begun = Instant::now();
        match decide(store, limit).await {
            Ok(()) => counted += 1,
            Err(_) => missed += 1,
        }
        longest = longest.max(begun.elapsed());
        assert!(
            Instant::now() < give_up,
            "{counted} counted, {missed} missed"
        );
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let most = Duration::from_millis(400) + late.by().await;
    assert!(longest < most, "{longest:?} instead of {most:?}");
    (counted, missed)
}

/// The number of script calls so far. A server that changes its role closes connections, the test's as well.
fn calls(server: &Server) -> u64 {
    let give_up = Instant::now() + FAILOVER;
    loop {
        if let Some(text) = info(server) {
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
            let number = line.and_then(|line| line.split(',').next());
            return number.map_or(0, |number| number.parse().unwrap());
        }
        assert!(Instant::now() < give_up, "the server does not answer");
    }
}

fn info(server: &Server) -> Option<String> {
    let client = redis::Client::open(("127.0.0.1", server.port)).ok()?;
    let mut connection = client.get_connection().ok()?;
    let mut info = redis::cmd("INFO");
    info.arg("commandstats").query(&mut connection).ok()
}

/// Of several sentinels one learns of a new master before the others.
#[tokio::test(flavor = "local")]
async fn sentinels_that_lag_lead_nowhere_until_all_of_them_name_the_former_master_again() {
    let (old, new) = (Server::start(), Server::start());
    let sentinels = [&old, &old, &new].map(|server| Sentinel::start(server.port, ""));
    let nodes = [&sentinels[0], &sentinels[1], &sentinels[2]].map(Sentinel::address);
    let target = by(&nodes, "cache", None);
    let signals = Arc::<ConnectionSignals>::default();
    let address = |server: &Server| Address::new("127.0.0.1", server.port);
    for server in [&old, &new] {
        signals.leads(Some(&address(server)));
    }
    let asks = Sentinels::default();
    for _ in 0..3 {
        let followed = asks.follow(&target, &signals).await.expect("one leads");
        assert_eq!(followed.master, Some(address(&new)));
    }
    sentinels[2].name_another(old.port);
    let followed = asks
        .follow(&target, &signals)
        .await
        .expect("it leads again");
    assert_eq!(followed.master, Some(address(&old)));
}

#[tokio::test(flavor = "local")]
async fn a_planned_failover_in_mid_load_is_followed() {
    let watched = Watched::start();
    let store = connected(&watched.target()).await;
    let limit = some_limit();
    assert_eq!(decide(&store, &limit).await, Ok(()));
    assert!(calls(&watched.master) > 0);
    let before = calls(&watched.replica);
    watched.fail_over();
    let named = || watched.sentinel.names() == watched.replica.port;
    let (until_named, _) = under_load(&store, &limit, named).await;
    let (begun, late) = (Instant::now(), Late::watch());
    let followed = || calls(&watched.replica) > before + 20;
    let (counted, missed) = under_load(&store, &limit, followed).await;
    let took = begun.elapsed();
    println!(
        "{until_named} until another was named, {took:?} until it was followed: {counted} counted, {missed} missed"
    );
    // The old master is healthy and learns of the change seconds later: its counts in between are lost.
    let most = Duration::from_secs(4) + late.by().await;
    assert!(took < most, "{took:?} instead of {most:?}");
    assert!(store.is_up() && counted > 20);
    // All earlier counts are still present: the state has been replicated.
    let found = look(&watched.target()).await.unwrap();
    assert_eq!(
        found.master,
        Some(Address::new("127.0.0.1", watched.replica.port))
    );
}

#[tokio::test(flavor = "local")]
async fn a_master_that_hangs_is_replaced_in_mid_load_and_not_believed_when_it_comes_back() {
    let watched = Watched::start();
    let store = connected(&watched.target()).await;
    let limit = some_limit();
    assert_eq!(decide(&store, &limit).await, Ok(()));
    let before = calls(&watched.replica);
    watched.master.stop();
    let followed = || calls(&watched.replica) > before + 20;
    under_load(&store, &limit, followed).await;
    watched.master.go_on();
    let old = calls(&watched.master);
    let more = calls(&watched.replica);
    under_load(&store, &limit, || calls(&watched.replica) > more + 50).await;
    assert_eq!(
        calls(&watched.master),
        old,
        "an idle connection to it was used"
    );
}

#[tokio::test(flavor = "local")]
async fn a_demoted_master_condemns_every_connection_to_it() {
    let watched = Watched::start();
    let store = connected(&watched.target()).await;
    let limit = some_limit();
    assert_eq!(decide(&store, &limit).await, Ok(()));
    // The connections stay open, though a sentinel would close them.
    let port = watched.replica.port;
    watched.replica.client().say("REPLICAOF NO ONE");
    watched
        .master
        .client()
        .say(&format!("REPLICAOF 127.0.0.1 {port}"));
    let refused = decide(&store, &limit).await;
    assert!(
        matches!(&refused, Err(StoreError::Refused(why)) if why.contains("READONLY")),
        "{refused:?}"
    );
    // The server that the sentinel names is not a master, until an operator changes the sentinel.
    assert!(!store.is_up());
    let mut client = Client::of(watched.sentinel.port).unwrap();
    client.say("SENTINEL REMOVE cache");
    client.say(&format!("SENTINEL MONITOR cache 127.0.0.1 {port} 1"));
    until_up(&store, FAILOVER).await;
    assert_eq!(decide(&store, &limit).await, Ok(()));
}

#[tokio::test(flavor = "local")]
async fn sentinels_that_are_away_are_passed_over() {
    let master = Server::start();
    let sentinel = Sentinel::start(master.port, "");
    let away = Address::new("127.0.0.1", free_port());
    let nodes = [away.clone(), sentinel.address()];
    let store = connected(&by(&nodes, "cache", None)).await;
    assert_eq!(decide(&store, &some_limit()).await, Ok(()));

    let said = |target: RedisTarget| async move { look(&target).await.unwrap_err().to_string() };
    let unknown = said(by(&nodes, "cash", None)).await;
    assert!(
        unknown.contains(&format!("{away}: ")) && unknown.contains("watches nothing called `cash`"),
        "{unknown}"
    );
}

#[tokio::test(flavor = "local")]
async fn what_a_sentinel_names_must_be_a_master() {
    let master = Server::start();
    let of = master.port.to_string();
    let replica = Server::start_with(&["--replicaof", "127.0.0.1", &of]);
    let sentinel = Sentinel::start(master.port, "sentinel down-after-milliseconds cache 60000");
    master
        .client()
        .say(&format!("REPLICAOF 127.0.0.1 {}", replica.port));
    let target = by(&[sentinel.address()], "cache", None);
    let said = look(&target).await.unwrap_err().to_string();
    assert!(said.contains("says that it is no master"), "{said}");
}

#[tokio::test(flavor = "local")]
async fn sentinels_have_a_password_of_their_own() {
    let master = Server::start_with(&["--requirepass", "of-redis"]);
    let sentinel = Sentinel::start(
        master.port,
        "sentinel auth-pass cache of-redis\nrequirepass of-sentinel",
    );
    let nodes = [sentinel.address()];
    let full = |redis: &str, sentinel: Option<&str>| RedisTarget {
        password: Some(Secret::new(redis)),
        ..by(&nodes, "cache", sentinel)
    };
    let store = connected(&full("of-redis", Some("of-sentinel"))).await;
    assert_eq!(decide(&store, &some_limit()).await, Ok(()));
    for target in [
        full("of-redis", None),
        full("of-redis", Some("of-redis")),
        full("of-sentinel", Some("of-sentinel")),
    ] {
        let said = look(&target).await.unwrap_err().to_string();
        assert!(
            said.contains("AUTH") || said.contains("uthentication") || said.contains("WRONGPASS"),
            "{said}"
        );
        assert!(!said.contains("of-"), "{said}");
    }
}

/// Ends one of the store's connections.
fn kill_one(client: &mut Client) {
    let redis::Value::BulkString(list) = client.say("CLIENT LIST") else {
        panic!("a list");
    };
    let list = String::from_utf8(list).unwrap();
    let is_evalsha = |line: &&str| line.contains("cmd=evalsha");
    let id = list
        .lines()
        .find(is_evalsha)
        .and_then(|line| line.split(' ').next());
    let id = id.and_then(|word| word.strip_prefix("id=")).unwrap();
    client.say(&format!("CLIENT KILL ID {id}"));
}

/// Both servers are healthy and report the master's role. A store that has learned of the new one counts nowhere else
/// any more, on any connection.
#[tokio::test(flavor = "local")]
async fn no_connection_is_left_behind_at_a_master_that_was_replaced() {
    let (old, new) = (Server::start(), Server::start());
    let sentinel = Sentinel::start(old.port, "");
    let store = connected(&by(&[sentinel.address()], "cache", None)).await;
    let limit = some_limit();
    // Checks on both lanes.
    let ask = async || {
        let tasks = (0..8).map(|_| {
            let (store, limit) = (store.clone(), limit.clone());
            tokio::task::spawn_local(async move { decide(&store, &limit).await })
        });
        for task in tasks.collect::<Vec<_>>() {
            assert_eq!(task.await.unwrap(), Ok(()));
        }
    };
    ask().await;
    let mut client = Client::of(sentinel.port).unwrap();
    for (from, to) in [(&old, &new), (&new, &old)] {
        client.say("SENTINEL REMOVE cache");
        let port = to.port;
        client.say(&format!("SENTINEL MONITOR cache 127.0.0.1 {port} 1"));
        let before = calls(to);
        // One connection ends, as any may, and the next one leads to the new master.
        kill_one(&mut from.client());
        // No request uses the connection, and this end notices the loss a little later.
        tokio::time::sleep(Duration::from_millis(100)).await;
        let give_up = Instant::now() + FAILOVER;
        while calls(to) == before {
            assert!(Instant::now() < give_up, "nobody goes over");
            ask().await;
        }
        let left = calls(from);
        for _ in 0..100 {
            ask().await;
        }
        assert_eq!(calls(from), left);
    }
    assert_eq!(store.stats().falls.get(), 0);
}

/// The new master has fewer requests, so that it may admit a request that the old one refused.
#[tokio::test(flavor = "local")]
async fn refusals_of_a_master_that_was_replaced_are_forgotten() {
    let (old, new) = (Server::start(), Server::start());
    let sentinel = Sentinel::start(old.port, "");
    let shared = connected(&by(&[sentinel.address()], "cache", None)).await;
    let metrics = Metrics::new().store();
    let worker_cache = WorkerCache::new(
        Invalidation::default(),
        StoreSettings::default().timeout,
        Clock::system(),
    );
    worker_cache.follow(&shared, &metrics);
    let store = Store::Shared(SharedStore {
        redis: shared.clone(),
        local: Arc::new(MemoryStore::for_one_thread(Clock::system())),
        on_down: OnDown::Closed,
        fleet: Arc::default(),
        metrics,
        cache: worker_cache,
    });
    let once = limit("once", fixed_window(1, 3_600_000_000));
    let ask = async || {
        // The succession delays decisions for a moment, which is all of their time on a busy machine.
        let (decided, by) = loop {
            match store.decide(&[Check::new(&once, b"a")]).await {
                Err(StoreError::Overloaded) => {}
                decided => break decided.unwrap(),
            }
        };
        let ruling = decided.unwrap().decision.ruling;
        (matches!(ruling, Ruling::Admit { .. }), by)
    };
    assert_eq!(ask().await, (true, Decider::Redis));
    assert_eq!(ask().await, (false, Decider::Redis));
    assert_eq!(ask().await, (false, Decider::Remembered));
    let mut client = Client::of(sentinel.port).unwrap();
    client.say("SENTINEL REMOVE cache");
    let port = new.port;
    client.say(&format!("SENTINEL MONITOR cache 127.0.0.1 {port} 1"));
    until(FAILOVER, "the new one is asked", async || ask().await.0).await;
    assert_eq!(ask().await, (false, Decider::Redis));
    assert_eq!(shared.stats().falls.get(), 0);
}
