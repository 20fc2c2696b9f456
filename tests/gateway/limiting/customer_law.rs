//! The law of customers: whichever credentials a customer has, and whichever plans, it is admitted as one key with the
//! numbers in force.

use crate::support::{File, Gateway, Redis, Upstream, request};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use tempfile::TempDir;
use tokio::task::JoinSet;

const FREE: usize = 30;
const GOLD: usize = 80;
const OFF: &str = "\"off\"";

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Several gateways whose files name the same customers.
struct Fleet {
    gateways: Vec<Gateway>,
    folder: TempDir,
    _redis: Option<Redis>,
}

impl Fleet {
    /// One gateway that counts in memory, or three on one Redis.
    async fn start(upstream: &Upstream, limit: &str, redis: Option<Redis>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        replace(&folder.path().join("keys.txt"), "acme key-0\n");
        replace(&folder.path().join("gold.txt"), "");
        let path = folder.path().display();
        let groups = format!(
            "[groups.keys]\nby = \"header:x-api-key\"\ncustomers = \"{path}/keys.txt\"\n\
             [groups.links]\nby = \"query:api_key\"\ncustomers = \"{path}/keys.txt\"\n\
             [groups.gold]\nby = \"customer\"\nfile = \"{path}/gold.txt\""
        );
        let file = File::to(upstream, &["quota"]).with(&groups).limit(
            "quota",
            &format!("by = \"customer\"\nmissing = \"refuse\"\n{limit}"),
        );
        let (file, many) = match &redis {
            Some(redis) => (
                file.redis(redis, "timeout = \"2s\"\non_down = \"closed\""),
                3,
            ),
            None => (file, 1),
        };
        let mut gateways = Vec::new();
        for _ in 0..many {
            gateways.push(Gateway::start(&file).await);
        }
        Self {
            gateways,
            folder,
            _redis: redis,
        }
    }

    /// Writes a file of the folder, and waits until every gateway uses it.
    async fn write(&self, name: &str, text: &str) {
        let before: Vec<usize> = self
            .gateways
            .iter()
            .map(|one| one.said.lines().len())
            .collect();
        replace(&self.folder.path().join(name), text);
        // A change has a line for each group with the file; the last one ends it.
        let last = if name == "keys.txt" {
            "groups.links:"
        } else {
            "groups.gold:"
        };
        for (gateway, before) in self.gateways.iter().zip(before) {
            gateway.signal("HUP");
            let is_taken =
                |line: &str| line.contains(last) || line.contains("nothing in force has changed");
            gateway.said.line(before, "the list", is_taken).await;
        }
    }

    async fn plan(&self, is_gold: bool) {
        self.write("gold.txt", if is_gold { "acme\n" } else { "# no name\n" })
            .await;
    }

    async fn keys(&self, keys: &[usize]) {
        let mut text = String::from("# NAME CREDENTIAL\n");
        for key in keys {
            writeln!(text, "acme key-{key}").unwrap();
        }
        self.write("keys.txt", &text).await;
    }
}

fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(&new, path).unwrap();
}

/// The limit with these numbers; no unit comes back while a test runs.
fn limit(algorithm: &str, lease: &str) -> String {
    let rates = match algorithm {
        "token-bucket" => format!(
            "rate = \"{FREE}/30d\"\nburst = {FREE}\ntiers.gold = {{ rate = \"{GOLD}/30d\", burst = {GOLD} }}"
        ),
        _ => format!("rate = \"{FREE}/30d\"\ntiers.gold = {{ rate = \"{GOLD}/30d\" }}"),
    };
    format!("algorithm = \"{algorithm}\"\nlease = {lease}\n{rates}")
}

