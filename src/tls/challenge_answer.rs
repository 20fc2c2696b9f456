//! The answer to a challenge: a text, or a digest with the handshake that states it.

use super::PROVIDER;
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// The only protocol that an authority offers in its handshake.
pub const CHALLENGE_PROTOCOL: &[u8] = b"acme-tls/1";

/// The answer of another gateway, as long as its challenge is known here. Strangers can request it too, any number of
/// times: only the first request makes a key.
pub struct OthersAnswer {
    bytes: Vec<u8>,
    /// The handshake that states the bytes; the inner `None` means that they are not a digest.
    handshake: OnceLock<Option<Arc<ServerConfig>>>,
    is_reported: AtomicBool,
}

impl OthersAnswer {
    /// An answer without a request so far: a text, or the digest that a handshake states.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Arc<Self> {
        Arc::new(Self {
            bytes,
            handshake: OnceLock::new(),
            is_reported: AtomicBool::new(false),
        })
    }

    /// The text, or the digest.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Notes that the log has the line about this answer. Returns false if the line was written before.
    #[must_use]
    pub fn tell(&self) -> bool {
        !self.is_reported.swap(true, Ordering::Relaxed)
    }

    /// The handshake for `host`, the only host of the answer.
    pub(super) fn handshake(&self, host: &str) -> Option<Arc<ServerConfig>> {
        let made = || challenge_config(host, &self.bytes).ok().map(Arc::new);
        self.handshake.get_or_init(made).clone()
    }
}

impl fmt::Debug for OthersAnswer {
    /// The output does not contain the answer.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OthersAnswer").finish_non_exhaustive()
    }
}

/// A handshake with a self-signed certificate that names `host` and states `digest` (RFC 8737, section 3).
pub(super) fn challenge_config(host: &str, digest: &[u8]) -> Result<ServerConfig, String> {
    let digest: &[u8; 32] = digest.try_into().map_err(|_| "no SHA-256".to_owned())?;
    let made = || {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(vec![host.to_owned()])?;
        params.distinguished_name = DistinguishedName::new();
        let states = CustomExtension::new_acme_identifier(digest);
        params.custom_extensions.push(states);
        let certificate = params.self_signed(&key)?;
        Ok((certificate, key))
    };
    let (certificate, key) = made().map_err(|error: rcgen::Error| error.to_string())?;
    let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    let key = PROVIDER.key_provider.load_private_key(key);
    let key = key.map_err(|error| error.to_string())?;
    // The certificate has a critical extension that rustls does not know, so that its check of the pair is skipped.
    let certified = CertifiedKey::new(vec![certificate.der().clone()], key);
    let resolver = Arc::new(SingleCertAndKey::from(certified));
    let mut config = ServerConfig::builder_with_provider(PROVIDER.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_no_client_auth()
        .with_cert_resolver(resolver);
    config.alpn_protocols = vec![CHALLENGE_PROTOCOL.to_vec()];
    config.send_tls13_tickets = 0;
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handshake_is_made_once_and_told_once() {
        let answer = OthersAnswer::new(vec![7; 32]);
        let first = answer.handshake("a.example").unwrap();
        let second = answer.handshake("a.example").unwrap();
        assert!(Arc::ptr_eq(&first, &second));
        assert!(answer.tell() && !answer.tell());
        assert!(
            OthersAnswer::new(vec![7; 31])
                .handshake("a.example")
                .is_none()
        );
    }
}
