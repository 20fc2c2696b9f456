//! The task that orders certificates, renews them before they end, and tries again after a failure.

use super::accounts::OpenAccounts;
use super::attempts::Attempts;
use super::authority::{Authority, OrderedIdentity};
use super::challenge_watch::{ChallengeWatch, hosts_elsewhere};
use super::failure::OrderFailure;
use super::folder::{Folder, FolderLock};
use super::held_versions::{HeldVersions, StoreReach};
use super::hurry::Hurry;
use super::issued::IssuedCertificates;
use super::order_desk::OrderDesk;
use super::orders::{Look, Orders};
use super::schedule::{Seconds, WallClock};
use super::store_vault::{SharedStorage, StoreVault};
use super::suggestions::Suggestions;
use super::vault::{OrderRight, Vault, lock_folder};
use crate::telemetry::metrics::{Lookup, Metrics};
use crate::tls::{AuthorityChallenges, ChallengeDesk};
use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::{self, JoinError, JoinSet};
use tokio::time::timeout;

/// The interval between looks at the certificates.
const LOOK: Duration = Duration::from_secs(60);
/// The shortest time between two looks.
const SHORTEST: Duration = Duration::from_millis(500);
/// The interval between looks at a folder that another process orders into: for its certificates, and for its lock.
const READ: Duration = Duration::from_secs(2);
/// The pause before an unavailable store is tried again.
const AWAY: Duration = Duration::from_secs(5);
/// The longest wait for the open challenges of others before clients are accepted.
const FIRST_READING: Duration = Duration::from_secs(2);
/// Orders under way at once.
const AT_ONCE: usize = 4;

/// The orders of a gateway.
#[derive(Debug)]
pub struct Renewals {
    orders: Arc<Orders>,
    wanted: watch::Receiver<Arc<[OrderedIdentity]>>,
    /// The right to order into each folder. `None` if another process has the right, or if the folder cannot be used;
    /// both are logged.
    folders: HashMap<PathBuf, Option<FolderLock>>,
    under_way: JoinSet<()>,
    /// The identities that are being ordered.
    ordering: HashMap<task::Id, Arc<str>>,
    reach: StoreReach,
    /// The task that reads others' answers to challenges, once begun.
    watching: Option<Watching>,
}

/// The task that reads others' answers to challenges.
#[derive(Debug)]
struct Watching {
    watch: Arc<ChallengeWatch>,
    desk: ChallengeDesk,
}

impl Renewals {
    /// The orders of the identities in `wanted`, which may change. Certificates are put into `issued`.
    #[must_use]
    pub fn new(
        wanted: watch::Receiver<Arc<[OrderedIdentity]>>,
        issued: IssuedCertificates,
        challenges: AuthorityChallenges,
        metrics: Arc<Metrics>,
        wall: WallClock,
    ) -> Self {
        let orders = Orders {
            issued,
            challenges,
            metrics,
            wall,
            wanted: wanted.clone(),
            seed: fastrand::u64(..),
            accounts: OpenAccounts::default(),
            suggestions: Suggestions::default(),
            shared: None,
            versions: HeldVersions::default(),
            last_orders: Arc::default(),
            hurry: Hurry::default(),
        };
        Self {
            orders: Arc::new(orders),
            wanted,
            folders: HashMap::new(),
            under_way: JoinSet::new(),
            ordering: HashMap::new(),
            reach: StoreReach::default(),
            watching: None,
        }
    }

    /// The same with a store that several gateways share, for authorities with such storage.
    #[must_use]
    pub fn sharing(mut self, shared: SharedStorage) -> Self {
        if let Some(orders) = Arc::get_mut(&mut self.orders) {
            orders.shared = Some(shared);
        }
        self
    }

    /// A handle to these orders for others, before they run and while they do.
    #[must_use]
    pub fn desk(&self) -> OrderDesk {
        OrderDesk(Arc::clone(&self.orders))
    }

    /// The time for unfinished orders to end when no certificate can be wanted any more. The time may be set until
    /// then; the default is short.
    #[must_use]
    pub fn last_orders(&self) -> Arc<OnceLock<Duration>> {
        Arc::clone(&self.orders.last_orders)
    }

