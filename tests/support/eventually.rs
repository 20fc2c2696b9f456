//! Waits for a condition without an event to await: checks it again until it holds, and names it if it never does.

use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Returns as soon as `holds` is true; panics with the text `what` if that takes longer than `limit`.
pub(crate) async fn eventually(limit: Duration, what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !holds().await {
        assert!(start.elapsed() < limit, "not within {limit:?}: {what}");
        sleep(Duration::from_millis(5)).await;
    }
}
