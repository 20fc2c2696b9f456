//! The writing of a request: the head as bytes, then the body piece by piece, no faster than the server takes them.

use super::answer_error::AnswerError;
use super::request_head::{self, BodyEnd};
use crate::upstream::OutgoingBody;
use crate::upstream::transport::owed_time::{UploadState, UploadWait};
use bytes::{Buf, Bytes};
use http::request::Parts;
use http::{HeaderMap, HeaderValue};
use http_body::{Body, Frame};
use memchr::memmem;
use std::io::{self, IoSlice, Write as _};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use tokio::io::AsyncWrite;

/// The longest piece of a body that is copied after the waiting bytes, so that both are written at once.
const SMALL: usize = 1024;
/// The bytes before a large piece that are gathered before they are written.
const GATHERED: usize = 8 * 1024;
/// The end of a head.
const HEAD_END: &[u8] = b"\r\n\r\n";
/// The memory for heads that an idle connection keeps.
const KEPT: usize = 4 * 1024;

/// The part of a request that is not written yet.
#[derive(Debug)]
pub(super) struct RequestWriter<B> {
    /// The head, the sizes of chunks, and small pieces of the body. The head of a bodiless request is kept until its
    /// answer is over, since it may have to be written once more.
    line: Vec<u8>,
    /// The number of written bytes of `line`.
    at: usize,
    /// A large piece of the body, which follows `line`.
    piece: Bytes,
    /// The bytes that follow the piece.
    tail: &'static [u8],
    /// The body, until its end has been seen.
    body: Option<B>,
    /// The state of its upload.
    upload: Option<Rc<dyn UploadState>>,
    end: BodyEnd,
    /// The head allows the reuse of the connection.
    keeps: bool,
    /// Written bytes, of this request and earlier ones.
    written: u64,
    /// The number of bytes that had been written when this request began.
    before: u64,
    /// The server takes no more bytes, for this reason.
    failed: Option<io::Error>,
    /// The body ended early, so that the written part cannot be completed.
    is_broken: bool,
    /// The stream may buffer bytes that it has taken.
    is_unflushed: bool,
}

impl<B> RequestWriter<B> {
    /// A writer without a request.
    pub(super) fn new() -> Self {
        Self {
            line: Vec::new(),
            at: 0,
            piece: Bytes::new(),
            tail: &[],
            body: None,
            upload: None,
            end: BodyEnd::Bodiless,
            keeps: true,
            written: 0,
            before: 0,
            failed: None,
            is_broken: false,
            is_unflushed: false,
        }
    }

    /// Is there nothing left to be written?
    pub(super) fn is_over(&self) -> bool {
        self.failed.is_some() || (self.body.is_none() && !self.has_unwritten())
    }

    /// Has the whole request been written?
    pub(super) fn is_complete(&self) -> bool {
        self.failed.is_none() && !self.is_broken && self.is_over()
    }

    /// Does the request allow the reuse of the connection?
    pub(super) fn keeps(&self) -> bool {
        self.keeps
    }

    /// Do bytes wait to be written?
    pub(super) fn has_unwritten(&self) -> bool {
        self.failed.is_none() && (self.has_bytes() || self.is_unflushed)
    }

    /// Has the client delayed its body, and does it still?
    pub(super) fn is_held_back(&self) -> bool {
        let upload = self.upload.as_ref();
        upload.is_some_and(|upload| upload.owed().is_held_back())
    }

    /// Are there bytes that the stream has not taken?
    fn has_bytes(&self) -> bool {
        self.at < self.line.len() || !self.piece.is_empty() || !self.tail.is_empty()
    }

    /// Written bytes, of this request and earlier ones.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// The cause for which the server takes no more bytes.
    pub(super) fn take_failure(&mut self) -> Option<io::Error> {
        self.failed.take()
    }

    /// The request that can be sent once more: no byte of it was written, or, if it is `repeatable`, it has no body.
    pub(super) fn into_unsent(mut self, repeatable: bool) -> Option<Self> {
        let is_unsent = self.written == self.before || (repeatable && self.body.is_none());
        if self.is_broken || !is_unsent {
            return None;
        }
        if let Some(upload) = &self.upload {
            upload.owed().start_over();
        }
        (self.at, self.written, self.before) = (0, 0, 0);
        self.is_unflushed = false;
        self.failed = None;
        Some(self)
    }

