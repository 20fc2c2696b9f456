//! Customers: names behind credentials, counted as one whichever credential a request shows.

use super::super::store_kind::{Place, on_both_stores};
use crate::support::{File, Gateway, Upstream, eventually, get, request};
use serde_json::{Value, json};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(20);

on_both_stores! {
    a_customer_is_one_count_whichever_credential_it_shows
    a_change_of_plan_is_a_change_of_numbers_on_one_counter
    credentials_of_two_customers_are_no_customer
    names_go_to_servers_and_logs_alone
    a_plan_that_an_address_gives_is_told_to_no_server
}

const PRO: &str = "[groups.pro]\nby = \"header:x-api-key\"\ncustomers = { acme = [\"key-1\", \"key-2\"], beta = \"key-3\" }\n\
                   [groups.links]\nby = \"query:api_key\"\ncustomers = { acme = \"link-1\" }";

/// A gateway with the file of a page, in front of `upstream`.
async fn of_page(page: &str, upstream: &Upstream) -> Gateway {
    let folder = tempfile::tempdir().unwrap();
    let blocks = |kind: &str| -> Vec<String> {
        let mark = format!("```{kind}\n");
        let blocks = page.split(mark.as_str()).skip(1);
        let blocks = blocks.filter_map(|rest| rest.split("```").next());
        blocks.map(str::to_owned).collect()
    };
    for (name, text) in ["keys.txt", "gold.txt", "own-day.txt"]
        .iter()
        .zip(blocks("text"))
    {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let file = blocks("toml")[0].replace("http://127.0.0.1:3000", &upstream.url());
    let file = format!(
        "[server]\nlisten = [\"127.0.0.1:0\"]\n[log]\naccess = \"json\"\n[admin]\nlisten = \"127.0.0.1:0\"\n{file}"
    );
    let path = folder.path().join("gateway.toml");
    std::fs::write(&path, file).unwrap();
    Gateway::run(folder, &path).await
}

#[tokio::test]
async fn the_page_about_plans_keeps_its_word() {
    let upstream = Upstream::echo().await;
    let gateway = of_page(include_str!("../../../docs/plans.md"), &upstream).await;
    let mut client = gateway.connect().await;
    let first = client
        .ask(request("GET", "/", &[("X-Api-Key", "abc")]))
        .await;
    assert_eq!((first.status, first.remaining("day")), (200, 999));
    assert_eq!(first.echoed().fields.all("x-consumer"), ["acme"]);
    let second = client
        .ask(request("GET", "/", &[("X-Api-Key", "key-of-acme-2")]))
        .await;
    assert_eq!(second.remaining("day"), 998);
    let gold = client
        .ask(request("GET", "/", &[("X-Api-Key", "key-of-beta")]))
        .await;
    assert_eq!(gold.remaining("day"), 49_999);
    let numbered = client
        .ask(request("GET", "/", &[("X-Api-Key", "key-of-gamma")]))
        .await;
    assert_eq!(numbered.remaining("day"), 199_999);
    std::fs::write(gateway.folder().join("gold.txt"), "beta\nacme\n").unwrap();
    let said = "groups.gold: 1 customer more";
    gateway
        .said
        .line(0, said, |line| line.ends_with(said))
        .await;
    let third = client
        .ask(request("GET", "/", &[("X-Api-Key", "abc")]))
        .await;
    assert_eq!(third.remaining("day"), 49_997);
    client.ask(get("/")).await.expect(401);
    // Other members are no other configuration.
    std::fs::write(gateway.folder().join("own-day.txt"), "gamma 300000/d\n").unwrap();
    let own = "limits.day: own numbers for 1 customer changed";
    gateway.said.line(0, own, |line| line.contains(own)).await;
    std::fs::write(
        gateway.folder().join("gold.txt"),
        "beta\nacme\n# no change\n",
    )
    .unwrap();
    let none = "nothing in force has changed";
    gateway
        .said
        .line(0, none, |line| line.ends_with(none))
        .await;
    let metrics = gateway.metrics().await;
    assert!(
        metrics.contains("tollgate_config_generation 1"),
        "{metrics}"
    );
    assert!(!gateway.said.text().contains("reloaded"));
    let text = std::fs::read_to_string(gateway.file()).unwrap();
    gateway.rename_over(&text.replace("60/min", "70/min"));
    let said = "reloaded: generation 2 is in force";
    gateway
        .said
        .line(0, said, |line| line.ends_with(said))
        .await;
}

#[tokio::test]
async fn the_page_about_rotation_keeps_its_word() {
    let upstream = Upstream::echo().await;
    let gateway = of_page(include_str!("../../../docs/rotation.md"), &upstream).await;
    let mut client = gateway.connect().await;
    let (old, new) = (
        [("X-Api-Key", "key-of-acme-1")],
        [("X-Api-Key", "key-of-acme-2")],
    );
    let first = client.ask(request("GET", "/", &old)).await;
    assert_eq!(first.remaining("month"), 9999);
    client.ask(request("GET", "/", &new)).await.expect(401);
    let keys = gateway.folder().join("keys.txt");
    std::fs::write(&keys, "acme key-of-acme-1\nacme key-of-acme-2\n").unwrap();
    let said = "groups.keys: 1 credential changed";
    gateway
        .said
        .line(0, said, |line| line.ends_with(said))
        .await;
    let second = client.ask(request("GET", "/", &old)).await;
    assert_eq!(second.remaining("month"), 9998);
    let third = client
        .ask(request("GET", "/?api_key=key-of-acme-1", &new))
        .await;
    assert_eq!(third.remaining("month"), 9997);
    std::fs::write(&keys, "acme key-of-acme-2\nacme\n").unwrap();
    let said = "keys.txt:2 is no credential";
    gateway.said.line(0, said, |line| line.contains(said)).await;
    std::fs::write(&keys, "acme key-of-acme-2\n").unwrap();
    eventually(SOON, "the old key is gone", async || {
        gateway.get_with("/", &old).await.status == 401
    })
    .await;
    let last = client.ask(request("GET", "/", &new)).await;
    // The old key was counted until it was gone.
    assert!(last.remaining("month") < 9997);
}

async fn a_customer_is_one_count_whichever_credential_it_shows(place: Place) {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &["key"]).with(PRO).limit(
        "key",
        "by = \"customer\"\nmissing = \"refuse\"\nrate = \"3/h\"",
    );
    let gateway = place.gateway(file).await;
    let mut client = gateway.connect().await;
    let first = client
        .ask(request("GET", "/", &[("X-Api-Key", "key-1")]))
        .await;
    assert_eq!((first.status, first.remaining("key")), (200, 2));
    let line = gateway.line_of(&first).await;
    assert_eq!(
        (&line["customer"], &line["keys"]),
        (&json!("acme"), &json!({ "key": "acme" }))
    );
    let second = client
        .ask(request("GET", "/", &[("X-Api-Key", "key-2")]))
        .await;
    assert_eq!(second.remaining("key"), 1);
    let third = client.ask(get("/?api_key=link-1")).await;
    assert_eq!(third.remaining("key"), 0);
    client
        .ask(request("GET", "/", &[("X-Api-Key", "key-1")]))
        .await
        .expect(429);
    let other = client
        .ask(request("GET", "/", &[("X-Api-Key", "key-3")]))
        .await;
    assert_eq!(other.remaining("key"), 2);
    let none = client.ask(get("/")).await;
    assert_eq!(none.status, 401);
    assert!(none.text().contains("x-api-key"), "{none:?}");
    assert_eq!(gateway.line_of(&none).await["customer"], Value::Null);
    let unknown = client
        .ask(request("GET", "/", &[("X-Api-Key", "guess")]))
        .await;
    let line = gateway.line_of(&unknown).await;
    assert_eq!(
        (unknown.status, &line["reason"]),
        (401, &json!("unknown_key"))
    );
}

