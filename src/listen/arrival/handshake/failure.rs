//! The causes for which handshakes fail.

use crate::tls::{ServerIdentity, TlsVersion};
use rustls::CertificateError;
use std::io;
use std::sync::Arc;

/// A handshake that failed.
#[derive(Debug)]
pub(in crate::listen) struct FailedHandshake {
    pub(in crate::listen) cause: HandshakeFailure,
    /// The chosen identity, if the handshake got there.
    pub(in crate::listen) identity: Option<Arc<ServerIdentity>>,
    /// The version that both sides had agreed on, if the handshake got there.
    pub(in crate::listen) version: Option<TlsVersion>,
}

/// Causes for which a handshake fails.
#[derive(Debug)]
pub(in crate::listen) enum HandshakeFailure {
    /// The client does not use TLS.
    PlainText,
    /// A proxy begins with a header that names its client, which is not accepted from this proxy.
    ProxyHeader,
    /// No identity serves the host that the client named; `None` if it named none.
    NoName(Option<Box<str>>),
    /// The client's certificate is missing or was refused.
    Client(rustls::Error),
    /// So many certificates of the client were refused recently that no further one is verified.
    ClientThrottled,
    /// The two sides do not agree, or the client violates the protocol.
    Protocol(rustls::Error),
    /// The client did not continue in time.
    Late,
    /// The client has left without sending a byte. This is not logged: a proxy checks in this way whether the gateway
    /// is alive.
    Silent,
    /// The client has left during the handshake.
    Left,
}

impl From<HandshakeFailure> for FailedHandshake {
    fn from(cause: HandshakeFailure) -> Self {
        Self {
            cause,
            identity: None,
            version: None,
        }
    }
}

pub(super) fn cause_of(error: &io::Error) -> HandshakeFailure {
    let inner = error.get_ref();
    let error = inner.and_then(|inner| inner.downcast_ref::<rustls::Error>());
    error.map_or(HandshakeFailure::Left, |error| {
        HandshakeFailure::Protocol(error.clone())
    })
}

impl HandshakeFailure {
    /// The cause, once the chosen identity is known: an identity that requests certificates may have refused the
    /// client's, or not have verified it.
    pub(super) fn of_client_of(self, identity: &ServerIdentity) -> Self {
        use rustls::Error as E;
        match self {
            Self::Protocol(E::InvalidCertificate(
                CertificateError::ApplicationVerificationFailure,
            )) => Self::ClientThrottled,
            Self::Protocol(
                error @ (E::NoCertificatesPresented
                | E::InvalidCertificate(_)
                | E::InvalidCertRevocationList(_)),
            ) if identity.client().is_some() => Self::Client(error),
            other => other,
        }
    }
}

pub(super) fn broken() -> HandshakeFailure {
    HandshakeFailure::Protocol(rustls::InvalidMessage::HandshakePayloadTooLarge.into())
}
