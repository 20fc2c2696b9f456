//! Certificates that are themselves in a file of authorities: a peer that shows one of them is trusted without a chain.
//!
//! `openssl req -x509` makes a certificate that signs itself and calls itself an authority. A chain must not end in an
//! authority's certificate (RFC 5280 section 4.2.1.9), so that webpki refuses it, although the operator has named this
//! very certificate.

use super::CertificateFacts;
use super::any_server::judge_signatures;
use rustls::client::danger::{ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, Error, RootCertStore};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeSet;
use std::sync::Arc;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::ExtendedKeyUsage;
use x509_parser::prelude::FromDer as _;

/// Digests (SHA-256) of the certificates in a file of authorities.
pub(super) type NamedCertificates = BTreeSet<[u8; 32]>;

/// Is it one of these certificates, and valid at `now` for the purpose that `serves` checks?
///
/// # Errors
/// If it is one of them, but not valid now or not for the purpose.
pub(super) fn is_named(
    named: &NamedCertificates,
    certificate: &CertificateDer<'_>,
    now: UnixTime,
    serves: fn(&ExtendedKeyUsage<'_>) -> bool,
) -> Result<bool, Error> {
    let fingerprint: [u8; 32] = Sha256::digest(certificate).into();
    if !named.contains(&fingerprint) {
        return Ok(false);
    }
    // An untrusted certificate is not read here: it may be long.
    let Some(facts) = CertificateFacts::read(certificate) else {
        return Ok(false);
    };
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    if now < facts.not_before {
        return Err(CertificateError::NotValidYet.into());
    }
    if now > facts.not_after {
        return Err(CertificateError::Expired.into());
    }
    let (_, read) =
        X509Certificate::from_der(certificate).map_err(|_| CertificateError::BadEncoding)?;
    let usage = read.extended_key_usage();
    let usage = usage.map_err(|_| CertificateError::BadEncoding)?;
    match usage {
        Some(usage) if !usage.value.any && !serves(usage.value) => {
            Err(CertificateError::InvalidPurpose.into())
        }
        _ => Ok(true),
    }
}

/// Trusts servers whose certificate is in the file, if it is for their name, and others by webpki's rules.
#[derive(Debug)]
pub(super) struct NamedServers {
    pub(super) named: NamedCertificates,
    pub(super) chains: Arc<WebPkiServerVerifier>,
}

impl ServerCertVerifier for NamedServers {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if is_named(&self.named, end_entity, now, |usage| usage.server_auth)? {
            verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
            return Ok(ServerCertVerified::assertion());
        }
        let chains = &self.chains;
        chains.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    judge_signatures!();
}

/// The check of servers by a file of authorities.
///
/// # Errors
/// If the file contains no authority.
pub(super) fn servers(
    roots: &Arc<RootCertStore>,
    named: NamedCertificates,
) -> Result<Arc<dyn ServerCertVerifier>, Arc<str>> {
    let chains =
        WebPkiServerVerifier::builder_with_provider(Arc::clone(roots), super::PROVIDER.clone());
    let chains = chains.build().map_err(|error| error.to_string())?;
    Ok(Arc::new(NamedServers { named, chains }))
}

#[cfg(test)]
mod tests;
