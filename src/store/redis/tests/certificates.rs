//! Certificates made by the tests while they run, and a server that has one.

use super::support::Server;
use crate::store::redis::RedisStore;
use crate::store::{RedisEndpoint, RedisTarget, StoreError, StoreSettings};
use crate::tls::{ClientTls, PemFiles};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};
use std::fs;
use tempfile::TempDir;

/// An authority that signs certificates.
pub(super) struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, as PEM.
pub(super) struct Pair {
    pub(super) cert: String,
    pub(super) key: String,
}

impl Authority {
    pub(super) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let name = rcgen::DnType::CommonName;
        let mine = format!("authority {}", fastrand::u64(..));
        params.distinguished_name.push(name, mine);
        let pem = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        Self { pem, issuer }
    }

    pub(super) fn pem(&self) -> String {
        self.pem.clone()
    }

    /// A pair for this name or address.
    pub(super) fn signs(&self, name: &str) -> Pair {
        self.signs_until(name, 2100)
    }

    pub(super) fn signs_until(&self, name: &str, year: i32) -> Pair {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.not_before = date_time_ymd(2000, 1, 1);
        params.not_after = date_time_ymd(year, 1, 1);
        let cert = params.signed_by(&key, &self.issuer);
        Pair {
            cert: cert.unwrap().pem(),
            key: key.serialize_pem(),
        }
    }
}

/// A server's files: its certificate, its key, and the authority that it trusts.
pub(super) struct Files(TempDir);

impl Files {
    pub(super) fn of(authority: &Authority, pair: &Pair) -> Self {
        let files = Self(tempfile::tempdir().unwrap());
        for (name, text) in [
            ("ca.pem", &authority.pem()),
            ("cert.pem", &pair.cert),
            ("key.pem", &pair.key),
        ] {
            fs::write(files.path(name), text).unwrap();
        }
        files
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    /// The files as lines of a server's configuration; `clients` states whether clients must show a certificate.
    pub(super) fn lines(&self, clients: &str) -> String {
        let [ca, cert, key] = ["ca.pem", "cert.pem", "key.pem"].map(|name| self.path(name));
        format!(
            "tls-auth-clients {clients}\ntls-replication yes\ntls-ca-cert-file {ca}\n\
             tls-cert-file {cert}\ntls-key-file {key}\n"
        )
    }
}

/// A server with TLS on a second port.
pub(super) struct TlsServer {
    pub(super) server: Server,
    pub(super) port: u16,
    _files: Files,
}

impl TlsServer {
    /// Starts a server with this certificate; `clients` states whether clients must show one: `yes` all, `no` none.
    pub(super) fn start(authority: &Authority, pair: &Pair, clients: &str) -> Self {
        Self::start_with(authority, pair, clients, &[])
    }

    /// Starts a server with more arguments.
    pub(super) fn start_with(
        authority: &Authority,
        pair: &Pair,
        clients: &str,
        more: &[&str],
    ) -> Self {
        let files = Files::of(authority, pair);
        let [ca, cert, key] = ["ca.pem", "cert.pem", "key.pem"].map(|name| files.path(name));
        for _ in 0..5 {
            let port = super::support::free_port();
            let port_and_files = [
                "--tls-port",
                &port.to_string(),
                "--tls-auth-clients",
                clients,
                "--tls-ca-cert-file",
                &ca,
                "--tls-cert-file",
                &cert,
                "--tls-key-file",
                &key,
            ];
            let words = [&port_and_files, more].concat();
            if let Some(server) = Server::start_on(super::support::free_port(), &words) {
                return Self {
                    server,
                    port,
                    _files: files,
                };
            }
        }
        panic!("no redis-server with TLS starts here");
    }

    /// The address of its TLS port, for a client with this material.
    pub(super) fn target(&self, material: PemFiles<'_>) -> RedisTarget {
        RedisTarget {
            tls: Some(ClientTls::new(material).unwrap()),
            ..RedisTarget::new(RedisEndpoint::tcp("127.0.0.1", self.port))
        }
    }

    /// The error of a connection with this material.
    pub(super) async fn refused(&self, material: PemFiles<'_>) -> String {
        let target = self.target(material);
        let probed = crate::store::redis::probe(&target, "tollgate")
            .await
            .unwrap_err();
        let store = RedisStore::new(&target, &StoreSettings::default());
        let reached = store.reach().await.unwrap_err();
        assert!(matches!(reached, StoreError::Unreachable(_)), "{reached}");
        assert!(!store.is_up());
        probed.to_string()
    }
}

/// Does the tested server program support TLS? Not all are built with it; those tests then prove nothing about TLS.
pub(super) fn has_tls() -> bool {
    let program = std::env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
    let output = std::process::Command::new(program)
        .args([
            "--port",
            "0",
            "--tls-port",
            &super::support::free_port().to_string(),
        ])
        .output()
        .expect("redis-server is installed");
    let output = [output.stdout, output.stderr].concat();
    // Without certificates the program exits at once, and its output names the missing ones.
    let output = String::from_utf8_lossy(&output).into_owned();
    let known = !["Bad directive", "Failed finding TLS"]
        .iter()
        .any(|lack| output.contains(lack));
    if !known {
        println!("this server speaks no TLS: nothing was tested");
    }
    known
}
