//! Three gateways on a Redis Cluster whose masters are killed in turn, under load.

use crate::support::load::Load;
use crate::support::{
    Cluster, File, Gateway, Redis, Upstream, Wire, eventually, long, request, tollgate,
};
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// The quota of each client in an hour. In the long form the quota lasts until the last master has been killed.
fn quota() -> usize {
    if long() { 300 } else { 100 }
}

const CLIENTS: usize = 24;
/// The slot of the limit that all clients share, as CLUSTER KEYSLOT computes it.
const SLOT: usize = 1_320;
/// The most charges of one client that masters may have answered but not sent to their replicas, over all kills: at
/// each kill, the charges of a few milliseconds.
const LOST: usize = 10;

fn file(upstream: &Upstream, cluster: &Cluster, on_down: &str) -> File {
    file_with(upstream, cluster, (on_down, "250ms"))
}

fn file_with(upstream: &Upstream, cluster: &Cluster, (on_down, timeout): (&str, &str)) -> File {
    let store = format!(
        "{}\ntimeout = \"{timeout}\"\non_down = \"{on_down}\"",
        cluster.store()
    );
    File::to(upstream, &["per-client", "total"])
        .store(&store)
        .limit(
            "per-client",
            &format!(
                "by = \"header:x-client\"\nmissing = \"refuse\"\nrate = \"{}/h\"\nalgorithm = \"fixed-window\"",
                quota()
            ),
        )
        .limit(
            "total",
            "by = \"everyone\"\nrate = \"100000000/h\"\nalgorithm = \"fixed-window\"",
        )
}

async fn gateways(upstream: &Upstream, cluster: &Cluster, on_down: &str) -> Vec<Gateway> {
    let mut gateways = Vec::new();
    for _ in 0..3 {
        gateways.push(Gateway::start(&file(upstream, cluster, on_down)).await);
    }
    for gateway in &gateways {
        eventually(
            Duration::from_secs(10),
            "its workers reach the masters",
            async || up(gateway).await == 1.0,
        )
        .await;
    }
    gateways
}

async fn up(gateway: &Gateway) -> f64 {
    let metrics = gateway.metrics().await;
    let value = metrics
        .lines()
        .find_map(|line| line.strip_prefix("tollgate_store_up "));
    value.expect("it is told").parse().unwrap()
}

/// The requests of one client, by status, and the longest time that one of them took.
type Lived = (usize, BTreeMap<u16, usize>, Duration);