    /// Orders and renews until dropped, or until no certificate can be wanted any more. Unfinished orders then get the
    /// time of [`Renewals::last_orders`], and are then abandoned. Other processes' challenges are still answered, as
    /// long as an authority may come to this process.
    pub async fn run(mut self) {
        self.watch_challenges();
        let hurry = Arc::clone(&self.orders);
        loop {
            let wanted = self.wanted.borrow_and_update().clone();
            // A folder that was not looked at yet may belong to another process.
            self.look_elsewhere(&wanted);
            let next = self.round(&wanted).await;
            self.look_elsewhere(&wanted);
            tokio::select! {
                () = hurry.hurry.asked() => self.leave_orders_under_way(),
                changed = timeout(next, self.wanted.changed()) => {
                    if matches!(changed, Ok(Err(_))) {
                        break;
                    }
                }
                Some(ended) = self.under_way.join_next_with_id() => self.note_end(ended),
            }
        }
        while self.under_way.join_next().await.is_some() {}
    }

    /// Begins to read other processes' open challenges, and to answer workers from them, unless it has begun already.
    /// This comes before clients are accepted, since another gateway may be ordering. The reading goes on for as long
    /// as requests can come.
    pub fn watch_challenges(&mut self) {
        self.watching.get_or_insert_with(|| {
            let orders = &self.orders;
            let (shared, metrics) = (orders.shared.clone(), Arc::clone(&orders.metrics));
            let watch = ChallengeWatch::new(self.wanted.clone(), shared, metrics);
            let (watch, metrics) = (Arc::new(watch), Arc::clone(&orders.metrics));
            let known = Arc::clone(&watch);
            let (desk, questions) = ChallengeDesk::new(
                Arc::new(move |host, token| known.known(host, token)),
                Arc::new(move || metrics.acme_looked_up(Lookup::Refused)),
            );
            tokio::spawn(Arc::clone(&watch).run(questions));
            Watching { watch, desk }
        });
        let wanted = self.wanted.borrow().clone();
        self.look_elsewhere(&wanted);
    }

    /// Resolves when the open challenges of others have been read once, or after two seconds.
    pub fn challenges_read(&self) -> impl Future<Output = ()> + use<> {
        let watch = self.watching.as_ref();
        let watch = watch.map(|watching| Arc::clone(&watching.watch));
        async move {
            if let Some(watch) = watch {
                watch.first_reading(FIRST_READING).await;
            }
        }
    }

    fn look_elsewhere(&self, wanted: &[OrderedIdentity]) {
        let Some(watching) = &self.watching else {
            return;
        };
        let is_ours = |folder: &Path| matches!(self.folders.get(folder), Some(Some(_)));
        let folders = wanted
            .iter()
            .filter_map(|one| one.authority.storage.folder());
        let others = folders.filter(|folder| !is_ours(folder));
        let others = others.map(Path::to_owned).collect();
        watching.watch.watch_folders(others);
        let hosts = hosts_elsewhere(wanted, is_ours);
        self.orders.challenges.look_elsewhere(hosts, &watching.desk);
    }

    /// Looks at every identity that is not being ordered, and begins the orders that are due. Returns the time until
    /// the next look, which is earlier if an order ends.
    async fn round(&mut self, wanted: &Arc<[OrderedIdentity]>) -> Duration {
        let folders = wanted
            .iter()
            .filter_map(|one| one.authority.storage.folder());
        let folders: HashSet<&Path> = folders.collect();
        self.folders.retain(|folder, _| folders.contains(&**folder));
        let mut next = LOOK;
        for identity in wanted.iter() {
            if self.is_ordering(&identity.name) {
                continue;
            }
            let looked = match self.orders.vault(&identity.authority) {
                Ok(vault) => self.look(identity, &vault, &mut next).await,
                Err(failure) => Err(failure),
            };
            match looked {
                Ok(Some(Look::Due(attempts, right))) => {
                    self.begin(identity.clone(), *attempts, right);
                }
                Ok(Some(Look::Later(after))) => next = next.min(pause(after)),
                Ok(None) => next = next.min(READ),
                Err(failure) if failure.is_of_store() => {}
                Err(failure) => tracing::error!("tls.{}: {failure}", identity.name),
            }
        }
        next
    }

