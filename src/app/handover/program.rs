//! The program of this process, which a handover starts again as the successor: it has the same arguments and the same
//! path, at which an upgrade may have put another file.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The text that Linux appends to the path of a deleted file.
const GONE: &str = " (deleted)";

/// The program and its arguments.
#[derive(Debug)]
pub(in crate::app) struct Program {
    path: PathBuf,
    arguments: Vec<OsString>,
}

impl Program {
    /// The program of this process. Called at the start, while the path still leads to the running file.
    pub(in crate::app) fn of_this_process() -> Self {
        let mut arguments = std::env::args_os();
        let called = arguments.next().unwrap_or_default();
        let running = std::env::current_exe().unwrap_or_default();
        Self {
            path: found(&called, &running, std::env::var_os("PATH").as_deref()),
            arguments: arguments.collect(),
        }
    }

    /// The path of the program.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The command that starts the program again.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.args(&self.arguments);
        command
    }
}

/// The path from `called`, the program's name as its caller gave it, to the `running` file. The path is not resolved,
/// since an upgrade may change a symbolic link. If the name leads to another file, the running file's own path is
/// returned.
fn found(called: &OsStr, running: &Path, path: Option<&OsStr>) -> PathBuf {
    let has_folder = called.as_encoded_bytes().contains(&b'/');
    let candidates: Vec<PathBuf> = if has_folder {
        std::path::absolute(called).into_iter().collect()
    } else {
        let folders = path.into_iter().flat_map(std::env::split_paths);
        let named = folders.map(|folder| folder.join(called));
        named
            .filter_map(|named| std::path::absolute(named).ok())
            .collect()
    };
    let is_running = |candidate: &PathBuf| is_same_file(candidate, running);
    candidates
        .into_iter()
        .find(is_running)
        .unwrap_or_else(|| in_place_of(running))
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    let file = |path: &Path| {
        let found = std::fs::metadata(path).ok()?;
        Some((found.dev(), found.ino()))
    };
    file(one).is_some() && file(one) == file(other)
}

/// The path itself, or for a deleted file its former path.
fn in_place_of(running: &Path) -> PathBuf {
    let text = running.as_os_str().to_str();
    let was = text.and_then(|text| text.strip_suffix(GONE));
    was.map_or_else(|| running.to_owned(), PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_stays_a_link_and_a_wrong_name_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("tollgate-1"), "one").unwrap();
        std::fs::write(at("other"), "another").unwrap();
        std::os::unix::fs::symlink(at("tollgate-1"), at("tollgate")).unwrap();
        let running = at("tollgate-1");
        let folders = folder.path().as_os_str();
        assert_eq!(
            found(at("tollgate").as_os_str(), &running, None),
            at("tollgate")
        );
        let by_name = found(OsStr::new("tollgate"), &running, Some(folders));
        assert_eq!(by_name, at("tollgate"));
        assert_eq!(found(at("other").as_os_str(), &running, None), running);
        assert_eq!(
            found(OsStr::new("nothing"), &running, Some(folders)),
            running
        );
        // The file was replaced during the start.
        let gone = PathBuf::from(format!("{}{GONE}", running.display()));
        assert_eq!(found(OsStr::new("nothing"), &gone, None), running);
    }
}
