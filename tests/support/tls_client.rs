//! A client that speaks TLS, and pairs of certificates and keys for gateways.

use super::PATIENCE;
use rcgen::{BasicConstraints, Certificate, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, HandshakeKind, RootCertStore};
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// An authority that issues the certificates of gateways and of clients.
pub(crate) struct Authority {
    certificate: Certificate,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate of an authority, with its key.
pub(crate) struct Pair {
    certificate: Certificate,
    key: KeyPair,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        let issuer = Issuer::new(params, key);
        Self {
            certificate,
            issuer,
        }
    }

    /// A certificate for these names.
    pub(crate) fn pair(&self, names: &[&str]) -> Pair {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(names).unwrap();
        let certificate = params.signed_by(&key, &self.issuer);
        Pair {
            certificate: certificate.unwrap(),
            key,
        }
    }

    pub(crate) fn pem(&self) -> String {
        self.certificate.pem()
    }

    /// A client that trusts this authority, speaks HTTP/1.1, and shows the certificate `own`, if there is one.
    pub(crate) fn client(&self, own: Option<&Pair>) -> TlsClient {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.der().clone()).unwrap();
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let builder = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match own {
            None => builder.with_no_client_auth(),
            Some(own) => {
                let key = PrivateKeyDer::try_from(own.key.serialize_der()).unwrap();
                let chain = vec![own.certificate.der().clone()];
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        TlsClient(TlsConnector::from(Arc::new(config)))
    }
}

impl Pair {
    pub(crate) fn certificate_pem(&self) -> String {
        self.certificate.pem()
    }

    pub(crate) fn key_pem(&self) -> String {
        self.key.serialize_pem()
    }

    pub(crate) fn certificate(&self) -> &CertificateDer<'static> {
        self.certificate.der()
    }

    /// Writes `NAME.pem` and `NAME.key` into a folder as an ACME client does: each file is written beside, then
    /// renamed.
    pub(crate) fn write(&self, folder: &Path, name: &str) {
        self.write_certificate(folder, name);
        self.write_key(folder, name);
    }

    pub(crate) fn write_certificate(&self, folder: &Path, name: &str) {
        replace(&folder.join(format!("{name}.pem")), &self.certificate_pem());
    }

    pub(crate) fn write_key(&self, folder: &Path, name: &str) {
        replace(&folder.join(format!("{name}.key")), &self.key_pem());
    }
}

fn replace(path: &Path, content: &str) {
    let beside = path.with_extension("new");
    fs::write(&beside, content).unwrap();
    fs::set_permissions(&beside, fs::Permissions::from_mode(0o600)).unwrap();
    fs::rename(&beside, path).unwrap();
}

/// A client with its session tickets.
#[derive(Clone)]
pub(crate) struct TlsClient(TlsConnector);

/// A connection over TLS.
pub(crate) struct TlsWire {
    stream: TlsStream<TcpStream>,
}

impl TlsClient {
    /// Connects and shakes hands for `host`.
    pub(crate) async fn connect(&self, to: SocketAddr, host: &str) -> std::io::Result<TlsWire> {
        let connecting = async {
            let tcp = TcpStream::connect(to).await?;
            let name = ServerName::try_from(host.to_owned()).unwrap();
            let stream = self.0.connect(name, tcp).await?;
            Ok(TlsWire { stream })
        };
        timeout(PATIENCE, connecting)
            .await
            .expect("a handshake in time")
    }
}

impl TlsWire {
    /// The certificate that the gateway has shown.
    pub(crate) fn certificate(&self) -> CertificateDer<'static> {
        let (_, session) = self.stream.get_ref();
        let chain = session.peer_certificates().expect("a server shows one");
        chain[0].clone().into_owned()
    }

    /// Did the handshake resume an earlier session?
    pub(crate) fn is_resumed(&self) -> bool {
        let (_, session) = self.stream.get_ref();
        session.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// Asks for `/` of `host`, and reads the whole answer. Returns its status.
    pub(crate) async fn get(&mut self, host: &str) -> std::io::Result<u16> {
        let asking = async {
            let request = format!("GET / HTTP/1.1\r\nhost: {host}\r\n\r\n");
            self.stream.write_all(request.as_bytes()).await?;
            let head = self.read_head().await?;
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                let is_length = name.eq_ignore_ascii_case("content-length");
                is_length.then(|| value.trim().parse::<usize>().ok())?
            });
            let mut body = vec![0; length.unwrap_or(0)];
            self.stream.read_exact(&mut body).await?;
            let status = head
                .split(' ')
                .nth(1)
                .and_then(|status| status.parse().ok());
            Ok(status.expect("a status line"))
        };
        timeout(PATIENCE, asking).await.expect("an answer in time")
    }

    async fn read_head(&mut self) -> std::io::Result<String> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(self.stream.read_u8().await?);
        }
        Ok(String::from_utf8(head).expect("a head is text"))
    }
}
