//! The verifier of clients' certificates. A client's chain is bounded before webpki verifies it: a client can construct
//! any chain, and webpki tries each certificate with the name of an issuer, in every order, before it gives up.

use super::any_server::judge_signatures;
use super::named_certificate::{NamedCertificates, is_named};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertRevocationListError, CertificateError, DistinguishedName, Error, OtherError};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;

thread_local! {
    /// The thread takes a step of a handshake in which no chain is verified.
    static LOOKS_AWAY: Cell<bool> = const { Cell::new(false) };
}

/// Takes a step of a client's handshake, in which a client's chain is verified only if `hears_chains`. Otherwise the
/// chain is refused before it is read, by `ApplicationVerificationFailure`, which is the alert `access_denied`.
///
/// rustls gives its verifier no information about the connection, but calls it on the thread that takes the step.
pub fn take_handshake_step<T>(hears_chains: bool, step: impl FnOnce() -> T) -> T {
    LOOKS_AWAY.set(!hears_chains);
    let taken = step();
    LOOKS_AWAY.set(false);
    taken
}

/// Most certificates of a chain, the client's own included.
const MOST: usize = 8;

/// Judges the certificates of clients.
#[derive(Debug)]
pub(super) struct ClientVerifier {
    /// Certificates that are trusted without a chain. Empty if there are revocation lists: a named certificate would be
    /// trusted regardless of them.
    pub(super) named: NamedCertificates,
    /// The verifiers of chains: one, or one for each turn of the lists of authorities that share a name. The first has
    /// the first turn.
    pub(super) first: Arc<dyn ClientCertVerifier>,
    pub(super) others: Vec<Arc<dyn ClientCertVerifier>>,
}

/// The fault of a chain before any verification. The words follow "its certificate is refused:"; they contain no text
/// from a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum ChainFault {
    #[error("its chain has {0} certificates, and a client's may have {most}", most = MOST)]
    TooLong(usize),
    #[error(
        "two of the certificates after it have the same name: of a cross-signed pair a client sends one"
    )]
    SameName,
}

impl From<ChainFault> for CertificateError {
    fn from(fault: ChainFault) -> Self {
        Self::Other(OtherError(Arc::new(fault)))
    }
}

/// Is the chain within the bounds? With one certificate for each name there is only one path from issuer to issuer, no
/// longer than the chain.
fn bound(intermediates: &[CertificateDer<'_>]) -> Result<(), CertificateError> {
    if intermediates.len() >= MOST {
        return Err(ChainFault::TooLong(intermediates.len() + 1).into());
    }
    let mut names = BTreeSet::new();
    for certificate in intermediates {
        let read = X509Certificate::from_der(certificate);
        let (_, read) = read.map_err(|_| CertificateError::BadEncoding)?;
        if !names.insert(read.subject().as_raw().to_vec()) {
            return Err(ChainFault::SameName.into());
        }
    }
    Ok(())
}

impl ClientVerifier {
    /// Verifies a chain after checking its bounds.
    pub(super) fn judge(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        bound(intermediates)?;
        if is_named(&self.named, end_entity, now, |usage| usage.client_auth)? {
            return Ok(ClientCertVerified::assertion());
        }
        self.verify_chain(end_entity, intermediates, now)
    }

    /// Calls one verifier after the other, as long as its list belongs to another key.
    fn verify_chain(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let by_another_key =
            Error::InvalidCertRevocationList(CertRevocationListError::BadSignature);
        let ask = |one: &Arc<dyn ClientCertVerifier>| {
            one.verify_client_cert(end_entity, intermediates, now)
        };
        let mut judged = ask(&self.first);
        for next in &self.others {
            match &judged {
                Err(error) if *error == by_another_key => judged = ask(next),
                _ => break,
            }
        }
        judged
    }
}

impl ClientCertVerifier for ClientVerifier {
    fn offer_client_auth(&self) -> bool {
        self.first.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.first.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.first.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        if LOOKS_AWAY.get() {
            return Err(CertificateError::ApplicationVerificationFailure.into());
        }
        self.judge(end_entity, intermediates, now)
    }

    judge_signatures!();
}
