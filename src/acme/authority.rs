//! A certification authority as the file describes it, and the identities that are ordered from it.

use super::sealing::SealingKey;
use crate::telemetry::shown_url;
use crate::tls::ClientTls;
use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The directory of the largest public authority, Let's Encrypt.
pub const PUBLIC_DIRECTORY: &str = "https://acme-v02.api.letsencrypt.org/directory";

/// The directory that the same authority has for trials: no browser trusts its certificates, and its rate limits are
/// wide.
pub const STAGING_DIRECTORY: &str = "https://acme-staging-v02.api.letsencrypt.org/directory";

/// A certification authority, and the settings for requests to the authority.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authority {
    /// The name of its table.
    pub name: Arc<str>,
    /// The URL of its directory (RFC 8555, section 7.1.1).
    pub directory: String,
    /// The requirements for the certificate of the authority's server.
    pub tls: ClientTls,
    /// The address to which the authority may send mail.
    pub contact: Option<String>,
    /// The place of the account and the certificates.
    pub storage: Storage,
    /// The kinds of challenges that may be answered, in order of preference; at least one.
    pub challenges: Vec<ChallengeKind>,
    /// The kind of certificate, by the authority's name for it.
    pub profile: Option<String>,
    /// An existing account of the authority's customer, to which the new account is bound (RFC 8555, section 7.3.4).
    pub external: Option<ExternalAccount>,
}

impl Authority {
    /// A digest of the settings for orders, which changes when an operator may have fixed the cause of a failure. The
    /// digest covers the key of an external account, which is as good as random.
    pub(super) fn means(&self) -> String {
        let mut digest = Sha256::new();
        digest.update(self.tls.digest());
        for kind in &self.challenges {
            digest.update([kind.as_str().as_bytes(), b" "].concat());
        }
        digest.update(self.contact.as_deref().unwrap_or_default());
        if let Some(external) = &self.external {
            digest.update([b"\n", external.id.as_bytes(), b"\n", &external.key].concat());
        }
        HEXLOWER.encode(&digest.finalize()[..8])
    }
}

/// The place of accounts, certificates and failures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Storage {
    /// A folder, into which one process at a time orders.
    Folder(PathBuf),
    /// The store that gateways share, where everything is sealed with this key.
    Store(SealingKey),
}

impl Storage {
    /// The folder; `None` if the place is the store.
    #[must_use]
    pub fn folder(&self) -> Option<&Path> {
        match self {
            Self::Folder(path) => Some(path),
            Self::Store(_) => None,
        }
    }
}

impl fmt::Display for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(path) => write!(f, "{}", path.display()),
            Self::Store(_) => f.write_str("the store, sealed"),
        }
    }
}

/// A way to prove to an authority that we control a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChallengeKind {
    /// A handshake on port 443 (RFC 8737).
    TlsAlpn01,
    /// A text on port 80 (RFC 8555, section 8.3).
    Http01,
}

impl ChallengeKind {
    /// The name in the protocol, which is also the one in the file.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TlsAlpn01 => "tls-alpn-01",
            Self::Http01 => "http-01",
        }
    }
}

/// An account that an authority's customer has.
#[derive(Clone, PartialEq, Eq)]
pub struct ExternalAccount {
    /// Its id.
    pub id: String,
    /// The key that the authority gave out with the id.
    pub key: Vec<u8>,
}

impl fmt::Debug for ExternalAccount {
    /// The key is left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExternalAccount")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// An identity whose certificate is ordered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrderedIdentity {
    /// The name of its table.
    pub name: Arc<str>,
    /// The names that the certificate must have, in lower case; at least one, and none with a `*`.
    pub hosts: Vec<String>,
    /// The authority that issues the certificate.
    pub authority: Arc<Authority>,
}

/// `ordered from public (https://.../directory, profile shortlived)`.
impl fmt::Display for OrderedIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let authority = &self.authority;
        let (name, directory) = (&authority.name, shown_url(&authority.directory));
        write!(f, "ordered from {name} ({directory}")?;
        if let Some(profile) = &authority.profile {
            write!(f, ", profile {profile}")?;
        }
        f.write_str(")")
    }
}
