//! Blocks in a replay: the key is refused for the time, and the line of a decision says what is left.

use super::{Bench, at, words};
use serde_json::Value;

const SECOND: u64 = 1_000_000;

#[tokio::test]
async fn a_block_is_replayed_to_the_microsecond() {
    let seconds = [0, 1, 10, 61, 62, 63, 182, 183].map(|second| second * SECOND);
    let trace = at(seconds.into_iter().chain([183 * SECOND + 1]));
    let limit = "rate = \"1/10s\"\nalgorithm = \"fixed-window\"\n";
    let grows = format!("{limit}block = {{ for = \"1min\", up_to = \"1h\" }}");
    let bench = Bench::limit(&grows).trace(trace);
    let decisions = bench.decisions(&[]).await;
    // The first block lasts from second 1 to 61, the next one is of two minutes and begins at 62.
    let expected = [
        "admit", "refuse", "refuse", "admit", "refuse", "refuse", "admit", "refuse", "refuse",
    ];
    assert_eq!(words(&decisions), expected);
    let left = |nth: usize| decisions[nth]["verdicts"][0]["blocked_us"].clone();
    let wanted = [60, 51, 120, 119, 240].map(|second| Value::from(second * SECOND));
    assert_eq!([left(1), left(2), left(4), left(5), left(7)], wanted);
    assert_eq!((left(0), left(3)), (Value::Null, Value::Null));
    let plain = bench.report(&["--set", "limits.a.block=\"1s\""]).await;
    assert_eq!(plain["file"]["refused"], 6);
    assert_eq!(plain["changed"]["refused"], 5);
}
