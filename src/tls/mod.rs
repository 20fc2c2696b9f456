//! TLS as every room needs it: authorities to trust, identities to present to servers and to clients, and the causes of
//! failed handshakes.
//!
//! A value is compared by a digest of the contents that it was read from, so that a reload detects changed files.
//!
//! In: files of certificates and keys. Out: verifiers and identities, for both sides.
//!
//! ```text
//! pem_fault             what is wrong with a file of certificates or keys
//! chain_order           the order of certificates in a file
//! certificate           what stands in a certificate
//! distinguished_name    its subject as text
//! roots                 authorities to trust
//! any_server            trust in any server, by `insecure`; signatures, as all verifiers judge them
//! named_certificate     a peer whose certificate a file names itself
//! identity              an identity towards servers
//! server_identity       an identity towards clients
//! identity_mistake      the faults of its parts
//! served_name           a host that an identity answers for
//! offer                 the identities of one listener; may a connection serve a host?
//! offer_in_force        the offer as it is now
//! client_verifier       how long a client's chain may be, before it is verified
//! client_check          what an identity asks of clients
//! revocation_list       one revocation list
//! same_name_lists       lists of one authority's name with several keys
//! session               what a handshake has settled
//! validity              what a client's certificate is worth while its connection lives
//! entitlement           may the client of a connection go on?
//! authority_challenges  what an authority finds when it looks
//! challenge_answer      one answer to it
//! challenge_lookup      the answer of another gateway or process
//! failure               the cause of a failed handshake
//! ```

mod any_server;
mod authority_challenges;
mod certificate;
mod chain_order;
mod challenge_answer;
mod challenge_lookup;
mod client_check;
mod client_verifier;
mod distinguished_name;
mod entitlement;
mod failure;
mod identity;
mod identity_mistake;
mod named_certificate;
mod offer;
mod offer_in_force;
mod pem_fault;
mod revocation_list;
mod roots;
mod same_name_lists;
mod served_name;
mod server_identity;
mod session;
mod validity;

pub use authority_challenges::{
    AuthorityChallenges, CHALLENGE_PATH, PostedAnswer, is_challenge_token,
};
pub use certificate::CertificateFacts;
pub use chain_order::OutOfPlace;
pub use challenge_answer::{CHALLENGE_PROTOCOL, OthersAnswer};
pub use challenge_lookup::{ChallengeDesk, ChallengeQuestion, KnownAnswers};
pub use client_check::{ClientCheck, ClientParts, ClientVerify};
pub use client_verifier::take_handshake_step;
pub use distinguished_name::canonical as canonical_subject;
pub use failure::{Advice, certificate_fault, explain, is_without_protocol, refused_certificate};
pub use identity_mistake::IdentityMistake;
pub use offer::{ChosenBy, ClaimedTwice, Offer};
pub use offer_in_force::{OfferInForce, OfferSource, Offers};
pub use revocation_list::RevocationList;
pub use served_name::ServedName;
pub use server_identity::{Alpn, IdentityParts, ServerIdentity, TlsVersion};
pub use session::{ClientCertificate, TlsSession, named_host};

use any_server::AnyServer;
use roots::OwnRoots;
use rustls::ClientConfig;
use rustls::client::ResolvesClientCert;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::sign::SingleCertAndKey;
use sha2::{Digest as _, Sha256};
use std::fmt;
use std::sync::{Arc, LazyLock, OnceLock};

static PROVIDER: LazyLock<Arc<CryptoProvider>> =
    LazyLock::new(|| Arc::new(aws_lc_rs::default_provider()));

/// The encryption of our connections to a server. Clones share one value.
#[derive(Clone)]
pub struct ClientTls(Arc<Inner>);

#[derive(Default)]
struct Inner {
    /// The authorities to trust; `None` means the authorities that the system trusts.
    roots: Option<OwnRoots>,
    identity: Option<Arc<SingleCertAndKey>>,
    server_name: Option<ServerName<'static>>,
    /// Every certificate is trusted.
    is_insecure: bool,
    /// A digest of all fields above, so that two values can be compared.
    digest: [u8; 32],
    config: OnceLock<Result<Arc<ClientConfig>, Arc<str>>>,
}

/// The contents of the files that a configuration names, as PEM.
#[derive(Default, Clone, Copy)]
#[allow(
    missing_debug_implementations,
    reason = "a private key is in it, and no log or error prints it"
)]
pub struct PemFiles<'a> {
    /// Authorities to trust instead of the system's.
    pub ca: Option<&'a [u8]>,
    /// A certificate to present, with the certificates between it and its authority, and its key.
    pub identity: Option<(&'a [u8], &'a [u8])>,
    /// The name that the server's certificate must have, if not the host name of the connection.
    pub server_name: Option<&'a str>,
    /// Every certificate is trusted, for any signature and any name.
    pub insecure: bool,
}

