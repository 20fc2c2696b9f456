//! Waits out a leaky bucket. The wait is bounded and in order, and it ends when the client leaves or draining would cut
//! it.

use crate::admission::HeldRequests;
use crate::client::Client;
use crate::clock;
use crate::limit::verdict::Wait;
use crate::listen::Peer;
use crate::proxy::Worker;
use crate::proxy::error::ProxyError;
use crate::proxy::exchange::Exchange;
use crate::proxy::limits::wait_queue::{Tickets, WaitQueues, WaitTooLong};
use crate::snapshot::HoldCaps;
use crate::store::Reservation;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// The shortest hold during which the client is watched. A leaving client is detected within a second; a shorter hold
/// is over before a watch would pay.
const WORTH_WATCHING: Duration = Duration::from_millis(300);
/// The time that must remain for forwarding: a hold that would end closer than this to the end of draining is not
/// completed.
const FORWARDING: Duration = Duration::from_millis(500);

/// The held requests of this gateway, of all workers together.
#[derive(Debug, Default)]
pub struct Holds {
    held: Mutex<HeldRequests>,
    /// The queues that they wait in.
    pub(in crate::proxy) queues: Arc<WaitQueues>,
}

/// One held request; dropping it makes room.
#[derive(Debug)]
pub struct HoldPermit {
    holds: Arc<Holds>,
    client: Client,
}

impl Worker {
    /// Waits out a leaky bucket, without reading the body. The request counts as held until then.
    pub(in crate::proxy) async fn hold(
        &self,
        places: Tickets,
        permit: HoldPermit,
        peer: &Peer,
        exchange: &mut Exchange,
    ) -> Result<(), ProxyError> {
        let began = clock::now();
        let mut counted = exchange.counted_as_held(began);
        let held = self.wait(&places, exchange.call_deadline(), peer).await;
        exchange.decided.seen = clock::now();
        let time = exchange.decided.seen.saturating_duration_since(began);
        if places.are_put_off() {
            // The time may exceed the store's delay, since the gateway was paused.
            exchange.delayed(clock::micros(time));
            // The store may have given no delay, and the request is after late ones.
            counted = counted.or_else(|| exchange.counted_as_held(began));
        }
        drop((counted, permit));
        exchange.held_for(time);
        let used = held?;
        if let Some(reservation) = &exchange.decided.reservation {
            reservation.keep_places(used);
        }
        Ok(())
    }

    /// Waits until the turn of a request. Returns the places that it has used up. These are given back if the request
    /// is abandoned before it is forwarded, as after others have left.
    ///
    /// # Errors
    /// If the client leaves, draining would cut it before it could be forwarded, or its turn would come too late: for
    /// the limit, or for the `deadline` of a call.
    async fn wait(
        &self,
        places: &Tickets,
        deadline: Option<Instant>,
        peer: &Peer,
    ) -> Result<Vec<Reservation>, ProxyError> {
        let wait = places.until().saturating_duration_since(clock::now());
        let gone = async {
            if wait > WORTH_WATCHING {
                peer.watch.gone().await
            } else {
                std::future::pending().await
            }
        };
        let cut_by_drain = async {
            self.drain.begun().await;
            match self.drain.deadline() {
                Some(deadline) if places.until() + FORWARDING > deadline => {}
                _ => std::future::pending().await,
            }
        };
        let late = async {
            match deadline {
                Some(deadline) => sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        let turn = async {
            loop {
                match places.go_on(clock::now())? {
                    Some(used) => return Ok(used),
                    None => tokio::select! {
                        biased;
                        () = sleep_until(places.until()) => {}
                        () = places.changed() => {}
                    },
                }
            }
        };
        tokio::select! {
            biased;
            went = turn => went,
            () = gone => Err(ProxyError::ClientGone),
            () = cut_by_drain => Err(ProxyError::Draining),
            () = late => Err(ProxyError::DeadlineExceeded),
        }
    }
}

impl From<WaitTooLong> for ProxyError {
    fn from(WaitTooLong { limit, retry_after }: WaitTooLong) -> Self {
        let retry_after = clock::micros(retry_after);
        Self::limited(&limit, Wait::Micros(retry_after))
    }
}

impl Holds {
    /// A place among the held requests, unless a bound is reached.
    #[must_use]
    pub fn enter(self: &Arc<Self>, client: Client, caps: HoldCaps) -> Option<HoldPermit> {
        let is_held = self.held().enter(client, caps);
        is_held.then(|| HoldPermit {
            holds: Arc::clone(self),
            client,
        })
    }

    fn held(&self) -> MutexGuard<'_, HeldRequests> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for HoldPermit {
    fn drop(&mut self) {
        self.holds.held().leave(self.client);
    }
}
