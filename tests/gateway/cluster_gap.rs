//! A cluster with a gap: one master is gone, and no replica takes its place. Limits on the other masters are counted,
//! remembered and leased as before. Limits on the lost master follow their `on_down`, without remembered answers.

use super::lease::sum;
use crate::support::{Cluster, File, Gateway, Upstream, eventually, h2, long};
use http::HeaderValue;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const SOON: Duration = Duration::from_secs(20);
/// The time without a report after which a gateway counts as gone. The last known number of gateways is used for twice
/// as long.
const LIFE: Duration = Duration::from_secs(10);
/// The master of the slot in which the gateways are counted.
const OF_GATEWAYS: usize = 0;

/// A file with limits whose counters have these hash tags, on routes of their own and on one common route.
fn file(upstream: &Upstream, cluster: &Cluster, (here, there): (&str, &str)) -> File {
    let limit = |rate: &str, tag: &str| {
        format!(
            "by = \"header:x-client\"\nmissing = \"refuse\"\nrate = \"{rate}\"\n\
             algorithm = \"fixed-window\"\nwith = \"{tag}\""
        )
    };
    let store = format!("{}\ntimeout = \"1s\"\non_down = \"open\"", cluster.store());
    File::default()
        .server("workers = 1")
        .upstream("main", &[upstream])
        .route("here", "/here", "main", &["here"])
        .route("there", "/there", "main", &["there"])
        .route("both", "/both", "main", &["there", "here"])
        .route("much", "/much", "main", &["much"])
        .limit("here", &limit("2/h", here))
        .limit("there", &limit("2/h", there))
        .limit("much", &limit("100000/h", here))
        .store(&store)
}

async fn gateways(gateway: &Gateway) -> u64 {
    let told = gateway.admin_get("/v1/store").await.json();
    told["gateways"].as_u64().unwrap()
}

/// The number of times that the remaining masters were asked for the slot map.
async fn maps(cluster: &Cluster, dead: usize) -> u64 {
    let mut asked = 0;
    for number in (0..3).filter(|number| *number != dead) {
        let stats: String = cluster.command(number, &["INFO", "commandstats"]).await;
        let mut lines = stats.lines();
        let line = lines.find_map(|line| {
            let six = line.strip_prefix("cmdstat_cluster:calls=");
            six.or_else(|| line.strip_prefix("cmdstat_cluster|slots:calls="))
        });
        let calls = line.and_then(|line| line.split(',').next());
        asked += calls.map_or(0, |calls| calls.parse::<u64>().unwrap());
    }
    asked
}

async fn stands(gateway: &Gateway, word: &str) {
    let what = format!("the store is {word}");
    let line = format!("\nstore: {word}");
    eventually(SOON, &what, async || {
        gateway.admin_get("/readyz").await.text().contains(&line)
    })
    .await;
}

async fn decisions(gateway: &Gateway, by: &str) -> u64 {
    let by = format!("decided_by=\"{by}\"");
    sum(gateway, "tollgate_limit_decisions_total", &[&by]).await
}

