//! The real program, running: its addresses, its two outputs, its file, and its end.

use super::file::File;
use super::h2::H2;
use super::message::{Answer, get, request};
use super::transcript::Transcript;
use super::wire::Wire;
use super::{PATIENCE, eventually, process};
use command_fds::{CommandFdExt as _, FdMapping};
use serde_json::Value;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

/// A running gateway, which is killed when dropped. If the test failed, its standard error is shown.
#[derive(Debug)]
pub(crate) struct Gateway {
    child: Child,
    pid: u32,
    address: SocketAddr,
    folder: TempDir,
    /// Standard output: the access log.
    pub(crate) access: Transcript,
    /// Standard error: all other output.
    pub(crate) said: Transcript,
}

impl Gateway {
    /// Starts `tollgate run` with this file.
    pub(crate) async fn start(file: &File) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gateway.toml");
        std::fs::write(&path, file.text()).unwrap();
        Self::run(folder, &path).await
    }

    /// Starts `tollgate run --config path`. The gateway owns the folder.
    pub(crate) async fn run(folder: TempDir, path: &Path) -> Self {
        let path = path.to_str().expect("a temporary path is UTF-8");
        Self::launch(folder, &["run", "--config", path]).await
    }

    /// Starts `tollgate` with any arguments, in a folder that the gateway owns.
    pub(crate) async fn launch(folder: TempDir, arguments: &[&str]) -> Self {
        Self::launch_with(folder, arguments, &[]).await
    }

    /// Starts `tollgate` with any arguments, and with variables of the environment.
    pub(crate) async fn launch_with(
        folder: TempDir,
        arguments: &[&str],
        variables: &[(&str, &Path)],
    ) -> Self {
        let mut command = process::command();
        command.args(arguments).envs(variables.iter().copied());
        Self::spawn(folder, command).await
    }

    /// Starts the program at `program`, in a folder that the gateway owns.
    pub(crate) async fn launch_as(program: &Path, folder: TempDir, arguments: &[&str]) -> Self {
        let mut command = process::command_of(program);
        command.args(arguments);
        Self::spawn(folder, command).await
    }

    /// Starts `tollgate run` with this file, after the shell has done `before`.
    pub(crate) async fn start_after(before: &str, file: &File) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("gateway.toml"), file.text()).unwrap();
        let command = process::command_after(before, &["run", "--config", "gateway.toml"]);
        Self::spawn(folder, command).await
    }

    /// Starts `tollgate run` with this file and with sockets of these names, as systemd hands them over.
    pub(crate) async fn with_sockets(
        folder: TempDir,
        file: &File,
        sockets: Vec<(&str, OwnedFd)>,
    ) -> Self {
        std::fs::write(folder.path().join("gateway.toml"), file.text()).unwrap();
        let names: Vec<&str> = sockets.iter().map(|(name, _)| *name).collect();
        let before = format!(
            "export LISTEN_PID=$$ LISTEN_FDS={} LISTEN_FDNAMES={}",
            names.len(),
            names.join(":")
        );
        let mut command = process::command_after(&before, &["run", "--config", "gateway.toml"]);
        let mappings = sockets.into_iter().zip(3..);
        let mappings = mappings.map(|((_, parent_fd), child_fd)| FdMapping {
            parent_fd,
            child_fd,
        });
        let mapped = command.as_std_mut().fd_mappings(mappings.collect());
        mapped.expect("each number stands once");
        Self::spawn(folder, command).await
    }

    async fn spawn(folder: TempDir, mut command: Command) -> Self {
        let mut child = command.current_dir(folder.path()).spawn().unwrap();
        let pid = child.id().expect("it has just been started");
        let access = Transcript::of(child.stdout.take().expect("piped"));
        let said = Transcript::of(child.stderr.take().expect("piped"));
        let line = said
            .line(0, "the listening address", |line| {
                address_after(line, "listening").is_some()
            })
            .await;
        let address = address_after(&line, "listening").expect("found above");
        Self {
            child,
            pid,
            address,
            folder,
            access,
            said,
        }
    }

    /// The address of the gateway's listener.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address of the gateway's listener with TLS.
    pub(crate) async fn tls(&self) -> SocketAddr {
        let address = |line: &str| {
            let (_, url) = line.split_once("listening  https://")?;
            url.trim().parse().ok()
        };
        let line = self
            .said
            .line(0, "the address of TLS", |line| address(line).is_some());
        address(&line.await).expect("found above")
    }

    /// The address of the gateway's admin listener.
    pub(crate) async fn admin(&self) -> SocketAddr {
        let line = self
            .said
            .line(0, "the admin address", |line| {
                address_after(line, "admin").is_some()
            })
            .await;
        address_after(&line, "admin").expect("found above")
    }

    /// The id of the gateway's process.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// The folder that the gateway runs in.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The path of the gateway's file.
    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path().join("gateway.toml")
    }

    /// A fresh HTTP/1.1 connection.
    pub(crate) async fn connect(&self) -> Wire {
        Wire::to(self.address).await
    }

    /// A fresh HTTP/2 connection.
    pub(crate) async fn h2(&self) -> H2 {
        H2::to(self.address).await
    }

    /// A GET on a fresh connection.
    pub(crate) async fn get(&self, target: &str) -> Answer {
        self.connect().await.ask(get(target)).await
    }

    /// A GET with fields, on a fresh connection.
    pub(crate) async fn get_with(&self, target: &str, fields: &[(&str, &str)]) -> Answer {
        self.connect()
            .await
            .ask(request("GET", target, fields))
            .await
    }

    /// A GET on the admin listener. A gateway that is asked too often is asked again a moment later.
    pub(crate) async fn admin_get(&self, target: &str) -> Answer {
        let admin = self.admin().await;
        let asked = request("GET", target, &[("Host", &admin.to_string())]);
        loop {
            let answer = Wire::to(admin).await.ask(&asked).await;
            if answer.status != 429 {
                return answer;
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// The metrics as text.
    pub(crate) async fn metrics(&self) -> String {
        self.admin_get("/metrics").await.expect(200).text()
    }

    /// Waits until the gateway holds exactly `count` requests.
    pub(crate) async fn holds(&self, count: usize) {
        eventually(
            PATIENCE,
            &format!("{count} requests are held"),
            async || {
                let metrics = self.metrics().await;
                let held = metrics
                    .lines()
                    .filter(|line| line.starts_with("tollgate_limit_held_requests"));
                let sum: usize = held
                    .filter_map(|line| line.rsplit_once(' ')?.1.parse::<usize>().ok())
                    .sum();
                sum == count
            },
        )
        .await;
    }

    /// The access-log line of the request that this answer belongs to.
    pub(crate) async fn line_of(&self, answer: &Answer) -> Value {
        let id = answer.field("x-request-id").to_owned();
        let line = self
            .access
            .line(0, &format!("access line of {id}"), |line| {
                line.contains(&id)
            })
            .await;
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    /// The first access-log line whose `name` is `value`.
    pub(crate) async fn line_where(&self, name: &str, value: &str) -> Value {
        let json = |line: &str| {
            serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"))
        };
        let line = self
            .access
            .line(0, &format!("access line with {name} {value}"), |line| {
                json(line)[name] == value
            })
            .await;
        json(&line)
    }

    /// Replaces the file as editors do: a new file is written beside the old one and renamed over it.
    pub(crate) fn rename_over(&self, text: &str) {
        let beside = self.folder.path().join(".gateway.toml.new");
        std::fs::write(&beside, text).unwrap();
        std::fs::rename(&beside, self.file()).unwrap();
    }

    /// Writes into the file itself.
    pub(crate) fn write_in_place(&self, text: &str) {
        std::fs::write(self.file(), text).unwrap();
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, name: &str) {
        process::signal(self.pid, name);
    }

    /// Starts a successor on the same addresses, which this handle stands for from now on. Returns the id of the
    /// process that leaves.
    pub(crate) async fn hand_over(&mut self) -> u32 {
        let before = self.said.lines().len();
        self.signal("USR2");
        let line = self
            .said
            .line(before, "the hand-over", |line| successor_in(line).is_some());
        let successor = successor_in(&line.await).expect("found above");
        std::mem::replace(&mut self.pid, successor)
    }

    /// Waits for the gateway's end, and returns the exit code.
    pub(crate) async fn exit(&mut self, within: Duration) -> Option<i32> {
        match timeout(within, self.child.wait()).await {
            Ok(status) => status.unwrap().code(),
            Err(_) => panic!("still running after {within:?}"),
        }
    }

    /// Ends the gateway in order, and waits until both outputs are complete.
    pub(crate) async fn stop(&mut self) {
        self.signal("TERM");
        assert_eq!(
            self.exit(PATIENCE).await,
            Some(0),
            "a drained gateway ends well"
        );
        self.access.end().await;
        self.said.end().await;
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // The first process was killed together with its handle.
        let lines = self.said.lines();
        for successor in lines.iter().filter_map(|line| successor_in(line)) {
            process::kill(successor);
        }
        if std::thread::panicking() {
            println!(
                "--- the gateway said:\n{}\n--- its access log ends:",
                self.said.text()
            );
            let lines = self.access.lines();
            for line in lines.iter().skip(lines.len().saturating_sub(20)) {
                println!("{line}");
            }
        }
    }
}

/// The process that a hand-over line of the log names.
fn successor_in(line: &str) -> Option<u32> {
    let (_, rest) = line.split_once("handed over: process ")?;
    rest.split(' ').next()?.parse().ok()
}

/// The address in a line like `listening  http://127.0.0.1:8080`, or in one with `https`.
fn address_after(line: &str, word: &str) -> Option<SocketAddr> {
    let (_, rest) = line.split_once(word)?;
    let (_, url) = rest.split_once("://")?;
    let end = url
        .find(|c: char| !(c.is_ascii_digit() || ".:[]".contains(c)))
        .unwrap_or(url.len());
    url[..end].parse().ok()
}
