//! The time for which shares of slots are enforced after an outage. Gateways notice the return of Redis one after the
//! other, and one that has not yet noticed still counts by itself. So each enforces its share for a moment in addition
//! to Redis' answer: all shares together are no more than `max`.

use crate::clock;
use std::cell::Cell;
use std::time::Duration;
use tokio::time::Instant;

/// The time in which all gateways notice the return of Redis: a few attempts, each of several round trips.
const LAST: Duration = Duration::from_secs(2);

/// Whether one worker enforces its shares.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    /// The time until which the shares of any node are enforced.
    until: Cell<Option<Instant>>,
}

impl Shares {
    /// Notes that a node has returned after an outage: its shares are enforced for a moment. Returns its end.
    pub(crate) fn keep(&self) -> Instant {
        let ends = clock::now() + LAST;
        self.until.set(Some(ends));
        ends
    }

    /// Are the shares of any node enforced?
    #[inline]
    pub(crate) fn are_kept(&self) -> bool {
        self.until.get().is_some()
    }

    /// Ends the moment, if it is over.
    pub(crate) fn sweep(&self) {
        if self.until.get().is_some_and(|until| until <= clock::now()) {
            self.until.set(None);
        }
    }
}
