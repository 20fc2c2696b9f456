//! Watches the folders on the way of paths, never a file itself: a watch on a file is dead after the first rename, and
//! does not notice a changed link in the path.

use crate::config::Files;
use crate::config::files::glob;
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::{fmt, fs};
use tokio::sync::Notify;

/// The most links that are followed.
const MOST_LINKS: usize = 40;

/// The watched folders.
pub(super) struct Folders {
    watcher: Option<RecommendedWatcher>,
    /// The watched folders, each with its identity at the start of its watch: another folder may have got its name
    /// since.
    watched: BTreeMap<PathBuf, Option<FolderIdentity>>,
    /// Names in these folders whose change matters; other changes in a busy folder wake no task.
    names: Arc<Mutex<WatchedNames>>,
    changed: Arc<Notify>,
}

/// The identity of a folder under any name: its device and its inode number.
type FolderIdentity = (u64, u64);

/// Folders on the way to the files.
#[derive(Debug, Default)]
struct FolderSet {
    /// The folders that hold the files, and the links to them.
    holds: BTreeSet<PathBuf>,
    /// The parents of these folders: a folder may be renamed, and another put in its place.
    above: BTreeSet<PathBuf>,
}

#[derive(Debug, Default)]
struct WatchedNames {
    whole: BTreeSet<OsString>,
    /// Steps of patterns.
    patterns: BTreeSet<String>,
}

impl WatchedNames {
    fn contains(&self, name: &OsStr) -> bool {
        let like = |text: &str| self.patterns.iter().any(|step| glob::matches(step, text));
        self.whole.contains(name) || name.to_str().is_some_and(like)
    }
}

impl fmt::Debug for Folders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Folders")
            .field("watched", &self.watched)
            .finish_non_exhaustive()
    }
}

impl Folders {
    /// A set without watched folders; changes notify `changed`.
    pub(super) fn new(changed: Arc<Notify>) -> Self {
        Self {
            watcher: None,
            watched: BTreeMap::new(),
            names: Arc::default(),
            changed,
        }
    }

    /// Watches the folders on the present way of the paths in `files`, and no others.
    ///
    /// Watched folders are watched again: a folder that was deleted and created anew has lost its watch.
    pub(super) fn follow(&mut self, files: &Files) -> notify::Result<()> {
        let (mut folders, mut names) = (FolderSet::default(), WatchedNames::default());
        for path in files.paths() {
            let at = steps(path, &mut folders, &mut names.whole);
            folders.holds.extend(at.parent().map(Path::to_path_buf));
        }
        for (pattern, searched) in files.patterns() {
            let steps_of_it = pattern.components().map(|step| step.as_os_str());
            let texts = steps_of_it.filter_map(OsStr::to_str).map(str::to_owned);
            names.patterns.extend(texts);
            for folder in searched {
                let at = steps(folder, &mut folders, &mut names.whole);
                folders.holds.insert(at);
            }
        }
        *self.names.lock().unwrap_or_else(PoisonError::into_inner) = names;
        if self.watcher.is_none() {
            self.watcher = Some(self.start()?);
        }
        let Some(watcher) = &mut self.watcher else {
            return Ok(());
        };
        let before = std::mem::take(&mut self.watched);
        for (folder, was) in &before {
            let goes_on = folders.holds.contains(folder) || folders.above.contains(folder);
            if !goes_on || identity(folder) != *was {
                // The folder may be deleted, and its watch with it.
                let _ = watcher.unwatch(folder);
            }
        }
        let mut outcome = Ok(());
        for folder in folders.holds.union(&folders.above) {
            let is = identity(folder);
            match watcher.watch(folder, RecursiveMode::NonRecursive) {
                Ok(()) => drop(self.watched.insert(folder.clone(), is)),
                Err(error) if folders.holds.contains(folder) => outcome = Err(error),
                // The folders above may be unreadable for this user.
                Err(_) => {}
            }
        }
        outcome
    }

    fn start(&self) -> notify::Result<RecommendedWatcher> {
        let (names, changed) = (Arc::clone(&self.names), Arc::clone(&self.changed));
        notify::recommended_watcher(move |event: notify::Result<Event>| {
            // After an error events may have been lost.
            let matters = event.map_or(true, |event| {
                let names = names.lock().unwrap_or_else(PoisonError::into_inner);
                matters(&event, &names)
            });
            if matters {
                changed.notify_one();
            }
        })
    }
}

