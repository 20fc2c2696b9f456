//! Accepts connections while there is room.
//!
//! In: the listeners of the file. Out: connections, each given to a worker.
//!
//! ```text
//! listener             what the file says of each listening socket
//! handed_sockets       sockets that the process was started with
//! bind                 sockets taken over or bound, before anything is served on them
//! socket_file          the file of a Unix socket, which its last process removes
//! dispatch             it goes to the worker with the fewest connections, or to the one whose connection is
//!                      evicted
//! connection_register  which connections wait for their client, and in which order they are evicted
//! ```

pub mod bind;
pub mod connection_register;
pub mod dispatch;
pub mod handed_sockets;
pub mod listener;
pub mod socket_file;

use super::ListenerSettings;
use crate::shutdown::Drain;
use crate::telemetry::log::Throttle;
use crate::tls::OfferInForce;
use bind::{Acceptor, BACKLOG};
use dispatch::Dispatcher;
use listener::Listener;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};
use tokio::sync::Notify;

/// The pause after the system has no file descriptor left: long enough to avoid a busy loop, too short for a client to
/// notice.
const EXHAUSTED: Duration = Duration::from_millis(20);
/// The pause while workers close connections for new ones.
const ROOM_IS_MADE: Duration = Duration::from_millis(1);

/// Open files that are neither a client's connection nor an upstream's: listeners, admin, Redis, pipes, a file being
/// read.
pub(crate) const OTHER_FILES: u64 = 128;

/// Connections to servers that the gateway attempts even if the system allows few files.
const LEAST_LEFT: u64 = 8;

/// Logs that the system fails to accept connections.
static NOT_ACCEPTED: Throttle = Throttle::every(Duration::from_secs(1));

/// The current file's view of a peer.
#[derive(Debug, Clone, Copy)]
pub struct KnownPeer {
    /// The address that counts for it; `None` for the peer of a Unix socket.
    pub from: Option<SocketAddr>,
    /// Is it a trusted proxy, which represents many clients?
    pub is_trusted: bool,
}

/// The current file's trust in peers. The program passes an implementation in; this room does not know the file.
pub trait PeerTrust: fmt::Debug + Send + Sync {
    /// Looks up the peer at an address.
    fn known(&self, from: Option<SocketAddr>) -> KnownPeer;
}

/// The most connections at once: `asked`, or fewer if the system's `files` do not suffice for the same number of
/// upstream connections. A lack of files would make current requests fail.
#[must_use]
pub fn most_connections(asked: usize, files: Option<u64>) -> usize {
    let share = files.map(|files| files.saturating_sub(OTHER_FILES) / 2);
    let room = share.map_or(asked, |share| usize::try_from(share).unwrap_or(usize::MAX));
    asked.min(room).max(1)
}

/// Open files that remain for connections to servers besides `most` of clients.
#[must_use]
pub fn left_for_upstreams(most: usize, files: Option<u64>) -> Option<u64> {
    let clients = u64::try_from(most).unwrap_or(u64::MAX);
    let left = files?.saturating_sub(OTHER_FILES).saturating_sub(clients);
    Some(left.max(LEAST_LEFT))
}

/// A listening socket of a listener.
#[derive(Debug)]
pub struct ListeningSocket {
    /// The socket.
    pub socket: Acceptor,
    /// The facts for accepting its connections.
    pub facts: ListenerFacts,
    /// Notified when another process begins to accept on the socket.
    pub taken_over: Arc<Notify>,
    /// Notified when no process accepts on the socket any more.
    pub given_up: Arc<Notify>,
}

/// The facts for accepting a listener's connections.
#[derive(Debug)]
pub struct ListenerFacts {
    /// The file's description of the listener.
    pub listener: Listener,
    /// The identities that the listener offers; `None` means clear text.
    pub offer: Option<OfferInForce>,
}

impl ListeningSocket {
    /// Accepts until draining begins or the socket is given up, and then accepts the connections that already wait; a
    /// successor's takeover ends the accepting without these. A connection without room is closed at once, which costs
    /// the least.
    pub async fn accept(
        self,
        dispatcher: Arc<Dispatcher>,
        peers: Arc<dyn PeerTrust>,
        drain: Drain,
    ) {
        loop {
            let accepted = tokio::select! {
                accepted = self.socket.accept() => accepted,
                () = drain.begun() => return self.accept_waiting(&dispatcher, &*peers).await,
                () = self.given_up.notified() => return self.accept_waiting(&dispatcher, &*peers).await,
                () = self.taken_over.notified() => return,
            };
            match accepted {
                Ok((stream, from)) => {
                    while dispatcher.is_overfull() {
                        tokio::time::sleep(ROOM_IS_MADE).await;
                    }
                    let dealing = dispatcher.dispatch(stream, peers.known(from), &self.facts);
                    if dealing.await.is_err() {
                        return;
                    }
                }
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    dispatcher.no_descriptor();
                    if let Some(more) = NOT_ACCEPTED.pass() {
                        tracing::warn!(
                            "the system gives no new connection: {error}; where open files are short, raise `ulimit -n`{more}"
                        );
                    }
                    tokio::time::sleep(EXHAUSTED).await;
                }
            }
        }
    }

    /// Accepts the connections that wait when draining begins, which the system would otherwise reset. It accepts at
    /// most as many as the queue can hold, since new connections may arrive equally fast.
    async fn accept_waiting(self, dispatcher: &Dispatcher, peers: &dyn PeerTrust) {
        let Ok(socket) = self.socket.leave_runtime() else {
            return;
        };
        for _ in 0..BACKLOG {
            if dispatcher.is_overfull() {
                return;
            }
            let Ok((tcp, from)) = socket.accept() else {
                return;
            };
            let dealing = dispatcher.dispatch(tcp, peers.known(from), &self.facts);
            if dealing.await.is_err() {
                return;
            }
        }
    }
}

impl ListenerFacts {
    /// Does this peer name the client of each of its connections?
    fn is_proxied(&self, peer: KnownPeer) -> bool {
        let from = peer.from.map(|from| from.ip());
        let proxies = self.listener.proxies.as_ref();
        proxies.is_some_and(|proxies| proxies.have(from, peer.is_trusted))
    }

    /// The facts about a connection from the listener.
    fn of_connection(&self) -> ListenerSettings {
        ListenerSettings {
            offer: self.offer.clone(),
            redirects: self.listener.redirects,
        }
    }
}

/// Did the client abort before its connection was accepted? If so, the listener has no fault.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionReset | Interrupted
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_files_are_left_for_upstreams() {
        assert_eq!(most_connections(100_000, None), 100_000);
        assert_eq!(most_connections(100_000, Some(1_048_576)), 100_000);
        assert_eq!(most_connections(100_000, Some(1024)), 448);
        assert_eq!(most_connections(20, Some(1024)), 20);
        assert_eq!(most_connections(20, Some(100)), 1);
        assert_eq!(left_for_upstreams(100_000, None), None);
        assert_eq!(left_for_upstreams(448, Some(1024)), Some(448));
        assert_eq!(left_for_upstreams(20, Some(1024)), Some(876));
        assert_eq!(left_for_upstreams(1, Some(100)), Some(8));
    }
}
