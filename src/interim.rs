//! Interim answers (1xx): a server may send any number before its answer (RFC 9110, section 15.2), and the gateway
//! reads a bounded number.

use http::{HeaderMap, Request};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The most interim answers before one answer.
pub const MOST_INTERIM: u32 = 100;

/// The most bytes of interim answers if the head of an answer has no other bound.
pub const MOST_INTERIM_BYTES: usize = 408 * 1024;

/// The bytes of a head's line apart from its name and value.
const LINE: usize = 4;

/// More interim answers have arrived than allowed, or more bytes of them than one head may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("more than {MOST_INTERIM} interim answers, or more bytes of them than a head may have")]
pub struct TooMany;

/// The interim answers and bytes before an answer's head.
#[derive(Debug, Default)]
pub struct InterimCount {
    count: u32,
    bytes: usize,
}

impl InterimCount {
    /// Notes an interim answer of `length` bytes; all together may have `most`.
    ///
    /// # Errors
    /// If this answer is one too many.
    pub fn note(&mut self, length: usize, most: usize) -> Result<(), TooMany> {
        self.count += 1;
        self.note_bytes(length, most)
    }

    /// Counts `length` bytes outside of interim answers, such as empty lines.
    ///
    /// # Errors
    /// If there are too many bytes.
    pub fn note_bytes(&mut self, length: usize, most: usize) -> Result<(), TooMany> {
        self.bytes = self.bytes.saturating_add(length);
        if are_too_many(self.count, self.bytes, most) {
            return Err(TooMany);
        }
        Ok(())
    }
}

/// Is this number of interim answers above the bound, or their number of `bytes` above `most`?
fn are_too_many(count: u32, bytes: usize, most: usize) -> bool {
    count > MOST_INTERIM || bytes > most
}

/// The bytes of a head with these `fields`, as HTTP/1.1 writes them, without its first line.
#[must_use]
pub fn length(fields: &HeaderMap) -> usize {
    let line = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        name.as_str().len() + value.len() + LINE
    };
    fields.iter().map(line).sum()
}

/// Counts the interim answers that hyper's HTTP/1.1 client drops by itself. hyper has no bound of its own: the stream
/// under it fails instead ([`BoundedStream`]).
#[derive(Debug, Clone, Default)]
pub struct InterimWatch(Arc<WatchState>);

#[derive(Debug, Default)]
struct WatchState {
    count: AtomicU32,
    bytes: AtomicUsize,
    is_over: AtomicBool,
}

impl InterimWatch {
    /// Counts before the answer to `request`.
    pub fn over<B>(&self, request: &mut Request<B>) {
        let state = Arc::clone(&self.0);
        hyper::ext::on_informational(request, move |head| {
            let count = state.count.fetch_add(1, Ordering::Relaxed) + 1;
            let length = length(head.headers());
            let bytes = state.bytes.fetch_add(length, Ordering::Relaxed) + length;
            if are_too_many(count, bytes, MOST_INTERIM_BYTES) {
                state.is_over.store(true, Ordering::Relaxed);
            }
        });
    }

    /// Is the number within the bound? Checked after the answer too: hyper reads further only after it has parsed the
    /// received bytes.
    ///
    /// # Errors
    /// If there are too many.
    pub fn check(&self) -> Result<(), TooMany> {
        if self.0.is_over.load(Ordering::Relaxed) {
            return Err(TooMany);
        }
        Ok(())
    }
}

/// A stream that fails once its watch has counted too many interim answers.
#[derive(Debug)]
pub struct BoundedStream<S> {
    stream: S,
    watch: InterimWatch,
}

impl<S> BoundedStream<S> {
    /// Puts the bound on a stream.
    pub fn new(stream: S, watch: InterimWatch) -> Self {
        Self { stream, watch }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for BoundedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Err(fault) = self.watch.check() {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, fault)));
        }
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for BoundedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
