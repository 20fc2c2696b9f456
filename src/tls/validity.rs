//! What a client's certificate is worth while its connection lives: the authorities, revocation lists and times of today
//! hold for it, and not those of its handshake. It is verified again when a reload changes what is asked of it, and when
//! one of the times that it depends on has ended.

use super::client_check::ClientCheck;
use super::{Offer, ServerIdentity};
use crate::clock;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::{CertificateError, Error};
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;

/// The time in which what is under way may end once the certificate is not believed.
const GRACE: Duration = Duration::from_secs(10);

/// The validity of one connection's certificate.
#[derive(Debug)]
pub struct Validity {
    /// The client's own certificate, and behind it those that it has sent.
    chain: Box<[CertificateDer<'static>]>,
    /// The identity by which it was verified last.
    verified_by: RefCell<Arc<ServerIdentity>>,
    /// The number of the offer by which it was looked up last.
    generation: Cell<u64>,
    /// The second, since 1970 by the wall clock, in which the next of the times that it depends on has ended.
    next_end: Cell<i64>,
    /// Since when it is not believed.
    lost: Cell<Option<Instant>>,
    is_cut: Cell<bool>,
    /// Wakes the tasks that wait for either.
    changed: Notify,
}

impl Validity {
    /// The validity of a chain that was verified by `identity` at `now`, in seconds since 1970.
    pub(super) fn new(
        chain: &[CertificateDer<'_>],
        identity: &Arc<ServerIdentity>,
        now: i64,
    ) -> Self {
        let chain: Box<[_]> = chain.iter().map(|one| one.clone().into_owned()).collect();
        let next_end = identity
            .client()
            .map_or(now, |check| next_end(&chain, check, now));
        Self {
            chain,
            verified_by: RefCell::new(Arc::clone(identity)),
            generation: Cell::new(0),
            next_end: Cell::new(next_end),
            lost: Cell::new(None),
            is_cut: Cell::new(false),
            changed: Notify::new(),
        }
    }

    /// The client's own certificate, in DER.
    pub(super) fn own(&self) -> &[u8] {
        self.chain.first().map_or(&[], |own| own)
    }

    /// Is it believed, as far as it is known? It is to be looked up where the offer has changed.
    #[inline]
    #[must_use]
    pub fn is_known_good(&self, offer: &Offer) -> bool {
        self.generation.get() == offer.generation() && self.lost.get().is_none()
    }

    /// Looks the certificate up in `offer`, for a handshake that was by the identity of this name.
    ///
    /// # Errors
    /// Why it is not believed from now on. It was believed until now.
    pub fn look_up(&self, identity: &str, offer: &Offer, now: i64) -> Result<(), Error> {
        if self.lost.get().is_some() {
            return Ok(());
        }
        let mut identities = offer.identities().iter();
        let today = identities.find(|one| one.name() == identity);
        let verified = match today.and_then(|today| Some((today, today.client()?))) {
            Some((today, check)) => self.verify(today, check, now),
            // No authority is believed there any more.
            None => Err(CertificateError::UnknownIssuer.into()),
        };
        self.generation.set(offer.generation());
        if verified.is_err() {
            self.lost.set(Some(clock::now()));
            self.changed.notify_waiters();
        }
        verified
    }

    /// Verifies the chain once more, where that may have another end than the last time.
    fn verify(
        &self,
        today: &Arc<ServerIdentity>,
        check: &ClientCheck,
        now: i64,
    ) -> Result<(), Error> {
        let is_same = Arc::ptr_eq(today, &self.verified_by.borrow());
        if is_same && now < self.next_end.get() {
            return Ok(());
        }
        let seconds = Duration::from_secs(now.max(0).unsigned_abs());
        check.verify_chain(&self.chain, UnixTime::since_unix_epoch(seconds))?;
        self.next_end.set(next_end(&self.chain, check, now));
        self.verified_by.replace(Arc::clone(today));
        Ok(())
    }

    /// Is it not believed any more?
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.lost.get().is_some()
    }

    /// Cuts what is still under way, where the time for it is over.
    pub fn cut_late(&self, now: Instant) {
        let is_late = |since: Instant| now.saturating_duration_since(since) >= GRACE;
        if self.lost.get().is_some_and(is_late) && !self.is_cut.replace(true) {
            self.changed.notify_waiters();
        }
    }

    /// Resolves when the certificate is not believed any more.
    pub async fn lost(&self) {
        self.until(|| self.lost.get().is_some()).await;
    }

    /// Resolves when what is under way is to be cut.
    pub async fn cut(&self) {
        self.until(|| self.is_cut.get()).await;
    }

    async fn until(&self, reached: impl Fn() -> bool) {
        while !reached() {
            self.changed.notified().await;
        }
    }
}

/// The first second after `now` in which a certificate of the chain, or a revocation list, has ended. A list has ended in the
/// second that it names, a certificate behind it.
fn next_end(chain: &[CertificateDer<'_>], check: &ClientCheck, now: i64) -> i64 {
    let of_certificate = |one: &CertificateDer<'_>| {
        let (_, read) = X509Certificate::from_der(one).ok()?;
        Some(read.validity().not_after.timestamp().saturating_add(1))
    };
    let certificates = chain.iter().filter_map(of_certificate);
    let lists = check.lists().iter().filter_map(|list| list.next_update);
    let ends = certificates.chain(lists).filter(|end| *end > now);
    ends.min().unwrap_or(i64::MAX)
}
