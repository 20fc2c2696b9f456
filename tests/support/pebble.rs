//! A real certification authority on this machine: Pebble, with a name server that answers every name with this
//! machine's address.

use super::{PATIENCE, free_port};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The properties that a test wants from an authority.
#[derive(Debug, Clone, Default)]
pub(crate) struct PebbleWish {
    /// The seconds for which certificates are valid.
    pub(crate) life: Option<u32>,
    /// The number of good nonces in a hundred that are refused.
    pub(crate) refused_nonces: u32,
    /// The id and the key of the one external account that it accepts.
    pub(crate) external: Option<(String, String)>,
    /// Does it check at each order whether a name belongs to the client?
    pub(crate) asks_always: bool,
}

/// A running authority.
#[derive(Debug)]
pub(crate) struct Pebble {
    folder: TempDir,
    authority: Child,
    names: Child,
    port: u16,
    wish: PebbleWish,
    /// The port at which it asks for texts.
    pub(crate) http: u16,
    /// The port at which it begins handshakes.
    pub(crate) tls: u16,
    dns: u16,
}

impl Pebble {
    /// An authority that is ready.
    pub(crate) fn start(wish: PebbleWish) -> Self {
        let folder = tempfile::tempdir().unwrap();
        own_certificate(&folder);
        let (dns, port) = (free_port(), free_port());
        let (http, tls) = (free_port(), free_port());
        let names = Command::new("pebble-challtestsrv")
            .args(["-defaultIPv4", "127.0.0.1", "-defaultIPv6", ""])
            .args(["-http01", "", "-https01", "", "-tlsalpn01", ""])
            .args(["-management", "", "-dns01", &format!("127.0.0.1:{dns}")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| {
                panic!("pebble-challtestsrv: {error}; install the package pebble")
            });
        let authority = run(&folder, &wish, [port, http, tls, dns]);
        let pebble = Self {
            folder,
            authority,
            names,
            port,
            wish,
            http,
            tls,
            dns,
        };
        pebble.wait();
        pebble
    }

    /// The URL of its directory.
    pub(crate) fn directory(&self) -> String {
        format!("https://localhost:{}/dir", self.port)
    }

    /// The file with the authority that signed its own server's certificate.
    pub(crate) fn ca(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// The log so far.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    /// The number of log lines with this text.
    pub(crate) fn logged(&self, text: &str) -> usize {
        self.log()
            .lines()
            .filter(|line| line.contains(text))
            .count()
    }

    /// Ends it.
    pub(crate) fn end(&mut self) {
        let _ = self.authority.kill();
        let _ = self.authority.wait();
    }

    /// Ends it, and starts it again with an empty memory.
    pub(crate) fn restart(&mut self) {
        self.end();
        let ports = [self.port, self.http, self.tls, self.dns];
        self.authority = run(&self.folder, &self.wish, ports);
        self.wait();
    }

    /// Waits until the authority and its name server listen. An earlier order would fail, and would be tried again only
    /// after a minute.
    fn wait(&self) {
        let until = Instant::now() + PATIENCE;
        for port in [self.dns, self.port] {
            while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
                assert!(Instant::now() < until, "no authority: {}", self.log());
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

impl Drop for Pebble {
    fn drop(&mut self) {
        for child in [&mut self.authority, &mut self.names] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn run(folder: &TempDir, wish: &PebbleWish, [port, http, tls, dns]: [u16; 4]) -> Child {
    let path = |name: &str| folder.path().join(name).display().to_string();
    let external = wish.external.as_ref();
    let config = serde_json::json!({ "pebble": {
        "listenAddress": format!("127.0.0.1:{port}"),
        "certificate": path("cert.pem"),
        "privateKey": path("key.pem"),
        "httpPort": http,
        "tlsPort": tls,
        "certificateValidityPeriod": wish.life.unwrap_or(90 * 86_400),
        "externalAccountBindingRequired": external.is_some(),
        "externalAccountMACKeys": external.map(|(id, key)| serde_json::json!({ id: key })),
    }});
    fs::write(path("config.json"), config.to_string()).unwrap();
    let log = fs::File::create(path("log")).unwrap();
    Command::new("pebble")
        .args(["-config", &path("config.json")])
        .args(["-dnsserver", &format!("127.0.0.1:{dns}")])
        .env("PEBBLE_VA_NOSLEEP", "1")
        .env("PEBBLE_WFE_NONCEREJECT", wish.refused_nonces.to_string())
        .env(
            "PEBBLE_AUTHZREUSE",
            if wish.asks_always { "0" } else { "100" },
        )
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap_or_else(|error| panic!("pebble: {error}; install the package pebble"))
}

/// The certificate of its own server, and the authority that signed it.
fn own_certificate(folder: &TempDir) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = params.self_signed(&key).unwrap();
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let cert = params.signed_by(&key, &issuer).unwrap();
    for (name, text) in [
        ("ca.pem", ca.pem()),
        ("cert.pem", cert.pem()),
        ("key.pem", key.serialize_pem()),
    ] {
        fs::write(folder.path().join(name), text).unwrap();
    }
}
