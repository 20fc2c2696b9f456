//! How a worker's connections hear of draining: one flag on the worker's own thread, one waker for each connection.
//!
//! Asking the process-wide token at every wake of every connection would be a lock shared between workers.

use crate::shutdown::Drain;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// A worker's ear for draining.
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

/// One connection's place among those to be woken.
#[derive(Debug)]
pub struct DrainListener {
    local: WorkerDrain,
    place: u64,
    listens: bool,
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
        let told = local.clone();
        tokio::task::spawn_local(async move {
            drain.begun().await;
            told.0.begun.set(true);
            for (_, waker) in told.0.wakers.borrow_mut().drain() {
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

    /// A place for one connection.
    #[must_use]
    pub fn listen(&self) -> DrainListener {
        let place = self.0.next.get();
        self.0.next.set(place + 1);
        DrainListener {
            local: self.clone(),
            place,
            listens: false,
        }
    }
}

impl DrainListener {
    /// Ready once draining has begun. The task that asks first is the one that is woken.
    pub fn poll_begun(&mut self, cx: &Context<'_>) -> Poll<()> {
        if self.local.0.begun.get() {
            return Poll::Ready(());
        }
        if !self.listens {
            self.listens = true;
            let mut wakers = self.local.0.wakers.borrow_mut();
            wakers.insert(self.place, cx.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for DrainListener {
    fn drop(&mut self) {
        if self.listens {
            self.local.0.wakers.borrow_mut().remove(&self.place);
        }
    }
}
