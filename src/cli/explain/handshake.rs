//! The handshake before a request: the identity that the client gets, the acceptance of its certificate, and whether
//! the connection may serve the request's host.

use super::arrival::{asked_port, is_on};
use crate::clock;
use crate::config::Compiled;
use crate::config::describe::show_instant;
use crate::key::ShownCertificate;
use crate::listen::listener::Listener;
use crate::route::host_key;
use crate::tls::{CertificateFacts, ChosenBy, ClientVerify, Offer, ServerIdentity};
use http::header;
use http::request::Parts;
use serde::Serialize;
use std::sync::Arc;

/// The client's side of a handshake.
#[derive(Debug, Default)]
pub(super) struct ClientHandshake {
    /// The host that the client names (SNI), in lower case; `None` if it names none.
    pub(super) sni: Option<String>,
    /// The certificate that the client shows, as PEM.
    pub(super) certificate: Option<Vec<u8>>,
}

/// The outcome of a handshake.
#[derive(Debug, Serialize)]
pub(super) struct HandshakeOutlook {
    /// The address of the listener.
    listener: String,
    sni: Option<String>,
    /// The name of the identity that the client gets, if any.
    identity: Option<String>,
    /// The reason why the client gets that identity, or none.
    why: String,
    /// The treatment of the client's certificate, if one is shown or requested.
    #[serde(rename = "client_certificate")]
    certificate: Option<String>,
    /// The accepted certificate.
    #[serde(skip)]
    taken: Option<TakenCertificate>,
    /// The authority of an ordered certificate, and whether the certificate has been issued.
    #[serde(rename = "acme")]
    order: Option<String>,
    /// Is the handshake refused?
    #[serde(rename = "refused")]
    pub(super) is_refused: bool,
    /// Does the request belong on another connection, since this one may not serve its host?
    #[serde(rename = "misdirected")]
    pub(super) is_misdirected: bool,
}

/// A client's certificate that the identity accepts.
#[derive(Debug)]
struct TakenCertificate {
    facts: CertificateFacts,
    authorities: [u8; 32],
}

impl HandshakeOutlook {
    /// The certificate that limits and groups use.
    pub(super) fn shown(&self) -> Option<ShownCertificate<'_>> {
        let taken = self.taken.as_ref()?;
        Some(ShownCertificate {
            subject: &taken.facts.subject,
            fingerprint: &taken.facts.fingerprint,
            authorities: &taken.authorities,
        })
    }

    /// Lines with their titles.
    pub(super) fn lines(&self) -> Vec<(&'static str, String)> {
        let listener = &self.listener;
        let identity = match &self.identity {
            Some(name) => format!("identity {name} of listener {listener}: {}", self.why),
            None => format!("no identity of listener {listener}: {}", self.why),
        };
        let order = self.order.clone().map(|text| ("", text));
        let certificate = self.certificate.clone().map(|text| ("", text));
        let other = "the host belongs to another identity, and one of the two demands or asks for certificates: the request needs a connection for its host";
        let misdirected = self.is_misdirected.then(|| ("", other.to_owned()));
        let lines = [Some(("tls", identity)), order, certificate, misdirected];
        lines.into_iter().flatten().collect()
    }
}

/// The outcome of a handshake with the listener that the client most likely means: among listeners on the request's
/// port, the first with an identity for the name, else the first. `None` if no listener has TLS.
pub(super) fn outlook(
    compiled: &Compiled,
    client: &ClientHandshake,
    request: &Parts,
) -> Option<HandshakeOutlook> {
    let field = request.headers.get(header::HOST);
    let field = field.and_then(|host| host.to_str().ok());
    // The target's own host outranks the field (RFC 9112 section 3.2.2).
    let authority = request.uri.authority().map(|authority| authority.as_str());
    let authority = authority.map(|authority| {
        authority
            .rsplit_once('@')
            .map_or(authority, |(_, host)| host)
    });
    let host = &*host_key(authority.or(field).unwrap_or_default());
    let named = client.sni.as_deref().unwrap_or(host);
    let sni = Some(named).filter(|name| !name.is_empty());
    let listeners = compiled.boot.listen.listeners.iter().zip(&compiled.offers);
    let mut all: Vec<(&Listener, &Offer)> = listeners
        .filter_map(|(listener, offer)| Some((listener, offer.as_ref()?)))
        .collect();
    let port = asked_port(request);
    let is_there = |(listener, _): &(&Listener, _)| port.is_some_and(|port| is_on(listener, port));
    if all.iter().any(is_there) {
        all.retain(is_there);
    }
    let has = |offer: &Offer| {
        let choice = offer.choice(sni);
        choice.is_some_and(|(_, by)| by != ChosenBy::Default)
    };
    let (listener, offer) = all
        .iter()
        .find(|(_, offer)| has(offer))
        .or(all.first())
        .copied()?;
    let choice = offer.choice(sni);
    let identity = choice.map(|(identity, _)| identity);
    let order = identity.and_then(|identity| order(compiled, identity));
    let is_pending = identity.is_some_and(|identity| identity.is_pending());
    let certificate = identity.map(|identity| certificate(identity, client));
    let certificate = certificate.unwrap_or(CertificateOutlook {
        is_refused: true,
        ..CertificateOutlook::default()
    });
    let is_refused = certificate.is_refused || is_pending;
    let serves = identity.is_some_and(|identity| offer.may_serve(identity, Some(host)));
    Some(HandshakeOutlook {
        listener: listener.address.to_string(),
        why: why(choice, sni),
        order,
        identity: identity.map(|identity| identity.name().to_owned()),
        certificate: certificate.text,
        taken: certificate.taken,
        is_refused,
        is_misdirected: !is_refused && !serves,
        sni: sni.map(str::to_owned),
    })
}

