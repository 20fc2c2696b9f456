//! An upstream connection driven by the task that waits for its answer: a response then wakes one task, not two.

use super::OutgoingBody;
use super::recorder::{Recorder, WriteProgress};
use super::stream::{PeekEnd, ServerStream};
use atomic_waker::AtomicWaker;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// hyper's half of a connection.
type HyperConnection<B, S> = http1::Connection<TokioIo<Recorder<S>>, B>;

/// One connection of HTTP/1, and the waker that its events reach.
pub(super) struct Driver<B: OutgoingBody, S: PeekEnd = ServerStream> {
    connection: HyperConnection<B, S>,
    progress: Arc<WriteProgress>,
    shared: Arc<DriverWaker>,
    /// The handle of `shared` that hyper and tokio hold. It stays the same waker, so that no registration is renewed
    /// when the connection passes from request to request.
    waker: Waker,
}

/// Wakes the task that drives the connection at present, and no task while the connection is idle.
#[derive(Debug, Default)]
struct DriverWaker {
    woken: AtomicBool,
    task: AtomicWaker,
}

impl Wake for DriverWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.task.wake();
    }
}

impl<B: OutgoingBody, S: PeekEnd> std::fmt::Debug for Driver<B, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver")
            .field("shared", &self.shared)
            .finish_non_exhaustive()
    }
}

impl<B: OutgoingBody, S: PeekEnd> Driver<B, S> {
    /// Takes a connection over.
    pub(super) fn new(connection: HyperConnection<B, S>, progress: Arc<WriteProgress>) -> Self {
        let shared = Arc::<DriverWaker>::default();
        let waker = Waker::from(Arc::clone(&shared));
        Self {
            connection,
            progress,
            shared,
            waker,
        }
    }

    /// Moves the connection on for the task of `cx`; ready when the connection is over.
    pub(super) fn poll(&mut self, cx: &Context<'_>) -> Poll<()> {
        self.shared.task.register(cx.waker());
        self.advance()
    }

    /// Has an idle connection ended? Only an event since its last move can have ended it.
    pub(super) fn has_ended(&mut self) -> bool {
        self.shared.woken.load(Ordering::Acquire) && self.advance().is_ready()
    }

    /// The progress of its stream in writing.
    pub(super) fn progress(&self) -> &Arc<WriteProgress> {
        &self.progress
    }

    /// Lets the connection rest: its events wake no task from here on.
    pub(super) fn rest(&self) {
        drop(self.shared.task.take());
    }

    /// The connection itself, for a task of its own.
    pub(super) fn into_connection(self) -> HyperConnection<B, S> {
        self.connection
    }

    /// The stream beneath. A task that waits for an event on the connection learns that the connection is over.
    pub(super) fn into_stream(self) -> Recorder<S> {
        self.connection.into_parts().io.into_inner()
    }

    fn advance(&mut self) -> Poll<()> {
        self.shared.woken.store(false, Ordering::Release);
        self.progress.begin_turn();
        // The connection's errors reach the task that waits for an answer on it; an idle connection may fail unseen.
        Pin::new(&mut self.connection)
            .poll(&mut Context::from_waker(&self.waker))
            .map(|_| ())
    }
}
