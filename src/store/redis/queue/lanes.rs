//! The lanes of one node, as seen by the queues: the number of active lanes, and a means to wake another.

use super::call_window::{CallWindow, NEAR};
use std::cell::Cell;
use std::time::Duration;
use tokio::sync::Notify;

/// The lanes of one node. Each makes one call at a time.
#[derive(Debug)]
pub(crate) struct Lanes {
    /// The number of allowed concurrent calls.
    pub(crate) window: CallWindow,
    /// Wakes a lane that sleeps.
    work: Notify,
    /// Has a lane been woken that has not begun yet?
    woken: Cell<bool>,
    /// Requests one more lane, while the server is far away.
    recruits: Notify,
    /// Has one more lane been requested that has not begun yet?
    recruited: Cell<bool>,
    /// Notified when an update was postponed.
    pub(crate) reminder: Notify,
    /// The number of active lanes.
    busy: Cell<usize>,
    /// Lanes that have a connection.
    pub(crate) serving: Cell<usize>,
    /// Notified when a lane has become idle.
    pub(crate) quiet: Notify,
}

impl Lanes {
    pub(crate) fn new(timeout: Duration) -> Self {
        Self {
            window: CallWindow::new(timeout),
            work: Notify::new(),
            woken: Cell::new(false),
            recruits: Notify::new(),
            recruited: Cell::new(false),
            reminder: Notify::new(),
            busy: Cell::new(0),
            serving: Cell::new(0),
            quiet: Notify::new(),
        }
    }

    /// Wakes a lane, if one sleeps and no woken lane is still to begin. While the server is far away, one more lane
    /// joins the active lanes.
    pub(crate) fn wake(&self) {
        let busy = self.busy.get();
        if busy >= NEAR && busy < self.window.calls() {
            if !self.recruited.replace(true) {
                self.recruits.notify_one();
            }
        } else if !self.woken.replace(true) {
            // The lane that has worked last finds its data, its connection and Redis' side of the connection in the
            // caches.
            self.work.notify_last();
        }
    }

    /// Waits until a sleeping lane is woken.
    pub(crate) async fn woken(&self) {
        self.work.notified().await;
        self.woken.set(false);
    }

    /// Waits until one more lane is requested.
    pub(crate) async fn recruited(&self) {
        self.recruits.notified().await;
    }

    /// Notes that the requested lane begins.
    pub(crate) fn joins(&self) {
        self.recruited.set(false);
    }

    /// The number of active lanes.
    pub(crate) fn busy(&self) -> usize {
        self.busy.get()
    }

    /// Notes that a lane begins to work.
    pub(crate) fn begin(&self) {
        self.busy.set(self.busy.get() + 1);
    }

    /// Notes that a lane has become idle.
    pub(crate) fn end(&self) {
        self.busy.set(self.busy.get() - 1);
        self.quiet.notify_waiters();
    }

    /// Are more lanes active than concurrent calls are allowed?
    pub(crate) fn are_too_many(&self) -> bool {
        self.busy.get() > self.window.calls()
    }
}
