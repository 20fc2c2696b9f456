//! Successors that fail, hang or are interrupted: the gateway goes on, and the next attempt succeeds.

use super::{Installed, WebSocket, gone, link, script, upstream};
use crate::support::{End, File, Gateway, PATIENCE, Wire, eventually, get, process};
use std::path::Path;
use std::time::{Duration, Instant};

/// A script that writes down its process id and does nothing.
const HANGS: &str = "echo $$ > pid\nexec sleep 600";

async fn serves(gateway: &Gateway) {
    gateway.get("/").await.expect(200);
    gateway.admin_get("/readyz").await.expect(200);
}

async fn failure(gateway: &Gateway, start: usize) -> String {
    let failed = |line: &str| line.contains("the hand-over has failed");
    gateway.said.line(start, "the failure", failed).await
}

async fn noted_process(folder: &Path) -> u32 {
    let read = || {
        std::fs::read_to_string(folder.join("pid"))
            .ok()?
            .trim()
            .parse()
            .ok()
    };
    eventually(PATIENCE, "the script runs", async || read().is_some()).await;
    read().unwrap()
}

#[tokio::test]
async fn a_successor_with_a_broken_file_changes_nothing() {
    let upstream = upstream().await;
    let file = File::to(&upstream, &[]).server("listen = [\"127.0.0.1:0\", \"unix:http.sock\"]");
    let mut gateway = Gateway::start(&file).await;
    let socket = gateway.folder().join("http.sock");
    let broken = file.text() + "[nonsense]\n";
    gateway.write_in_place(&broken);
    gateway.signal("USR2");
    let line = failure(&gateway, 0).await;
    assert!(
        line.contains("has ended before it served (exit status: 1)"),
        "{line}"
    );
    assert!(
        gateway.said.text().contains("unknown table"),
        "{}",
        gateway.said.text()
    );
    serves(&gateway).await;
    assert!(socket.exists());
    let metrics = gateway.metrics().await;
    assert!(
        metrics.contains("\ntollgate_handover_failures_total 1\n"),
        "{metrics}"
    );
    // This address belongs to another process.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let other = format!(
        "listen = [\"127.0.0.1:0\", \"unix:http.sock\", \"{}\"]",
        taken.local_addr().unwrap()
    );
    let other = File::to(&upstream, &[]).server(&other).text();
    gateway.write_in_place(&other);
    let start = gateway.said.lines().len();
    gateway.signal("USR2");
    failure(&gateway, start).await;
    assert!(gateway.said.text().contains("cannot listen on"));
    serves(&gateway).await;
    assert!(socket.exists());
    gateway.write_in_place(&file.text());
    let before = gateway.hand_over().await;
    gone(before).await;
    serves(&gateway).await;
    assert!(socket.exists());
    gateway.stop().await;
    assert!(!socket.exists());
}

#[tokio::test]
async fn a_successor_that_hangs_is_ended_and_a_reload_meanwhile_is_obeyed() {
    let upstream = upstream().await;
    let file = File::to(&upstream, &[]).server("drain = \"1s\"");
    let (mut gateway, program) = Installed::new(&file.text()).start().await;
    script(&program, HANGS);
    let start = Instant::now();
    gateway.signal("USR2");
    let hanging = noted_process(gateway.folder()).await;
    gateway.rename_over(&(file.text() + "[limits.new]\nby = \"ip\"\nrate = \"9/s\"\n"));
    gateway.signal("HUP");
    let reloaded = |line: &str| line.contains("generation 2 is in force");
    gateway.said.line(0, "the reload", reloaded).await;
    serves(&gateway).await;
    let line = failure(&gateway, 0).await;
    assert!(line.contains("did not serve within 5s"), "{line}");
    assert!(start.elapsed() >= Duration::from_secs(5));
    gone(hanging).await;
    serves(&gateway).await;
    // A file that is not a program, and no file at all.
    for text in [Some("no program"), None] {
        let start = gateway.said.lines().len();
        std::fs::remove_file(&program).unwrap();
        if let Some(text) = text {
            std::fs::write(&program, text).unwrap();
        }
        gateway.signal("USR2");
        let line = failure(&gateway, start).await;
        assert!(line.contains("tollgate cannot be started: "), "{line}");
        std::fs::write(&program, "").unwrap();
    }
    link(&program);
    let before = gateway.hand_over().await;
    gone(before).await;
    serves(&gateway).await;
}

#[tokio::test]
async fn a_stop_during_a_hand_over_ends_both() {
    let upstream = upstream().await;
    let (mut gateway, program) = Installed::new(&File::to(&upstream, &[]).text())
        .start()
        .await;
    script(&program, HANGS);
    gateway.signal("USR2");
    let hanging = noted_process(gateway.folder()).await;
    gateway.signal("TERM");
    assert_eq!(gateway.exit(PATIENCE).await, Some(0));
    assert!(!process::runs(hanging));
}

