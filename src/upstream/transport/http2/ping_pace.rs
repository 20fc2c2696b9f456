//! How often a server is asked whether it is still there.
//!
//! Servers of gRPC take a PING for abuse where they have sent nothing since the one before and less than five minutes have
//! passed, and end the connection at the third ("client-side keepalive", proposal A8 of gRPC). A stream that is silent for
//! long would end all others with it.

use std::time::Duration;
use tokio::time::Instant;

/// The time between two questions, while the server sends.
pub(super) const PING: Duration = Duration::from_secs(30);
/// The time between two questions to a server that has sent nothing in between, with something to spare.
const SILENT: Duration = Duration::from_secs(310);

/// When a server was asked last.
#[derive(Debug, Default)]
pub(super) struct PingPace {
    last: Option<Instant>,
}

impl PingPace {
    /// Is the server to be asked at `now`? It `has_sent` something since it was asked last, or not.
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