/// The fault of one of the files, or of the name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mistake {
    /// The file of authorities is at fault.
    Ca(String),
    /// The certificate is at fault.
    Cert(String),
    /// The certificate's key is at fault.
    Key(String),
    /// The name is at fault.
    Name,
    /// The system trusts no authority.
    System(Arc<str>),
}

impl ClientTls {
    /// A client that presents no certificate and trusts the system's authorities, which are read when a connection is
    /// made.
    #[must_use]
    pub fn of_system() -> Self {
        Self(Arc::default())
    }

    /// Reads the contents of files.
    ///
    /// # Errors
    /// All mistakes in the files.
    pub fn new(files: PemFiles<'_>) -> Result<Self, Vec<Mistake>> {
        let mut mistakes = Vec::new();
        let mut note = |mistake| mistakes.push(mistake);
        let roots = match files.ca {
            Some(pem) => roots::read_roots(pem).map_err(&mut note).ok(),
            None if files.insecure => None,
            None => {
                if let Err(why) = roots::of_system() {
                    note(Mistake::System(why));
                }
                None
            }
        };
        let identity = files.identity.and_then(|(cert, key)| {
            let read = identity::read_pair(cert, key).map_err(&mut note);
            read.ok().map(Arc::new)
        });
        let name = files.server_name.and_then(|name| {
            let read = server_name(name).ok_or(Mistake::Name);
            read.map_err(&mut note).ok()
        });
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        Ok(Self(Arc::new(Inner {
            roots,
            identity,
            server_name: name,
            is_insecure: files.insecure,
            digest: files.digest(),
            config: OnceLock::new(),
        })))
    }

    /// The configuration of a client.
    ///
    /// # Errors
    /// If the system trusts no authority and none is named.
    pub fn config(&self) -> Result<Arc<ClientConfig>, Arc<str>> {
        self.0.config.get_or_init(|| self.build()).clone()
    }

    /// Is every certificate trusted?
    #[must_use]
    pub fn is_insecure(&self) -> bool {
        self.0.is_insecure
    }

    /// A digest of all parts of the value.
    #[must_use]
    pub fn digest(&self) -> [u8; 32] {
        self.0.digest
    }

    fn build(&self) -> Result<Arc<ClientConfig>, Arc<str>> {
        let builder = ClientConfig::builder_with_provider(PROVIDER.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let builder = match &self.0.roots {
            _ if self.0.is_insecure => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(AnyServer)),
            Some(roots) => {
                let servers = named_certificate::servers(&roots.store, roots.named.clone())?;
                builder
                    .dangerous()
                    .with_custom_certificate_verifier(servers)
            }
            None => builder.with_root_certificates(roots::of_system()?),
        };
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

impl PartialEq for ClientTls {
    fn eq(&self, other: &Self) -> bool {
        self.0.digest == other.0.digest
    }
}

impl Eq for ClientTls {}

impl fmt::Debug for ClientTls {
    /// The key is left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTls")
            .field("own_authorities", &self.0.roots.is_some())
            .field("presents_a_certificate", &self.0.identity.is_some())
            .field("server_name", &self.0.server_name)
            .finish()
    }
}

impl PemFiles<'_> {
    fn digest(&self) -> [u8; 32] {
        let mut digest = Sha256::new();
        let (cert, key) = self.identity.unzip();
        let name = self.server_name.map(str::as_bytes);
        for part in [self.ca, cert, key, name] {
            let length = part.map_or(u64::MAX, |part| part.len() as u64);
            digest.update(length.to_be_bytes());
            digest.update(part.unwrap_or_default());
        }
        digest.update([u8::from(self.insecure)]);
        digest.finalize().into()
    }
}

/// A name or an address that a certificate can have.
#[must_use]
pub fn server_name(text: &str) -> Option<ServerName<'static>> {
    ServerName::try_from(text.to_owned()).ok()
}

/// The certificates of a PEM file, at least one; or the file's fault.
fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match all {
        Ok(all) if !all.is_empty() => Ok(all),
        Ok(_) => Err(pem_fault::of_certificates(pem)),
        Err(_) => Err("it is no PEM file".into()),
    }
}

#[cfg(test)]
pub(crate) use server_identity::tests;
