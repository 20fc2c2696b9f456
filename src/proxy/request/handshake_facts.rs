//! The facts about the handshake of a request's connection, in the form for limits and the log.

use crate::key::ShownCertificate;
use crate::route::host_key;
use crate::telemetry::access_log::TlsFacts;
use crate::tls::TlsSession;
use http::HeaderValue;

/// The certificate that the client has shown, for limits and groups that use it.
pub(in crate::proxy) fn shown(tls: &TlsSession) -> Option<ShownCertificate<'_>> {
    let (shown, check) = tls.client.as_ref().zip(tls.identity.client())?;
    Some(ShownCertificate {
        subject: &shown.subject,
        fingerprint: &shown.fingerprint,
        authorities: check.authorities_digest(),
    })
}

/// The facts for the log, of a request for `host`.
pub(in crate::proxy) fn logged<'a>(
    tls: &'a TlsSession,
    host: Option<&HeaderValue>,
) -> TlsFacts<'a> {
    let sni = tls.sni.as_deref();
    let host = host.and_then(|host| host.to_str().ok()).map(host_key);
    let subject = || tls.client.as_ref().map(|client| &*client.subject);
    TlsFacts {
        version: tls.version.as_str(),
        identity: tls.identity.name(),
        is_resumed: tls.is_resumed,
        other_sni: (sni != host.as_deref()).then_some(sni),
        client_subject: tls.identity.client().map(|_| subject()),
    }
}
