//! The place that keeps accounts, certificates and failures.

use super::failure::Failure;
use super::folder::{Folder, FolderLock, Part};
use std::io;
use std::path::Path;
use tokio::task::spawn_blocking;

/// A place that keeps what must outlive the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Vault(Folder);

impl Vault {
    pub(super) fn at(storage: &Path) -> Self {
        Self(Folder::at(storage))
    }

    /// Where it is, for messages.
    pub(super) fn place(&self) -> String {
        self.0.path().display().to_string()
    }

    /// Takes the right to order. Nothing where another process has it.
    pub(super) async fn lock(&self) -> Result<Option<FolderLock>, Failure> {
        self.do_apart(Folder::lock).await
    }

    /// A kept text; nothing where there is none.
    pub(super) async fn read(&self, part: Part, name: &str) -> Result<Option<String>, Failure> {
        let name = name.to_owned();
        self.do_apart(move |folder| folder.read(part, &name)).await
    }

    /// Keeps a text.
    pub(super) async fn keep(&self, part: Part, name: &str, text: &str) -> Result<(), Failure> {
        let (name, text) = (name.to_owned(), text.to_owned());
        self.do_apart(move |folder| folder.keep(part, &name, &text))
            .await
    }

    /// Forgets a text.
    pub(super) async fn forget(&self, part: Part, name: &str) -> Result<(), Failure> {
        let name = name.to_owned();
        self.do_apart(move |folder| folder.forget(part, &name))
            .await
    }

    /// Disks may be slow: the control thread does not wait for them.
    async fn do_apart<T: Send + 'static>(
        &self,
        what: impl FnOnce(&Folder) -> io::Result<T> + Send + 'static,
    ) -> Result<T, Failure> {
        let folder = self.0.clone();
        let done = spawn_blocking(move || what(&folder)).await;
        let done = done.unwrap_or_else(|error| Err(io::Error::other(error)));
        done.map_err(|source| Failure::Storage {
            place: self.place(),
            source,
        })
    }
}
