//! The lanes of one node, as what waits for them sees them: how many are at work, and how another is woken.

use super::call_window::{CallWindow, NEAR};
use std::cell::Cell;
use std::time::Duration;
use tokio::sync::Notify;

/// The lanes of one node. Each makes one call at a time.
#[derive(Debug)]
pub(super) struct Lanes {
    /// How many calls may be under way.
    pub(super) window: CallWindow,
    /// Wakes a lane that sleeps.
    work: Notify,
    /// A lane was woken and has not begun yet.
    woken: Cell<bool>,
    /// Asks for one lane more, while the server is far.
    recruits: Notify,
    /// A lane more was asked for and has not begun yet.
    recruited: Cell<bool>,
    /// An update was put off.
    pub(super) reminder: Notify,
    /// Lanes at work.
    busy: Cell<usize>,
    /// Lanes that have a connection.
    pub(super) serving: Cell<usize>,
    /// A lane has nothing left to do.
    pub(super) quiet: Notify,
}

impl Lanes {
    pub(super) fn new(timeout: Duration) -> Self {
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

    /// Wakes a lane, if one sleeps and none is awake already. While the server is far, one lane more joins those at work.
    pub(super) fn wake(&self) {
        let busy = self.busy.get();
        if busy >= NEAR && busy < self.window.calls() {
            if !self.recruited.replace(true) {
                self.recruits.notify_one();
            }
        } else if !self.woken.replace(true) {
            self.work.notify_one();
        }
    }

    /// Waits until a sleeping lane is woken.
    pub(super) async fn woken(&self) {
        self.work.notified().await;
        self.woken.set(false);
    }

    /// Waits until one lane more is asked for.
    pub(super) async fn recruited(&self) {
        self.recruits.notified().await;
    }

    /// The lane that was asked for begins.
    pub(super) fn joins(&self) {
        self.recruited.set(false);
    }

    /// Lanes at work.
    pub(super) fn busy(&self) -> usize {
        self.busy.get()
    }

    /// A lane begins to work.
    pub(super) fn begin(&self) {
        self.busy.set(self.busy.get() + 1);
    }

    /// A lane has nothing left to do.
    pub(super) fn end(&self) {
        self.busy.set(self.busy.get() - 1);
        self.quiet.notify_waiters();
    }

    /// Are more lanes at work than calls may be under way?
    pub(super) fn are_too_many(&self) -> bool {
        self.busy.get() > self.window.calls()
    }
}
