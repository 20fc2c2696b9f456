//! The validity of a client's certificate while its connection lives, checked against the present authorities,
//! revocation lists and times, and not against the state at the handshake. The certificate is verified again when a
//! reload changes the requirements for it, and when a time that it depends on has passed.

use super::ServerIdentity;
use super::client_check::ClientCheck;
use rustls::Error;
use rustls::pki_types::{CertificateDer, UnixTime};
use std::cell::Cell;
use std::time::Duration;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;

/// The validity of one connection's certificate.
#[derive(Debug)]
pub(super) struct Validity {
    /// The client's own certificate, followed by the others that it has sent.
    chain: Box<[CertificateDer<'static>]>,
    /// The digest of the check that verified it last.
    verified_by: Cell<[u8; 32]>,
    /// The second, since 1970 by the wall clock, after the next of the times that the validity depends on.
    next_end: Cell<i64>,
}

impl Validity {
    /// The validity of a chain that was verified by `identity` at `now`, in seconds since 1970.
    pub(super) fn new(chain: &[CertificateDer<'_>], identity: &ServerIdentity, now: i64) -> Self {
        let chain: Box<[_]> = chain.iter().map(|one| one.clone().into_owned()).collect();
        let (verified_by, next_end) = match identity.client() {
            Some(check) => (*check.parts_digest(), next_end(&chain, check, now)),
            None => ([0; 32], now),
        };
        Self {
            chain,
            verified_by: Cell::new(verified_by),
            next_end: Cell::new(next_end),
        }
    }

    /// The client's own certificate, in DER.
    pub(super) fn leaf(&self) -> &[u8] {
        self.chain.first().map_or(&[], |leaf| leaf)
    }

    /// Has a time passed that the last verification depends on?
    pub(super) fn has_ended(&self, now: i64) -> bool {
        now >= self.next_end.get()
    }

    /// Verifies the chain once more, if the result may differ from the last time. The requirements of an identity may
    /// be the same though its own certificate is another.
    pub(super) fn verify(&self, check: &ClientCheck, now: i64) -> Result<(), Error> {
        if *check.parts_digest() == self.verified_by.get() && !self.has_ended(now) {
            return Ok(());
        }
        let seconds = Duration::from_secs(now.max(0).unsigned_abs());
        check.verify_chain(&self.chain, UnixTime::since_unix_epoch(seconds))?;
        self.next_end.set(next_end(&self.chain, check, now));
        self.verified_by.set(*check.parts_digest());
        Ok(())
    }
}

/// The first second after `now` in which a certificate of the chain, or a revocation list, has ended. A list has
/// expired in the second that it names, a certificate in the next one.
fn next_end(chain: &[CertificateDer<'_>], check: &ClientCheck, now: i64) -> i64 {
    let of_certificate = |one: &CertificateDer<'_>| {
        let (_, read) = X509Certificate::from_der(one).ok()?;
        Some(read.validity().not_after.timestamp().saturating_add(1))
    };
    let certificates = chain.iter().filter_map(of_certificate);
    let lists = check.lists().iter().filter_map(|list| list.next_update);
    let ends = certificates.chain(lists).filter(|end| *end > now);
    ends.min().unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::server_identity::tests::{Authority, parts};
    use crate::tls::{ClientParts, ClientVerify, IdentityParts, certificates};

    const NOW: i64 = 1_925_000_000;

    fn identity(parts: &IdentityParts, authorities: &[&Authority]) -> ServerIdentity {
        let client = ClientParts {
            ca_pem: authorities.iter().map(|one| one.pem()).collect(),
            verify: ClientVerify::Required,
            crl_pem: Vec::new(),
        };
        let parts = IdentityParts {
            client: Some(client),
            ..parts.clone()
        };
        ServerIdentity::new(parts).unwrap()
    }

    /// A new certificate of the identity itself, such as an ordered one, causes no verification of clients'
    /// certificates.
    #[test]
    fn a_chain_is_verified_again_only_where_what_is_asked_has_changed() {
        let (ca, other) = (Authority::new(), Authority::new());
        let old = parts("api", &["api.test"]);
        let before = identity(&old, &[&ca]);
        // No trusted authority has signed this chain, so that its verification fails.
        let chain = certificates(&parts("anna", &["anna.test"]).cert_pem).unwrap();
        let validity = Validity::new(&chain, &before, NOW);
        let verify = |identity: &ServerIdentity, now| {
            let check = identity.client().unwrap();
            validity.verify(check, now)
        };
        let renewed = parts("api", &["api.test"]);
        assert!(verify(&before, NOW).is_ok());
        assert!(verify(&identity(&renewed, &[&ca]), NOW).is_ok());
        assert!(verify(&identity(&old, &[&ca, &other]), NOW).is_err());
        assert!(verify(&before, i64::MAX).is_err());
    }
}
