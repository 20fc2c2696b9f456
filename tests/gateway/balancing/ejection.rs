//! A server that fails several requests in a row gets none for a while. The last server is never ejected, and a 500
//! never counts as a failure.

use super::{UPGRADE, answering, breaking, file, metric};
use crate::support::{
    Connection, Gateway, PATIENCE, Upstream, eventually, free_port, request, tollgate,
};
use std::time::Duration;

#[tokio::test]
async fn it_leaves_after_failures_in_a_row_and_is_back_when_the_time_is_over() {
    let good = Upstream::echo().await;
    let bad = answering(503).await;
    let lines = "eject = { after = 3, for = \"600ms\" }";
    let gateway =
        Gateway::start(&file(&[good.url(), bad.url()], lines).server("workers = 1")).await;
    for _ in 0..20 {
        gateway.get("/").await;
    }
    assert_eq!(bad.seen(), 3, "three in a row, then none");
    let said = format!("upstream main: {} gets no requests", bad.url());
    let line = gateway
        .said
        .line(0, "the ejection", |line| line.contains(&said))
        .await;
    assert!(
        line.contains("3 requests in a row failed") && line.contains("503"),
        "{line}"
    );
    let shown = gateway.admin_get("/v1/upstreams").await.expect(200).json();
    let servers = &shown["upstreams"][0]["servers"];
    assert_eq!(servers[0]["state"], "up", "{shown}");
    assert_eq!(servers[1]["state"], "ejected", "{shown}");
    let labels = format!("{{upstream=\"main\",server=\"{}\"}}", bad.url());
    eventually(PATIENCE, "the metrics say so", async || {
        let text = gateway.metrics().await;
        let state = format!("tollgate_upstream_server_state{labels} -1");
        text.contains(&state)
            && metric(&text, &format!("tollgate_upstream_ejections_total{labels}")) == 1
    })
    .await;
    gateway
        .said
        .line(0, "the return", |line| line.contains("gets requests again"))
        .await;
    for _ in 0..20 {
        gateway.get("/").await;
    }
    assert_eq!(bad.seen(), 6, "three more");
}

#[tokio::test]
async fn a_request_that_makes_servers_answer_500_ejects_none() {
    let servers = [answering(500).await, answering(500).await];
    let urls = servers.each_ref().map(Upstream::url);
    let gateway = Gateway::start(&file(&urls, "eject = { after = 2 }").server("workers = 1")).await;
    for _ in 0..20 {
        gateway.get("/").await.expect(500);
    }
    assert_eq!(servers.each_ref().map(Upstream::seen), [10, 10]);
}

#[tokio::test]
async fn half_may_go_and_the_last_never() {
    let dead = [(); 3].map(|()| format!("http://127.0.0.1:{}", free_port()));
    let good = Upstream::echo().await;
    let mut urls = dead.to_vec();
    urls.push(good.url());
    for (at_most, workers, left, more) in [("100%", 2, 1, 30), ("50%", 1, 2, 3)] {
        let eject = format!("eject = {{ after = 1, for = \"1m\", at_most = \"{at_most}\" }}");
        let lines = format!("{eject}\nretry = {{ budget = \"100%\" }}");
        let workers = format!("workers = {workers}");
        let gateway = Gateway::start(&file(&urls, &lines).server(&workers)).await;
        // A request is tried at three servers: one request alone may find all dead servers, and no later request can.
        let mut failed = 0;
        eventually(PATIENCE, "the dead ones are found", async || {
            failed += u32::from(gateway.get("/").await.status != 200);
            available(&gateway).await == left
        })
        .await;
        assert!(failed <= 1, "{failed} with {at_most}");
        // If a dead server is left, these requests are so few that the budget of retries allows each of them one retry.
        for _ in 0..more {
            gateway.get("/").await.expect(200);
        }
        assert_eq!(available(&gateway).await, left, "{at_most}");
    }
}

/// The number of the upstream's servers that get requests.
async fn available(gateway: &Gateway) -> u64 {
    let shown = gateway.admin_get("/v1/upstreams").await.json();
    shown["upstreams"][0]["available"]
        .as_u64()
        .expect("a number")
}