/// An oracle that counts charges, and knows nothing else of the limit.
async fn one_key_with_the_numbers_in_force(algorithm: &str, redis: Option<Redis>) {
    let seed = number("CUSTOMER_SEED").unwrap_or_else(|| fastrand::u64(..1 << 40));
    println!("CUSTOMER_SEED={seed}");
    let mut dice = fastrand::Rng::with_seed(seed);
    let upstream = Upstream::echo().await;
    let fleet = Fleet::start(&upstream, &limit(algorithm, OFF), redis).await;
    let (mut keys, mut next, mut is_gold, mut used) = (vec![0], 1, false, 0);
    for step in 0..number("CUSTOMER_STEPS").unwrap_or(260) {
        match dice.u32(..100) {
            0..4 => {
                keys.push(next);
                next += 1;
                fleet.keys(&keys).await;
            }
            4..8 if keys.len() > 1 => {
                keys.remove(dice.usize(..keys.len()));
                fleet.keys(&keys).await;
            }
            8..12 => {
                is_gold = !is_gold;
                fleet.plan(is_gold).await;
            }
            _ => {
                let gateway = &fleet.gateways[dice.usize(..fleet.gateways.len())];
                let key = format!("key-{}", dice.usize(..next));
                let is_known = keys.iter().any(|one| key == format!("key-{one}"));
                let answer = if dice.bool() {
                    gateway.get_with("/", &[("x-api-key", &key)]).await
                } else {
                    gateway.get(&format!("/?api_key={key}")).await
                };
                let most = if is_gold { GOLD } else { FREE };
                let expected = match is_known {
                    false => 401,
                    true if used < most => 200,
                    true => 429,
                };
                assert_eq!(answer.status, expected, "step {step}: {used} of {most}");
                used += usize::from(expected == 200);
            }
        }
    }
    assert_eq!(upstream.seen(), used);
    assert!(used > FREE, "{used}");
}

#[tokio::test]
async fn a_window_in_memory_keeps_the_law() {
    one_key_with_the_numbers_in_force("fixed-window", None).await;
}

#[tokio::test]
async fn a_bucket_in_memory_keeps_the_law() {
    one_key_with_the_numbers_in_force("token-bucket", None).await;
}

#[tokio::test]
async fn a_window_of_three_gateways_keeps_the_law() {
    one_key_with_the_numbers_in_force("fixed-window", Some(Redis::start().await)).await;
}

#[tokio::test]
async fn a_bucket_of_three_gateways_keeps_the_law() {
    one_key_with_the_numbers_in_force("token-bucket", Some(Redis::start().await)).await;
}

/// Asks by two credentials, one at each gateway in turn, until the plans have changed and all units are used.
async fn moved_and_rotated_under_load(algorithm: &str, lease: &str) -> (usize, Fleet) {
    let upstream = Upstream::echo().await;
    let redis = Redis::start().await;
    let fleet = Fleet::start(&upstream, &limit(algorithm, lease), Some(redis)).await;
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let mut clients = JoinSet::new();
    for number in 0..6 {
        let mut client = fleet.gateways[number % 3].connect().await;
        let stopped = stopped.clone();
        clients.spawn(async move {
            let key = format!("key-{}", number / 3);
            let mut refused_last = false;
            // The end is seen after the last change: refusals are certain then.
            while !(refused_last && *stopped.borrow()) {
                let ask = request("GET", "/", &[("x-api-key", &key)]);
                let answer = client.ask(ask).await;
                refused_last = answer.status != 200;
            }
        });
    }
    for keys in [&[0, 1][..], &[1], &[1, 0]] {
        fleet.keys(keys).await;
    }
    for is_gold in [true, false, true] {
        fleet.plan(is_gold).await;
    }
    stop.send(true).unwrap();
    clients.join_all().await;
    // Whatever is left is asked for by one client.
    let mut client = fleet.gateways[0].connect().await;
    while client
        .ask(request("GET", "/", &[("x-api-key", "key-0")]))
        .await
        .status
        == 200
    {}
    (upstream.seen(), fleet)
}

#[tokio::test]
async fn a_window_is_used_to_the_unit_over_changes_under_load() {
    let (seen, _fleet) = moved_and_rotated_under_load("fixed-window", OFF).await;
    assert_eq!(seen, GOLD);
}

#[tokio::test]
async fn a_bucket_is_used_to_the_unit_over_changes_under_load() {
    let (seen, _fleet) = moved_and_rotated_under_load("token-bucket", OFF).await;
    assert_eq!(seen, GOLD);
}

/// Permits that a gateway has taken in advance may be lost at a change, and none is admitted twice.
#[tokio::test]
async fn leases_never_pass_the_numbers_over_changes_under_load() {
    let (seen, _fleet) = moved_and_rotated_under_load("fixed-window", "8").await;
    assert!(seen <= GOLD && seen > FREE, "{seen}");
}
