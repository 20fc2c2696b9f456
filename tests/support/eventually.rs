//! Waits for what has no event to await: asks again until it holds, and says what did not.

use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Returns as soon as `holds` does; panics naming `what` when it has not within `limit`.
pub(crate) async fn eventually(limit: Duration, what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !holds().await {
        assert!(start.elapsed() < limit, "not within {limit:?}: {what}");
        sleep(Duration::from_millis(5)).await;
    }
}
