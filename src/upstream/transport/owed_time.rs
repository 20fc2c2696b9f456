//! The time for which a server owes something to a request with a body: bytes of the body are available that it does
//! not take, or the body has ended and no answer has arrived. While the client's next byte is awaited the server owes
//! nothing, and a client with long pauses delays its body.

use super::held_body::HeldBody;
use crate::clock;
use std::cell::Cell;
use std::fmt;
use std::time::Duration;
use tokio::time::Instant;

/// The longest additional time for a server that takes a body slowly.
const MOST_GRACE: Duration = Duration::from_secs(1);

/// The event that a body in transfer waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::upstream) enum UploadWait {
    /// The client's next byte: everything received is written.
    Client,
    /// The server: bytes are available that it does not take.
    Room,
    /// The answer: the body has ended, or the server takes no more of it.
    #[default]
    Answer,
}

/// The time that a server owes, noted where the body is sent.
#[derive(Debug, Default)]
pub struct OwedTime {
    /// The time since which the server owes something; `None` during a wait for the client.
    since: Cell<Option<Instant>>,
    /// The time for which the client has delayed its body.
    held: HeldBody,
    /// The most bytes that a server has taken. Bytes that are sent again do not count: all attempts share one time.
    most: Cell<u64>,
    /// The event that the body waits for, as known to the exchange.
    wait: Cell<UploadWait>,
    /// Bytes were handed to an HTTP/2 connection and may wait there for the socket.
    is_kept: Cell<bool>,
    /// Bytes have waited for the server.
    has_waited: Cell<bool>,
}

/// The state of an upload, which has such a time.
pub trait UploadState: fmt::Debug {
    /// The time that the server owes.
    fn owed(&self) -> &OwedTime;
}

impl OwedTime {
    /// A state in which the server owes something from `now` on.
    #[must_use]
    pub fn from(now: Instant) -> Self {
        Self {
            since: Cell::new(Some(now)),
            ..Self::default()
        }
    }

    /// The time since which the server owes something; `None` while the client's next byte is awaited.
    #[must_use]
    pub fn since(&self) -> Option<Instant> {
        self.since.get()
    }

    /// Does the client delay its body? The client may then be the cause of a failure of its server.
    #[must_use]
    pub fn is_held_back(&self) -> bool {
        self.since.get().is_none() && self.held.is_long(clock::now())
    }

    /// Has the client delayed its body for longer than the time that the server has had since the body's end? If so,
    /// the client is the cause when a server's time for the whole request is over.
    #[must_use]
    pub fn was_held_back(&self) -> bool {
        let since = self.since.get();
        since.is_some_and(|since| self.held.outlasts(clock::now() - since))
    }

    /// Notes that the request is sent once more: the delay of one server does not count for the next.
    pub(super) fn start_over(&self) {
        self.has_waited.set(false);
    }

    /// Notes that nothing is owed, since the client's next byte is awaited.
    fn await_client(&self) {
        self.since.set(None);
        self.held.begins(self.most.get(), clock::now());
    }

    fn owe(&self, since: Instant) {
        self.since.set(Some(since));
        self.held.ends(since);
    }

    /// The time that the server has beyond `allowed`. A server's system acknowledges reads in steps, of hundreds of
    /// kilobytes at times, and buffers as much before the read: a slow server seems to take nothing for longer than it
    /// does.
    #[must_use]
    pub fn grace(&self, allowed: Duration) -> Duration {
        let grace = match self.wait.get() {
            _ if !self.has_waited.get() => Duration::ZERO,
            UploadWait::Answer => allowed,
            UploadWait::Room | UploadWait::Client => allowed / 2,
        };
        grace.min(MOST_GRACE)
    }

