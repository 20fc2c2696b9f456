//! The transport of a client's connection: all uses of the socket itself are here.

use crate::descriptors::SpareDescriptor;
use crate::descriptors::departure::SecondDescriptor;
use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::net::Shutdown;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// The silence after which a client's system is probed.
const KEEP_ALIVE: Duration = Duration::from_secs(60);

/// The time for which a client may take none of the last bytes of a closed connection.
const LAST_BYTES: Duration = Duration::from_secs(5);

/// A connection's bytes at the socket, in both directions. A Unix socket is used like a TCP socket.
#[derive(Debug)]
pub(in crate::listen) struct Transport(TcpStream);

impl Transport {
    /// Takes over an accepted socket. The peer of a Unix socket is not remote: there is no network that could be
    /// silent.
    ///
    /// # Errors
    /// If the runtime cannot register it.
    pub(in crate::listen) fn new(tcp: std::net::TcpStream, is_remote: bool) -> io::Result<Self> {
        tcp.set_nonblocking(true)?;
        if is_remote {
            tcp.set_nodelay(true)?;
            SockRef::from(&tcp).set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEP_ALIVE))?;
        }
        Ok(Self(TcpStream::from_std(tcp)?))
    }

    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }

    pub(super) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let tcp = Pin::new(&mut self.0);
        match bufs {
            [buf] => tcp.poll_write(cx, buf),
            bufs => tcp.poll_write_vectored(cx, bufs),
        }
    }

    /// Writes without checking whether the socket is writable. Linux reports a socket writable only when a third of its
    /// buffer is free, and the buffer grows to megabytes: a peer that reads continuously, but slowly, would seem to
    /// take nothing for minutes.
    pub(super) fn write_at_once(&self, bufs: &[io::IoSlice<'_>]) -> io::Result<usize> {
        SockRef::from(&self.0).send_vectored(bufs)
    }

    /// Writes as many of `bytes` as the socket takes now. The rest is lost, since the connection ends.
    pub(in crate::listen) fn write_last(&self, bytes: &[u8]) {
        let _ = self.0.try_write(bytes);
    }

    pub(super) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }

    /// Peeks at the next byte: ready with false at the client's end of stream, with true when a byte has arrived.
    pub(super) fn poll_peek(&self, cx: &mut Context<'_>) -> Poll<bool> {
        let mut byte = [0];
        let peeked = ready!(self.0.poll_peek(cx, &mut ReadBuf::new(&mut byte)));
        Poll::Ready(!matches!(peeked, Ok(0) | Err(_)))
    }

    /// Peeks at the next bytes of the socket.
    pub(super) fn poll_peek_bytes(
        &self,
        cx: &mut Context<'_>,
        seen: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<usize>> {
        self.0.poll_peek(cx, seen)
    }

    /// A second registration of the socket, which reports the closing even if bytes lie unread.
    pub(super) fn duplicate(&self, spare: SpareDescriptor) -> io::Result<SecondDescriptor> {
        SecondDescriptor::of(&self.0, spare)
    }

    /// Makes the system discard the bytes of a closed connection if the client takes none of them for some time. By
    /// default it would keep them, up to megabytes, for minutes.
    pub(super) fn bound_farewell(&self) {
        // A Unix socket has no such bytes.
        let _ = SockRef::from(&self.0).set_tcp_user_timeout(Some(LAST_BYTES));
    }

    /// Makes the connection end in a reset when it is closed.
    pub(in crate::listen) fn end_in_reset(&self) {
        // At worst the connection ends in order.
        let _ = SockRef::from(&self.0).set_linger(Some(Duration::ZERO));
    }

    /// Ends both directions.
    pub(in crate::listen) fn cut(&self) {
        // A connection that has already ended needs no shutdown.
        let _ = SockRef::from(&self.0).shutdown(Shutdown::Both);
    }
}
