//! The files from which a configuration was read, with a fingerprint of each: a reload knows the files to watch, and
//! detects changed files.

pub mod fence;
pub mod glob;

use fence::Fence;
use foldhash::quality::FixedState;
use glob::Matches;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::hash::{BuildHasher as _, Hasher as _};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// The files that a configuration depends on.
///
/// Two values are equal if they name the same files with the same contents.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Files {
    seen: BTreeMap<PathBuf, FileState>,
    /// The files of each pattern.
    matched: BTreeMap<PathBuf, Result<Matches, String>>,
}

/// What a file holds, and so what a change of it changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileContent {
    /// A part of the configuration, a secret, a certificate.
    Settings,
    /// Members of a group, or numbers of customers, and nothing else: no setting changes with it.
    List,
}

impl FileContent {
    /// What the file holds if it was read as `earlier`, too.
    fn with(self, earlier: Option<Self>) -> Self {
        match (self, earlier) {
            (Self::List, None | Some(Self::List)) => Self::List,
            _ => Self::Settings,
        }
    }
}

/// The state of one path.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FileState {
    /// Larger files are refused.
    most: u64,
    /// The fence of the file that names the path, if that file must not read every file.
    fence: Option<Fence>,
    content: FileContent,
    found: Result<Fingerprint, String>,
}

/// The length and hash of a file's bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Fingerprint {
    length: usize,
    hash: u64,
}

impl Fingerprint {
    fn of(bytes: &[u8]) -> Self {
        // SipHash, at five instructions a byte, takes longer than the reading of a list of a million lines.
        let mut hasher = FixedState::default().build_hasher();
        hasher.write(bytes);
        Self {
            length: bytes.len(),
            hash: hasher.finish(),
        }
    }
}

impl Files {
    /// The paths whose state has changed, in order.
    pub fn changed_since<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = &'a Path> {
        let is_other =
            |(path, state): &(&'a PathBuf, &FileState)| before.seen.get(*path) != Some(*state);
        let changed = self.seen.iter().filter(is_other);
        let gone = before.seen.iter();
        let gone = gone.filter(|(path, _)| !self.seen.contains_key(*path));
        changed.chain(gone).map(|(path, _)| path.as_path())
    }

    /// One file with these bytes.
    #[must_use]
    pub fn with_content(path: &Path, bytes: &[u8]) -> Self {
        let state = FileState {
            most: crate::config::MOST_BYTES,
            fence: None,
            content: FileContent::Settings,
            found: Ok(Fingerprint::of(bytes)),
        };
        Self {
            seen: BTreeMap::from([(path.to_owned(), state)]),
            ..Self::default()
        }
    }

    /// Reads the file at `path`, up to `most` bytes. From then on the configuration depends on the file, even if the
    /// file cannot be read.
    ///
    /// # Errors
    /// If the file cannot be read: the reason.
    pub fn read(&mut self, path: &Path, most: u64) -> io::Result<Vec<u8>> {
        self.read_within(None, path, most, FileContent::Settings)
    }

    /// Reads the file at `path`, if the path is within `fence`.
    ///
    /// # Errors
    /// If the file cannot be read: the reason.
    pub fn read_within(
        &mut self,
        fence: Option<&Fence>,
        path: &Path,
        most: u64,
        content: FileContent,
    ) -> io::Result<Vec<u8>> {
        let read = read_bounded(fence, path, most);
        let found = match &read {
            Ok(bytes) => Ok(Fingerprint::of(bytes)),
            Err(error) => Err(error.to_string()),
        };
        let seen = self.seen.get_mut(path);
        let earlier = seen.as_ref().map(|seen| seen.content);
        let content = content.with(earlier);
        match seen {
            // A state without a fence contains more than a state within a fence.
            Some(seen) if seen.fence.is_none() && fence.is_some() => seen.content = content,
            _ => {
                let fence = fence.cloned();
                let state = FileState {
                    most,
                    fence,
                    content,
                    found,
                };
                self.seen.insert(path.to_owned(), state);
            }
        }
        read
    }

    /// Do the files differ from `before`, and only in the content of lists?
    #[must_use]
    pub fn differ_in_lists(&self, before: &Self) -> bool {
        let is_list = |files: &Self, path: &Path| {
            let seen = files.seen.get(path);
            seen.is_some_and(|one| one.content == FileContent::List)
        };
        let mut changed = self.changed_since(before).peekable();
        changed.peek().is_some()
            && self.matched == before.matched
            && changed.all(|path| is_list(self, path) && is_list(before, path))
    }

