//! TLS in the tests: an authority whose certificates are in files, and clients that trust it.

use super::{H2, PATIENCE, Wire};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DistinguishedName,
    DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, RevokedCertParams,
    date_time_ymd,
};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme,
    SupportedProtocolVersion,
};
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// An authority. Its certificates are files in a folder that the authority owns.
pub(crate) struct Authority {
    name: String,
    pem: String,
    issuer: Issuer<'static, KeyPair>,
    folder: TempDir,
}

/// A certificate and its key, in PEM.
#[derive(Debug, Clone)]
pub(crate) struct Pair {
    pub(crate) cert: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // Each authority has a name of its own.
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        let name = format!("authority {}", NEXT.fetch_add(1, Ordering::Relaxed));
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, &name);
        let pem = params.self_signed(&key).unwrap().pem();
        let authority = Self {
            name,
            pem,
            issuer: Issuer::new(params, key),
            folder: tempfile::tempdir().unwrap(),
        };
        std::fs::write(authority.path("ca.pem"), &authority.pem).unwrap();
        authority
    }

    /// The authority's common name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The path of one of the authority's files.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A certificate of a server with these names.
    pub(crate) fn server(&self, names: &[&str]) -> Pair {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        self.sign(CertificateParams::new(names).unwrap())
    }

    /// A certificate of a server with these names that ends when a year begins.
    pub(crate) fn server_until(&self, names: &[&str], year: i32) -> Pair {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.not_after = date_time_ymd(year, 1, 1);
        self.sign(params)
    }

    /// A certificate of a client with this common name.
    pub(crate) fn client(&self, name: &str) -> Pair {
        self.client_with(name, |_| {})
    }

    /// A certificate of a client with this common name, changed by `change`.
    pub(crate) fn client_with(
        &self,
        name: &str,
        change: impl FnOnce(&mut CertificateParams),
    ) -> Pair {
        let mut params = named(name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        change(&mut params);
        self.sign(params)
    }

    /// A client's certificate, followed by others with these names. Each has signed the one before it, and the
    /// authority has signed the last.
    pub(crate) fn chain(&self, names: &[&str]) -> Pair {
        chain(names, &self.issuer)
    }

    /// Writes a list, in force until a year begins, of revoked certificates with these numbers.
    pub(crate) fn revoke(&self, file: &str, numbers: &[u64], until_year: i32) {
        self.revoke_until(file, numbers, date_time_ymd(until_year, 1, 1).into());
    }

    /// Like [`Self::revoke`], with a list that is in force until `end`.
    pub(crate) fn revoke_until(&self, file: &str, numbers: &[u64], end: SystemTime) {
        let revoked = numbers.iter().map(|number| RevokedCertParams {
            serial_number: (*number).into(),
            revocation_time: date_time_ymd(2025, 1, 1),
            reason_code: None,
            invalidity_date: None,
        });
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2025, 1, 2),
            next_update: end.into(),
            crl_number: 1_u64.into(),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = list.signed_by(&self.issuer).unwrap().pem().unwrap();
        replace(&self.path(file), &list);
    }

    fn sign(&self, params: CertificateParams) -> Pair {
        let key = KeyPair::generate().unwrap();
        Pair {
            cert: params.signed_by(&key, &self.issuer).unwrap().pem(),
            key: key.serialize_pem(),
        }
    }

    /// Writes the files of an identity. Returns the lines of its table, without the lines about clients.
    pub(crate) fn identity(&self, name: &str, names: &[&str]) -> String {
        self.write(name, &self.server(names));
        format!(
            "[tls.{name}]\ncert = {:?}\nkey = {:?}\n",
            self.path(&format!("{name}.pem")),
            self.path(&format!("{name}.key"))
        )
    }

    /// Replaces the files of an identity by a pair, as a renewal does.
    pub(crate) fn write(&self, name: &str, pair: &Pair) {
        replace(&self.path(&format!("{name}.pem")), &pair.cert);
        replace(&self.path(&format!("{name}.key")), &pair.key);
    }

    /// A client that trusts the authority and shows no certificate.
    pub(crate) fn trusting(&self) -> TlsClient {
        self.client_of(rustls::ALL_VERSIONS, None)
    }

    /// A client that trusts the authority and shows a certificate.
    pub(crate) fn showing(&self, pair: &Pair) -> TlsClient {
        self.client_of(rustls::ALL_VERSIONS, Some(pair))
    }

    /// A client that trusts the authority, and offers these versions.
    pub(crate) fn client_of(
        &self,
        versions: &[&'static SupportedProtocolVersion],
        shown: Option<&Pair>,
    ) -> TlsClient {
        let mut roots = RootCertStore::empty();
        let root = CertificateDer::from_pem_slice(self.pem.as_bytes()).unwrap();
        roots.add(root).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots);
        let config = match shown {
            None => builder.with_no_client_auth(),
            Some(pair) => {
                let chain = CertificateDer::pem_slice_iter(pair.cert.as_bytes());
                let chain = chain.collect::<Result<_, _>>().unwrap();
                let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        };
        TlsClient(config)
    }
}

