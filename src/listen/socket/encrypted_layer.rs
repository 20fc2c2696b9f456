//! The layer of TLS over a client's socket: records in both directions.
//!
//! What a client has not taken yet is kept up to one record: the next write waits until it is gone, so that a slow client
//! is felt by whoever writes, and a minimum rate can be demanded of it.

use super::transport::Transport;
use rustls::ServerConnection;
use std::io::{self, BufRead as _, IoSlice, Read, Write};
use std::task::{Context, Poll, ready};
use tokio::io::ReadBuf;

/// Most bytes that wait to be taken by the client, but for the overhead of their record.
const MOST_KEPT: usize = 16 * 1024;

/// One connection's state of TLS.
#[derive(Debug)]
pub(in crate::listen) struct EncryptedLayer(ServerConnection);

impl EncryptedLayer {
    /// The layer of a connection whose handshake has begun.
    pub(in crate::listen) fn new(mut connection: ServerConnection) -> Self {
        connection.set_buffer_limit(Some(MOST_KEPT));
        Self(connection)
    }

    /// The state of the connection.
    pub(in crate::listen) fn connection(&self) -> &ServerConnection {
        &self.0
    }

    /// Takes records that were read before the layer was there.
    ///
    /// # Errors
    /// As [`Self::poll_receive`].
    pub(in crate::listen) fn take_read(&mut self, mut records: &[u8]) -> io::Result<()> {
        while !records.is_empty() && self.0.read_tls(&mut records)? > 0 {
            self.process()?;
        }
        Ok(())
    }

    /// Reads records from the socket; ready with the number of bytes read, 0 when the client has closed its side.
    ///
    /// # Errors
    /// When the socket fails, or the client breaks the protocol; an alert waits to be written then.
    pub(super) fn poll_receive(
        &mut self,
        transport: &mut Transport,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        match self.0.read_tls(&mut Reader { transport, cx }) {
            Ok(count) => Poll::Ready(self.process().map(|()| count)),
            Err(error) if is_wait(&error) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    fn process(&mut self) -> io::Result<()> {
        let processed = self.0.process_new_packets();
        processed.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        Ok(())
    }

    /// Writes the records that wait; ready when none is left.
    pub(super) fn poll_send(
        &mut self,
        transport: &mut Transport,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while self.0.wants_write() {
            match self.0.write_tls(&mut Writer { transport, cx }) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(_) => {}
                Err(error) if is_wait(&error) => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Reads what the client has sent. An end of stream without the client's word for it (`close_notify`, RFC 8446
    /// section 6.1) is an error: something may be missing.
    pub(super) fn poll_read(
        &mut self,
        transport: &mut Transport,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if ready!(self.poll_next(transport, cx))? {
            let mut reader = self.0.reader();
            while let Ok(bytes) = reader.fill_buf()
                && !bytes.is_empty()
                && buf.remaining() > 0
            {
                let count = bytes.len().min(buf.remaining());
                buf.put_slice(&bytes[..count]);
                reader.consume(count);
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Ready with true when bytes of the client's lie here, with false when it sends no more.
    pub(super) fn poll_next(
        &mut self,
        transport: &mut Transport,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<bool>> {
        loop {
            match self.0.reader().fill_buf() {
                Ok(bytes) => return Poll::Ready(Ok(!bytes.is_empty())),
                Err(error) if is_wait(&error) => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
            let received = ready!(self.poll_receive(transport, cx));
            // An answer of the layer's own, such as an alert: what the socket does not take now waits for the next
            // write.
            if self.0.wants_write() {
                let _ = self.poll_send(transport, cx);
            }
            received?;
        }
    }

    /// Encrypts and writes. Without any `bufs` it is a flush: ready when the socket has taken all.
    pub(super) fn poll_write(
        &mut self,
        transport: &mut Transport,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_send(transport, cx))?;
        let taken = self.encrypt(bufs)?;
        if let Poll::Ready(Err(error)) = self.poll_send(transport, cx) {
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(taken))
    }

    /// As [`Self::poll_write`], without asking whether the socket is writable ([`Transport::write_at_once`]). Adds the
    /// bytes that the socket takes to `sent`.
    pub(super) fn write_at_once(
        &mut self,
        transport: &mut Transport,
        bufs: &[IoSlice<'_>],
        sent: &mut u64,
    ) -> io::Result<usize> {
        self.send_at_once(transport, sent)?;
        let taken = self.encrypt(bufs)?;
        match self.send_at_once(transport, sent) {
            Err(error) if !is_wait(&error) => Err(error),
            _ => Ok(taken),
        }
    }

    /// Writes the last bytes, as many as the socket takes now.
    pub(in crate::listen) fn write_last(&mut self, transport: &mut Transport, bytes: &[u8]) {
        // The connection ends either way.
        let _ = self.write_at_once(transport, &[IoSlice::new(bytes)], &mut 0);
    }

    /// Says that nothing more will come, as far as the socket takes it now. Records that the socket does not take stand
    /// before it: then the client sees that something is missing.
    pub(in crate::listen) fn close(&mut self, transport: &mut Transport) {
        self.announce_end();
        let _ = self.send_at_once(transport, &mut 0);
    }

    /// Has the end of our side stand behind all that waits.
    pub(super) fn announce_end(&mut self) {
        self.0.send_close_notify();
    }

    fn encrypt(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        match bufs {
            [] => Ok(0),
            [buf] => self.0.writer().write(buf),
            bufs => self.0.writer().write_vectored(bufs),
        }
    }

    fn send_at_once(&mut self, transport: &mut Transport, sent: &mut u64) -> io::Result<()> {
        while self.0.wants_write() {
            *sent += self.0.write_tls(&mut WriterAtOnce(transport))? as u64;
        }
        Ok(())
    }
}

fn is_wait(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

fn waited<T>(poll: Poll<io::Result<T>>) -> io::Result<T> {
    match poll {
        Poll::Ready(done) => done,
        Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
    }
}

/// The socket as rustls reads from it: it would block where the task is woken later.
struct Reader<'a, 'b> {
    transport: &'a mut Transport,
    cx: &'a mut Context<'b>,
}

impl Read for Reader<'_, '_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let mut buf = ReadBuf::new(buf);
        waited(self.transport.poll_read(self.cx, &mut buf))?;
        Ok(buf.filled().len())
    }
}

/// The socket as rustls writes to it: it would block where the task is woken later.
struct Writer<'a, 'b> {
    transport: &'a mut Transport,
    cx: &'a mut Context<'b>,
}

impl Write for Writer<'_, '_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(buf)])
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        waited(self.transport.poll_write(self.cx, bufs))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The socket as rustls writes to it when no task is to be woken.
struct WriterAtOnce<'a>(&'a Transport);

impl Write for WriterAtOnce<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(buf)])
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.write_at_once(bufs)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
