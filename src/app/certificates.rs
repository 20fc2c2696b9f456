//! Certificates that are ordered while the gateway runs: the task that orders, and the installation of new certificates
//! in the listeners. Certificates of the predecessor and of the store are installed before clients are accepted; orders
//! begin with [`CertificateOrders::start`] and end with [`CertificateOrders::stop`].

use super::GatewayState;
use super::tls_listeners::TlsListeners;
use crate::acme::{
    self, HandedCertificate, OrderDesk, OrderedIdentity, Renewals, SharedStorage, Storage,
};
use crate::clock;
use crate::config::describe::show_instant;
use crate::store::redis::SharedKeys;
use crate::store::{Backend, StoreSettings};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;

/// The time after the last orders' own time in which they are abandoned and their records stored.
const GIVEN_UP_WITHIN: Duration = Duration::from_secs(3);

/// The orders of the gateway.
#[derive(Debug)]
pub(super) struct CertificateOrders {
    /// The identities to order. Orders end when the sender is dropped.
    wanted: Mutex<Option<watch::Sender<Arc<[OrderedIdentity]>>>>,
    /// The orders, before their task starts.
    renewals: Mutex<Option<Renewals>>,
    desk: OrderDesk,
    task: Mutex<Option<OrderTask>>,
    tls: Arc<TlsListeners>,
}

/// The task that orders.
#[derive(Debug)]
struct OrderTask {
    task: JoinHandle<()>,
    /// The time for unfinished orders when the task is to end.
    last_orders: Arc<OnceLock<Duration>>,
}

impl CertificateOrders {
    /// The orders of a gateway whose listeners install the certificates. No order is made before the start. Workers
    /// answer from the shared challenges; `store` keeps certificates that gateways share.
    pub(super) fn new(
        orders: Arc<[OrderedIdentity]>,
        tls: &Arc<TlsListeners>,
        store: &StoreSettings,
        shared: &GatewayState,
    ) -> Arc<Self> {
        let wanted = watch::Sender::new(orders);
        let mut renewals = Renewals::new(
            wanted.subscribe(),
            tls.issued().clone(),
            shared.challenges.clone(),
            Arc::clone(&shared.metrics),
            clock::wall,
        );
        if let Backend::Redis(target) = &store.source {
            let storage = SharedStorage::new(SharedKeys::new(target), &store.prefix);
            renewals = renewals.sharing(storage);
        }
        Arc::new(Self {
            wanted: Mutex::new(Some(wanted)),
            desk: renewals.desk(),
            renewals: Mutex::new(Some(renewals)),
            task: Mutex::default(),
            tls: Arc::clone(tls),
        })
    }

    /// The certificates for a successor.
    pub(super) fn held(&self) -> Vec<HandedCertificate> {
        self.desk.held()
    }

    /// Makes listeners use the predecessor's certificates, and newer certificates of the store. The store has this time
    /// to answer.
    pub(super) async fn gather(&self, inherited: Vec<HandedCertificate>, within: Duration) {
        self.desk.inherit(inherited);
        // An authority may come with the first connection, for the challenge of another gateway.
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

    /// Repeats failed orders at once.
    pub(super) fn hurry(&self) {
        self.desk.hurry();
    }

    /// Begins to order, once clients, and therefore authorities, can connect.
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

    /// Orders the identities of a new file, instead of those of the former file. Obtained certificates stay.
    pub(super) async fn want(&self, orders: Arc<[OrderedIdentity]>) {
        let before = lock(&self.wanted).as_ref().map(|wanted| {
            // If both files order the same, no certificate needs a look.
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

    /// Ends the orders, and releases the right to order, so that another process can take it. An unfinished order that
    /// does not end within this time is abandoned, and does not count as a failure.
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

    /// Logs which of these identities have no certificate yet, and the cause.
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
                    "; the previous order failed, and the next one is made at {}",
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
