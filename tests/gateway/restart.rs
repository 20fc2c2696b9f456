//! Restarts that no client notices: a successor takes over the sockets, or fails without effect, and a gateway sends
//! its clients elsewhere before it drains.

mod bequest;
mod clients;
mod failures;
mod leaving;
mod many;
mod orders;
mod sockets;
mod systemd;

use crate::support::{Connection, Gateway, PATIENCE, Upstream, Wire, eventually, process, request};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;
use tokio::time::sleep;

/// An upstream that answers `/slow` after a while and all other requests at once. It accepts upgrades, and then sends
/// back each line.
async fn upstream() -> Upstream {
    Upstream::playing(|mut connection: Connection| async move {
        while let Ok(head) = connection.request().await {
            if head.fields.has("upgrade") {
                let switch = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
                connection.wire.send(switch).await;
                connection.wire = connection.wire.patient();
                while let Ok(line) = connection.wire.line().await {
                    let _ = connection.wire.try_send(format!("{line}\r\n")).await;
                }
                return;
            }
            if head.target() == "/slow" {
                sleep(Duration::from_millis(150)).await;
            }
            let answer = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone";
            if connection.wire.try_send(answer).await.is_err() {
                return;
            }
        }
    })
    .await
}

/// An open WebSocket that sends lines back.
struct WebSocket(Wire);

impl WebSocket {
    async fn open(gateway: &Gateway) -> Self {
        let upgrade = request(
            "GET",
            "/tunnel",
            &[("Connection", "upgrade"), ("Upgrade", "websocket")],
        );
        let mut wire = gateway.connect().await;
        wire.send(&upgrade).await;
        assert_eq!(wire.head().await.status(), 101);
        let mut open = Self(wire);
        open.lives().await;
        open
    }

    async fn lives(&mut self) {
        self.0.send("there\r\n").await;
        assert_eq!(self.0.line().await.unwrap(), "there");
    }
}

async fn gone(process: u32) {
    let what = format!("process {process} ends");
    eventually(PATIENCE, &what, async || !process::runs(process)).await;
}

/// A folder with the program under the path `tollgate`, which a test may replace.
struct Installed {
    folder: TempDir,
    program: PathBuf,
}

impl Installed {
    fn new(file: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("gateway.toml"), file).unwrap();
        let program = folder.path().join("tollgate");
        let installed = Self { folder, program };
        installed.link();
        installed
    }

    /// Starts the gateway, which then owns the folder. Returns the gateway and the path of its program.
    async fn start(self) -> (Gateway, PathBuf) {
        let Self { folder, program } = self;
        let gateway = Gateway::launch_as(&program, folder, &["run", "--config", "gateway.toml"]);
        (gateway.await, program)
    }

    fn link(&self) {
        link(&self.program);
    }
}

/// Puts the program at `path`, by a link.
fn link(path: &Path) {
    let _ = std::fs::remove_file(path);
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_tollgate"), path).unwrap();
}

/// Puts a script at `path`, in place of the program.
fn script(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    // The file is written under another name first, so that no process that forks meanwhile keeps it open for writing.
    let beside = path.with_extension("new");
    std::fs::write(&beside, format!("#!/bin/sh\n{text}\n")).unwrap();
    std::fs::set_permissions(&beside, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::rename(&beside, path).unwrap();
}
