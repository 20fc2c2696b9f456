//! A connection whose answer is read by one task while another task still writes the request: the body need not wait
//! until the answer is read, and is not cut off by the answer's end.

use super::pool::Pool;
use crate::upstream::OutgoingBody;
use crate::upstream::transport::connection::Connection;
use crate::upstream::transport::http1::AnswerError;
use bytes::Bytes;
use http_body::Frame;
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::time::sleep;

/// The half that reads the answer. Dropping it before the answer's end ends the connection.
#[derive(Debug)]
pub struct AnswerHalf<B: OutgoingBody>(Rc<Shared<B>>);

/// A connection that two tasks use.
#[derive(Debug)]
struct Shared<B: OutgoingBody> {
    state: RefCell<SharedState<B>>,
    pool: Rc<Pool<B>>,
}

#[derive(Debug)]
struct SharedState<B: OutgoingBody> {
    /// The connection, until it is returned to the pool or over.
    connection: Option<Connection<B>>,
    /// The answer has been read to its end.
    is_read: bool,
    /// The task that reads.
    reader: Option<Waker>,
    /// The task that writes.
    writer: Option<Waker>,
}

/// Leaves the rest of a request to a separate task, and returns the half that reads the answer. The connection returns
/// to `pool` when both are complete.
///
/// The connection is abandoned if its server has taken none of the waiting bytes for `idle`, or when `abandoned`
/// resolves.
pub fn share<B: OutgoingBody>(
    connection: Connection<B>,
    pool: Rc<Pool<B>>,
    idle: Duration,
    abandoned: impl Future<Output = ()> + 'static,
) -> AnswerHalf<B> {
    let shared = Rc::new(Shared {
        state: RefCell::new(SharedState {
            is_read: connection.is_read(),
            connection: Some(connection),
            reader: None,
            writer: None,
        }),
        pool,
    });
    let writing = Rc::clone(&shared);
    tokio::task::spawn_local(async move {
        tokio::select! {
            () = poll_fn(|cx| writing.poll_upload(cx)) => {}
            () = writing.stalled(idle) => writing.give_up(),
            () = abandoned => writing.give_up(),
        }
    });
    AnswerHalf(shared)
}

impl<B: OutgoingBody> Shared<B> {
    /// Continues to write the request. Ready when there is nothing left to do for it.
    fn poll_upload(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state.borrow_mut();
        let is_read = state.is_read;
        let Some(connection) = &mut state.connection else {
            return Poll::Ready(());
        };
        match connection.poll_upload(cx) {
            Poll::Ready(Ok(())) => {
                if is_read && let Some(connection) = state.connection.take() {
                    self.pool.put(connection);
                }
                // Otherwise the reader returns it to the pool.
                return Poll::Ready(());
            }
            Poll::Ready(Err(_)) => {}
            Poll::Pending => {
                // No other task notices the end of a connection whose answer is read.
                if !is_read || connection.poll_end(cx).is_pending() {
                    state.writer = Some(cx.waker().clone());
                    return Poll::Pending;
                }
            }
        }
        drop(state);
        self.give_up();
        Poll::Ready(())
    }

    fn give_up(&self) {
        let mut state = self.state.borrow_mut();
        state.connection = None;
        for waker in [state.reader.take(), state.writer.take()]
            .into_iter()
            .flatten()
        {
            waker.wake();
        }
    }

    /// Resolves when bytes have waited to be written for `allowed` and none of them could be.
    async fn stalled(&self, allowed: Duration) {
        let waiting = || {
            let state = self.state.borrow();
            state.connection.as_ref().and_then(Connection::stalled_at)
        };
        loop {
            let before = waiting();
            sleep(allowed).await;
            let now = waiting();
            if now.is_some() && now == before {
                return;
            }
        }
    }
}

impl<B: OutgoingBody> AnswerHalf<B> {
    /// The next part of the answer's body.
    ///
    /// # Errors
    /// If the connection fails before the body's end, or is abandoned.
    pub fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, AnswerError>>> {
        let mut state = self.0.state.borrow_mut();
        if state.is_read {
            return Poll::Ready(None);
        }
        let Some(connection) = &mut state.connection else {
            return Poll::Ready(Some(Err(AnswerError::GivenUp)));
        };
        let frame = connection.poll_frame(cx);
        let (is_read, is_writing) = (connection.is_read(), connection.is_writing());
        let has_failed = matches!(frame, Poll::Ready(Some(Err(_))));
        if has_failed {
            drop(state);
            self.0.give_up();
            return frame;
        }
        state.is_read = is_read;
        if frame.is_pending() {
            state.reader = Some(cx.waker().clone());
        } else if is_read && is_writing {
            if let Some(writer) = state.writer.take() {
                writer.wake();
            }
        } else if is_read && let Some(connection) = state.connection.take() {
            self.0.pool.put(connection);
        }
        frame
    }

    /// Has the answer been read to its end?
    #[must_use]
    pub fn is_read(&self) -> bool {
        self.0.state.borrow().is_read
    }
}

impl<B: OutgoingBody> Drop for AnswerHalf<B> {
    fn drop(&mut self) {
        if !self.is_read() {
            self.0.give_up();
        }
    }
}
