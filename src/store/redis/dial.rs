//! Makes the streams that connections to Redis run over: to one address, or to a socket of the file system.

use crate::store::error::StoreError;
use crate::store::place::{Address, Place};
use crate::store::settings::RedisTarget;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

/// A partition leaves no trace on an idle connection but these going unanswered.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// What a connection runs over.
pub(super) trait Link: AsyncRead + AsyncWrite + Send + Unpin {}

impl<L: AsyncRead + AsyncWrite + Send + Unpin> Link for L {}

/// Any of them. One call more for each read is nothing beside the read.
pub(super) type Stream = Box<dyn Link>;

/// A stream to this node of `target`, or to wherever its place says.
pub(super) async fn dial(
    target: &RedisTarget,
    node: Option<&Address>,
) -> Result<Stream, StoreError> {
    let made = match (node, &target.place) {
        (Some(address), _) | (None, Place::Tcp(address)) => tcp(address).await,
        (None, Place::Unix(path)) => unix(path).await,
        (None, Place::Sentinel { .. } | Place::Cluster { .. }) => {
            Err(io::Error::other("nobody has said which of its nodes"))
        }
    };
    made.map_err(|error| StoreError::Unreachable(error.to_string().into()))
}

/// A name is looked up each time: what it led to may have moved.
async fn tcp(address: &Address) -> io::Result<Stream> {
    let stream = TcpStream::connect((&*address.host, address.port)).await?;
    tune(&stream)?;
    Ok(Box::new(stream))
}

async fn unix(path: &str) -> io::Result<Stream> {
    Ok(Box::new(UnixStream::connect(path).await?))
}

/// Small questions that wait for their answers: no delay, and a peer that is gone is noticed.
fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = socket2::SockRef::from(stream);
    let keepalive = socket2::TcpKeepalive::new()
        .with_time(KEEPALIVE)
        .with_interval(KEEPALIVE);
    socket.set_tcp_keepalive(&keepalive)
}
