//! Finds answers for workers to whose connections an authority comes for an order of another gateway, or of another
//! process on the same folder. Open challenges are read every second, so that most answers are known here. For an
//! unknown challenge the worker waits for the next reading, which begins after the worker's request: a miss from before
//! an order is never remembered.
//!
//! Gateways of 0.1.0 do not list their challenges in the store. While such a gateway has the lock of an order, a
//! challenge is looked up by its own name.

use super::authority::{OrderedIdentity, Storage};
use super::failure::OrderFailure;
use super::folder::{Folder, FolderWatch};
use super::open_challenge::{ChallengeEntry, WATCH};
use super::others_answers::{OthersAnswers, ReadAnswers};
use super::readings::Readings;
use super::store_orders::lock_of;
use super::store_vault::{SharedStorage, StoreVault};
use crate::clock;
use crate::telemetry::log::Throttle;
use crate::telemetry::metrics::{Lookup, Metrics};
use crate::tls::{ChallengeQuestion, OthersAnswer};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Interval, MissedTickBehavior, interval, sleep_until, timeout};

/// The least time between two readings of folders while a request waits for one.
const BETWEEN: Duration = Duration::from_millis(100);

/// Logs that a lookup has failed. The log is throttled, since strangers can cause lookups.
static UNANSWERED: Throttle = Throttle::every(Duration::from_secs(10));

/// This process's record of other processes' challenges.
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
    /// Readings of locks, separate from readings of open challenges: strangers can name as many identities as there are
    /// locks, and no authority waits for these readings.
    lock_readings: Readings,
    locks: LastLocks,
}

/// The result of the last reading of an identity's lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LastLock {
    /// A gateway orders it.
    Held,
    /// No gateway orders the identity, or the file no longer has the identity.
    Free,
    /// The store did not answer.
    Unknown,
}

/// The results of the readings of locks. A result stays until its identity is requested again: a task that has waited
/// for a reading may look at the result after later readings have begun.
#[derive(Debug, Default)]
struct LastLocks(Mutex<HashMap<Arc<str>, LastLock>>);

impl LastLocks {
    /// Notes a reading of the locks of `asked`; if the store has answered, the locks of `ordered` are held.
    fn note(
        &self,
        asked: HashSet<Arc<str>>,
        ordered: Option<&HashSet<Arc<str>>>,
        is_wanted: impl Fn(&str) -> bool,
    ) {
        let mut locks = self.0.lock();
        locks.retain(|name, _| is_wanted(name));
        for name in asked {
            let found = match ordered.map(|ordered| ordered.contains(&name)) {
                Some(true) => LastLock::Held,
                Some(false) => LastLock::Free,
                None => LastLock::Unknown,
            };
            locks.insert(name, found);
        }
    }

