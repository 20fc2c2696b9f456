//! How long shares of slots are kept to behind an outage. Gateways notice one after the other that Redis is back, and one
//! that has not yet goes on counting for itself. So each keeps to its share for a moment beside what Redis says: all
//! shares together are no more than `max`.

use crate::clock;
use std::cell::Cell;
use std::time::Duration;
use tokio::time::Instant;

/// Time in which all gateways notice that Redis is back: a few attempts, each of several round trips.
const LAST: Duration = Duration::from_secs(2);

/// Whether one worker keeps to its shares.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    /// Until when it keeps to those of any node.
    until: Cell<Option<Instant>>,
}

impl Shares {
    /// A node is back from an outage: its shares are kept to for a moment. Returns its end.
    pub(crate) fn keep(&self) -> Instant {
        let ends = clock::now() + LAST;
        self.until.set(Some(ends));
        ends
    }

    /// Are the shares of any node kept to?
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
