//! Charges that come back: after a server's error, or when the request is given up before anything was forwarded.

use super::error::ProxyError;
use crate::limit::GivesBack;
use crate::store::{Charge, DecidedBy, Store};
use http::StatusCode;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// What a request has paid to limits that may give it back. Each charge goes back once, or never.
#[derive(Debug)]
pub struct Returns {
    store: Store,
    by: DecidedBy,
    charges: RefCell<Vec<Charge>>,
    forwarded: Cell<bool>,
}

impl Returns {
    /// Keeps `charges`.
    #[must_use]
    pub fn keep(store: &Store, by: DecidedBy, charges: Vec<Charge>) -> Rc<Self> {
        Rc::new(Self {
            store: store.clone(),
            by,
            charges: RefCell::new(charges),
            forwarded: Cell::new(false),
        })
    }

    /// Keeps more: places in queues whose turn has come.
    pub fn keep_more(&self, charges: impl IntoIterator<Item = Charge>) {
        self.charges.borrow_mut().extend(charges);
    }

    /// From here on the upstream may have seen the request.
    pub fn forwarded(&self) {
        self.forwarded.set(true);
    }

    /// The upstream answered with this status.
    pub fn answered(&self, status: u16) {
        if (500..600).contains(&status) {
            self.give(|gives| gives.errors);
        }
    }

    /// The gateway answers itself.
    pub fn failed(&self, error: &ProxyError) {
        match error {
            ProxyError::ClientGone | ProxyError::Draining | ProxyError::TooManyHeld => {
                self.given_up();
            }
            _ if matches!(
                error.status(),
                StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT
            ) =>
            {
                self.give(|gives| gives.errors);
            }
            _ => {}
        }
    }

    /// Nobody waits for an answer any more.
    pub fn given_up(&self) {
        if !self.forwarded.get() {
            self.give(|gives| gives.cancels);
        }
    }

    fn give(&self, which: impl Fn(GivesBack) -> bool) {
        let charges = self.charges.take();
        for charge in charges {
            if which(charge.limit.gives_back) {
                self.store.refund(charge, self.by);
            }
        }
    }
}
