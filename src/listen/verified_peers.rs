//! The connections whose clients have shown certificates. Each request, and once a second the worker, looks whether these
//! are believed still. A connection whose client's is not ends as at a drain.

use super::Peer;
use crate::client::spelled;
use crate::clock;
use crate::telemetry::log::Throttles;
use crate::tls::{Alpn, Offer, TlsSession, Validity, certificate_fault};
use rustls::{CertificateError, Error};
use std::cell::RefCell;
use std::future::pending;
use std::rc::{Rc, Weak};
use std::time::Duration;

/// The least time between two lines about certificates that are not believed any more for one cause.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// The interval at which a worker looks at all of them.
const REVIEW_EVERY: Duration = Duration::from_secs(1);

/// Those of one worker.
#[derive(Debug)]
pub struct VerifiedPeers(Rc<RefCell<Vec<Weak<Peer>>>>);

impl VerifiedPeers {
    /// None yet, and a task on the worker's runtime that looks at those to come.
    #[must_use]
    pub fn watched() -> Self {
        let peers: Rc<RefCell<Vec<_>>> = Rc::default();
        let watched = Self(Rc::clone(&peers));
        tokio::task::spawn_local(async move {
            let mut ticks = tokio::time::interval(REVIEW_EVERY);
            loop {
                ticks.tick().await;
                review(&peers);
            }
        });
        watched
    }

    /// Takes in a peer whose handshake is over, if it has shown a certificate.
    pub(super) fn enter(&self, peer: &Rc<Peer>) {
        if peer.validity().is_some() {
            self.0.borrow_mut().push(Rc::downgrade(peer));
        }
    }
}

/// Looks at all of them, and forgets those that have ended.
fn review(peers: &RefCell<Vec<Weak<Peer>>>) {
    peers.borrow_mut().retain(|peer| {
        let peer = peer.upgrade();
        peer.as_deref().inspect(|peer| peer.review()).is_some()
    });
}

impl Peer {
    /// What the certificate is worth that the client has shown; nothing where it has shown none.
    #[must_use]
    pub fn validity(&self) -> Option<&Validity> {
        let client = self.tls.get()?.client.as_ref()?;
        Some(&client.validity)
    }

    /// Has the client shown a certificate that is not believed any more?
    #[must_use]
    pub fn is_dismissed(&self) -> bool {
        self.validity().is_some_and(Validity::is_lost)
    }

    /// Resolves once the client's certificate is not believed any more.
    pub async fn dismissed(&self) {
        match self.validity() {
            Some(validity) => validity.lost().await,
            None => pending().await,
        }
    }

    /// Resolves when what is under way is to be cut, a while after that.
    pub async fn cut(&self) {
        match self.validity() {
            Some(validity) => validity.cut().await,
            None => pending().await,
        }
    }

    /// Is the client's certificate believed by `offer`, if it has shown one? Only a change of the offer has it looked up.
    #[inline]
    pub(super) fn is_believed(&self, session: &TlsSession, offer: &Offer) -> bool {
        let Some(client) = &session.client else {
            return true;
        };
        client.validity.is_known_good(offer) || self.look_up(session, &client.validity, offer)
    }

    #[cold]
    fn look_up(&self, session: &TlsSession, validity: &Validity, offer: &Offer) -> bool {
        let identity = session.identity.name();
        if let Err(why) = validity.look_up(identity, offer, clock::wall().seconds()) {
            self.report_lost(&why, identity);
            // The connection hears of it.
            self.registration.wake();
        }
        !validity.is_lost()
    }

    /// Looks whether the client's certificate is believed still, at this time too.
    fn review(&self) {
        let (Some(offer), Some(session), Some(validity)) =
            (&self.offer, self.tls.get(), self.validity())
        else {
            return;
        };
        if self.look_up(session, validity, &offer.load()) {
            return;
        }
        if session.protocol == Alpn::Http11 {
            self.registration.evict_waiting();
        }
        validity.cut_late(clock::now());
    }

    fn report_lost(&self, why: &Error, identity: &str) {
        static LOST: Throttles<3> = Throttles::every(LOG_EVERY);
        let (cause, why) = match why {
            Error::InvalidCertificate(bad) => {
                let cause = usize::from(*bad != CertificateError::Revoked);
                (cause, certificate_fault(bad))
            }
            other => (2, other.to_string()),
        };
        if let Some(more) = LOST.pass(cause) {
            let from = spelled(self.ip());
            tracing::info!(
                "the certificate of {from} is not believed any more: {why} (identity `{identity}`); its connection ends{more}"
            );
        }
    }
}
