//! The readiness of this gateway for traffic.
//!
//! The store's state does not affect readiness. An unavailable store is unavailable to every gateway, and taking all
//! gateways out of service would turn the loss of a counter into the loss of the service.

use tokio::sync::watch;

/// The phase of a gateway's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Phase {
    /// No configuration has been loaded yet.
    #[default]
    Starting,
    /// The gateway takes requests.
    Ready,
    /// The gateway finishes its current requests and takes no new ones.
    Draining,
}

impl Phase {
    /// Its word in answers.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Draining => "draining",
        }
    }
}

/// The phase, which the program sets as it starts and stops. Clones share one phase.
#[derive(Debug, Clone, Default)]
pub struct Readiness(watch::Sender<Phase>);

impl Readiness {
    /// Sets the phase.
    pub fn set(&self, phase: Phase) {
        self.0.send_replace(phase);
    }

    /// The phase.
    #[must_use]
    pub fn phase(&self) -> Phase {
        *self.0.borrow()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_share_one_phase() {
        let readiness = Readiness::default();
        assert_eq!(readiness.phase(), Phase::Starting);
        for phase in [Phase::Ready, Phase::Draining, Phase::Starting] {
            readiness.clone().set(phase);
            assert_eq!(readiness.phase(), phase);
        }
    }
}
