//! The folder that keeps accounts, certificates and failures: for its owner alone, each file written whole or not at all.

use super::authority::Storage;
use super::issued::Bundle;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// The longest file that is read.
const MOST: u64 = 1 << 20;

/// A folder of accounts and certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Folder(PathBuf);

/// One process alone orders into a folder: the one that holds this. It is let go when dropped, or when the process ends
/// in whatever way.
#[derive(Debug)]
pub(super) struct FolderLock(#[expect(dead_code, reason = "held for its lock")] File);

/// The parts of a folder.
#[derive(Debug, Clone, Copy)]
pub(super) enum Part {
    Accounts,
    Certificates,
    Attempts,
}

impl Part {
    fn folder(self) -> &'static str {
        match self {
            Self::Accounts => "accounts",
            Self::Certificates => "certificates",
            Self::Attempts => "attempts",
        }
    }

    fn ending(self) -> &'static str {
        match self {
            Self::Certificates => "pem",
            Self::Accounts | Self::Attempts => "json",
        }
    }
}

impl Folder {
    pub(super) fn at(path: &Path) -> Self {
        Self(path.to_owned())
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Makes the folder where there is none, and takes its lock. Nothing where another process holds it.
    pub(super) fn lock(&self) -> io::Result<Option<FolderLock>> {
        for part in [Part::Accounts, Part::Certificates, Part::Attempts] {
            make(&self.0.join(part.folder()))?;
        }
        let file = private()
            .create(true)
            .write(true)
            .open(self.0.join("lock"))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(FolderLock(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// The text of a file; nothing where there is none.
    pub(super) fn read(&self, part: Part, name: &str) -> io::Result<Option<String>> {
        let mut text = String::new();
        match File::open(self.file(part, name)) {
            Ok(file) => file.take(MOST).read_to_string(&mut text)?,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        Ok(Some(text))
    }

    /// Keeps a text: after this the file has the old one or the new one, whatever happens to the machine.
    pub(super) fn keep(&self, part: Part, name: &str, text: &str) -> io::Result<()> {
        let path = self.file(part, name);
        let beside = path.with_extension(format!("{}.new", part.ending()));
        // Left by a process that ended in the middle. Its rights may be other ones.
        match fs::remove_file(&beside) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = private().create_new(true).write(true).open(&beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, &path)?;
        File::open(self.0.join(part.folder()))?.sync_all()
    }

    /// Removes a file, if it is there.
    pub(super) fn forget(&self, part: Part, name: &str) -> io::Result<()> {
        match fs::remove_file(self.file(part, name)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn file(&self, part: Part, name: &str) -> PathBuf {
        let file = format!("{name}.{}", part.ending());
        self.0.join(part.folder()).join(file)
    }
}

/// The file in which the certificate of an identity is kept below `storage`.
#[must_use]
pub fn folder_of(storage: &Path, identity: &str) -> PathBuf {
    Folder::at(storage).file(Part::Certificates, identity)
}

/// The certificate of an identity that is kept in a folder. Nothing where there is none that can be read, or where the
/// storage is no folder.
#[must_use]
pub fn read_bundle(storage: &Storage, identity: &str) -> Option<Bundle> {
    let Storage::Folder(path) = storage else {
        return None;
    };
    let kept = Folder::at(path).read(Part::Certificates, identity);
    Bundle::read(&kept.ok()??)
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}

/// Makes a folder with those above it, each for its owner alone. One that is there already keeps its rights, but for
/// those of strangers to what lies in it.
fn make(folder: &Path) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    let rights = fs::metadata(folder)?.permissions();
    if rights.mode() & 0o077 != 0 {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn files_are_the_owners_alone_and_replaced_whole() {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::at(&root.path().join("deep/acme"));
        let lock = folder.lock().unwrap().unwrap();
        assert!(folder.lock().unwrap().is_none(), "a second one orders too");
        assert_eq!(folder.read(Part::Accounts, "a").unwrap(), None);
        // The rest of a process that ended in the middle, with the rights of a careless one.
        let beside = folder.path().join("accounts/a.json.new");
        fs::write(&beside, "half").unwrap();
        for text in ["one", "two"] {
            folder.keep(Part::Accounts, "a", text).unwrap();
            let kept = folder.read(Part::Accounts, "a").unwrap();
            assert_eq!(kept.as_deref(), Some(text));
        }
        assert!(!beside.exists());
        assert_eq!(mode(folder.path()), 0o700);
        assert_eq!(mode(&folder.path().join("accounts")), 0o700);
        assert_eq!(mode(&folder.path().join("accounts/a.json")), 0o600);
        folder.forget(Part::Accounts, "a").unwrap();
        folder.forget(Part::Accounts, "a").unwrap();
        assert_eq!(folder.read(Part::Accounts, "a").unwrap(), None);
        drop(lock);
        assert!(folder.lock().unwrap().is_some());
    }
}
