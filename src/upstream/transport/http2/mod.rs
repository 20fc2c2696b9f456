//! The HTTP/2 client: connections that carry many requests, and one request on its stream.
//!
//! A task of the worker drives a connection. The task that waits for an answer drives its own stream, in both
//! directions, so that a body that has not been begun can still go elsewhere.
//!
//! ```text
//! stream_pool   connections of one worker to one server, opened one at a time
//! connection    one connection, driven by a task of its own
//! first_bytes   does the server speak HTTP/2 at all?
//! ping_pace     how often a server is asked whether it is there
//! request_head  the head of a request
//! upload        the way up of a body
//! send_window   what a connection may send, shared by its uploads
//! kept_bytes    uploads that wait for the socket
//! ```

pub(in crate::upstream) mod connection;
mod first_bytes;
mod kept_bytes;
mod ping_pace;
mod request_head;
pub(in crate::upstream) mod send_window;
pub(in crate::upstream) mod stream_pool;
mod upload;

use super::http1::{AnswerError, WholeRequest};
use super::owed_time::UploadState;
use super::stream_fault::AnswerPart;
use crate::interim::{self, InterimCount, TooMany};
use crate::upstream::OutgoingBody;
use crate::upstream::rules::retry_rule::RetryCause;
use bytes::Bytes;
use connection::OpenStream;
use h2::client::ResponseFuture;
use h2::{Reason, RecvStream};
use http::{HeaderMap, Method, Response, header};
use http_body::Frame;
use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::timeout;
use upload::H2Upload;

/// The longest wait for the end of a stream whose answer has no body.
const QUIET_END: Duration = Duration::from_secs(1);

/// One request on its own stream.
#[derive(Debug)]
pub(super) struct Http2Exchange<B> {
    stream: OpenStream,
    phase: StreamPhase,
    /// The request, for another attempt on another stream. Its body is here until it is sent, or longer if it is kept.
    request: Option<WholeRequest<B>>,
    /// The rest of the body of a request that is already answered.
    rest: Option<B>,
    /// The body is being sent.
    upload: Option<H2Upload>,
    /// The state of the upload, until its end is noted there.
    state: Option<Rc<dyn UploadState>>,
    /// A part of the body has been taken.
    is_begun: bool,
    /// The server has reset the stream while more of the body was awaited.
    is_cut_short: bool,
    /// The number of sent bytes of the body.
    sent: u64,
    /// The server has not processed the request, and states so.
    is_refused: bool,
    /// A malformed answer has arrived.
    is_heard: bool,
    /// The interim answers before the answer.
    interim: InterimCount,
    /// The answer's body has a length.
    length: Option<u64>,
    to_head: bool,
    /// The room that the beginning of the body needs in the connection's window, and the wait for it.
    need: u32,
    /// It does not wait, since no other connection is available.
    shares_window: bool,
    hold: Option<Hold>,
}

/// The wait for room in the window of a connection. Resolves to false if none becomes available.
struct Hold(Pin<Box<dyn Future<Output = bool>>>);

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hold")
    }
}

#[derive(Debug)]
enum StreamPhase {
    /// The request has not been sent. `true`: bytes that the server has sent meanwhile have been read.
    Before(bool),
    /// The answer's head is awaited.
    Head(ResponseFuture),
    /// Data is expected.
    Data(RecvStream),
    /// Trailers may come.
    Trailers(RecvStream),
    /// The answer is over.
    Over,
}

impl<B> Http2Exchange<B> {
    /// A stream that has not been used.
    pub(super) fn new(stream: OpenStream) -> Self {
        Self {
            stream,
            phase: StreamPhase::Before(false),
            request: None,
            rest: None,
            upload: None,
            state: None,
            is_begun: false,
            is_cut_short: false,
            sent: 0,
            is_refused: false,
            is_heard: false,
            interim: InterimCount::default(),
            length: None,
            to_head: false,
            need: 0,
            shares_window: false,
            hold: None,
        }
    }

    /// Is the connection underneath still usable?
    pub(super) fn is_usable(&self) -> bool {
        self.stream.is_usable()
    }

    /// Has the answer been read to its end?
    pub(super) fn is_read(&self) -> bool {
        matches!(self.phase, StreamPhase::Over)
    }

