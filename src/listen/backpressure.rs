//! An answer on its way to an HTTP/2 client, which takes of it what it likes, when it likes: handed out in pieces that know
//! whether they were taken.
//!
//! hyper takes a piece from a body before the client's window has room for it, and h2 keeps what the window does not let
//! through. So the body is not asked while the client takes nothing, and only the pieces know that nothing is taken.
//!
//! h2 takes and drops pieces under locks of its own, which dropping a body may want too (its request's, if that is still
//! to come). So what a piece finds out is noted only; the connection finishes what is to be finished ([`super::stream_deadline`]).

use super::connection::ResponseBody;
use super::minimum_rate::{RateBound, RateMeter};
use super::stream_deadline::{ConnectionActivity, StreamSet};
use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use std::cell::{Cell, RefCell};
use std::mem;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// The most that is handed out at once, since h2 cannot be made to give it back: what one DATA frame holds unless a client
/// allows more (RFC 9113 section 6.5.2).
const PIECE: usize = 16 * 1024;

/// One answer, from its request on.
pub(super) struct PendingResponse<B> {
    /// Nothing before it is there, and once it is over.
    body: RefCell<Option<B>>,
    /// What has come and was too much to hand out at once.
    rest: RefCell<Bytes>,
    /// Handed out and not yet taken.
    pieces: Cell<u32>,
    /// How the client takes it.
    pace: RefCell<RateMeter>,
    /// All of it has been handed out.
    whole: Cell<bool>,
    /// A piece was dropped instead of taken.
    lost: Cell<bool>,
    /// hyper asks for no more of it.
    gone: Cell<bool>,
    /// It was taken away, since the client took nothing.
    stalled: Cell<bool>,
    /// What hyper does for it.
    task: Cell<Option<AbortHandle>>,
    pulse: Rc<ConnectionActivity>,
}

/// The body that hyper has.
pub(super) struct StreamBody<B: ResponseBody> {
    taking: Rc<PendingResponse<B>>,
    streams: Rc<StreamSet<B>>,
}

/// A piece on its way out.
pub(super) struct BodyPiece<B> {
    bytes: Bytes,
    of: Rc<PendingResponse<B>>,
}

impl<B> PendingResponse<B> {
    /// A request has come.
    pub(super) fn begin(pulse: &Rc<ConnectionActivity>, allowed: RateBound) -> Rc<Self> {
        pulse.begins();
        Rc::new(Self {
            body: RefCell::default(),
            rest: RefCell::default(),
            pieces: Cell::new(0),
            pace: RefCell::new(RateMeter::new(allowed)),
            whole: Cell::new(false),
            lost: Cell::new(false),
            gone: Cell::new(false),
            stalled: Cell::new(false),
            task: Cell::default(),
            pulse: Rc::clone(pulse),
        })
    }

    /// What hyper does for it can be ended by this.
    pub(super) fn runs(&self, task: AbortHandle) {
        self.task.set(Some(task));
    }

    /// Nobody does anything for it any more, and nothing of it is on its way out.
    pub(super) fn is_over(&self) -> bool {
        self.gone.get() && self.pieces.get() == 0
    }

    /// Does it wait for the client?
    pub(super) fn waits(&self) -> bool {
        self.pieces.get() > 0 && !self.stalled.get()
    }

    /// The client could not take anything until now.
    pub(super) fn excuse(&self, now: Instant) {
        self.pace.borrow_mut().excuse(now);
    }

    /// When to look again; nothing when the client is late.
    pub(super) fn look(&self, now: Instant) -> Option<Instant> {
        let mut pace = self.pace.borrow_mut();
        if pace.is_late(now) { None } else { pace.next() }
    }

    /// When the client last took a byte of it, or was to begin.
    pub(super) fn silent_since(&self) -> Option<Instant> {
        self.pace.borrow().silent_since()
    }

    fn hand_out(self: &Rc<Self>, bytes: Bytes) -> BodyPiece<B> {
        if !bytes.is_empty() {
            if self.pieces.get() == 0 {
                self.pace.borrow_mut().waits(self.pulse.waits());
            }
            self.pieces.set(self.pieces.get() + 1);
        }
        BodyPiece {
            bytes,
            of: Rc::clone(self),
        }
    }

