//! The permissions of the stored files and their folder. A file that others may have written is not trusted: its
//! certificate would be served with a key that they know.

use rustix::fs::{Access, access};
use rustix::process::{getegid, geteuid, getgroups};
use std::error::Error as StdError;
use std::fs::{self, File, Metadata};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::{fmt, io};

/// The right of a group to write, in a mode.
const GROUP_WRITES: u32 = 0o020;

/// The reason why the files at a path are not trusted.
#[derive(Debug)]
pub(super) struct Untrusted {
    path: PathBuf,
    why: Cause,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// Others may write to the folder.
    OpenFolder(OtherWriter),
    /// Others may write to the file.
    OpenFile(OtherWriter),
    /// The path is a symbolic link: anyone who may write to the folders on its way controls the target.
    Link,
    /// The path is a pipe, a socket or the like.
    NoFile,
}

/// Other users who may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OtherWriter {
    Owner(u32),
    Group(u32),
    Everybody,
}

/// The group that may write to a folder, if there is one: the gateway is a member. An orchestrator lets such a group
/// write to all files of a volume each time the volume is mounted (`fsGroup`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct VolumeGroup(Option<u32>);

impl VolumeGroup {
    /// The group of a folder, or of its parent.
    pub(super) fn or(self, outer: Self) -> Self {
        Self(self.0.or(outer.0))
    }

    /// Does this group explain the file's group permission to write?
    pub(super) fn writes(self, file: &Metadata) -> bool {
        file.mode() & GROUP_WRITES != 0 && self.0 == Some(file.gid())
    }
}

/// Checks that only root, the gateway's user and its groups may write to a folder.
///
/// # Errors
/// If others may write, in words with the command that fixes it.
pub(super) fn require_safe_folder(path: &Path, found: &Metadata) -> io::Result<VolumeGroup> {
    require_owner(found, is_process_group)
        .map_err(|writer| refused(path, Cause::OpenFolder(writer)))?;
    let group = (found.mode() & GROUP_WRITES != 0).then(|| found.gid());
    Ok(VolumeGroup(group))
}

/// Checks of an opened file that only root, the gateway's user, and the group that may write to its folder, may write
/// to it.
///
/// # Errors
/// If others may write, in words with the command that fixes it; and if it is not a regular file.
pub(super) fn require_safe_file(
    path: &Path,
    found: &Metadata,
    volume: VolumeGroup,
) -> io::Result<()> {
    if !found.is_file() {
        return Err(refused(path, Cause::NoFile));
    }
    require_owner(found, |group| volume.0 == Some(group))
        .map_err(|writer| refused(path, Cause::OpenFile(writer)))
}

/// Checks before the opening that this is a regular file and no link: opening a pipe would block until its other end is
/// opened.
///
/// # Errors
/// If the file does not exist, or is not a regular file.
pub(super) fn require_regular(path: &Path) -> io::Result<Metadata> {
    let found = fs::symlink_metadata(path)?;
    match found.file_type() {
        kind if kind.is_file() => Ok(found),
        kind if kind.is_symlink() => Err(refused(path, Cause::Link)),
        _ => Err(refused(path, Cause::NoFile)),
    }
}

/// Checks that a folder's path is not a link.
///
/// # Errors
/// If the path is a link, or does not exist.
pub(super) fn require_no_link(path: &Path) -> io::Result<Metadata> {
    let found = fs::symlink_metadata(path)?;
    if found.is_symlink() {
        return Err(refused(path, Cause::Link));
    }
    Ok(found)
}

/// Removes a volume group's right to write to a file that is ours. The file is open, so that it cannot be replaced
/// meanwhile.
pub(super) fn close_to_group(file: &File, volume: VolumeGroup) -> io::Result<()> {
    let found = file.metadata()?;
    if volume.writes(&found) && found.uid() == geteuid().as_raw() {
        file.set_permissions(fs::Permissions::from_mode(0o600))?;
    }
    Ok(())
}

/// Would the gateway refuse for the same reason? A `check` may run as another user, so that rules about the user are
/// applied for the folder's owner, or for the user that its group lets in.
pub(super) fn is_refusal(folder: &Path, error: &io::Error) -> bool {
    let inner = error.get_ref();
    let Some(untrusted) = inner.and_then(|inner| inner.downcast_ref::<Untrusted>()) else {
        return false;
    };
    let asks = geteuid().as_raw();
    let is_gateways = || {
        fs::metadata(folder).is_ok_and(|found| match found.uid() {
            owner if owner == asks => asks != 0 || found.mode() & GROUP_WRITES == 0,
            owner => owner == 0,
        })
    };
    match untrusted.why {
        Cause::Link | Cause::NoFile => true,
        Cause::OpenFolder(OtherWriter::Everybody) | Cause::OpenFile(OtherWriter::Everybody) => true,
        Cause::OpenFolder(_) | Cause::OpenFile(_) => is_gateways(),
    }
}

