//! A gateway that orders its certificates: a folder that outlives its processes, the ports of its listeners, and its
//! upstream.

use super::message::{Answer, get};
use super::tls::TlsClient;
use super::{File, Gateway, PATIENCE, Upstream, eventually, preload};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A gateway's folder of certificates, ports and upstream.
pub(crate) struct Site {
    storage: TempDir,
    pub(crate) upstream: Upstream,
    http: u16,
    tls: u16,
}

impl Site {
    /// A site with listeners at these ports, the second with TLS.
    pub(crate) async fn at(http: u16, tls: u16) -> Self {
        Self {
            storage: tempfile::tempdir().unwrap(),
            upstream: Upstream::echo().await,
            http,
            tls,
        }
    }

    /// Makes the next process listen at these ports.
    pub(crate) fn move_to(&mut self, http: u16, tls: u16) {
        (self.http, self.tls) = (http, tls);
    }

    /// The lines of `[server]` with both listeners. The plain one gets more keys.
    pub(crate) fn listen(&self, more: &str) -> String {
        let (http, tls) = (self.http, self.tls);
        format!(
            "listen = [{{ address = \"127.0.0.1:{http}\"{more} }}, {{ address = \"127.0.0.1:{tls}\", tls = true }}]\n"
        )
    }

    /// A file with these lines of `[server]`, with `[acme.test]` and more lines behind it.
    pub(crate) fn file(&self, server: &str, directory: &str, ca: &Path, rest: &str) -> String {
        let file = File::default().server(server);
        let file = file.upstream("main", &[&self.upstream]);
        let text = file.route("all", "/{*rest}", "main", &[]).text();
        let storage = self.storage.path();
        format!(
            "{text}\n[acme.test]\nagree = true\ndirectory = \"{directory}\"\nca = {ca:?}\nstorage = {storage:?}\n{rest}"
        )
    }

    /// Starts a process with this file.
    pub(crate) async fn start(&self, text: &str) -> Gateway {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gateway.toml");
        fs::write(&path, text).unwrap();
        Gateway::run(folder, &path).await
    }

    /// Starts a process whose clock is ahead by this number of days.
    pub(crate) async fn start_ahead(&self, text: &str, days: i64) -> Gateway {
        let folder = tempfile::tempdir().unwrap();
        let shim = preload(folder.path(), "clock", include_str!("clock.c")).await;
        let offset = folder.path().join("offset");
        fs::write(&offset, (days * 86_400).to_string()).unwrap();
        fs::write(folder.path().join("gateway.toml"), text).unwrap();
        let variables = [("LD_PRELOAD", &*shim), ("CLOCK_OFFSET", &*offset)];
        Gateway::launch_with(folder, &["run"], &variables).await
    }

    /// The address of the listener with TLS.
    pub(crate) fn tls(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.tls))
    }

    /// A file of the folder.
    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.storage.path().join(file)
    }

    /// The text of a file of the folder, or an empty text if the file does not exist.
    pub(crate) fn kept(&self, file: &str) -> String {
        fs::read_to_string(self.path(file)).unwrap_or_default()
    }

    /// A client that trusts the authority of the kept certificate.
    pub(crate) fn client(&self, identity: &str) -> Option<TlsClient> {
        TlsClient::trusting_last_of(&self.kept(&format!("certificates/{identity}.pem")))
    }

    /// Waits until `host` is served with the kept certificate of `identity`.
    pub(crate) async fn serves(&self, identity: &str, host: &str) {
        eventually(PATIENCE, "the certificate is shown", async || {
            let Some(client) = self.client(identity) else {
                return false;
            };
            client.connect(self.tls(), host).await.is_ok()
        })
        .await;
        assert_eq!(self.ask(identity, host).await.status, 200);
    }

    /// Asks for `/` over TLS.
    pub(crate) async fn ask(&self, identity: &str, host: &str) -> Answer {
        let client = self.client(identity).unwrap();
        client.wire(self.tls(), host).await.ask(get("/")).await
    }
}
