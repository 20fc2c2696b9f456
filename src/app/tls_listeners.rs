//! Listeners with TLS while the gateway runs: a reload replaces their offers, new certificates are installed, and
//! broken files and expired certificates and revocation lists are reported.

use crate::acme::{Bundle, IssuedCertificates};
use crate::clock;
use crate::config::{Boot, Identities, LoadedIdentity, describe};
use crate::listen::listener::{ListenAddress, Listener};
use crate::shutdown::Drain;
use crate::snapshot::Snapshot;
use crate::telemetry::metrics::Metrics;
use crate::tls::{ClientCheck, Offer, OfferInForce, OfferSource, Offers, ServerIdentity};
use arc_swap::{ArcSwap, Guard};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::task::spawn_blocking;
use tokio::time::MissedTickBehavior;

/// The interval at which expired certificates are logged.
const ENDED_EVERY: Duration = Duration::from_hours(1);

/// The interval at which the files for the verification of clients are read while no reload reads them.
const LISTS_EVERY: Duration = Duration::from_secs(10);

/// The listeners with TLS.
#[derive(Debug)]
pub(super) struct TlsListeners {
    numbers: ListenerNumbers,
    /// The current file, with the offers of the listeners.
    snapshots: Arc<ArcSwap<Snapshot>>,
    identities: ArcSwap<Identities>,
    /// The file's present version was refused, so that no file that it names was installed with it.
    is_file_refused: AtomicBool,
    /// The obtained certificates.
    issued: IssuedCertificates,
    /// The ordered identities as they are currently installed, by name.
    ordered: ArcSwap<OrderedByName>,
    metrics: Arc<Metrics>,
}

type OrderedByName = HashMap<String, Arc<ServerIdentity>>;

/// The number of each listener with TLS among them, by its address. It stays for the life of the process.
type ListenerNumbers = HashMap<ListenAddress, usize>;

impl OfferSource for ArcSwap<Snapshot> {
    fn offer(&self, listener: usize) -> Guard<Arc<Offer>> {
        self.load().offers.load(listener)
    }
}

/// The numbers of the listeners of `boot` that have TLS, and their offers by these numbers.
pub(super) fn numbered(boot: &Boot, offers: Vec<Option<Offer>>) -> (ListenerNumbers, Offers) {
    let listeners = boot.listen.listeners.iter().zip(offers);
    let with_tls = listeners.filter_map(|(listener, offer)| Some((&listener.address, offer?)));
    let (addresses, offers): (Vec<_>, Vec<_>) = with_tls.unzip();
    let addresses = addresses.into_iter().cloned();
    let offers = offers.into_iter().collect();
    (addresses.zip(0..).collect(), offers)
}

impl TlsListeners {
    /// The listeners with these numbers, whose offers belong to the current snapshot.
    pub(super) fn new(
        numbers: ListenerNumbers,
        snapshots: &Arc<ArcSwap<Snapshot>>,
        identities: &Arc<Identities>,
        metrics: &Arc<Metrics>,
    ) -> Arc<Self> {
        let all = Self {
            numbers,
            snapshots: Arc::clone(snapshots),
            ordered: ArcSwap::default(),
            issued: IssuedCertificates::default(),
            identities: ArcSwap::new(Arc::clone(identities)),
            is_file_refused: AtomicBool::new(false),
            metrics: Arc::clone(metrics),
        };
        all.ordered
            .store(Arc::new(all.ordered_now(&all.identities.load())));
        all.measure();
        Arc::new(all)
    }

    /// The offer of the listener at this address; `None` if the listener has no TLS.
    pub(super) fn offer(&self, address: &ListenAddress) -> Option<OfferInForce> {
        let number = *self.numbers.get(address)?;
        Some(OfferInForce::new(number, self.snapshots.clone()))
    }

    /// The obtained certificates.
    pub(super) fn issued(&self) -> &IssuedCertificates {
        &self.issued
    }

    /// Is this an identity whose certificate has not been obtained yet?
    pub(super) fn awaits(&self, identity: &str) -> bool {
        let ordered = self.ordered.load();
        let ordered = ordered.get(identity);
        ordered.is_some_and(|identity| identity.is_pending())
    }

