//! The output of a replay for people: the summary, the plot and the picture. Its size must stay small.

use super::{Bench, at};
use crate::support::process::{command, resident};
use crate::support::{PATIENCE, eventually};
use std::fmt::Write as _;
use std::process::Stdio;
use tokio::io::AsyncWriteExt as _;

fn bench() -> Bench {
    let leaky = "algorithm = \"leaky-bucket\"\nrate = \"10/s\"\nqueue = 5";
    Bench::limit(leaky).trace(at(
        (0..2_000).map(|i| 1_795_196_930_000_000 + i / 4 * 350_000)
    ))
}

#[tokio::test]
async fn the_summary_names_what_matters() {
    let done = bench().simulate(&["--set", "limits.a.queue=1"]).await;
    assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""));
    for said in [
        "2,000 requests from 1 client over 2 min 54 s",
        "as it is",
        "with limits.a.queue=1",
        "refused ",
        "delayed ",
        "clients refused",
        "worst minute",
        "waits p50, p99, max",
        "hardest hit",
        "203.0.113.9",
        "over time, the file as it is",
        "over time, with --set",
    ] {
        assert!(done.stdout.contains(said), "{said}:\n{}", done.stdout);
    }
}

#[tokio::test]
async fn the_picture_is_an_image_of_both_files() {
    let bench = bench();
    let done = bench
        .simulate(&["--svg", "out.svg", "--set", "limits.a.queue=1"])
        .await;
    assert_eq!(done.code, Some(0), "{done:?}");
    let picture = std::fs::read_to_string(bench.path().join("out.svg")).unwrap();
    assert!(
        picture.starts_with("<svg ") && picture.ends_with("</svg>\n"),
        "{picture}"
    );
    assert_eq!(
        picture.matches("stroke=").count(),
        4,
        "two panels for each file"
    );
    for open in ["text", "path", "rect", "svg"] {
        let opened = picture.matches(&format!("<{open} ")).count();
        let closed = picture.matches(&format!("</{open}>")).count();
        let alone = picture
            .lines()
            .filter(|line| line.starts_with(&format!("<{open} ")) && line.contains("/>"))
            .count();
        assert!(opened == closed || alone > 0 || opened == 0, "{open}");
    }
    assert!(picture.contains("limits.a.queue=1"));
}

#[tokio::test]
async fn what_cannot_be_written_is_told() {
    let bench = bench();
    for option in ["--decisions", "--svg"] {
        let done = bench.simulate(&[option, "no/such/folder"]).await;
        assert_eq!(done.code, Some(1), "{done:?}");
        assert!(
            done.stderr.contains("cannot write no/such/folder"),
            "{done:?}"
        );
    }
}

/// A trace in which every line has another client takes no more room than its live counters.
#[tokio::test]
async fn memory_is_bounded_by_what_is_live() {
    let bench = Bench::limit("rate = \"1/s\"");
    let mut child = command()
        .current_dir(bench.path())
        .args(["simulate", "-", "--json"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let (pid, mut stdin) = (child.id().unwrap(), child.stdin.take().unwrap());
    let mut largest = 0;
    let mut settled = 0;
    let rounds: u32 = 14;
    for round in 0..rounds {
        let mut text = String::new();
        for line in 0..12_000_u32 {
            let client = round * 12_000 + line;
            // A thousand clients a second, each for one second.
            let _ = writeln!(
                text,
                "{{\"ts\":{}.{:03},\"client\":\"2001:db8:{:x}:{:x}::1\"}}",
                1_000 + client / 1_000,
                client % 1_000,
                client >> 16,
                client & 0xffff
            );
        }
        stdin.write_all(text.as_bytes()).await.unwrap();
        largest = largest.max(resident(pid));
        // By now there are more clients than the replay counts exactly.
        if round == 11 {
            settled = largest;
        }
    }
    drop(stdin);
    let output = child.wait_with_output().await.unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&report["requests"], &report["clients_about"]),
        (&(rounds * 12_000).into(), &true.into())
    );
    let clients = report["clients"].as_u64().unwrap();
    assert!(
        clients.abs_diff(u64::from(rounds) * 12_000) < 24_000,
        "{clients}"
    );
    assert!(
        largest < settled + 4 * 1024 * 1024,
        "{settled} bytes after twelve rounds, {largest} at the end"
    );
}

#[tokio::test]
async fn an_interrupted_replay_leaves_nothing_in_redis() {
    let redis = crate::support::Redis::start().await;
    let bench = Bench::limit("rate = \"1/h\"");
    let child = command()
        .current_dir(bench.path())
        .args(["simulate", "-", "--store", &redis.url()])
        .stdin(Stdio::piped())
        .spawn();
    let mut child = child.unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(at([1, 2, 3]).as_bytes()).await.unwrap();
    eventually(PATIENCE, "it counts", async || {
        !redis.keys().await.is_empty()
    })
    .await;
    crate::support::process::signal(child.id().unwrap(), "INT");
    // The program waits for input, and the next line wakes it.
    let _ = stdin.write_all(at([4]).repeat(100).as_bytes()).await;
    drop(stdin);
    let output = child.wait_with_output().await.unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("interrupted"),
        "{output:?}"
    );
    assert_eq!(redis.command::<u64>(&["DBSIZE"]).await, 0);
}

/// The output may be a terminal, and a trace may contain text of strangers.
#[tokio::test]
async fn a_decision_has_nothing_that_a_terminal_obeys() {
    let key = "a\u{9b}2J\u{7f}\u{202e}b\u{200f}\u{2028}é";
    let line = serde_json::json!({ "ts": 1, "path": "/", "keys": { "a": key } });
    let bench = Bench::new(
        "[limits.a]\nby = \"header:x-api-key\"\nmissing = \"skip\"\nrate = \"2/h\"",
        &[("/", &["a"])],
    );
    let bench = bench.trace(format!("{line}\n"));
    let decisions = bench.decisions(&[]).await;
    assert_eq!(decisions[0]["verdicts"][0]["key"], key, "{decisions:?}");
    let text = std::fs::read_to_string(bench.path().join("out.jsonl")).unwrap();
    assert!(
        text.contains("a\\u009b2J\\u007f\\u202eb\\u200f\\u2028é"),
        "{text}"
    );
}
