//! The connections with TLS, whose clients may continue as long as they meet the present requirements for clients. Each
//! request checks whether they do, and so does the worker, independently of requests, within a second of a change. A
//! connection whose client may not continue ends as in a drain.

mod places;

pub(in crate::listen) use places::PeerPlace;

use crate::client::spelled;
use crate::clock;
use crate::listen::Peer;
use crate::telemetry::log::Throttles;
use crate::tls::{Alpn, Offer, OfferInForce, TlsSession, certificate_fault};
use places::PeerPlaces;
use rustls::{CertificateError, Error};
use std::cell::{Cell, RefCell};
use std::future::pending;
use std::rc::Rc;
use std::time::Duration;
use tokio::task::yield_now;
use tokio::time::MissedTickBehavior;

/// The least time between two lines about dismissed clients for one cause.
const LOG_EVERY: Duration = Duration::from_secs(60);
/// The interval of a worker's checks.
const REVIEW_EVERY: Duration = Duration::from_secs(1);
/// The time for which it checks one connection after the other before other tasks have their turn: to verify one chain
/// takes up to a millisecond.
const TURN: Duration = Duration::from_millis(1);

/// The encrypted peers of one worker.
#[derive(Debug)]
pub struct EncryptedPeers(Rc<ReviewedPeers>);

#[derive(Debug, Default)]
struct ReviewedPeers {
    /// Peers that have shown certificates, for which times matter too.
    certified: PeerPlaces,
    /// Peers that have shown none. They are checked if an offer has changed.
    bare: PeerPlaces,
    /// The offers of their listeners, each at its listener's place, with the number of the offer in the last check of
    /// all.
    offers: RefCell<Vec<Option<(OfferInForce, u64)>>>,
    /// A peer may not continue, and its connection has not ended yet.
    is_one_ending: Cell<bool>,
}

impl EncryptedPeers {
    /// An empty set, and a task on the worker's runtime that checks the peers to come.
    #[must_use]
    pub fn watched() -> Self {
        let peers = Rc::<ReviewedPeers>::default();
        tokio::task::spawn_local(review_all(Rc::clone(&peers)));
        Self(peers)
    }

    /// Adds a peer after its handshake.
    pub(in crate::listen) fn enter(&self, peer: &Rc<Peer>) {
        let (Some(offer), Some(session)) = (&peer.offer, peer.tls()) else {
            return;
        };
        self.0.know(offer);
        let places = match session.client {
            Some(_) => &self.0.certified,
            None => &self.0.bare,
        };
        // A handshake ends once.
        let _ = peer.place.set(places.enter(peer));
        // The offer may have changed since the handshake began, and the other peers may have been checked since.
        if !peer.look_up(session, &offer.load()) {
            self.0.is_one_ending.set(true);
        }
    }
}

impl ReviewedPeers {
    fn know(&self, offer: &OfferInForce) {
        let (mut offers, at) = (self.offers.borrow_mut(), offer.listener());
        if offers.len() <= at {
            offers.resize(at + 1, None);
        }
        offers[at].get_or_insert_with(|| (offer.clone(), offer.load().generation()));
    }

    /// Has an offer changed since the last call?
    fn has_new_offer(&self) -> bool {
        let mut has_new = false;
        for (offer, seen) in self.offers.borrow_mut().iter_mut().flatten() {
            let now = offer.load().generation();
            has_new |= std::mem::replace(seen, now) != now;
        }
        has_new
    }
}

/// Checks all of them periodically.
async fn review_all(peers: Rc<ReviewedPeers>) {
    let mut ticks = tokio::time::interval(REVIEW_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        review(&peers.certified).await;
        let is_one_ending = peers.is_one_ending.take();
        if (peers.has_new_offer() || is_one_ending) && review(&peers.bare).await {
            peers.is_one_ending.set(true);
        }
    }
}

/// Checks all peers of one kind, and lets other tasks have their turn in between. Returns true if one of them may not
/// continue, and has not ended yet.
async fn review(places: &PeerPlaces) -> bool {
    let (mut is_one_ending, mut since) = (false, clock::now());
    let mut at = 0;
    while let Some(place) = places.at(at) {
        at += 1;
        if let Some(peer) = place {
            is_one_ending |= !peer.review();
        }
        if clock::now().saturating_duration_since(since) >= TURN {
            yield_now().await;
            since = clock::now();
        }
    }
    is_one_ending
}

impl Peer {
    /// Is the client not permitted to continue?
    #[must_use]
    pub fn is_barred(&self) -> bool {
        self.tls().is_some_and(|session| session.is_lost())
    }

    /// Resolves once the client may not continue.
    pub async fn barred(&self) {
        match self.tls() {
            Some(session) => session.lost().await,
            None => pending().await,
        }
    }

    /// Resolves when unfinished requests are to be cut, some time later.
    pub async fn cut(&self) {
        match self.tls() {
            Some(session) => session.cut().await,
            None => pending().await,
        }
    }

    /// Does the client's handshake meet the requirements of `offer`? It is checked again only after a change of the
    /// offer.
    #[inline]
    pub(in crate::listen) fn is_trusted(&self, session: &TlsSession, offer: &Offer) -> bool {
        session.is_known_good(offer) || self.look_up(session, offer)
    }

    /// Checks whether the client may continue.
    #[cold]
    fn look_up(&self, session: &TlsSession, offer: &Offer) -> bool {
        if let Some(why) = session.look_up(offer, clock::wall().seconds()) {
            self.report_lost(&why, session.identity.name());
            // The connection is notified.
            self.registration.wake();
        }
        !session.is_lost()
    }

    /// Checks whether the client may continue at this time, and ends its connection if not.
    fn review(&self) -> bool {
        let (Some(offer), Some(session)) = (&self.offer, self.tls()) else {
            return true;
        };
        if self.look_up(session, &offer.load()) {
            return true;
        }
        if session.protocol == Alpn::Http11 {
            self.registration.evict_waiting();
        }
        if session.cut_late(clock::now()) {
            self.watch.cut();
        }
        false
    }

    fn report_lost(&self, why: &Error, identity: &str) {
        static LOST: Throttles<4> = Throttles::every(LOG_EVERY);
        let (cause, why) = match why {
            Error::InvalidCertificate(bad) => {
                let cause = usize::from(*bad != CertificateError::Revoked);
                (cause, certificate_fault(bad))
            }
            Error::NoCertificatesPresented => (2, String::new()),
            other => (3, other.to_string()),
        };
        let Some(more) = LOST.pass(cause) else { return };
        let from = spelled(self.ip());
        if why.is_empty() {
            tracing::info!(
                "{from} has shown no certificate, which `client` now demands (identity `{identity}`); its connection ends{more}"
            );
        } else {
            tracing::info!(
                "the certificate of {from} is no longer trusted: {why} (identity `{identity}`); its connection ends{more}"
            );
        }
    }
}
