//! The bytes between the gateway and a server: how a stream is opened, and whether its server has ended it.
//!
//! Pool, driver and recorder are written for any [`PeekEnd`]; [`ServerStream`] is the one that connections are made of. TLS to
//! servers makes it an enum.

use super::{Server, demo};
use socket2::SockRef;
use std::error::Error as _;
use std::io;
use std::mem::MaybeUninit;
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// What carries the bytes of a connection to a server.
pub(super) type ServerStream = TcpStream;

/// A stream that the system can be asked about, whatever the runtime knows of it.
pub(super) trait PeekEnd: AsyncRead + AsyncWrite + Unpin {
    /// Ready when the server has closed the stream, or has sent bytes that no request has asked for: an answer cannot begin
    /// with those.
    fn peek_end(&self) -> Poll<io::Result<()>>;
}

impl PeekEnd for TcpStream {
    fn peek_end(&self) -> Poll<io::Result<()>> {
        match SockRef::from(self).peek(&mut [MaybeUninit::uninit()]) {
            Ok(0) => Poll::Ready(Ok(())),
            Ok(_) => Poll::Ready(Err(io::ErrorKind::InvalidData.into())),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

/// Opens a stream to `server`.
pub(super) async fn open(server: &Server) -> io::Result<ServerStream> {
    let stream = match server {
        Server::Http { host, port } => TcpStream::connect((&**host, *port)).await?,
        Server::Demo => TcpStream::connect(demo::address()?).await?,
    };
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The address could not be found or reached.
    #[error("cannot connect to {server}")]
    Io {
        /// The server that was tried.
        server: Server,
        /// The system's error.
        source: io::Error,
    },
    /// The server has not answered in time.
    #[error("no connection to {server} within {after:?}")]
    Timeout {
        /// The server that was tried.
        server: Server,
        /// How long it was tried.
        after: Duration,
    },
    /// The connection was made and lost at once.
    #[error("connection to {server} lost at once")]
    Handshake {
        /// The server that was tried.
        server: Server,
        /// hyper's error.
        source: hyper::Error,
    },
}

impl ConnectError {
    /// The error and its source in one sentence.
    #[must_use]
    pub fn in_full(&self) -> String {
        match self.source() {
            Some(source) => format!("{self}: {source}"),
            None => self.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_end_of_a_stream_is_seen_before_the_runtime_knows_of_it() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stream = TcpStream::connect(address).await.unwrap();
        let (server, _) = listener.accept().await.unwrap();
        assert!(stream.peek_end().is_pending());
        drop(server);
        // Nothing is awaited in between: the runtime does not know of the end.
        assert!(matches!(stream.peek_end(), Poll::Ready(Ok(()))));
    }
}
