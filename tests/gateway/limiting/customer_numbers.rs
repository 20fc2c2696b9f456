//! Numbers of single customers, from the file that a limit names with `own`: who has a line gets exactly these numbers,
//! new numbers count at once, and what was used stays used.

use super::super::store_kind::{Place, on_both_stores};
use crate::support::{Answer, File, Gateway, Redis, Upstream, Wire, eventually, request, tollgate};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

const SOON: Duration = Duration::from_secs(20);

on_both_stores! {
    a_line_is_in_front_of_plan_and_limit
    new_numbers_count_for_the_next_request
    a_bucket_keeps_its_units_over_new_numbers
    what_a_line_leaves_out_comes_from_the_plan
}

const GROUPS: &str = "[groups.pro]\nby = \"header:x-api-key\"\n\
                      customers = { acme = [\"key-1\", \"key-2\"], beta = \"key-3\", gamma = \"key-4\" }\n\
                      [groups.gold]\nby = \"customer\"\nmembers = [\"beta\", \"acme\"]";
const MONTH: &str = "by = \"customer\"\nmissing = \"refuse\"\nalgorithm = \"fixed-window\"\nanchor = \"clock\"\n\
                     rate = \"2/month\"\ntiers.gold = { rate = \"3/month\" }";

/// A folder with the numbers of customers, and a file with one limit that names them.
fn numbered(upstream: &Upstream, limit: &str, numbers: &str) -> (TempDir, File) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("own.txt");
    std::fs::write(&path, numbers).unwrap();
    let limit = format!("{limit}\nown = \"{}\"", path.display());
    let file = File::to(upstream, &["key"]).with(GROUPS);
    (folder, file.limit("key", &limit))
}

fn replace(folder: &TempDir, numbers: &str) {
    let new = folder.path().join("new");
    std::fs::write(&new, numbers).unwrap();
    std::fs::rename(&new, folder.path().join("own.txt")).unwrap();
}

async fn ask(client: &mut Wire, key: &str) -> Answer {
    client.ask(request("GET", "/", &[("X-Api-Key", key)])).await
}

/// Waits until the gateway has taken over other numbers.
async fn takes(gateway: &Gateway, said: &str) {
    gateway.said.line(0, said, |line| line.contains(said)).await;
}

async fn a_line_is_in_front_of_plan_and_limit(place: Place) {
    let upstream = Upstream::echo().await;
    let (_folder, file) = numbered(&upstream, MONTH, "# NAME NUMBERS\nacme 5/month\n");
    let gateway = place.gateway(file).await;
    let mut client = gateway.connect().await;
    for (key, left) in [
        ("key-1", 4),
        ("key-2", 3),
        ("key-1", 2),
        ("key-3", 2),
        ("key-4", 1),
    ] {
        let answer = ask(&mut client, key).await;
        assert_eq!(
            (answer.status, answer.remaining("key")),
            (200, left),
            "{key}"
        );
        let line = gateway.line_of(&answer).await;
        let (own, groups) = match key {
            "key-3" => (Value::Null, json!({ "key": "gold" })),
            "key-4" => (Value::Null, json!({})),
            _ => (json!(["key"]), json!({})),
        };
        assert_eq!((&line["own"], &line["groups"]), (&own, &groups), "{key}");
    }
    for _ in 0..2 {
        ask(&mut client, "key-2").await.expect(200);
    }
    ask(&mut client, "key-1").await.expect(429);
    // Numbers of one customer are no plan of another.
    ask(&mut client, "key-3").await.expect(200);
    ask(&mut client, "key-3").await.expect(200);
    ask(&mut client, "key-3").await.expect(429);
    ask(&mut client, "key-4").await.expect(200);
    let last = ask(&mut client, "key-4").await;
    assert_eq!(last.status, 429);
    assert!(!last.text().contains("gamma"), "{last:?}");
}

