//! The folder that keeps accounts, certificates, failures and open challenges: accessible to its owner alone, with each
//! file written whole or not at all. Only regular files are opened, and no file is trusted that others may have
//! written.

#[cfg(test)]
mod tests;

use super::authority::Storage;
use super::issued::Bundle;
use super::open_challenge::{CHALLENGE_LIFE, MOST_OPEN};
use super::others_answers::OthersAnswers;
use super::ownership::{self, VolumeGroup};
use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use rustix::fs::OFlags;
use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};

/// The longest file that is read.
const MOST: u64 = 1 << 20;
/// The lock file of the one process that orders.
const LOCK: &str = "lock";
/// The subfolder with answers to open challenges, for other processes on the folder.
const CHALLENGES: &str = "challenges";
/// The lock file of other processes that read the answers to open challenges.
const WATCH: &str = "watch";
/// The longest answer that is read: a token with the digest of a key.
const LONGEST_ANSWER: u64 = 1024;

/// A folder of accounts and certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Folder(PathBuf);

/// Only the process with this lock orders into a folder. The lock is released when dropped, or when the process ends in
/// any way.
#[derive(Debug)]
pub(super) struct FolderLock(#[expect(dead_code, reason = "held for its lock")] File);

/// A process that reads the answers of another process's orders holds this lock, so that orders wait for the reader.
#[derive(Debug)]
pub(super) struct FolderWatch(#[expect(dead_code, reason = "held for its lock")] File);

/// The subfolders of a folder.
#[derive(Debug, Clone, Copy)]
pub(super) enum Part {
    Accounts,
    Certificates,
    Attempts,
}

impl Part {
    const ALL: [Self; 3] = [Self::Accounts, Self::Certificates, Self::Attempts];

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

    /// Creates the folder if missing, and takes its lock. `None` if another process holds the lock.
    ///
    /// # Errors
    /// If others may write to the folder: closing the folder would not remove files that others have put there.
    pub(super) fn lock(&self) -> io::Result<Option<FolderLock>> {
        self.require_all_safe()?;
        for part in Part::ALL {
            self.close_to_group(part)?;
            make(&self.0.join(part.folder()))?;
        }
        let challenges = self.0.join(CHALLENGES);
        make(&challenges)?;
        self.close_to_others()?;
        let file = lockable(&self.0.join(LOCK))?;
        if !is_taken(file.try_lock())? {
            return Ok(None);
        }
        // Answers of orders whose process has ended are removed.
        for old in fs::read_dir(&challenges)?.flatten() {
            remove(&old.path())?;
        }
        Ok(Some(FolderLock(file)))
    }

    /// Checks that no others may write to the folder and all its parts.
    ///
    /// # Errors
    /// If others may write, or the folder cannot be examined.
    pub(super) fn require_all_safe(&self) -> io::Result<()> {
        for part in Part::ALL {
            self.require_ownership(part.folder())?;
        }
        self.require_ownership(CHALLENGES)?;
        for file in [LOCK, WATCH] {
            if_there(ownership::require_regular(&self.0.join(file)))?;
        }
        Ok(())
    }

    /// Checks that no others may write to the folder and a part of it, if they exist. The folder may be behind a
    /// symbolic link, its parts may not.
    fn require_ownership(&self, part: &str) -> io::Result<VolumeGroup> {
        let Some(found) = if_there(fs::metadata(&self.0))? else {
            return Ok(VolumeGroup::default());
        };
        let all = ownership::require_safe_folder(&self.0, &found)?;
        let part = self.0.join(part);
        match if_there(ownership::require_no_link(&part))? {
            Some(found) => Ok(ownership::require_safe_folder(&part, &found)?.or(all)),
            None => Ok(all),
        }
    }

    /// Removes a group's right to write to the files of a part, which the group got when a volume was mounted.
    fn close_to_group(&self, part: Part) -> io::Result<()> {
        let volume = self.require_ownership(part.folder())?;
        let Some(files) = if_there(fs::read_dir(self.0.join(part.folder())))? else {
            return Ok(());
        };
        for file in files.flatten() {
            // A file that fails the check stays unchanged, and is not trusted when read.
            if let Ok(Some(file)) = open(&file.path(), volume) {
                ownership::close_to_group(&file, volume)?;
            }
        }
        Ok(())
    }

    /// Removes the rights of strangers, unless the folder has other files: the folder is then in someone's use.
    fn close_to_others(&self) -> io::Result<()> {
        let is_ours = |name: &std::ffi::OsStr| {
            let parts = Part::ALL.map(Part::folder);
            name == CHALLENGES
                || name == LOCK
                || name == WATCH
                || parts.iter().any(|part| name == *part)
        };
        let mut entries = fs::read_dir(&self.0)?.flatten();
        if entries.all(|entry| is_ours(&entry.file_name())) {
            close(&self.0)?;
        }
        Ok(())
    }

    /// The text of a file; `None` if there is no file. Bytes that are not UTF-8 are replaced: such a file is damaged,
    /// like one whose text has no meaning, and its content is made anew.
    ///
    /// # Errors
    /// If the file cannot be read, is not a regular file, or others may have written it.
    pub(super) fn read(&self, part: Part, name: &str) -> io::Result<Option<String>> {
        let volume = self.require_ownership(part.folder())?;
        let Some(file) = open(&self.file(part, name), volume)? else {
            return Ok(None);
        };
        let mut bytes = Vec::new();
        file.take(MOST).read_to_end(&mut bytes)?;
        Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// Writes a text: afterwards the file has the old text or the new one, even if the machine fails.
    pub(super) fn keep(&self, part: Part, name: &str, text: &str) -> io::Result<()> {
        replace(&self.file(part, name), text.as_bytes())?;
        File::open(self.0.join(part.folder()))?.sync_all()
    }

    /// Removes a file, if it is there.
    pub(super) fn forget(&self, part: Part, name: &str) -> io::Result<()> {
        remove(&self.file(part, name))
    }

    /// Posts the answer to a challenge for other processes on this folder.
    pub(super) fn post(&self, challenge: &str, answer: &[u8]) -> io::Result<()> {
        // An interrupted order leaves its answers behind.
        for old in fs::read_dir(self.0.join(CHALLENGES))?.flatten() {
            // Another order may be removing its own answer.
            if old.metadata().is_ok_and(|answer| has_ended(&answer)) {
                remove(&old.path())?;
            }
        }
        replace(&self.challenge(challenge), answer)
    }

    /// Withdraws an answer.
    pub(super) fn withdraw(&self, challenge: &str) -> io::Result<()> {
        remove(&self.challenge(challenge))
    }

    /// The answers that processes have posted, by the digests of their challenges' names.
    pub(super) fn all_posted(&self) -> io::Result<HashMap<[u8; 32], Vec<u8>>> {
        let volume = self.require_ownership(CHALLENGES)?;
        let mut all = HashMap::new();
        for entry in fs::read_dir(self.0.join(CHALLENGES))?.flatten() {
            let name = entry.file_name();
            let digest = name.to_str().and_then(digest_in);
            // Another process may be removing the file.
            if let Some(digest) = digest
                && let Ok(Some(answer)) = answer_in(&entry.path(), volume)
            {
                all.insert(digest, answer);
            }
            if all.len() >= MOST_OPEN {
                break;
            }
        }
        Ok(all)
    }

    /// While this lock is held, orders wait until this process has read their answers. `None` if the folder does not
    /// exist yet, or an order is just looking for watches.
    pub(super) fn watch(&self) -> io::Result<Option<FolderWatch>> {
        self.require_ownership(CHALLENGES)?;
        let file = match lockable(&self.0.join(WATCH)) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let is_taken = is_taken(file.try_lock_shared())?;
        Ok(is_taken.then_some(FolderWatch(file)))
    }

    /// Does another process read the answers?
    pub(super) fn is_watched(&self) -> io::Result<bool> {
        let watch = lockable(&self.0.join(WATCH))?;
        Ok(!is_taken(watch.try_lock())?)
    }

    /// The file of a challenge. Its name is a digest: host and token together may be longer than a file name may be.
    fn challenge(&self, challenge: &str) -> PathBuf {
        let name = HEXLOWER.encode(&OthersAnswers::digest(challenge));
        self.0.join(CHALLENGES).join(name)
    }

    fn file(&self, part: Part, name: &str) -> PathBuf {
        let file = format!("{name}.{}", part.ending());
        self.0.join(part.folder()).join(file)
    }
}

/// The certificate of an identity that a folder keeps. `None` if no certificate can be read, or if the storage is not a
/// folder.
#[must_use]
pub fn read_bundle(storage: &Storage, identity: &str) -> Option<Bundle> {
    let kept = Folder::at(storage.folder()?).read(Part::Certificates, identity);
    Bundle::read(&kept.ok()??)
}

/// The digest that is the name of a challenge's file; `None` for another file.
fn digest_in(name: &str) -> Option<[u8; 32]> {
    let digest = HEXLOWER_PERMISSIVE.decode(name.as_bytes()).ok()?;
    digest.try_into().ok()
}

/// The answer in the file of a challenge, if its life has not ended.
fn answer_in(path: &Path, volume: VolumeGroup) -> io::Result<Option<Vec<u8>>> {
    let Some(file) = open(path, volume)? else {
        return Ok(None);
    };
    if has_ended(&file.metadata()?) {
        return Ok(None);
    }
    let mut answer = Vec::new();
    file.take(LONGEST_ANSWER).read_to_end(&mut answer)?;
    Ok(Some(answer))
}

/// Has the life of the answer to a challenge ended? A time later than now was written while the clock was wrong.
fn has_ended(answer: &fs::Metadata) -> bool {
    let age = answer.modified().ok().and_then(|at| at.elapsed().ok());
    age.is_some_and(|age| age > CHALLENGE_LIFE)
}

/// An opened file of the folder; `None` if there is no file.
fn open(path: &Path, volume: VolumeGroup) -> io::Result<Option<File>> {
    if if_there(ownership::require_regular(path))?.is_none() {
        return Ok(None);
    }
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(flags())
        .open(path);
    let Some(file) = if_there(opened)? else {
        return Ok(None);
    };
    ownership::require_safe_file(path, &file.metadata()?, volume)?;
    Ok(Some(file))
}

/// A file that exists only to be locked.
fn lockable(path: &Path) -> io::Result<File> {
    if_there(ownership::require_regular(path))?;
    let mut options = private();
    options.create(true).write(true).custom_flags(flags());
    options.open(path)
}

/// Was a lock taken? It was not if another process holds it.
fn is_taken(tried: Result<(), TryLockError>) -> io::Result<bool> {
    match tried {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// A link or pipe that has replaced a file since the check is not followed, and its open does not block.
fn flags() -> i32 {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    flags.bits().cast_signed()
}

/// `None` if the file does not exist.
fn if_there<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Puts a file in the place of the one that is there: readers see the old one or the new one.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    let temporary = Path::new(&temporary);
    // A process that was interrupted left this file behind. Its permissions may be wrong.
    remove(temporary)?;
    let mut file = private().create_new(true).write(true).open(temporary)?;
    io::Write::write_all(&mut file, bytes)?;
    file.sync_all()?;
    fs::rename(temporary, path)
}

fn remove(path: &Path) -> io::Result<()> {
    if_there(fs::remove_file(path)).map(drop)
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}

/// Creates a folder with its missing parents, each accessible to its owner alone. Existing parents keep their
/// permissions.
fn make(folder: &Path) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    close(folder)
}

/// Makes a folder accessible to its owner alone.
fn close(folder: &Path) -> io::Result<()> {
    let found = fs::metadata(folder)?;
    // A volume that the gateway may use by a group belongs to root.
    let is_ours = found.uid() == rustix::process::geteuid().as_raw();
    if is_ours && found.mode() & 0o077 != 0 {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700))?;
    }
    Ok(())
}
