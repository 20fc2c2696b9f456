//! Accepts and serves admin connections: few at once, none for long, and a new connection always finds room beside
//! silent ones.

use super::AdminState;
use super::call::AdminResponse;
use super::door::AdminPeer;
use super::door::host_check::ListenerNames;
use super::endpoints::respond;
use crate::listen::bind::Acceptor;
use crate::telemetry::log::Throttle;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

/// Connections served at once. A further connection replaces the oldest one without a request, or else the oldest.
const CONNECTIONS: usize = 100;

/// The bounds on a client's time.
#[derive(Debug, Clone, Copy)]
pub(super) struct AdminTimeouts {
    /// The time for a request's head, from the connection's start or the previous answer.
    pub(super) head: Duration,
    /// The time for a connection; a current answer is then its last.
    pub(super) connection: Duration,
    /// The time for the last answer, at the end of a connection's life or of the gateway's.
    pub(super) last_answer: Duration,
}

const TIMEOUTS: AdminTimeouts = AdminTimeouts {
    head: Duration::from_secs(10),
    connection: Duration::from_secs(60),
    last_answer: Duration::from_secs(5),
};

/// The pause after accepting failed, as it does without free file descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves `listener` until `shutdown` resolves, then finishes current requests.
///
/// The listener should outlive the traffic: `/readyz` shows draining while the gateway drains.
pub async fn serve(listener: Acceptor, state: AdminState, shutdown: impl Future<Output = ()>) {
    serve_within(TIMEOUTS, listener, state, shutdown).await;
}

/// [`serve`] with other timeouts.
pub(super) async fn serve_within(
    timeouts: AdminTimeouts,
    listener: Acceptor,
    state: AdminState,
    shutdown: impl Future<Output = ()>,
) {
    let (ending, ended) = watch::channel(false);
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    let mut open = OpenConnections::default();
    loop {
        let stream = tokio::select! {
            () = &mut shutdown => break,
            stream = accept(&listener) => stream,
            // Removes ended connections from the set.
            Some(_) = connections.join_next() => continue,
        };
        if let Some((stream, from)) = stream {
            open.make_room();
            let has_asked = Arc::new(AtomicBool::new(false));
            let serving = connection(
                timeouts,
                stream,
                from,
                state.clone(),
                Arc::clone(&has_asked),
                ended.clone(),
            );
            let serving = connections.spawn(serving);
            open.0.push(OpenConnection { serving, has_asked });
        }
    }
    drop(listener);
    ending.send_replace(true);
    while connections.join_next().await.is_some() {}
}

/// Open connections, the oldest first.
#[derive(Default)]
struct OpenConnections(Vec<OpenConnection>);

struct OpenConnection {
    serving: AbortHandle,
    /// The connection has sent a whole request.
    has_asked: Arc<AtomicBool>,
}

impl OpenConnections {
    /// Closes a connection if there are too many for one more.
    fn make_room(&mut self) {
        self.0
            .retain(|connection| !connection.serving.is_finished());
        if self.0.len() < CONNECTIONS {
            return;
        }
        let silent = |connection: &OpenConnection| !connection.has_asked.load(Ordering::Relaxed);
        let oldest = self.0.iter().position(silent).unwrap_or(0);
        self.0.remove(oldest).serving.abort();
    }
}

/// A connection, or `None` after a pause if accepting failed.
async fn accept(listener: &Acceptor) -> Option<(TcpStream, Option<IpAddr>)> {
    static FAILED: Throttle = Throttle::every(Duration::from_secs(10));
    match listener.accept().await {
        // A connection that the runtime cannot register is dropped.
        Ok((stream, from)) => {
            let stream = TcpStream::from_std(stream).ok()?;
            Some((stream, from.map(|from| from.ip())))
        }
        Err(error) => {
            if let Some(more) = FAILED.pass() {
                tracing::warn!("the admin listener could not accept a connection: {error}{more}");
            }
            tokio::time::sleep(PAUSE).await;
            None
        }
    }
}

async fn connection(
    timeouts: AdminTimeouts,
    stream: TcpStream,
    from: Option<IpAddr>,
    state: AdminState,
    has_asked: Arc<AtomicBool>,
    mut ended: watch::Receiver<bool>,
) {
    // Without a local IP address, as on a Unix socket, only the loopback names remain.
    let address = stream.local_addr().map(|at| at.ip());
    let names = ListenerNames::at(address.unwrap_or(Ipv4Addr::LOCALHOST.into()));
    let user = if from.is_none() {
        user_of(&stream)
    } else {
        None
    };
    let client = Arc::new(AdminPeer {
        address: from,
        user,
        names,
    });
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        has_asked.store(true, Ordering::Relaxed);
        let (state, client) = (state.clone(), Arc::clone(&client));
        async move { Ok::<AdminResponse, Infallible>(respond(state, &client, request).await) }
    });
    let mut serving = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(timeouts.head)
            .serve_connection(TokioIo::new(stream), service)
    );
    // The end of an admin connection is not logged: scrapers connect and leave all the time.
    tokio::select! {
        _ = &mut serving => return,
        () = tokio::time::sleep(timeouts.connection) => {}
        _ = ended.wait_for(|ended| *ended) => {}
    }
    serving.as_mut().graceful_shutdown();
    let _ = tokio::time::timeout(timeouts.last_answer, serving).await;
}

/// The user at the other end of a Unix socket.
fn user_of(stream: &TcpStream) -> Option<u32> {
    let descriptor = stream.as_fd().try_clone_to_owned().ok()?;
    let stream = UnixStream::from_std(StdUnixStream::from(descriptor)).ok()?;
    stream.peer_cred().ok().map(|peer| peer.uid())
}