async fn new_numbers_count_for_the_next_request(place: Place) {
    let upstream = Upstream::echo().await;
    let (folder, file) = numbered(&upstream, MONTH, "acme 2/month\nbeta 9/month\n");
    let gateway = place.gateway(file).await;
    let mut client = gateway.connect().await;
    for status in [200, 200, 429, 429] {
        ask(&mut client, "key-1").await.expect(status);
    }
    let other = ask(&mut client, "key-3").await;
    assert_eq!(other.remaining("key"), 8);
    replace(&folder, "acme 6/month\nbeta 9/month\n");
    takes(
        &gateway,
        "limits.key: own numbers for 1 customer changed, counters kept",
    )
    .await;
    let mut client = gateway.connect().await;
    let raised = ask(&mut client, "key-2").await;
    assert_eq!((raised.status, raised.remaining("key")), (200, 3));
    // A line with a mistake changes nothing.
    replace(&folder, "acme 7/month\nbeta many\n");
    takes(&gateway, "own.txt:2 has no numbers of a customer").await;
    assert_eq!(ask(&mut client, "key-1").await.remaining("key"), 2);
    // Without a line the plan holds, which is used up.
    replace(&folder, "beta 9/month\n");
    takes(&gateway, "limits.key: own numbers for 1 customer fewer").await;
    let mut client = gateway.connect().await;
    ask(&mut client, "key-1").await.expect(429);
    assert_eq!(ask(&mut client, "key-3").await.remaining("key"), 7);
}

async fn a_bucket_keeps_its_units_over_new_numbers(place: Place) {
    let upstream = Upstream::echo().await;
    let limit = "by = \"customer\"\nmissing = \"refuse\"\nrate = \"4/d\"";
    let (folder, file) = numbered(&upstream, limit, "acme 10/d\n");
    let gateway = place.gateway(file).await;
    let mut client = gateway.connect().await;
    for left in (0..10).rev() {
        let answer = ask(&mut client, "key-1").await;
        assert_eq!((answer.status, answer.remaining("key")), (200, left));
    }
    ask(&mut client, "key-1").await.expect(429);
    ask(&mut client, "key-2").await.expect(429);
    replace(&folder, "acme 100/d\n");
    takes(
        &gateway,
        "own numbers for 1 customer changed, units used stay used",
    )
    .await;
    let mut client = gateway.connect().await;
    let raised = ask(&mut client, "key-1").await;
    assert_eq!((raised.status, raised.remaining("key")), (200, 89));
    // Fewer than were used: refused until the bucket has drained.
    replace(&folder, "acme 5/d\n");
    eventually(SOON, "fewer numbers", async || {
        ask(&mut gateway.connect().await, "key-1").await.status == 429
    })
    .await;
    ask(&mut client, "key-3").await.expect(200);
}

async fn what_a_line_leaves_out_comes_from_the_plan(place: Place) {
    let upstream = Upstream::echo().await;
    let limit = "by = \"customer\"\nmissing = \"refuse\"\nrate = \"1/d\"\nburst = 2\n\
                 tiers.gold = { rate = \"9/d\", burst = 7 }";
    let numbers = "acme burst=4\ngamma 5/d\n";
    let (_folder, file) = numbered(&upstream, limit, numbers);
    let gateway = place.gateway(file).await;
    let mut client = gateway.connect().await;
    for (key, policy) in [
        ("key-1", "q=4;w=38400"),
        ("key-3", "q=7;w=67200"),
        ("key-4", "q=2;w=34560"),
    ] {
        let answer = ask(&mut client, key).await;
        assert!(
            answer.field("ratelimit-policy").contains(policy),
            "{key}: {answer:?}"
        );
    }
}

#[tokio::test]
async fn two_gateways_count_one_customer_by_its_numbers() {
    let (upstream, redis) = (Upstream::echo().await, Redis::start().await);
    let (folder, file) = numbered(&upstream, MONTH, "acme 4/month\n");
    let file = file.redis(&redis, "timeout = \"2s\"\non_down = \"closed\"");
    let (one, two) = (Gateway::start(&file).await, Gateway::start(&file).await);
    let mut clients = [one.connect().await, two.connect().await];
    for (number, status) in [200, 200, 200, 200, 429, 429].into_iter().enumerate() {
        ask(&mut clients[number % 2], "key-1").await.expect(status);
    }
    replace(&folder, "acme 6/month\n");
    for gateway in [&one, &two] {
        takes(gateway, "own numbers for 1 customer changed").await;
    }
    let mut clients = [one.connect().await, two.connect().await];
    for (number, left) in [1, 0].into_iter().enumerate() {
        let answer = ask(&mut clients[number % 2], "key-2").await;
        assert_eq!((answer.status, answer.remaining("key")), (200, left));
    }
    for client in &mut clients {
        ask(client, "key-1").await.expect(429);
    }
}

