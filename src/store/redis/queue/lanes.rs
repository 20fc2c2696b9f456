//! The lanes of one node, from the side of the queues: the number of lanes at work, and a means to wake another.

use super::call_window::{CallWindow, NEAR};
use std::cell::Cell;
use std::time::Duration;
use tokio::sync::Notify;

/// The lanes of one node. Each makes one call at a time.
#[derive(Debug)]
pub(in crate::store::redis) struct Lanes {
    /// The number of calls that may be under way.
    pub(in crate::store::redis) window: CallWindow,
    /// Wakes a lane that sleeps.
    work: Notify,
    /// Has a lane been woken that has not begun yet?
    woken: Cell<bool>,
    /// Asks for one more lane, while the server is far.
    recruits: Notify,
    /// Has one more lane been asked for that has not begun yet?
    recruited: Cell<bool>,
    /// Notified when an update was put off.
    pub(in crate::store::redis) reminder: Notify,
    /// Lanes at work.
    busy: Cell<usize>,
    /// Lanes that have a connection.
    pub(in crate::store::redis) serving: Cell<usize>,
    /// Notified when a lane has nothing left to do.
    pub(in crate::store::redis) quiet: Notify,
}

impl Lanes {
    pub(in crate::store::redis) fn new(timeout: Duration) -> Self {
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
    pub(in crate::store::redis) fn wake(&self) {
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
    pub(in crate::store::redis) async fn woken(&self) {
        self.work.notified().await;
        self.woken.set(false);
    }

    /// Waits until one more lane is asked for.
    pub(in crate::store::redis) async fn recruited(&self) {
        self.recruits.notified().await;
    }

    /// Notes that the lane that was asked for begins.
    pub(in crate::store::redis) fn joins(&self) {
        self.recruited.set(false);
    }

    /// Lanes at work.
    pub(in crate::store::redis) fn busy(&self) -> usize {
        self.busy.get()
    }

    /// Notes that a lane begins to work.
    pub(in crate::store::redis) fn begin(&self) {
        self.busy.set(self.busy.get() + 1);
    }

    /// Notes that a lane has nothing left to do.
    pub(in crate::store::redis) fn end(&self) {
        self.busy.set(self.busy.get() - 1);
        self.quiet.notify_waiters();
    }

    /// Are more lanes at work than calls may be under way?
    pub(in crate::store::redis) fn are_too_many(&self) -> bool {
        self.busy.get() > self.window.calls()
    }
}