    /// The files that match `pattern`. From then on the configuration depends on the pattern.
    ///
    /// # Errors
    /// If a folder cannot be read.
    pub fn matching(&mut self, pattern: &Path) -> io::Result<Vec<PathBuf>> {
        let found = glob::find(pattern);
        let noted = found.as_ref().map_err(ToString::to_string).cloned();
        self.matched.insert(pattern.to_owned(), noted);
        found.map(|matched| matched.files)
    }

    /// The current state of the files and patterns.
    #[must_use]
    pub fn reread(&self) -> Self {
        let mut files = Self::default();
        for (path, seen) in &self.seen {
            // An error is part of the fingerprint.
            let _ = files.read_within(seen.fence.as_ref(), path, seen.most, seen.content);
        }
        for pattern in self.matched.keys() {
            let _ = files.matching(pattern);
        }
        files
    }

    /// The patterns, each with the folders in which a new file can match.
    pub fn patterns(&self) -> impl Iterator<Item = (&Path, &[PathBuf])> {
        self.matched.iter().map(|(pattern, matched)| {
            let folders = matched.as_ref().map(|matched| &matched.folders[..]);
            (pattern.as_path(), folders.unwrap_or_default())
        })
    }

    /// The paths of the files.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.seen.keys().map(PathBuf::as_path)
    }
}

/// Reads the file at `path`. A path to anything but a regular file is refused before it is opened: opening a pipe may
/// block forever.
fn read_bounded(fence: Option<&Fence>, path: &Path, most: u64) -> io::Result<Vec<u8>> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let file = match fence {
        Some(fence) => fence.open(path)?,
        None => File::open(path)?,
    };
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::other(format!("larger than {}", size(most))));
    }
    Ok(bytes)
}

fn size(bytes: u64) -> String {
    match bytes {
        bytes if bytes % (1024 * 1024) == 0 => format!("{} MiB", bytes / (1024 * 1024)),
        bytes => format!("{} KiB", bytes / 1024),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_no_setting_unless_it_is_read_as_one_too() {
        let folder = tempfile::tempdir().unwrap();
        let [list, both, setting] =
            ["list", "both", "setting"].map(|name| folder.path().join(name));
        let write = |path: &PathBuf, text: &str| fs::write(path, text).unwrap();
        let mut files = Files::default();
        for path in [&list, &both, &setting] {
            write(path, "1");
        }
        for path in [&list, &list, &both] {
            files.read_within(None, path, 9, FileContent::List).unwrap();
        }
        files.read(&both, 9).unwrap();
        files.read(&setting, 9).unwrap();
        assert!(
            !files.reread().differ_in_lists(&files),
            "nothing has changed"
        );
        write(&list, "2");
        let after = files.reread();
        assert!(after.differ_in_lists(&files));
        for path in [&both, &setting] {
            write(path, "2");
            assert!(
                !files.reread().differ_in_lists(&files),
                "{}",
                path.display()
            );
            write(path, "1");
        }
        assert_eq!(files.reread(), after);
        fs::remove_file(&list).unwrap();
        assert!(files.reread().differ_in_lists(&after));
    }

    #[test]
    fn files_are_equal_when_they_hold_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (folder.path().join("a"), folder.path().join("b"));
        fs::write(&one, "1").unwrap();
        let mut files = Files::default();
        assert_eq!(files.read(&one, 1).unwrap(), b"1");
        assert!(files.read(&other, 1).is_err());
        assert_eq!(files.reread(), files);
        assert_eq!(files.paths().collect::<Vec<_>>(), [&one, &other]);

        fs::write(&other, "").unwrap();
        let with_other = files.reread();
        assert_ne!(with_other, files);
        fs::write(&one, "2").unwrap();
        assert_ne!(with_other.reread(), with_other);
        fs::write(&one, "1").unwrap();
        assert_eq!(with_other.reread(), with_other);
        fs::write(&one, "11").unwrap();
        assert_ne!(with_other.reread(), with_other);
    }

    #[test]
    fn what_is_too_large_or_no_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a");
        fs::write(&file, [0; 1025]).unwrap();
        let mut files = Files::default();
        let refused = |error: io::Error| error.to_string();
        assert_eq!(
            files.read(&file, 1024).map_err(refused),
            Err("larger than 1 KiB".to_owned())
        );
        let read = files.read(folder.path(), 1024).map_err(refused);
        assert_eq!(read, Err("not a regular file".to_owned()));
    }
}