async fn a_change_of_plan_is_a_change_of_numbers_on_one_counter(place: Place) {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &["month"])
        .with(PRO)
        .with("[groups.gold]\nby = \"customer\"\nmembers = [\"beta\"]")
        .limit(
            "month",
            "by = \"customer\"\nmissing = \"refuse\"\nalgorithm = \"fixed-window\"\nrate = \"2/d\"\n\
             tiers.gold = { rate = \"5/d\" }",
        );
    let gateway = place.gateway(file).await;
    let mut client = gateway.connect().await;
    let ask = [("X-Api-Key", "key-1")];
    for _ in 0..2 {
        client.ask(request("GET", "/", &ask)).await.expect(200);
    }
    client.ask(request("GET", "/", &ask)).await.expect(429);
    let text = std::fs::read_to_string(gateway.file()).unwrap();
    gateway.rename_over(&text.replace("[\"beta\"]", "[\"beta\", \"acme\"]"));
    let said = "groups.gold: 1 customer more";
    gateway
        .said
        .line(0, said, |line| line.ends_with(said))
        .await;
    let mut client = gateway.connect().await;
    let third = client
        .ask(request("GET", "/", &[("X-Api-Key", "key-2")]))
        .await;
    assert_eq!((third.status, third.remaining("month")), (200, 2));
    assert_eq!(
        gateway.line_of(&third).await["groups"],
        json!({ "month": "gold" })
    );
}

