//! Holds a request to its limits: plans them, asks the store once for all, and keeps the charges that may go back.

use super::Worker;
use super::error::ProxyError;
use super::exchange::Exchange;
use super::handshake_facts;
use super::hold::HoldPermit;
use super::request::Target;
use super::reservation::Reservations;
use super::wait_queue::Tickets;
use crate::admission::destination::Destination;
use crate::admission::{self, Admission, OpenCharges};
use crate::client::Client;
use crate::clock;
use crate::key::Caller;
use crate::key::cookie::Cookies;
use crate::key::token::Token;
use crate::limit::Limit;
use crate::snapshot::Service;
use http::request::Parts;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::Instant;

impl Worker {
    /// Asks all limits at once. Returns the request's places in queues, if it is to be held.
    pub(super) async fn admit(
        &self,
        target: &Target,
        parts: &Parts,
        exchange: &mut Exchange,
    ) -> Result<Option<(Tickets, HoldPermit)>, ProxyError> {
        let local = Rc::clone(&exchange.local);
        let Some(service) = exchange.route.map(|route| local.service(route)) else {
            return Ok(None);
        };
        let refusal = self.plan(service, target, parts, exchange);
        if exchange.plan.is_empty() {
            exchange.unasked();
            return Ok(None);
        }
        let admission = match refusal {
            Some(refusal) => refusal,
            None => admission::ask(&self.store, &exchange.plan, service).await?,
        };
        let asked = clock::now();
        exchange.seen = asked;
        let mut charges = admission.open_charges(&exchange.plan, service, self.queues.exist());
        let delay = admission.delay(&exchange.plan, service);
        if delay.as_ref().is_ok_and(|delay| *delay == 0) && !self.queues.is_any(&charges.places) {
            charges.leave_queues();
        }
        let reservation = Reservations::keep(&self.store, &mut charges);
        exchange.decided(admission, reservation);
        let delay = delay?;
        if delay == 0 && charges.places.is_empty() {
            return Ok(None);
        }
        self.held(delay, asked, charges, exchange).map(Some)
    }

    /// The places in queues of a request that is to be held for `delay` microseconds.
    #[inline(never)]
    fn held(
        &self,
        delay: u64,
        asked: Instant,
        charges: OpenCharges,
        exchange: &mut Exchange,
    ) -> Result<(Tickets, HoldPermit), ProxyError> {
        if delay > 0 {
            exchange.delayed(delay);
        }
        let due = asked + Duration::from_micros(delay);
        let tickets = Tickets::new(&self.queues, charges.places, asked, due);
        // The request is refused after having been charged: dropping the tickets gives the places back.
        if delay > 0 && exchange.is_past_deadline(due) {
            exchange.held_for(Duration::ZERO);
            return Err(ProxyError::DeadlineExceeded);
        }
        let caps = exchange.local.snapshot.holds;
        let held = self.holds.enter(Client::of(exchange.client), caps);
        Ok((tickets, held.ok_or(ProxyError::TooManyHeld)?))
    }

    /// Plans the request's limits with their keys. Where some of them would need its token verified, and others are
    /// known to refuse it, the plan has only those others, with their refusal. A forged token is then no dearer for the
    /// gateway than any other request.
    fn plan(
        &self,
        service: &Service,
        target: &Target,
        parts: &Parts,
        exchange: &mut Exchange,
    ) -> Option<Admission> {
        let token = Token::new(exchange.local.snapshot.tokens.as_deref(), &parts.headers)
            .knowing(exchange.token.take());
        let caller = Caller {
            address: exchange.client,
            route: &service.name,
            method: &parts.method,
            fields: &parts.headers,
            location: &Destination {
                authority: target.host(),
                path: parts.uri.path(),
                query: parts.uri.query(),
                pattern: &service.path,
            },
            cookies: &Cookies::of(&parts.headers),
            identity: &token,
            content: exchange.content,
            certificate: exchange.tls.as_deref().and_then(handshake_facts::shown),
        };
        let plan = &mut exchange.plan;
        plan.make_room(service);
        if !token.is_there() || !service.limits.iter().any(|limit| limit.asks_token()) {
            plan.fill(service, &caller, |_| true);
            exchange.token = token.reading().filter(|_| is_read_again(exchange, service));
            return None;
        }
        plan.fill(service, &caller, |limit| !limit.asks_token());
        let refusal = self.store.refusal(&plan.checks(service));
        if let Some((decided, by)) = refusal {
            let decided = Some(Box::new(decided));
            return Some(Admission { decided, by });
        }
        plan.fill(service, &caller, Limit::asks_token);
        plan.sort();
        exchange.token = token.reading().filter(|_| is_read_again(exchange, service));
        None
    }
}

/// Is the client read once more behind its limits?
#[cold]
fn is_read_again(exchange: &Exchange, service: &Service) -> bool {
    let keys = &exchange.local.snapshot.hash_keys;
    let identity = service.identity.as_ref();
    identity.is_some_and(|identity| !identity.fields.is_empty())
        || service
            .upstream
            .is_some_and(|server| keys[server].is_some())
}
