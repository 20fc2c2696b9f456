//! Certificates that are ordered while the gateway runs: the task that orders them, and the way of what comes into the
//! listeners. What the gateway before this one held, and what the store keeps, is there before clients are accepted; orders
//! begin with [`CertificateOrders::start`] and end with [`CertificateOrders::stop`].

use super::tls_listeners::TlsListeners;
use crate::acme::{
    self, HandedCertificate, OrderDesk, OrderedIdentity, Renewals, SharedStorage, Storage,
};
use crate::clock;
use crate::config::describe::show_instant;
use crate::store::redis::SharedKeys;
use crate::store::{Backend, StoreSettings};
use crate::telemetry::metrics::Metrics;
use crate::tls::AuthorityChallenges;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;

/// The time beyond what orders under way have in which they are given up, and what is known of them is kept.
const GIVEN_UP_WITHIN: Duration = Duration::from_secs(3);

/// The orders of the gateway.
#[derive(Debug)]
pub(super) struct CertificateOrders {
    /// What is ordered. Orders end when it is gone.
    wanted: Mutex<Option<watch::Sender<Arc<[OrderedIdentity]>>>>,
    /// What orders, until it begins to.
    renewals: Mutex<Option<Renewals>>,
    desk: OrderDesk,
    task: Mutex<Option<OrderTask>>,
    tls: Arc<TlsListeners>,
}

/// The task that orders.
#[derive(Debug)]
struct OrderTask {
    task: JoinHandle<()>,
    /// The time that orders under way have when it is to end.
    last_orders: Arc<OnceLock<Duration>>,
}

impl CertificateOrders {
    /// The orders of a gateway whose listeners take what comes. Nothing is ordered before the start. `challenges` are what
    /// workers answer from, `store` is where gateways keep certificates together.
    pub(super) fn new(
        orders: Arc<[OrderedIdentity]>,
        tls: &Arc<TlsListeners>,
        challenges: &AuthorityChallenges,
        store: &StoreSettings,
        metrics: &Arc<Metrics>,
    ) -> Arc<Self> {
        let wanted = watch::Sender::new(orders);
        let mut renewals = Renewals::new(
            wanted.subscribe(),
            tls.issued().clone(),
            challenges.clone(),
            Arc::clone(metrics),
            clock::wall,
        );
        if let Backend::Redis(target) = &store.source {
            let shared = SharedStorage::new(SharedKeys::new(target), &store.prefix);
            renewals = renewals.sharing(shared);
        }
        Arc::new(Self {
            wanted: Mutex::new(Some(wanted)),
            desk: renewals.desk(),
            renewals: Mutex::new(Some(renewals)),
            task: Mutex::default(),
            tls: Arc::clone(tls),
        })
    }

    /// The certificates that are held, for a successor.
    pub(super) fn held(&self) -> Vec<HandedCertificate> {
        self.desk.held()
    }

    /// Has listeners use what the gateway before this one held, and newer certificates that the store keeps. The store has
    /// this time to answer.
    pub(super) async fn gather(&self, inherited: Vec<HandedCertificate>, within: Duration) {
        self.desk.inherit(inherited);
        // An authority may come with the first connection, and look for another's challenge.
        let mut renewals = lock(&self.renewals).take();
        let mut read = None;
        if let Some(renewals) = &mut renewals {
            renewals.watch_challenges();
            read = Some(renewals.challenges_read());
        }
        *lock(&self.renewals) = renewals;
        let read = async {
            if let Some(read) = read {
                read.await;
            }
        };
        tokio::join!(read, self.desk.read_store(within));
        self.tls.install_issued();
    }

    /// Has orders that have failed made again at once.
    pub(super) fn hurry(&self) {
        self.desk.hurry();
    }

    /// Begins to order, once clients, and so authorities, can connect.
    pub(super) async fn start(&self) {
        let wanted = lock(&self.wanted)
            .as_ref()
            .map(|wanted| wanted.borrow().clone());
        let Some(orders) = wanted else { return };
        self.announce(&orders).await;
        let Some(renewals) = lock(&self.renewals).take() else {
            return;
        };
        *lock(&self.task) = Some(OrderTask {
            last_orders: renewals.last_orders(),
            task: tokio::spawn(renewals.run()),
        });
        let tls = Arc::clone(&self.tls);
        tokio::spawn(async move {
            loop {
                tls.issued().changed().await;
                tls.install_issued();
            }
        });
    }

    /// Orders what a new file says, in place of what the former file wanted. Certificates that have come stay.
    pub(super) async fn want(&self, orders: Arc<[OrderedIdentity]>) {
        let before = lock(&self.wanted).as_ref().map(|wanted| {
            // Two files that order the same need no look at each certificate.
            let before = wanted.borrow().clone();
            wanted.send_if_modified(|wanted| {
                let is_new = *wanted != orders;
                wanted.clone_from(&orders);
                is_new
            });
            before
        });
        let Some(before) = before else { return };
        let is_new = |one: &&OrderedIdentity| !before.contains(one);
        let new: Vec<OrderedIdentity> = orders.iter().filter(is_new).cloned().collect();
        self.announce(&new.into()).await;
    }

    /// Ends the orders, and lets the right to order go, so that another process can have it. An order under way that does
    /// not end within this time is given up, and counts as none.
    pub(super) async fn stop(&self, within: Duration) {
        let task = lock(&self.task).take();
        if let Some(task) = &task {
            // It is set once: nothing else ends the task.
            let _ = task.last_orders.set(within);
        }
        drop(lock(&self.wanted).take());
        if let Some(OrderTask { mut task, .. }) = task
            && timeout(within + GIVEN_UP_WITHIN, &mut task).await.is_err()
        {
            task.abort();
        }
    }

    /// Logs which of these have no certificate yet, and what they wait for.
    async fn announce(&self, orders: &Arc<[OrderedIdentity]>) {
        let all = Arc::clone(orders);
        let known = spawn_blocking(move || {
            let now = seconds_now();
            let all = all.iter();
            all.map(|one| match one.authority.storage {
                Storage::Folder(_) => Some(acme::outlook(one, now)),
                Storage::Store(_) => None,
            })
            .collect::<Vec<_>>()
        });
        let Ok(known) = known.await else { return };
        for (order, known) in orders.iter().zip(known) {
            if !self.tls.awaits(&order.name) {
                continue;
            }
            let damaged = match &known {
                Some(Ok(known)) if known.is_damaged => {
                    ", since the kept copy of the earlier one is damaged".to_owned()
                }
                Some(Err(error)) => {
                    format!(", since the kept certificate is not trusted ({error})")
                }
                _ => String::new(),
            };
            let next = known.and_then(|known| known.ok()?.next);
            let next = next.map_or_else(String::new, |next| {
                format!(
                    "; the order before failed, and the next is made at {}",
                    show_instant(next)
                )
            });
            tracing::warn!(
                "tls.{}: no certificate for {} yet; it is ordered from acme.{}{damaged}, and handshakes are refused until it comes{next}",
                order.name,
                order.hosts.join(", "),
                order.authority.name,
            );
        }
    }
}

fn seconds_now() -> i64 {
    i64::try_from(clock::wall().micros() / 1_000_000).unwrap_or(i64::MAX)
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}
