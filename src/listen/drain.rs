//! How a worker's connections learn of draining: one flag on the worker's own thread, one waker for each connection.
//!
//! Asking the process-wide token at every wake of every connection would be a lock shared between workers.

use crate::shutdown::Drain;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Draining as one worker sees it.
#[derive(Debug, Clone)]
pub struct WorkerDrain(Rc<Inner>);

#[derive(Debug)]
struct Inner {
    /// The process-wide token, for its deadline.
    drain: Drain,
    begun: Cell<bool>,
    next: Cell<u64>,
    wakers: RefCell<HashMap<u64, Waker, foldhash::fast::RandomState>>,
}

/// One connection among those that draining wakes.
#[derive(Debug)]
pub struct DrainListener {
    local: WorkerDrain,
    key: u64,
    registered: bool,
}

impl WorkerDrain {
    /// Listens to `drain` on the worker's runtime, which must be the current one.
    #[must_use]
    pub fn new(drain: Drain) -> Self {
        let inner = Inner {
            drain: drain.clone(),
            begun: Cell::new(drain.deadline().is_some()),
            next: Cell::new(0),
            wakers: RefCell::default(),
        };
        let local = Self(Rc::new(inner));
        let listening = local.clone();
        tokio::task::spawn_local(async move {
            drain.begun().await;
            listening.0.begun.set(true);
            for (_, waker) in listening.0.wakers.borrow_mut().drain() {
                waker.wake();
            }
        });
        local
    }

    /// The process-wide token.
    #[must_use]
    pub fn token(&self) -> &Drain {
        &self.0.drain
    }

    /// A listener for one connection.
    #[must_use]
    pub fn listen(&self) -> DrainListener {
        let key = self.0.next.get();
        self.0.next.set(key + 1);
        DrainListener {
            local: self.clone(),
            key,
            registered: false,
        }
    }
}

impl DrainListener {
    /// Ready once draining has begun. The task that polls first is the one that is woken.
    pub fn poll_begun(&mut self, cx: &Context<'_>) -> Poll<()> {
        if self.local.0.begun.get() {
            return Poll::Ready(());
        }
        if !self.registered {
            self.registered = true;
            let mut wakers = self.local.0.wakers.borrow_mut();
            wakers.insert(self.key, cx.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for DrainListener {
    fn drop(&mut self) {
        if self.registered {
            self.local.0.wakers.borrow_mut().remove(&self.key);
        }
    }
}