    /// Makes new handshakes use the obtained certificates. Connections, and sessions of other identities, continue.
    pub(super) fn install_issued(&self) {
        let ordered = self.ordered_now(&self.identities.load());
        self.certify(&ordered);
        self.ordered.store(Arc::new(ordered));
        self.measure();
    }

    /// Makes all listeners offer these certificates for the identities with their names.
    fn certify(&self, certified: &OrderedByName) {
        let offers = &self.snapshots.load().offers;
        for number in self.numbers.values() {
            let offer = offers.load(*number).certified(certified);
            offers.install(*number, offer);
        }
    }

    /// The ordered identities, each with its best certificate.
    fn ordered_now(&self, identities: &Identities) -> OrderedByName {
        let all = identities.all().filter(|one| one.is_ordered());
        all.map(|one| (one.identity().name().to_owned(), self.best(one)))
            .collect()
    }

    /// The identity with the certificate that was read with the file, or with a better one that was obtained since.
    fn best(&self, loaded: &LoadedIdentity) -> Arc<ServerIdentity> {
        let identity = loaded.identity();
        let name = identity.name();
        let hosts = identity.hosts().iter();
        let hosts: Vec<String> = hosts.map(|host| host.as_str().to_owned()).collect();
        let is_better = |bundle: &Bundle| {
            let read = identity.facts();
            let is_whole = hosts.iter().all(|host| read.names.contains(host));
            !is_whole || bundle.covers(&hosts) && bundle.facts().not_after > read.not_after
        };
        let Some(bundle) = self.issued.best_for(name, &hosts).filter(is_better) else {
            return Arc::clone(identity);
        };
        match loaded.certified(bundle.pem()) {
            Ok(certified) => Arc::new(certified),
            Err(mistakes) => {
                tracing::error!(
                    "tls.{name}: the certificate that came cannot be used: {mistakes:?}"
                );
                Arc::clone(identity)
            }
        }
    }

    /// The identity as it is currently installed.
    fn in_force(&self, loaded: &LoadedIdentity) -> Arc<ServerIdentity> {
        let ordered = self.ordered.load();
        let name = loaded.identity().name();
        ordered.get(name).unwrap_or(loaded.identity()).clone()
    }

    /// Installs `snapshot` together with the offers that its file describes for the running listeners: every request
    /// and every handshake finds both. Listeners whose address is gone, or that no longer have TLS, stay unchanged
    /// until the restart that they need.
    pub(super) fn install(
        &self,
        mut snapshot: Snapshot,
        listeners: &[Listener],
        offers: Vec<Option<Offer>>,
        identities: Arc<Identities>,
    ) {
        let ordered = self.ordered_now(&identities);
        let offers = listeners
            .iter()
            .zip(offers)
            .filter_map(|(listener, offer)| {
                let number = *self.numbers.get(&listener.address)?;
                Some((number, offer?.certified(&ordered)))
            });
        let mut offers: HashMap<usize, Offer> = offers.collect();
        let before = self.snapshots.load_full();
        snapshot.offers = before.offers.replaced(|number| offers.remove(&number));
        self.snapshots.store(Arc::new(snapshot));
        self.is_file_refused.store(false, Relaxed);
        self.took_over(ordered, identities);
    }

    /// Notes that the present version of the file was refused.
    pub(super) fn file_refused(&self) {
        self.is_file_refused.store(true, Relaxed);
    }

    /// Makes the listeners verify clients by the present authorities and revocation lists of the installed identities,
    /// at times when no reload does so. A mistake elsewhere may prevent the whole file from being installed. Or the
    /// gateway is leaving, and a file that changes now may be meant for a successor.
    pub(super) async fn follow_lists(&self, drain: &Drain) {
        let mut ticks = tokio::time::interval(LISTS_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if !self.is_file_refused.load(Relaxed) && !drain.is_leaving() {
                continue;
            }
            let before = self.identities.load_full();
            let identities = Arc::clone(&before);
            let reading = spawn_blocking(move || identities.with_lists_of_today());
            let Ok(Some(today)) = reading.await else {
                continue;
            };
            // A file that was installed meanwhile was read with its lists.
            if Arc::ptr_eq(&before, &self.identities.load()) {
                self.install_lists(today);
            }
        }
    }