/// Does the event matter? Access does not: our own reading causes it, and a reading in response would repeat for ever.
fn matters(event: &Event, names: &WatchedNames) -> bool {
    let named = |path: &PathBuf| path.file_name().is_none_or(|name| names.contains(name));
    !matches!(event.kind, EventKind::Access(_))
        && (event.need_rescan() || event.paths.is_empty() || event.paths.iter().any(named) || {
            // A watched folder itself is removed.
            matches!(event.kind, EventKind::Remove(_))
        })
}

fn identity(folder: &Path) -> Option<FolderIdentity> {
    let found = fs::metadata(folder).ok()?;
    Some((found.dev(), found.ino()))
}

/// The file that the path leads to, through all links. Adds the folders on the way to it, and the relevant names in
/// these folders.
///
/// Any step of the path may be a link that is changed, or a folder that is replaced: the file, its folder, or a release
/// three levels up.
fn steps(path: &Path, folders: &mut FolderSet, names: &mut BTreeSet<OsString>) -> PathBuf {
    let mut at = PathBuf::new();
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let mut ahead: Vec<OsString> = reversed(&whole);
    let mut links = 0;
    while let Some(step) = ahead.pop() {
        if step == ".." {
            at.pop();
            continue;
        }
        let here = at.join(&step);
        let target = match fs::read_link(&here) {
            Ok(target) if links < MOST_LINKS => target,
            _ => {
                folders.above.insert(at);
                names.insert(step);
                at = here;
                continue;
            }
        };
        links += 1;
        folders.holds.insert(at.clone());
        names.insert(step);
        // An absolute target replaces the previous steps: joining the root does that.
        ahead.extend(reversed(&target));
    }
    at
}

/// The steps of a path, the last one first.
fn reversed(path: &Path) -> Vec<OsString> {
    path.components()
        .rev()
        .filter(|component| *component != Component::CurDir)
        .map(|component| component.as_os_str().to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use notify::event::{AccessKind, CreateKind, ModifyKind};

    fn led_through(path: &Path) -> (BTreeSet<PathBuf>, BTreeSet<OsString>) {
        let (mut folders, mut names) = (FolderSet::default(), BTreeSet::new());
        let at = steps(path, &mut folders, &mut names);
        folders.holds.extend(at.parent().map(Path::to_path_buf));
        (folders.holds, names)
    }

    #[test]
    fn what_else_happens_in_the_folder_does_not_matter() {
        let names = WatchedNames {
            whole: BTreeSet::from([OsString::from("gateway.toml"), OsString::from("..data")]),
            patterns: BTreeSet::from(["*.toml".to_owned()]),
        };
        let seen = |kind: EventKind, path: &str| {
            matters(&Event::new(kind).add_path(PathBuf::from(path)), &names)
        };
        let create = EventKind::Create(CreateKind::Any);
        assert!(seen(create, "/etc/tollgate/gateway.toml"));
        assert!(seen(create, "/etc/tollgate/..data"));
        assert!(seen(create, "/etc/tollgate/routes.d/orders.toml"));
        assert!(!seen(create, "/etc/tollgate/routes.d/.orders.toml.swp"));
        assert!(!seen(
            EventKind::Modify(ModifyKind::Any),
            "/etc/tollgate/access.log"
        ));
        let access = EventKind::Access(AccessKind::Any);
        assert!(
            !seen(access, "/etc/tollgate/gateway.toml"),
            "our own reading"
        );
    }

    #[test]
    fn every_folder_on_the_way_is_watched() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        for name in ["etc", "..1", "far"] {
            fs::create_dir(at(name)).unwrap();
        }
        fs::write(at("far/real.toml"), "").unwrap();
        std::os::unix::fs::symlink(at("far/real.toml"), at("..1/gateway.toml")).unwrap();
        std::os::unix::fs::symlink("..1", at("..data")).unwrap();
        std::os::unix::fs::symlink("../..data/gateway.toml", at("etc/gateway.toml")).unwrap();
        let (folders, names) = led_through(&at("etc/gateway.toml"));
        let expected = ["etc", "", "..1", "far"].map(|name| at(name).components().collect());
        assert_eq!(folders, BTreeSet::from(expected));
        for name in ["gateway.toml", "..data", "real.toml"] {
            assert!(names.contains(&OsString::from(name)), "{name}: {names:?}");
        }
    }

    #[test]
    fn links_in_a_circle_end() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        std::os::unix::fs::symlink("b", at("a")).unwrap();
        std::os::unix::fs::symlink("a/a", at("b")).unwrap();
        let (folders, _) = led_through(&at("a"));
        assert!(folders.contains(folder.path()));
    }
}