    /// A piece is no longer on its way.
    fn settle(&self, now: Instant) {
        self.pieces.set(self.pieces.get().saturating_sub(1));
        if self.pieces.get() == 0 {
            self.pace.borrow_mut().rests(now);
            self.pulse.waits_no_more(self.gone.get());
        }
    }
}

impl<B: ResponseBody> PendingResponse<B> {
    /// Lets go of the body. Not to be called by a piece.
    pub(super) fn finish(&self) {
        if let Some(mut body) = self.body.take()
            && self.whole.get()
            && !self.lost.get()
        {
            body.taken();
        }
    }

    /// Takes the rest away and resets the stream. What h2 already has to the end stays with h2.
    pub(super) fn give_up(&self) {
        self.stalled.set(true);
        if let Some(mut body) = self.body.take() {
            body.stalled();
        }
        self.rest.take();
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}

impl<B: ResponseBody> StreamBody<B> {
    pub(super) fn new(taking: Rc<PendingResponse<B>>, streams: Rc<StreamSet<B>>) -> Self {
        Self { taking, streams }
    }

    /// The answer is there.
    pub(super) fn with(self, body: B) -> Self {
        self.taking.whole.set(body.is_end_stream());
        if !body.has_minimum_rate() {
            self.taking.pace.borrow_mut().idle_alone();
        }
        self.taking.body.replace(Some(body));
        self
    }
}

impl<B: ResponseBody> Body for StreamBody<B> {
    type Data = BodyPiece<B>;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<BodyPiece<B>>, B::Error>>> {
        let taking = &self.taking;
        let mut body = taking.body.borrow_mut();
        // What asks for a body that was given up is itself being ended.
        let Some(body) = &mut *body else {
            return Poll::Pending;
        };
        let mut rest = taking.rest.borrow_mut();
        if rest.is_empty() {
            match ready!(Pin::new(&mut *body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => *rest = data,
                    Err(trailers) => {
                        taking.whole.set(true);
                        let frame = trailers.map_data(|bytes| taking.hand_out(bytes));
                        return Poll::Ready(Some(Ok(frame)));
                    }
                },
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => {
                    taking.whole.set(true);
                    return Poll::Ready(None);
                }
            }
        }
        let piece = match rest.len() {
            ..=PIECE => mem::take(&mut *rest),
            _ => rest.split_to(PIECE),
        };
        taking.whole.set(rest.is_empty() && body.is_end_stream());
        Poll::Ready(Some(Ok(Frame::data(taking.hand_out(piece)))))
    }

    fn is_end_stream(&self) -> bool {
        self.taking.whole.get()
    }

    fn size_hint(&self) -> SizeHint {
        let body = self.taking.body.borrow();
        let mut hint = body.as_ref().map(Body::size_hint).unwrap_or_default();
        let rest = self.taking.rest.borrow().len() as u64;
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(hint.lower() + rest);
        hint
    }
}

impl<B: ResponseBody> Drop for StreamBody<B> {
    fn drop(&mut self) {
        self.taking.gone.set(true);
        if self.taking.pieces.get() == 0 {
            self.taking.pulse.ends(self.taking.stalled.get());
            self.streams.remove(&self.taking);
            self.taking.finish();
        }
    }
}

impl<B> Buf for BodyPiece<B> {
    fn remaining(&self) -> usize {
        self.bytes.len()
    }

    fn chunk(&self) -> &[u8] {
        &self.bytes
    }

    fn advance(&mut self, count: usize) {
        if count == 0 {
            return;
        }
        self.bytes.advance(count);
        let now = self.of.pulse.beats();
        self.of.pace.borrow_mut().comes_at(now, count as u64);
        if self.bytes.is_empty() {
            self.of.settle(now);
        }
    }
}

impl<B> Drop for BodyPiece<B> {
    fn drop(&mut self) {
        if !self.bytes.is_empty() {
            self.of.lost.set(true);
            self.of.settle(Instant::now());
        }
    }
}
