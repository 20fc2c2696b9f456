//! Requests that are sent again: which requests, to which servers, and how often.

use super::{UPGRADE, answering, breaking, file, metric};
use crate::support::{Connection, Gateway, Upstream, free_port, get, request};
use std::time::{Duration, Instant};

#[tokio::test]
async fn any_method_goes_on_to_the_next_server_when_one_takes_no_connection() {
    let good = Upstream::echo().await;
    let dead = format!("http://127.0.0.1:{}", free_port());
    let gateway =
        Gateway::start(&file(&[dead, good.url()], "eject = false").server("workers = 1")).await;
    let mut retried = 0;
    for _ in 0..8 {
        let fields = [("Content-Length", "5")];
        let asked = format!("{}hello", request("POST", "/", &fields));
        let answer = gateway.connect().await.ask(asked).await.expect(200);
        assert_eq!(answer.echoed().body, "hello");
        let line = gateway.line_of(&answer).await;
        assert_eq!(line["server"], good.url(), "{line}");
        if line["attempts"] == 2 {
            retried += 1;
            assert_eq!(line["retry"], "connect", "{line}");
        }
    }
    assert_eq!(retried, 4);
    let series =
        "tollgate_upstream_retries_total{upstream=\"main\",reason=\"connect\",result=\"answered\"}";
    assert_eq!(metric(&gateway.metrics().await, series), 4);
}

#[tokio::test]
async fn after_a_reset_only_what_may_be_done_twice_goes_out_again() {
    let (good, bad) = (Upstream::echo().await, breaking().await);
    let gateway =
        Gateway::start(&file(&[bad.url(), good.url()], "eject = false").server("workers = 1"))
            .await;
    for method in ["GET", "PUT", "DELETE"] {
        for _ in 0..2 {
            let answer = gateway.connect().await.ask(request(method, "/", &[])).await;
            answer.expect(200);
        }
    }
    assert_eq!(bad.seen(), 3);
    let mut statuses = Vec::new();
    for _ in 0..2 {
        let asked = request("POST", "/", &[("Content-Length", "0")]);
        statuses.push(gateway.connect().await.ask(asked).await.status);
    }
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 502]);
    let body = format!("{}x", request("PUT", "/", &[("Content-Length", "1")]));
    let mut statuses = Vec::new();
    for _ in 0..2 {
        statuses.push(gateway.connect().await.ask(&body).await.status);
    }
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 502], "a body that was begun is spent");
}

#[tokio::test]
async fn the_only_server_is_asked_again_after_a_moment_and_once() {
    let upstream = Upstream::playing(async |mut connection: Connection| {
        let Ok(head) = connection.request().await else {
            return;
        };
        if connection.nth == 2 {
            let _ = connection
                .send_echo(&head, &Default::default(), &Default::default())
                .await;
        }
    })
    .await;
    let gateway = Gateway::start(&file(&[upstream.url()], "").server("workers = 1")).await;
    let began = Instant::now();
    let answer = gateway.get("/").await.expect(200);
    assert!(began.elapsed() >= Duration::from_millis(25));
    let line = gateway.line_of(&answer).await;
    assert_eq!(
        (&line["attempts"], &line["retry"]),
        (&2.into(), &"reset".into()),
        "{line}"
    );
    let answer = gateway.get("/").await.expect(502);
    assert_eq!(gateway.line_of(&answer).await["attempts"], 2);
    assert_eq!(upstream.seen(), 4);
}

#[tokio::test]
async fn a_status_is_retried_where_it_is_written() {
    let (good, bad) = (Upstream::echo().await, answering(503).await);
    let urls = [bad.url(), good.url()];
    let lines = "eject = false\nretry = { on = [\"connect\", \"503\"] }";
    let gateway = Gateway::start(&file(&urls, lines).server("workers = 1")).await;
    for _ in 0..4 {
        gateway.get("/").await.expect(200);
    }
    assert_eq!(bad.seen(), 2);
    let mut statuses = Vec::new();
    for _ in 0..2 {
        let asked = request("POST", "/", &[("Content-Length", "0")]);
        statuses.push(gateway.connect().await.ask(asked).await.status);
    }
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 503]);
    let gateway =
        Gateway::start(&file(&urls, "eject = false\nretry = false").server("workers = 1")).await;
    let first = gateway.get("/").await.status;
    let second = gateway.get("/").await.status;
    assert_eq!(first + second, 703, "neither is retried");
}

#[tokio::test]
async fn a_websocket_that_is_broken_off_goes_on_to_the_next_server() {
    let (good, bad) = (answering(403).await, breaking().await);
    let gateway =
        Gateway::start(&file(&[bad.url(), good.url()], "eject = false").server("workers = 1"))
            .await;
    for _ in 0..2 {
        let asked = request("GET", "/chat", &UPGRADE);
        let answer = gateway.connect().await.ask(asked).await.expect(403);
        let line = gateway.line_of(&answer).await;
        if line["attempts"] == 2 {
            assert_eq!(line["retry"], "reset", "{line}");
        }
    }
    assert_eq!((bad.seen(), good.seen()), (1, 2));
}

#[tokio::test]
async fn an_attempt_after_a_status_may_fail_in_another_way() {
    let upstream = Upstream::playing(async |mut connection: Connection| {
        while connection.request().await.is_ok() {
            let answer = match connection.nth {
                1 => "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n",
                2 => return,
                _ => "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
            };
            connection.wire.send(answer).await;
        }
    })
    .await;
    let lines =
        "retry = { attempts = 2, on = [\"connect\", \"reset\", \"503\"], budget = \"100%\" }";
    let gateway = Gateway::start(&file(&[upstream.url()], lines)).await;
    let answer = gateway.get("/").await.expect(200);
    let line = gateway.line_of(&answer).await;
    assert_eq!(
        (&line["attempts"], &line["retry"]),
        (&3.into(), &"reset".into())
    );
}

/// All servers break off, and the budget keeps the number of attempts near the number of requests.
#[tokio::test]
async fn when_all_servers_fail_there_are_few_more_attempts_than_requests() {
    let servers = [breaking().await, breaking().await];
    let urls = servers.each_ref().map(Upstream::url);
    let gateway = Gateway::start(&file(&urls, "").server("workers = 2")).await;
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let mut wire = gateway.connect().await;
        clients.spawn(async move {
            for _ in 0..50 {
                wire.ask(get("/")).await.expect(502);
            }
        });
    }
    clients.join_all().await;
    let attempts: usize = servers.iter().map(Upstream::seen).sum();
    assert!((1_000..=1_210).contains(&attempts), "{attempts} attempts");
    let text = gateway.metrics().await;
    let series = |result: &str| {
        metric(
            &text,
            &format!(
                "tollgate_upstream_retries_total{{upstream=\"main\",reason=\"reset\",result=\"{result}\"}}"
            ),
        )
    };
    assert_eq!(series("failed") as usize, attempts - 1_000);
    assert_eq!(series("budget") + series("failed"), 1_000);
}
