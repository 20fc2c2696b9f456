//! A request's body towards the server: streamed, never collected, with a deadline for silence and a minimum rate.

use crate::key::IdentityFields;
use crate::listen::minimum_rate::{Lateness, RateBound, RateTimer};
use crate::listen::socket::SocketWatch;
use crate::proxy::bodies::body_failure::{BodyError, UploadFailure, broken_by};
use crate::proxy::bodies::body_prefix::BodyPrefix;
use crate::proxy::bodies::kept_body::{KeptBody, KeptShare};
use crate::proxy::bodies::soft_timeout::QUICK;
use crate::proxy::bodies::trailers;
use crate::upstream::OutgoingBody;
use crate::upstream::owed_time::{OwedTime, UploadState};
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use hyper::body::{Body as _, Incoming};
use std::cell::{Cell, RefCell};
use std::future::pending;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::time::{Instant, sleep, timeout};

/// The progress of a request's body.
#[derive(Debug, Default)]
pub struct Upload {
    /// Bytes relayed so far.
    pub bytes: Cell<u64>,
    /// No more of the body will arrive.
    pub done: Cell<bool>,
    /// The cause of its early end, if the upstream was not the cause.
    pub broken: Cell<Option<UploadFailure>>,
    /// The time that a server owes.
    owed: OwedTime,
    /// The rest of a body that no server needs, until a server has answered.
    left: RefCell<Option<Incoming>>,
    /// A server has answered.
    is_answered: Cell<bool>,
}

impl Upload {
    /// Notes that a server has answered, so that the rest of the body is for it.
    pub(in crate::proxy) fn answered(&self) {
        self.is_answered.set(true);
        self.left.take();
    }

    /// The rest of a body that no server needs.
    pub(in crate::proxy) fn take_left(&self) -> Option<Incoming> {
        self.left.take()
    }
}

impl UploadState for Upload {
    fn owed(&self) -> &OwedTime {
        &self.owed
    }
}

/// A request's body towards the upstream. The type is small, because hyper moves it several times.
#[derive(Debug)]
pub enum RequestBody {
    /// The request has no body.
    Empty,
    /// The body as the client sends it.
    Stream(Box<UploadBody>),
}

/// A body on its way up.
#[derive(Debug)]
pub struct UploadBody {
    /// The part of the body that has already been read.
    beginning: Option<Box<BodyPrefix>>,
    /// The part that is still to arrive, until the body is released.
    incoming: Option<Incoming>,
    pace: RateTimer,
    upload: Rc<Upload>,
    /// The fields that no client may send, even as trailers.
    identity: Option<Arc<IdentityFields>>,
    /// The kept part, for a server that may not have begun with the request.
    kept: KeptBody,
}

impl RequestBody {
    /// Wraps the body that the client sends, starting at `now`; the other half counts its progress. Its beginning may
    /// be kept in `share`.
    #[must_use]
    pub fn new(
        beginning: Option<Box<BodyPrefix>>,
        incoming: Option<Incoming>,
        allowed: RateBound,
        identity: Option<Arc<IdentityFields>>,
        now: Instant,
        share: impl FnOnce() -> KeptShare,
    ) -> (Self, Option<Rc<Upload>>) {
        if incoming.as_ref().is_none_or(Incoming::is_end_stream) && beginning.is_none() {
            return (Self::Empty, None);
        }
        let upload = Rc::new(Upload {
            owed: OwedTime::from(now),
            ..Upload::default()
        });
        let sending = UploadBody {
            beginning,
            incoming,
            pace: RateTimer::new(allowed),
            upload: Rc::clone(&upload),
            identity,
            kept: KeptBody::Unasked(share()),
        };
        (Self::Stream(Box::new(sending)), Some(upload))
    }
}

impl http_body::Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.get_mut() {
            Self::Empty => Poll::Ready(None),
            Self::Stream(sending) => sending.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Stream(sending) => sending.is_over(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Stream(sending) => match &sending.beginning {
                Some(beginning) => beginning.announced(),
                None => sending
                    .rest()
                    .map_or_else(SizeHint::default, Incoming::size_hint),
            },
        }
    }
}

impl OutgoingBody for RequestBody {
    fn upload(&self) -> Option<Rc<dyn UploadState>> {
        match self {
            Self::Empty => None,
            Self::Stream(sending) => Some(Rc::clone(&sending.upload) as Rc<dyn UploadState>),
        }
    }

    fn keep(&mut self) {
        let hint = http_body::Body::size_hint(self);
        if let Self::Stream(sending) = self {
            sending.kept.keep(hint.exact());
        }
    }

    fn is_kept(&self) -> bool {
        matches!(self, Self::Stream(sending) if sending.kept.is_whole())
    }

