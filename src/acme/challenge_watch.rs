//! Answers for workers that an authority has asked about an order of another gateway, or of another process on the same
//! folder. Open challenges are read every second, so that most answers are known here. Where one is not, the worker waits
//! for the next reading, which has begun after it was asked: no miss of before an order is remembered.
//!
//! Gateways of 0.1.0 do not list their challenges in the store. While one of them has the lock of an order, what is asked
//! for is looked for by its own name.

use super::authority::{OrderedIdentity, Storage};
use super::failure::Failure;
use super::folder::{Folder, FolderWatch};
use super::others_answers::OthersAnswers;
use super::readings::Readings;
use super::store_orders::lock_of;
use super::store_vault::{ChallengeEntry, SharedStorage, StoreVault};
use crate::clock;
use crate::telemetry::log::Throttle;
use crate::telemetry::metrics::{Lookup, Metrics};
use crate::tls::ChallengeQuestion;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{MissedTickBehavior, interval, sleep_until, timeout};

/// Folders are read this often.
const READ: Duration = Duration::from_secs(1);
/// The least time between two readings of folders, where a question waits for one.
const BETWEEN: Duration = Duration::from_millis(100);

/// Logs that a look has failed. Strangers can have gateways look.
static UNANSWERED: Throttle = Throttle::every(Duration::from_secs(10));

/// What this process knows of the challenges of others.
#[derive(Debug)]
pub(super) struct ChallengeWatch {
    wanted: watch::Receiver<Arc<[OrderedIdentity]>>,
    shared: Option<SharedStorage>,
    metrics: Arc<Metrics>,
    answers: OthersAnswers,
    /// The folders that another process may order into.
    folders: Mutex<HashSet<PathBuf>>,
    folder_readings: Readings,
    store_readings: Readings,
    /// What the last reading of the store has found beside open challenges.
    last: Mutex<LastReading>,
}

/// What a reading of the store has found beside open challenges.
#[derive(Debug, Default)]
struct LastReading {
    /// The identities that are being ordered, of those that were asked for.
    ordered: HashSet<Arc<str>>,
    /// The store did not answer.
    has_failed: bool,
}

