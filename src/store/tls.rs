//! Encrypted connections to Redis: whom to believe, what to present, and what a failed handshake means.

use rustls::client::ResolvesClientCert;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{AlertDescription, CertificateError, ClientConfig, RootCertStore};
use sha2::{Digest as _, Sha256};
use std::fmt;
use std::sync::{Arc, LazyLock, OnceLock};

static PROVIDER: LazyLock<Arc<CryptoProvider>> =
    LazyLock::new(|| Arc::new(aws_lc_rs::default_provider()));

/// Whom this system believes: read once, it takes milliseconds.
static SYSTEM: LazyLock<Result<Arc<RootCertStore>, Arc<str>>> = LazyLock::new(system);

/// How connections to Redis are encrypted. Clones share it.
#[derive(Clone)]
pub struct Tls(Arc<Parts>);

struct Parts {
    /// Nothing stands for those that the system believes.
    authorities: Option<Arc<RootCertStore>>,
    identity: Option<Arc<SingleCertAndKey>>,
    server_name: Option<ServerName<'static>>,
    /// Of everything above, so that it can be compared.
    digest: [u8; 32],
    config: OnceLock<Result<Arc<ClientConfig>, Arc<str>>>,
}

/// What files say, as PEM.
#[derive(Default, Clone, Copy)]
#[allow(
    missing_debug_implementations,
    reason = "a key is in it, and nobody prints it"
)]
pub struct Material<'a> {
    /// Authorities to believe instead of the system's.
    pub ca: Option<&'a [u8]>,
    /// A certificate to present, with those between it and its authority, and its key.
    pub identity: Option<(&'a [u8], &'a [u8])>,
    /// The name that the server's certificate must have, if not the one that is connected to.
    pub server_name: Option<&'a str>,
}

/// What is wrong with one of the files, or with the name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mistake {
    /// The authorities.
    Ca(String),
    /// The certificate.
    Cert(String),
    /// Its key.
    Key(String),
    /// The name.
    Name,
    /// The system believes nobody.
    System(Arc<str>),
}

impl Tls {
    /// Nothing to present; whom the system believes, so do we. It is read when a connection is made.
    #[must_use]
    pub fn of_system() -> Self {
        Self(Arc::new(Parts {
            authorities: None,
            identity: None,
            server_name: None,
            digest: [0; 32],
            config: OnceLock::new(),
        }))
    }

    /// Reads what files say.
    ///
    /// # Errors
    /// All that is wrong with them.
    pub fn new(material: Material<'_>) -> Result<Self, Vec<Mistake>> {
        let mut mistakes = Vec::new();
        let mut kept = |mistake| mistakes.push(mistake);
        let authorities = match material.ca {
            Some(pem) => authorities(pem).map_err(&mut kept).ok().map(Arc::new),
            None => {
                if let Err(why) = &*SYSTEM {
                    kept(Mistake::System(why.clone()));
                }
                None
            }
        };
        let identity = material.identity.and_then(|(cert, key)| {
            let read = identity(cert, key).map_err(&mut kept);
            read.ok().map(Arc::new)
        });
        let server_name = material.server_name.and_then(|name| {
            let read = server_name(name).ok_or(Mistake::Name);
            read.map_err(&mut kept).ok()
        });
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        let mut digest = Sha256::new();
        let (cert, key) = material.identity.unzip();
        let name = material.server_name.map(str::as_bytes);
        for part in [material.ca, cert, key, name] {
            let length = part.map_or(u64::MAX, |part| part.len() as u64);
            digest.update(length.to_be_bytes());
            digest.update(part.unwrap_or_default());
        }
        Ok(Self(Arc::new(Parts {
            authorities,
            identity,
            server_name,
            digest: digest.finalize().into(),
            config: OnceLock::new(),
        })))
    }

    /// What a client is made of.
    ///
    /// # Errors
    /// When the system believes nobody, and nothing else was said.
    pub fn client(&self) -> Result<Arc<ClientConfig>, Arc<str>> {
        self.0.config.get_or_init(|| self.build()).clone()
    }

    fn build(&self) -> Result<Arc<ClientConfig>, Arc<str>> {
        let authorities = match &self.0.authorities {
            Some(own) => own.clone(),
            None => SYSTEM.clone()?,
        };
        let builder = ClientConfig::builder_with_provider(PROVIDER.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(authorities);
        Ok(Arc::new(match &self.0.identity {
            Some(identity) => {
                builder.with_client_cert_resolver(identity.clone() as Arc<dyn ResolvesClientCert>)
            }
            None => builder.with_no_client_auth(),
        }))
    }

    /// The name that the certificate of the server at `host` must have.
    #[must_use]
    pub fn name_of(&self, host: &str) -> Option<ServerName<'static>> {
        match &self.0.server_name {
            Some(name) => Some(name.clone()),
            None => server_name(host),
        }
    }
}