async fn credentials_of_two_customers_are_no_customer(place: Place) {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &["guess", "key"])
        .with(PRO)
        .limit("guess", "by = \"ip\"\nrate = \"3/h\"")
        .limit("key", "by = \"customer\"\nmissing = \"ip\"\nrate = \"9/h\"");
    let gateway = place.gateway(file).await;
    let mut client = gateway.connect().await;
    let both = [("X-Api-Key", "key-3")];
    for status in [400, 400, 400, 429] {
        let answer = client.ask(request("GET", "/?api_key=link-1", &both)).await;
        assert_eq!(answer.status, status, "{answer:?}");
        let words = "The credentials of this request belong to different customers.";
        assert_eq!(answer.text().contains(words), status == 400, "{answer:?}");
        assert!(!answer.text().contains("beta") && !answer.text().contains("acme"));
    }
}

async fn names_go_to_servers_and_logs_alone(place: Place) {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &["key"])
        .with("forward_identity = { x-consumer = \"{customer}\" }")
        .with(PRO)
        .limit(
            "key",
            "by = [\"customer\", \"method\"]\nmissing = \"skip\"\nrate = \"2/h\"",
        );
    let gateway = place.gateway(file).await;
    let mut client = gateway.connect().await;
    let sent = [("X-Api-Key", "key-2"), ("X-Consumer", "beta")];
    let answer = client.ask(request("GET", "/", &sent)).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.echoed().fields.all("x-consumer"), ["acme"]);
    assert_eq!(
        gateway.line_of(&answer).await["keys"],
        json!({ "key": "acme|GET" })
    );
    let metrics = gateway.metrics().await;
    // Metrics about authorities have `acme` in their names.
    assert!(!metrics.contains("\"acme"));
}

/// A client with an address of the office is counted by its plan. It has proved nothing.
async fn a_plan_that_an_address_gives_is_told_to_no_server(place: Place) {
    let upstream = Upstream::echo().await;
    let file = File::to(&upstream, &["key"])
        .with("forward_identity = { x-plan = \"{tier}\", x-group = \"{group}\" }")
        .with(PRO)
        .with("[groups.office]\nby = \"ip\"\ncustomers = { office = \"127.0.0.0/8\" }")
        .limit(
            "key",
            "by = \"customer\"\nmissing = \"skip\"\nrate = \"2/h\"\n\
             tiers = { office = { rate = \"9/h\" }, pro = { rate = \"8/h\" } }",
        );
    let gateway = place.gateway(file).await;
    let mut client = gateway.connect().await;
    let answer = client.ask(get("/")).await;
    assert_eq!(answer.remaining("key"), 8);
    let fields = answer.echoed().fields;
    assert!(fields.all("x-plan").is_empty() && fields.all("x-group").is_empty());
    let answer = client
        .ask(request("GET", "/", &[("X-Api-Key", "key-3")]))
        .await;
    assert_eq!(answer.remaining("key"), 7);
    let fields = answer.echoed().fields;
    assert_eq!(
        (fields.all("x-plan"), fields.all("x-group")),
        (vec!["pro"], vec!["pro"])
    );
}
