//! The sending of a request's body over HTTP/2.

use super::Http2Exchange;
use crate::upstream::OutgoingBody;
use crate::upstream::transport::http1::{AnswerError, may_trail};
use crate::upstream::transport::owed_time::UploadWait;
use bytes::Bytes;
use h2::{Reason, SendStream};
use http::HeaderMap;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// The state of sending a body.
#[derive(Debug)]
pub(super) struct H2Upload {
    pub(super) stream: SendStream<Bytes>,
    /// A piece that waits for room.
    pub(super) piece: Bytes,
    /// The trailers that follow the piece.
    pub(super) trailers: Option<HeaderMap>,
    /// The piece is the last one.
    pub(super) is_last: bool,
}

impl<B: OutgoingBody> Http2Exchange<B> {
    /// Continues to send the request's body. Ready when there is nothing left to send.
    ///
    /// # Errors
    /// If the body fails.
    pub(in crate::upstream) fn poll_upload(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), AnswerError>> {
        let sent = self.poll_parts(cx);
        if let Some(state) = &self.state {
            let wait = match &self.upload {
                // The server has ended the stream while the client's next byte was awaited.
                None if self.is_cut_short => UploadWait::Client,
                None => UploadWait::Answer,
                Some(upload) if upload.piece.is_empty() && !upload.is_last => UploadWait::Client,
                Some(_) => UploadWait::Room,
            };
            if state.owed().is_more(self.sent) {
                self.stream.keeps(state);
            }
            state.owed().note(self.sent, wait);
            if self.upload.is_none() && !self.is_cut_short {
                self.state = None;
            }
        }
        sent
    }

    fn poll_parts(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), AnswerError>> {
        while let Some(upload) = &mut self.upload {
            if !upload.piece.is_empty() {
                let room = match upload.stream.capacity() {
                    0 => match ready!(upload.stream.poll_capacity(cx)) {
                        Some(Ok(room)) => room,
                        // The server takes no more; its answer has the reason.
                        Some(Err(_)) | None => 0,
                    },
                    room => room,
                };
                let piece = upload.piece.split_to(room.min(upload.piece.len()));
                let is_end = upload.is_last && upload.piece.is_empty() && upload.trailers.is_none();
                self.sent += piece.len() as u64;
                let length = piece.len();
                let is_over = length == 0 || upload.stream.send_data(piece, is_end).is_err();
                if !is_over {
                    self.stream.window().hands(length);
                }
                if is_over || is_end {
                    self.end_upload();
                }
                continue;
            }
            if upload.is_last {
                let ended = match upload.trailers.take() {
                    Some(trailers) => upload.stream.send_trailers(trailers),
                    None => upload.stream.send_data(Bytes::new(), true),
                };
                // If the stream takes no end, its answer has the reason.
                drop(ended);
                self.end_upload();
                continue;
            }
            if let Poll::Ready(_reset) = upload.stream.poll_reset(cx) {
                self.is_cut_short = true;
                self.end_upload();
                continue;
            }
            ready!(self.poll_body(cx))?;
        }
        Poll::Ready(Ok(()))
    }

    /// Stops sending the body. The body is kept if the request may still be repeated.
    pub(super) fn end_upload(&mut self) {
        self.upload = None;
        self.rest = None;
        if let Some(request) = &mut self.request
            && self.is_begun
            && !request.body.as_ref().is_some_and(B::is_kept)
        {
            request.body = None;
        }
    }

    /// Takes the next piece of the body.
    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), AnswerError>> {
        let body = self.request.as_mut().and_then(|one| one.body.as_mut());
        let (Some(upload), Some(body)) = (&mut self.upload, body.or(self.rest.as_mut())) else {
            return Poll::Ready(Ok(()));
        };
        let frame = ready!(Pin::new(&mut *body).poll_frame(cx));
        // A body without any byte so far can still go elsewhere: a stream may be open for long before its first byte.
        self.is_begun = true;
        upload.is_last = body.is_end_stream();
        match frame {
            None => upload.is_last = true,
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => {
                    upload.stream.reserve_capacity(data.len());
                    upload.piece = data;
                }
                Err(frame) => {
                    let mut trailers = frame.into_trailers().unwrap_or_default();
                    keep_trailers(&mut trailers);
                    upload.trailers = Some(trailers).filter(|trailers| !trailers.is_empty());
                    upload.is_last = true;
                }
            },
            Some(Err(error)) => {
                upload.stream.send_reset(Reason::CANCEL);
                self.stream.is_broken = true;
                self.end_upload();
                return Poll::Ready(Err(AnswerError::Upload(error.into())));
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// Removes fields that are not allowed in trailers.
fn keep_trailers(trailers: &mut HeaderMap) {
    let bad: Vec<_> = trailers
        .keys()
        .filter(|name| !may_trail(name))
        .cloned()
        .collect();
    for name in bad {
        trailers.remove(name);
    }
}