impl PartialEq for Tls {
    fn eq(&self, other: &Self) -> bool {
        self.0.digest == other.0.digest
    }
}

impl Eq for Tls {}

impl fmt::Debug for Tls {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("own_authorities", &self.0.authorities.is_some())
            .field("presents_a_certificate", &self.0.identity.is_some())
            .field("server_name", &self.0.server_name)
            .finish()
    }
}

/// A name or an address that a certificate can have.
#[must_use]
pub fn server_name(text: &str) -> Option<ServerName<'static>> {
    ServerName::try_from(text.to_owned()).ok()
}

fn system() -> Result<Arc<RootCertStore>, Arc<str>> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (good, _) = roots.add_parsable_certificates(found.certs);
    match (good, found.errors.first()) {
        (0, Some(error)) => Err(error.to_string().into()),
        (0, None) => Err("there are none on this system".into()),
        _ => Ok(Arc::new(roots)),
    }
}

fn authorities(pem: &[u8]) -> Result<RootCertStore, Mistake> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(pem).map_err(Mistake::Ca)? {
        let added = roots.add(certificate);
        added.map_err(|error| Mistake::Ca(told(&error)))?;
    }
    Ok(roots)
}

fn identity(cert: &[u8], key: &[u8]) -> Result<SingleCertAndKey, Mistake> {
    let chain = certificates(cert).map_err(Mistake::Cert)?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| {
        Mistake::Key("it has no `-----BEGIN PRIVATE KEY-----`, without a passphrase".into())
    })?;
    let certified = CertifiedKey::from_der(chain, key, &PROVIDER).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => Mistake::Key("it is not the certificate's".into()),
        rustls::Error::InvalidCertificate(_) => Mistake::Cert(told(&error)),
        other => Mistake::Key(told(&other)),
    })?;
    Ok(SingleCertAndKey::from(certified))
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match all {
        Ok(all) if !all.is_empty() => Ok(all),
        Ok(_) => Err("it has no `-----BEGIN CERTIFICATE-----`".into()),
        Err(_) => Err("it is no PEM file".into()),
    }
}

/// What went wrong, in words that say what to do; nothing where it has nothing to do with TLS.
#[must_use]
pub fn explain(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<rustls::Error>() {
            return Some(told(error));
        }
        // The source of what wraps an error is that error's source, not the error.
        let held = error.downcast_ref::<std::io::Error>();
        let shared = error.downcast_ref::<Arc<dyn std::error::Error + Send + Sync>>();
        next = match (held.and_then(std::io::Error::get_ref), shared) {
            (Some(inner), _) => Some(inner),
            (None, Some(inner)) => Some(&**inner),
            (None, None) => error.source(),
        };
    }
    None
}

fn told(error: &rustls::Error) -> String {
    use CertificateError as Bad;
    match error {
        rustls::Error::InvalidCertificate(bad) => match bad {
            // An authority that was made anew under its old name signs what the old one did not.
            Bad::UnknownIssuer | Bad::BadSignature => "the certificate's authority is not one that is believed: name it as `ca` in `[store] tls`".into(),
            Bad::NotValidForName | Bad::NotValidForNameContext { .. } => {
                format!("the certificate is for another name ({bad}): write the one it has as `server_name` in `[store] tls`")
            }
            Bad::Expired | Bad::ExpiredContext { .. } => format!("the certificate has expired ({bad})"),
            Bad::NotValidYet | Bad::NotValidYetContext { .. } => {
                format!("the certificate is not valid yet ({bad}); is the clock right?")
            }
            other => format!("the certificate is of no use: {other}"),
        },
        rustls::Error::AlertReceived(alert) => match alert {
            AlertDescription::CertificateRequired | AlertDescription::HandshakeFailure => {
                format!("the server refuses us ({alert:?}): does it want a client's certificate? Name it as `cert` and `key` in `[store] tls`")
            }
            AlertDescription::UnknownCA => "the server does not believe the authority of our certificate (UnknownCA)".into(),
            AlertDescription::CertificateExpired => "the server says that our certificate has expired (CertificateExpired)".into(),
            AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::DecryptError
            | AlertDescription::CertificateUnknown => {
                format!("the server does not take our certificate ({alert:?})")
            }
            other => format!("the server ended the handshake ({other:?})"),
        },
        rustls::Error::InvalidMessage(_) => "the server does not speak TLS on this port: write `redis` in place of `rediss` in the address, or another port".into(),
        other => other.to_string(),
    }
}