    /// Has no byte of the request been written?
    pub(super) fn is_untouched(&self) -> bool {
        self.written == self.before
    }

    /// A copy of a request without a body, to be written once more.
    pub(super) fn repeated(&self) -> Option<Self> {
        let is_whole = matches!(self.end, BodyEnd::Bodiless) && !self.line.is_empty();
        is_whole.then(|| Self {
            line: self.line.clone(),
            keeps: self.keeps,
            ..Self::new()
        })
    }

    /// Sets another host in a request that is written again. Its head is at the beginning of `line`; pieces of the body
    /// may follow.
    #[cold]
    pub(super) fn set_host(&mut self, host: &HeaderValue) {
        const FIELD: &[u8] = b"\r\nhost: ";
        let find = |text: &[u8], wanted: &[u8]| {
            let mut windows = text.windows(wanted.len());
            windows.position(|window| window == wanted)
        };
        let Some(end) = find(&self.line, b"\r\n\r\n") else {
            return;
        };
        let Some(field) = find(&self.line[..end], FIELD) else {
            return;
        };
        let start = field + FIELD.len();
        let length = find(&self.line[start..], b"\r\n").unwrap_or(0);
        self.line
            .splice(start..start + length, host.as_bytes().iter().copied());
    }

    /// The written head and the body of a request that can be sent once more. `None` if a piece of the body follows the
    /// head.
    pub(super) fn into_head(self) -> Option<(Vec<u8>, Option<B>)> {
        let is_head = self.piece.is_empty()
            && memmem::find(&self.line, HEAD_END)? + HEAD_END.len() == self.line.len();
        is_head.then_some((self.line, self.body))
    }

    /// Frees memory that an idle connection does not need.
    pub(super) fn rest(&mut self) {
        if self.line.capacity() > KEPT {
            self.line = Vec::new();
        }
    }
}

impl<B: OutgoingBody> RequestWriter<B> {
    /// Begins a request; `added` is written after its fields.
    pub(super) fn begin(&mut self, head: &Parts, added: &[&[u8]], body: Option<B>) {
        let is_bodiless = body.as_ref().is_none_or(Body::is_end_stream);
        self.line.clear();
        self.at = 0;
        self.before = self.written;
        let head = request_head::write(head, added, is_bodiless, &mut self.line);
        self.end = head.end;
        self.keeps = head.keeps;
        self.body = body.filter(|_| !is_bodiless);
        self.upload = self.body.as_ref().and_then(OutgoingBody::upload);
        if matches!(self.end, BodyEnd::After(0)) {
            self.body = None;
        }
    }

