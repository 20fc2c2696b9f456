//! The result of the handshake of a client's connection.

use super::entitlement::Entitlement;
use super::validity::Validity;
use super::{Alpn, CertificateFacts, Offer, ServerIdentity, TlsVersion};
use crate::clock;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use rustls::pki_types::CertificateDer;
use rustls::{CertificateError, Error, HandshakeKind, ProtocolVersion, ServerConnection};
use std::cell::OnceCell;
use std::sync::Arc;
use tokio::time::Instant;

/// The result of a handshake, valid for the life of the connection, and whether the client may continue.
#[derive(Debug)]
pub struct TlsSession {
    /// The identity that the client was shown.
    pub identity: Arc<ServerIdentity>,
    /// The version of TLS.
    pub version: TlsVersion,
    /// The host that the client named (SNI, RFC 6066 section 3), in lower case without a trailing dot.
    pub sni: Option<Box<str>>,
    /// The protocol that both sides agreed on (ALPN); HTTP/1.1 without an agreement.
    pub protocol: Alpn,
    /// An earlier session was resumed.
    pub is_resumed: bool,
    /// The certificate that the client has shown, verified. `None` if none was requested.
    pub client: Option<ClientCertificate>,
    entitlement: Entitlement,
}

/// A client's certificate, verified in the handshake.
#[derive(Debug)]
pub struct ClientCertificate {
    /// Its subject, as RFC 4514 writes it.
    pub subject: Box<str>,
    /// SHA-256 of the whole certificate.
    pub fingerprint: [u8; 32],
    /// The validity of the certificate.
    validity: Validity,
    /// The certificate as a field value, once needed.
    field: OnceCell<HeaderValue>,
}

impl ClientCertificate {
    /// The certificate as the value of `Client-Cert`: a byte sequence (RFC 9440 section 2.2, RFC 8941 section 3.3.5).
    #[must_use]
    pub fn field(&self) -> &HeaderValue {
        self.field.get_or_init(|| {
            let text = format!(":{}:", STANDARD.encode(self.validity.leaf()));
            // Base64 has no byte that is forbidden in a field.
            HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("::"))
        })
    }
}

impl TlsSession {
    /// The session of a connection whose handshake, by `identity`, is complete.
    #[must_use]
    pub fn new(connection: &ServerConnection, identity: Arc<ServerIdentity>) -> Self {
        let shown = connection.peer_certificates();
        let shown = identity.client().and(shown);
        Self {
            client: shown.and_then(|chain| client_certificate(chain, &identity)),
            identity,
            version: TlsVersion::of(connection).unwrap_or(TlsVersion::Tls12),
            sni: connection.server_name().map(|name| named_host(name).into()),
            protocol: match connection.alpn_protocol() {
                Some(name) if name == Alpn::H2.as_str().as_bytes() => Alpn::H2,
                _ => Alpn::Http11,
            },
            is_resumed: connection.handshake_kind() == Some(HandshakeKind::Resumed),
            entitlement: Entitlement::default(),
        }
    }

    /// Is the client known to be permitted to continue? A changed offer requires a new check.
    #[inline]
    #[must_use]
    pub fn is_known_good(&self, offer: &Offer) -> bool {
        self.entitlement.is_known_good(offer.generation())
    }

    /// Checks whether the client may continue by `offer`, and by the time `now` in seconds since 1970. Returns the
    /// reason if the permission is lost now; `None` if it is unchanged.
    #[must_use]
    pub fn look_up(&self, offer: &Offer, now: i64) -> Option<Error> {
        let validity = self.client.as_ref().map(|client| &client.validity);
        if self.is_lost()
            || self.is_known_good(offer) && !validity.is_some_and(|one| one.has_ended(now))
        {
            return None;
        }
        let judged = match validity {
            Some(validity) => {
                let today = offer.named(self.identity.name());
                match today.and_then(|today| today.client()) {
                    Some(check) => validity.verify(check, now),
                    // No authority is trusted there any more.
                    None => Err(CertificateError::UnknownIssuer.into()),
                }
            }
            None if self.is_asked_for_more(offer) => Err(Error::NoCertificatesPresented),
            None => Ok(()),
        };
        self.entitlement
            .looked_up(offer.generation(), judged.is_err());
        judged.err()
    }

    /// Would the client, which has shown no certificate, get no connection today: by the name that it requested, or by
    /// the identity that it was shown? If neither exists any more, each other identity must admit the client.
    fn is_asked_for_more(&self, offer: &Offer) -> bool {
        let by_name = offer.choose(self.sni.as_deref());
        let asked = by_name.into_iter().chain(offer.named(self.identity.name()));
        let demands = asked.map(|identity| identity.demands_certificates());
        let demanded = demands.reduce(|one, other| one || other);
        demanded.unwrap_or_else(|| offer.demands_everywhere())
    }

    /// Is the client not permitted to continue?
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.entitlement.is_lost()
    }

    /// Cuts unfinished requests if their time is over. Returns true if that happens now.
    pub fn cut_late(&self, now: Instant) -> bool {
        self.entitlement.cut_late(now)
    }

    /// Resolves when the client may no longer continue.
    pub async fn lost(&self) {
        self.entitlement.lost().await;
    }

    /// Resolves when unfinished requests are to be cut.
    pub async fn cut(&self) {
        self.entitlement.cut().await;
    }
}

impl TlsVersion {
    /// The version that both sides of a connection have agreed on; `None` before the agreement.
    #[must_use]
    pub fn of(connection: &ServerConnection) -> Option<Self> {
        match connection.protocol_version()? {
            ProtocolVersion::TLSv1_3 => Some(Self::Tls13),
            ProtocolVersion::TLSv1_2 => Some(Self::Tls12),
            _ => None,
        }
    }
}

/// The host that a client names in its handshake, in the form that [`super::Offer::choose`] takes. rustls has put it in
/// lower case.
#[must_use]
pub fn named_host(sni: &str) -> &str {
    sni.strip_suffix('.').unwrap_or(sni)
}

fn client_certificate(
    chain: &[CertificateDer<'_>],
    identity: &Arc<ServerIdentity>,
) -> Option<ClientCertificate> {
    let facts = CertificateFacts::read(chain.first()?)?;
    Some(ClientCertificate {
        subject: facts.subject.into(),
        fingerprint: facts.fingerprint,
        validity: Validity::new(chain, identity, clock::wall().seconds()),
        field: OnceCell::new(),
    })
}
