//! The walk of an explained request, on an assumed connection: its notes, and the facts that are unknown.

use super::arrival;
use super::explanation::{ExpectedAnswer, StrippedField, Unknown};
use super::handshake::HandshakeOutlook;
use crate::acme::{ChallengeKind, OrderedIdentity};
use crate::admission::{Plan, RefusalCause};
use crate::client::Scheme;
use crate::config::Compiled;
use crate::intake::peer::ConnectionPeer;
use crate::intake::stripped_fields::StripCause;
use crate::intake::{
    ConnectionFacts, EarlyAnswer, HeadFacts, IntakeError, Recorder, RequestWalk, Stop,
    challenge_token,
};
use crate::key::ShownCertificate;
use crate::proxy::error::ProxyError;
use crate::route::host_key;
use crate::route::path::NormalPath;
use crate::snapshot::Snapshot;
use crate::tls::is_challenge_token;
use http::request::Parts;
use http::{HeaderMap, HeaderName, Method};
use std::borrow::Cow;
use std::net::IpAddr;

/// The connection that a request would most likely use.
#[derive(Debug)]
pub(super) struct AssumedConnection<'a> {
    peer: ConnectionPeer,
    redirects: bool,
    handshake: Option<&'a HandshakeOutlook>,
    orders: &'a [OrderedIdentity],
}

impl<'a> AssumedConnection<'a> {
    /// The connection from `peer` for the request in `parts`, with or without TLS, and with this outcome of its
    /// handshake.
    pub(super) fn of(
        compiled: &'a Compiled,
        parts: &Parts,
        peer: Option<IpAddr>,
        scheme: Scheme,
        handshake: Option<&'a HandshakeOutlook>,
    ) -> Self {
        Self {
            peer: ConnectionPeer {
                address: peer,
                scheme,
                is_unnamed: false,
            },
            redirects: scheme == Scheme::Http && arrival::is_sent_on(compiled, parts),
            handshake,
            orders: &compiled.orders,
        }
    }
}

impl AssumedConnection<'_> {
    /// May an authority find its text here: is `path` that of a challenge for `host`, for which a certificate is ordered?
    fn may_be_challenge(&self, host: &str, path: &str) -> bool {
        let host = host_key(host);
        let is_ordered = |identity: &OrderedIdentity| {
            let kinds = &identity.authority.challenges;
            kinds.contains(&ChallengeKind::Http01) && identity.hosts.iter().any(|one| *one == host)
        };
        let token = challenge_token(&Method::GET, path);
        token.is_some_and(is_challenge_token) && self.orders.iter().any(is_ordered)
    }
}

impl ConnectionFacts for AssumedConnection<'_> {
    fn peer(&self) -> ConnectionPeer {
        self.peer
    }

    fn redirects(&self) -> bool {
        self.redirects
    }

    fn may_serve<'h>(&self, _host: impl FnOnce() -> Cow<'h, str>) -> bool {
        self.handshake
            .is_none_or(|handshake| !handshake.is_misdirected)
    }

    fn certificate(&self) -> Option<ShownCertificate<'_>> {
        self.handshake?.shown()
    }

    fn may_have_texts(&self) -> bool {
        !self.orders.is_empty()
    }
}

/// The notes of the walk.
#[derive(Debug, Default)]
pub(super) struct WalkNotes {
    pub(super) plan: Plan,
    /// The fields that were dropped, each once.
    pub(super) stripped: Vec<StrippedField>,
    /// The path that routes are matched against; `None` if the walk has ended before.
    pub(super) matched: Option<String>,
    /// The fields with which the route was looked up.
    pub(super) fields: HeaderMap,
    /// The position of the service that takes the request.
    pub(super) service: Option<usize>,
    /// The facts that are unknown.
    pub(super) unknown: Vec<Unknown>,
}

/// The end of a walk.
#[derive(Debug)]
pub(super) enum AssumedEnd {
    /// The limits are planned.
    Planned,
    /// The gateway answers before a route is looked for.
    Early(EarlyAnswer),
    /// The request gets no plan.
    Failed(IntakeError),
    /// A certification authority may look for a text, and may get it.
    Challenged,
}

impl WalkNotes {
    /// Walks the request in `head`, and answers the stops as the gateway does if nothing prevents the request.
    pub(super) fn walk(
        &mut self,
        snapshot: &Snapshot,
        head: &mut HeadFacts<'_, AssumedConnection<'_>>,
    ) -> AssumedEnd {
        let mut walk = RequestWalk::of_head();
        loop {
            match walk.go_on(snapshot, head, self) {
                Ok(Stop::Planned) => return AssumedEnd::Planned,
                Ok(Stop::Answer(answer)) => return AssumedEnd::Early(answer),
                Ok(Stop::ChallengeText) => {
                    let (host, path) = (head.target.host(), head.parts.uri.path());
                    if head.connection.may_be_challenge(host, path) {
                        self.unknown.push(Unknown::ChallengeText);
                        return AssumedEnd::Challenged;
                    }
                }
                // Since no request is sent, no counter is used up, no descriptor is needed and no body arrives.
                Ok(Stop::EarlyQuestion(_) | Stop::OpenFile | Stop::BodyBeginning) => {}
                Err(error) => return AssumedEnd::Failed(error),
            }
        }
    }
}

impl AssumedEnd {
    /// The answer to a request without a plan.
    pub(super) fn answer(self) -> ExpectedAnswer {
        match self {
            Self::Early(EarlyAnswer::Redirect(there)) => {
                let there = String::from_utf8_lossy(there.as_bytes());
                ExpectedAnswer::gateway(308, format!("the listener sends it on to {there}"))
            }
            Self::Early(EarlyAnswer::Here) | Self::Planned => {
                ExpectedAnswer::gateway(204, "it is for the gateway itself".to_owned())
            }
            Self::Challenged | Self::Failed(IntakeError::Refused(RefusalCause::KeysUnread)) => {
                ExpectedAnswer::unknown(None)
            }
            Self::Failed(error) => ExpectedAnswer::refused(&ProxyError::from(error)),
        }
    }
}

impl Recorder for WalkNotes {
    fn plan(&mut self) -> &mut Plan {
        &mut self.plan
    }

    fn dropped(&mut self, name: &HeaderName, why: StripCause) {
        let field = StrippedField {
            name: name.clone(),
            why,
        };
        if !self.stripped.contains(&field) {
            self.stripped.push(field);
        }
    }

    fn path(&mut self, path: &NormalPath<'_>, fields: &HeaderMap) {
        self.matched = Some(path.to_match().to_owned());
        self.fields = fields.clone();
    }

    fn routed(&mut self, service: usize) {
        self.service = Some(service);
    }
}