#[tokio::test]
async fn a_client_that_leaves_or_is_slow_with_its_body_ejects_nobody() {
    let slow = Upstream::silent().await;
    let other = Upstream::silent().await;
    let lines = "eject = { after = 1 }\nretry = false";
    let file = file(&[slow.url(), other.url()], lines).server("idle = \"500ms\"");
    let gateway = Gateway::start(&file).await;
    for _ in 0..4 {
        let wire = gateway.connect().await;
        wire.send_and_leave(request("GET", "/", &[])).await;
        let mut wire = gateway.connect().await;
        wire.send(request("POST", "/", &[("Content-Length", "10")]))
            .await;
        wire.answer().await.expect(408);
    }
    let shown = gateway.admin_get("/v1/upstreams").await.json();
    assert_eq!(shown["upstreams"][0]["available"], 2, "{shown}");
    gateway.get("/").await.expect(504);
    let shown = gateway.admin_get("/v1/upstreams").await.json();
    assert_eq!(shown["upstreams"][0]["available"], 1, "{shown}");
}

/// A server whose time for a stalled body is over has not failed.
#[tokio::test]
async fn a_client_that_stops_in_its_body_ejects_nobody() {
    let impatient = async || {
        Upstream::playing(async |mut connection: Connection| {
            if let Ok(head) = connection.request().await
                && head.line.starts_with("POST")
            {
                let _ = connection.wire.exactly(1).await;
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
        })
        .await
    };
    let (one, other) = (impatient().await, impatient().await);
    let lines = "eject = { after = 1 }\nretry = false";
    let gateway = Gateway::start(&file(&[one.url(), other.url()], lines)).await;
    for _ in 0..4 {
        let beginning = format!("{}x", request("POST", "/", &[("Content-Length", "10")]));
        gateway.connect().await.ask(beginning).await.expect(502);
    }
    assert_eq!(available(&gateway).await, 2);
    gateway.get("/").await.expect(502);
    assert_eq!(
        available(&gateway).await,
        1,
        "that was the server's failure"
    );
}

#[tokio::test]
async fn without_a_server_all_are_tried_and_the_log_says_so() {
    let ports = [free_port(), free_port()];
    let urls = ports.map(|port| format!("http://127.0.0.1:{port}"));
    let lines = "health = { connect = true, interval = \"200ms\", rise = 1 }";
    let gateway = Gateway::start(&file(&urls, lines)).await;
    gateway
        .said
        .line(0, "none is left", |line| {
            line.contains("no server is available")
        })
        .await;
    let answer = gateway.get("/").await.expect(502);
    assert_eq!(gateway.line_of(&answer).await["reason"], "none_left");
    let ready = gateway.admin_get("/readyz").await.expect(200).text();
    assert!(
        ready.contains("upstream main: no server is available"),
        "{ready}"
    );
    let back = Upstream::echo_on(ports[1]).await;
    eventually(PATIENCE, "one is back", async || {
        gateway.get("/").await.status == 200
    })
    .await;
    drop(back);

    let file = file(&urls, &format!("{lines}\nnone_left = \"503\""));
    let gateway = Gateway::start(&file).await;
    gateway
        .said
        .line(0, "none is left", |line| line.contains("requests get 503"))
        .await;
    let answer = gateway.get("/").await.expect(503);
    assert_eq!(answer.field("retry-after"), "1");
    let line = gateway.line_of(&answer).await;
    assert_eq!(
        (&line["reason"], &line["attempts"]),
        (&"none_left".into(), &0.into()),
        "{line}"
    );
}

/// The knowledge about a server survives changes of the file.
#[tokio::test]
async fn a_reload_forgets_no_ejection() {
    let good = Upstream::echo().await;
    let bad = Upstream::playing(async |connection: Connection| drop(connection)).await;
    let file = file(
        &[good.url(), bad.url()],
        "eject = { after = 2, for = \"1m\" }",
    );
    let gateway = Gateway::start(&file).await;
    for _ in 0..10 {
        gateway.get("/").await.expect(200);
    }
    let before = bad.connections();
    gateway.rename_over(
        &file
            .clone()
            .with("[routes.two]\npath = \"/two\"\nupstream = \"main\"")
            .text(),
    );
    gateway
        .said
        .line(0, "the reload", |line| line.contains("generation 2"))
        .await;
    for _ in 0..20 {
        gateway.get("/two").await.expect(200);
    }
    assert_eq!(bad.connections(), before);
}

#[tokio::test]
async fn a_server_that_breaks_off_websockets_leaves_too() {
    let (good, bad) = (answering(403).await, breaking().await);
    let lines = "retry = false\neject = { after = 2 }";
    let gateway =
        Gateway::start(&file(&[bad.url(), good.url()], lines).server("workers = 1")).await;
    let mut statuses = Vec::new();
    for _ in 0..10 {
        statuses.push(
            gateway
                .connect()
                .await
                .ask(request("GET", "/chat", &UPGRADE))
                .await
                .status,
        );
    }
    let broken = statuses.iter().filter(|status| **status == 502).count();
    assert_eq!(broken, 2, "{statuses:?}");
    assert_eq!(bad.seen(), 2);
}

/// A server whose application serves GET, and fails every POST in the way that the path names.
async fn weak() -> Upstream {
    Upstream::playing(async |mut connection: Connection| {
        while let Ok(head) = connection.request().await {
            let answer = match head.line.split(' ').nth(1) {
                _ if head.line.starts_with("GET") => "200 OK",
                Some("/unavailable") => "503 Service Unavailable",
                Some("/late") => {
                    tokio::time::sleep(Duration::from_secs(2)).await;
                    "200 OK"
                }
                _ => return,
            };
            let answer = format!("HTTP/1.1 {answer}\r\nContent-Length: 0\r\n\r\n");
            if connection.wire.try_send(answer).await.is_err() {
                return;
            }
        }
    })
    .await
}

/// The attack: one client makes the application fail, again and again, while others use it.
#[tokio::test]
async fn one_client_ejects_no_server_that_others_ask() {
    for way in ["/broken", "/unavailable", "/late"] {
        let servers = [weak().await, weak().await, weak().await, weak().await];
        let urls = servers.each_ref().map(Upstream::url);
        let gateway = Gateway::start(&file(&urls, "")).await;
        let attackers = ["127.0.0.7", "127.0.0.9"].map(|ip| ip.parse().expect("an address"));
        let honest = async || {
            gateway.get("/").await.expect(200);
        };
        // All requests are sent at once, so that no success comes between them.
        let attack = async |clients: &[std::net::IpAddr]| {
            let mut all = tokio::task::JoinSet::new();
            for n in 0..24 {
                let (address, client) = (gateway.address(), clients[n / 4 % clients.len()]);
                all.spawn(async move {
                    let mut wire = crate::support::Wire::from(client, address).await;
                    wire.ask(request("POST", way, &[])).await.status
                });
            }
            assert!(all.join_all().await.iter().all(|status| *status > 500));
        };
        honest().await;
        attack(&attackers[..1]).await;
        assert_eq!(available(&gateway).await, 4, "{way}");
        honest().await;
        // With two failing clients the fault is the server's, as far as a gateway can know.
        attack(&attackers).await;
        assert!(available(&gateway).await < 4, "{way}");
        drop(servers);
    }
}

/// No other client sends requests: the requests of one client are all that the gateway knows about the server.
#[tokio::test]
async fn a_single_client_ejects_as_soon_as_ever() {
    let (good, bad) = (Upstream::echo().await, breaking().await);
    let lines = "eject = { for = \"1m\" }\nretry = false";
    let gateway =
        Gateway::start(&file(&[good.url(), bad.url()], lines).server("workers = 1")).await;
    for _ in 0..20 {
        gateway.get("/").await;
    }
    assert_eq!(bad.seen(), 5);
    let said = "5 requests in a row failed, all of one client, the last with";
    gateway
        .said
        .line(0, "the ejection", |line| line.contains(said))
        .await;
}

/// A target that the hash leads to `server`. No request looks for it, because its failure would count.
async fn target_of(gateway: &Gateway, server: &Upstream) -> String {
    let line = format!("server  {}, by query:server", server.url());
    for number in 0..200 {
        let target = format!("/?server={number}");
        let explained = tollgate(gateway.folder(), &["explain", "GET", &target]).await;
        if explained.stdout.contains(&line) {
            return target;
        }
    }
    panic!("no target of 200 leads to {}", server.url());
}

/// A server that fails for its only client is treated as dead all the same, once its row of failures has lasted.
#[tokio::test]
async fn a_row_that_lasts_ten_seconds_ejects_whoever_asks() {
    let (good, bad) = (Upstream::echo().await, answering(503).await);
    let lines = "balance = \"hash:query:server\"\neject = { for = \"1m\" }";
    let gateway = Gateway::start(&file(&[good.url(), bad.url()], lines)).await;
    let (to_good, to_bad) = (
        target_of(&gateway, &good).await,
        target_of(&gateway, &bad).await,
    );
    let other = "127.0.0.8".parse().expect("an address");
    let begun = tokio::time::Instant::now();
    eventually(Duration::from_secs(20), "it is ejected", async || {
        let mut wire = crate::support::Wire::from(other, gateway.address()).await;
        wire.ask(request("GET", &to_good, &[])).await.expect(200);
        gateway.get(&to_bad).await;
        // The rate of requests is part of the test.
        tokio::time::sleep(Duration::from_millis(100)).await;
        available(&gateway).await != 2
    })
    .await;
    assert!(
        begun.elapsed() > Duration::from_secs(9),
        "{:?}",
        begun.elapsed()
    );
}