#[tokio::test]
async fn a_first_signal_to_stop_behind_a_hand_over_cuts_nothing_and_a_second_one_does() {
    let upstream = upstream().await;
    let mut gateway = Gateway::start(&File::to(&upstream, &[]).server("drain = \"10min\"")).await;
    let mut tunnel = WebSocket::open(&gateway).await;
    let mut kept = gateway.connect().await;
    kept.ask(get("/")).await.expect(200);
    let before = gateway.hand_over().await;
    process::signal(before, "TERM");
    let heard = |line: &str| line.contains("requests under way here are finished");
    gateway.said.line(0, "the signal", heard).await;
    assert_ne!(kept.ended(PATIENCE).await, End::Open);
    tunnel.lives().await;
    assert!(process::runs(before));
    process::signal(before, "TERM");
    gone(before).await;
    assert_ne!(tunnel.0.ended(PATIENCE).await, End::Open);
    serves(&gateway).await;
}

#[tokio::test]
async fn a_slow_successor_has_the_file_of_a_reload_that_came_meanwhile() {
    let upstream = upstream().await;
    let file = File::to(&upstream, &["few"]);
    let limit = |rate: u32| format!("by = \"everyone\"\nrate = \"{rate}/h\"\nburst = {rate}");
    let first = file.clone().limit("few", &limit(10));
    let (mut gateway, program) = Installed::new(&first.text()).start().await;
    let real = env!("CARGO_BIN_EXE_tollgate");
    script(
        &program,
        &format!("echo $$ > pid\nsleep 0.5\nexec {real} \"$@\""),
    );
    let handing = async {
        noted_process(&program.with_file_name("")).await;
        let beside = program.with_file_name("gateway.toml");
        std::fs::write(&beside, file.limit("few", &limit(20)).text()).unwrap();
    };
    tokio::join!(gateway.hand_over(), handing);
    eventually(PATIENCE, "the new number is in force", async || {
        let answer = gateway.get("/").await;
        answer
            .fields
            .all("ratelimit-policy")
            .join("")
            .contains("q=20")
    })
    .await;
}

#[tokio::test]
async fn two_signals_at_once_are_one_hand_over() {
    let upstream = upstream().await;
    let mut gateway = Gateway::start(&File::to(&upstream, &[])).await;
    let first = gateway.pid();
    let twice = format!("kill -USR2 {first}; kill -USR2 {first}; kill -USR2 {first}");
    let mut open = gateway.connect().await;
    open.ask(get("/")).await.expect(200);
    let twice = std::process::Command::new("sh")
        .args(["-c", &twice])
        .status();
    assert!(twice.unwrap().success());
    let handed = |line: &str| line.contains("handed over: process");
    gateway.said.line(0, "the hand-over", handed).await;
    drop(open);
    gone(first).await;
    let lines = gateway.said.lines();
    assert_eq!(
        lines.iter().filter(|line| handed(line)).count(),
        1,
        "{lines:?}"
    );
    assert!(
        !lines.iter().any(|line| line.contains("has failed")),
        "{lines:?}"
    );
    Wire::to(gateway.address())
        .await
        .ask(get("/"))
        .await
        .expect(200);
    assert_eq!(gateway.exit(PATIENCE).await, Some(0));
}

/// systemd learns of a successor's end only after the process that started it is gone.
#[tokio::test]
async fn a_successor_that_fails_after_all_is_not_waited_for_under_systemd_and_is_told_of_elsewhere()
{
    let upstream = upstream().await;
    let file = File::to(&upstream, &[]).server("drain = \"10min\"");
    let folder = || {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("gateway.toml"), file.text()).unwrap();
        folder
    };
    let failed = |line: &str| line.contains("which took over, has failed (signal: 9)");
    let systemd = folder();
    let socket = systemd.path().join("notify");
    let _hears = tokio::net::UnixDatagram::bind(&socket).unwrap();
    let variables: &[(&str, &Path)] = &[("NOTIFY_SOCKET", &socket)];
    let mut gateway = Gateway::launch_with(systemd, &["run"], variables).await;
    let tunnel = WebSocket::open(&gateway).await;
    let before = gateway.hand_over().await;
    process::signal(gateway.pid(), "KILL");
    let line = gateway.said.line(0, "the failure", failed).await;
    assert!(line.contains("this one ends at once"), "{line}");
    gone(before).await;
    drop(tunnel);
    let mut gateway = Gateway::launch_with(folder(), &["run"], &[]).await;
    let mut tunnel = WebSocket::open(&gateway).await;
    gateway.hand_over().await;
    process::signal(gateway.pid(), "KILL");
    let line = gateway.said.line(0, "the failure", failed).await;
    assert!(line.contains("no process accepts connections"), "{line}");
    tunnel.lives().await;
}
