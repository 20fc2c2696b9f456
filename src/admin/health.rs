//! Whether this gateway wants traffic.
//!
//! The store has no say: when it is away every gateway is without it, and taking all of them out of service would
//! turn the loss of a counter into the loss of the service.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// Where in its life a gateway is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// No configuration is in force yet.
    Starting,
    /// It takes requests.
    Ready,
    /// It finishes what it has and takes nothing new.
    Draining,
}

/// The phase, as told by whoever starts and stops the gateway. Clones are one.
#[derive(Debug, Clone, Default)]
pub struct Readiness(Arc<AtomicU8>);

impl Readiness {
    /// Of a gateway that is starting.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Tells the phase.
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
    fn clones_are_one() {
        let readiness = Readiness::new();
        assert_eq!(readiness.phase(), Phase::Starting);
        for phase in [Phase::Ready, Phase::Draining, Phase::Starting] {
            readiness.clone().set(phase);
            assert_eq!(readiness.phase(), phase);
        }
    }
}