    fn rewind(&mut self) -> bool {
        match self {
            Self::Empty => false,
            Self::Stream(sending) => sending.kept.rewind(),
        }
    }

    fn forget(&mut self) {
        if let Self::Stream(sending) = self {
            sending.kept.forget();
        }
    }
}

impl UploadBody {
    fn rest(&self) -> Option<&Incoming> {
        self.incoming.as_ref()
    }

    fn is_over(&self) -> bool {
        let is_taken = match &self.beginning {
            None => self.rest().is_none_or(Incoming::is_end_stream),
            Some(beginning) => beginning.is_all && beginning.is_over(),
        };
        is_taken && self.kept.is_over()
    }

    /// The next frame that was read in advance, or the end of the body, if it was among those frames.
    #[cold]
    fn next_of(&mut self, mut beginning: Box<BodyPrefix>) -> Option<Frame<Bytes>> {
        let frame = beginning.next();
        // The beginning is kept if it was the whole body, since a body is not polled again after its end.
        self.beginning = Some(beginning).filter(|rest| rest.is_all || !rest.is_over());
        self.upload.done.set(self.is_over());
        let frame = frame?;
        let length = frame.data_ref().map_or(0, |data| data.len() as u64);
        self.upload.bytes.set(self.upload.bytes.get() + length);
        Some(self.filtered(frame))
    }

    /// The frame without the trailers that may not be relayed.
    fn filtered(&self, frame: Frame<Bytes>) -> Frame<Bytes> {
        let mut frame = trailers::filtered(frame);
        if let (Some(identity), Some(trailers)) = (&self.identity, frame.trailers_mut()) {
            identity.strip(trailers, |_| ());
        }
        frame
    }

    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if self.kept.is_rewound() {
            let frame = self.kept.next();
            // A body is not polled again after its end.
            if frame.is_some() || self.upload.done.get() {
                return Poll::Ready(frame.map(Ok));
            }
        }
        let polled = self.poll_taken(cx);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => self.kept.takes(frame),
            Poll::Ready(Some(Err(_))) => self.kept.forget(),
            Poll::Ready(None) | Poll::Pending => {}
        }
        polled
    }

    /// The next frame that has not been taken before.
    fn poll_taken(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some(beginning) = self.beginning.take() {
            let frame = self.next_of(beginning);
            if frame.is_some() || self.is_over() {
                return Poll::Ready(frame.map(Ok));
            }
        }
        let Some(incoming) = &mut self.incoming else {
            return Poll::Ready(None);
        };
        let Poll::Ready(frame) = Pin::new(&mut *incoming).poll_frame(cx) else {
            ready!(self.pace.poll_late(cx));
            let broken = match self.pace.lateness() {
                Lateness::Silent => UploadFailure::Stopped,
                Lateness::Slow => UploadFailure::TooSlow,
            };
            self.upload.broken.set(Some(broken));
            return Poll::Ready(Some(Err(BodyError::Idle)));
        };
        let length = match &frame {
            Some(Ok(frame)) => frame.data_ref().map_or(0, |data| data.len() as u64),
            _ => 0,
        };
        self.pace.received(length);
        let ended = incoming.is_end_stream() || !matches!(frame, Some(Ok(_)));
        self.upload.done.set(ended);
        Poll::Ready(match frame {
            Some(Ok(frame)) => {
                self.upload.bytes.set(self.upload.bytes.get() + length);
                Some(Ok(self.filtered(frame)))
            }
            Some(Err(error)) => {
                self.upload.broken.set(Some(broken_by(&error)));
                Some(Err(error.into()))
            }
            None => None,
        })
    }
}

impl Drop for UploadBody {
    fn drop(&mut self) {
        let upload = &self.upload;
        if !upload.is_answered.get() && !upload.done.get() && upload.broken.get().is_none() {
            upload.left.replace(self.incoming.take());
        }
    }
}

/// Resolves when the rest of an upload will not arrive, since its client has left. It never resolves once the whole
/// upload has been taken: the rest of the work is then the server's. It does not resolve either while the server takes
/// the bytes that the client has already sent, which may be the whole rest.
pub(in crate::proxy) async fn abandoned(client: SocketWatch, upload: Rc<Upload>) {
    let mut leaving = pin!(client.gone());
    let mut gone = false;
    loop {
        let (was_gone, relayed) = (gone, upload.bytes.get());
        if gone {
            sleep(QUICK).await
        } else {
            gone = timeout(QUICK, leaving.as_mut()).await.is_ok() || client.is_over()
        }
        if upload.done.get() {
            return pending().await;
        }
        if was_gone && upload.bytes.get() == relayed {
            // The reader of the answer finds its connection ended because of the client.
            let broken = upload.broken.get().unwrap_or(UploadFailure::ClientGone);
            upload.broken.set(Some(broken));
            return;
        }
    }
}
