//! The fence of an included file: the file can read files in its own folder, and files that patterns allow. A path is
//! checked by its target after all links are resolved, and the open file is checked again.

use super::glob;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// The files that one file of a configuration can read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    /// The folder of the file; `None` if the main file is in this folder or below it.
    folder: Option<PathBuf>,
    /// The folders of all files of the configuration: a file below one of these folders belongs to that folder alone.
    taken: Arc<BTreeSet<PathBuf>>,
    /// Files outside its own folder that the file can read.
    allowed: Vec<AllowedPaths>,
}

/// A pattern of paths: the folder in front of its first step with a wildcard, and the steps from there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedPaths {
    root: PathBuf,
    steps: Vec<String>,
}

impl Fence {
    /// The fence of a file in `folder`. `taken` has the folders of the configuration's files, and `main` has the folder
    /// of the main file; all paths are without links.
    #[must_use]
    pub fn around(
        folder: PathBuf,
        main: &Path,
        taken: Arc<BTreeSet<PathBuf>>,
        allowed: Vec<AllowedPaths>,
    ) -> Self {
        Self {
            folder: (!main.starts_with(&folder)).then_some(folder),
            taken,
            allowed,
        }
    }

    /// Is the target of `path` within the fence?
    #[must_use]
    pub fn contains(&self, path: &Path) -> bool {
        self.place(path).is_some()
    }

    /// Opens the file at `path` if the fence contains it, even if a link is swapped in the meantime.
    pub(super) fn open(&self, path: &Path) -> io::Result<File> {
        let outside = || io::Error::other("it is not this file's to read");
        let place = self.place(path).ok_or_else(outside)?;
        let file = File::open(&place)?;
        let now = fs::metadata(self.place(path).ok_or_else(outside)?)?;
        let opened = file.metadata()?;
        if (opened.dev(), opened.ino()) == (now.dev(), now.ino()) {
            Ok(file)
        } else {
            Err(io::Error::other("it has changed while it was read"))
        }
    }

    /// Is `place`, a path without links, within the fence? The name of a link does not count.
    #[must_use]
    pub fn contains_place(&self, place: &Path) -> bool {
        self.is_in_folder(place) || self.allowed.iter().any(|one| one.describes(place))
    }

    /// The target of `path` after all links, if the fence contains the target.
    fn place(&self, path: &Path) -> Option<PathBuf> {
        let place = real(path);
        let is_allowed = || {
            let mut allowed = self.allowed.iter();
            allowed.any(|one| one.leads_to(path, &place))
        };
        (self.is_in_folder(&place) || is_allowed()).then_some(place)
    }

    /// Is `place` in the folder of the file?
    fn is_in_folder(&self, place: &Path) -> bool {
        let mut above = place.ancestors().skip(1);
        let nearest = above.find(|at| self.taken.contains(*at));
        self.folder.is_some() && nearest == self.folder.as_deref()
    }
}

impl AllowedPaths {
    /// Reads a pattern.
    ///
    /// # Errors
    /// If the path is not a valid pattern: the reason in words.
    pub fn read(pattern: &Path) -> Result<Self, &'static str> {
        glob::check_pattern(&pattern.to_string_lossy())?;
        let mut root = PathBuf::new();
        let mut steps: Vec<String> = Vec::new();
        let mut components = pattern.components().peekable();
        while let Some(component) = components.next() {
            let step = component.as_os_str().to_string_lossy();
            match component {
                Component::Normal(_)
                    if components.peek().is_none()
                        || !steps.is_empty()
                        || glob::is_pattern(&step) =>
                {
                    steps.push(step.into_owned());
                }
                _ if !steps.is_empty() => return Err("no `..` may follow a `*`"),
                other => root.push(other),
            }
        }
        if steps.is_empty() {
            Err("it names no file")
        } else {
            Ok(Self {
                root: real(&root),
                steps,
            })
        }
    }

    /// Does the pattern allow `place`, the target of `path`? The name of a link counts as well if the target stays in
    /// the folder that the pattern names: an orchestrator keeps its secrets behind such links and swaps the links.
    fn leads_to(&self, path: &Path, place: &Path) -> bool {
        let by_name = || {
            let named = named(path);
            named.is_some_and(|named| self.describes(&named)) && place.starts_with(&self.root)
        };
        self.describes(place) || by_name()
    }

    fn describes(&self, place: &Path) -> bool {
        let Ok(rest) = place.strip_prefix(&self.root) else {
            return false;
        };
        let names: Option<Vec<&str>> = rest.iter().map(|name| name.to_str()).collect();
        names.is_some_and(|names| glob::leads(&self.steps, &names))
    }
}

/// The path with all links resolved except in its last step.
fn named(path: &Path) -> Option<PathBuf> {
    Some(real(path.parent()?).join(path.file_name()?))
}

