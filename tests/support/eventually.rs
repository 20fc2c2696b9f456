//! Waits for a condition that causes no event: it is checked again and again until it holds, and named if it never
//! does.

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