#[tokio::test]
async fn refusals_of_the_part_that_is_there_cost_no_call() {
    let (upstream, mut cluster) = (Upstream::echo().await, Cluster::start().await);
    let (alive, dead) = (1, 2);
    let tags = (&*cluster.tag_on(alive).await, &*cluster.tag_on(dead).await);
    let gateway = Gateway::start(&file(&upstream, &cluster, tags)).await;
    stands(&gateway, "up").await;
    let ask = async |path: &str| gateway.get_with(path, &[("x-client", "one")]).await;
    for path in ["/here", "/there"] {
        for status in [200, 200, 429, 429] {
            ask(path).await.expect(status);
        }
    }
    cluster.lose_for_good(dead).await;
    stands(&gateway, "partly away").await;

    // The slots of the lost master follow `on_down`, whatever was known about them.
    for _ in 0..5 {
        let answer = ask("/there").await.expect(200);
        assert!(!answer.fields.has("ratelimit"), "{answer:?}");
    }
    // The slots of a live master are asked once more, since the change may have affected them, and then never again.
    ask("/here").await.expect(429);
    let (calls, known) = (
        cluster.calls_of(alive).await,
        decisions(&gateway, "remembered").await,
    );
    for _ in 0..50 {
        let answer = ask("/here").await.expect(429);
        assert_eq!(answer.remaining("here"), 0);
        // The refusing limit is known, so the answer of the other limit does not matter.
        ask("/both").await.expect(429);
    }
    assert_eq!(decisions(&gateway, "remembered").await - known, 100);
    // Trial decisions at a master that is tried anew would count as calls. The live master was not tried anew.
    assert_eq!(cluster.calls_of(alive).await - calls, 0);

    // Many permits cost no more than one call.
    let leased = decisions(&gateway, "lease").await;
    let client = gateway.h2().await;
    // On a slow machine, many clients at once leave permits unused until they lapse, and few clients have no permits to
    // share. The test tries both.
    for clients in [100, 10].repeat(25) {
        let mut asking = JoinSet::new();
        for _ in 0..clients {
            let client = client.clone();
            asking.spawn(async move {
                for _ in 0..100 / clients {
                    let mut much = h2::get("/much");
                    let one = HeaderValue::from_static("one");
                    much.headers_mut().insert("x-client", one);
                    client.ask(much).await.expect(200);
                }
            });
        }
        asking.join_all().await;
        if decisions(&gateway, "lease").await > leased {
            break;
        }
    }
    assert!(decisions(&gateway, "lease").await > leased);

    if long() {
        // The gateway asks for the slot map more rarely when nothing has changed for a while.
        tokio::time::sleep(LIFE).await;
        let (before, begun) = (maps(&cluster, dead).await, Instant::now());
        tokio::time::sleep(LIFE / 2).await;
        let (asked, took) = (maps(&cluster, dead).await - before, begun.elapsed());
        println!("the map was asked for {asked} times in {took:?}");
        assert!(asked > 0 && asked as f64 <= took.as_secs_f64() * 2.0 + 1.0);
    }

    // The master is back and empty: requests are counted anew, and refusals are remembered.
    cluster.come(dead).await;
    stands(&gateway, "up").await;
    for status in [200, 200, 429, 429] {
        ask("/there").await.expect(status);
    }
    ask("/here").await.expect(429);
}

/// While the slot with the gateways' reports is served, gateways are counted: the others notice that a gateway stops or
/// starts.
#[tokio::test]
async fn gateways_are_counted_while_another_part_is_away() {
    let (upstream, mut cluster) = (Upstream::echo().await, Cluster::start().await);
    let tags = (&*cluster.tag_on(0).await, &*cluster.tag_on(1).await);
    let file = file(&upstream, &cluster, tags);
    let one = Gateway::start(&file).await;
    eventually(SOON, "it is heard of", async || gateways(&one).await == 1).await;
    cluster.lose_for_good(1).await;
    stands(&one, "partly away").await;
    let mut two = Gateway::start(&file).await;
    for gateway in [&one, &two] {
        eventually(SOON, "both are heard of", async || {
            gateways(gateway).await == 2
        })
        .await;
    }
    two.stop().await;
    if long() {
        let patience = 3 * LIFE;
        eventually(patience, "that it went", async || gateways(&one).await == 1).await;
    }
}

/// When the slot with the gateways' reports is away, the last number of gateways is used for the whole outage.
#[tokio::test]
async fn how_many_gateways_there_were_is_still_known_where_nobody_counts_them() {
    let (upstream, mut cluster) = (Upstream::echo().await, Cluster::start().await);
    let tags = (
        &*cluster.tag_on(1).await,
        &*cluster.tag_on(OF_GATEWAYS).await,
    );
    let file = file(&upstream, &cluster, tags).with("[limits.share]\nby = \"everyone\"\nrate = \"90/h\"\nalgorithm = \"fixed-window\"\non_down = \"local\"\n[routes.share]\npath = \"/share\"\nupstream = \"main\"\nlimits = [\"share\"]");
    let all = [
        Gateway::start(&file).await,
        Gateway::start(&file).await,
        Gateway::start(&file).await,
    ];
    for gateway in &all {
        eventually(SOON, "all are heard of", async || {
            gateways(gateway).await == 3
        })
        .await;
    }
    cluster.lose_for_good(OF_GATEWAYS).await;
    for gateway in &all {
        stands(gateway, "partly away").await;
    }
    if long() {
        tokio::time::sleep(3 * LIFE).await;
    }
    // The counter of `everyone` is in the lost slot, too: each gateway counts a third of its limit.
    for gateway in &all {
        let mut admitted = 0;
        for _ in 0..60 {
            admitted += usize::from(gateway.get("/share").await.status == 200);
        }
        assert_eq!((admitted, gateways(gateway).await), (30, 3));
    }
    cluster.come(OF_GATEWAYS).await;
    for gateway in &all {
        stands(gateway, "up").await;
        assert_eq!(gateways(gateway).await, 3);
    }
    // The gateways are counted again.
    let key = "tollgate:1:gateways:{*}";
    eventually(SOON, "all tell that they are there", async || {
        let set: Vec<u8> = cluster.command(OF_GATEWAYS, &["GET", key]).await;
        set.len() == 3 * 16
    })
    .await;
}
