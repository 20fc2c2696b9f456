//! Bodies that an HTTP/2 client does not read: hyper does not ask for more of them while the client's window is closed, so
//! no deadline of theirs can fire. What they hold is taken from them from outside.
//!
//! hyper asks for more as soon as the window has room for a byte, and keeps what is too much. So bodies are handed out in
//! small pieces: a client that reads at all is asked for, and must take one piece in the time.

use super::body::{Body, BodyError};
use super::ending::Ending;
use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

/// The most that is handed out at once: what one DATA frame holds unless a client allows more (RFC 9113 section 6.5.2).
const PIECE: usize = 16 * 1024;

/// The bodies on their way to HTTP/2 clients of one worker.
#[derive(Debug, Default)]
pub struct Unread {
    bodies: RefCell<Vec<Weak<Watched>>>,
    /// Seconds, as sweeps count them.
    clock: Rc<Cell<u64>>,
}

/// A body that can be taken away while nobody asks for more of it.
#[derive(Debug)]
pub struct Watched {
    /// Nothing once it has been given up.
    body: RefCell<Option<Body>>,
    /// Since when it is the client's turn; nothing while it is the upstream's, whose deadline the body keeps itself.
    waiting: Cell<Option<u64>>,
    /// What has come and was too much to hand out at once.
    rest: RefCell<Bytes>,
    clock: Rc<Cell<u64>>,
}

impl Unread {
    /// Watches over `body`.
    pub fn watch(&self, body: Body) -> Rc<Watched> {
        let watched = Rc::new(Watched {
            body: RefCell::new(Some(body)),
            waiting: Cell::new(Some(self.clock.get())),
            rest: RefCell::default(),
            clock: Rc::clone(&self.clock),
        });
        self.bodies.borrow_mut().push(Rc::downgrade(&watched));
        watched
    }

    /// Gives up bodies of which the client has taken nothing for `idle`. To be called once a second.
    pub fn sweep(&self, idle: Duration) {
        let now = self.clock.get() + 1;
        self.clock.set(now);
        self.bodies.borrow_mut().retain(|body| {
            let Some(body) = body.upgrade() else {
                return false;
            };
            let since = body.waiting.get().map_or(0, |since| now - since);
            if since <= idle.as_secs() {
                return true;
            }
            // One that is all here holds nothing but itself.
            if body.body.borrow().as_ref().is_some_and(Body::is_end_stream) {
                return false;
            }
            if let Some(mut body) = body.body.take() {
                body.end(Ending::ClientStalled);
            }
            false
        });
    }
}

impl Watched {
    /// As a body is polled.
    pub fn poll_frame(
        &self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let mut body = self.body.borrow_mut();
        let Some(body) = &mut *body else {
            return Poll::Ready(Some(Err(BodyError::Unread)));
        };
        let mut rest = self.rest.borrow_mut();
        if rest.is_empty() {
            match Pin::new(body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => *rest = data,
                    Err(frame) => return Poll::Ready(Some(Ok(frame))),
                },
                Poll::Pending => {
                    self.waiting.set(None);
                    return Poll::Pending;
                }
                ended => return ended,
            }
        }
        self.waiting.set(Some(self.clock.get()));
        let most = rest.len().min(PIECE);
        Poll::Ready(Some(Ok(Frame::data(rest.split_to(most)))))
    }

    /// As a body says it.
    pub fn is_end_stream(&self) -> bool {
        let body = self.body.borrow();
        self.rest.borrow().is_empty() && body.as_ref().is_some_and(Body::is_end_stream)
    }

    /// As a body says it.
    pub fn size_hint(&self) -> SizeHint {
        let body = self.body.borrow();
        let mut hint = body.as_ref().map(Body::size_hint).unwrap_or_default();
        let rest = self.rest.borrow().len() as u64;
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(hint.lower() + rest);
        hint
    }
}