    /// Notes that the server has taken this number of bytes of the request by now, and that the body waits for `wait`.
    pub(in crate::upstream) fn note(&self, taken: u64, wait: UploadWait) {
        self.wait.set(wait);
        if wait == UploadWait::Room {
            self.has_waited.set(true);
        }
        let is_more = self.is_more(taken);
        if is_more {
            self.most.set(taken);
        }
        if wait == UploadWait::Client && !self.is_kept.get() {
            if is_more || self.since.get().is_some() {
                self.await_client();
            }
        } else if is_more || self.since.get().is_none() {
            self.owe(clock::now());
        }
    }

    /// Is this number of bytes more than any server has taken before?
    pub(super) fn is_more(&self, taken: u64) -> bool {
        taken > self.most.get()
    }

    /// Notes that bytes are handed to an HTTP/2 connection, whose socket may not take them at once. Returns true if
    /// there were none before.
    pub(in crate::upstream) fn keep(&self) -> bool {
        !self.is_kept.replace(true)
    }

    /// Notes that the socket has taken some of its connection's bytes, at `now`.
    pub(in crate::upstream) fn moved(&self, now: Instant) {
        self.has_waited.set(true);
        self.owe(now);
    }

    /// Notes that the socket has taken, at `now`, all bytes of its connection.
    pub(super) fn gone_out(&self, now: Instant) {
        self.is_kept.set(false);
        if self.wait.get() == UploadWait::Client {
            self.await_client();
        } else {
            self.owe(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn it_stands_still_while_the_client_is_awaited() {
        let start = clock::now();
        let owed = OwedTime::from(start);
        assert_eq!(owed.since(), Some(start));
        owed.note(100, UploadWait::Client);
        assert_eq!(owed.since(), None);
        // The last bytes have arrived, and the server takes none of them.
        owed.note(100, UploadWait::Room);
        let began = owed.since().unwrap();
        assert!(began >= start);
        owed.note(100, UploadWait::Room);
        assert_eq!(owed.since(), Some(began));
        assert!(owed.is_more(101));
        owed.note(101, UploadWait::Room);
        assert!(owed.since().unwrap() >= began);
    }

    #[test]
    fn a_server_for_which_bytes_have_waited_gets_some_grace() {
        let owed = OwedTime::from(clock::now());
        let second = Duration::from_secs(1);
        owed.note(100, UploadWait::Client);
        owed.note(200, UploadWait::Answer);
        assert_eq!(owed.grace(second), Duration::ZERO);
        owed.note(200, UploadWait::Room);
        assert_eq!(owed.grace(second), second / 2);
        owed.note(300, UploadWait::Answer);
        assert_eq!(owed.grace(second / 4), second / 4);
        assert_eq!(owed.grace(second * 30), MOST_GRACE);
    }

    #[test]
    fn another_server_has_not_earned_the_grace_of_the_one_before() {
        let owed = OwedTime::from(clock::now());
        let second = Duration::from_secs(1);
        owed.note(100, UploadWait::Room);
        owed.start_over();
        owed.note(100, UploadWait::Answer);
        assert_eq!(owed.grace(second), Duration::ZERO);
    }

    #[test]
    fn bytes_that_are_sent_again_do_not_begin_it_anew() {
        let owed = OwedTime::from(clock::now());
        owed.note(100, UploadWait::Room);
        let began = owed.since();
        for taken in [10, 50, 100] {
            owed.note(taken, UploadWait::Room);
            assert_eq!(owed.since(), began);
        }
    }

    #[test]
    fn bytes_that_wait_for_their_socket_are_not_taken() {
        let start = clock::now();
        let owed = OwedTime::from(start);
        assert!(owed.keep() && !owed.keep());
        owed.note(100, UploadWait::Client);
        assert!(owed.since().is_some(), "they are at hand");
        let later = start + Duration::from_secs(1);
        owed.moved(later);
        assert_eq!(owed.since(), Some(later));
        owed.gone_out(later + Duration::from_secs(1));
        assert_eq!(owed.since(), None);
        owed.keep();
        owed.note(200, UploadWait::Room);
        owed.gone_out(later);
        assert_eq!(owed.since(), Some(later));
    }
}
