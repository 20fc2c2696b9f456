//! An identity towards clients: a certificate with its key, the names that it serves, and its requirements for clients.
//! It is made at load; a handshake only reads it.

use super::chain_order::{OutOfPlace, first_out_of_place};
use super::client_check::{ClientCheck, ClientParts, ClientVerify};
use super::{
    CertificateFacts, IdentityMistake, PROVIDER, ServedName, certificates, failure, identity,
    pem_fault,
};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::{TLS12, TLS13};
use sha2::{Digest as _, Sha256};
use std::fmt;
use std::sync::Arc;

/// Session tickets that a client gets with a handshake of TLS 1.3.
const TICKETS: usize = 2;

/// The protocol that clients of HTTP/1.0 offer. They are served like clients of HTTP/1.1, after all protocols that the
/// file prefers.
const HTTP_1_0: &str = "http/1.0";

/// A protocol that a client can choose in its handshake (ALPN, RFC 7301).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Alpn {
    /// HTTP/2.
    H2,
    /// HTTP/1.1.
    Http11,
}

impl Alpn {
    /// The name on the wire, which is also the one in the file.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::H2 => "h2",
            Self::Http11 => "http/1.1",
        }
    }
}

/// A version of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TlsVersion {
    /// TLS 1.2 (RFC 5246), with the nine suites that are neither weak nor without forward secrecy.
    Tls12,
    /// TLS 1.3 (RFC 8446).
    Tls13,
}

impl TlsVersion {
    /// The version as the file, the access log and the metrics write it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tls12 => "1.2",
            Self::Tls13 => "1.3",
        }
    }
}

/// The parts of an identity. The contents of files are PEM.
#[derive(Clone, PartialEq, Eq)]
#[allow(
    missing_debug_implementations,
    reason = "a private key is in it, and no log or error prints it"
)]
pub struct IdentityParts {
    /// The name of its table.
    pub name: String,
    /// The certificate, followed by its intermediates. Empty if the certificate is ordered and not issued yet:
    /// handshakes are refused until then.
    pub cert_pem: Vec<u8>,
    /// The private key of the certificate, without a passphrase.
    pub key_pem: Vec<u8>,
    /// The names that it serves; `None` means the DNS names of the certificate.
    pub hosts: Option<Vec<ServedName>>,
    /// The identity is used if no name fits.
    pub is_default: bool,
    /// The least version of TLS.
    pub least_version: TlsVersion,
    /// The protocols to choose from, in order of preference; without any, the handshake offers no choice and HTTP/1.1
    /// is used.
    pub alpn: Vec<Alpn>,
    /// The requirements for clients; `None` means that no certificate is requested.
    pub client: Option<ClientParts>,
}

/// An identity, ready for handshakes.
pub struct ServerIdentity {
    name: String,
    hosts: Vec<ServedName>,
    is_default: bool,
    facts: CertificateFacts,
    out_of_place: Option<OutOfPlace>,
    client: Option<ClientCheck>,
    config: Arc<ServerConfig>,
    /// A digest of all parts, so that two identities can be compared.
    digest: [u8; 32],
}

impl ServerIdentity {
    /// Makes an identity.
    ///
    /// # Errors
    /// All mistakes in its parts.
    pub fn new(parts: IdentityParts) -> Result<Self, Vec<IdentityMistake>> {
        let mut mistakes = Vec::new();
        let digest = parts.digest();
        let pair = if parts.cert_pem.is_empty() && parts.hosts.is_some() {
            Some((None, CertificateFacts::default()))
        } else {
            read_pair(&parts.cert_pem, &parts.key_pem)
                .map(|(certified, facts)| (Some(certified), facts))
                .map_err(|mistake| mistakes.push(mistake))
                .ok()
        };
        let client = parts.client.as_ref().and_then(|client| {
            let made = ClientCheck::new(client);
            made.map_err(|more| mistakes.extend(more)).ok()
        });
        let (Some((certified, facts)), true) = (pair, mistakes.is_empty()) else {
            return Err(mistakes);
        };
        let out_of_place = certified
            .as_ref()
            .and_then(|certified| first_out_of_place(&certified.cert));
        let config = server_config(&parts, certified, client.as_ref())
            .map_err(|error| vec![IdentityMistake::Certificate(error.to_string())])?;
        let certified_names = || facts.names.iter().filter_map(|name| ServedName::read(name));
        Ok(Self {
            hosts: parts.hosts.unwrap_or_else(|| certified_names().collect()),
            name: parts.name,
            is_default: parts.is_default,
            facts,
            out_of_place,
            client,
            config: Arc::new(config),
            digest,
        })
    }

    /// The name of its table.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The names that it serves; empty if its certificate has no DNS name and no other was written.
    #[must_use]
    pub fn hosts(&self) -> &[ServedName] {
        &self.hosts
    }

    /// Is the identity used if no name fits?
    #[must_use]
    pub fn is_default(&self) -> bool {
        self.is_default
    }

    /// The facts in its certificate.
    #[must_use]
    pub fn facts(&self) -> &CertificateFacts {
        &self.facts
    }

    /// The first certificate after its own that did not sign the previous one.
    #[must_use]
    pub fn out_of_place(&self) -> Option<&OutOfPlace> {
        self.out_of_place.as_ref()
    }

