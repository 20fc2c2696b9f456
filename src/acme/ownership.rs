//! The right to write to what is kept in a folder. What others may have written is not believed: a certificate there
//! would be served with a key that they know.

use rustix::process::{getegid, geteuid, getgroups};
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Others that may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OtherWriter {
    Owner(u32),
    Group(u32),
    Everybody,
}

/// Holds a file or folder to the rule that only root and the gateway's user, and its groups, may write to it.
///
/// # Errors
/// When others may, in words with the command that ends it.
pub(super) fn hold(path: &Path, found: &Metadata) -> io::Result<()> {
    let user = geteuid().as_raw();
    let is_own = |group: u32| {
        let mut groups = getgroups().unwrap_or_default().into_iter();
        getegid().as_raw() == group || groups.any(|one| one.as_raw() == group)
    };
    let Some(writer) = other_writer(found.uid(), found.gid(), found.mode(), user, is_own) else {
        return Ok(());
    };
    let path = path.display();
    Err(io::Error::other(match writer {
        OtherWriter::Owner(owner) => format!(
            "{path} belongs to user {owner}, who may write to it: `chown {user} {path}`, if what is in it is known to be good"
        ),
        OtherWriter::Group(group) => format!(
            "group {group}, which the gateway is not in, may write to {path}: `chmod g-w {path}`, if what is in it is known to be good"
        ),
        OtherWriter::Everybody => format!(
            "everybody may write to {path}: `chmod o-w {path}`, if what is in it is known to be good"
        ),
    }))
}

fn other_writer(
    owner: u32,
    group: u32,
    mode: u32,
    user: u32,
    is_own: impl FnOnce(u32) -> bool,
) -> Option<OtherWriter> {
    if owner != user && owner != 0 {
        Some(OtherWriter::Owner(owner))
    } else if mode & 0o002 != 0 {
        Some(OtherWriter::Everybody)
    } else if mode & 0o020 != 0 && !is_own(group) {
        Some(OtherWriter::Group(group))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_else_may_write() {
        for (owner, group, mode, other) in [
            (1000, 1000, 0o40700, None),
            (0, 0, 0o40755, None),
            // A volume of an orchestrator, with a group that the gateway is given (`fsGroup`).
            (0, 2000, 0o42775, None),
            (1000, 2000, 0o100_660, None),
            (1000, 3000, 0o40775, Some(OtherWriter::Group(3000))),
            (1000, 1000, 0o40777, Some(OtherWriter::Everybody)),
            (1000, 1000, 0o41777, Some(OtherWriter::Everybody)),
            (1001, 1000, 0o100_600, Some(OtherWriter::Owner(1001))),
        ] {
            let is_own = |group| group == 1000 || group == 2000;
            let found = other_writer(owner, group, mode, 1000, is_own);
            assert_eq!(found, other, "{owner} {group} {mode:o}");
        }
    }
}
