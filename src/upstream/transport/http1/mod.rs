//! An HTTP/1.1 client connection to one server: one request, its answer, then the next.
//!
//! The task that waits for the answer drives the connection. There is no separate task and no channel. Requests for
//! another protocol use hyper ([`super::tunnel`]).
//!
//! ```text
//! request_head                the head of a request as bytes
//! request_writer              a request on its way out
//! whole_request               a request that can go out once more
//! read_buffers                memory that answers are read into
//! response_head               the head of an answer
//! response_head/head_fault    what is wrong with it
//! response_head/body_framing  where its body ends
//! chunk_decoder               the chunks of a body
//! answer_error                how an exchange fails
//! probe_answer                answers to probes, by the same rules
//! ```

mod answer_error;
mod chunk_decoder;
mod probe_answer;
mod read_buffers;
mod request_head;
mod request_writer;
mod response_head;
#[cfg(test)]
mod tests;
mod whole_request;

pub use answer_error::AnswerError;
pub(in crate::upstream) use answer_error::io_error;
pub use chunk_decoder::ChunkFault;
pub(in crate::upstream) use probe_answer::answer_head;
pub use read_buffers::ReadBuffers;
pub(super) use request_head::may_trail;
pub use response_head::{HeadFault, coding_fault};
pub(super) use whole_request::WholeRequest;

use super::head_bound::MOST_ANSWER_HEAD;
use crate::interim::InterimCount;
use crate::upstream::OutgoingBody;
use crate::upstream::rules::retry_rule::RetryCause;
use bytes::{Bytes, BytesMut};
use chunk_decoder::{ChunkDecoder, Decoded};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use http_body::Frame;
use read_buffers::ReadBuffer;
use request_writer::RequestWriter;
use response_head::BodyFraming;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};

/// A connection of HTTP/1.1 to a server.
#[derive(Debug)]
pub struct Http1<B, S> {
    stream: S,
    writer: RequestWriter<B>,
    reading: Reading,
    buffer: ReadBuffer,
    buffers: Rc<ReadBuffers>,
    /// The connection can carry another request after this one, as far as known.
    keeps: bool,
    /// The answer's body has a length that its head states.
    is_sized: bool,
    /// A byte has arrived since the request was begun.
    is_heard: bool,
    /// The request's method is HEAD.
    to_head: bool,
    /// The fields of the request, emptied: their memory is used for the answer.
    spare: HeaderMap,
    /// The interim answers and bytes before the answer's head.
    interim: InterimCount,
}

/// A request that can be sent once more.
#[derive(Debug)]
pub struct WrittenRequest<B> {
    writer: RequestWriter<B>,
    to_head: bool,
}

impl<B> WrittenRequest<B> {
    /// Sets another host in the request.
    pub(super) fn set_host(&mut self, host: &HeaderValue) {
        self.writer.set_host(host);
    }
}

/// The part of an answer that comes next.
#[derive(Debug)]
enum Reading {
    /// No answer is awaited.
    Idle,
    /// The request has not been begun: the server must not have sent any byte.
    Before,
    /// The head, of which this number of bytes has been searched without finding its end.
    Head(usize),
    /// This number of bytes of the body.
    Length(u64),
    /// The chunked body.
    Chunked(Box<ChunkDecoder>),
    /// The body, until the connection ends.
    UntilClose,
    /// The answer is over.
    Over,
}

impl<B, S> Http1<B, S> {
    /// A fresh connection over `stream`, which reads into `buffers`.
    pub fn new(stream: S, buffers: Rc<ReadBuffers>) -> Self {
        Self {
            stream,
            writer: RequestWriter::new(),
            reading: Reading::Idle,
            buffer: ReadBuffer::default(),
            buffers,
            keeps: true,
            is_sized: false,
            is_heard: false,
            to_head: false,
            spare: HeaderMap::new(),
            interim: InterimCount::default(),
        }
    }

    /// The stream underneath.
    pub fn stream(&self) -> &S {
        &self.stream
    }

    /// The stream underneath, for another protocol.
    pub fn into_stream(self) -> S {
        self.stream
    }

    /// Has the answer been read to its end?
    pub fn is_read(&self) -> bool {
        matches!(self.reading, Reading::Over)
    }

    /// Is a part of the request still to be written?
    pub fn is_writing(&self) -> bool {
        !self.writer.is_over()
    }

    /// Do bytes wait to be written?
    pub fn has_unwritten(&self) -> bool {
        self.writer.has_unwritten()
    }

    /// Has the client delayed its body, and does it still?
    pub fn is_held_back(&self) -> bool {
        self.writer.is_held_back()
    }

    /// The number of bytes written so far.
    pub fn written(&self) -> u64 {
        self.writer.written()
    }

    /// Can the connection carry another request: is the answer read and the request written completely, does the server
    /// keep it, and has it sent no further byte?
    pub fn is_free(&self) -> bool {
        self.keeps && self.is_read() && self.writer.is_complete() && self.buffer.bytes.is_empty()
    }

