//! The place that keeps accounts, certificates and failures: a folder, or the store that several gateways share.

use super::authority::{Authority, Storage};
use super::failure::OrderFailure;
use super::folder::{Folder, FolderLock, Part};
use super::open_challenge::{NOTICE, OpenChallenge};
use super::store_lock::StoreLock;
use super::store_vault::{SharedStorage, StoreVault};
use std::io;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

/// A place for data that must outlive the process.
#[derive(Debug, Clone)]
pub(super) enum Vault {
    Folder(Folder),
    Store(StoreVault),
}

/// The right to order one certificate: given to the one process that orders into a folder, for its life, or to the
/// gateway that holds a lock of the store.
#[derive(Debug)]
pub(super) struct OrderRight(Option<StoreLock>);

impl OrderRight {
    /// The right of the process that orders into a folder.
    pub(super) fn into_folder() -> Self {
        Self(None)
    }

    /// The right of the gateway that holds this lock of the store.
    pub(super) fn under(lock: StoreLock) -> Self {
        Self(Some(lock))
    }

    /// Checks that the right is still held.
    pub(super) async fn confirm(&self) -> Result<(), OrderFailure> {
        match &self.0 {
            Some(lock) => lock.confirm().await,
            None => Ok(()),
        }
    }

    /// Is the right known to be lost?
    pub(super) fn is_lost(&self) -> bool {
        self.0.as_ref().is_some_and(StoreLock::is_lost)
    }

    /// Releases the right.
    pub(super) async fn release(self) {
        if let Some(lock) = self.0 {
            lock.release().await;
        }
    }
}

impl Vault {
    /// The place that an authority's table names. `shared` is the store, where there is one.
    pub(super) fn of(
        authority: &Authority,
        shared: Option<&SharedStorage>,
    ) -> Result<Self, OrderFailure> {
        match (&authority.storage, shared) {
            (Storage::Folder(path), _) => Ok(Self::Folder(Folder::at(path))),
            (Storage::Store(key), Some(shared)) => Ok(Self::Store(shared.sealed_with(key))),
            (Storage::Store(_), None) => Err(OrderFailure::NoStore),
        }
    }

    /// Where it is, for messages.
    pub(super) fn place(&self) -> String {
        match self {
            Self::Folder(folder) => folder.path().display().to_string(),
            Self::Store(store) => store.place(),
        }
    }

    /// A stored text; `None` if there is none.
    pub(super) async fn read(
        &self,
        part: Part,
        name: &str,
    ) -> Result<Option<String>, OrderFailure> {
        match self {
            Self::Folder(folder) => {
                let name = name.to_owned();
                off_thread(folder, move |folder| folder.read(part, &name)).await
            }
            Self::Store(store) => {
                let opened = store.read(part, name).await?;
                let text = opened.map(|opened| String::from_utf8(opened.text));
                let damaged = || OrderFailure::Damaged { entry: name.into() };
                text.transpose().map_err(|_| damaged())
            }
        }
    }

    /// Stores a text.
    pub(super) async fn keep(
        &self,
        part: Part,
        name: &str,
        text: &str,
    ) -> Result<(), OrderFailure> {
        match self {
            Self::Folder(folder) => {
                let (name, text) = (name.to_owned(), text.to_owned());
                off_thread(folder, move |folder| folder.keep(part, &name, &text)).await
            }
            Self::Store(store) => store.keep(part, name, text, 0).await.map(drop),
        }
    }

    /// Deletes a text; the store first compares the entry with `text`.
    pub(super) async fn forget(
        &self,
        part: Part,
        name: &str,
        text: &str,
    ) -> Result<(), OrderFailure> {
        match self {
            Self::Folder(folder) => {
                let name = name.to_owned();
                off_thread(folder, move |folder| folder.forget(part, &name)).await
            }
            Self::Store(store) => store.forget(part, name, text).await,
        }
    }

    /// Posts an answer to a challenge for every process that the authority may come to.
    pub(super) async fn post(&self, challenge: &OpenChallenge) -> Result<(), OrderFailure> {
        match self {
            Self::Folder(folder) => {
                let OpenChallenge { name, answer } = challenge.clone();
                off_thread(folder, move |folder| folder.post(&name, &answer)).await
            }
            Self::Store(store) => store.post(challenge).await,
        }
    }

    /// Announces posted answers to all processes that the authority may come to, and waits until they have had time to
    /// read them.
    pub(super) async fn announce(&self, open: &[OpenChallenge]) -> Result<(), OrderFailure> {
        match self {
            Self::Folder(folder) => {
                if off_thread(folder, Folder::is_watched).await? {
                    sleep(NOTICE).await;
                }
            }
            Self::Store(store) => {
                store.list_open(open).await?;
                sleep(store.shared.pace.notice).await;
            }
        }
        Ok(())
    }

    /// Removes answers from the announced ones. They expire if that fails.
    pub(super) async fn conceal(&self, open: &[OpenChallenge]) {
        if let Self::Store(store) = self {
            store.unlist_open(open).await;
        }
    }

    /// Withdraws an answer. The answer expires if that fails.
    pub(super) async fn withdraw(&self, challenge: &str) {
        match self {
            Self::Folder(folder) => {
                let name = challenge.to_owned();
                let gone = off_thread(folder, move |folder| folder.withdraw(&name)).await;
                if let Err(failure) = gone {
                    tracing::debug!("{failure}");
                }
            }
            Self::Store(store) => store.withdraw(challenge).await,
        }
    }
}

/// Takes the right to order into a folder. `None` if another process has the right.
pub(super) async fn lock_folder(folder: &Folder) -> Result<Option<FolderLock>, OrderFailure> {
    off_thread(folder, Folder::lock).await
}

/// Disks may be slow: the control thread does not wait for them.
async fn off_thread<T: Send + 'static>(
    folder: &Folder,
    what: impl FnOnce(&Folder) -> io::Result<T> + Send + 'static,
) -> Result<T, OrderFailure> {
    let place = folder.path().display().to_string();
    let folder = folder.clone();
    let done = spawn_blocking(move || what(&folder)).await;
    let done = done.unwrap_or_else(|error| Err(io::Error::other(error)));
    done.map_err(|source| OrderFailure::Storage { place, source })
}
