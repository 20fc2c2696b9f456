//! Floods of an HTTP/2 client: of PING and SETTINGS, which require answers (CVE-2019-9512, CVE-2019-9515), and of
//! frames without effect, such as WINDOW_UPDATE, PRIORITY and unknown kinds. Each such frame costs the client a few
//! bytes and the gateway work, which delays others.

use crate::listen::socket::h2_frames::{ANSWER, ControlTraffic};
use std::time::Duration;
use tokio::time::Instant;

/// The free answers within [`WHILE`]; and the free frames without effect.
const MOST: u64 = 1_000;
/// The time over which answers are counted together.
const WHILE: Duration = Duration::from_secs(10);
/// Bytes of responses that allow one more answer. One more answer is also allowed for each time that another frame is
/// written: a client that measures its line sends a PING after each frame that it gets, however small (gRPC does).
const WORTH: u64 = 64;
/// Bytes of responses that allow one more frame without effect. The smallest DATA frame, of 10 bytes, thus allows the
/// two WINDOW_UPDATEs that a client may send for it, one for its stream and one for the connection.
const WORTH_IDLE: u64 = 4;
/// Frames without effect that a request allows: browsers use them to prioritise their requests.
const OF_REQUEST: u64 = 16;
/// The most frames that are allowed in advance. A client that was paused may have 16 MiB of small frames in socket
/// buffers, and then sends two WINDOW_UPDATEs for each.
const MOST_PAID: u64 = (16 << 20) / WORTH_IDLE;
/// The number of frames without effect after which the account is updated.
const DRAWN_UP: u64 = 256;
/// The last frame: GOAWAY with `ENHANCE_YOUR_CALM` (RFC 9113, sections 6.8 and 7), without the latest stream.
const GOAWAY: [u8; 17] = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xb];

/// The frames of one client that require answers.
#[derive(Debug)]
pub(super) struct FloodMeter {
    since: Instant,
    /// The traffic up to the start of the last [`WHILE`].
    before: ControlTraffic,
    idle: IdleAccount,
}

/// The frames of a client without effect, and the number that is allowed.
#[derive(Debug)]
struct IdleAccount {
    /// Frames that are allowed and have not arrived.
    paid: u64,
    /// The traffic at the last update.
    before: ControlTraffic,
    at: Instant,
}

/// The kind of a flood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flood {
    /// Frames that require answers.
    Demands,
    /// Frames without effect.
    Idle,
}

impl FloodMeter {
    pub(in crate::listen) fn new(now: Instant) -> Self {
        Self {
            since: now,
            before: ControlTraffic::default(),
            idle: IdleAccount {
                paid: MOST,
                before: ControlTraffic::default(),
                at: now,
            },
        }
    }

    /// Is the traffic a flood? `all` is the traffic since the connection began.
    pub(super) fn flood(
        &mut self,
        all: ControlTraffic,
        now: impl Fn() -> Instant,
    ) -> Option<Flood> {
        if all.idle - self.idle.before.idle > DRAWN_UP && !self.idle.is_paid(all, now()) {
            return Some(Flood::Idle);
        }
        self.is_demanding(all, now).then_some(Flood::Demands)
    }

    fn is_demanding(&mut self, all: ControlTraffic, now: impl Fn() -> Instant) -> bool {
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

impl IdleAccount {
    /// Updates the account to `now`. Returns false if more frames have arrived than were allowed.
    #[cold]
    fn is_paid(&mut self, all: ControlTraffic, now: Instant) -> bool {
        let before = std::mem::replace(&mut self.before, all);
        let waited = now.saturating_duration_since(std::mem::replace(&mut self.at, now));
        let waited = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
        let answers = (all.answers - before.answers) * ANSWER;
        let earned = (all.bytes - before.bytes).saturating_sub(answers) / WORTH_IDLE
            + (all.heads - before.heads) * OF_REQUEST;
        let free = waited.saturating_mul(MOST) / WHILE.as_millis() as u64;
        // Time alone accumulates at most the allowance of one stretch.
        let saved = self.paid.max(self.paid.saturating_add(free).min(MOST));
        let paid = saved.saturating_add(earned).min(MOST_PAID);
        let left = paid.checked_sub(all.idle - before.idle);
        self.paid = left.unwrap_or(0);
        left.is_some()
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
            ..ControlTraffic::default()
        }
    }

    #[test]
    fn many_in_a_short_time_for_nothing_are_a_flood() {
        let now = Instant::now();
        let flood = |all| FloodMeter::new(now).flood(all, || now).is_some();
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
        let flood = |all, demands: &mut FloodMeter| demands.flood(all, || later).is_some();
        assert!(!flood(demanded(MOST + 1, 0, 0), &mut demands));
        assert!(!flood(demanded(2 * MOST + 1, 0, 0), &mut demands));
        assert!(flood(demanded(2 * MOST + 2, 0, 0), &mut demands));
    }

    fn idle(idle: u64, bytes: u64, heads: u64) -> ControlTraffic {
        ControlTraffic {
            idle,
            bytes,
            heads,
            ..ControlTraffic::default()
        }
    }

    #[test]
    fn frames_that_move_nothing_are_paid_for_by_answers_requests_and_time() {
        let now = Instant::now();
        let flood = |all| FloodMeter::new(now).flood(all, || now);
        assert_eq!(flood(idle(MOST, 0, 0)), None);
        assert_eq!(flood(idle(MOST + 1, 0, 0)), Some(Flood::Idle));
        assert_eq!(flood(idle(MOST + 1, WORTH_IDLE, 0)), None);
        assert_eq!(flood(idle(MOST + OF_REQUEST, 0, 1)), None);
        let mut meter = FloodMeter::new(now);
        assert_eq!(meter.flood(idle(MOST, 0, 0), || now), None);
        assert_eq!(meter.flood(idle(2 * MOST, 0, 0), || now + WHILE), None);
        let long = now + 100 * WHILE;
        assert_eq!(
            meter.flood(idle(3 * MOST + 1, 0, 0), || long),
            Some(Flood::Idle)
        );
    }

    /// Two WINDOW_UPDATEs for each DATA frame with one byte, all read after a long pause.
    #[test]
    fn a_client_that_stood_still_goes_on() {
        let now = Instant::now();
        let mut meter = FloodMeter::new(now);
        let frames = (16 << 20) / 10;
        let later = now + 60 * WHILE;
        for read in (0..frames).step_by(1_000) {
            let all = idle(2 * read, frames * 10, 1);
            assert_eq!(meter.flood(all, || later), None, "{read}");
        }
    }
}
