//! An upstream connection driven by the task that waits for its answer: a response then wakes one task, not two.

use super::recorder::{Recorder, WriteProgress};
use atomic_waker::AtomicWaker;
use hyper::body::Body;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use std::error::Error as StdError;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// What hyper reads from and writes to.
pub(super) type Io = TokioIo<Recorder>;

/// One connection, and the bell that its events ring.
pub(super) struct Driver<B: Body + 'static> {
    connection: http1::Connection<Io, B>,
    progress: Arc<WriteProgress>,
    bell: Arc<DriverWaker>,
    /// The bell as hyper and tokio hold it. Always the same one, so that nothing is registered anew when the connection
    /// passes from request to request.
    waker: Waker,
}

/// Wakes the task that drives the connection at the moment, and nobody while it is idle.
#[derive(Debug, Default)]
struct DriverWaker {
    rung: AtomicBool,
    listener: AtomicWaker,
}

impl Wake for DriverWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rung.store(true, Ordering::Release);
        self.listener.wake();
    }
}

impl<B: Body + 'static> std::fmt::Debug for Driver<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver")
            .field("bell", &self.bell)
            .finish_non_exhaustive()
    }
}

impl<B> Driver<B>
where
    B: Body + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    /// Takes a connection over.
    pub(super) fn new(connection: http1::Connection<Io, B>, progress: Arc<WriteProgress>) -> Self {
        let bell = Arc::<DriverWaker>::default();
        let waker = Waker::from(Arc::clone(&bell));
        Self {
            connection,
            progress,
            bell,
            waker,
        }
    }

    /// Moves the connection on for the task of `cx`; ready when it is over.
    pub(super) fn poll(&mut self, cx: &Context<'_>) -> Poll<()> {
        self.bell.listener.register(cx.waker());
        self.turn()
    }

    /// Has an idle connection ended? Only what rang since it was driven last can have ended it.
    pub(super) fn has_ended(&mut self) -> bool {
        self.bell.rung.load(Ordering::Acquire) && self.turn().is_ready()
    }

    /// What its stream tells.
    pub(super) fn progress(&self) -> &Arc<WriteProgress> {
        &self.progress
    }

    /// Nobody drives it from here on: its events wake nobody.
    pub(super) fn rest(&self) {
        drop(self.bell.listener.take());
    }

    /// The connection itself, for a task of its own.
    pub(super) fn into_connection(self) -> http1::Connection<Io, B> {
        self.connection
    }

    /// The stream beneath; whoever waits for something on the connection is told that it is over.
    pub(super) fn into_stream(self) -> Recorder {
        self.connection.into_parts().io.into_inner()
    }

    fn turn(&mut self) -> Poll<()> {
        self.bell.rung.store(false, Ordering::Release);
        self.progress.begin_turn();
        // Its errors reach whoever waits for an answer on it; an idle one may fail unseen.
        Pin::new(&mut self.connection)
            .poll(&mut Context::from_waker(&self.waker))
            .map(|_| ())
    }
}