    /// Is a part of the request still to be sent?
    pub(super) fn is_writing(&self) -> bool {
        self.upload.is_some()
    }

    /// The number of bytes sent so far, if others wait for room.
    pub(super) fn stalled_at(&self) -> Option<u64> {
        let upload = self.upload.as_ref()?;
        (!upload.piece.is_empty()).then_some(self.sent)
    }

    /// Has the client delayed its body, and does it still?
    pub(super) fn is_held_back(&self) -> bool {
        let state = self.state.as_ref();
        state.is_some_and(|state| state.owed().is_held_back())
    }

    /// Has the server sent `ENHANCE_YOUR_CALM`?
    pub(super) fn is_calm(&self) -> bool {
        self.stream.is_calm()
    }

    /// The bytes that are left of the answer's body, if the length is known.
    pub(super) fn length(&self) -> Option<u64> {
        self.length
    }

    /// The failure after which the request can be sent once more.
    pub(super) fn retry_cause(&self) -> RetryCause {
        match self.phase {
            _ if self.is_refused => RetryCause::Refused,
            StreamPhase::Before(_) => RetryCause::Connect,
            _ => RetryCause::Reset,
        }
    }

    /// Has the connection been closed by its server meanwhile, so that the stream's failure does not count against the
    /// server? A stream that the server has reset individually counts.
    pub(super) fn is_stale(&self, error: &AnswerError) -> bool {
        match error {
            _ if !self.stream.is_reused => false,
            _ if matches!(self.phase, StreamPhase::Before(_)) => true,
            AnswerError::Http2(fault) => !fault.is_reset() && self.stream.is_first_broken(),
            _ => false,
        }
    }

    /// A copy of a sent request without a body, to be sent once more.
    pub(super) fn repeated(&self) -> Option<WholeRequest<B>> {
        let request = self.request.as_ref()?;
        request.body.is_none().then(|| WholeRequest {
            head: request.head.clone(),
            body: None,
        })
    }

    /// Has a part of the request's body been taken?
    pub(super) fn is_begun(&self) -> bool {
        self.is_begun
    }
}

impl<B: OutgoingBody> Http2Exchange<B> {
    /// Takes a request; the request is sent while [`Self::poll_answer`] waits for its answer. Its fields are followed
    /// by the lines of `added`.
    pub(super) fn begin(&mut self, mut request: WholeRequest<B>, added: &[&[u8]]) {
        request_head::add(&mut request.head.headers, added);
        self.to_head = request.head.method == Method::HEAD;
        if let Some(body) = &mut request.body {
            body.keep();
        }
        self.request = Some(request);
    }

    /// The unanswered request, if it can be sent once more: the server has not processed it, and everything that was
    /// taken of its body is available; or it is `repeatable`, and no part of an answer arrived.
    pub(super) fn into_unsent(mut self, repeatable: bool) -> Option<WholeRequest<B>> {
        if self.is_heard {
            return None;
        }
        let is_unsent = self.is_refused || matches!(self.phase, StreamPhase::Before(_));
        let mut request = self.request.take()?;
        let may_retry = is_unsent || (repeatable && request.body.is_none());
        let is_whole = !self.is_begun || request.body.as_mut().is_some_and(B::rewind);
        if let Some(state) = request.body.as_ref().and_then(B::upload) {
            state.owed().start_over();
        }
        (may_retry && is_whole).then_some(request)
    }

    /// Lets the request go elsewhere as long as the connection has no room for `need` bytes of its body: a request
    /// begun here could hang because of an upload that the server does not read.
    pub(super) fn needs_room(&mut self, need: u32) {
        if !self.shares_window {
            self.need = need;
        }
    }

    /// Does not wait for room, since no other connection is available.
    pub(super) fn shares_window(&mut self) {
        self.shares_window = true;
    }

