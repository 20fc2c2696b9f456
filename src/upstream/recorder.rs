//! The stream under an upstream connection. It remembers the head that was written last until a byte of the answer comes:
//! what a server has not begun to answer may be sent once more, and copying bytes is far cheaper than a second head.

use crate::descriptors::Descriptor;
use socket2::SockRef;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// A longer head is not remembered, and so not sent again.
const MOST: usize = 64 * 1024;
const END: &[u8] = b"\r\n\r\n";

/// A TCP stream and the last head written to it.
#[derive(Debug)]
pub(super) struct Recorder {
    tcp: TcpStream,
    progress: Arc<WriteProgress>,
    head: Vec<u8>,
    state: HeadState,
    /// Counts the socket, wherever that goes.
    _descriptor: Descriptor,
}

/// What is told across hyper, which lies between the stream and whoever drives it.
#[derive(Debug)]
pub(super) struct WriteProgress {
    /// What is written next begins a head. Said by whoever sends one, never guessed: what a client sends as a body must
    /// not pass for a head.
    head_begins: AtomicBool,
    /// Nothing waits in hyper to be written.
    flushed: AtomicBool,
    /// Bytes written so far.
    written: AtomicU64,
    /// The next read asks the system itself: hyper reads before it writes, and writes nothing where the server has closed.
    doubted: AtomicBool,
}

impl Default for WriteProgress {
    fn default() -> Self {
        Self {
            head_begins: AtomicBool::new(false),
            flushed: AtomicBool::new(true),
            written: AtomicU64::new(0),
            doubted: AtomicBool::new(false),
        }
    }
}

impl WriteProgress {
    /// A head follows.
    pub(super) fn begin_head(&self) {
        self.head_begins.store(true, Ordering::Relaxed);
    }

    /// The server may have closed a moment ago: to be looked at before anything is written.
    pub(super) fn doubt(&self) {
        self.doubted.store(true, Ordering::Relaxed);
    }

    /// The connection is about to be moved on: whether all of it gets written is seen anew.
    pub(super) fn begin_turn(&self) {
        self.flushed.store(false, Ordering::Relaxed);
    }

    /// Has everything been written that was to be?
    pub(super) fn is_flushed(&self) -> bool {
        self.flushed.load(Ordering::Relaxed)
    }

    /// Bytes written so far.
    pub(super) fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HeadState {
    /// Nothing that was written may be sent again.
    Answered,
    /// A head is being written.
    Writing,
    /// It is out, and nothing has been read since.
    Written,
    /// It is too long to be remembered.
    TooLong,
}

impl Recorder {
    /// Takes a fresh connection.
    pub(super) fn new(
        tcp: TcpStream,
        progress: Arc<WriteProgress>,
        descriptor: Descriptor,
    ) -> Self {
        Self {
            tcp,
            progress,
            head: Vec::new(),
            state: HeadState::Answered,
            _descriptor: descriptor,
        }
    }

    /// The head that was written whole and to which nothing came back.
    pub(super) fn into_unanswered(self) -> Option<Vec<u8>> {
        (self.state == HeadState::Written).then_some(self.head)
    }

    fn wrote(&mut self, mut written: &[u8]) {
        let progress = &self.progress;
        progress.flushed.store(false, Ordering::Relaxed);
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
        // Where the end may begin: it may have been cut in two by the writes.
        let from = self.head.len().saturating_sub(END.len() - 1);
        if written.len() > MOST - self.head.len() {
            written = &written[..MOST - self.head.len()];
            self.state = HeadState::TooLong;
        }
        self.head.extend_from_slice(written);
        if self.head.ends_with(END) {
            self.state = HeadState::Written;
        } else if let Some(at) = find(&self.head[from..], END) {
            self.head.truncate(from + at + END.len());
            self.state = HeadState::Written;
        } else if self.state == HeadState::TooLong {
            self.head = Vec::new();
        }
    }
}

/// Nobody has asked for anything on it: what comes is its end, or nonsense that would pass for an answer.
fn look(tcp: &TcpStream) -> Poll<io::Result<()>> {
    match SockRef::from(tcp).peek(&mut [MaybeUninit::uninit()]) {
        Ok(0) => Poll::Ready(Ok(())),
        Ok(_) => Poll::Ready(Err(io::ErrorKind::InvalidData.into())),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
        Err(error) => Poll::Ready(Err(error)),
    }
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|part| part == wanted)
}

impl AsyncRead for Recorder {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.progress.doubted.load(Ordering::Relaxed) {
            self.progress.doubted.store(false, Ordering::Relaxed);
            if let over @ Poll::Ready(_) = look(&self.tcp) {
                return over;
            }
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.tcp).poll_read(cx, buf))?;
        if buf.filled().len() > before {
            self.state = HeadState::Answered;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Recorder {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let count = ready!(Pin::new(&mut self.tcp).poll_write(cx, buf))?;
        self.wrote(&buf[..count]);
        Poll::Ready(Ok(count))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let [whole] = bufs {
            // A head without a body: nothing to gather, and the plain system call is cheaper.
            return self.poll_write(cx, whole);
        }
        let count = ready!(Pin::new(&mut self.tcp).poll_write_vectored(cx, bufs))?;
        let mut left = count;
        for buf in bufs {
            let part = left.min(buf.len());
            self.wrote(&buf[..part]);
            left -= part;
        }
        Poll::Ready(Ok(count))
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }

    /// hyper asks for this when it has nothing left to write.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.progress.flushed.store(true, Ordering::Relaxed);
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptors::Budget;

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
    async fn a_doubted_connection_is_asked_itself() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let tcp = TcpStream::connect(address).await.unwrap();
        let (server, _) = listener.accept().await.unwrap();
        assert!(look(&tcp).is_pending());
        drop(server);
        // Nothing is awaited in between: the runtime does not know of the end.
        assert!(matches!(look(&tcp), Poll::Ready(Ok(()))));
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
