//! The lanes of one node, from the side of the queues: the number of lanes at work, and a means to wake another.

use super::call_window::{CallWindow, NEAR};
use std::cell::Cell;
use std::time::Duration;
use tokio::sync::Notify;

/// The lanes of one node. Each makes one call at a time.
#[derive(Debug)]
pub(crate) struct Lanes {
    /// The number of calls that may be under way.
    pub(crate) window: CallWindow,
    /// Wakes a lane that sleeps.
    work: Notify,
    /// Has a lane been woken that has not begun yet?
    woken: Cell<bool>,
    /// Asks for one more lane, while the server is far.
    recruits: Notify,
    /// Has one more lane been asked for that has not begun yet?
    recruited: Cell<bool>,
    /// Notified when an update was put off.
    pub(crate) reminder: Notify,
    /// Lanes at work.
    busy: Cell<usize>,
    /// Lanes that have a connection.
    pub(crate) serving: Cell<usize>,
    /// Notified when a lane has nothing left to do.
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

    /// Wakes a lane, if one sleeps and no woken lane is still to begin. While the server is far, one more lane joins
    /// the lanes at work.
    pub(crate) fn wake(&self) {
        let busy = self.busy.get();
        if busy >= NEAR && busy < self.window.calls() {
            if !self.recruited.replace(true) {
                self.recruits.notify_one();
            }
        } else if !self.woken.replace(true) {
            // The lane that has worked last finds itself, its connection and Redis' side of it in the caches.
            self.work.notify_last();
        }
    }

    /// Waits until a sleeping lane is woken.
    pub(crate) async fn woken(&self) {
        self.work.notified().await;
        self.woken.set(false);
    }

    /// Waits until one more lane is asked for.
    pub(crate) async fn recruited(&self) {
        self.recruits.notified().await;
    }

    /// Notes that the lane that was asked for begins.
    pub(crate) fn joins(&self) {
        self.recruited.set(false);
    }

    /// Lanes at work.
    pub(crate) fn busy(&self) -> usize {
        self.busy.get()
    }

    /// Notes that a lane begins to work.
    pub(crate) fn begin(&self) {
        self.busy.set(self.busy.get() + 1);
    }

    /// Notes that a lane has nothing left to do.
    pub(crate) fn end(&self) {
        self.busy.set(self.busy.get() - 1);
        self.quiet.notify_waiters();
    }

    /// Are more lanes at work than calls may be under way?
    pub(crate) fn are_too_many(&self) -> bool {
        self.busy.get() > self.window.calls()
    }
}
