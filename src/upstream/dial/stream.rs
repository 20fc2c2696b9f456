//! The bytes between the gateway and a server: a plain socket or TLS, and the detection of the server's end.

use crate::descriptors::SpareDescriptor;
use crate::descriptors::departure::SecondDescriptor;
use rustls::{ClientConnection, ProtocolVersion};
use socket2::SockRef;
use std::io::{self, IoSlice, Write};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::client::TlsStream;

/// Most encrypted bytes that wait for a server to take them.
const MOST_KEPT: usize = 16 * 1024;

/// The transport of a connection to a server.
#[derive(Debug)]
pub(in crate::upstream) enum ServerStream {
    /// TCP.
    Tcp(TcpStream),
    /// A Unix socket.
    Unix(UnixStream),
    /// TLS over TCP.
    Tls(EncryptedStream),
}

/// TLS over TCP, whose end is announced to the server (`close_notify`, RFC 8446 section 6.1).
#[derive(Debug)]
pub(in crate::upstream) struct EncryptedStream {
    stream: Box<TlsStream<TcpStream>>,
    /// Bytes have arrived after the handshake.
    is_heard: bool,
}

/// The server ended a TLS 1.3 connection when the handshake was complete on our side and perhaps not on the server's,
/// without an alert, and without a ticket, which servers send after completing it.
#[derive(Debug, thiserror::Error)]
#[error("the server ended the connection silently after the handshake")]
pub(super) struct HandshakeAbandoned;

impl ServerStream {
    /// Has the server chosen HTTP/1.1 in its handshake?
    pub(in crate::upstream) fn has_chosen_http1(&self) -> bool {
        match self {
            Self::Tls(stream) => stream.connection().alpn_protocol() == Some(b"http/1.1"),
            Self::Tcp(_) | Self::Unix(_) => false,
        }
    }
}

impl ServerStream {
    /// A second descriptor of the socket.
    ///
    /// # Errors
    /// If the system has none left.
    pub(in crate::upstream) fn duplicate(
        &self,
        spare: SpareDescriptor,
    ) -> io::Result<SecondDescriptor> {
        match self {
            Self::Tcp(stream) => SecondDescriptor::of(stream, spare),
            Self::Unix(stream) => SecondDescriptor::of(stream, spare),
            Self::Tls(stream) => SecondDescriptor::of(stream.stream.get_ref().0, spare),
        }
    }

    /// Makes the connection end in a reset when it is closed.
    pub(in crate::upstream) fn end_in_reset(&self) {
        let socket = match self {
            Self::Tcp(stream) => SockRef::from(stream),
            Self::Unix(stream) => SockRef::from(stream),
            Self::Tls(stream) => SockRef::from(stream.stream.get_ref().0),
        };
        // At worst the connection ends in order.
        let _ = socket.set_linger(Some(Duration::ZERO));
    }
}

/// A stream whose end can be checked in the system, regardless of the runtime's knowledge.
pub(in crate::upstream) trait PeekEnd {
    /// Ready when the server has closed the stream, or has sent unrequested bytes, which cannot begin an answer.
    fn peek_end(&self) -> Poll<io::Result<()>>;
}

impl PeekEnd for ServerStream {
    fn peek_end(&self) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => peek(&SockRef::from(stream)),
            Self::Unix(stream) => peek(&SockRef::from(stream)),
            // Between two exchanges a server sends nothing but the announcement of the end.
            Self::Tls(stream) => peek(&SockRef::from(stream.stream.get_ref().0)),
        }
    }
}

fn peek(socket: &SockRef<'_>) -> Poll<io::Result<()>> {
    match socket.peek(&mut [MaybeUninit::uninit()]) {
        Ok(0) => Poll::Ready(Ok(())),
        Ok(_) => Poll::Ready(Err(io::ErrorKind::InvalidData.into())),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
        Err(error) => Poll::Ready(Err(error)),
    }
}

impl EncryptedStream {
    /// A stream after its handshake.
    pub(in crate::upstream) fn new(mut stream: TlsStream<TcpStream>) -> Self {
        stream.get_mut().1.set_buffer_limit(Some(MOST_KEPT));
        Self {
            stream: Box::new(stream),
            is_heard: false,
        }
    }

    /// The TLS state.
    pub(in crate::upstream) fn connection(&self) -> &ClientConnection {
        self.stream.get_ref().1
    }

    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let read = ready!(Pin::new(&mut *self.stream).poll_read(cx, buf));
        match read {
            Err(error) if self.is_abandoned(&error) => {
                let abandoned = io::Error::new(error.kind(), HandshakeAbandoned);
                return Poll::Ready(Err(abandoned));
            }
            Err(_) => {}
            Ok(()) => self.is_heard = true,
        }
        Poll::Ready(read)
    }

    #[cold]
    fn is_abandoned(&self, error: &io::Error) -> bool {
        use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
        let connection = self.connection();
        !self.is_heard
            && matches!(error.kind(), UnexpectedEof | ConnectionReset | BrokenPipe)
            && connection.protocol_version() == Some(ProtocolVersion::TLSv1_3)
            && connection.tls13_tickets_received() == 0
    }
}

impl Drop for EncryptedStream {
    fn drop(&mut self) {
        let (socket, connection) = self.stream.get_mut();
        connection.send_close_notify();
        let mut writer = AtOnce(socket);
        // Bytes that the socket does not take at once are not waited for.
        while connection.wants_write()
            && connection
                .write_tls(&mut writer)
                .is_ok_and(|count| count > 0)
        {}
    }
}

/// Writes as much as a socket takes without waiting.
struct AtOnce<'a>(&'a TcpStream);

impl Write for AtOnce<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsyncRead for ServerStream {
    #[inline]
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => stream.poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for ServerStream {
    #[inline]
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Unix(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Tls(stream) => Pin::new(&mut *stream.stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Self::Unix(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Self::Tls(stream) => Pin::new(&mut *stream.stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    #[inline]
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tls(stream) => Pin::new(&mut *stream.stream).poll_flush(cx),
            Self::Tcp(_) | Self::Unix(_) => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(&mut *stream.stream).poll_shutdown(cx),
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
        let stream = ServerStream::Tcp(TcpStream::connect(address).await.unwrap());
        let (server, _) = listener.accept().await.unwrap();
        assert!(stream.peek_end().is_pending());
        drop(server);
        // There is no await in between, so that the runtime does not know of the end.
        assert!(matches!(stream.peek_end(), Poll::Ready(Ok(()))));
    }
}
