//! A fault that hits all gateways at once.

use super::three::Three;
use crate::support::Line;
use std::time::Duration;

#[derive(Debug, Clone, Copy)]
pub(super) enum Fault {
    /// Redis stops reading, and later reads everything.
    Stopped,
    /// Redis is killed, and comes back with its data.
    Killed,
    /// All connections are reset, new ones too.
    Reset,
    /// No process listens at the port.
    Refused,
    /// Calls arrive and take effect, but their answers are lost.
    Unheard,
    /// Calls and answers arrive byte by byte.
    Dripping,
}

impl Fault {
    fn line(self) -> Line {
        match self {
            Self::Stopped | Self::Killed => Line::Whole,
            Self::Reset => Line::Reset,
            Self::Refused => Line::Refused,
            Self::Unheard => Line::Unheard,
            Self::Dripping => Line::Dripping(Duration::from_millis(10)),
        }
    }
}

impl Three {
    pub(super) async fn break_by(&mut self, fault: Fault) {
        match fault {
            Fault::Stopped => self.redis.freeze(),
            Fault::Killed => self.redis.kill().await,
            _ => self.turn(fault.line()),
        }
    }

    pub(super) async fn mend(&mut self, fault: Fault) {
        match fault {
            Fault::Stopped => self.redis.thaw(),
            Fault::Killed => self.redis.come().await,
            _ => self.turn(Line::Whole),
        }
    }

    fn turn(&self, line: Line) {
        for relay in &self.relays {
            relay.turn(line);
        }
    }
}
