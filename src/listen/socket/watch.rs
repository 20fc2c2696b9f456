//! The watch over a client's connection: whether the client has left although hyper is not reading, and what a request
//! may change about its socket.

use super::minimum_rate::Lateness;
use super::{SocketState, lock};
use crate::descriptors::departure::SecondDescriptor;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

/// Reports whether a connection was ended because its client took no bytes. The flag outlives the connection.
#[derive(Debug, Clone, Default)]
pub struct StallFlag(Arc<OnceLock<Lateness>>);

/// Detects that a client leaves although hyper does not read from its socket.
#[derive(Debug, Clone)]
pub struct SocketWatch {
    pub(super) socket: Weak<Mutex<SocketState>>,
    pub(super) stalled: StallFlag,
}

impl StallFlag {
    pub(super) fn set(&self, how: Lateness) {
        // The flag is set once.
        let _ = self.0.set(how);
    }

    /// The way in which the client was late, if the connection was ended because the client took no bytes, or too few.
    #[must_use]
    pub fn get(&self) -> Option<Lateness> {
        self.0.get().copied()
    }
}

impl SocketWatch {
    /// Has the gateway itself dropped the connection?
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.socket.strong_count() == 0
    }

    /// Resolves when the client has closed or reset its side.
    ///
    /// The connection reports the closing only if no bytes lie unread before the end. A client with a pipelined byte
    /// after its request could thus keep the request's place for as long as it likes. A second registration of the
    /// socket reports the closing even if bytes lie unread. A client that only half-closes counts as gone.
    pub async fn gone(&self) {
        match self.second_descriptor() {
            Some(second) => drop(second.departure().await),
            // Either the connection has ended, and hyper ends this request by itself; or no descriptor is left for a
            // watch.
            None => std::future::pending().await,
        }
    }

    /// A second descriptor of the socket, which detects how the client leaves; `None` if the connection has ended, or
    /// no descriptor is left.
    #[must_use]
    pub fn second_descriptor(&self) -> Option<SecondDescriptor> {
        let socket = self.socket.upgrade()?;
        let socket = lock(&socket);
        // A connection to a server is worth more than the detection of a leaving client.
        let descriptor = socket.share.take_spare()?;
        socket.channel.transport().duplicate(descriptor).ok()
    }

    /// A flag that reports, also later, whether the connection was ended because its client took no bytes.
    #[must_use]
    pub fn stalled(&self) -> StallFlag {
        self.stalled.clone()
    }

    /// Makes the connection end in a reset when it is closed. An orderly end would mean that the whole answer has been
    /// sent. Bytes that the client's system has not taken by then are lost.
    pub fn end_in_reset(&self) {
        if let Some(socket) = self.socket.upgrade() {
            lock(&socket).channel.end_in_reset();
        }
    }

    /// Cuts the connection at once, even during a request: no further byte passes in either direction.
    pub fn cut(&self) {
        if let Some(socket) = self.socket.upgrade() {
            lock(&socket).channel.cut();
        }
    }

    /// The client may take the bytes that are written from now on at any rate, as long as it takes some.
    pub fn idle_alone(&self) {
        if let Some(socket) = self.socket.upgrade() {
            lock(&socket).idle_alone = true;
        }
    }

    /// The client may take none of the bytes that are written from now on for `idle`, or for the listener's time. The
    /// longest time applies if `is_shared`: there are several concurrent requests.
    pub fn set_route_idle(&self, idle: Option<Duration>, is_shared: bool) {
        if let Some(socket) = self.socket.upgrade() {
            let current = &mut lock(&socket).route_idle;
            *current = if is_shared { idle.max(*current) } else { idle };
        }
    }
}
