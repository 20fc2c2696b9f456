//! The time for which a connection is kept for the next request of its client.

use crate::clock;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The time, which a reload may change for connections that already rest. Its clones share one value.
#[derive(Debug, Clone)]
pub struct KeepAlive(Arc<AtomicU64>);

impl KeepAlive {
    /// The default, if the file sets neither this time nor `idle`: longer than the 60 s after which load balancers in
    /// front close a connection, so that they close first.
    pub const USUAL: Duration = Duration::from_secs(75);

    /// Connections are kept for `time`.
    #[must_use]
    pub fn new(time: Duration) -> Self {
        Self(Arc::new(AtomicU64::new(clock::micros(time))))
    }

    /// The time.
    #[must_use]
    pub fn get(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::Relaxed))
    }

    /// Sets the time, for all connections.
    pub fn set(&self, time: Duration) {
        self.0.store(clock::micros(time), Ordering::Relaxed);
    }
}

impl PartialEq for KeepAlive {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl Eq for KeepAlive {}
