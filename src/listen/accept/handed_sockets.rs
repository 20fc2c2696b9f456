//! Sockets that the process was started with: systemd opened them (`sd_listen_fds(3)`), or the predecessor hands its
//! own over by the same protocol.

use listenfd::ListenFd;
use socket2::Socket;
use std::io;
use std::os::fd::OwnedFd;

/// The number of sockets.
pub const COUNT: &str = "LISTEN_FDS";
/// The names of the sockets, separated by colons.
pub const NAMES: &str = "LISTEN_FDNAMES";
/// The process that the sockets are for; without the variable they are for any process.
pub const PROCESS: &str = "LISTEN_PID";
/// The name, among them, of a connection to the gateway that hands its sockets over. Names of systemd's sockets may
/// have a slash too, but none of ours has this prefix.
pub const PREDECESSOR: &str = "tollgate/predecessor";
/// A word after the names of all sockets, where a gateway that does not know the word ignores it: the predecessor
/// answers, on its connection, the request for the data beside sockets.
pub const BEQUEATHS: &str = "tollgate/bequeaths";
/// The name that systemd gives to a socket without a configured name.
const NAMELESS: &str = "unknown";

/// Sockets that are not used yet.
#[derive(Debug, Default)]
pub struct HandedSockets {
    sockets: Vec<HandedSocket>,
    /// Words after the names of the sockets.
    words: Vec<String>,
}

#[derive(Debug)]
struct HandedSocket {
    /// Its position among all that were handed over.
    position: usize,
    name: String,
    socket: Socket,
}

impl HandedSockets {
    /// The sockets that this process was started with. Must be called first in a process, before other threads start,
    /// and once.
    ///
    /// # Errors
    /// If one of them is not a stream socket.
    pub fn take_all() -> io::Result<Self> {
        let mut handed = ListenFd::from_env();
        let names = std::env::var(NAMES).unwrap_or_default();
        let mut names = names.split(':').filter(|name| !name.is_empty());
        let mut sockets = Vec::with_capacity(handed.len());
        for position in 0..handed.len() {
            let tcp = handed
                .take_tcp_listener(position)
                .map(|tcp| tcp.map(OwnedFd::from));
            let socket = match tcp {
                Ok(socket) => socket,
                Err(_) => handed.take_unix_listener(position)?.map(OwnedFd::from),
            };
            let name = names.next().unwrap_or(NAMELESS).to_owned();
            sockets.extend(socket.map(|socket| HandedSocket {
                position,
                name,
                socket: socket.into(),
            }));
        }
        let words = names.map(str::to_owned).collect();
        Ok(Self { sockets, words })
    }

    /// Does this word follow the names of the sockets?
    #[must_use]
    pub fn has_word(&self, word: &str) -> bool {
        self.words.iter().any(|said| said == word)
    }

    /// The sockets of this name, in the order in which they were handed over.
    pub fn take(&mut self, name: &str) -> Vec<Socket> {
        let named = self.sockets.extract_if(.., |handed| handed.name == name);
        named.map(|handed| handed.socket).collect()
    }

    /// The first socket of this name.
    pub fn take_first(&mut self, name: &str) -> Option<Socket> {
        let mut all = self.sockets.iter();
        let position = all.position(|handed| handed.name == name)?;
        Some(self.sockets.remove(position).socket)
    }

    /// The names of the sockets that are left.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.sockets.iter().map(|handed| handed.name.as_str())
    }

    /// The positions of the remaining sockets among all that were handed over, from 0.
    pub fn positions(&self) -> impl Iterator<Item = usize> {
        self.sockets.iter().map(|handed| handed.position)
    }
}
