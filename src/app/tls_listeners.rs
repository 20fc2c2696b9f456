//! Listeners with TLS while the gateway runs: a reload replaces what they offer, and broken files and certificates that
//! have ended are reported.

use crate::clock;
use crate::config::{Boot, Identities, describe};
use crate::listen::listener::{ListenAddress, Listener};
use crate::telemetry::metrics::Metrics;
use crate::tls::{Offer, OfferInForce};
use arc_swap::ArcSwap;
use std::sync::Arc;
use std::time::Duration;

/// The interval at which certificates that have ended are logged.
const ENDED_EVERY: Duration = Duration::from_hours(1);

/// The listeners with TLS.
#[derive(Debug)]
pub(super) struct TlsListeners {
    listeners: Vec<TlsListener>,
    identities: ArcSwap<Identities>,
    metrics: Arc<Metrics>,
}

#[derive(Debug)]
struct TlsListener {
    address: ListenAddress,
    offer: OfferInForce,
}

impl TlsListeners {
    /// The listeners of `boot`, with what each of them offers.
    pub(super) fn new(
        boot: &Boot,
        offers: Vec<Option<Offer>>,
        identities: Arc<Identities>,
        metrics: &Arc<Metrics>,
    ) -> Arc<Self> {
        let listeners = boot.listen.listeners.iter().zip(offers);
        let listeners = listeners.filter_map(|(listener, offer)| {
            Some(TlsListener {
                address: listener.address.clone(),
                offer: OfferInForce::new(offer?),
            })
        });
        let all = Self {
            listeners: listeners.collect(),
            identities: ArcSwap::new(identities),
            metrics: Arc::clone(metrics),
        };
        all.measure();
        Arc::new(all)
    }

    /// What the listener at this address offers; nothing where it has no TLS.
    pub(super) fn offer(&self, address: &ListenAddress) -> Option<OfferInForce> {
        let mut all = self.listeners.iter();
        let found = all.find(|one| one.address == *address);
        found.map(|one| one.offer.clone())
    }

    /// Has the listeners that run offer what a new file says. Those whose address is gone, or has no TLS any more, go on
    /// as they are until the restart that they need.
    pub(super) fn install(
        &self,
        listeners: &[Listener],
        offers: Vec<Option<Offer>>,
        identities: Arc<Identities>,
    ) {
        for (listener, offer) in listeners.iter().zip(offers) {
            let mut running = self.listeners.iter();
            let running = running.find(|one| one.address == listener.address);
            if let (Some(running), Some(offer)) = (running, offer) {
                running.offer.install(offer);
            }
        }
        let before = self.identities.swap(identities);
        self.report_kept(&before);
        self.report_ended();
        self.measure();
    }

    /// Logs identities whose files are broken now, each once, and those whose files are mended.
    fn report_kept(&self, before: &Identities) {
        for now in self.identities.load().all() {
            let name = now.identity().name();
            let before = before.named(name).and_then(|one| one.kept());
            match (before, now.kept()) {
                (None, Some(why)) => {
                    tracing::warn!(
                        "identity {name}: {why}; what was in force before stays, until the files are mended"
                    );
                }
                (Some(_), None) => tracing::info!("identity {name}: its files are mended"),
                _ => {}
            }
        }
    }

    /// Logs every certificate that has ended. It is shown to clients all the same.
    fn report_ended(&self) {
        let now = i64::try_from(clock::wall().micros() / 1_000_000).unwrap_or(i64::MAX);
        for one in self.identities.load().all() {
            let (name, end) = (one.identity().name(), one.identity().facts().not_after);
            if end < now {
                let end = describe::show_instant(end);
                tracing::error!(
                    "the certificate of identity {name} has ended at {end}: clients refuse it"
                );
            }
        }
    }

    /// Logs certificates that have ended, now and each hour.
    pub(super) async fn watch_ends(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(ENDED_EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.report_ended();
        }
    }

    fn measure(&self) {
        let identities = self.identities.load();
        let ends = identities.all().map(|one| {
            let identity = one.identity();
            (identity.name().to_owned(), identity.facts().not_after)
        });
        self.metrics.certificates(ends.collect());
        let kept = identities.all().map(|one| {
            let name = one.identity().name().to_owned();
            (name, one.kept().is_none())
        });
        self.metrics.tls_files(kept.collect());
    }
}
