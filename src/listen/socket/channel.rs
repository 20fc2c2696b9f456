//! A client's socket, in clear text or with a TLS layer over it.

use super::encrypted_layer::EncryptedLayer;
use super::transport::Transport;
use std::io;
use std::task::{Context, Poll, ready};
use tokio::io::ReadBuf;

/// The most bytes that are discarded with one read.
const DISCARDED_AT_ONCE: usize = 4096;

/// A connection's bytes as HTTP sees them, in both directions.
#[derive(Debug)]
pub(super) struct Channel {
    transport: Transport,
    /// The TLS layer, from the beginning of a handshake on.
    layer: Option<Box<EncryptedLayer>>,
    /// The connection ends in a reset.
    is_cut: bool,
}

impl Channel {
    /// A channel in clear text.
    pub(in crate::listen) fn new(transport: Transport) -> Self {
        Self {
            transport,
            layer: None,
            is_cut: false,
        }
    }

    /// Puts a layer over the socket.
    pub(in crate::listen) fn encrypt(&mut self, layer: EncryptedLayer) {
        self.layer = Some(Box::new(layer));
    }

    /// The layer over the socket.
    pub(in crate::listen) fn layer(&self) -> Option<&EncryptedLayer> {
        self.layer.as_deref()
    }

    /// Drives the layer's handshake; ready when it is complete and all of our part is sent.
    ///
    /// # Errors
    /// If the client aborts it or violates the protocol. An alert has then been sent.
    pub(in crate::listen) fn poll_handshake(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let Self {
            transport, layer, ..
        } = self;
        let Some(layer) = layer else {
            return Poll::Ready(Ok(()));
        };
        loop {
            ready!(layer.poll_send(transport, cx))?;
            if !layer.connection().is_handshaking() {
                return Poll::Ready(Ok(()));
            }
            match ready!(layer.poll_receive(transport, cx)) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                Ok(_) => {}
                Err(error) => {
                    let _ = layer.poll_send(transport, cx);
                    return Poll::Ready(Err(error));
                }
            }
        }
    }

    #[inline]
    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.layer {
            None => self.transport.poll_read(cx, buf),
            Some(layer) => layer.poll_read(&mut self.transport, cx, buf),
        }
    }

    /// Writes; without any `bufs` it flushes.
    #[inline]
    pub(super) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.layer {
            None => self.transport.poll_write(cx, bufs),
            Some(layer) => layer.poll_write(&mut self.transport, cx, bufs),
        }
    }

    /// Writes without checking whether the socket is writable ([`Transport::write_at_once`]). Adds the number of bytes
    /// that the socket takes to `sent`.
    pub(super) fn write_at_once(
        &mut self,
        bufs: &[io::IoSlice<'_>],
        sent: &mut u64,
    ) -> io::Result<usize> {
        match &mut self.layer {
            None => {
                let count = self.transport.write_at_once(bufs)?;
                *sent += count as u64;
                Ok(count)
            }
            Some(layer) => layer.write_at_once(&mut self.transport, bufs, sent),
        }
    }

    /// Writes as many of `bytes` as the socket takes now. The rest is lost, since the connection ends.
    pub(in crate::listen) fn write_last(&mut self, bytes: &[u8]) {
        match &mut self.layer {
            None => self.transport.write_last(bytes),
            Some(layer) => layer.write_last(&mut self.transport, bytes),
        }
    }

    /// May written bytes wait here for the socket?
    pub(super) fn keeps_bytes(&self) -> bool {
        self.layer.is_some()
    }

    /// Queues the end of our side after all written bytes. [`Self::poll_shutdown`] comes after a flush.
    pub(super) fn announce_end(&mut self) {
        if let Some(layer) = &mut self.layer {
            layer.announce_end();
        }
    }

    /// Ends our side of the socket.
    pub(super) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.transport.poll_shutdown(cx)
    }

    /// Discards received bytes; ready with the number of bytes, 0 at the end of stream.
    pub(in crate::listen) fn poll_discard(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let mut room = [0; DISCARDED_AT_ONCE];
        let mut buf = ReadBuf::new(&mut room);
        ready!(self.transport.poll_read(cx, &mut buf))?;
        Poll::Ready(Ok(buf.filled().len()))
    }

    /// Peeks at the next byte: ready with false at the client's end of stream, with true when a byte has arrived.
    pub(super) fn poll_peek(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        match &mut self.layer {
            None => self.transport.poll_peek(cx),
            Some(layer) => {
                let next = layer.poll_next(&mut self.transport, cx);
                next.map(|next| next.unwrap_or(false))
            }
        }
    }

    /// The socket, below any layer.
    pub(super) fn transport(&self) -> &Transport {
        &self.transport
    }

    /// Resets the socket's connection, which wakes every task that waits on it.
    pub(in crate::listen) fn cut(&mut self) {
        self.end_in_reset();
        self.transport.cut();
    }

    /// Makes the connection end in a reset when it is closed.
    pub(in crate::listen) fn end_in_reset(&mut self) {
        self.is_cut = true;
        self.transport.end_in_reset();
    }
}

impl Drop for Channel {
    /// Every orderly end is announced, so that a client can distinguish it from a connection that was cut.
    fn drop(&mut self) {
        if let Some(layer) = &mut self.layer
            && !self.is_cut
        {
            layer.close(&mut self.transport);
        }
    }
}
