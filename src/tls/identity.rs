//! A certificate to present, and the private key that belongs to it.
//!
//! The presenter of a certificate need not understand it. webpki reads only certificates of X.509 version 3, and
//! `openssl x509 -req` without extensions makes one of version 1, which clients may accept nevertheless.

use super::{Mistake, PROVIDER, certificates, failure, pem_fault};
use rustls::InconsistentKeys;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;

/// The identity of two PEM files.
pub(super) fn read_pair(cert: &[u8], key: &[u8]) -> Result<SingleCertAndKey, Mistake> {
    let chain = certificates(cert).map_err(Mistake::Cert)?;
    let key =
        PrivateKeyDer::from_pem_slice(key).map_err(|_| Mistake::Key(pem_fault::of_key(key)))?;
    let certified = certified(chain, key).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => Mistake::Key("it is not the certificate's".into()),
        rustls::Error::InvalidCertificate(_) => Mistake::Cert(failure::of_file(&error)),
        other => Mistake::Key(failure::of_file(&other)),
    })?;
    Ok(SingleCertAndKey::from(certified))
}

/// A certificate with its matching key.
///
/// # Errors
/// If the key belongs to another certificate, or one of the two cannot be used.
pub(super) fn certified(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<CertifiedKey, rustls::Error> {
    let key = PROVIDER.key_provider.load_private_key(key)?;
    let certified = CertifiedKey::new(chain, key);
    match certified.keys_match() {
        Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(certified),
        Err(error @ rustls::Error::InvalidCertificate(_)) => {
            let leaf = certified.cert.first();
            let parsed = leaf.and_then(|leaf| X509Certificate::from_der(leaf).ok());
            let (Some((_, leaf)), Some(key)) = (parsed, certified.key.public_key()) else {
                return Err(error);
            };
            if leaf.public_key().raw != key.as_ref() {
                return Err(InconsistentKeys::KeyMismatch.into());
            }
            Ok(certified)
        }
        Err(error) => Err(error),
    }
}