    /// Is its certificate not issued yet? Its handshakes are refused until then.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        self.facts.names.is_empty() && self.facts.serial.is_empty()
    }

    /// The requirements for clients; `None` if no certificate is requested.
    #[must_use]
    pub fn client(&self) -> Option<&ClientCheck> {
        self.client.as_ref()
    }

    /// Does it end the handshakes of clients that show no certificate?
    #[must_use]
    pub fn demands_certificates(&self) -> bool {
        let client = self.client.as_ref();
        client.is_some_and(|client| client.verify() == ClientVerify::Required)
    }

    /// Does its certificate have this name, itself or by a wildcard?
    #[must_use]
    pub fn certifies(&self, name: &ServedName) -> bool {
        let names = self.facts.names.iter();
        names
            .filter_map(|served| ServedName::read(served))
            .any(|served| served.includes(name))
    }

    /// The configuration of its handshakes.
    #[must_use]
    pub fn config(&self) -> &Arc<ServerConfig> {
        &self.config
    }
}

impl ServerIdentity {
    /// A digest of all parts: two identities are equal if their digests are.
    pub(super) fn digest(&self) -> [u8; 32] {
        self.digest
    }
}

impl PartialEq for ServerIdentity {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl Eq for ServerIdentity {}

impl fmt::Debug for ServerIdentity {
    /// The key is left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerIdentity")
            .field("name", &self.name)
            .field("hosts", &self.hosts)
            .field("is_default", &self.is_default)
            .field("facts", &self.facts)
            .field("client", &self.client)
            .finish_non_exhaustive()
    }
}

impl IdentityParts {
    fn digest(&self) -> [u8; 32] {
        let mut digest = Sha256::new();
        let mut add = |part: &[u8]| {
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part);
        };
        add(self.name.as_bytes());
        add(&self.cert_pem);
        add(&self.key_pem);
        add(&[u8::from(self.is_default), self.least_version as u8]);
        let lists = [
            self.hosts.as_ref().map(|hosts| {
                let hosts = hosts.iter().map(|host| host.as_str().as_bytes());
                hosts.collect::<Vec<_>>()
            }),
            Some(
                self.alpn
                    .iter()
                    .map(|alpn| alpn.as_str().as_bytes())
                    .collect(),
            ),
            self.client.as_ref().map(ClientParts::bytes),
        ];
        for list in lists {
            let length = list.as_ref().map_or(u64::MAX, |list| list.len() as u64);
            add(&length.to_be_bytes());
            for part in list.into_iter().flatten() {
                add(part);
            }
        }
        digest.finalize().into()
    }
}

fn read_pair(cert: &[u8], key: &[u8]) -> Result<(CertifiedKey, CertificateFacts), IdentityMistake> {
    use IdentityMistake as Bad;
    let chain = certificates(cert).map_err(Bad::Certificate)?;
    let facts = chain.first().and_then(CertificateFacts::read);
    let facts = facts.ok_or_else(|| Bad::Certificate("its first certificate is broken".into()))?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| Bad::Key(pem_fault::of_key(key)))?;
    let certified = identity::certified(chain, key).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => Bad::KeyMismatch,
        rustls::Error::InvalidCertificate(_) => Bad::Certificate(failure::of_file(&error)),
        rustls::Error::General(_) => Bad::Key(NO_SUCH_KEY.into()),
        other => Bad::Key(failure::of_file(&other)),
    })?;
    Ok((certified, facts))
}

/// The words behind "the key" for a key that the library makes nothing of.
const NO_SUCH_KEY: &str = "it is not a key that TLS can use here: ECDSA (P-256, P-384, P-521), Ed25519, or RSA with 2048 to 8192 bits";

/// A session may be resumed only if no certificate is requested from clients: otherwise the old session's certificate
/// would continue to count without a check of its expiry, its revocation, or the present authorities.
fn server_config(
    parts: &IdentityParts,
    certified: Option<CertifiedKey>,
    client: Option<&ClientCheck>,
) -> Result<ServerConfig, rustls::Error> {
    let versions: &[_] = match parts.least_version {
        TlsVersion::Tls12 => &[&TLS13, &TLS12],
        TlsVersion::Tls13 => &[&TLS13],
    };
    let resolver: Arc<dyn ResolvesServerCert> = match certified {
        Some(certified) => Arc::new(SingleCertAndKey::from(certified)),
        None => Arc::new(NoCertificateYet),
    };
    let builder =
        ServerConfig::builder_with_provider(PROVIDER.clone()).with_protocol_versions(versions)?;
    let mut config = match client {
        Some(client) => builder.with_client_cert_verifier(client.verifier()),
        None => builder.with_no_client_auth(),
    }
    .with_cert_resolver(resolver);
    let chosen_from = parts.alpn.iter().map(|alpn| alpn.as_str());
    let older = parts.alpn.contains(&Alpn::Http11).then_some(HTTP_1_0);
    config.alpn_protocols = chosen_from.chain(older).map(Into::into).collect();
    // The server's order of suites counts, and AES comes before ChaCha20: TLS scanners expect a server's order.
    config.ignore_client_order = true;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    if client.is_none() {
        // Tickets live for 12 hours at most, and their keys change every 6.
        config.ticketer = Ticketer::new()?;
        config.send_tls13_tickets = TICKETS;
    }
    Ok(config)
}

/// The certificate resolver before a certificate is issued: it returns none, so that the handshake is refused.
#[derive(Debug)]
struct NoCertificateYet;

impl ResolvesServerCert for NoCertificateYet {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        None
    }
}

#[cfg(test)]
pub(crate) mod tests;