/// A made-up chain in the form of [`Authority::chain`]: the last certificate names `authority` as its issuer, but
/// another key has signed it.
pub(crate) fn made_up_chain(names: &[&str], authority: &str) -> Pair {
    let key = KeyPair::generate().unwrap();
    chain(names, &Issuer::new(named(authority), key))
}

fn chain(names: &[&str], authority: &Issuer<'static, KeyPair>) -> Pair {
    let mut pem = Vec::new();
    let mut issuer: Option<Issuer<'static, KeyPair>> = None;
    for name in names.iter().rev() {
        let key = KeyPair::generate().unwrap();
        let mut params = named(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let signed = params.signed_by(&key, issuer.as_ref().unwrap_or(authority));
        pem.push(signed.unwrap().pem());
        issuer = Some(Issuer::new(params, key));
    }
    let key = KeyPair::generate().unwrap();
    let own = named("anna").signed_by(&key, issuer.as_ref().unwrap_or(authority));
    pem.push(own.unwrap().pem());
    pem.reverse();
    Pair {
        cert: pem.concat(),
        key: key.serialize_pem(),
    }
}

fn named(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn replace(path: &Path, text: &str) {
    let beside = path.with_extension("new");
    std::fs::write(&beside, text).unwrap();
    std::fs::set_permissions(&beside, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::rename(&beside, path).unwrap();
}

/// A client. Its clones can resume each other's sessions.
#[derive(Debug, Clone)]
pub(crate) struct TlsClient(pub(crate) ClientConfig);

impl TlsClient {
    /// A client that trusts only the last certificate of a PEM chain, or nothing if there is none.
    pub(crate) fn trusting_last_of(pem: &str) -> Option<Self> {
        let chain = CertificateDer::pem_slice_iter(pem.as_bytes());
        let root = chain.last()?.unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(root).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        Some(Self(
            builder.with_root_certificates(roots).with_no_client_auth(),
        ))
    }

    /// A client that accepts any certificate, like an authority that looks.
    pub(crate) fn looking() -> Self {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let builder = builder.dangerous();
        let looks = Arc::new(TakesAll(provider));
        Self(
            builder
                .with_custom_certificate_verifier(looks)
                .with_no_client_auth(),
        )
    }

    /// The client with these protocols to choose from.
    pub(crate) fn speaking(mut self, alpn: &[&str]) -> Self {
        self.0.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        self
    }

    /// Makes a handshake with the server `name` at `address`.
    pub(crate) async fn connect(
        &self,
        address: SocketAddr,
        name: &str,
    ) -> io::Result<TlsStream<TcpStream>> {
        self.over(TcpStream::connect(address).await?, name).await
    }

    /// Like [`Self::refused`], for a client at `from`.
    pub(crate) async fn refused_from(
        &self,
        from: Ipv4Addr,
        address: SocketAddr,
        name: &str,
    ) -> rustls::Error {
        let tcp = connect_from(from, address).await;
        refusal(self.over(tcp, name).await).await
    }

    /// The handshake of a client at `from`, up to the point where the client has read the server's part and has not
    /// sent its own.
    pub(crate) async fn half_shake(
        &self,
        from: Ipv4Addr,
        address: SocketAddr,
        name: &str,
    ) -> HalfHandshake {
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let tls = ClientConnection::new(Arc::new(self.0.clone()), name).unwrap();
        let tcp = connect_from(from, address).await;
        let mut half = HalfHandshake { tcp, tls };
        half.send().await;
        while !half.tls.wants_write() {
            half.receive().await.unwrap();
        }
        half
    }

    /// A connection of HTTP/1.1 of a client at `from`.
    pub(crate) async fn wire_from(&self, from: Ipv4Addr, address: SocketAddr, name: &str) -> Wire {
        let tcp = connect_from(from, address).await;
        Wire::over_tls(self.over(tcp, name).await.unwrap())
    }

    /// Makes a handshake with the server `name` on an open connection.
    pub(crate) async fn over(
        &self,
        tcp: TcpStream,
        name: &str,
    ) -> io::Result<TlsStream<TcpStream>> {
        tcp.set_nodelay(true)?;
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let connector = TlsConnector::from(Arc::new(self.0.clone()));
        timeout(PATIENCE, connector.connect(name, tcp))
            .await
            .unwrap()
    }

    /// Makes a handshake, and reads the answer to a request: in TLS 1.3 a refusal comes after the handshake.
    pub(crate) async fn connect_and_ask(&self, address: SocketAddr, name: &str) -> io::Result<u8> {
        let mut stream = self.connect(address, name).await?;
        let request = format!("GET / HTTP/1.1\r\nHost: {name}\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        timeout(PATIENCE, stream.read_u8()).await.unwrap()
    }

    /// A connection of HTTP/1.1.
    pub(crate) async fn wire(&self, address: SocketAddr, name: &str) -> Wire {
        Wire::over_tls(self.connect(address, name).await.unwrap())
    }

    /// A connection of HTTP/2.
    pub(crate) async fn h2(&self, address: SocketAddr, name: &str) -> H2 {
        let client = self.clone().speaking(&["h2"]);
        H2::over(client.connect(address, name).await.unwrap()).await
    }

    /// The alert, or other error, by which a handshake or the first read after it fails.
    pub(crate) async fn refused(&self, address: SocketAddr, name: &str) -> rustls::Error {
        refusal(self.connect(address, name).await).await
    }
}

/// A handshake in which the client must send next.
pub(crate) struct HalfHandshake {
    tcp: TcpStream,
    tls: ClientConnection,
}

impl HalfHandshake {
    /// Sends the client's flight.
    pub(crate) async fn send(&mut self) {
        let mut flight = Vec::new();
        while self.tls.wants_write() {
            self.tls.write_tls(&mut flight).unwrap();
        }
        self.tcp.write_all(&flight).await.unwrap();
    }

    async fn receive(&mut self) -> Result<(), rustls::Error> {
        let mut read = [0; 4096];
        let read_some = timeout(PATIENCE, self.tcp.read(&mut read)).await.unwrap();
        let count = read_some.unwrap();
        assert_ne!(count, 0, "the connection ended without a word");
        let mut records = &read[..count];
        while !records.is_empty() {
            self.tls.read_tls(&mut records).unwrap();
            self.tls.process_new_packets()?;
        }
        Ok(())
    }

    /// Sends the client's part, and a request of HTTP/1.1 after it. Returns the status of the answer, or nothing if the
    /// connection ends without one.
    pub(crate) async fn status(mut self, request: &str) -> Option<u16> {
        self.tls.writer().write_all(request.as_bytes()).unwrap();
        self.send().await;
        let (mut read, mut answer) = ([0; 4096], Vec::new());
        while answer.len() < "HTTP/1.1 200".len() {
            let read_some = timeout(PATIENCE, self.tcp.read(&mut read)).await.unwrap();
            let count = read_some.ok().filter(|count| *count > 0)?;
            let mut records = &read[..count];
            while !records.is_empty() {
                self.tls.read_tls(&mut records).unwrap();
                let state = self.tls.process_new_packets().ok()?;
                let mut text = vec![0; state.plaintext_bytes_to_read()];
                self.tls.reader().read_exact(&mut text).unwrap();
                answer.extend(text);
            }
        }
        let text = str::from_utf8(&answer).unwrap();
        text.get(9..12)?.parse().ok()
    }

    /// The alert by which the server refuses the client.
    pub(crate) async fn refused(mut self) -> rustls::Error {
        loop {
            if let Err(error) = self.receive().await {
                return error;
            }
        }
    }
}

async fn connect_from(from: Ipv4Addr, address: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((from, 0).into()).unwrap();
    socket.connect(address).await.unwrap()
}

/// The error by which a handshake or the first read after it fails.
async fn refusal(connected: io::Result<TlsStream<TcpStream>>) -> rustls::Error {
    use tokio::io::AsyncReadExt as _;
    let error = match connected {
        Err(error) => error,
        Ok(mut stream) => timeout(PATIENCE, stream.read_u8())
            .await
            .unwrap()
            .unwrap_err(),
    };
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    inner
        .cloned()
        .unwrap_or_else(|| panic!("no error of TLS: {error}"))
}

/// Accepts every certificate.
#[derive(Debug)]
struct TakesAll(Arc<CryptoProvider>);

impl ServerCertVerifier for TakesAll {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let all = &self.0.signature_verification_algorithms;
        all.supported_schemes()
    }
}
