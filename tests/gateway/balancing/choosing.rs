//! The choice of the server for a request.

use super::file;
use crate::support::{Connection, File, Gateway, PATIENCE, Upstream, eventually, get, request};
use std::collections::BTreeMap;
use std::time::Duration;

async fn echoes<const N: usize>() -> [Upstream; N] {
    let mut all = Vec::new();
    for _ in 0..N {
        all.push(Upstream::echo().await);
    }
    all.try_into().unwrap()
}

#[tokio::test]
async fn weights_are_right_and_zero_gets_nothing() {
    let servers = echoes::<3>().await;
    let entries: Vec<String> = servers
        .iter()
        .zip([1, 3, 0])
        .map(|(server, weight)| format!("{{ url = \"{}\", weight = {weight} }}", server.url()))
        .collect();
    let gateway = Gateway::start(&file(&entries, "").server("workers = 2")).await;
    let mut wires = [gateway.connect().await, gateway.connect().await];
    for _ in 0..100 {
        for wire in &mut wires {
            wire.ask(get("/")).await.expect(200);
        }
    }
    assert_eq!(servers.each_ref().map(Upstream::seen), [50, 150, 0]);
}

#[tokio::test]
async fn a_key_stays_with_its_server_and_one_that_leaves_moves_only_its_own() {
    let servers = echoes::<5>().await;
    let mut urls: Vec<String> = servers.iter().map(Upstream::url).collect();
    let owners = async |gateway: &Gateway| {
        let mut owners = BTreeMap::new();
        for user in 0..60 {
            for _ in 0..2 {
                let user = user.to_string();
                let answer = gateway
                    .get_with("/", &[("x-user", &user)])
                    .await
                    .expect(200);
                let port = answer.echoed().port;
                assert_eq!(*owners.entry(user).or_insert(port), port);
            }
        }
        owners
    };
    let lines = "balance = \"hash:header:x-user\"";
    let gateway = Gateway::start(&file(&urls, lines)).await;
    let before = owners(&gateway).await;
    urls.rotate_left(2);
    let gone = u64::from(servers[2].port());
    urls.retain(|url| *url != servers[2].url());
    let gateway = Gateway::start(&file(&urls, lines)).await;
    let after = owners(&gateway).await;
    for (user, port) in &before {
        assert!(*port == gone || after[user] == *port, "user {user} moved");
    }
    assert!(before.values().any(|port| *port == gone));
    let mut ports: Vec<u64> = before.into_values().collect();
    ports.sort_unstable();
    ports.dedup();
    assert!(ports.len() >= 4, "{ports:?}");
    // Without the key, requests go to the servers in turn.
    let seen = servers[0].seen();
    for _ in 0..8 {
        gateway.get("/").await.expect(200);
    }
    assert!(servers[0].seen() > seen);
}

/// A server that answers after a while.
async fn slow() -> Upstream {
    Upstream::playing(async |mut connection: Connection| {
        while let Ok(head) = connection.request().await {
            tokio::time::sleep(Duration::from_millis(300)).await;
            let nothing = Default::default();
            if connection
                .send_echo(&head, &Default::default(), &nothing)
                .await
                .is_err()
            {
                return;
            }
        }
    })
    .await
}

#[tokio::test]
async fn requests_go_where_the_fewest_are_in_flight() {
    let (slow, quick) = (Upstream::silent().await, Upstream::echo().await);
    // The route has the usual time limit, so that hanging requests stay in flight.
    let file = File::default()
        .server("workers = 2")
        .upstream("main", &[&slow, &quick])
        .with("balance = \"least-requests\"")
        .route("all", "/{*rest}", "main", &[]);
    let gateway = Gateway::start(&file).await;
    let mut held = Vec::new();
    while slow.seen() == 0 {
        let mut wire = gateway.connect().await;
        wire.send(get("/")).await;
        // The request is answered by the one server, or has come to the other. Without this wait the next request might
        // also go there.
        tokio::select! {
            answer = wire.answer() => drop(answer.expect(200)),
            () = eventually(PATIENCE, "a request at the slow server", async || slow.seen() > 0) => {}
        }
        held.push(wire);
    }
    let before = quick.seen();
    for _ in 0..10 {
        gateway.get("/").await.expect(200);
    }
    assert_eq!((slow.seen(), quick.seen()), (1, before + 10));
}

#[tokio::test]
async fn a_bounded_key_spills_over_when_its_server_has_too_many() {
    let servers = [slow().await, slow().await];
    let urls = servers.each_ref().map(Upstream::url);
    let lines = "balance = { by = \"hash:header:x-user\", bounded = \"125%\" }";
    let gateway = Gateway::start(&file(&urls, lines).server("workers = 2")).await;
    let mut wires = Vec::new();
    for _ in 0..8 {
        let mut wire = gateway.connect().await;
        wire.send(request("GET", "/", &[("x-user", "one")])).await;
        wires.push(wire);
    }
    for wire in &mut wires {
        wire.answer().await.expect(200);
    }
    let mut seen = servers.each_ref().map(Upstream::seen);
    seen.sort_unstable();
    assert!(seen[0] >= 3 && seen[1] <= 5, "{seen:?}");
}
