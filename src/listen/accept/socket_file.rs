//! The file of a Unix socket: created if no process uses one, and removed with the socket.

use socket2::{Domain, SockAddr, Socket, Type};
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The file of a bound socket, removed on drop; another file in its place is never removed.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// The identity of the file.
    identity: FileIdentity,
    /// Another process removes the file.
    is_left: bool,
}

impl SocketFile {
    /// The file of a socket that is bound at `path`.
    ///
    /// # Errors
    /// If there is no such file.
    pub(in crate::listen) fn at(path: &Path) -> io::Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            identity: identity(path)?,
            is_left: false,
        })
    }

    /// Leaves the file in place: another process listens there.
    pub fn leave(&mut self) {
        self.is_left = true;
    }

    /// Takes over a file that was left to another process, and sets its permissions to `mode`.
    pub fn take_over(&mut self, mode: u32) {
        if std::mem::take(&mut self.is_left) && self.is_unchanged() {
            // A file whose permissions cannot be changed keeps them.
            let _ = std::fs::set_permissions(&self.path, Permissions::from_mode(mode));
        }
    }

    /// Is the file still the socket's own?
    fn is_unchanged(&self) -> bool {
        identity(&self.path).is_ok_and(|found| found == self.identity)
    }

    /// Checks that no other file is in its place.
    ///
    /// # Errors
    /// If there is one.
    pub(in crate::listen) fn check(&self) -> io::Result<()> {
        if self.is_unchanged() {
            return Ok(());
        }
        let text = "another program has put a file of its own there";
        Err(io::Error::new(io::ErrorKind::AddrInUse, text))
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if !self.is_left && self.is_unchanged() {
            // At worst the next start finds the file, and that no process listens there.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// The identity that distinguishes a file from a later one in its place, which may reuse the inode number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileIdentity {
    device: u64,
    number: u64,
    made: SystemTime,
}

fn identity(path: &Path) -> io::Result<FileIdentity> {
    let found = std::fs::symlink_metadata(path)?;
    Ok(FileIdentity {
        device: found.dev(),
        number: found.ino(),
        made: found.modified()?,
    })
}

/// Binds a socket at `path`, with the permissions `mode` on its file. A file that an ended process has left there is
/// removed.
///
/// # Errors
/// If a process listens there, or the file there is not a socket.
pub(in crate::listen) fn bind(path: &Path, mode: u32) -> io::Result<(Socket, SocketFile)> {
    remove_stale(path)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    let bound = socket.bind(&SockAddr::unix(path)?);
    bound.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            io::Error::new(error.kind(), "the folder of the file is not there")
        }
        _ => error,
    })?;
    let file = SocketFile::at(path)?;
    // No client can connect before the socket listens, so that none sees other permissions.
    std::fs::set_permissions(path, Permissions::from_mode(mode))?;
    Ok((socket, file))
}

/// Removes the socket at `path`, if there is one and no process listens on it.
fn remove_stale(path: &Path) -> io::Result<()> {
    let found = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    if !found.file_type().is_socket() {
        let text = "the file there is no socket, and stays as it is";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
    }
    let asking = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // Otherwise the call would wait for a process whose queue is full.
    asking.set_nonblocking(true)?;
    match asking.connect(&SockAddr::unix(path)?) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path)
        }
        _ => {
            let text = "another process listens there";
            Err(io::Error::new(io::ErrorKind::AddrInUse, text))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_that_is_in_use_and_a_file_that_is_none_stay_as_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("http.sock");
        let (socket, file) = bind(&path, 0o640).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o640);
        socket.listen(1).unwrap();
        let taken = bind(&path, 0o660).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        assert!(file.is_unchanged());
        drop(file);
        assert!(!path.exists());
        std::fs::write(&path, "text").unwrap();
        assert!(bind(&path, 0o660).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "text");
    }

    #[test]
    fn a_process_that_is_too_busy_to_accept_is_one_that_listens_and_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("http.sock");
        let (socket, _file) = bind(&path, 0o660).unwrap();
        socket.listen(0).unwrap();
        let address = SockAddr::unix(&path).unwrap();
        let waiting = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        waiting.connect(&address).unwrap();
        let taken = bind(&path, 0o660).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        assert!(path.exists());
        let nowhere = bind(&folder.path().join("none/http.sock"), 0o660).unwrap_err();
        assert!(nowhere.to_string().contains("folder"), "{nowhere}");
    }

    #[test]
    fn a_file_is_removed_by_the_last_that_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("http.sock");
        let (_socket, mut of_first) = bind(&path, 0o660).unwrap();
        let mut of_second = SocketFile::at(&path).unwrap();
        of_second.leave();
        drop(of_second);
        assert!(path.exists(), "a successor that has failed");
        let mut of_second = SocketFile::at(&path).unwrap();
        of_second.leave();
        of_second.take_over(0o600);
        of_first.leave();
        drop(of_first);
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o600);
        drop(of_second);
        assert!(!path.exists());
    }

    #[test]
    fn what_an_ended_process_left_is_replaced_and_a_successor_keeps_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("http.sock");
        let (socket, mut file) = bind(&path, 0o660).unwrap();
        drop(socket);
        file.leave();
        drop(file);
        assert!(path.exists());
        let (_, first) = bind(&path, 0o660).unwrap();
        // The first file keeps its inode number.
        std::fs::hard_link(&path, folder.path().join("other")).unwrap();
        std::fs::remove_file(&path).unwrap();
        let (_second_socket, second) = bind(&path, 0o660).unwrap();
        assert!(first.check().is_err());
        drop(first);
        assert!(path.exists());
        drop(second);
        assert!(!path.exists());
    }
}
