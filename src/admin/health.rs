//! Whether this gateway wants traffic.
//!
//! The store does not count: when it is away every gateway is without it, and taking all of them out of service would
//! turn the loss of a counter into the loss of the service.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// The phase of a gateway's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// No configuration is in force yet.
    Starting,
    /// It takes requests.
    Ready,
    /// It finishes the requests it has and takes no new ones.
    Draining,
}

/// The phase, which the program sets as it starts and stops. Clones share one phase.
#[derive(Debug, Clone, Default)]
pub struct Readiness(Arc<AtomicU8>);

impl Readiness {
    /// Of a gateway that is starting.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the phase.
    pub fn set(&self, phase: Phase) {
        let code = match phase {
            Phase::Starting => 0,
            Phase::Ready => 1,
            Phase::Draining => 2,
        };
        self.0.store(code, Ordering::Relaxed);
    }

    /// The phase.
    #[must_use]
    pub fn phase(&self) -> Phase {
        match self.0.load(Ordering::Relaxed) {
            0 => Phase::Starting,
            1 => Phase::Ready,
            _ => Phase::Draining,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_share_one_phase() {
        let readiness = Readiness::new();
        assert_eq!(readiness.phase(), Phase::Starting);
        for phase in [Phase::Ready, Phase::Draining, Phase::Starting] {
            readiness.clone().set(phase);
            assert_eq!(readiness.phase(), phase);
        }
    }
}