    /// Is the request's method HEAD?
    pub fn is_to_head(&self) -> bool {
        self.to_head
    }

    /// The bytes that are left of the body, if the length is known.
    pub fn length(&self) -> Option<u64> {
        match self.reading {
            Reading::Length(left) => Some(left),
            Reading::Over if self.is_sized => Some(0),
            _ => None,
        }
    }

    /// The unanswered request, if it can be sent once more: no byte of it was written, or it is `repeatable` and no
    /// byte was received.
    pub fn into_unsent(self, repeatable: bool) -> Option<WrittenRequest<B>> {
        if self.is_heard {
            return None;
        }
        Some(WrittenRequest {
            writer: self.writer.into_unsent(repeatable)?,
            to_head: self.to_head,
        })
    }

    /// The failure after which the request can be sent once more: no byte of it was written, or the connection ended.
    pub fn retry_cause(&self) -> RetryCause {
        if self.writer.is_untouched() {
            RetryCause::Connect
        } else {
            RetryCause::Reset
        }
    }

    /// A copy of a sent request without a body, to be sent once more.
    pub fn repeated(&self) -> Option<WrittenRequest<B>> {
        Some(WrittenRequest {
            writer: self.writer.repeated()?,
            to_head: self.to_head,
        })
    }
}

impl<B: OutgoingBody, S: AsyncRead + AsyncWrite + Unpin> Http1<B, S> {
    /// Takes a request; the request is written while [`Self::poll_answer`] waits for its answer. Its fields are
    /// followed by the lines of `added`, unchanged: they must be valid fields, none of which frames the body.
    pub fn begin(&mut self, request: Request<B>, added: &[&[u8]]) {
        let (head, body) = request.into_parts();
        self.begin_parts(head, Some(body), added);
    }

    /// Like [`Self::begin`], for a request that may have no body.
    pub(super) fn begin_whole(&mut self, request: WholeRequest<B>) {
        self.begin_parts(request.head, request.body, &[]);
    }

    fn begin_parts(&mut self, mut head: Parts, body: Option<B>, added: &[&[u8]]) {
        self.to_head = head.method == Method::HEAD;
        self.writer.begin(&head, added, body);
        self.keeps &= self.writer.keeps();
        self.reading = Reading::Before;
        self.interim = InterimCount::default();
        self.is_heard = false;
        head.headers.clear();
        self.spare = head.headers;
    }

    /// Takes a request that could not be sent on another connection.
    pub fn restart(&mut self, request: WrittenRequest<B>) {
        self.writer = request.writer;
        self.to_head = request.to_head;
        self.keeps &= self.writer.keeps();
        self.reading = Reading::Before;
        self.interim = InterimCount::default();
        self.is_heard = false;
    }

    /// Writes the request, and waits for the head of its answer.
    ///
    /// # Errors
    /// If the connection ends before an answer, the answer is malformed, or the request's body fails.
    pub fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<Result<Response<()>, AnswerError>> {
        if let Reading::Before = self.reading {
            if let Poll::Ready(ended) = self.poll_silence(cx) {
                return Poll::Ready(Err(ended));
            }
            self.reading = Reading::Head(0);
            let written = self.writer.poll_write(&mut self.stream, cx);
            // The wait for an answer has begun above. A failed stream may already have one.
            return match written {
                Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                Poll::Ready(Ok(())) if !self.writer.is_complete() => self.poll_head(cx),
                _ => Poll::Pending,
            };
        }
        if self.is_writing()
            && let Poll::Ready(Err(error)) = self.writer.poll_write(&mut self.stream, cx)
        {
            return Poll::Ready(Err(error));
        }
        self.poll_head(cx)
    }

    /// Continues to write the request while its answer is read elsewhere. Ready when there is nothing left to write.
    ///
    /// # Errors
    /// If the request's body fails.
    pub fn poll_upload(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), AnswerError>> {
        self.writer.poll_write(&mut self.stream, cx)
    }

    /// The next part of the answer's body; `None` after its end.
    ///
    /// # Errors
    /// If the connection ends before the body, or the body is malformed.
    pub fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, AnswerError>>> {
        loop {
            match self.next_frame() {
                Ok(Some(frame)) => return Poll::Ready(Some(Ok(frame))),
                Ok(None) if self.is_read() => return Poll::Ready(None),
                Ok(None) => {}
                Err(error) => return Poll::Ready(Some(Err(self.fail(error)))),
            }
            match ready!(self.poll_read(cx)) {
                Ok(0) if matches!(self.reading, Reading::UntilClose) => {
                    self.reading = Reading::Over;
                    self.keeps = false;
                }
                Ok(0) => return Poll::Ready(Some(Err(self.fail(AnswerError::CutBody(None))))),
                Ok(_) => {}
                Err(error) => {
                    let error = AnswerError::CutBody(Some(error));
                    return Poll::Ready(Some(Err(self.fail(error))));
                }
            }
        }
    }

