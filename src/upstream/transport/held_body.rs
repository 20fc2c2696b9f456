//! The time for which a client delays its body: its next byte is awaited, or only a trickle arrives.

use std::cell::Cell;
use std::time::Duration;
use tokio::time::Instant;

/// The shortest delay of a body that may have been too long for a server. A client that sends as fast as it can causes
/// only shorter delays.
const HELD_BACK: Duration = Duration::from_millis(200);
/// This number of bytes ends a delay. Fewer of them are a trickle: otherwise an occasional byte would hide that a body
/// is delayed.
const MORE_THAN_A_TRICKLE: u64 = 1024;

/// The time for which the client's next bytes are awaited. The time that its server takes for these bytes in between
/// does not count.
#[derive(Debug, Default)]
pub(super) struct HeldBody {
    /// The time since which the next byte is awaited.
    awaited: Cell<Option<Instant>>,
    /// The waiting time before that, since more than a trickle arrived.
    before: Cell<Duration>,
    /// The number of bytes at that time.
    at: Cell<u64>,
    /// The longest delay that has ended.
    longest: Cell<Duration>,
}

impl HeldBody {
    /// Notes that the next byte is awaited from `now` on, after this number of bytes.
    pub(in crate::upstream) fn begins(&self, bytes: u64, now: Instant) {
        self.ends(now);
        if bytes.saturating_sub(self.at.get()) >= MORE_THAN_A_TRICKLE {
            self.longest.set(self.longest.get().max(self.before.take()));
            self.at.set(bytes);
        }
        self.awaited.set(Some(now));
    }

    /// Notes that it has arrived by `now`.
    pub(in crate::upstream) fn ends(&self, now: Instant) {
        if let Some(awaited) = self.awaited.take() {
            let waited = now.saturating_duration_since(awaited);
            self.before.set(self.before.get() + waited);
        }
    }

    /// Has the body been delayed for long at `now`, and does the delay last?
    pub(super) fn is_long(&self, now: Instant) -> bool {
        let awaited = self.awaited.get();
        awaited.is_some_and(|since| {
            self.before.get() + now.saturating_duration_since(since) >= HELD_BACK
        })
    }

    /// Has it been delayed for long at any time, and for longer than `other`?
    pub(super) fn outlasts(&self, other: Duration) -> bool {
        let longest = self.longest.get().max(self.before.get());
        longest >= HELD_BACK && longest > other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    #[test]
    fn a_client_that_goes_on_sending_holds_nothing_back() {
        let (held, start) = (HeldBody::default(), Instant::now());
        for piece in 0..20_u32 {
            held.begins(u64::from(piece) * 16_384, start + MILLI * 50 * piece);
        }
        let now = start + MILLI * 1000;
        assert!(!held.is_long(now) && !held.outlasts(Duration::ZERO));
        assert!(held.is_long(now + MILLI * 150));
    }

    #[test]
    fn a_trickle_holds_the_body_back() {
        let (held, start) = (HeldBody::default(), Instant::now());
        for byte in 0..5_u32 {
            // The server takes 10 ms for each byte, which do not count for the client.
            held.begins(u64::from(byte), start + MILLI * 60 * byte);
            held.ends(start + MILLI * (60 * byte + 50));
        }
        let now = start + MILLI * 300;
        assert!(!held.is_long(now), "nothing is awaited");
        assert!(held.outlasts(MILLI * 249) && !held.outlasts(MILLI * 250));
        held.begins(5, now);
        assert!(held.is_long(now));
    }

    #[test]
    fn what_was_held_back_is_known_behind_the_rest() {
        let (held, start) = (HeldBody::default(), Instant::now());
        held.begins(9, start);
        held.begins(100_000, start + MILLI * 300);
        held.ends(start + MILLI * 310);
        assert!(held.outlasts(MILLI * 299) && !held.outlasts(MILLI * 300));
    }
}