/// The path in the form in which an operator would allow it: the path's own name, unless a link leads out of its
/// folder.
#[must_use]
pub fn to_allow(path: &Path) -> PathBuf {
    let place = real(path);
    let named = named(path).filter(|named| {
        let folder = named.parent();
        folder.is_some_and(|folder| place.starts_with(folder))
    });
    named.unwrap_or(place)
}

/// The target of a path after all links; for a path that does not exist, links are resolved in the part that exists.
#[must_use]
pub fn real(path: &Path) -> PathBuf {
    let here = if path.as_os_str().is_empty() {
        Path::new(".")
    } else {
        path
    };
    if let Ok(place) = here.canonicalize() {
        return place;
    }
    match (here.parent(), here.components().next_back()) {
        (Some(above), Some(Component::ParentDir)) => {
            let above = real(above);
            above.parent().map(Path::to_owned).unwrap_or(above)
        }
        (Some(above), Some(last)) => real(above).join(last),
        _ => here.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// Folders: the operator's folder with a secret, a team's folder inside it, another team's folder inside that, and
    /// secrets in the layout of an orchestrator.
    fn house() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        for name in ["etc/a/deep", "etc/a/b", "run/..1", "run/a-more"] {
            fs::create_dir_all(root.join(name)).unwrap();
        }
        for name in [
            "etc/redis",
            "etc/a/own",
            "etc/a/deep/own",
            "etc/a/b/theirs",
            "run/..1/a-key",
            "run/..1/redis",
        ] {
            fs::write(root.join(name), name).unwrap();
        }
        for (to, name) in [
            ("..1", "run/..data"),
            ("..data/a-key", "run/a-key"),
            ("..data/redis", "run/redis"),
            ("../redis", "etc/a/link"),
            ("own", "etc/a/near"),
            ("..", "etc/a/up"),
            ("../../run/redis", "etc/a/a-key"),
            ("../../nowhere", "etc/a/dangling"),
        ] {
            symlink(to, root.join(name)).unwrap();
        }
        (folder, root)
    }

    fn fence(root: &Path, folder: &str, allowed: &[&str]) -> Fence {
        let taken = ["etc", "etc/a", "etc/a/b"].map(|name| root.join(name));
        let allowed = allowed
            .iter()
            .map(|text| AllowedPaths::read(&root.join(text)).unwrap());
        Fence::around(
            root.join(folder),
            &root.join("etc"),
            Arc::new(taken.into()),
            allowed.collect(),
        )
    }

    #[test]
    fn what_lies_in_its_own_folder_is_a_teams_and_nothing_else() {
        let (_folder, root) = house();
        let team = fence(&root, "etc/a", &[]);
        for (name, expected) in [
            ("etc/a/own", true),
            ("etc/a/deep/own", true),
            ("etc/a/near", true),
            ("etc/a/b/../own", true),
            ("etc/a/not-there", true),
            ("etc/a/link", false),
            ("etc/a/up/redis", false),
            ("etc/a/../redis", false),
            ("etc/a/deep/../../redis", false),
            ("etc/a/dangling/../../redis", false),
            ("etc/a/b/theirs", false),
            ("etc/redis", false),
            ("run/a-key", false),
            ("/proc/self/environ", false),
        ] {
            assert_eq!(team.contains(&root.join(name)), expected, "{name}");
            if !expected {
                assert!(team.open(&root.join(name)).is_err(), "{name}");
            }
        }
        assert!(team.open(&root.join("etc/a/near")).is_ok());
    }

    #[test]
    fn the_operators_folder_is_no_teams() {
        let (_folder, root) = house();
        let sibling = fence(&root, "etc", &[]);
        for name in ["etc/redis", "etc/a/own"] {
            assert!(!sibling.contains(&root.join(name)), "{name}");
        }
        let above = fence(&root, "", &[]);
        assert!(!above.contains(&root.join("run/redis")));
    }

    #[test]
    fn patterns_allow_what_they_describe_and_no_way_around() {
        let (_folder, root) = house();
        let team = fence(&root, "etc/a", &["run/a-*"]);
        for (name, expected) in [
            ("run/a-key", true),
            ("run/a-more/../a-key", true),
            ("run/redis", false),
            ("run/..data/redis", false),
            ("run/..data/a-key", false),
            ("run/a-more/../redis", false),
            // The pattern matches the link's name, but the link leads out of the folder.
            ("etc/a/a-key", false),
        ] {
            assert_eq!(team.contains(&root.join(name)), expected, "{name}");
        }
        let in_reach_of_the_team = fence(&root, "etc/a", &["etc/a/a-*"]);
        assert!(!in_reach_of_the_team.contains(&root.join("etc/a/a-key")));
        assert!(fence(&root, "etc", &["etc/redis"]).contains(&root.join("etc/redis")));
        for wrong in ["run/*/../redis", "run/a**", "/"] {
            assert!(AllowedPaths::read(Path::new(wrong)).is_err(), "{wrong}");
        }
    }
}
