//! The verifier that trusts any certificate of a server, for `insecure` in the file; and the parts that all verifiers
//! share.

use rustls::client::danger::{ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};

/// The methods by which a verifier checks the signatures of a handshake: like webpki's verifiers, with the algorithms
/// of the gateway's provider.
macro_rules! judge_signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            cert: &rustls::pki_types::CertificateDer<'_>,
            dss: &rustls::DigitallySignedStruct,
        ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
            let known = &$crate::tls::PROVIDER.signature_verification_algorithms;
            rustls::crypto::verify_tls12_signature(message, cert, dss, known)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            cert: &rustls::pki_types::CertificateDer<'_>,
            dss: &rustls::DigitallySignedStruct,
        ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
            let known = &$crate::tls::PROVIDER.signature_verification_algorithms;
            rustls::crypto::verify_tls13_signature(message, cert, dss, known)
        }

        fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
            let known = &$crate::tls::PROVIDER.signature_verification_algorithms;
            known.supported_schemes()
        }
    };
}
pub(super) use judge_signatures;

/// Trusts any certificate whose key the server has.
#[derive(Debug)]
pub(super) struct AnyServer;

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    judge_signatures!();
}
