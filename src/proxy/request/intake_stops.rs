//! A request's intake: the walk from its head to its plan, the gateway's actions at its stops, and the notes for the
//! exchange.

use crate::admission::{Admission, Plan};
use crate::clock;
use crate::descriptors::DescriptorReserve;
use crate::intake::grpc_call::CallDeadline;
use crate::intake::head::Target;
use crate::intake::peer::ConnectionPeer;
use crate::intake::{
    ConnectionFacts, EarlyAnswer, HeadFacts, IntakeError, Recorder, RequestWalk, Stop,
    dropped_names,
};
use crate::key::token::TokenReading;
use crate::key::{CustomerReading, ShownCertificate};
use crate::listen::Peer;
use crate::proxy::error::ProxyError;
use crate::proxy::exchange::Exchange;
use crate::proxy::request::early_reply::{challenged, redirected, reply_here};
use crate::proxy::request::{authority_challenge, handshake_facts};
use crate::proxy::{Reply, Worker};
use crate::snapshot::Service;
use crate::tls::AuthorityChallenges;
use http::request::Parts;
use http::{HeaderName, HeaderValue};
use hyper::body::Incoming;
use std::borrow::Cow;
use std::cell::OnceCell;
use std::rc::Rc;

/// A head in the gateway's form.
pub(in crate::proxy) type GatewayHead<'a> = HeadFacts<'a, GatewayConnection<'a>>;

/// The connection of a request at the gateway.
#[derive(Debug, Clone, Copy)]
pub(in crate::proxy) struct GatewayConnection<'a> {
    peer: &'a Peer,
    connection_peer: ConnectionPeer,
    challenges: &'a AuthorityChallenges,
}

impl ConnectionFacts for GatewayConnection<'_> {
    #[inline]
    fn peer(&self) -> ConnectionPeer {
        self.connection_peer
    }

    #[inline]
    fn redirects(&self) -> bool {
        self.peer.redirects
    }

    #[inline]
    fn may_serve<'h>(&self, host: impl FnOnce() -> Cow<'h, str>) -> bool {
        self.peer.may_serve(host)
    }

    #[inline]
    fn certificate(&self) -> Option<ShownCertificate<'_>> {
        handshake_facts::shown(self.peer.tls()?)
    }

    #[inline]
    fn may_have_texts(&self) -> bool {
        self.challenges.has_texts()
    }
}

/// The end of a request without a plan.
pub(in crate::proxy) enum Unplanned {
    /// The request is already answered. Boxed, since an answer is large, and most requests have none yet.
    Answered(Box<Reply>),
    /// The request is refused.
    Failed(ProxyError),
}

impl From<ProxyError> for Unplanned {
    fn from(error: ProxyError) -> Self {
        Self::Failed(error)
    }
}

impl From<Reply> for Unplanned {
    fn from(reply: Reply) -> Self {
        Self::Answered(Box::new(reply))
    }
}