impl ChallengeWatch {
    pub(super) fn new(
        wanted: watch::Receiver<Arc<[OrderedIdentity]>>,
        shared: Option<SharedStorage>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            wanted,
            shared,
            metrics,
            answers: OthersAnswers::default(),
            folders: Mutex::default(),
            folder_readings: Readings::default(),
            store_readings: Readings::default(),
            last: Mutex::default(),
        }
    }

    /// The answer of another that is known here.
    pub(super) fn known(&self, host: &str, token: Option<&str>) -> Option<Vec<u8>> {
        let answer = self.answers.of(&ChallengeEntry::of(host, token).name())?;
        self.found(host);
        Some(answer)
    }

    fn found(&self, host: &str) {
        tracing::info!("{host}: an authority looks for a challenge of another gateway");
        self.metrics.acme_looked_up(Lookup::Found);
    }

    /// From now on another process may order into these folders, and into no other.
    pub(super) fn watch_folders(&self, folders: HashSet<PathBuf>) {
        let before = std::mem::replace(&mut *lock(&self.folders), folders.clone());
        if before != folders {
            // A folder that is this process's is let go at once: its orders would wait for this watch.
            self.folder_readings.hasten();
        }
    }

    /// Reads open challenges every second, and answers questions, until none can come. Each question has a deadline where
    /// it is asked, and their number is bounded there.
    pub(super) async fn run(self: Arc<Self>, mut questions: mpsc::Receiver<ChallengeQuestion>) {
        // They end with this task.
        let mut readers = JoinSet::new();
        readers.spawn(Arc::clone(&self).read_stores());
        readers.spawn(Arc::clone(&self).read_folders());
        while let Some(question) = questions.recv().await {
            let own = Arc::clone(&self);
            tokio::spawn(async move {
                let (answer, result) = own.look(&question).await;
                match result {
                    Lookup::Found => own.found(&question.host),
                    other => own.metrics.acme_looked_up(other),
                }
                // A worker whose authority has left does not wait.
                let _ = question.answer.send(answer);
            });
        }
    }

    /// Waits until open challenges have been read once, for so long at most.
    pub(super) async fn first_reading(&self, within: Duration) {
        let both = async {
            tokio::join!(
                self.store_readings.next(HashSet::new()),
                self.folder_readings.next(HashSet::new())
            )
        };
        // What is not read then is read while the gateway serves.
        let _ = timeout(within, both).await;
    }

    async fn read_stores(self: Arc<Self>) {
        let pace = self.shared.as_ref().map(|shared| shared.pace);
        let mut ticks = interval(pace.unwrap_or_default().watch);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let asked = self.store_readings.begin();
            let read = self.read_all_stores(asked).await;
            *lock(&self.last) = read.unwrap_or_else(|failure| {
                tracing::debug!("open challenges cannot be read: {failure}");
                LastReading {
                    has_failed: true,
                    ..LastReading::default()
                }
            });
            self.store_readings.end();
        }
    }

    /// Reads what is open in all stores, and which of the identities that were asked for are being ordered.
    async fn read_all_stores(&self, asked: HashSet<Arc<str>>) -> Result<LastReading, Failure> {
        let wanted = self.wanted.borrow().clone();
        let mut open = HashMap::new();
        for store in self.stores(wanted.iter()) {
            for one in store.open_challenges().await? {
                open.insert(OthersAnswers::digest(&one.name), one.answer);
            }
        }
        self.answers.are_in_stores(open);
        let mut ordered = HashSet::new();
        for identity in wanted.iter().filter(|one| asked.contains(&one.name)) {
            for store in self.stores([identity]) {
                if store.is_locked(&lock_of(identity)).await? {
                    ordered.insert(Arc::clone(&identity.name));
                }
            }
        }
        Ok(LastReading {
            ordered,
            has_failed: false,
        })
    }

    /// The stores of these identities, each once.
    fn stores<'a>(
        &self,
        identities: impl IntoIterator<Item = &'a OrderedIdentity>,
    ) -> Vec<StoreVault> {
        let mut keys = Vec::new();
        for identity in identities {
            if let Storage::Store(key) = &identity.authority.storage
                && !keys.contains(&key)
            {
                keys.push(key);
            }
        }
        let shared = self.shared.as_ref();
        let sealed = keys
            .into_iter()
            .map(|key| shared.map(|shared| shared.sealed_with(key)));
        sealed.flatten().collect()
    }

    async fn read_folders(self: Arc<Self>) {
        let mut watches = HashMap::new();
        loop {
            let begun = clock::now();
            self.folder_readings.begin();
            let folders = lock(&self.folders).clone();
            let read = spawn_blocking(move || {
                let open = read_each(&folders, &mut watches);
                (open, watches)
            });
            let Ok((open, kept)) = read.await else { return };
            watches = kept;
            self.answers.are_in_folders(open);
            self.folder_readings.end();
            tokio::select! {
                () = sleep_until(begun + READ) => {}
                () = self.folder_readings.asked() => sleep_until(begun + BETWEEN).await,
            }
        }
    }

    /// Looks for an answer that is not known here: in the next reading, and by its name where an order of 0.1.0 may be
    /// open.
    async fn look(&self, question: &ChallengeQuestion) -> (Option<Vec<u8>>, Lookup) {
        let host = &*question.host;
        let entry = ChallengeEntry::of(host, question.token.as_deref());
        let wanted = self.wanted.borrow().clone();
        let of_host = wanted
            .iter()
            .filter(|one| one.hosts.iter().any(|own| own == host));
        let (in_store, in_folder): (Vec<_>, Vec<_>) =
            of_host.partition(|one| matches!(one.authority.storage, Storage::Store(_)));
        if !in_folder.is_empty() {
            self.folder_readings.next(HashSet::new()).await;
            if let Some(answer) = self.answers.of(&entry.name()) {
                return (Some(answer), Lookup::Found);
            }
        }
        if in_store.is_empty() {
            return (None, Lookup::Missing);
        }
        let names = in_store.iter().map(|one| Arc::clone(&one.name));
        self.store_readings.next(names.collect()).await;
        if let Some(answer) = self.answers.of(&entry.name()) {
            return (Some(answer), Lookup::Found);
        }
        let (ordered, has_failed) = {
            let last = lock(&self.last);
            let ordered = in_store
                .iter()
                .filter(|one| last.ordered.contains(&one.name));
            (ordered.copied().collect::<Vec<_>>(), last.has_failed)
        };
        if has_failed {
            return (None, Lookup::Failed);
        }
        self.look_by_name(host, entry, &self.stores(ordered)).await
    }

    async fn look_by_name(
        &self,
        host: &str,
        entry: ChallengeEntry<'_>,
        stores: &[StoreVault],
    ) -> (Option<Vec<u8>>, Lookup) {
        for store in stores {
            match store.look_up(entry).await {
                Ok(Some(answer)) => return (Some(answer), Lookup::Found),
                Ok(None) => {}
                Err(failure) => {
                    if let Some(more) = UNANSWERED.pass() {
                        tracing::warn!("{host}: a challenge is not answered: {failure}{more}");
                    }
                    return (None, Lookup::Failed);
                }
            }
        }
        (None, Lookup::Missing)
    }
}

/// The open challenges of these folders. The process that orders into one sees by `watches` that it is read. A folder that
/// cannot be read has no challenges; its trouble is logged where it is locked.
fn read_each(
    folders: &HashSet<PathBuf>,
    watches: &mut HashMap<PathBuf, FolderWatch>,
) -> HashMap<[u8; 32], Vec<u8>> {
    watches.retain(|path, _| folders.contains(path));
    let mut open = HashMap::new();
    for path in folders {
        let folder = Folder::at(path);
        if !watches.contains_key(path)
            && let Ok(Some(watching)) = folder.watch()
        {
            watches.insert(path.clone(), watching);
        }
        open.extend(folder.all_posted().unwrap_or_default());
    }
    open
}

/// The hosts whose challenges another gateway, or another process, may have ready: those of the store, and of the folders
/// that are not this process's to order into.
pub(super) fn hosts_elsewhere(
    wanted: &[OrderedIdentity],
    is_ours: impl Fn(&Path) -> bool,
) -> HashSet<Box<str>> {
    let others = wanted.iter().filter(|one| match &one.authority.storage {
        Storage::Store(_) => true,
        Storage::Folder(path) => !is_ours(path),
    });
    let hosts = others.flat_map(|one| &one.hosts);
    hosts.map(|host| host.as_str().into()).collect()
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}
