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
use crate::key::token::TokenReading;
use crate::key::{CustomerReading, ShownCertificate};
use crate::route::host_key;
use crate::route::path::NormalPath;
use crate::snapshot::Snapshot;
use crate::tls::is_challenge_token;
use http::request::Parts;
use http::{HeaderMap, HeaderName, Method};
use std::borrow::Cow;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

/// The connection that a request would most likely use.
#[derive(Debug)]
pub(super) struct AssumedConnection<'a> {
    peer: ConnectionPeer,
    redirects: bool,
    handshake: Option<&'a HandshakeOutlook>,
    orders: &'a [OrderedIdentity],
    customer: Option<&'a str>,
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
            customer: None,
        }
    }

    /// The same connection for a request of this customer.
    pub(super) fn of_customer(self, customer: Option<&'a str>) -> Self {
        Self { customer, ..self }
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

    fn assumed_customer(&self) -> Option<&str> {
        self.customer
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
    /// The limits that are checked before the token is verified, if the token decides which route matches.
    pub(super) before_token: Vec<Arc<str>>,
    /// The result of the verification of the request's token, if a claim was needed.
    pub(super) token: Option<TokenReading>,
    /// The customer, where a limit, a group or a route asks for one.
    pub(super) customer: Option<Rc<CustomerReading>>,
    /// The facts that are unknown.
    pub(super) unknown: Vec<Unknown>,
}

impl WalkNotes {
    /// Walks the request in `head`, and answers the stops as the gateway does if nothing prevents the request. Returns
    /// the position of the service whose limits are planned.
    ///
    /// # Errors
    /// If the request gets no plan: its answer.
    pub(super) fn walk(
        &mut self,
        snapshot: &Snapshot,
        head: &mut HeadFacts<'_, AssumedConnection<'_>>,
    ) -> Result<usize, ExpectedAnswer> {
        let mut walk = RequestWalk::of_head();
        loop {
            match walk.go_on(snapshot, head, self) {
                Ok(Stop::Planned) => {
                    return Ok(self.service.expect("a planned request has a service"));
                }
                Ok(Stop::Answer(answer)) => return Err(early(&answer)),
                Ok(Stop::ChallengeText) => {
                    let (host, path) = (head.target.host(), head.parts.uri.path());
                    if head.connection.may_be_challenge(host, path) {
                        self.unknown.push(Unknown::ChallengeText);
                        return Err(ExpectedAnswer::unknown(None));
                    }
                }
                Ok(Stop::EarlyQuestion(at)) if self.service.is_none() => {
                    let limits = self.plan.limits(&snapshot.services[at]);
                    self.before_token =
                        limits.iter().map(|limit| Arc::clone(&limit.name)).collect();
                    // The rates of one limit appear once.
                    self.before_token.dedup();
                }
                // Since no request is sent, no counter is used up, no descriptor is needed and no body arrives.
                Ok(Stop::EarlyQuestion(_) | Stop::OpenFile | Stop::BodyBeginning) => {}
                Err(IntakeError::Refused(RefusalCause::KeysUnread)) => {
                    self.unknown.push(Unknown::KeysByUrl);
                    return Err(ExpectedAnswer::unknown(None));
                }
                Err(error) => return Err(ExpectedAnswer::refused(&error.into())),
            }
        }
    }
}

/// The expected answer before a route is looked for.
fn early(answer: &EarlyAnswer) -> ExpectedAnswer {
    match answer {
        EarlyAnswer::Here => {
            ExpectedAnswer::gateway(204, "it is for the gateway itself".to_owned())
        }
        EarlyAnswer::Redirect(there) => {
            let there = String::from_utf8_lossy(there.as_bytes());
            ExpectedAnswer::gateway(308, format!("the listener sends it on to {there}"))
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

    fn token(&mut self, reading: TokenReading) {
        self.token = Some(reading);
    }

    fn customer(&mut self, reading: Rc<CustomerReading>) {
        self.customer = Some(reading);
    }
}
