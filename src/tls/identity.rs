//! A certificate to present, and the private key that belongs to it.

use super::{Mistake, PROVIDER, certificates, failure};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::sign::{CertifiedKey, SingleCertAndKey};

/// The identity of two PEM files.
pub(super) fn read(cert: &[u8], key: &[u8]) -> Result<SingleCertAndKey, Mistake> {
    let chain = certificates(cert).map_err(Mistake::Cert)?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| {
        Mistake::Key("it has no `-----BEGIN PRIVATE KEY-----`, without a passphrase".into())
    })?;
    let certified = CertifiedKey::from_der(chain, key, &PROVIDER).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => Mistake::Key("it is not the certificate's".into()),
        rustls::Error::InvalidCertificate(_) => Mistake::Cert(failure::of_file(&error)),
        other => Mistake::Key(failure::of_file(&other)),
    })?;
    Ok(SingleCertAndKey::from(certified))
}
