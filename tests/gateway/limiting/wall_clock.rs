//! Windows of the clock and the calendar follow the machine's wall clock in memory too. Nothing else follows it.

use crate::support::{File, Gateway, Upstream, preload};
use std::fs;
use std::path::{Path, PathBuf};

const DAY: i64 = 86_400;

/// A gateway that counts in memory, and the file with the difference of its clock.
async fn gateway(limit: &str) -> (Gateway, PathBuf, Upstream) {
    let upstream = Upstream::echo().await;
    let folder = tempfile::tempdir().unwrap();
    let shim = preload(
        folder.path(),
        "clock",
        include_str!("../../support/clock.c"),
    )
    .await;
    let offset = folder.path().join("offset");
    fs::write(&offset, "0").unwrap();
    let file = File::to(&upstream, &["calls"]).limit("calls", &format!("by = \"ip\"\n{limit}"));
    fs::write(folder.path().join("gateway.toml"), file.text()).unwrap();
    let variables = [("LD_PRELOAD", &*shim), ("CLOCK_OFFSET", &*offset)];
    let gateway = Gateway::launch_with(folder, &["run"], &variables).await;
    (gateway, offset, upstream)
}

fn set(offset: &Path, seconds: i64) {
    // A file that is overwritten in place is empty for a moment.
    let new = offset.with_extension("new");
    fs::write(&new, seconds.to_string()).unwrap();
    fs::rename(new, offset).unwrap();
}

/// The statuses of this number of requests.
async fn statuses<const N: usize>(gateway: &Gateway) -> [u16; N] {
    let mut all = [0; N];
    for status in &mut all {
        *status = gateway.get("/").await.status;
    }
    all
}

#[tokio::test]
async fn a_day_of_the_clock_ends_when_the_wall_clock_says_so() {
    for limit in [
        "algorithm = \"fixed-window\"\nanchor = \"clock\"\nrate = \"2/d\"",
        "algorithm = \"fixed-window\"\nanchor = \"clock\"\nrate = \"2/d\"\ntimezone = \"Europe/Berlin\"",
        "algorithm = \"fixed-window\"\nanchor = \"clock\"\nrate = \"2/month\"",
    ] {
        let (gateway, offset, _upstream) = gateway(limit).await;
        // The time is far from the border of a day or a month in any zone used here.
        let days = 31 * DAY;
        let first: [u16; 3] = statuses(&gateway).await;
        assert_eq!(first, [200, 200, 429], "{limit}");
        set(&offset, days);
        let next: [u16; 3] = statuses(&gateway).await;
        assert_eq!(next, [200, 200, 429], "{limit}");
        let refused = gateway.get("/").await.expect(429);
        let wait = refused.number("retry-after");
        assert!(wait <= 31 * 86_400, "{limit}: {wait}");
        // A clock that steps back over windows does not increase any client's limit.
        set(&offset, 0);
        let back: [u16; 2] = statuses(&gateway).await;
        assert_eq!(back, [429, 429], "{limit}");
        set(&offset, 2 * days);
        let later: [u16; 3] = statuses(&gateway).await;
        assert_eq!(later, [200, 200, 429], "{limit}");
    }
}

#[tokio::test]
async fn a_step_of_the_wall_clock_refills_no_other_limit() {
    for limit in [
        "rate = \"2/d\"",
        "algorithm = \"fixed-window\"\nrate = \"2/d\"",
        "algorithm = \"sliding-window\"\nrate = \"2/d\"",
        "algorithm = \"sliding-log\"\nrate = \"2/d\"",
    ] {
        let (gateway, offset, _upstream) = gateway(limit).await;
        let first: [u16; 3] = statuses(&gateway).await;
        assert_eq!(first, [200, 200, 429], "{limit}");
        for days in [3, -3] {
            set(&offset, days * DAY);
            let after: [u16; 2] = statuses(&gateway).await;
            assert_eq!(after, [429, 429], "{limit}");
        }
    }
}
