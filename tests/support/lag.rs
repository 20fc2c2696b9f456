//! The delays of this machine, measured beside the test on the same thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::AbortHandle;

/// The longest time by which this machine was late with a task. Bounds of time are extended by it.
#[derive(Debug)]
pub(crate) struct Lag {
    micros: Arc<AtomicU64>,
    watching: AbortHandle,
}

impl Lag {
    /// Starts the measurement.
    pub(crate) fn watch() -> Self {
        const BEAT: Duration = Duration::from_millis(5);
        let micros = Arc::<AtomicU64>::default();
        let longest = Arc::clone(&micros);
        let watching = tokio::spawn(async move {
            loop {
                let begun = Instant::now();
                tokio::time::sleep(BEAT).await;
                let late = begun.elapsed().saturating_sub(BEAT).as_micros();
                longest.fetch_max(u64::try_from(late).unwrap_or(u64::MAX), Ordering::Relaxed);
            }
        });
        Self {
            micros,
            watching: watching.abort_handle(),
        }
    }

    /// Twice the longest delay so far: the gateway, which is another process, may have been as late.
    pub(crate) fn of_both(&self) -> Duration {
        Duration::from_micros(self.micros.load(Ordering::Relaxed)) * 2
    }
}

impl Drop for Lag {
    fn drop(&mut self) {
        self.watching.abort();
    }
}
