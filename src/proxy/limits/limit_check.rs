//! Checks a request against the planned limits: one call to the store for all, and the charges that may be refunded.

use crate::admission::{self, OpenCharges};
use crate::client::Client;
use crate::clock;
use crate::proxy::Worker;
use crate::proxy::error::ProxyError;
use crate::proxy::exchange::Exchange;
use crate::proxy::limits::hold::HoldPermit;
use crate::proxy::limits::reservation::Reservations;
use crate::proxy::limits::wait_queue::Tickets;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::Instant;

impl Worker {
    /// Checks all limits at once. Returns the request's places in queues, if it is to be held.
    pub(in crate::proxy) async fn admit(
        &self,
        exchange: &mut Exchange,
    ) -> Result<Option<(Tickets, HoldPermit)>, ProxyError> {
        let local = Rc::clone(&exchange.local);
        let Some(service) = exchange.decided.route.map(|route| local.service(route)) else {
            return Ok(None);
        };
        if exchange.decided.plan.is_empty() {
            exchange.unasked();
            return Ok(None);
        }
        let admission = admission::ask(&self.store, &exchange.decided.plan, service).await?;
        let asked = clock::now();
        exchange.decided.seen = asked;
        let mut charges =
            admission.open_charges(&exchange.decided.plan, service, self.queues.exist());
        let delay = admission.delay(&exchange.decided.plan, service);
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
        // The request is refused after the charge: dropping the tickets gives the places back.
        if delay > 0 && exchange.is_past_deadline(due) {
            exchange.held_for(Duration::ZERO);
            return Err(ProxyError::DeadlineExceeded);
        }
        let caps = exchange.local.snapshot.holds;
        let held = self.holds.enter(Client::of(exchange.arrived.client), caps);
        Ok((tickets, held.ok_or(ProxyError::TooManyHeld)?))
    }
}
