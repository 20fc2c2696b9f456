//! Creates the streams of connections to Redis: to one address, or to a Unix socket.

use crate::clock;
use crate::store::endpoint::{Address, RedisEndpoint};
use crate::store::error::StoreError;
use crate::store::settings::RedisTarget;
use crate::tls::{self, Advice, ClientTls};
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{timeout, timeout_at};
use tokio_rustls::TlsConnector;

/// The time for which a connection's bytes may go unanswered. On an idle connection a partition leaves no other trace.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// The longest time for making a plain connection. If a network drops packets, an attempt fails, and the network may
/// recover meanwhile. With the pause after an attempt the total is less than a second.
const REACH: Duration = Duration::from_millis(600);

/// The time from the beginning within which a handshake must be complete. It is less than a connection may take, so
/// that the error names the slow step. It does not count from the handshake's own beginning: the system's authorities
/// are read before, which may be slow.
const SHAKEN: Duration = Duration::from_millis(900);

/// Advice for an operator if a handshake fails.
pub(super) const ADVICE: Advice = Advice {
    table: "`[store] tls`",
    name_key: "server_name",
    plaintext: "write `redis` in place of `rediss` in the address",
};

/// The stream under a connection.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<L: AsyncRead + AsyncWrite + Send + Unpin> Duplex for L {}

/// Any such stream. One dynamic call for each read is cheap compared with the read.
pub(super) type RedisStream = Box<dyn Duplex>;

/// The destination of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RedisDestination<'a> {
    pub(crate) target: &'a RedisTarget,
    /// The node of the target, if the target has several.
    pub(crate) node: Option<&'a Address>,
}

impl<'a> RedisDestination<'a> {
    /// The destination of a target that is a single Redis.
    pub(crate) fn of(target: &'a RedisTarget) -> Self {
        Self { target, node: None }
    }

    /// The address, if there is one and it is known.
    pub(crate) fn address(self) -> Option<&'a Address> {
        match (self.node, &self.target.place) {
            (Some(address), _) | (None, RedisEndpoint::Tcp(address)) => Some(address),
            _ => None,
        }
    }
}

/// A stream to a destination.
pub(super) async fn dial(destination: RedisDestination<'_>) -> Result<RedisStream, StoreError> {
    let target = destination.target;
    let made = match (destination.address(), &target.place) {
        (Some(address), _) => tcp(address, target.tls.as_ref()).await,
        (None, RedisEndpoint::Unix(path)) => unix(path).await,
        (None, _) => Err(io::Error::other("the node is not known")),
    };
    made.map_err(|error| StoreError::Unreachable(error.to_string().into()))
}

/// A name is resolved for each connection, since its address may have changed.
async fn tcp(address: &Address, tls: Option<&ClientTls>) -> io::Result<RedisStream> {
    let begun = clock::now();
    let reaching = TcpStream::connect((&*address.host, address.port));
    let stream = timeout(REACH, reaching)
        .await
        .map_err(|_| io::Error::other(format!("no connection to {address} within {REACH:?}")))??;
    tune(&stream)?;
    let Some(tls) = tls else {
        return Ok(Box::new(stream));
    };
    let client = tls
        .config()
        .map_err(|why| io::Error::other(format!("no authorities to trust: {why}")))?;
    let name = tls.name_of(&address.host);
    let name = name.ok_or_else(|| io::Error::other("no certificate can have such a name"))?;
    let shaking = TlsConnector::from(client).connect(name, stream);
    let encrypted = timeout_at(begun + SHAKEN, shaking).await.map_err(|_| {
        // A Redis without TLS waits for the end of a line that never ends.
        let why =
            format!("no answer to the handshake within {SHAKEN:?}: is it a port with TLS? If not, write `redis` in place of `rediss` in the address");
        io::Error::other(format!("TLS with {address}: {why}"))
    })?;
    let encrypted = encrypted.map_err(|error| match tls::explain(&error, ADVICE) {
        Some(why) => io::Error::other(format!("TLS with {address}: {why}")),
        None => error,
    })?;
    Ok(Box::new(encrypted))
}

async fn unix(path: &str) -> io::Result<RedisStream> {
    Ok(Box::new(UnixStream::connect(path).await?))
}

/// The options of a socket for small messages: no delay, and detection of a dead peer.
fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = socket2::SockRef::from(stream);
    let keepalive = socket2::TcpKeepalive::new()
        .with_time(KEEPALIVE)
        .with_interval(KEEPALIVE);
    socket.set_tcp_keepalive(&keepalive)
}
