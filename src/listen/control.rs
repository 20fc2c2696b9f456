//! A client of HTTP/2 that demands answers to PING and SETTINGS, and hardly anything else (CVE-2019-9512, CVE-2019-9515): each
//! costs it a few bytes and the gateway a frame to write.

use std::time::Duration;
use tokio::time::Instant;

/// Answers that are given within [`WHILE`] for nothing.
const MOST: u64 = 1_000;
/// How long they are counted together.
const WHILE: Duration = Duration::from_secs(10);
/// Bytes of other answers that pay for one more: a client that measures its line sends a PING with each piece that it gets.
const WORTH: u64 = 64;
/// Bytes of an answer to PING, the longer one (RFC 9113, section 6.7).
const ANSWER: u64 = 17;
/// The last frame: GOAWAY with `ENHANCE_YOUR_CALM` (RFC 9113, sections 6.8 and 7), without the latest stream.
const GOAWAY: [u8; 17] = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xb];

/// What one connection has demanded of late.
#[derive(Debug)]
pub(super) struct Demands {
    since: Instant,
    /// Answers, and bytes of everything, by then.
    before: (u64, u64),
}

impl Demands {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            since: now,
            before: (0, 0),
        }
    }

    /// Is it a flood? So many answers and so many bytes there were since the connection began.
    pub(super) fn are_too_many(
        &mut self,
        (answers, bytes): (u64, u64),
        now: impl FnOnce() -> Instant,
    ) -> bool {
        let demanded = answers - self.before.0;
        if demanded <= MOST {
            return false;
        }
        let now = now();
        if now.saturating_duration_since(self.since) >= WHILE {
            (self.since, self.before) = (now, (answers, bytes));
            return false;
        }
        let others = (bytes - self.before.1).saturating_sub(demanded * ANSWER);
        demanded > MOST + others / WORTH
    }
}

/// The bytes of the last frame, on a connection whose latest stream is this.
pub(super) fn calm_down(stream: u32) -> [u8; GOAWAY.len()] {
    let mut frame = GOAWAY;
    frame[9..13].copy_from_slice(&stream.to_be_bytes());
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_in_a_short_time_for_nothing_are_a_flood() {
        let now = Instant::now();
        let flood = |answers, bytes| Demands::new(now).are_too_many((answers, bytes), || now);
        assert!(!flood(MOST, MOST * ANSWER));
        assert!(flood(MOST + 1, (MOST + 1) * ANSWER));
        let paid = 2 * MOST * ANSWER + MOST * WORTH;
        assert!(!flood(2 * MOST, paid));
        assert!(flood(2 * MOST, paid - 1));
    }

    #[test]
    fn what_was_demanded_long_ago_is_forgotten() {
        let now = Instant::now();
        let mut demands = Demands::new(now);
        let later = now + WHILE;
        assert!(!demands.are_too_many((MOST + 1, 0), || later));
        assert!(!demands.are_too_many((2 * MOST + 1, 0), || later));
        assert!(demands.are_too_many((2 * MOST + 2, 0), || later));
    }
}
