//! The cause of a failed handshake, in words that help an operator to fix it.

use rustls::{AlertDescription, CertificateError};
use std::error::Error;
use std::sync::Arc;

/// The settings that messages advise an operator to change.
#[derive(Debug, Clone, Copy)]
pub struct Advice {
    /// The table of the configuration file that has `ca`, `cert`, `key` and `server_name`.
    pub table: &'static str,
    /// The key of that table with the name that the server's certificate must have.
    pub name_key: &'static str,
    /// The instruction for a connection without TLS.
    pub plaintext: &'static str,
}

/// The cause of the failure, in words that help an operator to fix it; `None` if the error has no relation to TLS.
#[must_use]
pub fn explain(error: &(dyn Error + 'static), advice: Advice) -> Option<String> {
    Some(of_handshake(of_tls(error)?, advice))
}

/// The server's refusal of our certificate, or of the lack of one, in the same words. In TLS 1.3 the refusal arrives
/// after the handshake is complete on our side, in place of an answer (RFC 8446, section 4.4.2.4).
#[must_use]
pub fn refused_certificate(error: &(dyn Error + 'static), advice: Advice) -> Option<String> {
    let error = of_tls(error)?;
    let is_refusal = matches!(
        error,
        rustls::Error::AlertReceived(
            AlertDescription::CertificateRequired
                | AlertDescription::HandshakeFailure
                | AlertDescription::UnknownCA
                | AlertDescription::CertificateExpired
                | AlertDescription::BadCertificate
                | AlertDescription::UnsupportedCertificate
                | AlertDescription::CertificateRevoked
                | AlertDescription::CertificateUnknown
                | AlertDescription::DecryptError
                | AlertDescription::AccessDenied
        )
    );
    is_refusal.then(|| of_handshake(error, advice))
}

/// Has the server refused all offered protocols in the handshake (RFC 7301, section 3.2)?
#[must_use]
pub fn is_without_protocol(error: &(dyn Error + 'static)) -> bool {
    let refused = rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol);
    of_tls(error) == Some(&refused)
}

/// The TLS error among the causes of `error`.
fn of_tls<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e rustls::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<rustls::Error>() {
            return Some(error);
        }
        // For an error that wraps another, `source` returns the source of the inner error, not the inner error itself.
        let io = error.downcast_ref::<std::io::Error>();
        let shared = error.downcast_ref::<Arc<dyn Error + Send + Sync>>();
        next = match (io.and_then(std::io::Error::get_ref), shared) {
            (Some(inner), _) => Some(inner),
            (None, Some(inner)) => Some(&**inner),
            (None, None) => error.source(),
        };
    }
    None
}

/// The fault of a certificate or a key in a file.
pub(super) fn of_file(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(bad) => unusable(bad),
        other => other.to_string(),
    }
}

fn unusable(bad: &CertificateError) -> String {
    format!("the certificate cannot be used: {}", certificate_fault(bad))
}

/// The fault of a certificate in words. Some faults are named only in the library's terms; two of them are common among
/// certificates that people make by hand.
#[must_use]
pub fn certificate_fault(bad: &CertificateError) -> String {
    let cause = bad.to_string();
    match bad {
        CertificateError::Revoked => return "it is revoked (by a list in `crl`)".into(),
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            return format!("no trusted authority has signed it ({cause})");
        }
        CertificateError::UnknownRevocationStatus => {
            return format!("an authority that signed it has no revocation list ({cause})");
        }
        CertificateError::UnsupportedSignatureAlgorithmContext { .. }
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            return "its signature is of a kind that is not trusted, such as one with SHA-1 or by an RSA key with fewer than 2048 bits: sign it with SHA-256 and a longer key".into();
        }
        _ => {}
    }
    let why = if cause.contains("UnsupportedCertVersion") {
        "it is of X.509 version 1: sign it with extensions, such as `subjectAltName` (`openssl x509 -req -extfile FILE`)"
    } else if cause.contains("CaUsedAsEndEntity") {
        "it is the certificate of an authority (CA:TRUE): make one with `-addext basicConstraints=critical,CA:FALSE`, or name this certificate as `ca`"
    } else {
        return match bad {
            CertificateError::Other(inner) => inner.to_string(),
            _ => cause,
        };
    };
    why.into()
}

fn of_handshake(error: &rustls::Error, advice: Advice) -> String {
    let Advice {
        table,
        name_key,
        plaintext,
    } = advice;
    use CertificateError as Bad;
    match error {
        rustls::Error::InvalidCertificate(bad) => match bad {
            // An authority that was renewed under its old name signs certificates that the old certificate cannot
            // verify.
            Bad::UnknownIssuer | Bad::BadSignature => {
                format!("the certificate's authority is not trusted: name it as `ca` in {table}")
            }
            Bad::NotValidForName | Bad::NotValidForNameContext { .. } => {
                format!(
                    "the certificate is for another name ({bad}): write the name that it has as `{name_key}` in {table}"
                )
            }
            Bad::Expired | Bad::ExpiredContext { .. } => {
                format!("the certificate has expired ({bad})")
            }
            Bad::NotValidYet | Bad::NotValidYetContext { .. } => {
                format!("the certificate is not valid yet ({bad}); is the clock right?")
            }
            other => unusable(other),
        },
        rustls::Error::AlertReceived(alert) => match alert {
            AlertDescription::CertificateRequired | AlertDescription::HandshakeFailure => {
                format!(
                    "the server refuses us ({alert:?}): does it demand a client's certificate? Name it as `cert` and `key` in {table}"
                )
            }
            AlertDescription::UnknownCA => {
                "the server does not trust the authority of our certificate (UnknownCA)".into()
            }
            AlertDescription::CertificateExpired => {
                "the server says that our certificate has expired (CertificateExpired)".into()
            }
            AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::DecryptError
            | AlertDescription::CertificateUnknown => {
                format!("the server does not accept our certificate ({alert:?})")
            }
            other => format!("the server ended the handshake ({other:?})"),
        },
        rustls::Error::InvalidMessage(_) => {
            format!("the server does not speak TLS on this port: {plaintext}, or another port")
        }
        other => other.to_string(),
    }
}