async fn client(mut wire: Wire, number: usize, over: Arc<AtomicBool>) -> Lived {
    let name = format!("client-{}", number % CLIENTS);
    let (mut statuses, mut longest) = (BTreeMap::new(), Duration::ZERO);
    while !over.load(Ordering::Relaxed) {
        let begun = Instant::now();
        let answer = wire.ask(request("GET", "/", &[("x-client", &name)])).await;
        longest = longest.max(begun.elapsed());
        *statuses.entry(answer.status).or_insert(0) += 1;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    (number % CLIENTS, statuses, longest)
}

/// Runs all clients at all gateways until the future ends.
async fn under_load<T>(gateways: &[Gateway], what: impl Future<Output = T>) -> (Vec<Lived>, T) {
    let over = Arc::new(AtomicBool::new(false));
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS * gateways.len() {
        let wire = gateways[number / CLIENTS].connect().await;
        clients.spawn(client(wire, number, Arc::clone(&over)));
    }
    let done = what.await;
    over.store(true, Ordering::Relaxed);
    (clients.join_all().await, done)
}

#[tokio::test]
async fn masters_are_killed_in_turn_and_nobody_is_answered_an_error() {
    let (kills, quota) = (if long() { 3 } else { 1 }, quota());
    // If only the cluster decides, a limit can be exceeded only by the charges that a failover has lost.
    for on_down in ["local", "open", "closed"] {
        let (upstream, mut cluster) = (Upstream::echo().await, Cluster::start().await);
        let gateways = gateways(&upstream, &cluster, on_down).await;
        let first = cluster.masters().await;
        let (lived, ()) = under_load(&gateways, async {
            for number in first.into_iter().take(kills) {
                let killed = Instant::now();
                cluster.lose(number).await;
                let taken_over = killed.elapsed();
                for gateway in &gateways {
                    eventually(Duration::from_secs(20), "all is shared again", async || {
                        up(gateway).await == 1.0
                    })
                    .await;
                }
                let shared = killed.elapsed();
                println!(
                    "a replica took over after {taken_over:?}, all was shared after {shared:?}"
                );
                cluster.come(number).await;
                cluster.whole().await;
            }
        })
        .await;
        let mut all: BTreeMap<u16, usize> = BTreeMap::new();
        let mut admitted = [0_usize; CLIENTS];
        let mut longest = Duration::ZERO;
        for (client, statuses, slowest) in lived {
            admitted[client] += statuses.get(&200).copied().unwrap_or(0);
            longest = longest.max(slowest);
            for (status, count) in statuses {
                *all.entry(status).or_insert(0) += count;
            }
        }
        println!("{on_down}: {all:?}, longest {longest:?}, admitted of {quota}: {admitted:?}");
        // Clients are refused only if the file says so. With `local`, the whole limit is admitted once more, also by
        // each gateway that does not know of the others yet.
        let (good, most): (&[u16], usize) = match on_down {
            "local" => (&[200, 429], quota * 4),
            "open" => (&[200, 429], usize::MAX),
            _ => (&[200, 429, 503], quota + LOST),
        };
        assert!(all.keys().all(|status| good.contains(status)), "{all:?}");
        for (client, admitted) in admitted.iter().enumerate() {
            assert!(*admitted <= most, "{client}: {admitted}");
        }
        for gateway in &gateways {
            assert!(
                gateway
                    .said
                    .text()
                    .contains("is away, limits with counters there")
            );
        }
    }
}

/// The calls that a request costs at the cluster: with two slots, first all requests are admitted, then one of the
/// slots refuses all.
#[tokio::test]
async fn calls_of_admitted_and_refused_requests() {
    let (upstream, cluster) = (Upstream::echo().await, Cluster::start().await);
    // A busy machine must not look like a cluster that is away.
    let file = file_with(&upstream, &cluster, ("closed", "5s"));
    let gateway = Gateway::start(&file).await;
    eventually(
        Duration::from_secs(20),
        "it reaches the masters",
        async || up(&gateway).await == 1.0,
    )
    .await;
    for (what, status) in [("admitted", 200), ("refused", 429)] {
        let before = cluster.script_calls().await;
        let mut wire = gateway.connect().await;
        for _ in 0..quota() {
            wire.ask(request("GET", "/", &[("x-client", "one")]))
                .await
                .expect(status);
        }
        let calls = cluster.script_calls().await - before;
        let each = calls as f64 / quota() as f64;
        println!("{what}: {each:.2} calls a request");
        // After a refusal, another call gives back the charge at the other slot.
        let most = if status == 200 { 2.05 } else { 3.05 };
        assert!(each <= most, "{what}: {each}");
    }
}

/// A node that does not serve a slot answers with a redirect. The redirect is counted, and the node that it names
/// decides the request.
#[tokio::test]
async fn redirects_are_counted() {
    let (upstream, cluster) = (Upstream::echo().await, Cluster::start().await);
    let gateway = Gateway::start(&file(&upstream, &cluster, "closed")).await;
    let patience = Duration::from_secs(20);
    eventually(patience, "all is there", async || up(&gateway).await == 1.0).await;
    let redirects = async |kind: &str| {
        let row = format!("tollgate_store_redirects_total{{kind=\"{kind}\"}} ");
        let metrics = gateway.metrics().await;
        let value = metrics.lines().find_map(|line| line.strip_prefix(&row));
        value.expect("it is told").parse::<u64>().unwrap()
    };
    assert_eq!((redirects("ask").await, redirects("moved").await), (0, 0));
    // Nothing has been counted for `everyone` yet, so its counter is new.
    cluster.send(SLOT, 0, 1).await;
    let ask = async || gateway.get_with("/", &[("x-client", "one")]).await;
    ask().await.expect(200);
    assert!(redirects("ask").await > 0);
    let mut at = 0;
    eventually(patience, "a move that was not known", async || {
        cluster.arrive(SLOT, at, 1 - at).await;
        at = 1 - at;
        ask().await.expect(200);
        let moved = redirects("moved").await > 0;
        cluster.send(SLOT, at, 1 - at).await;
        moved
    })
    .await;
}

/// If no node serves a slot, this part of the store is away, whatever the masters report about themselves.
#[tokio::test]
async fn slots_that_nobody_serves_are_a_part_that_is_away() {
    let (upstream, cluster) = (Upstream::echo().await, Cluster::start().await);
    let gateway = Gateway::start(&file(&upstream, &cluster, "open")).await;
    let stands = async || gateway.admin_get("/readyz").await.text();
    let is = async |word: &str| stands().await.ends_with(&format!("\nstore: {word}\n"));
    let patience = Duration::from_secs(20);
    eventually(patience, "all is there", async || is("up").await).await;
    cluster.unassign(SLOT).await;
    let away = "partly away, limits counted there follow their on_down";
    let asked = async || {
        let answer = gateway.get_with("/", &[("x-client", "one")]).await;
        let told = gateway.admin_get("/v1/store").await.json();
        answer.status == 200 && told["partly"] == told["workers"]
    };
    eventually(patience, "every worker knows it", asked).await;
    assert!(is(away).await && up(&gateway).await == 0.0);
    let told = gateway.admin_get("/v1/store").await.json();
    assert_eq!((&told["up"], &told["reaching"]), (&false.into(), &0.into()));
    // The other slots are counted.
    let answer = gateway.get_with("/", &[("x-client", "one")]).await;
    let policy = answer.fields.get("ratelimit").unwrap();
    assert!(
        policy.contains("per-client") && !policy.contains("total"),
        "{policy}"
    );
    let started = Gateway::start(&file(&upstream, &cluster, "open")).await;
    for gateway in [&gateway, &started] {
        let gap = |line: &str| {
            line.contains("WARN a part of redis+cluster://")
                && line.contains("1 of 16384 slots are served by no node")
        };
        gateway.said.line(0, "what is away", gap).await;
    }
    assert!(!gateway.said.text().contains("again"));
    cluster.assign(SLOT, 0).await;
    eventually(patience, "all is there again", async || is("up").await).await;
    let back = |line: &str| line.contains("every slot of redis+cluster://");
    gateway.said.line(0, "that it is back", back).await;
    assert_eq!(up(&gateway).await, 1.0);
}

/// The nodes take connections and answer nothing, as behind a firewall that drops packets. The first request waits for
/// them within the store's timeout, a line is logged at once, and no other request waits.
#[tokio::test]
async fn seeds_that_say_nothing_cost_one_request_less_than_a_timeout() {
    let upstream = Upstream::echo().await;
    let silent: Vec<TcpListener> = (0..4)
        .map(|_| TcpListener::bind("127.0.0.1:0").unwrap())
        .collect();
    let seeds: Vec<String> = silent
        .iter()
        .map(|seed| seed.local_addr().unwrap().to_string())
        .collect();
    let store = format!(
        "url = \"redis+cluster://{}\"\ntimeout = \"400ms\"\non_down = \"open\"",
        seeds.join(",")
    );
    let file = File::to(&upstream, &["total"])
        .server("workers = 1")
        .store(&store)
        .limit("total", "by = \"everyone\"\nrate = \"10/h\"");
    let gateway = Gateway::start(&file).await;
    let mut wire = gateway.connect().await;
    let mut took = Vec::new();
    for _ in 0..20 {
        let begun = Instant::now();
        wire.ask(request("GET", "/", &[])).await.expect(200);
        took.push(begun.elapsed());
    }
    println!("{took:?}");
    let waited = took
        .iter()
        .filter(|took| **took > Duration::from_millis(100));
    // No request waited if the first request came so late that the nodes were known to be silent.
    assert!(waited.count() <= 1, "{took:?}");
    let away = |line: &str| line.contains("WARN redis+cluster://") && line.contains("is away");
    gateway.said.line(0, "that it is away", away).await;
    assert_eq!(gateway.said.text().matches("is away").count(), 1);
}

/// A node of a cluster that the file calls a single Redis. It refuses requests of two slots, and calls with requests of
/// several clients, and counts none of them.
#[tokio::test]
async fn a_node_that_serves_all_slots_is_no_redis_alone_and_that_is_said_once() {
    let (upstream, node) = (Upstream::echo().await, Cluster::of_one().await);
    let file = File::to(&upstream, &["each", "all"])
        .limit("each", "by = \"ip\"\nrate = \"1000000/h\"")
        .limit("all", "by = \"everyone\"\nrate = \"1000000/h\"")
        .redis(&node, "timeout = \"2s\"\non_down = \"open\"");
    let gateway = Gateway::start(&file).await;
    let meant = format!("write `redis+cluster://127.0.0.1:{}`", node.port());
    let away = |line: &str| line.contains("is away");
    let line = gateway.said.line(0, "that it is away", away).await;
    assert!(line.contains(&meant), "{line}");
    let load = Load::on(&[&gateway], 4, Duration::from_millis(1)).await;
    load.run(Duration::from_millis(1500)).await;
    load.stop().await;
    let lines = gateway.said.lines();
    let changes = lines.iter().filter(|line| line.contains("redis://"));
    let changes: Vec<_> = changes.filter(|line| line.contains(" is ")).collect();
    assert_eq!(changes.len(), 1, "{changes:?}");
    let path = gateway.file();
    let told = tollgate(
        gateway.folder(),
        &["--config", path.to_str().unwrap(), "check", "--connect"],
    )
    .await;
    assert_eq!(told.code, Some(3), "{}", told.stdout);
    assert!(told.stdout.contains(&meant), "{}", told.stdout);
}

/// A single Redis starts at the address of a cluster node, and stops again. The gateway uses it as long as it runs.
#[tokio::test]
async fn a_redis_in_the_place_of_a_clusters_node_is_used_and_each_change_is_said_once() {
    let (upstream, mut node) = (Upstream::echo().await, Cluster::of_one().await);
    let file = File::to(&upstream, &["each", "all"])
        .limit("each", "by = \"ip\"\nrate = \"1000000/h\"")
        .limit("all", "by = \"everyone\"\nrate = \"1000000/h\"")
        .redis(&node, "timeout = \"2s\"\non_down = \"open\"");
    let gateway = Gateway::start(&file).await;
    let ask = async || gateway.get("/").await.expect(200);
    let changes = || {
        let lines = gateway.said.lines().into_iter();
        let changes = lines.filter(|line| line.contains("redis://") && line.contains(" limits "));
        changes.collect::<Vec<_>>()
    };
    let patience = Duration::from_secs(20);
    let comes_to = async |count: usize, word: &str| {
        eventually(patience, &format!("it {word}"), async || {
            ask().await;
            changes().last().is_some_and(|line| line.contains(word))
        })
        .await;
        // Requests that come now find no change.
        for _ in 0..5 {
            ask().await;
        }
        assert_eq!(changes().len(), count, "{:?}", changes());
    };
    comes_to(1, "is away").await;
    let mut alone = Redis::absent_at(node.port());
    node.kill().await;
    alone.come().await;
    comes_to(2, "is back").await;
    let before = alone.script_calls().await;
    ask().await;
    assert!(alone.script_calls().await > before);
    alone.kill().await;
    // Redis cannot be reached for a while, and then for another reason. The other reason is logged too, once.
    eventually(patience, "it is away", async || {
        ask().await;
        changes().len() == 3
    })
    .await;
    node.come().await;
    let meant = || {
        let lines = gateway.said.lines().into_iter();
        let meant = lines.filter(|line| line.contains("redis+cluster://"));
        meant.count()
    };
    eventually(patience, "it is said what is there now", async || {
        ask().await;
        meant() == 2
    })
    .await;
    comes_to(3, "is away").await;
    assert_eq!(meant(), 2, "{}", gateway.said.text());
}
