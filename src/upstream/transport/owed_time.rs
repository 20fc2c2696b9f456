//! Since when a server owes something to a request with a body: bytes of the body are at hand that it does not take, or
//! the body has ended and no answer has come. While the client's next byte is awaited the server owes nothing, and a
//! client that lets it wait for long holds its body back.

use super::held_body::HeldBody;
use crate::clock;
use std::cell::Cell;
use std::fmt;
use std::time::Duration;
use tokio::time::Instant;

/// The most that a server that is slow to take a body gets beyond its time.
const MOST_GRACE: Duration = Duration::from_secs(1);

/// What a body on its way waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::upstream) enum UploadWait {
    /// The client's next byte: all that has come is written.
    Client,
    /// The server: bytes are at hand that it does not take.
    Room,
    /// The answer: the body has ended, or the server takes no more of it.
    #[default]
    Answer,
}

/// The time that a server owes, noted where the body is sent.
#[derive(Debug, Default)]
pub struct OwedTime {
    /// Since when the server owes something; nothing while the client is waited for.
    since: Cell<Option<Instant>>,
    /// How long the client has held its body back.
    held: HeldBody,
    /// The most bytes that a server has taken. Those that are sent once more do not count: all attempts share one time.
    most: Cell<u64>,
    /// What the body waits for, as far as the exchange knows.
    wait: Cell<UploadWait>,
    /// Bytes were handed to a connection of HTTP/2 and may wait there for their socket.
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
    /// The server owes something from `now` on.
    #[must_use]
    pub fn from(now: Instant) -> Self {
        Self {
            since: Cell::new(Some(now)),
            ..Self::default()
        }
    }

    /// Since when the server owes something; nothing while the client's next byte is awaited.
    #[must_use]
    pub fn since(&self) -> Option<Instant> {
        self.since.get()
    }

    /// Does the client hold its body back? What its server fails to do then may be the client's doing.
    #[must_use]
    pub fn is_held_back(&self) -> bool {
        self.since.get().is_none() && self.held.is_long(clock::now())
    }

    /// Has the client held its body back for longer than the server has had the end of it by now? A time that the
    /// server keeps for the whole request is then over by the client's doing.
    #[must_use]
    pub fn was_held_back(&self) -> bool {
        let since = self.since.get();
        since.is_some_and(|since| self.held.outlasts(clock::now() - since))
    }

    /// The request goes out once more: what another server has let wait is nothing that the next one is slow with.
    pub(super) fn start_over(&self) {
        self.has_waited.set(false);
    }

    /// Nothing is owed: the client's next byte is awaited.
    fn await_client(&self) {
        self.since.set(None);
        self.held.begins(self.most.get(), clock::now());
    }

    fn owe(&self, since: Instant) {
        self.since.set(Some(since));
        self.held.ends(since);
    }

    /// The time that the server has beyond `allowed`. A server's system tells in steps what was read, of hundreds of
    /// kilobytes at times, and takes as much before it is read: a slow server seems to take nothing for longer than it
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

    /// The server has taken so many bytes of the request by now, and the body waits for `wait`.
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

    /// Are so many bytes more than any server has taken before?
    pub(super) fn is_more(&self, taken: u64) -> bool {
        taken > self.most.get()
    }

    /// Bytes are handed to a connection of HTTP/2, whose socket may not take them at once. True where none were before.
    pub(in crate::upstream) fn keep(&self) -> bool {
        !self.is_kept.replace(true)
    }

    /// The socket has taken some of the bytes that its connection keeps, at `now`.
    pub(in crate::upstream) fn moved(&self, now: Instant) {
        self.has_waited.set(true);
        self.owe(now);
    }

    /// The socket has taken, at `now`, all bytes that its connection kept.
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
        // The last bytes have come, and the server takes none of them.
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