    /// Makes the listeners verify clients by these identities, which differ from the installed ones in nothing else.
    fn install_lists(&self, identities: Identities) {
        let ordered = self.ordered_now(&identities);
        let mut today = ordered.clone();
        for one in identities.all().filter(|one| !one.is_ordered()) {
            today.insert(one.identity().name().to_owned(), Arc::clone(one.identity()));
        }
        self.certify(&today);
        self.took_over(ordered, Arc::new(identities));
    }

    /// Notes and reports the newly installed identities.
    fn took_over(&self, ordered: OrderedByName, identities: Arc<Identities>) {
        self.ordered.store(Arc::new(ordered));
        let before = self.identities.swap(identities);
        self.report_kept(&before);
        self.report_ended();
        self.measure();
    }

    /// Logs identities whose files are now broken, once each, and identities whose files work again.
    fn report_kept(&self, before: &Identities) {
        for now in self.identities.load().all() {
            let name = now.identity().name();
            let before = before.named(name).and_then(|one| one.kept());
            match (before, now.kept()) {
                (None, Some(why)) => {
                    tracing::warn!(
                        "identity {name}: {why}; the earlier files stay in use until the new files are repaired"
                    );
                }
                (Some(_), None) => tracing::info!("identity {name}: its files can be used again"),
                _ => {}
            }
        }
    }

    /// Logs every expired certificate, which clients still see, and every expired revocation list, which makes the
    /// gateway refuse clients.
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

    /// Logs expired certificates and lists, now and each hour.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::QuickStart;
    use crate::tls::tests::parts;
    use std::net::SocketAddr;
    use std::thread;

    const NAMES: [&str; 2] = ["even", "odd"];
    const RELOADS: u64 = 300;

    fn parity(generation: u64) -> usize {
        usize::from(generation % 2 == 1)
    }

    fn snapshot(generation: u64) -> Snapshot {
        let flags = QuickStart {
            to: "127.0.0.1:1",
            ..QuickStart::default()
        };
        let mut snapshot = flags.compile().unwrap().snapshot;
        snapshot.generation = generation;
        snapshot
    }

    /// The attack: a handshake, or a request's host, is judged by the identities of one file while the rest comes from
    /// another file.
    #[test]
    fn a_generation_serves_its_own_identities_from_its_first_moment() {
        let identity = |name| ServerIdentity::new(parts(name, &["api.test"])).unwrap();
        let identities = NAMES.map(identity).map(Arc::new);
        let offer = |generation| {
            let identity = Arc::clone(&identities[parity(generation)]);
            Offer::new(vec![identity]).unwrap()
        };
        let listener = Listener::plain(SocketAddr::from(([127, 0, 0, 1], 1)).into());
        let mut first = snapshot(0);
        first.offers = [offer(0)].into_iter().collect();
        let snapshots = Arc::new(ArcSwap::from_pointee(first));
        let numbers = ListenerNumbers::from([(listener.address.clone(), 0)]);
        let listeners = TlsListeners::new(numbers, &snapshots, &Arc::default(), &Metrics::new());
        let in_force = listeners.offer(&listener.address).unwrap();
        let reader = thread::spawn(move || {
            loop {
                let before = snapshots.load().generation;
                let name = in_force.load().identities()[0].name().to_owned();
                let after = snapshots.load().generation;
                if before == after {
                    assert_eq!(name, NAMES[parity(before)], "generation {before}");
                }
                if after == RELOADS {
                    return;
                }
            }
        });
        for generation in 1..=RELOADS {
            let offers = vec![Some(offer(generation))];
            let written = std::slice::from_ref(&listener);
            listeners.install(snapshot(generation), written, offers, Arc::default());
        }
        reader.join().unwrap();
    }
}