impl Worker {
    /// The facts that the walk of a request reads.
    #[inline]
    pub(in crate::proxy) fn head<'a>(
        &'a self,
        parts: &'a mut Parts,
        peer: &'a Peer,
        exchange: &Exchange,
    ) -> GatewayHead<'a> {
        HeadFacts {
            parts,
            connection: GatewayConnection {
                peer,
                connection_peer: exchange.arrived.peer,
                challenges: &self.challenges,
            },
            target: Target::default(),
            client: exchange.arrived.client,
            content: exchange.call.content,
            call_began: exchange.call_began(),
        }
    }

    /// Walks a request to its plan, which is in the exchange. It then has a descriptor for a server's connection, if it
    /// may need one.
    pub(in crate::proxy) async fn take_in(
        &self,
        head: &mut GatewayHead<'_>,
        incoming: &mut Option<Incoming>,
        exchange: &mut Exchange,
    ) -> Result<Option<DescriptorReserve<'_>>, Unplanned> {
        let (local, mut walk) = (Rc::clone(&exchange.local), RequestWalk::of_head());
        let mut reserve = None;
        loop {
            match walk.go_on(&local.snapshot, head, exchange) {
                Ok(Stop::Planned) => return Ok(reserve),
                Ok(Stop::OpenFile) => reserve = Some(self.open_file()?),
                Ok(Stop::EarlyQuestion(service)) => self.early_refusal(service, exchange)?,
                // The futures are boxed: no other request needs room for them.
                Ok(Stop::BodyBeginning) => {
                    Box::pin(self.read_ahead(head, incoming, exchange)).await?;
                }
                Ok(Stop::ChallengeText) => {
                    let (parts, host) = (&*head.parts, head.target.host());
                    let text = authority_challenge::challenge_text(
                        &self.challenges,
                        parts,
                        host,
                        head.client,
                    );
                    if let Some(text) = Box::pin(text).await {
                        return Err(challenged(&text, head.parts, exchange).into());
                    }
                }
                Ok(Stop::Answer(EarlyAnswer::Here)) => return Err(reply_here().into()),
                Ok(Stop::Answer(EarlyAnswer::Redirect(there))) => {
                    return Err(redirected(there, exchange).into());
                }
                Err(IntakeError::Misdirected) => {
                    return Err(misdirected(head.connection.peer, exchange).into());
                }
                Err(error) => return Err(ProxyError::from(error).into()),
            }
        }
    }

    /// The refusal of a request before its token is verified, by the planned limits. Otherwise each forged token would
    /// cost a signature check, even if limits refuse its client repeatedly. No charge is made, and no store is called.
    #[cold]
    #[inline(never)]
    fn early_refusal(&self, service: usize, exchange: &mut Exchange) -> Result<(), ProxyError> {
        let local = Rc::clone(&exchange.local);
        let of = local.service(service);
        let Some((decided, by)) = self.store.refusal(&exchange.decided.plan.checks(of)) else {
            return Ok(());
        };
        let admission = Admission {
            decided: Some(Box::new(decided)),
            by,
        };
        let Err(cause) = admission.delay(&exchange.decided.plan, of) else {
            return Ok(());
        };
        exchange.matched(service);
        exchange.decided.seen = clock::now();
        exchange.decided(admission, None);
        Err(cause.into())
    }

    /// Reads the beginning of the body, if a limit recognises repeats by it.
    async fn read_ahead(
        &self,
        head: &mut GatewayHead<'_>,
        incoming: &mut Option<Incoming>,
        exchange: &mut Exchange,
    ) -> Result<(), ProxyError> {
        let local = Rc::clone(&exchange.local);
        let service: Option<&Service> = exchange.decided.route.map(|route| local.service(route));
        let (Some(service), Some(incoming)) = (service, incoming) else {
            return Ok(());
        };
        let fields = &head.parts.headers;
        let reading = self
            .prefixes
            .read_ahead(incoming, fields, service, exchange.arrived.client);
        if let Some(ahead) = reading.await.map_err(|failure| exchange.broken(failure))? {
            exchange.call.content = ahead.content;
            head.content = ahead.content;
            exchange.call.prefix = Some(ahead.prefix);
        }
        Ok(())
    }
}

/// The cause for which a connection may not serve a request. The answer is the connection's last one if its client is
/// no longer trusted.
#[cold]
fn misdirected(peer: &Peer, exchange: &mut Exchange) -> ProxyError {
    if peer.is_barred() {
        exchange.is_last();
    }
    match &exchange.arrived.tls {
        Some(session) if session.client.is_some() && session.is_lost() => ProxyError::Dismissed,
        _ => ProxyError::Misdirected,
    }
}

impl Recorder for Exchange {
    #[inline]
    fn plan(&mut self) -> &mut Plan {
        &mut self.decided.plan
    }

    #[inline]
    fn host(&mut self, host: Option<HeaderValue>) {
        self.arrived.host = host;
    }

    #[inline]
    fn call_deadline(&mut self, deadline: Option<CallDeadline>) {
        if let Some(call) = &mut self.call.grpc {
            call.has_deadline(deadline);
        }
    }

    #[cold]
    fn misread(&mut self, names: &[HeaderName]) {
        self.count_misread(names.len() as u64);
        dropped_names::warn(names, self.arrived.client, self.decided.seen);
    }

    #[inline]
    fn routed(&mut self, service: usize) {
        self.matched(service);
    }

    #[inline]
    fn customer(&mut self, reading: Rc<CustomerReading>) {
        self.decided.customer = OnceCell::from(reading);
    }

    #[cold]
    fn token(&mut self, reading: TokenReading) {
        self.keep_token(reading);
    }
}
