//! Uploads whose bytes are in an HTTP/2 connection and not yet in its socket: their server owes nothing new until they
//! are.

use crate::clock;
use crate::upstream::transport::owed_time::UploadState;
use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::task::Poll;

/// The uploads of one connection that have bytes waiting for its socket.
#[derive(Debug, Default)]
pub(super) struct KeptBytes {
    uploads: RefCell<Vec<Rc<dyn UploadState>>>,
    /// The socket has taken bytes since the last check.
    has_moved: Cell<bool>,
    /// The socket takes no bytes now.
    is_full: Cell<bool>,
}

impl KeptBytes {
    /// Notes that bytes of an upload are handed to the connection.
    pub(super) fn add(&self, upload: &Rc<dyn UploadState>) {
        if upload.owed().keep() {
            self.uploads.borrow_mut().push(Rc::clone(upload));
        }
    }

    /// Notes a write to the socket.
    pub(super) fn note<T>(&self, written: &Poll<io::Result<T>>) {
        self.has_moved
            .set(self.has_moved.get() || written.is_ready());
        self.is_full.set(written.is_pending());
    }

    /// Does the socket take no bytes now?
    pub(super) fn is_full(&self) -> bool {
        self.is_full.get()
    }

    /// Notes that the connection has written what it could, and waits.
    pub(super) fn look(&self) {
        let has_moved = self.has_moved.take();
        if self.uploads.borrow().is_empty() {
            return;
        }
        let now = clock::now();
        let mut uploads = self.uploads.borrow_mut();
        if !self.is_full.get() {
            uploads.drain(..).for_each(|one| one.owed().gone_out(now));
        } else if has_moved {
            uploads.iter().for_each(|one| one.owed().moved(now));
        }
    }
}

impl Drop for KeptBytes {
    fn drop(&mut self) {
        // The request may be sent again on another connection.
        let now = clock::now();
        let uploads = self.uploads.get_mut();
        uploads.drain(..).for_each(|one| one.owed().gone_out(now));
    }
}