/// The file of the commands' test, with numbers beside it.
fn written() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let limit = format!("[limits.month]\n{MONTH}\nown = \"own-month.txt\"");
    let text = format!(
        "{GROUPS}\n{limit}\n[upstreams.u]\nservers = \"127.0.0.1:1\"\n\
         [routes.r]\npath = \"/{{*rest}}\"\nupstream = \"u\"\nlimits = [\"month\"]\n"
    );
    std::fs::write(folder.path().join("gateway.toml"), text).unwrap();
    let numbers = "# NAME NUMBERS\nacme 5000/month\nbeta 20000000/month\n";
    std::fs::write(folder.path().join("own-month.txt"), numbers).unwrap();
    folder
}

async fn said(folder: &Path, arguments: &[&str]) -> String {
    let done = tollgate(folder, arguments).await;
    assert_eq!(done.code, Some(0), "{done:?}");
    done.stdout
}

#[tokio::test]
async fn check_and_explain_say_whose_numbers_apply() {
    let folder = written();
    let means = said(folder.path(), &["check"]).await;
    let line = "own numbers for 2, from 5000 to 20000000";
    assert!(means.lines().any(|said| said.trim() == line), "{means}");
    let shown = said(
        folder.path(),
        &["explain", "GET", "/", "--customer", "beta"],
    )
    .await;
    let line = "own numbers of beta (own-month.txt:3): at most 20000000 in each month";
    assert!(shown.contains(line), "{shown}");
    let ask = ["explain", "GET", "/", "--json", "-H", "x-api-key: key-1"];
    let json: Value = serde_json::from_str(&said(folder.path(), &ask).await).unwrap();
    let limit = &json["limits"][0];
    assert_eq!(limit["own"]["place"], "own-month.txt:2", "{limit}");
    assert_eq!(
        (&limit["group"], &limit["tier"]),
        (&Value::Null, &Value::Null)
    );
    let none = said(
        folder.path(),
        &["explain", "GET", "/", "--customer", "gamma"],
    )
    .await;
    assert!(!none.contains("own numbers"), "{none}");
    let before = folder.path().join("before.toml");
    let text = std::fs::read_to_string(folder.path().join("gateway.toml")).unwrap();
    std::fs::write(&before, text.replace("own-month", "old-month")).unwrap();
    let numbers = "acme 5000/month\nbeta 9/month\ngamma 7/month\n";
    std::fs::write(folder.path().join("old-month.txt"), numbers).unwrap();
    let changes = said(
        folder.path(),
        &["check", "--diff", "before.toml", "gateway.toml"],
    )
    .await;
    let line = "limits.month: own numbers for 1 customer fewer, 1 changed, counters kept";
    assert!(changes.contains(line), "{changes}");
}

#[tokio::test]
async fn explain_reads_the_counter_of_a_customer_with_its_numbers() {
    let upstream = Upstream::echo().await;
    let (_folder, file) = numbered(&upstream, MONTH, "acme 5/month\n");
    let file = file.admin("listen = \"unix:admin.sock\"\nmode = \"0600\"");
    let gateway = Place::memory().gateway(file).await;
    let mut client = gateway.connect().await;
    ask(&mut client, "key-1").await.expect(200);
    let arguments = ["explain", "GET", "/", "--customer", "acme", "--live"];
    let shown = said(gateway.folder(), &arguments).await;
    assert!(shown.contains("4 of 5"), "{shown}");
}

#[tokio::test]
async fn a_replay_admits_by_the_numbers_of_customers() {
    let folder = written();
    std::fs::write(
        folder.path().join("own-month.txt"),
        "acme 1/month\nbeta 4/month\n",
    )
    .unwrap();
    let line = |second: u32, customer: &str| {
        let line = json!({ "ts": 1_795_196_930 + second, "method": "GET", "path": "/", "client": "203.0.113.9",
            "customer": customer, "keys": { "month": customer } });
        format!("{line}\n")
    };
    let names = [
        "acme", "acme", "beta", "beta", "beta", "beta", "beta", "gamma", "gamma", "gamma",
    ];
    let trace: String = (0..)
        .zip(names)
        .map(|(second, name)| line(second, name))
        .collect();
    std::fs::write(folder.path().join("trace"), trace).unwrap();
    let arguments = ["simulate", "trace", "--decisions", "out.jsonl"];
    said(folder.path(), &arguments).await;
    let text = std::fs::read_to_string(folder.path().join("out.jsonl")).unwrap();
    let decisions = text.lines().map(|line| {
        let line: Value = serde_json::from_str(line).unwrap();
        line["decision"].as_str().unwrap() == "admit"
    });
    let decisions: Vec<bool> = decisions.collect();
    assert_eq!(
        decisions,
        [
            true, false, true, true, true, true, false, true, true, false
        ]
    );
}
