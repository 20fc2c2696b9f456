//! Accepts connections, as many as there is room for.

use super::dispatch::Dispatcher;
use crate::shutdown::Drain;
use crate::telemetry::log::Throttle;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

/// Pause after the system has no file descriptor left: long enough not to spin, too short for a client to notice.
const EXHAUSTED: Duration = Duration::from_millis(20);
/// Pause while workers close connections for new ones.
const ROOM_IS_MADE: Duration = Duration::from_millis(1);

/// Open files that are neither a client's connection nor an upstream's: listeners, admin, Redis, pipes, a file being
/// read.
const OTHER_FILES: u64 = 128;

/// Connections to servers that the gateway attempts, however few files the system allows.
const LEAST_LEFT: u64 = 8;

/// Logs that the system gives no connections.
static NOT_ACCEPTED: Throttle = Throttle::every(Duration::from_secs(1));

/// The test for trusted proxies among peers: a trusted proxy stands for many clients.
pub type TrustedPeers = Arc<dyn Fn(IpAddr) -> bool + Send + Sync>;

/// The number of connections to hold at once: `asked`, or fewer where the system's `files` do not suffice for as many
/// upstream connections as well. Running out of files would fail requests that are under way.
#[must_use]
pub fn most_connections(asked: usize, files: Option<u64>) -> usize {
    let half = files.map(|files| files.saturating_sub(OTHER_FILES) / 2);
    let room = half.map_or(asked, |half| usize::try_from(half).unwrap_or(usize::MAX));
    asked.min(room).max(1)
}

/// Open files that are left for connections to servers beside `most` of clients.
#[must_use]
pub fn left_for_upstreams(most: usize, files: Option<u64>) -> Option<u64> {
    let clients = u64::try_from(most).unwrap_or(u64::MAX);
    let left = files?.saturating_sub(OTHER_FILES).saturating_sub(clients);
    Some(left.max(LEAST_LEFT))
}

/// Accepts until draining begins. A connection for which there is no room is closed at once, which costs the least.
pub async fn accept(
    listener: TcpListener,
    dispatcher: Arc<Dispatcher>,
    trusted: TrustedPeers,
    drain: Drain,
) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = drain.begun() => return,
        };
        match accepted {
            Ok((stream, from)) => {
                while dispatcher.is_overfull() {
                    tokio::time::sleep(ROOM_IS_MADE).await;
                }
                let Ok(tcp) = stream.into_std() else { continue };
                let trusted = trusted(from.ip());
                if dispatcher.dispatch(tcp, from, trusted).await.is_err() {
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

/// Has the client given up before its connection was accepted? The listener is sound then.
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
