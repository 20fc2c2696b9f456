//! The bound on the paths of the sockets of an included file's servers. A path is judged by its target after all links,
//! at each connection: a link may be changed while the gateway runs.

use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, io};
use tokio::net::UnixStream;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

/// The most concurrent lookups of one bound, over all workers. A lookup on a disk that does not answer may never end;
/// later lookups then wait until the connection timeout, and lookups for other files are not affected.
const LOOKS: usize = 8;

/// The allowed paths of sockets. Two bounds are equal when their texts are.
#[derive(Clone)]
pub struct SocketFence {
    /// The bound in full.
    text: Arc<str>,
    holds: Arc<dyn Fn(&Path) -> bool + Send + Sync>,
    looks: Arc<Semaphore>,
}

impl SocketFence {
    /// The bound that `text` describes in full: `holds` returns whether a path without links is allowed.
    pub fn new(
        text: impl Into<Arc<str>>,
        holds: impl Fn(&Path) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self {
            text: text.into(),
            holds: Arc::new(holds),
            looks: Arc::new(Semaphore::new(LOOKS)),
        }
    }

    /// Connects to the socket at `path`, if its target is allowed. The disk may be slow or fail to answer, so that a
    /// separate thread does the lookup, rather than the worker's.
    pub(in crate::upstream) async fn connect(&self, path: &Path) -> io::Result<UnixStream> {
        let looks = Arc::clone(&self.looks);
        let turn = looks.acquire_owned().await.map_err(io::Error::other)?;
        let path = path.to_owned();
        let looked = spawn_blocking(move || {
            let _turn = turn;
            PlacedSocket::open(&path)
        });
        let socket = looked.await.map_err(io::Error::other)??;
        if !(self.holds)(&socket.place) {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "the socket leads out of the folder of the file that names it",
            ));
        }
        UnixStream::connect(&socket.path).await
    }
}

impl PartialEq for SocketFence {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for SocketFence {}

impl Hash for SocketFence {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl fmt::Debug for SocketFence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A socket with a known target.
struct PlacedSocket {
    /// Keeps `path` alive.
    #[cfg(target_os = "linux")]
    _held: std::fs::File,
    /// The path to connect to.
    path: PathBuf,
    /// The target after all links.
    place: PathBuf,
}

impl PlacedSocket {
    /// The socket is kept open, so that the judged socket is the connected one.
    #[cfg(target_os = "linux")]
    fn open(path: &Path) -> io::Result<Self> {
        use std::os::fd::AsRawFd as _;
        use std::os::unix::fs::OpenOptionsExt as _;

        let flags = i32::try_from(rustix::fs::OFlags::PATH.bits()).map_err(io::Error::other)?;
        let held = std::fs::OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(path)?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd()));
        let place = std::fs::read_link(&path).map_err(without_proc)?;
        Ok(Self {
            _held: held,
            path,
            place,
        })
    }

    /// If a socket cannot be opened, it is connected by its path without links.
    #[cfg(not(target_os = "linux"))]
    fn open(path: &Path) -> io::Result<Self> {
        let place = path.canonicalize()?;
        Ok(Self {
            path: place.clone(),
            place,
        })
    }
}

#[cfg(target_os = "linux")]
fn without_proc(error: io::Error) -> io::Error {
    let words = format!("cannot find out where the socket leads; is /proc mounted? {error}");
    io::Error::new(error.kind(), words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    #[tokio::test]
    async fn the_place_behind_all_links_counts_at_each_connection() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        for name in ["team", "team/run", "run"] {
            std::fs::create_dir(root.join(name)).unwrap();
        }
        let _theirs = UnixListener::bind(root.join("team/run/app.sock")).unwrap();
        let _operators = UnixListener::bind(root.join("run/app.sock")).unwrap();
        let team_folder = root.join("team");
        let fence = SocketFence::new("team", move |place| place.starts_with(&team_folder));
        let path = root.join("team/run/app.sock");
        fence.connect(&path).await.unwrap();
        let outside = fence.connect(&root.join("run/app.sock")).await;
        assert_eq!(outside.unwrap_err().kind(), io::ErrorKind::PermissionDenied);

        // The folder is replaced by a link.
        std::fs::rename(root.join("team/run"), root.join("team/before")).unwrap();
        symlink("../run", root.join("team/run")).unwrap();
        let swapped = fence.connect(&path).await;
        assert_eq!(swapped.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        std::fs::remove_file(root.join("team/run")).unwrap();
        symlink("before", root.join("team/run")).unwrap();
        fence.connect(&path).await.unwrap();
    }
}
