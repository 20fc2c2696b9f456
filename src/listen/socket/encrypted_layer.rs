//! The TLS layer over a client's socket: records in both directions.
//!
//! Bytes that a client has not taken are buffered up to one record: the next write waits until they are gone, so that
//! the writer notices a slow client, and a minimum rate can be enforced.

use super::transport::Transport;
use rustls::ServerConnection;
use std::io::{self, BufRead as _, IoSlice, Read, Write};
use std::task::{Context, Poll, ready};
use tokio::io::ReadBuf;

/// The most bytes that wait to be taken by the client, without the overhead of their record.
const MOST_KEPT: usize = 16 * 1024;

/// One connection's TLS state.
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

    /// Takes records that were read before the layer was installed.
    ///
    /// # Errors
    /// Like [`Self::poll_receive`].
    pub(in crate::listen) fn take_read(&mut self, mut records: &[u8]) -> io::Result<()> {
        while !records.is_empty() && self.0.read_tls(&mut records)? > 0 {
            self.process()?;
        }
        Ok(())
    }

    /// Reads records from the socket; ready with the number of bytes read, 0 if the client has closed its side.
    ///
    /// # Errors
    /// If the socket fails, or the client violates the protocol; an alert is then queued.
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

    /// Writes the queued records; ready when none is left.
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

    /// Reads decrypted bytes from the client. An end of stream without the client's `close_notify` (RFC 8446 section
    /// 6.1) is an error: bytes may be missing.
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

    /// Ready with true if decrypted bytes are available, with false if the client sends no more.
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
            // The layer's own answer, such as an alert: bytes that the socket does not take now wait for the next
            // write.
            if self.0.wants_write() {
                let _ = self.poll_send(transport, cx);
            }
            received?;
        }
    }

    /// Encrypts and writes. If `bufs` is empty, the call flushes: it is ready when the socket has taken everything.
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

    /// Like [`Self::poll_write`], without checking whether the socket is writable ([`Transport::write_at_once`]). Adds
    /// the number of bytes that the socket takes to `sent`.
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
        // The connection ends in either case.
        let _ = self.write_at_once(transport, &[IoSlice::new(bytes)], &mut 0);
    }

    /// Sends `close_notify`, if the socket takes it now. If earlier records are still queued, the client sees that
    /// bytes are missing.
    pub(in crate::listen) fn close(&mut self, transport: &mut Transport) {
        self.announce_end();
        let _ = self.send_at_once(transport, &mut 0);
    }

    /// Queues the end of our side after everything else.
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

/// The socket as a reader for rustls: it returns `WouldBlock` if the task is woken later.
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

/// The socket as a writer for rustls: it returns `WouldBlock` if the task is woken later.
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

/// The socket as a writer for rustls if no task is to be woken.
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
