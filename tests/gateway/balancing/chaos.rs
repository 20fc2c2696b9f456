//! Servers that are killed, stopped, slowed down, restarted and replaced at random, under load. Only requests fail that
//! were under way and may not be repeated, and the counts add up.

use super::{file, metric};
use crate::support::{Gateway, PATIENCE, Wire, eventually, free_port, get, long, process, request};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::process::Child;
use tokio::time::sleep;

/// A server process: a gateway that itself answers.
struct Server {
    port: u16,
    folder: tempfile::TempDir,
    child: Option<Child>,
}

impl Server {
    async fn start() -> Self {
        let port = free_port();
        let folder = tempfile::tempdir().unwrap();
        let text = format!(
            "[server]\nlisten = \"127.0.0.1:{port}\"\nworkers = 1\n[log]\naccess = \"off\"\n[routes.all]\nrespond = {{ status = 200, body = \"{port}\" }}\n"
        );
        std::fs::write(folder.path().join("gateway.toml"), text).unwrap();
        let mut server = Self {
            port,
            folder,
            child: None,
        };
        server.revive().await;
        server
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    async fn revive(&mut self) {
        let mut command = process::command();
        command.args(["run", "--config", "gateway.toml"]);
        command
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null());
        self.child = Some(command.current_dir(self.folder.path()).spawn().unwrap());
        let address = ([127, 0, 0, 1], self.port).into();
        eventually(Duration::from_secs(20), "it starts", async || {
            Wire::try_to(address).await.is_ok()
        })
        .await;
    }

    fn signal(&self, name: &str) {
        let pid = self.child.as_ref().and_then(Child::id);
        process::signal(pid.expect("it runs"), name);
    }

    /// Stops the server in order: it finishes its requests first.
    async fn restart(&mut self) {
        self.signal("TERM");
        if let Some(mut child) = self.child.take() {
            let _ = child.wait().await;
        }
        self.revive().await;
    }

    async fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill().await;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(pid) = self.child.as_ref().and_then(Child::id) {
            process::signal(pid, "KILL");
        }
    }
}

async fn servers(many: usize) -> Vec<Server> {
    let mut all = Vec::new();
    for _ in 0..many {
        all.push(Server::start().await);
    }
    all
}

fn urls(servers: &[Server]) -> Vec<String> {
    servers.iter().map(Server::url).collect()
}

/// One client: GET requests and some POST requests. Returns the statuses and times of its answers.
async fn client(
    mut wire: Wire,
    pause: Duration,
    over: Arc<AtomicBool>,
) -> Vec<(Instant, Duration, u16)> {
    let mut shots = Vec::new();
    while !over.load(Ordering::Relaxed) {
        let at = Instant::now();
        let asked = if shots.len() % 5 == 4 {
            request("POST", "/", &[("Content-Length", "0")])
        } else {
            get("/")
        };
        let answer = wire.ask(asked).await;
        shots.push((at, at.elapsed(), answer.status));
        sleep(pause.saturating_sub(at.elapsed())).await;
    }
    shots
}

/// Replaces a server of the file by another. The old server is killed when the gateway knows the new one.
async fn replace(victim: &mut Server, gateway: &Gateway) {
    let new = Server::start().await;
    let heard = gateway.said.lines().len();
    let text = std::fs::read_to_string(gateway.file()).unwrap();
    gateway.rename_over(&text.replace(&victim.url(), &new.url()));
    gateway
        .said
        .line(heard, "the new file", |line| line.contains("is in force"))
        .await;
    *victim = new;
}

/// Disturbs one of the servers for a while.
async fn strike(victim: &mut Server, gateway: &Gateway) {
    match fastrand::u8(..5) {
        3 => victim.restart().await,
        4 => replace(victim, gateway).await,
        0 => {
            victim.kill().await;
            sleep(Duration::from_millis(fastrand::u64(100..600))).await;
            victim.revive().await;
        }
        1 => {
            victim.signal("STOP");
            sleep(Duration::from_millis(fastrand::u64(600..1_500))).await;
            victim.signal("CONT");
        }
        // Slows the server down: it runs for a tenth of the time.
        _ => {
            for _ in 0..5 {
                victim.signal("STOP");
                sleep(Duration::from_millis(90)).await;
                victim.signal("CONT");
                sleep(Duration::from_millis(10)).await;
            }
        }
    }
}

/// May a request with this line of the log have failed?
fn may_have_failed(line: &Value) -> bool {
    let was_repeated = line["attempts"].as_u64() >= Some(2) || line["retry"] == "budget";
    match line["reason"].as_str() {
        // The request was under way at a server that had stopped.
        Some("upstream_timeout") => line["status"] == 504,
        Some("upstream_reset") => line["method"] == "POST" || was_repeated,
        Some("connect_failed" | "none_left") => was_repeated,
        _ => false,
    }
}