    /// Ready when there is room for the beginning of the body.
    ///
    /// # Errors
    /// If none becomes available.
    #[cold]
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), AnswerError>> {
        let window = self.stream.window();
        let hold = self
            .hold
            .get_or_insert_with(|| Hold(Box::pin(Rc::clone(window).waited(self.need))));
        let has_come = ready!(hold.0.as_mut().poll(cx));
        self.hold = None;
        if !has_come {
            return Poll::Ready(Err(AnswerError::Starved));
        }
        self.need = 0;
        Poll::Ready(Ok(()))
    }

    /// Sends the request, and waits for the head of its answer.
    ///
    /// # Errors
    /// If the stream or its connection ends before an answer, or the request's body fails.
    pub(super) fn poll_answer(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Response<()>, AnswerError>> {
        if let StreamPhase::Before(is_read) = self.phase {
            let is_once = self.request.as_ref().is_some_and(WholeRequest::is_once);
            if is_once && !is_read && self.stream.is_reused {
                // The request may be sent only once: bytes that the server has sent meanwhile, such as the end of the
                // connection, are read first.
                self.phase = StreamPhase::Before(true);
                if pin!(tokio::task::yield_now()).poll(cx).is_pending() {
                    return Poll::Pending;
                }
            }
            if self.need > 0 && !self.stream.window().has_room(self.need) {
                ready!(self.poll_room(cx))?;
            }
            if let Err(error) = self.start() {
                return Poll::Ready(Err(self.failed(error)));
            }
        }
        if let Poll::Ready(Err(error)) = self.poll_upload(cx) {
            return Poll::Ready(Err(error));
        }
        let StreamPhase::Head(answer) = &mut self.phase else {
            return Poll::Ready(Err(AnswerError::Incomplete));
        };
        if let Err(fault) = hear_interim(answer, cx, &mut self.interim) {
            // Dropping the handles resets the stream.
            self.is_heard = true;
            return Poll::Ready(Err(fault.into()));
        }
        let answer = match ready!(Pin::new(answer).poll(cx)) {
            Ok(answer) => answer,
            Err(error) => return Poll::Ready(Err(self.failed(error))),
        };
        self.stream.note_sent();
        // The rest of the body is still sent; the request is answered.
        let body = self.request.take().and_then(|request| request.body);
        self.rest = body.filter(|_| self.upload.is_some());
        self.rest.iter_mut().for_each(B::forget);
        let (head, stream) = answer.into_parts();
        let response = Response::from_parts(head, ());
        let is_bodiless = self.to_head || matches!(response.status().as_u16(), 204 | 304);
        let announced = if stream.is_end_stream() {
            Some(0)
        } else {
            announced(response.headers())
        };
        if is_bodiless && !stream.is_end_stream() {
            end_quietly(stream);
            self.phase = StreamPhase::Over;
            return Poll::Ready(Ok(response));
        }
        self.length = announced.filter(|_| !is_bodiless);
        self.phase = StreamPhase::Data(stream);
        self.note_end();
        Poll::Ready(Ok(response))
    }

    /// Opens the stream.
    fn start(&mut self) -> Result<(), h2::Error> {
        let Some(request) = &mut self.request else {
            return Ok(());
        };
        let head = request_head::head(&request.head, request.body.is_some(), &self.stream);
        let (answer, stream) = self.stream.send(head, request.body.is_none())?;
        self.phase = StreamPhase::Head(answer);
        if let Some(body) = &request.body {
            self.state = body.upload();
            self.upload = Some(H2Upload {
                stream,
                piece: Bytes::new(),
                trailers: None,
                is_last: false,
            });
        }
        Ok(())
    }

    /// Notes the failure of the stream.
    #[cold]
    fn failed(&mut self, error: h2::Error) -> AnswerError {
        if error.reason() == Some(Reason::ENHANCE_YOUR_CALM) {
            self.stream.note_calm();
        }
        // The server has closed the connection for streams above its last one, or has refused this one.
        let is_refused = error.is_remote()
            && (error.is_go_away() || error.reason() == Some(Reason::REFUSED_STREAM));
        let is_answered = matches!(
            self.phase,
            StreamPhase::Data(_) | StreamPhase::Trailers(_) | StreamPhase::Over
        );
        let id = match &self.phase {
            StreamPhase::Head(answer) => Some(u32::from(answer.stream_id())),
            StreamPhase::Data(stream) | StreamPhase::Trailers(stream) => {
                Some(u32::from(stream.stream_id()))
            }
            StreamPhase::Before(_) | StreamPhase::Over => None,
        };
        if !matches!(self.phase, StreamPhase::Before(_)) {
            self.phase = StreamPhase::Over;
        }
        self.stream.is_broken = true;
        // The library resets a stream by itself if its answer is malformed.
        self.is_heard = error.is_library() && error.is_reset();
        let part = if is_answered {
            AnswerPart::Body
        } else {
            AnswerPart::Head
        };
        let fault = Box::new(self.stream.fault(error, part, id));
        if is_refused && !is_answered {
            self.is_refused = true;
            return AnswerError::Refused(fault);
        }
        AnswerError::Http2(fault)
    }

    /// Ready when the server takes no more of a request whose answer has been read.
    pub(super) fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<AnswerError> {
        match &mut self.upload {
            Some(upload) => upload
                .stream
                .poll_reset(cx)
                .map(|_reset| AnswerError::GivenUp),
            None => Poll::Pending,
        }
    }

    /// The next part of the answer's body; `None` after its end.
    ///
    /// # Errors
    /// If the stream or its connection ends before the body.
    pub(super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, AnswerError>>> {
        loop {
            let failure = match &mut self.phase {
                StreamPhase::Data(stream) => match ready!(stream.poll_data(cx)) {
                    Some(Ok(data)) => {
                        self.stream.note_sent();
                        // Data that is taken is passed on before more is requested.
                        let _ = stream.flow_control().release_capacity(data.len());
                        if let Some(left) = &mut self.length {
                            *left = left.saturating_sub(data.len() as u64);
                        }
                        self.note_end();
                        if data.is_empty() {
                            continue;
                        }
                        return Poll::Ready(Some(Ok(Frame::data(data))));
                    }
                    Some(Err(error)) => error,
                    None => {
                        if let StreamPhase::Data(stream) =
                            std::mem::replace(&mut self.phase, StreamPhase::Over)
                        {
                            self.phase = StreamPhase::Trailers(stream);
                        }
                        continue;
                    }
                },
                StreamPhase::Trailers(stream) => match ready!(stream.poll_trailers(cx)) {
                    Ok(trailers) => {
                        self.phase = StreamPhase::Over;
                        return Poll::Ready(trailers.map(|all| Ok(Frame::trailers(all))));
                    }
                    Err(error) => error,
                },
                StreamPhase::Over | StreamPhase::Before(_) | StreamPhase::Head(_) => {
                    return Poll::Ready(None);
                }
            };
            return Poll::Ready(Some(Err(self.failed(failure))));
        }
    }

    /// Notes the end of an answer whose last byte has been taken.
    fn note_end(&mut self) {
        if let StreamPhase::Data(stream) = &self.phase
            && stream.is_end_stream()
        {
            self.phase = StreamPhase::Over;
        }
    }
}

impl<B> Drop for Http2Exchange<B> {
    fn drop(&mut self) {
        let is_complete = self.is_read() && self.upload.is_none();
        let is_unused = matches!(self.phase, StreamPhase::Before(_));
        // A stream that is open now is reset by us.
        self.stream.is_cut = !is_complete && !is_unused && !self.stream.is_broken;
    }
}

/// Takes the received interim answers, which the gateway's client has not requested.
///
/// # Errors
/// If there are too many.
pub(in crate::upstream) fn hear_interim(
    answer: &mut ResponseFuture,
    cx: &mut Context<'_>,
    interim: &mut InterimCount,
) -> Result<(), TooMany> {
    while let Poll::Ready(Some(Ok(head))) = answer.poll_informational(cx) {
        let length = interim::length(head.headers());
        interim.note(length, super::head_bound::MOST_ANSWER_HEAD)?;
    }
    Ok(())
}

/// Waits for the end of a stream whose answer has no body. Servers may send the end after the head, in a separate
/// frame, and a stream that is dropped before would be reset.
#[cold]
fn end_quietly(mut stream: RecvStream) {
    tokio::task::spawn_local(async move {
        let ended = async {
            while let Some(Ok(data)) = stream.data().await
                && data.is_empty()
            {}
        };
        // A server that sends a body nevertheless, or does not end it, is cut off.
        let _ = timeout(QUIET_END, ended).await;
    });
}

/// The length that a head states.
fn announced(fields: &HeaderMap) -> Option<u64> {
    fields
        .get(header::CONTENT_LENGTH)?
        .to_str()
        .ok()?
        .parse()
        .ok()
}
