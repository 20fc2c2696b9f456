//! The bytes between the gateway and a server: opening a stream, and asking whether its server has ended it.
//!
//! [`ServerStream`] is the type that connections use. TLS to servers makes it an enum.

use super::{Server, demo};
use socket2::SockRef;
use std::error::Error as _;
use std::io;
use std::mem::MaybeUninit;
use std::task::Poll;
use std::time::Duration;
use tokio::net::TcpStream;

/// The carrier of the bytes of a connection to a server.
pub(super) type ServerStream = TcpStream;

/// A stream whose end the system can be asked about, whatever the runtime knows of it.
pub(super) trait PeekEnd {
    /// Ready when the server has closed the stream, or has sent bytes that no request has asked for: such bytes cannot
    /// begin an answer.
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

/// The failure of a connection.
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
        /// The time for which the connection was tried.
        after: Duration,
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
        // Nothing is awaited in between, so the runtime does not know of the end.
        assert!(matches!(stream.peek_end(), Poll::Ready(Ok(()))));
    }
}
