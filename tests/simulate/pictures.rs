//! The pictures of the docs: the same traffic under each algorithm, as `--svg` draws it. With `UPDATE=1` they are drawn
//! anew.

use super::Bench;
use std::fmt::Write as _;
use std::path::Path;

/// Each limit admits about ten requests a second, or as many in flight, where each request takes a second.
const ALGORITHMS: [(&str, &str); 8] = [
    ("token-bucket", "rate = \"10/s\"\nburst = 20"),
    (
        "leaky-bucket",
        "algorithm = \"leaky-bucket\"\nrate = \"10/s\"\nqueue = 20",
    ),
    (
        "fixed-window",
        "algorithm = \"fixed-window\"\nrate = \"100/10s\"",
    ),
    (
        "fixed-window-clock",
        "algorithm = \"fixed-window\"\nanchor = \"clock\"\nrate = \"100/10s\"",
    ),
    (
        "sliding-window",
        "algorithm = \"sliding-window\"\nrate = \"100/10s\"",
    ),
    (
        "sliding-window-strict",
        "algorithm = \"sliding-window\"\nrate = \"100/10s\"\nbuckets = 10\nstrict = true",
    ),
    (
        "sliding-log",
        "algorithm = \"sliding-log\"\nrate = \"100/10s\"",
    ),
    ("concurrency", "algorithm = \"concurrency\"\nmax = 10"),
];

/// The traffic of one client: eight requests a second throughout, sixty at once, a rush across a window's border, then
/// three times too many.
fn traffic() -> String {
    let start: u64 = 1_795_196_930_000_000;
    let mut times: Vec<u64> = (0..60 * 8).map(|i| i * 125_000).collect();
    times.extend([10_500_000; 60]);
    times.extend((0..100).map(|i| 29_000_000 + i * 20_000));
    times.extend((0..220).map(|i| 42_000_000 + i * 45_000));
    times.sort_unstable();
    times.iter().fold(String::new(), |mut out, at| {
        let at = start + at;
        let _ = writeln!(
            out,
            "{{\"ts\":{}.{:06},\"client\":\"203.0.113.9\",\"duration_ms\":1000}}",
            at / 1_000_000,
            at % 1_000_000
        );
        out
    })
}

#[tokio::test]
async fn the_pictures_of_the_docs_are_what_is_drawn() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/pictures");
    let update = std::env::var_os("UPDATE").is_some();
    for (name, lines) in ALGORITHMS {
        let bench = Bench::limit(lines).trace(traffic());
        let done = bench.simulate(&["--svg", "out.svg"]).await;
        assert_eq!(done.code, Some(0), "{done:?}");
        let drawn = std::fs::read_to_string(bench.path().join("out.svg")).unwrap();
        let kept = folder.join(format!("{name}.svg"));
        if update {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&kept, &drawn).unwrap();
        }
        let there = std::fs::read_to_string(&kept).unwrap_or_default();
        assert!(
            there == drawn,
            "{} is not what is drawn now: UPDATE=1 tests/run pictures",
            kept.display()
        );
    }
}
