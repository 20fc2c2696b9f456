//! A cluster whose limits are in several slots. Clients that are over their own limit charge nothing to the limits that
//! they share with others.

use crate::support::{Cluster, File, Gateway, PATIENCE, Upstream, eventually, request};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// The limits that all clients share, by the name of their route.
const SHARED: [(&str, &str); 5] = [
    ("tokens", "rate = \"900/d\""),
    ("leased", "rate = \"1000/d\""),
    (
        "meter",
        "rate = \"900/d\"\nburst = 900\nalgorithm = \"leaky-bucket\"\nover = \"refuse\"",
    ),
    ("fast", "rate = \"200/10s\""),
    (
        "queue",
        "rate = \"1/s\"\nburst = 1\nqueue = 60\nmax_wait = \"60s\"\nalgorithm = \"leaky-bucket\"",
    ),
];
const CLIENTS: usize = 30;

fn file(upstream: &Upstream, cluster: &Cluster) -> File {
    let own = "by = \"header:x-client\"\nmissing = \"shared\"\nrate = \"1/h\"";
    let store = format!(
        "{}\ntimeout = \"2s\"\non_down = \"closed\"",
        cluster.store()
    );
    let mut file = File::to(upstream, &[]).store(&store).limit("own", own);
    for (name, lines) in SHARED {
        let shared = format!("by = \"everyone\"\n{lines}");
        file = file.limit(name, &shared);
        let (both, alone) = (format!("/{name}"), format!("/{name}/alone"));
        file = file.route(name, &both, "main", &["own", name]);
        file = file.route(&format!("{name}-alone"), &alone, "main", &[name]);
    }
    file
}

#[tokio::test]
async fn who_is_refused_by_a_limit_of_its_own_takes_nothing_from_a_shared_one() {
    let (upstream, cluster) = (Upstream::echo().await, Cluster::start().await);
    let gateway = Gateway::start(&file(&upstream, &cluster)).await;
    let up = async || {
        gateway
            .admin_get("/readyz")
            .await
            .text()
            .contains("store: up")
    };
    eventually(PATIENCE, "its workers reach the masters", up).await;
    let client = |number: usize| format!("client-{number}");
    // Each client sends its one request of the hour.
    for number in 0..CLIENTS {
        let fields = [("x-client", &*client(number))];
        gateway.get_with("/tokens", &fields).await.expect(200);
    }
    for (name, _) in SHARED {
        let (target, alone) = (format!("/{name}"), format!("/{name}/alone"));
        let look = async || gateway.get(&alone).await.expect(200).remaining(name);
        let before = look().await;
        let begun = Instant::now();
        for _ in 0..6 {
            let mut waves = JoinSet::new();
            for number in 0..CLIENTS {
                let mut wire = gateway.connect().await;
                let ask = request("GET", &target, &[("x-client", &client(number))]);
                waves.spawn(async move { wire.ask(ask).await.status });
            }
            let statuses = waves.join_all().await;
            assert_eq!(statuses, [429; CLIENTS], "{name}");
            // The remembered refusals have lapsed.
            tokio::time::sleep(Duration::from_millis(260)).await;
        }
        // A look takes one unit, too. A leased bucket gets back a charge that came within a tenth of a second of a call
        // for permits, less that time and the call's own time. A unit takes 86 s here, so one unit at most is missing.
        let mut spared = u64::from(name == "leased");
        let what = format!("{name} has {before} again");
        eventually(PATIENCE, &what, async || {
            spared += 1;
            look().await + spared >= before
        })
        .await;
        println!("{what} after {:?}", begun.elapsed());
    }
}
