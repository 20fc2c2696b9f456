//! The verifier of clients' certificates. What a client sends is bounded before webpki looks at it: a client can make up
//! any chain, and webpki tries each certificate that has the name of an issuer, in every order, before it gives up.

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
    /// The thread takes a step of a handshake in which no chain is looked at.
    static LOOKS_AWAY: Cell<bool> = const { Cell::new(false) };
}

/// Takes a step of a client's handshake, in which a chain of the client's is looked at only where `hears_chains`. Else it is
/// refused before anything of it is read, by `ApplicationVerificationFailure`, which is the alert `access_denied`.
///
/// rustls tells its verifier nothing of the connection, but asks it on the thread that takes the step.
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
    /// Certificates that are believed without a chain. There are none where there are revocation lists: a named
    /// certificate would be believed whatever they say.
    pub(super) named: NamedCertificates,
    /// The verifiers of chains: one, or one for each turn of the lists of authorities that share a name. The first has the
    /// first turn.
    pub(super) first: Arc<dyn ClientCertVerifier>,
    pub(super) others: Vec<Arc<dyn ClientCertVerifier>>,
}

/// What is wrong with a chain before anything in it is verified. The words stand behind "its certificate is refused:"; what
/// a client has written is not among them.
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

/// Is the chain within the bounds? With one certificate for each name there is one way to go from issuer to issuer, which
/// is as long as the chain at most.
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
    /// Judges a chain, which is bounded first.
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

    /// Asks one verifier after the other, as long as the list that it looks at is another key's.
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
