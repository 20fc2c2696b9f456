//! The causes for which handshakes fail.

use crate::tls::{ServerIdentity, TlsVersion};
use rustls::CertificateError;
use std::io;
use std::sync::Arc;

/// A handshake that failed.
#[derive(Debug)]
pub(in crate::listen) struct FailedHandshake {
    pub(in crate::listen) cause: HandshakeFailure,
    /// The identity that was chosen, as far as it came to that.
    pub(in crate::listen) identity: Option<Arc<ServerIdentity>>,
    /// The version that both sides had agreed on, as far as it came to that.
    pub(in crate::listen) version: Option<TlsVersion>,
}

/// Causes for which a handshake fails.
#[derive(Debug)]
pub(in crate::listen) enum HandshakeFailure {
    /// The client does not speak TLS.
    PlainText,
    /// A proxy begins with a header by which it names its client, where none is taken from it.
    ProxyHeader,
    /// No identity answers for the host that the client named; without a host it named none.
    NoName(Option<Box<str>>),
    /// The client's certificate is missing or was refused.
    Client(rustls::Error),
    /// So many certificates of the client were refused lately that it is not heard.
    ClientThrottled,
    /// The two sides do not agree, or the client breaks the protocol.
    Protocol(rustls::Error),
    /// The client did not go on in time.
    Late,
    /// The client has left without a byte. This is no event: a proxy looks so whether the gateway is there.
    Silent,
    /// The client has left in the middle.
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
    /// The cause, once it is known which identity was chosen: one that asks for certificates may have refused the client's,
    /// or not have looked at it.
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
