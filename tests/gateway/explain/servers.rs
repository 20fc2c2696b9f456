//! The server that a key chooses: `explain` names the one that the gateway asks, and the next ones.

use crate::support::{File, Gateway, Upstream, tollgate};
use serde_json::Value;

async fn explained(gateway: &Gateway, arguments: &[&str]) -> String {
    let all = [&["explain"][..], arguments].concat();
    let told = tollgate(gateway.folder(), &all).await;
    assert_eq!(told.code, Some(0), "{}", told.stderr);
    told.stdout
}

#[tokio::test]
async fn the_server_of_a_key_is_named() {
    let servers = [
        Upstream::echo().await,
        Upstream::echo().await,
        Upstream::echo().await,
    ];
    let urls = servers.each_ref().map(Upstream::url);
    let file = File::default()
        .with(&format!(
            "[upstreams.main]\nservers = {urls:?}\nbalance = {{ by = \"hash:header:x-user\", bounded = \"200%\" }}"
        ))
        .route("all", "/{*rest}", "main", &[]);
    let gateway = Gateway::start(&file).await;
    let mut owners = Vec::new();
    for user in ["ann", "bob", "cat", "dan", "eve", "flo"] {
        let answer = gateway.get_with("/", &[("x-user", user)]).await.expect(200);
        let asked = gateway.line_of(&answer).await["server"].clone();
        let field = format!("x-user: {user}");
        let json = explained(&gateway, &["GET", "/", "-H", &field, "--json"]).await;
        let json: Value = serde_json::from_str(&json).unwrap();
        let order = json["server"]["order"].as_array().unwrap();
        assert_eq!(order[0], asked, "{user}");
        let mut all: Vec<&str> = order.iter().map(|one| one.as_str().unwrap()).collect();
        let text = explained(&gateway, &["GET", "/", "-H", &field]).await;
        let line = format!(
            "server  {}, by header:x-user; while it is away {}, then {}; a server with more than 200% of the average in flight is passed over",
            all[0], all[1], all[2]
        );
        assert!(text.lines().any(|one| one == line), "{line}\n{text}");
        all.sort_unstable();
        let mut known: Vec<&str> = urls.iter().map(String::as_str).collect();
        known.sort_unstable();
        assert_eq!(all, known);
        owners.push(asked);
    }
    let first = owners[0].clone();
    assert!(
        owners.iter().any(|one| *one != first),
        "keys have owners of their own"
    );
    let text = explained(&gateway, &["GET", "/"]).await;
    let line = "server  in turn, since the request has no header:x-user, or several";
    assert!(text.lines().any(|one| one == line), "{text}");
}

#[tokio::test]
async fn names_are_not_resolved_for_it_and_other_ways_of_choosing_say_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let text = "[upstreams.main]\nservers = [\"http://orders.test:1\", \"http://192.0.2.1:1\"]\nbalance = \"hash:ip\"\n\
         [routes.all]\nupstream = \"main\"\n";
    for (text, has_line) in [
        (text.to_owned(), true),
        (text.replace("hash:ip", "random"), false),
    ] {
        std::fs::write(folder.path().join("gateway.toml"), text).unwrap();
        let told = tollgate(folder.path(), &["explain", "GET", "/"])
            .await
            .stdout;
        let line = "server  by ip, among the addresses of orders.test, which are not resolved here";
        assert_eq!(told.lines().any(|one| one == line), has_line, "{told}");
        assert_eq!(told.contains("\nserver "), has_line, "{told}");
    }
}

#[tokio::test]
async fn servers_that_all_drain_are_tried_all_the_same() {
    let servers = [Upstream::echo().await, Upstream::echo().await];
    let entries = servers
        .each_ref()
        .map(|one| format!("{{ url = \"{}\", weight = 0 }}", one.url()));
    let lines = format!(
        "[upstreams.main]\nservers = [{}]\nbalance = \"hash:header:x-user\"",
        entries.join(", ")
    );
    let file = File::default()
        .with(&lines)
        .route("all", "/{*rest}", "main", &[]);
    let gateway = Gateway::start(&file).await;
    let warned = gateway.said.line(0, "the warning", |line| {
        line.contains("all servers of upstream `main` have weight 0")
    });
    warned.await;
    let text = explained(&gateway, &["GET", "/", "-H", "x-user: ann"]).await;
    let words = "server  none is available, since all have weight 0";
    assert!(text.contains(words), "{text}");
    let answer = gateway
        .get_with("/", &[("x-user", "ann")])
        .await
        .expect(200);
    assert_eq!(gateway.line_of(&answer).await["reason"], "none_left");
}
