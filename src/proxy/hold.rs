//! Waits out a leaky bucket: bounded, in order, given up when the client leaves or draining would cut it.

use super::Worker;
use super::error::ProxyError;
use super::exchange::Exchange;
use super::wait_queue::{Tickets, WaitQueues, WaitTooLong};
use crate::client::Client;
use crate::clock;
use crate::limit::verdict::Wait;
use crate::listen::Peer;
use crate::shutdown::Drain;
use crate::snapshot::HoldCaps;
use crate::store::Reservation;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::sleep_until;

/// A client that leaves is noticed within a second; a shorter hold is over before watching for it would pay.
const WORTH_WATCHING: Duration = Duration::from_millis(300);
/// A hold that would end closer than this to the end of draining is not finished.
const FORWARDING: Duration = Duration::from_millis(500);

/// Requests held in this gateway, all workers together.
#[derive(Debug, Default)]
pub struct Holds {
    total: AtomicUsize,
    clients: Mutex<HashMap<Client, usize>>,
    /// The lines that they stand in.
    pub(super) queues: Arc<WaitQueues>,
}

/// One held request; dropping it makes room.
#[derive(Debug)]
pub struct HoldPermit {
    holds: Arc<Holds>,
    client: Client,
}

/// Why a hold ended before its time.
#[derive(Debug)]
pub enum HoldCut {
    /// The gateway stood still, and its turn would come later than its limit allows.
    WaitTooLong(WaitTooLong),
    /// The gateway is stopping and cannot finish it.
    Draining,
    /// The client is gone.
    ClientGone,
}

impl Worker {
    /// Waits out a leaky bucket, the body unread. The request is one of the held until then.
    pub(super) async fn hold(
        &self,
        places: Tickets,
        permit: HoldPermit,
        peer: &Peer,
        exchange: &mut Exchange,
    ) -> Result<(), ProxyError> {
        let began = clock::now();
        let mut counted = exchange.counted_as_held(began);
        let held = hold(&places, peer, &self.drain).await;
        let time = began.elapsed();
        if places.are_put_off() {
            // Longer than the store's delay, since the gateway stood still.
            exchange.delayed(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
            // Or it was not to wait at all, and came behind late requests.
            counted = counted.or_else(|| exchange.counted_as_held(began));
        }
        drop((counted, permit));
        exchange.held_for(time);
        let used = held?;
        if let Some(reservation) = &exchange.reservation {
            reservation.keep_places(used);
        }
        Ok(())
    }
}

impl From<HoldCut> for ProxyError {
    fn from(cut: HoldCut) -> Self {
        match cut {
            HoldCut::WaitTooLong(WaitTooLong { limit, again }) => {
                let again = u64::try_from(again.as_micros()).unwrap_or(u64::MAX);
                Self::limited(&limit, Wait::Micros(again))
            }
            HoldCut::ClientGone => Self::ClientGone,
            HoldCut::Draining => Self::Draining,
        }
    }
}

impl Holds {
    /// A place among the held, unless the caps are reached.
    #[must_use]
    pub fn enter(self: &Arc<Self>, client: Client, caps: HoldCaps) -> Option<HoldPermit> {
        if self.total.fetch_add(1, Ordering::Relaxed) >= caps.total {
            self.total.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let held = clients.entry(client).or_insert(0);
        if *held >= caps.per_client {
            self.total.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        *held += 1;
        Some(HoldPermit {
            holds: Arc::clone(self),
            client,
        })
    }

    /// How many are held now.
    #[must_use]
    pub fn total(&self) -> usize {
        self.total.load(Ordering::Relaxed)
    }
}

impl Drop for HoldPermit {
    fn drop(&mut self) {
        self.holds.total.fetch_sub(1, Ordering::Relaxed);
        let mut clients = self
            .holds
            .clients
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(held) = clients.get_mut(&self.client) {
            *held -= 1;
            if *held == 0 {
                clients.remove(&self.client);
            }
        }
    }
}

/// Holds a request until its turn, its body unread. Returns the places that it has used up, which go back should it be
/// given up before it is forwarded, as they do after others have left.
///
/// # Errors
/// When the client leaves, draining would cut it before it could be forwarded, or its turn would come too late.
pub async fn hold(
    places: &Tickets,
    peer: &Peer,
    drain: &Drain,
) -> Result<Vec<Reservation>, HoldCut> {
    let worth_watching = places.until().saturating_duration_since(clock::now()) > WORTH_WATCHING;
    let gone = async {
        if worth_watching {
            peer.watch.gone().await
        } else {
            std::future::pending().await
        }
    };
    let cut_by_drain = async {
        drain.begun().await;
        match drain.deadline() {
            Some(deadline) if places.until() + FORWARDING > deadline => {}
            _ => std::future::pending().await,
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
        went = turn => went.map_err(HoldCut::WaitTooLong),
        () = gone => Err(HoldCut::ClientGone),
        () = cut_by_drain => Err(HoldCut::Draining),
    }
}