    /// Ready when the server ends the connection, or sends unrequested bytes.
    pub fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<AnswerError> {
        let mut bytes = [0; 16];
        let mut bytes = ReadBuf::new(&mut bytes);
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, &mut bytes));
        self.keeps = false;
        Poll::Ready(match read {
            Ok(()) if bytes.filled().is_empty() => AnswerError::Incomplete,
            Ok(()) => AnswerError::unasked(bytes.filled()),
            Err(error) => AnswerError::Io(error),
        })
    }

    /// Prepares the connection for idleness: it wakes no task and keeps as little memory as possible. Returns false if
    /// it cannot be used again.
    pub fn rest(&mut self) -> bool {
        self.buffer.release(&self.buffers);
        self.writer.rest();
        self.reading = Reading::Idle;
        self.is_silent()
    }

    /// Has the server neither ended an idle connection nor sent a byte on it?
    pub fn is_silent(&mut self) -> bool {
        self.poll_silence(&mut Context::from_waker(Waker::noop()))
            .is_pending()
    }

    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<Response<()>, AnswerError>> {
        loop {
            let read = ready!(self.poll_read(cx));
            let failure = match read {
                Ok(0) => AnswerError::of_part(&self.buffer.bytes),
                Ok(_) => match self.take_head() {
                    Ok(Some(response)) => return Poll::Ready(Ok(response)),
                    Ok(None) => continue,
                    Err(error) => error,
                },
                Err(error) => AnswerError::Io(error),
            };
            self.keeps = false;
            if failure.refused_certificate().is_some() {
                // A server that sends the reason for ending the connection explains the failed write.
                return Poll::Ready(Err(failure));
            }
            let earlier = self.writer.take_failure().map(AnswerError::Io);
            return Poll::Ready(Err(earlier.unwrap_or(failure)));
        }
    }

    fn take_head(&mut self) -> Result<Option<Response<()>>, AnswerError> {
        let bytes = &mut self.buffer.bytes;
        let seen = match self.reading {
            Reading::Head(seen) => seen,
            _ => 0,
        };
        if !response_head::may_be_whole(bytes, seen) && bytes.len() < MOST_ANSWER_HEAD {
            self.reading = Reading::Head(bytes.len());
            return Ok(None);
        }
        let taken =
            response_head::take_head(bytes, self.to_head, &mut self.spare, &mut self.interim);
        let taken = taken.map_err(|bad| AnswerError::of_head(bad, bytes))?;
        let Some(head) = taken else {
            self.reading = Reading::Head(bytes.len());
            return Ok(None);
        };
        self.keeps &= head.keeps;
        self.is_sized = matches!(head.framing, BodyFraming::Length(_));
        self.reading = match head.framing {
            BodyFraming::Empty => Reading::Over,
            BodyFraming::Length(length) => Reading::Length(length),
            BodyFraming::Chunked => Reading::Chunked(Box::new(ChunkDecoder::new())),
            BodyFraming::UntilClose => Reading::UntilClose,
        };
        Ok(Some(head.response))
    }

    /// The next part of the body, if it has been read. `None` at its end, which is noted.
    fn next_frame(&mut self) -> Result<Option<Frame<Bytes>>, AnswerError> {
        let bytes = &mut self.buffer.bytes;
        let (data, is_over) = match &mut self.reading {
            Reading::Length(left) => {
                let data = take_up_to(bytes, *left);
                *left -= data.len() as u64;
                (data, *left == 0)
            }
            Reading::UntilClose => (bytes.split().freeze(), false),
            Reading::Chunked(decoder) => match decoder
                .decode(bytes)
                .map_err(|fault| AnswerError::of_chunks(fault, bytes))?
            {
                Decoded::Data(data) => (data, decoder.is_over()),
                Decoded::More => (Bytes::new(), false),
                Decoded::End => (Bytes::new(), true),
                Decoded::Trailers(trailers) => {
                    self.reading = Reading::Over;
                    return Ok(Some(Frame::trailers(trailers)));
                }
            },
            Reading::Idle | Reading::Before | Reading::Head(_) | Reading::Over => {
                (Bytes::new(), true)
            }
        };
        if is_over {
            self.reading = Reading::Over;
        }
        Ok(Some(data).filter(|data| !data.is_empty()).map(Frame::data))
    }

    /// Ends the answer with `error`.
    fn fail(&mut self, error: AnswerError) -> AnswerError {
        self.reading = Reading::Over;
        self.keeps = false;
        error
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.buffer.make_room(&self.buffers);
        let bytes = &mut self.buffer.bytes;
        let count = ready!(pin!(self.stream.read_buf(bytes)).poll(cx))?;
        self.buffer.note_read(count);
        self.is_heard |= count > 0;
        Poll::Ready(Ok(count))
    }
}

fn take_up_to(bytes: &mut BytesMut, most: u64) -> Bytes {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    bytes.split_to(most.min(bytes.len())).freeze()
}
