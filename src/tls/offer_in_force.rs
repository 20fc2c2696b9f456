//! The installed offers of the listeners: handshakes read them, a reload replaces all of them at once.

use super::Offer;
use arc_swap::{ArcSwap, Guard};
use std::fmt;
use std::sync::Arc;

/// The offers of the listeners with TLS, each at its listener's number among them. A reload installs new offers
/// together with the rest of the file; between two reloads a new certificate replaces one offer.
#[derive(Debug, Default)]
pub struct Offers(Vec<ArcSwap<Offer>>);

impl Offers {
    /// The offer of the listener with this number. The guard is kept for a moment, never across an await.
    #[must_use]
    pub fn load(&self, listener: usize) -> Guard<Arc<Offer>> {
        self.0[listener].load()
    }

    /// Makes new handshakes on a listener use `offer`. Identities that equal identities of the previous offer stay the
    /// same objects ([`Offer::keeping`]). Only one thread installs offers.
    pub fn install(&self, listener: usize, offer: Offer) {
        let kept = offer.keeping(&self.load(listener));
        self.0[listener].store(Arc::new(kept));
    }

    /// The offers that a reload installs: a listener without a new one keeps its own. Equal identities stay the same
    /// objects here too.
    #[must_use]
    pub fn replaced(&self, mut new: impl FnMut(usize) -> Option<Offer>) -> Self {
        let all = self.0.iter().enumerate();
        let replaced = all.map(|(listener, now)| match new(listener) {
            Some(offer) => ArcSwap::from_pointee(offer.keeping(&now.load())),
            None => ArcSwap::new(now.load_full()),
        });
        Self(replaced.collect())
    }
}

impl FromIterator<Offer> for Offers {
    fn from_iter<T: IntoIterator<Item = Offer>>(offers: T) -> Self {
        Self(offers.into_iter().map(ArcSwap::from_pointee).collect())
    }
}

/// The source of the installed offers. The program passes it in, since it stores them together with all other parts
/// that a reload changes.
pub trait OfferSource: fmt::Debug + Send + Sync {
    /// The installed offer of the listener with this number.
    fn offer(&self, listener: usize) -> Guard<Arc<Offer>>;
}

/// The offer of one listener, which all of the listener's connections share.
#[derive(Debug, Clone)]
pub struct OfferInForce {
    listener: usize,
    source: Arc<dyn OfferSource>,
}

impl OfferInForce {
    /// The offer of a listener that is about to open: the listener with this number among those with TLS.
    #[must_use]
    pub fn new(listener: usize, source: Arc<dyn OfferSource>) -> Self {
        Self { listener, source }
    }

    /// The number of its listener among those with TLS.
    #[must_use]
    pub fn listener(&self) -> usize {
        self.listener
    }

    /// The installed offer. The guard is kept for a moment, never across an await.
    #[must_use]
    pub fn load(&self) -> Guard<Arc<Offer>> {
        self.source.offer(self.listener)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::ServerIdentity;
    use crate::tls::server_identity::tests::parts;

    impl OfferSource for Offers {
        fn offer(&self, listener: usize) -> Guard<Arc<Offer>> {
            self.load(listener)
        }
    }

    #[test]
    fn a_reload_replaces_the_offer_and_keeps_what_is_equal() {
        let api = parts("api", &["api.test"]);
        let made = || Arc::new(ServerIdentity::new(api.clone()).unwrap());
        let first = made();
        let offers: Arc<Offers> = Arc::new(
            [Offer::new(vec![Arc::clone(&first)]).unwrap()]
                .into_iter()
                .collect(),
        );
        let of_listener = OfferInForce::new(0, offers.clone());
        let shop = Arc::new(ServerIdentity::new(parts("shop", &["shop.test"])).unwrap());
        offers.install(0, Offer::new(vec![shop, made()]).unwrap());
        let offer = of_listener.load();
        let chosen = |host| offer.choose(Some(host));
        assert!(Arc::ptr_eq(chosen("api.test").unwrap(), &first));
        assert_eq!(chosen("shop.test").unwrap().name(), "shop");
    }
}
