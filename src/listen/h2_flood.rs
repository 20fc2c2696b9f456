//! The flood of an HTTP/2 client that demands answers to PING and SETTINGS, and hardly anything else (CVE-2019-9512,
//! CVE-2019-9515): each such frame costs the client a few bytes and the gateway a frame to write.

use super::h2_frames::{ANSWER, ControlTraffic};
use std::time::Duration;
use tokio::time::Instant;

/// Answers that are free within [`WHILE`].
const MOST: u64 = 1_000;
/// The time over which answers are counted together.
const WHILE: Duration = Duration::from_secs(10);
/// Bytes of responses that pay for one more answer. One more answer is also paid for each time that another frame is
/// written: a client that measures its line sends a PING behind each frame that it gets, however small (gRPC does).
const WORTH: u64 = 64;
/// The last frame: GOAWAY with `ENHANCE_YOUR_CALM` (RFC 9113, sections 6.8 and 7), without the latest stream.
const GOAWAY: [u8; 17] = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xb];

/// The demands of one client within the last [`WHILE`].
#[derive(Debug)]
pub(super) struct FloodMeter {
    since: Instant,
    /// The traffic up to the start of that time.
    before: ControlTraffic,
}

impl FloodMeter {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            since: now,
            before: ControlTraffic::default(),
        }
    }

    /// Is the traffic a flood? `all` is the traffic since the connection began.
    pub(super) fn is_flood(&mut self, all: ControlTraffic, now: impl FnOnce() -> Instant) -> bool {
        let demanded = all.answers - self.before.answers;
        if demanded <= MOST {
            return false;
        }
        let now = now();
        if now.saturating_duration_since(self.since) >= WHILE {
            self.since = now;
            self.before = all;
            return false;
        }
        let others = (all.bytes - self.before.bytes).saturating_sub(demanded * ANSWER);
        demanded > MOST + others / WORTH + (all.times - self.before.times)
    }
}

/// The bytes of the last frame, on a connection whose latest stream is `stream`.
pub(super) fn goaway(stream: u32) -> [u8; GOAWAY.len()] {
    let mut frame = GOAWAY;
    frame[9..13].copy_from_slice(&stream.to_be_bytes());
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demanded(answers: u64, bytes: u64, times: u64) -> ControlTraffic {
        ControlTraffic {
            answers,
            bytes,
            times,
        }
    }

    #[test]
    fn many_in_a_short_time_for_nothing_are_a_flood() {
        let now = Instant::now();
        let flood = |all| FloodMeter::new(now).is_flood(all, || now);
        assert!(!flood(demanded(MOST, MOST * ANSWER, 0)));
        assert!(flood(demanded(MOST + 1, (MOST + 1) * ANSWER, 0)));
        let paid = 2 * MOST * ANSWER + MOST * WORTH;
        assert!(!flood(demanded(2 * MOST, paid, 0)));
        assert!(flood(demanded(2 * MOST, paid - 1, 0)));
        let little = 2 * MOST * ANSWER;
        assert!(!flood(demanded(2 * MOST, little, MOST)));
        assert!(flood(demanded(2 * MOST, little, MOST - 1)));
    }

    #[test]
    fn what_was_demanded_long_ago_is_forgotten() {
        let now = Instant::now();
        let mut demands = FloodMeter::new(now);
        let later = now + WHILE;
        assert!(!demands.is_flood(demanded(MOST + 1, 0, 0), || later));
        assert!(!demands.is_flood(demanded(2 * MOST + 1, 0, 0), || later));
        assert!(demands.is_flood(demanded(2 * MOST + 2, 0, 0), || later));
    }
}
