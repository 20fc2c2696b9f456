//! The HTTP/2 connections of one worker to one server. One is opened at a time, and all waiters learn the result at
//! once.

use super::connection::{Http2Connection, OpenStream};
use crate::clock;
use crate::upstream::ConnectError;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The wait before a new connection to a server that has sent `ENHANCE_YOUR_CALM`.
const CALM: Duration = Duration::from_secs(1);

/// The connections.
#[derive(Debug, Default)]
pub(in crate::upstream) struct StreamPool {
    connections: RefCell<Vec<Rc<Http2Connection>>>,
    /// A connection is being opened.
    is_opening: Cell<bool>,
    /// Wakes waiting tasks: an opening has ended, or a stream has ended.
    pub(in crate::upstream) changed: Rc<Notify>,
    /// The number of failed openings, and the cause of the last one.
    failure: RefCell<Option<ConnectError>>,
    failures: Cell<u64>,
    /// The number of opened connections.
    openings: Cell<u64>,
    /// The time before which no connection is opened.
    calm_until: Cell<Option<Instant>>,
    /// The server chose HTTP/1.1 in the last handshake.
    pub(in crate::upstream) is_http1: Cell<bool>,
}

/// The right to open a connection.
#[derive(Debug)]
pub(in crate::upstream) struct Opening<'a>(&'a StreamPool);

impl StreamPool {
    /// A stream of a connection that allows another, and has room for `need` bytes of a body if it has one.
    pub(in crate::upstream) fn take(&self, now: Instant, need: u32) -> Option<OpenStream> {
        let connections = self.connections.borrow();
        let usable = || connections.iter().filter(|one| one.is_usable(now));
        let roomy = usable().filter(|one| one.has_room(need));
        let moving = usable().filter(|one| !one.has_room(need) && !one.is_stuck(need, now));
        roomy.chain(moving).find_map(Http2Connection::take)
    }

    /// A stream of a connection that has room for `need` bytes of a body at once.
    pub(in crate::upstream) fn take_roomy(&self, now: Instant, need: u32) -> Option<OpenStream> {
        let connections = self.connections.borrow();
        let mut usable = connections.iter().filter(|one| one.is_usable(now));
        usable.find_map(|one| one.has_room(need).then(|| one.take()).flatten())
    }

    /// Adds an open connection, and returns its first stream.
    pub(in crate::upstream) fn add(&self, connection: Rc<Http2Connection>) -> Option<OpenStream> {
        let stream = connection.take();
        self.connections.borrow_mut().push(connection);
        self.openings.set(self.openings.get() + 1);
        stream
    }

    /// The right to open a connection; `None` while another one opens.
    pub(in crate::upstream) fn open(&self) -> Option<Opening<'_>> {
        (!self.is_opening.replace(true)).then(|| Opening(self))
    }

    /// The number of opened connections.
    pub(in crate::upstream) fn openings(&self) -> u64 {
        self.openings.get()
    }

    /// The number of failed openings.
    pub(in crate::upstream) fn failures(&self) -> u64 {
        self.failures.get()
    }

    /// The cause of the last failed opening.
    pub(in crate::upstream) fn failure(&self) -> Option<ConnectError> {
        self.failure.borrow().clone()
    }

    /// The time before which no connection is opened, if it is in the future.
    pub(in crate::upstream) fn calm_until(&self) -> Option<Instant> {
        self.note_calm();
        self.calm_until.get().filter(|until| *until > clock::now())
    }

    fn note_calm(&self) {
        let mut connections = self.connections.borrow_mut();
        if connections.iter().any(|one| one.is_calm()) {
            self.calm_until.set(Some(clock::now() + CALM));
            connections.retain(|one| !one.is_calm());
        }
    }

    /// Drops connections that are over, or have been idle for long.
    pub(in crate::upstream) fn sweep(&self, now: Instant) {
        self.note_calm();
        let mut connections = self.connections.borrow_mut();
        connections.retain(|one| one.is_usable(now) && !one.has_rested(now));
    }

    /// Drops a connection without streams. Returns false if there is none.
    pub(in crate::upstream) fn close_idle(&self) -> bool {
        let mut connections = self.connections.borrow_mut();
        let idle = connections.iter().position(|one| one.is_idle());
        idle.map(|at| connections.remove(at)).is_some()
    }

    /// Is there a connection without streams?
    pub(in crate::upstream) fn has_idle(&self) -> bool {
        self.connections.borrow().iter().any(|one| one.is_idle())
    }
}

impl Opening<'_> {
    /// Adds the opened connection, and returns its first stream.
    pub(in crate::upstream) fn opened(self, connection: Rc<Http2Connection>) -> Option<OpenStream> {
        self.0.add(connection)
    }

    /// Notes that the opening failed.
    pub(in crate::upstream) fn failed(self, error: &ConnectError) {
        self.0.failure.replace(Some(error.clone()));
        self.0.failures.set(self.0.failures.get() + 1);
    }
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        self.0.is_opening.set(false);
        self.0.changed.notify_waiters();
    }
}
