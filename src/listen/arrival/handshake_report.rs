//! Metrics and log lines about handshakes. A failed handshake has no request, so that its cause is in the diagnostic
//! log: one line a minute for each cause.

use super::handshake::{FailedHandshake, HandshakeFailure};
use super::refused_chains::{MOST, WITHIN};
use crate::client::spelled;
use crate::listen::Peer;
use crate::telemetry::log::{Throttle, Throttles};
use crate::telemetry::metrics::Handshake;
use crate::tls::{ServerIdentity, TlsSession, TlsVersion, certificate_fault};
use rustls::{AlertDescription, CertificateError, Error, PeerIncompatible};
use std::time::Duration;

/// The least time between two lines about handshakes that failed for one cause.
const LOG_EVERY: Duration = Duration::from_secs(60);
/// The least time between two lines about checks by authorities.
const LOOKS_EVERY: Duration = Duration::from_secs(1);

/// Counts a successful handshake.
pub(super) fn succeeded(session: &TlsSession, peer: &Peer) {
    let end = if session.is_resumed {
        Handshake::Resumed
    } else {
        Handshake::Full
    };
    let identity = Some(session.identity.name());
    peer.metric
        .handshake(identity, Some(session.version.as_str()), end);
}

/// Counts a check by a certification authority, and logs its host.
#[cold]
pub(in crate::listen) fn challenge(host: &str, peer: &Peer) {
    static LOOKS: Throttle = Throttle::every(LOOKS_EVERY);
    peer.metric.handshake(None, None, Handshake::Challenge);
    if let Some(more) = LOOKS.pass() {
        let from = spelled(peer.ip());
        tracing::info!("{from} has found {host} to be ours, by tls-alpn-01{more}");
    }
}

/// Counts a failed handshake, and logs the cause.
#[cold]
pub(in crate::listen) fn failed(failed: &FailedHandshake, peer: &Peer) {
    let end = match &failed.cause {
        HandshakeFailure::Silent => return,
        HandshakeFailure::NoName(_) => Handshake::NoName,
        HandshakeFailure::Client(_) => Handshake::ClientRefused,
        HandshakeFailure::ClientThrottled => Handshake::ClientThrottled,
        HandshakeFailure::Late => Handshake::Timeout,
        HandshakeFailure::PlainText
        | HandshakeFailure::ProxyHeader
        | HandshakeFailure::Protocol(_)
        | HandshakeFailure::Left => Handshake::Protocol,
    };
    let identity = failed.identity.as_deref().map(ServerIdentity::name);
    let version = failed.version.map(TlsVersion::as_str);
    peer.metric.handshake(identity, version, end);
    log(failed, peer);
}

fn log(failed: &FailedHandshake, peer: &Peer) {
    static FAILURES: Throttles<14> = Throttles::every(LOG_EVERY);
    let cause = match &failed.cause {
        HandshakeFailure::PlainText => 0,
        HandshakeFailure::ProxyHeader => 1,
        HandshakeFailure::NoName(_) => 2,
        HandshakeFailure::Late => 3,
        HandshakeFailure::Client(Error::NoCertificatesPresented) => 4,
        HandshakeFailure::Client(why) => 5 + kind_of(why),
        HandshakeFailure::ClientThrottled => 9,
        HandshakeFailure::Protocol(why) => 10 + kind_of_disagreement(why),
        // A client that leaves requires no action.
        HandshakeFailure::Silent | HandshakeFailure::Left => return,
    };
    if let Some(more) = FAILURES.pass(cause) {
        let (from, why) = (spelled(peer.ip()), words(failed));
        tracing::info!("no TLS with {from}: {why}{more}");
    }
}

/// Groups refused certificates by the action that they require: expired ones, revoked ones, ones of unknown
/// authorities, and all others.
fn kind_of(error: &Error) -> usize {
    use CertificateError as Bad;
    match error {
        Error::InvalidCertificate(Bad::Expired | Bad::ExpiredContext { .. }) => 0,
        Error::InvalidCertificate(Bad::Revoked) => 1,
        Error::InvalidCertificate(Bad::UnknownIssuer | Bad::BadSignature) => 2,
        _ => 3,
    }
}

/// Groups handshakes without agreement: the client accepts nothing that is offered, refuses the certificate, or
/// violates the protocol.
fn kind_of_disagreement(error: &Error) -> usize {
    match error {
        Error::PeerIncompatible(_) => 0,
        Error::NoApplicationProtocol => 1,
        Error::AlertReceived(_) => 2,
        _ => 3,
    }
}

/// The point on which the two sides do not agree.
fn disagreement(error: &Error) -> String {
    use PeerIncompatible as Bad;
    match error {
        Error::NoApplicationProtocol => {
            "it speaks no protocol of `alpn`".into()
        }
        Error::PeerIncompatible(
            Bad::Tls12NotOffered
            | Bad::Tls12NotOfferedOrEnabled
            | Bad::SupportedVersionsExtensionRequired,
        ) => "it speaks no version of TLS from `min` on".into(),
        Error::PeerIncompatible(why) => format!(
            "it has no cipher suite, key exchange or signature in common with this gateway ({why:?})"
        ),
        Error::AlertReceived(AlertDescription::UnknownCA) => {
            "it does not trust the authority of our certificate (UnknownCA): does `cert` have the intermediate certificates after its own?".into()
        }
        Error::AlertReceived(alert) => format!("it ends the handshake ({alert:?})"),
        other => other.to_string(),
    }
}

fn lacks_certificate(failed: &FailedHandshake) -> bool {
    failed
        .identity
        .as_deref()
        .is_some_and(ServerIdentity::is_pending)
}

fn words(failed: &FailedHandshake) -> String {
    let of_identity = || match failed.identity.as_deref().map(ServerIdentity::name) {
        Some(name) => format!(" (identity `{name}`)"),
        None => String::new(),
    };
    match &failed.cause {
        HandshakeFailure::PlainText => {
            "it does not speak TLS on a port that does; it got a 400 in clear text".into()
        }
        HandshakeFailure::ProxyHeader => {
            "it begins with a header of the PROXY protocol, which the listener takes once, from the peers in its `proxy_protocol`".into()
        }
        HandshakeFailure::NoName(Some(host)) => format!(
            "it asks for `{host}`, which no identity of the listener has; an identity with `default = true` in its table `[tls.NAME]` would answer"
        ),
        HandshakeFailure::NoName(None) => {
            "it names no host, and the listener has no default identity; `default = true` in a table `[tls.NAME]` makes one".into()
        }
        HandshakeFailure::Client(Error::NoCertificatesPresented) => {
            format!("it shows no certificate, which `client` demands{}", of_identity())
        }
        HandshakeFailure::Client(Error::InvalidCertificate(why)) => {
            let why = certificate_fault(why);
            format!("its certificate is refused: {why}{}", of_identity())
        }
        HandshakeFailure::ClientThrottled => {
            format!(
                "{MOST} of its certificates were refused within {} s; none is verified until these {} s are over{}",
                WITHIN.as_secs(),
                WITHIN.as_secs(),
                of_identity()
            )
        }
        HandshakeFailure::Protocol(_) if lacks_certificate(failed) => {
            format!("the certificate for its host is ordered and has not come yet{}", of_identity())
        }
        HandshakeFailure::Client(why) => format!("{why}{}", of_identity()),
        HandshakeFailure::Protocol(why) => format!("{}{}", disagreement(why), of_identity()),
        HandshakeFailure::Late => {
            format!("its handshake took longer than `server.handshake`{}", of_identity())
        }
        HandshakeFailure::Silent | HandshakeFailure::Left => "it has left".into(),
    }
}
