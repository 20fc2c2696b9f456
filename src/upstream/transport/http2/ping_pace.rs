//! The interval of pings to a server.
//!
//! gRPC servers treat a PING as abuse if they have sent nothing since the previous one and less than five minutes have
//! passed, and end the connection at the third ("client-side keepalive", proposal A8 of gRPC). One stream that is
//! silent for long would thus end all others.

use std::time::Duration;
use tokio::time::Instant;

/// The time between two pings, while the server sends.
pub(super) const PING: Duration = Duration::from_secs(30);
/// The time between two pings to a server that has sent nothing in between, with a margin.
const SILENT: Duration = Duration::from_secs(310);

/// The time of the last ping.
#[derive(Debug, Default)]
pub(super) struct PingPace {
    last: Option<Instant>,
}

impl PingPace {
    /// Is a ping due at `now`? `has_sent` states whether the server has sent bytes since the last ping.
    pub(super) fn is_due(&mut self, has_sent: bool, now: Instant) -> bool {
        let is_due = has_sent || self.last.is_none_or(|last| now >= last + SILENT);
        if is_due {
            self.last = Some(now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_server_is_asked_seldom() {
        let start = Instant::now();
        let asked = |has_sent: fn(u32) -> bool| {
            let mut pace = PingPace::default();
            let turns = 0..42;
            let due = turns.filter(|turn| pace.is_due(has_sent(*turn), start + PING * *turn));
            due.collect::<Vec<u32>>()
        };
        assert_eq!(asked(|_| true).len(), 42);
        assert_eq!(asked(|_| false), [0, 11, 22, 33]);
        assert_eq!(asked(|turn| turn == 5), [0, 5, 16, 27, 38]);
    }
}