#[tokio::test]
async fn what_fails_was_under_way_and_may_not_be_repeated() {
    let (time, rate) = if long() {
        (Duration::from_secs(600), 500)
    } else {
        (Duration::from_secs(8), 200)
    };
    let mut servers = servers(5).await;
    let gateway = Gateway::start(&file(&urls(&servers), "").server("workers = 2")).await;
    let over = Arc::new(AtomicBool::new(false));
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let wire = gateway.connect().await;
        let pause = Duration::from_secs(20) / rate;
        clients.spawn(client(wire, pause, Arc::clone(&over)));
    }
    let began = Instant::now();
    while began.elapsed() < time {
        let victim = fastrand::usize(..servers.len());
        strike(&mut servers[victim], &gateway).await;
        sleep(Duration::from_millis(200)).await;
    }
    over.store(true, Ordering::Relaxed);
    let shots: Vec<_> = clients.join_all().await.into_iter().flatten().collect();
    let failed = shots.iter().filter(|(.., status)| *status != 200).count();
    eventually(PATIENCE, "all lines are there", async || {
        gateway.access.lines().len() == shots.len()
    })
    .await;
    let lines: Vec<Value> = gateway
        .access
        .lines()
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let bad: Vec<&Value> = lines.iter().filter(|line| line["status"] != 200).collect();
    assert_eq!(bad.len(), failed);
    for line in &bad {
        assert!(may_have_failed(line), "{line}");
    }
    let is_bad_luck =
        |line: &&&Value| line["reason"] != "upstream_timeout" && line["method"] != "POST";
    let unlucky = bad.iter().filter(is_bad_luck).count();
    assert!(
        unlucky * 200 <= shots.len(),
        "{unlucky} of {} failed twice",
        shots.len()
    );
    adds_up(&gateway.metrics().await, &lines);
}

/// Checks that the metrics have the counts that the log has.
fn adds_up(metrics: &str, lines: &[Value]) {
    let of_status =
        |status: u64| lines.iter().filter(|line| line["status"] == status).count() as u64;
    let all = metrics
        .lines()
        .filter(|line| line.starts_with("tollgate_http_requests_total{"));
    let all: u64 = all
        .filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok())
        .sum();
    assert_eq!(all, lines.len() as u64);
    let failures = |reason: &str| {
        metric(
            metrics,
            &format!("tollgate_upstream_failures_total{{upstream=\"main\",reason=\"{reason}\"}}"),
        )
    };
    assert_eq!(failures("timeout"), of_status(504));
    assert_eq!(failures("connect") + failures("reset"), of_status(502));
    // Each attempt after a request's first is a retry with one cause and one result.
    let attempts: u64 = lines
        .iter()
        .filter_map(|line| line["attempts"].as_u64())
        .sum();
    let retries = |result: &str| -> u64 {
        let rows = metrics.lines().filter(|line| {
            line.starts_with("tollgate_upstream_retries_total{") && line.contains(result)
        });
        rows.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok())
            .sum()
    };
    let again = retries("result=\"answered\"") + retries("result=\"failed\"");
    assert_eq!(attempts, lines.len() as u64 + again);
}

#[tokio::test]
async fn with_one_server_stopped_the_slowest_are_quick_again_within_two_seconds() {
    let servers = servers(5).await;
    let gateway = Gateway::start(&file(&urls(&servers), "").server("workers = 2")).await;
    let over = Arc::new(AtomicBool::new(false));
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let wire = gateway.connect().await;
        clients.spawn(client(wire, Duration::from_millis(100), Arc::clone(&over)));
    }
    sleep(Duration::from_millis(500)).await;
    servers[2].signal("STOP");
    let stopped = Instant::now();
    sleep(Duration::from_secs(5)).await;
    over.store(true, Ordering::Relaxed);
    let shots: Vec<_> = clients.join_all().await.into_iter().flatten().collect();
    let after = stopped + Duration::from_secs(2);
    let mut times: Vec<Duration> = shots
        .iter()
        .filter(|(at, ..)| *at > after)
        .map(|(_, took, _)| *took)
        .collect();
    times.sort_unstable();
    let p99 = times[times.len() * 99 / 100];
    assert!(
        p99 < Duration::from_millis(400),
        "{p99:?} of {}",
        times.len()
    );
    let lost = shots.iter().filter(|(_, _, status)| *status == 504).count();
    assert!((5..=40).contains(&lost), "{lost} timed out");
}