    /// Looks at one identity. An identity that another process orders needs no line of the log.
    async fn look(
        &mut self,
        identity: &OrderedIdentity,
        vault: &Vault,
        next: &mut Duration,
    ) -> Result<Option<Look>, OrderFailure> {
        match vault {
            Vault::Folder(folder) => {
                if self.may_order(&identity.authority, folder).await {
                    return self.orders.look(identity, vault).await.map(Some);
                }
                if let Some(taken) = self.orders.reread(identity, vault).await {
                    self.orders.note_taken(identity, &taken, &vault.place());
                }
                Ok(None)
            }
            Vault::Store(store) => {
                *next = (*next).min(store.shared.pace.read);
                self.look_in_store(identity, store, next).await.map(Some)
            }
        }
    }

    async fn look_in_store(
        &mut self,
        identity: &OrderedIdentity,
        store: &StoreVault,
        next: &mut Duration,
    ) -> Result<Look, OrderFailure> {
        let may_begin = self.under_way.len() < AT_ONCE;
        let looked = self.orders.look_in_store(identity, store, may_begin).await;
        let is_away = match &looked {
            Err(failure) => failure.is_of_store().then(|| failure.to_string()),
            Ok(_) => None,
        };
        if is_away.is_some() {
            *next = (*next).min(AWAY);
        }
        self.reach.note(is_away, store, &self.orders.metrics);
        looked
    }

    fn note_end(&mut self, ended: Result<(task::Id, ()), JoinError>) {
        let id = ended.map_or_else(|error| error.id(), |(id, ())| id);
        self.ordering.remove(&id);
    }

    /// An identity that is being ordered is not ordered again for the hurry.
    fn leave_orders_under_way(&mut self) {
        while let Some(ended) = self.under_way.try_join_next_with_id() {
            self.note_end(ended);
        }
        for name in self.ordering.values() {
            self.orders.hurry.forget(name);
        }
    }

    fn is_ordering(&self, name: &Arc<str>) -> bool {
        self.ordering.values().any(|ordered| ordered == name)
    }

    /// Begins an order, unless the most orders are being made. The next order begins when one of them ends.
    fn begin(&mut self, identity: OrderedIdentity, attempts: Attempts, right: OrderRight) {
        if self.under_way.len() >= AT_ONCE {
            return;
        }
        let (orders, name) = (Arc::clone(&self.orders), Arc::clone(&identity.name));
        orders.hurry.forget(&name);
        let order = async move { orders.order(&identity, attempts, right).await };
        let begun = self.under_way.spawn(order);
        self.ordering.insert(begun.id(), name);
    }

    /// Has this process the right to order into the authority's folder?
    async fn may_order(&mut self, authority: &Authority, folder: &Folder) -> bool {
        let path: &Path = folder.path();
        if let Some(Some(_)) = self.folders.get(path) {
            return true;
        }
        let is_new = !self.folders.contains_key(path);
        let (name, place) = (&authority.name, path.display());
        let tried = lock_folder(folder).await;
        match &tried {
            Ok(Some(_)) if !is_new => {
                tracing::info!("acme.{name}: this process orders into {place} from now on");
            }
            Ok(None) if is_new => tracing::info!(
                "acme.{name}: another process orders into {place}; its certificates are served as they come"
            ),
            Err(failure) if is_new => tracing::error!("acme.{name}: {failure}"),
            _ => {}
        }
        let right = tried.ok().flatten();
        let is_held = right.is_some();
        self.folders.insert(path.to_owned(), right);
        is_held
    }
}

/// The time until an identity is looked at again, for a wait of this number of seconds.
fn pause(after: Seconds) -> Duration {
    Duration::from_secs(after.max(0).unsigned_abs()).max(SHORTEST)
}
