//! Listeners with TLS while the gateway runs: a reload replaces what they offer, certificates that were ordered are put in as
//! they come, and broken files, certificates and revocation lists that have ended are reported.

use crate::acme::{Bundle, IssuedCertificates};
use crate::clock;
use crate::config::{Boot, Identities, LoadedIdentity, describe};
use crate::listen::listener::{ListenAddress, Listener};
use crate::telemetry::metrics::Metrics;
use crate::tls::{ClientCheck, Offer, OfferInForce, ServerIdentity};
use arc_swap::ArcSwap;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::spawn_blocking;
use tokio::time::MissedTickBehavior;

/// The interval at which certificates that have ended are logged.
const ENDED_EVERY: Duration = Duration::from_hours(1);

/// The interval at which a gateway that leaves reads the files by which clients are judged.
const LISTS_EVERY: Duration = Duration::from_secs(10);

/// The listeners with TLS.
#[derive(Debug)]
pub(super) struct TlsListeners {
    listeners: Vec<TlsListener>,
    identities: ArcSwap<Identities>,
    /// The certificates that have come.
    issued: IssuedCertificates,
    /// The ordered identities as they are in force, by name.
    ordered: ArcSwap<OrderedByName>,
    metrics: Arc<Metrics>,
}

type OrderedByName = HashMap<String, Arc<ServerIdentity>>;

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
            ordered: ArcSwap::default(),
            issued: IssuedCertificates::default(),
            identities: ArcSwap::new(identities),
            metrics: Arc::clone(metrics),
        };
        all.ordered
            .store(Arc::new(all.ordered_now(&all.identities.load())));
        all.measure();
        Arc::new(all)
    }

    /// What the listener at this address offers; nothing where it has no TLS.
    pub(super) fn offer(&self, address: &ListenAddress) -> Option<OfferInForce> {
        let mut all = self.listeners.iter();
        let found = all.find(|one| one.address == *address);
        found.map(|one| one.offer.clone())
    }

    /// The certificates that have come.
    pub(super) fn issued(&self) -> &IssuedCertificates {
        &self.issued
    }

    /// Is this an identity whose certificate has not come yet?
    pub(super) fn awaits(&self, identity: &str) -> bool {
        let ordered = self.ordered.load();
        let ordered = ordered.get(identity);
        ordered.is_some_and(|identity| identity.is_pending())
    }

    /// Has new handshakes use the certificates that have come. Connections, and sessions of other identities, go on.
    pub(super) fn install_issued(&self) {
        let ordered = self.ordered_now(&self.identities.load());
        for listener in &self.listeners {
            let certified = listener.offer.load().certified(&ordered);
            listener.offer.install(certified);
        }
        self.ordered.store(Arc::new(ordered));
        self.measure();
    }

    /// The ordered identities with the best certificates that there are.
    fn ordered_now(&self, identities: &Identities) -> OrderedByName {
        let all = identities.all().filter(|one| one.is_ordered());
        all.map(|one| (one.identity().name().to_owned(), self.best(one)))
            .collect()
    }

    /// The identity with the certificate that was read with the file, or with a better one that has come since.
    fn best(&self, loaded: &LoadedIdentity) -> Arc<ServerIdentity> {
        let identity = loaded.identity();
        let name = identity.name();
        let hosts = identity.hosts().iter();
        let hosts: Vec<String> = hosts.map(|host| host.as_str().to_owned()).collect();
        let is_better = |came: &Bundle| {
            let read = identity.facts();
            let is_whole = hosts.iter().all(|host| read.names.contains(host));
            !is_whole || came.covers(&hosts) && came.facts().not_after > read.not_after
        };
        let Some(came) = self.issued.best_for(name, &hosts).filter(is_better) else {
            return Arc::clone(identity);
        };
        match loaded.certified(came.pem()) {
            Ok(certified) => Arc::new(certified),
            Err(mistakes) => {
                tracing::error!("tls.{name}: the certificate that came is of no use: {mistakes:?}");
                Arc::clone(identity)
            }
        }
    }

    /// The identity as it is in force.
    fn in_force(&self, loaded: &LoadedIdentity) -> Arc<ServerIdentity> {
        let ordered = self.ordered.load();
        let name = loaded.identity().name();
        ordered.get(name).unwrap_or(loaded.identity()).clone()
    }

    /// Has the listeners that run offer what a new file says. Those whose address is gone, or has no TLS any more, go on
    /// as they are until the restart that they need.
    pub(super) fn install(
        &self,
        listeners: &[Listener],
        offers: Vec<Option<Offer>>,
        identities: Arc<Identities>,
    ) {
        let ordered = self.ordered_now(&identities);
        let running: HashMap<&ListenAddress, &TlsListener> = self
            .listeners
            .iter()
            .map(|one| (&one.address, one))
            .collect();
        for (listener, offer) in listeners.iter().zip(offers) {
            if let (Some(running), Some(offer)) = (running.get(&listener.address), offer) {
                running.offer.install(offer.certified(&ordered));
            }
        }
        self.took_over(ordered, identities);
    }

    /// Has open connections follow the authorities and revocation lists of the identities in force, where no reload does it
    /// any more: the gateway leaves, and a file that is changed now may be meant for a successor.
    pub(super) async fn follow_lists(&self) {
        let mut ticks = tokio::time::interval(LISTS_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let identities = self.identities.load_full();
            let reading = spawn_blocking(move || identities.with_lists_of_today());
            if let Ok(Some(today)) = reading.await {
                self.install_lists(today);
            }
        }
    }

    /// Has the listeners judge clients by these identities, which differ in nothing else from those in force.
    fn install_lists(&self, identities: Identities) {
        let ordered = self.ordered_now(&identities);
        let mut today = ordered.clone();
        for one in identities.all().filter(|one| !one.is_ordered()) {
            today.insert(one.identity().name().to_owned(), Arc::clone(one.identity()));
        }
        for listener in &self.listeners {
            let certified = listener.offer.load().certified(&today);
            listener.offer.install(certified);
        }
        self.took_over(ordered, Arc::new(identities));
    }

    /// Notes and reports what is in force from now on.
    fn took_over(&self, ordered: OrderedByName, identities: Arc<Identities>) {
        self.ordered.store(Arc::new(ordered));
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

    /// Logs every certificate that has ended, which is shown to clients all the same, and every revocation list that has,
    /// which refuses clients.
    fn report_ended(&self) {
        let now = i64::try_from(clock::wall().micros() / 1_000_000).unwrap_or(i64::MAX);
        for one in self.identities.load().all() {
            let identity = self.in_force(one);
            let (name, end) = (identity.name(), identity.facts().not_after);
            if end < now && !identity.is_pending() {
                let end = describe::show_instant(end);
                tracing::error!(
                    "the certificate of identity {name} has ended at {end}: clients refuse it"
                );
            }
            let lists = identity.client().into_iter().flat_map(ClientCheck::lists);
            for list in lists.filter(|list| list.has_ended(now)) {
                let end = describe::show_instant(list.next_update.unwrap_or(now));
                let of = &list.issuer;
                tracing::error!(
                    "the revocation list of {of} in `crl` of identity {name} has ended at {end}: its clients are refused"
                );
            }
        }
    }

    /// Logs certificates and lists that have ended, now and each hour.
    pub(super) async fn watch_ends(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(ENDED_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.report_ended();
        }
    }

    fn measure(&self) {
        let identities = self.identities.load();
        let in_force = identities.all().map(|one| self.in_force(one));
        let certified = in_force.filter(|identity| !identity.is_pending());
        let ends = certified.map(|identity| {
            let end = identity.facts().not_after;
            (identity.name().to_owned(), end)
        });
        self.metrics.certificates(ends.collect());
        let kept = identities.all().map(|one| {
            let name = one.identity().name().to_owned();
            let is_there = !self.in_force(one).is_pending();
            (name, one.kept().is_none() && is_there)
        });
        self.metrics.tls_files(kept.collect());
    }
}