/// The authority from which the certificate of an identity is ordered, and whether the certificate has been issued;
/// `None` if the certificate is a file.
fn order(compiled: &Compiled, identity: &ServerIdentity) -> Option<String> {
    let mut orders = compiled.orders.iter();
    let order = orders.find(|one| *one.name == *identity.name())?;
    let from = &order.authority.name;
    let end = identity.facts().not_after;
    Some(if identity.is_pending() {
        format!(
            "its certificate is ordered from {from} and has not come yet: the handshake is refused until then"
        )
    } else {
        format!(
            "its certificate is ordered from {from}, and the kept certificate ends at {}",
            show_instant(end)
        )
    })
}

fn why(choice: Option<(&Arc<ServerIdentity>, ChosenBy)>, sni: Option<&str>) -> String {
    let Some((identity, by)) = choice else {
        return match sni {
            Some(sni) => {
                format!("none is for {sni}, none is the default, and the handshake is refused")
            }
            None => "the client names no host, none is the default, and the handshake is refused"
                .to_owned(),
        };
    };
    let Some(sni) = sni else {
        return "it is the default, and the client names no host".to_owned();
    };
    let mut hosts = identity.hosts().iter();
    match by {
        ChosenBy::Name => {
            let host_name = hosts.find(|host| host.covers(sni));
            let host_name = host_name.map_or_else(|| sni.to_owned(), ToString::to_string);
            format!("it is for {host_name}")
        }
        ChosenBy::Demand => {
            let above = hosts.find(|host| host.is_above(sni));
            let above = above.map_or_else(|| sni.to_owned(), ToString::to_string);
            format!("it demands certificates for every host below {above}")
        }
        ChosenBy::Default => format!("it is the default, and none is for {sni}"),
    }
}

/// The treatment of the client's certificate.
#[derive(Default)]
struct CertificateOutlook {
    text: Option<String>,
    taken: Option<TakenCertificate>,
    is_refused: bool,
}

fn certificate(identity: &ServerIdentity, client: &ClientHandshake) -> CertificateOutlook {
    let said = |text: String, is_refused| CertificateOutlook {
        text: Some(text),
        taken: None,
        is_refused,
    };
    let shown = client.certificate.as_deref();
    let Some(check) = identity.client() else {
        let unasked = shown.map(|_| "clients are not asked for a certificate".to_owned());
        return CertificateOutlook {
            text: unasked,
            ..CertificateOutlook::default()
        };
    };
    match (shown, check.verify()) {
        (None, ClientVerify::Optional) => {
            said("the client shows no certificate, which is allowed".to_owned(), false)
        }
        (None, ClientVerify::Required) => said(
            "the client shows no certificate, and the handshake is refused; name one with --client-cert".to_owned(),
            true,
        ),
        (Some(pem), _) => match check.judge(pem, clock::wall().micros() / 1_000_000) {
            Ok(facts) => CertificateOutlook {
                text: Some(format!("the client's certificate is accepted: {}", facts.subject)),
                taken: Some(TakenCertificate {
                    facts,
                    authorities: *check.authorities_digest(),
                }),
                is_refused: false,
            },
            Err(why) => said(
                format!("the client's certificate is not accepted, and the handshake is refused: {why}"),
                true,
            ),
        },
    }
}
