//! The offer of a listener as it is now: handshakes read it, a reload replaces it.

use super::Offer;
use arc_swap::{ArcSwap, Guard};
use std::sync::Arc;

/// The offer of one listener, which all of the listener's connections share. A reload installs another in its place.
#[derive(Debug, Clone)]
pub struct OfferInForce(Arc<ListenerOffer>);

#[derive(Debug)]
struct ListenerOffer {
    listener: usize,
    now: ArcSwap<Offer>,
}

impl OfferInForce {
    /// The offer of a listener that is about to open: of the one with this number among those with TLS.
    #[must_use]
    pub fn new(listener: usize, offer: Offer) -> Self {
        let now = ArcSwap::from_pointee(offer);
        Self(Arc::new(ListenerOffer { listener, now }))
    }

    /// Has new handshakes use `offer`. Identities that are equal to those of the offer before stay as they are
    /// ([`Offer::keeping`]). One thread installs offers.
    pub fn install(&self, offer: Offer) {
        let kept = offer.keeping(&self.load());
        self.0.now.store(Arc::new(kept));
    }

    /// The number of its listener among those with TLS.
    #[must_use]
    pub fn listener(&self) -> usize {
        self.0.listener
    }

    /// The offer in force. It is held for a moment, never over a wait.
    #[must_use]
    pub fn load(&self) -> Guard<Arc<Offer>> {
        self.0.now.load()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::ServerIdentity;
    use crate::tls::server_identity::tests::parts;

    #[test]
    fn a_reload_replaces_the_offer_and_keeps_what_is_equal() {
        let api = parts("api", &["api.test"]);
        let made = || Arc::new(ServerIdentity::new(api.clone()).unwrap());
        let first = made();
        let in_force = OfferInForce::new(0, Offer::new(vec![Arc::clone(&first)]).unwrap());
        let of_listener = in_force.clone();
        let shop = Arc::new(ServerIdentity::new(parts("shop", &["shop.test"])).unwrap());
        in_force.install(Offer::new(vec![shop, made()]).unwrap());
        let offer = of_listener.load();
        let chosen = |host| offer.choose(Some(host));
        assert!(Arc::ptr_eq(chosen("api.test").unwrap(), &first));
        assert_eq!(chosen("shop.test").unwrap().name(), "shop");
    }
}
