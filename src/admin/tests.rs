//! The admin listener as its clients see it, over a real socket.

use super::answers::limits::LimitDetails;
use super::answers::problem::Problem;
use super::answers::routing::RouteAnswer;
use super::answers::settings::ConfigAnswer;
use super::server::{AdminTimeouts, serve_within};
use super::*;
use crate::listen::bind::Acceptor;
use crate::telemetry::metrics::{AnswerSource, NO_ROUTE};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A file without anything in it.
#[derive(Debug)]
struct EmptyFile;

impl RunningFile for EmptyFile {
    fn facts(&self) -> RunningFacts {
        RunningFacts {
            generation: 1,
            hash: "0".to_owned(),
            loaded_at: "2026-11-26T13:58:01.000Z".to_owned(),
            source: "flags",
            last_reload: None,
        }
    }

    fn limits(&self) -> Vec<LimitDetails> {
        Vec::new()
    }

    fn routes(&self) -> Vec<RouteAnswer> {
        Vec::new()
    }

    fn text(&self) -> ConfigAnswer {
        ConfigAnswer {
            generation: 1,
            hash: "0".to_owned(),
            files: Vec::new(),
            text: String::new(),
        }
    }

    fn reload(&self) -> Reloading<'_> {
        let none = Problem::new(http::StatusCode::CONFLICT, "no_file", "there is no file");
        Box::pin(std::future::ready(Err(none)))
    }
}

struct Admin {
    address: SocketAddr,
    state: AdminState,
    stop: oneshot::Sender<()>,
    served: JoinHandle<()>,
}

impl Admin {
    async fn start() -> Self {
        Self::with(AdminTimeouts {
            head: Duration::from_secs(10),
            connection: Duration::from_secs(10),
            last_answer: Duration::from_secs(1),
        })
        .await
    }

    async fn with(timeouts: AdminTimeouts) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = AdminState {
            snapshots: None,
            peeks: None,
            changes: None,
            metrics: Metrics::new(),
            readiness: Readiness::default(),
            name: "edge-1".into(),
            id: 1,
            door: Door::new(Arc::default()),
            file: Arc::new(EmptyFile),
        };
        let (stop, stopped) = oneshot::channel::<()>();
        let stopped = async {
            let _ = stopped.await;
        };
        let listener = Acceptor::Tcp(listener);
        let served = tokio::spawn(serve_within(timeouts, listener, state.clone(), stopped));
        Self {
            address,
            state,
            stop,
            served,
        }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends a request line with `fields` and returns the whole answer.
    async fn ask(&self, line: &str, fields: &str) -> String {
        let mut stream = self.connect().await;
        let host = self.address;
        let request =
            format!("{line} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{fields}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }
}

#[tokio::test]
async fn ready_only_while_it_takes_requests() {
    let admin = Admin::start().await;
    let answer = admin.ask("GET /readyz", "").await;
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("\r\n\r\nstarting"));
    admin.state.readiness.set(Phase::Ready);
    let answer = admin.ask("GET /readyz", "").await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\nready\n"));
    admin.state.readiness.set(Phase::Draining);
    let answer = admin.ask("GET /readyz", "").await;
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("\r\n\r\ndraining"));
    let answer = admin.ask("GET /healthz", "").await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\nok\n"));
}

#[tokio::test]
async fn metrics_come_in_the_format_asked_for() {
    let admin = Admin::start().await;
    let worker = admin.state.metrics.worker();
    let route = worker.route(NO_ROUTE);
    route.request(
        &http::Method::GET,
        404,
        AnswerSource::Gateway,
        Duration::ZERO,
    );
    let answer = admin.ask("GET /metrics", "").await;
    assert!(answer.contains("content-type: text/plain; version=0.0.4"));
    assert!(
        answer.contains("tollgate_http_requests_total{route=\"none\",method=\"GET\",code=\"404\"")
    );
    let accept = "accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.4\r\n";
    let answer = admin.ask("GET /metrics", accept).await;
    assert!(answer.contains("content-type: application/openmetrics-text; version=1.0.0"));
    assert!(answer.ends_with("# EOF\n"));
}

#[tokio::test]
async fn head_is_get_without_the_body() {
    let admin = Admin::start().await;
    for path in ["/healthz", "/metrics"] {
        let answer = admin.ask(&format!("HEAD {path}"), "").await;
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\n"));
        assert!(answer.contains("content-length: ") && !answer.contains("content-length: 0\r"));
    }
}

#[tokio::test]
async fn anything_else_is_a_problem_document() {
    let admin = Admin::start().await;
    let answer = admin.ask("GET /", "").await;
    assert!(answer.starts_with("HTTP/1.1 404 "));
    assert!(answer.contains("content-type: application/problem+json"));
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!(body["status"], 404);
    let answer = admin.ask("POST /metrics", "content-length: 0\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 405 ") && answer.contains("allow: GET, HEAD"));
}

#[tokio::test]
async fn silent_connections_make_room_for_one_that_asks() {
    let admin = Admin::start().await;
    let request = b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n";
    let mut kept = admin.connect().await;
    kept.write_all(request).await.unwrap();
    hears_ok(&mut kept).await;
    let mut silent = Vec::new();
    for _ in 0..250 {
        silent.push(admin.connect().await);
    }
    let asking = tokio::time::timeout(Duration::from_secs(5), admin.ask("GET /healthz", ""));
    assert!(asking.await.unwrap().starts_with("HTTP/1.1 200 "));
    // The oldest connection without a request is closed, and the older one with a request stays open.
    let gone = tokio::time::timeout(Duration::from_secs(5), silent[0].read_u8()).await;
    assert!(gone.unwrap().is_err());
    kept.write_all(request).await.unwrap();
    hears_ok(&mut kept).await;
}

/// Reads one answer to a health check, to its end.
async fn hears_ok(client: &mut TcpStream) {
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\nok\n") {
        answer.push(client.read_u8().await.unwrap());
    }
}

#[tokio::test]
async fn shutdown_ends_idle_connections_at_once() {
    let admin = Admin::start().await;
    let mut kept = admin.connect().await;
    kept.write_all(b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n")
        .await
        .unwrap();
    let mut first = [0; 12];
    kept.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    let began = Instant::now();
    admin.stop.send(()).unwrap();
    admin.served.await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(3));
    assert!(TcpStream::connect(admin.address).await.is_err());
}

#[tokio::test]
async fn a_client_that_is_too_slow_is_let_go() {
    let short = Duration::from_millis(100);
    let long = Duration::from_secs(60);
    for (head, connection) in [(short, long), (long, short)] {
        let admin = Admin::with(AdminTimeouts {
            head,
            connection,
            last_answer: short,
        })
        .await;
        let mut slow = admin.connect().await;
        slow.write_all(b"GET /heal").await.unwrap();
        let mut answer = Vec::new();
        let ended = tokio::time::timeout(Duration::from_secs(10), slow.read_to_end(&mut answer));
        assert!(ended.await.is_ok());
    }
}
