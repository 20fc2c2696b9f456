//! The stream under an upstream connection of HTTP/1. It remembers the head that was written last until a byte of the
//! answer comes. A request that its server has not begun to answer may be sent once more, and copying bytes is far
//! cheaper than a second head.

use super::stream::{PeekEnd, ServerStream};
use crate::descriptors::Descriptor;
use memchr::memmem;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The longest head that is remembered; a longer one is not sent again.
const MOST: usize = 64 * 1024;
const END: &[u8] = b"\r\n\r\n";

/// A stream and the last head written to it.
#[derive(Debug)]
pub(super) struct Recorder<S = ServerStream> {
    stream: S,
    progress: Arc<WriteProgress>,
    head: Vec<u8>,
    state: HeadState,
    /// Counts the socket as long as it is open.
    _descriptor: Descriptor,
}

/// The state that the stream and the driver share, across hyper between them.
#[derive(Debug, Default)]
pub(super) struct WriteProgress {
    /// The next byte begins a head. The sender sets this flag, and it is never guessed: a body from a client must not
    /// pass for a head.
    head_begins: AtomicBool,
    /// hyper may have bytes left to write.
    unflushed: AtomicBool,
    /// Bytes written so far.
    written: AtomicU64,
    /// The next read asks the system itself: hyper reads before it writes, and writes nothing when the server has
    /// closed.
    doubted: AtomicBool,
}

impl WriteProgress {
    /// Notes that a head follows.
    pub(super) fn begin_head(&self) {
        self.head_begins.store(true, Ordering::Relaxed);
    }

    /// Notes that the server may have closed a moment ago: the stream is checked before anything is written.
    pub(super) fn doubt(&self) {
        self.doubted.store(true, Ordering::Relaxed);
    }

    /// Notes that the connection is about to be moved on, and that the state of its writes is unknown until then.
    pub(super) fn begin_turn(&self) {
        self.unflushed.store(true, Ordering::Relaxed);
    }

    /// Have all bytes been written that hyper was given?
    pub(super) fn is_flushed(&self) -> bool {
        !self.unflushed.load(Ordering::Relaxed)
    }

    /// Bytes written so far.
    pub(super) fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HeadState {
    /// An answer has begun: no byte that was written may be sent again.
    Answered,
    /// A head is being written.
    Writing,
    /// The head is out, and nothing has been read since.
    Written,
    /// The head is too long to be remembered.
    TooLong,
}

impl<S: PeekEnd> Recorder<S> {
    /// Takes a fresh connection.
    pub(super) fn new(stream: S, progress: Arc<WriteProgress>, descriptor: Descriptor) -> Self {
        Self {
            stream,
            progress,
            head: Vec::new(),
            state: HeadState::Answered,
            _descriptor: descriptor,
        }
    }

    /// The head that was written whole and got no byte in return.
    pub(super) fn into_unanswered(self) -> Option<Vec<u8>> {
        (self.state == HeadState::Written).then_some(self.head)
    }

    fn wrote(&mut self, mut written: &[u8]) {
        let progress = &self.progress;
        progress.unflushed.store(true, Ordering::Relaxed);
        let total = progress.written.load(Ordering::Relaxed) + written.len() as u64;
        progress.written.store(total, Ordering::Relaxed);
        if progress.head_begins.load(Ordering::Relaxed) {
            progress.head_begins.store(false, Ordering::Relaxed);
            self.head.clear();
            self.state = HeadState::Writing;
        }
        if self.state != HeadState::Writing {
            return;
        }
        // The end of the head may have been split over two writes.
        let from = self.head.len().saturating_sub(END.len() - 1);
        if written.len() > MOST - self.head.len() {
            written = &written[..MOST - self.head.len()];
            self.state = HeadState::TooLong;
        }
        self.head.extend_from_slice(written);
        if self.head.ends_with(END) {
            self.state = HeadState::Written;
        } else if let Some(at) = memmem::find(&self.head[from..], END) {
            self.head.truncate(from + at + END.len());
            self.state = HeadState::Written;
        } else if self.state == HeadState::TooLong {
            self.head = Vec::new();
        }
    }
}

impl<S: PeekEnd> AsyncRead for Recorder<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.progress.doubted.load(Ordering::Relaxed) {
            self.progress.doubted.store(false, Ordering::Relaxed);
            if let ended @ Poll::Ready(_) = self.stream.peek_end() {
                return ended;
            }
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        if buf.filled().len() > before {
            self.state = HeadState::Answered;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: PeekEnd> AsyncWrite for Recorder<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let count = ready!(Pin::new(&mut self.stream).poll_write(cx, buf))?;
        self.wrote(&buf[..count]);
        Poll::Ready(Ok(count))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let [whole] = bufs {
            // A head without a body has nothing to gather, and the plain system call is cheaper.
            return self.poll_write(cx, whole);
        }
        let count = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, bufs))?;
        let mut left = count;
        for buf in bufs {
            let part = left.min(buf.len());
            self.wrote(&buf[..part]);
            left -= part;
        }
        Poll::Ready(Ok(count))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// hyper calls this when it has nothing left to write.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.progress.unflushed.store(false, Ordering::Relaxed);
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptors::Budget;
    use tokio::net::TcpStream;

    async fn recorder() -> Recorder {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let descriptor = Budget::new(None, 1).share().take();
        let tcp = TcpStream::connect(address).await.unwrap();
        Recorder::new(tcp, Arc::default(), descriptor)
    }

    #[tokio::test]
    async fn remembers_a_head_cut_at_every_byte() {
        let whole = b"GET / HTTP/1.1\r\nhost: a\r\n\r\nbody";
        for cut in 1..whole.len() {
            let mut recorder = recorder().await;
            recorder.progress.begin_head();
            recorder.wrote(&whole[..cut]);
            recorder.wrote(&whole[cut..]);
            let head = recorder.into_unanswered().unwrap();
            assert_eq!(head, &whole[..whole.len() - 4], "cut at {cut}");
        }
    }

    #[tokio::test]
    async fn forgets_what_is_unfinished_or_too_long() {
        let mut unfinished = recorder().await;
        unfinished.progress.begin_head();
        unfinished.wrote(b"GET / HTTP/1.1\r\nhost: a\r\n");
        assert_eq!(unfinished.into_unanswered(), None);

        let mut long = recorder().await;
        long.progress.begin_head();
        long.wrote(&[b'a'; MOST - 2]);
        long.wrote(END);
        long.wrote(END);
        assert_eq!(long.into_unanswered(), None);
    }

    #[tokio::test]
    async fn begins_anew_with_each_head() {
        let mut recorder = recorder().await;
        recorder.progress.begin_head();
        recorder.wrote(b"GET /1 HTTP/1.1\r\n\r\n");
        recorder.progress.begin_head();
        recorder.wrote(b"GET /2 HTTP/1.1\r\n\r\n");
        let head = recorder.into_unanswered().unwrap();
        assert_eq!(head, b"GET /2 HTTP/1.1\r\n\r\n");
    }

    #[tokio::test]
    async fn a_body_is_never_taken_for_a_head() {
        let mut recorder = recorder().await;
        recorder.progress.begin_head();
        recorder.wrote(b"POST / HTTP/1.1\r\ncontent-length: 24\r\n\r\n");
        recorder.state = HeadState::Answered;
        recorder.wrote(b"GET /evil HTTP/1.1\r\n\r\n");
        assert_eq!(recorder.into_unanswered(), None);
    }
}
