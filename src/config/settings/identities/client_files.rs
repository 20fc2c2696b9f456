//! The files by which an identity checks its clients can be read again without the configuration: a gateway that is
//! shutting down reads no configuration, but its open connections still follow the current lists.

use super::{Identities, LoadedIdentity};
use crate::config::input::Files;
use crate::config::input::files::FileContent;
use crate::config::input::files::fence::Fence;
use crate::tls::{ClientParts, IdentityParts, ServerIdentity};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Two readings with this time between them must agree.
const SETTLE: Duration = Duration::from_millis(50);

/// A file that an identity names.
#[derive(Clone)]
pub(super) struct NamedFile {
    pub(super) path: PathBuf,
    /// The fence of the file that names it, if that file must not read every file.
    pub(super) fence: Option<Fence>,
    /// Larger files are refused.
    pub(super) most: u64,
}

/// The files of one identity, in the order of the configuration file.
#[derive(Clone, Default)]
pub(super) struct ClientFiles {
    pub(super) authorities: Vec<NamedFile>,
    pub(super) lists: Vec<NamedFile>,
}

impl NamedFile {
    pub(super) fn read(&self, files: &mut Files) -> io::Result<Vec<u8>> {
        let fence = self.fence.as_ref();
        files.read_within(fence, &self.path, self.most, FileContent::Settings)
    }

    fn reread(&self) -> Result<Vec<u8>, String> {
        let read = self.read(&mut Files::default());
        read.map_err(|error| format!("cannot read {}: {error}", self.path.display()))
    }
}

impl ClientFiles {
    fn reread(&self, before: &ClientParts) -> Result<ClientParts, String> {
        let read = |files: &[NamedFile]| -> Result<Vec<_>, String> {
            files.iter().map(NamedFile::reread).collect()
        };
        Ok(ClientParts {
            ca_pem: read(&self.authorities)?,
            verify: before.verify,
            crl_pem: read(&self.lists)?,
        })
    }

    /// The client checks of the current files; `None` if they equal `before`, or if a file is being written.
    fn changed(&self, before: &ClientParts) -> Result<Option<ClientParts>, String> {
        if self.reread(before).as_ref() == Ok(before) {
            return Ok(None);
        }
        std::thread::sleep(SETTLE);
        let first = self.reread(before)?;
        std::thread::sleep(SETTLE);
        let is_settled = self.reread(before)? == first;
        Ok(Some(first).filter(|now| is_settled && now != before))
    }
}

impl Identities {
    /// The identities with the current authorities and revocation lists of their clients; `None` if no list has
    /// changed. Identities with broken files do not change. The caller's thread must be allowed to block.
    #[must_use]
    pub fn with_lists_of_today(&self) -> Option<Self> {
        let all: Vec<_> = self.all.iter().map(LoadedIdentity::today).collect();
        let is_same = |(today, before): (&LoadedIdentity, &LoadedIdentity)| {
            Arc::ptr_eq(&today.identity, &before.identity) && today.kept == before.kept
        };
        let has_changed = !all.iter().zip(&self.all).all(is_same);
        has_changed.then(|| Self::new(all))
    }
}

impl LoadedIdentity {
    fn today(&self) -> Self {
        let kept = |kept| Self {
            kept,
            ..self.clone()
        };
        let Some(before) = &self.parts.client else {
            return self.clone();
        };
        let parts = match self.client_files.changed(before) {
            Ok(Some(client)) => IdentityParts {
                client: Some(client),
                ..self.parts.clone()
            },
            Ok(None) => return kept(None),
            Err(why) => return kept(Some(why)),
        };
        match ServerIdentity::new(parts.clone()) {
            Ok(identity) => Self {
                identity: Arc::new(identity),
                parts,
                ..kept(None)
            },
            Err(mistakes) => kept(Some(format!(
                "its authorities or revocation lists cannot be used: {mistakes:?}"
            ))),
        }
    }
}
