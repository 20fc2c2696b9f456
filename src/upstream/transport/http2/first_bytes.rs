//! The first bytes that a server sends: settings of HTTP/2 (RFC 9113, section 3.4), or another protocol. All bytes pass
//! through here, and the connection's window is counted from them.

use super::kept_bytes::KeptBytes;
use super::send_window::SendWindow;
use crate::upstream::dial;
use crate::upstream::dial::other_protocol::OtherProtocol;
use crate::upstream::dial::stream::ServerStream;
use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;

/// The length of a frame's head.
const HEAD: usize = 9;
/// The type of a frame of settings.
const SETTINGS: u8 = 4;

/// The first bytes of a server.
#[derive(Debug, Default)]
pub(super) struct FirstBytes {
    /// The received part of the first frame's head.
    head: RefCell<Vec<u8>>,
    /// The number of received bytes.
    count: Cell<usize>,
    /// The first frame has arrived, or the bytes are not one.
    is_settled: Cell<bool>,
    /// The server refuses our certificate, with the reason.
    refused: RefCell<Option<String>>,
    /// Wakes the task that waits for the first frame.
    pub(super) settled: Notify,
}

impl FirstBytes {
    /// Has the first frame arrived, or something else?
    pub(super) fn is_settled(&self) -> bool {
        self.is_settled.get()
    }

    /// The other protocol of the server, if it can be recognised.
    pub(super) fn other_protocol(&self) -> Option<OtherProtocol> {
        OtherProtocol::of(&self.head.borrow()).filter(|other| *other != OtherProtocol::Http2)
    }

    /// The words in which the server refuses our certificate, or the lack of one.
    pub(super) fn refused_certificate(&self) -> Option<String> {
        self.refused.borrow().clone()
    }

    fn note(&self, bytes: &[u8]) {
        let mut head = self.head.borrow_mut();
        let missing = HEAD.saturating_sub(head.len()).min(bytes.len());
        head.extend_from_slice(&bytes[..missing]);
        self.count.set(self.count.get() + bytes.len());
        let is_settled = match head[..] {
            [a, b, c, SETTINGS, ..] if head.len() == HEAD => {
                let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
                self.count.get() >= HEAD + length
            }
            _ => head.len() == HEAD,
        };
        if is_settled {
            self.is_settled.set(true);
            self.settled.notify_one();
        }
    }
}

/// A stream whose first bytes, writes and frames are noted.
#[derive(Debug)]
pub(super) struct NotedStream {
    pub(super) stream: ServerStream,
    pub(super) first: Rc<FirstBytes>,
    pub(super) kept: Rc<KeptBytes>,
    pub(super) window: Rc<SendWindow>,
}

impl NotedStream {
    /// The outcome of a write. If one fails at the beginning of the connection, the server may have sent the reason
    /// before it ended the connection: received bytes are read first, though the runtime may not know of them yet.
    fn written<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        self.kept.note(&written);
        if let Poll::Ready(Err(_)) = &written
            && !self.first.is_settled()
        {
            let mut bytes = [0; 64];
            let read = Pin::new(self).poll_read(cx, &mut ReadBuf::new(&mut bytes));
            // The failure occurs again with the next write.
            let _ = ready!(read);
        }
        written
    }
}

impl AsyncRead for NotedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, buf));
        if let Err(error) = &read
            && !self.first.is_settled()
        {
            // The library underneath keeps only the kind of the error.
            self.first.refused.replace(dial::refused_certificate(error));
        }
        read?;
        let bytes = &buf.filled()[before..];
        if !self.first.is_settled() {
            self.first.note(bytes);
        }
        self.window.comes(bytes);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for NotedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        if let Poll::Ready(Ok(count)) = &written {
            self.window.goes(&buf[..*count]);
        }
        self.written(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        if let Poll::Ready(Ok(count)) = &written {
            let mut left = *count;
            for part in bufs {
                let taken = left.min(part.len());
                self.window.goes(&part[..taken]);
                left -= taken;
            }
        }
        self.written(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let written = Pin::new(&mut self.stream).poll_flush(cx);
        self.written(cx, written)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