    /// Writes as much as the server takes and the body has. Ready when there is nothing left.
    ///
    /// A stream that takes no more bytes is not an error here: the server may have answered first.
    ///
    /// # Errors
    /// If the body fails.
    pub(super) fn poll_write<S: AsyncWrite + Unpin>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), AnswerError>> {
        let written = self.poll_parts(stream, cx);
        if let Some(upload) = &self.upload {
            let wait = if self.has_unwritten() {
                UploadWait::Room
            } else if self.failed.is_none() && self.body.is_some() {
                UploadWait::Client
            } else {
                // A server that takes no more bytes may have answered: the exchange waits for the server, not for the
                // client.
                UploadWait::Answer
            };
            upload.owed().note(self.written - self.before, wait);
        }
        written
    }

    fn poll_parts<S: AsyncWrite + Unpin>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), AnswerError>> {
        while self.failed.is_none() {
            let filled = self.poll_fill(cx)?;
            if !self.has_bytes() {
                if self.is_unflushed {
                    // Encrypted bytes may wait after a write.
                    match ready!(Pin::new(&mut *stream).poll_flush(cx)) {
                        Ok(()) => self.is_unflushed = false,
                        Err(error) => {
                            self.failed = Some(error);
                            continue;
                        }
                    }
                }
                ready!(filled);
                if self.is_over() {
                    return Poll::Ready(Ok(()));
                }
                continue;
            }
            match ready!(self.poll_stream(stream, cx)) {
                Ok(0) => self.failed = Some(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.advance(count),
                Err(error) => self.failed = Some(error),
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_stream<S: AsyncWrite + Unpin>(
        &self,
        stream: &mut S,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let line = &self.line[self.at..];
        if self.piece.is_empty() && self.tail.is_empty() {
            return Pin::new(stream).poll_write(cx, line);
        }
        let parts = [line, &self.piece, self.tail].map(IoSlice::new);
        let skipped = usize::from(line.is_empty());
        Pin::new(stream).poll_write_vectored(cx, &parts[skipped..])
    }

    fn advance(&mut self, mut count: usize) {
        self.written += count as u64;
        self.is_unflushed = true;
        let of_line = count.min(self.line.len() - self.at);
        self.at += of_line;
        count -= of_line;
        let of_piece = count.min(self.piece.len());
        self.piece.advance(of_piece);
        self.tail = &self.tail[count - of_piece..];
        if self.piece.is_empty() && !matches!(self.end, BodyEnd::Bodiless) && !self.has_bytes() {
            self.piece = Bytes::new();
            self.line.clear();
            self.at = 0;
        }
    }

    /// Takes pieces of the body until there is enough to write. Pending while the body is.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), AnswerError>> {
        while let Some(body) = &mut self.body {
            let has_enough = self.line.len() - self.at > GATHERED;
            if has_enough || !self.piece.is_empty() || !self.tail.is_empty() {
                break;
            }
            let frame = ready!(Pin::new(&mut *body).poll_frame(cx));
            let is_last = body.is_end_stream();
            match frame {
                Some(Ok(frame)) => self.take(frame, is_last),
                None => self.finish(None),
                Some(Err(error)) => {
                    self.give_up();
                    return Poll::Ready(Err(AnswerError::Upload(error.into())));
                }
            }
            if self.is_broken {
                return Poll::Ready(Err(AnswerError::UploadLength));
            }
        }
        Poll::Ready(Ok(()))
    }

    fn give_up(&mut self) {
        self.is_broken = true;
        self.body = None;
    }

    fn take(&mut self, frame: Frame<Bytes>, is_last: bool) {
        match frame.into_data() {
            Ok(data) => {
                self.push(data);
                let is_whole = matches!(self.end, BodyEnd::After(0));
                if self.body.is_some() && (is_last || is_whole) {
                    self.finish(None);
                }
            }
            Err(frame) => {
                let trailers = frame.into_trailers().ok();
                self.finish(trailers.as_ref());
            }
        }
    }

    fn push(&mut self, data: Bytes) {
        if data.is_empty() {
            return;
        }
        let mut after: &'static [u8] = b"";
        match &mut self.end {
            BodyEnd::After(left) => match left.checked_sub(data.len() as u64) {
                Some(rest) => *left = rest,
                None => return self.give_up(),
            },
            BodyEnd::Chunks(_) => {
                // Writing to memory cannot fail.
                let _ = write!(self.line, "{:X}\r\n", data.len());
                after = b"\r\n";
            }
            BodyEnd::Bodiless => return self.give_up(),
        }
        if data.len() <= SMALL {
            self.line.extend_from_slice(&data);
            self.line.extend_from_slice(after);
        } else {
            (self.piece, self.tail) = (data, after);
        }
    }

    /// Ends the body.
    fn finish(&mut self, trailers: Option<&HeaderMap>) {
        self.body = None;
        match &self.end {
            BodyEnd::Bodiless | BodyEnd::After(0) => {}
            BodyEnd::After(_) => self.is_broken = true,
            BodyEnd::Chunks(_) if !self.tail.is_empty() => self.tail = b"\r\n0\r\n\r\n",
            BodyEnd::Chunks(announced) => {
                self.line.extend_from_slice(b"0\r\n");
                for (name, value) in trailers.into_iter().flatten() {
                    if announced.contains(name) {
                        request_head::write_field(name, value, &mut self.line);
                    }
                }
                self.line.extend_from_slice(b"\r\n");
            }
        }
    }
}