    fn of(&self, name: &str) -> LastLock {
        let locks = self.0.lock();
        locks.get(name).copied().unwrap_or(LastLock::Free)
    }
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
            lock_readings: Readings::default(),
            locks: LastLocks::default(),
        }
    }

    /// The answer of another gateway or process, if known here.
    pub(super) fn known(&self, host: &str, token: Option<&str>) -> Option<Arc<OthersAnswer>> {
        let answer = self.answers.of(&ChallengeEntry::of(host, token).name())?;
        self.found(host, &answer);
        Some(answer)
    }

    /// Counts each lookup. Strangers cause lookups too: only the first one for each challenge is logged.
    fn found(&self, host: &str, answer: &OthersAnswer) {
        self.metrics.acme_looked_up(Lookup::Found);
        if answer.tell() {
            tracing::info!(
                "{host}: an authority or a stranger asked this gateway for another gateway's challenge, and got it"
            );
        }
    }

    /// From now on other processes may order into these folders, and into no other.
    pub(super) fn watch_folders(&self, folders: HashSet<PathBuf>) {
        let before = std::mem::replace(&mut *self.folders.lock(), folders.clone());
        if before != folders {
            // A folder that this process has taken over is released at once, since its orders would wait for this
            // watch.
            self.folder_readings.hasten();
        }
    }

    /// Reads open challenges every second, and answers requests, for as long as requests can come. Each request has a
    /// deadline at its sender, and their number is bounded there.
    pub(super) async fn run(self: Arc<Self>, mut questions: mpsc::Receiver<ChallengeQuestion>) {
        // The readers end with this task.
        let mut readers = JoinSet::new();
        readers.spawn(Arc::clone(&self).read_stores());
        readers.spawn(Arc::clone(&self).read_locks());
        readers.spawn(Arc::clone(&self).read_folders());
        while let Some(question) = questions.recv().await {
            let watch = Arc::clone(&self);
            tokio::spawn(async move {
                let (answer, result) = watch.look(&question).await;
                match &answer {
                    Some(answer) => watch.found(&question.host, answer),
                    None => watch.metrics.acme_looked_up(result),
                }
                // A worker does not wait any more if the authority has closed its connection.
                let _ = question.answer.send(answer);
            });
        }
    }

    /// Waits until open challenges have been read once, at most for this time.
    pub(super) async fn first_reading(&self, within: Duration) {
        let both =
            async { tokio::join!(self.store_readings.next([]), self.folder_readings.next([])) };
        // A challenge that is not read by then is read while the gateway serves.
        let _ = timeout(within, both).await;
    }

    async fn read_stores(self: Arc<Self>) {
        let mut ticks = self.ticks();
        loop {
            ticks.tick().await;
            self.store_readings.begin();
            if let Err(failure) = self.read_all_stores().await {
                tracing::debug!("open challenges cannot be read: {failure}");
            }
            self.store_readings.end();
        }
    }

    async fn read_locks(self: Arc<Self>) {
        let mut ticks = self.ticks();
        loop {
            ticks.tick().await;
            let asked = self.lock_readings.begin();
            let ordered = self.ordered_of(&asked).await.ok();
            let wanted = self.wanted.borrow().clone();
            let is_wanted = |name: &str| wanted.iter().any(|one| *one.name == *name);
            self.locks.note(asked, ordered.as_ref(), is_wanted);
            self.lock_readings.end();
        }
    }

    fn ticks(&self) -> Interval {
        let pace = self.shared.as_ref().map(|shared| shared.pace);
        let mut ticks = interval(pace.unwrap_or_default().watch);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks
    }

    /// Reads the open challenges of all stores.
    async fn read_all_stores(&self) -> Result<(), OrderFailure> {
        let wanted = self.wanted.borrow().clone();
        let mut open = HashMap::new();
        for store in self.stores(wanted.iter()) {
            for one in store.open_challenges().await? {
                open.insert(OthersAnswers::digest(&one.name), one.answer);
            }
        }
        self.answers.are_in_stores(open);
        Ok(())
    }

    /// The requested identities that some gateway is ordering.
    async fn ordered_of(
        &self,
        asked: &HashSet<Arc<str>>,
    ) -> Result<HashSet<Arc<str>>, OrderFailure> {
        let wanted = self.wanted.borrow().clone();
        let mut ordered = HashSet::new();
        for identity in wanted.iter().filter(|one| asked.contains(&one.name)) {
            for store in self.stores([identity]) {
                if store.is_locked(&lock_of(identity)).await? {
                    ordered.insert(Arc::clone(&identity.name));
                }
            }
        }
        if !asked.is_empty() && ordered.is_empty() {
            self.answers.forget_by_name();
        }
        Ok(ordered)
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
            let folders = self.folders.lock().clone();
            let read = spawn_blocking(move || {
                let open = read_each(&folders, &mut watches);
                (open, watches)
            });
            let Ok((open, kept)) = read.await else { return };
            watches = kept;
            self.answers.are_in_folders(open);
            self.folder_readings.end();
            tokio::select! {
                () = sleep_until(begun + WATCH) => {}
                () = self.folder_readings.asked() => sleep_until(begun + BETWEEN).await,
            }
        }
    }

    /// Looks for an answer that is not known here: in the next reading, and by its name if an order of 0.1.0 may be
    /// open.
    async fn look(&self, question: &ChallengeQuestion) -> (Option<Arc<OthersAnswer>>, Lookup) {
        let host = &*question.host;
        let entry = ChallengeEntry::of(host, question.token.as_deref());
        let wanted = self.wanted.borrow().clone();
        let of_host = wanted
            .iter()
            .filter(|one| one.hosts.iter().any(|name| name == host));
        let (in_store, in_folder): (Vec<_>, Vec<_>) =
            of_host.partition(|one| matches!(one.authority.storage, Storage::Store(_)));
        if !in_folder.is_empty() {
            self.folder_readings.next([]).await;
            if let Some(answer) = self.answers.of(&entry.name()) {
                return (Some(answer), Lookup::Found);
            }
        }
        if in_store.is_empty() {
            return (None, Lookup::Missing);
        }
        let names = in_store.iter().map(|one| Arc::clone(&one.name));
        let locks_read = self.lock_readings.next(names);
        self.store_readings.next([]).await;
        if let Some(answer) = self.answers.of(&entry.name()) {
            return (Some(answer), Lookup::Found);
        }
        locks_read.await;
        let mut ordered = Vec::new();
        for one in in_store {
            match self.locks.of(&one.name) {
                LastLock::Held => ordered.push(one),
                LastLock::Free => {}
                LastLock::Unknown => return (None, Lookup::Failed),
            }
        }
        self.look_by_name(host, entry, &self.stores(ordered)).await
    }

    async fn look_by_name(
        &self,
        host: &str,
        entry: ChallengeEntry<'_>,
        stores: &[StoreVault],
    ) -> (Option<Arc<OthersAnswer>>, Lookup) {
        for store in stores {
            match store.look_up(entry).await {
                Ok(Some(answer)) => {
                    let answer = self.answers.found_by_name(&entry.name(), answer);
                    return (Some(answer), Lookup::Found);
                }
                Ok(None) => {}
                Err(failure) => {
                    if let Some(more) = UNANSWERED.pass() {
                        tracing::warn!("{host}: a challenge cannot be answered: {failure}{more}");
                    }
                    return (None, Lookup::Failed);
                }
            }
        }
        (None, Lookup::Missing)
    }
}

