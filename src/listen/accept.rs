//! Accepts connections and deals them out evenly to the workers.

use crate::shutdown::Drain;
use crate::telemetry::log::Throttle;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

/// Pause after the system has no file descriptor left: long enough not to spin, short enough not to be noticed.
const EXHAUSTED: Duration = Duration::from_millis(20);

/// Open files that are neither a client's connection nor an upstream's: listeners, admin, Redis, pipes, a file being read.
const OTHER_FILES: u64 = 128;

/// Tells that the system gives no connections.
static REFUSED: Throttle = Throttle::every(Duration::from_secs(1));

/// A connection on its way to a worker.
#[derive(Debug)]
pub struct Accepted {
    /// The socket, not yet registered with any runtime.
    pub tcp: TcpStream,
    /// The far end.
    pub from: SocketAddr,
    /// Counts it as open until dropped.
    pub open: OpenGuard,
}

/// One worker, as seen by the acceptor.
#[derive(Debug, Clone)]
pub struct Seat {
    /// The way to it.
    pub connections: mpsc::Sender<Accepted>,
    /// Connections it has now.
    pub open: Arc<AtomicUsize>,
}

/// Counts one connection until it is dropped.
#[derive(Debug)]
pub struct OpenGuard(Arc<AtomicUsize>);

impl OpenGuard {
    fn new(open: &Arc<AtomicUsize>) -> Self {
        open.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(open))
    }
}

impl Drop for OpenGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How many connections to hold at once: as many as `asked`, if the system's `files` suffice for as many upstream
/// connections beside them. Running out of files would fail requests that are under way.
#[must_use]
pub fn most_connections(asked: usize, files: Option<u64>) -> usize {
    let half = files.map(|files| files.saturating_sub(OTHER_FILES) / 2);
    let room = half.map_or(asked, |half| usize::try_from(half).unwrap_or(usize::MAX));
    asked.min(room).max(1)
}

/// Accepts until draining begins. Beyond `most` connections new ones are closed at once, which costs the least.
pub async fn accept(listener: TcpListener, seats: Vec<Seat>, most: usize, drain: Drain) {
    let mut turn = 0;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = drain.begun() => return,
        };
        match accepted {
            Ok((stream, from)) => {
                let total: usize = seats
                    .iter()
                    .map(|seat| seat.open.load(Ordering::Relaxed))
                    .sum();
                if total >= most {
                    continue;
                }
                let Ok(tcp) = stream.into_std() else { continue };
                turn = (turn + 1) % seats.len().max(1);
                let Some(seat) = emptiest(&seats, turn) else {
                    return;
                };
                let accepted = Accepted {
                    tcp,
                    from,
                    open: OpenGuard::new(&seat.open),
                };
                if seat.connections.send(accepted).await.is_err() {
                    return;
                }
            }
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                if let Some(more) = REFUSED.pass() {
                    tracing::warn!("cannot accept connections: {error}{more}");
                }
                tokio::time::sleep(EXHAUSTED).await;
            }
        }
    }
}

/// The worker with the fewest connections; among equals, the next in turn.
fn emptiest(seats: &[Seat], turn: usize) -> Option<&Seat> {
    let (before, after) = seats.split_at(turn.min(seats.len()));
    after
        .iter()
        .chain(before)
        .min_by_key(|seat| seat.open.load(Ordering::Relaxed))
}

/// The peer gave up before we took its connection: nothing is wrong with the listener.
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
    }
}