/// The reason why this process cannot write to a folder, or create it if missing.
pub(super) fn unwritable(folder: &Path) -> Option<String> {
    let mut parents = folder.ancestors().map(|place| match place.as_os_str() {
        empty if empty.is_empty() => Path::new("."),
        _ => place,
    });
    // A path whose first part is a file does not exist either, and the file itself is the nearest existing place.
    let nearest = parents.find(|place| fs::symlink_metadata(place).is_ok())?;
    let why = match fs::metadata(nearest) {
        Err(error) => error.to_string(),
        Ok(found) if !found.is_dir() => "it is no folder".to_owned(),
        Ok(_) => {
            let needed = Access::WRITE_OK | Access::EXEC_OK;
            io::Error::from(access(nearest, needed).err()?).to_string()
        }
    };
    let user = geteuid().as_raw();
    Some(format!(
        "user {user} may not write to {}: {why}",
        nearest.display()
    ))
}

/// The group that may write to a folder.
pub(super) fn writing_group(folder: &Path) -> Option<u32> {
    let found = fs::metadata(folder).ok()?;
    (found.mode() & GROUP_WRITES != 0).then(|| found.gid())
}

fn refused(path: &Path, why: Cause) -> io::Error {
    let path = path.to_owned();
    io::Error::other(Untrusted { path, why })
}

fn require_owner(found: &Metadata, may: impl FnOnce(u32) -> bool) -> Result<(), OtherWriter> {
    let user = geteuid().as_raw();
    match other_writer(found.uid(), found.gid(), found.mode(), user, may) {
        Some(writer) => Err(writer),
        None => Ok(()),
    }
}

fn is_process_group(group: u32) -> bool {
    let mut groups = getgroups().unwrap_or_default().into_iter();
    getegid().as_raw() == group || groups.any(|one| one.as_raw() == group)
}

/// Includes the command that fixes it.
impl fmt::Display for Untrusted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        let command = match self.why {
            Cause::Link => {
                return write!(
                    f,
                    "{path} is a symbolic link: `storage` itself may be one, but nothing inside it, since a link may lead through folders to which others may write"
                );
            }
            Cause::NoFile => return write!(f, "{path} is not a regular file"),
            Cause::OpenFolder(OtherWriter::Owner(owner))
            | Cause::OpenFile(OtherWriter::Owner(owner)) => {
                let user = geteuid().as_raw();
                write!(f, "{path} belongs to user {owner}, who may write to it")?;
                format!("chown {user} {path}")
            }
            Cause::OpenFolder(OtherWriter::Group(group)) => {
                write!(
                    f,
                    "group {group}, which the gateway is not in, may write to {path}"
                )?;
                format!("chmod g-w {path}")
            }
            Cause::OpenFile(OtherWriter::Group(group)) => {
                write!(f, "group {group} may write to {path}")?;
                format!("chmod g-w {path}")
            }
            Cause::OpenFolder(OtherWriter::Everybody) | Cause::OpenFile(OtherWriter::Everybody) => {
                write!(f, "everybody may write to {path}")?;
                format!("chmod o-w {path}")
            }
        };
        write!(f, ": `{command}`, if its contents are known to be good")
    }
}

impl StdError for Untrusted {}

fn other_writer(
    owner: u32,
    group: u32,
    mode: u32,
    user: u32,
    may: impl FnOnce(u32) -> bool,
) -> Option<OtherWriter> {
    if owner != user && owner != 0 {
        Some(OtherWriter::Owner(owner))
    } else if mode & 0o002 != 0 {
        Some(OtherWriter::Everybody)
    } else if mode & GROUP_WRITES != 0 && !may(group) {
        Some(OtherWriter::Group(group))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_nothing_can_be_kept_is_told_before_it_is() {
        let root = tempfile::tempdir().unwrap();
        let acme = root.path().join("deep/acme");
        assert_eq!(unwritable(root.path()), None);
        assert_eq!(unwritable(&acme), None);
        assert_eq!(unwritable(Path::new("acme-of-nobody")), None);
        assert!(!acme.exists(), "nothing is made");
        let file = root.path().join("deep");
        fs::write(&file, "").unwrap();
        let refusal = unwritable(&acme).unwrap();
        let end = format!("may not write to {}: it is no folder", file.display());
        assert!(refusal.ends_with(&end), "{refusal}");
        fs::remove_file(&file).unwrap();
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o500)).unwrap();
        // No permissions stop root.
        let refusal = unwritable(&acme);
        assert_eq!(refusal.is_none(), geteuid().is_root(), "{refusal:?}");
    }

    #[test]
    fn nobody_else_may_write() {
        for (owner, group, mode, other) in [
            (1000, 1000, 0o40700, None),
            (0, 0, 0o40755, None),
            // A volume of an orchestrator, with a group that the gateway is a member of (`fsGroup`).
            (0, 2000, 0o42775, None),
            (1000, 3000, 0o40775, Some(OtherWriter::Group(3000))),
            (1000, 1000, 0o40777, Some(OtherWriter::Everybody)),
            (1000, 1000, 0o41777, Some(OtherWriter::Everybody)),
            (1001, 1000, 0o100_600, Some(OtherWriter::Owner(1001))),
        ] {
            let may = |group| group == 1000 || group == 2000;
            let found = other_writer(owner, group, mode, 1000, may);
            assert_eq!(found, other, "{owner} {group} {mode:o}");
        }
    }
}