/// The open challenges of these folders. The lock in `watches` shows the ordering process that its folder is read. A
/// folder that cannot be read has no challenges; the error is logged where the folder is locked.
fn read_each(
    folders: &HashSet<PathBuf>,
    watches: &mut HashMap<PathBuf, FolderWatch>,
) -> ReadAnswers {
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

/// The hosts whose challenges another gateway or another process may have ready: hosts of the store, and of folders
/// that this process does not order into.
pub(super) fn hosts_elsewhere(
    wanted: &[OrderedIdentity],
    is_ours: impl Fn(&Path) -> bool,
) -> HashSet<Box<str>> {
    let is_others = |one: &&OrderedIdentity| !one.authority.storage.folder().is_some_and(&is_ours);
    let others = wanted.iter().filter(is_others);
    let hosts = others.flat_map(|one| &one.hosts);
    hosts.map(|host| host.as_str().into()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names<const N: usize>(names: [&str; N]) -> HashSet<Arc<str>> {
        names.into_iter().map(Arc::from).collect()
    }

    /// A worker with a slow store looks at the result of its reading after other readings have begun and ended.
    #[test]
    fn what_a_reading_of_locks_has_found_stays_until_it_is_asked_for_again() {
        let locks = LastLocks::default();
        let all = |_: &str| true;
        locks.note(names(["shop", "mail"]), Some(&names(["shop"])), all);
        for other in [names([]), names(["mail"])] {
            locks.note(other, Some(&names([])), all);
            assert_eq!(locks.of("shop"), LastLock::Held);
            assert_eq!(locks.of("mail"), LastLock::Free);
        }
        locks.note(names(["mail"]), None, all);
        assert_eq!(locks.of("shop"), LastLock::Held);
        assert_eq!(locks.of("mail"), LastLock::Unknown);
        locks.note(names(["shop"]), Some(&names([])), all);
        assert_eq!(locks.of("shop"), LastLock::Free);
        // An identity that is no longer wanted leaves no result.
        locks.note(names([]), Some(&names([])), |name| name != "mail");
        assert_eq!(locks.0.into_inner().len(), 1);
    }
}
