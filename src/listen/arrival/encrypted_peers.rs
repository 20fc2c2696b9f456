//! The connections with TLS, whose clients may go on as long as they meet what is asked of clients today. Each request looks
//! whether they do, and so does the worker, beside requests, within a second of a change. A connection whose client may not
//! go on ends as at a drain.

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

/// The least time between two lines about clients that may not go on for one cause.
const LOG_EVERY: Duration = Duration::from_secs(60);
/// The interval at which a worker looks.
const REVIEW_EVERY: Duration = Duration::from_secs(1);
/// The time for which it looks at one connection after the other before others have their turn: to verify a chain again
/// takes up to a millisecond by itself.
const TURN: Duration = Duration::from_millis(1);

/// Those of one worker.
#[derive(Debug)]
pub struct EncryptedPeers(Rc<ReviewedPeers>);

#[derive(Debug, Default)]
struct ReviewedPeers {
    /// Those that have shown certificates, for which times matter too.
    certified: PeerPlaces,
    /// Those that have shown none. They are looked at where an offer has changed.
    bare: PeerPlaces,
    /// The offers of their listeners, each at its listener's place, with the number of the one by which all were looked up
    /// last.
    offers: RefCell<Vec<Option<(OfferInForce, u64)>>>,
    /// One may not go on, and has not ended yet.
    is_one_ending: Cell<bool>,
}

impl EncryptedPeers {
    /// None yet, and a task on the worker's runtime that looks at those to come.
    #[must_use]
    pub fn watched() -> Self {
        let peers = Rc::<ReviewedPeers>::default();
        tokio::task::spawn_local(review_all(Rc::clone(&peers)));
        Self(peers)
    }

    /// Takes in a peer whose handshake is over.
    pub(in crate::listen) fn enter(&self, peer: &Rc<Peer>) {
        let (Some(offer), Some(session)) = (&peer.offer, peer.tls()) else {
            return;
        };
        self.0.know(offer);
        let places = match session.client {
            Some(_) => &self.0.certified,
            None => &self.0.bare,
        };
        // A handshake is over once.
        let _ = peer.place.set(places.enter(peer));
        // The offer may have changed since the handshake began, and the others may have been looked at since.
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

/// Looks at all of them again and again.
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

/// Looks at all of one kind, so that others have their turn in between. True when one of them may not go on, and has not
/// ended yet.
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
    /// May the client not go on?
    #[must_use]
    pub fn is_barred(&self) -> bool {
        self.tls().is_some_and(|session| session.is_lost())
    }

    /// Resolves once the client may not go on.
    pub async fn barred(&self) {
        match self.tls() {
            Some(session) => session.lost().await,
            None => pending().await,
        }
    }

    /// Resolves when what is under way is to be cut, a while after that.
    pub async fn cut(&self) {
        match self.tls() {
            Some(session) => session.cut().await,
            None => pending().await,
        }
    }

    /// Does what the client has shown meet what `offer` asks of it? Only a change of the offer has it looked up.
    #[inline]
    pub(in crate::listen) fn is_trusted(&self, session: &TlsSession, offer: &Offer) -> bool {
        session.is_known_good(offer) || self.look_up(session, offer)
    }

    /// Looks whether the client may go on.
    #[cold]
    fn look_up(&self, session: &TlsSession, offer: &Offer) -> bool {
        if let Some(why) = session.look_up(offer, clock::wall().seconds()) {
            self.report_lost(&why, session.identity.name());
            // The connection hears of it.
            self.registration.wake();
        }
        !session.is_lost()
    }

    /// Looks whether the client may go on at this time, and ends its connection where it may not.
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
                "{from} has shown no certificate, which `client` demands by now (identity `{identity}`); its connection ends{more}"
            );
        } else {
            tracing::info!(
                "the certificate of {from} is not believed any more: {why} (identity `{identity}`); its connection ends{more}"
            );
        }
    }
}
