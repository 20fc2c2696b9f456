//! `tollgate simulate`, tested from outside: its input, its decisions, its reports, and its exit codes.

mod blocks;
mod changing;
mod endings;
mod guarantees;
mod logged;
mod others;
mod pictures;
mod reading;
mod shadows;
mod stores;
mod telling;
mod walks;

use crate::support::process::command;
use crate::support::{Finished, long};
use serde_json::Value;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;
use tokio::time::timeout;

/// A folder with a file, a trace and the results of a replay.
#[derive(Debug)]
pub(crate) struct Bench {
    folder: TempDir,
}

impl Bench {
    /// A file with these lines for limits. Each entry of `routes` is a path and its limits.
    pub(crate) fn new(limits: &str, routes: &[(&str, &[&str])]) -> Self {
        let mut text = format!("{limits}\n[upstreams.u]\nservers = \"127.0.0.1:1\"\n");
        for (index, (path, limits)) in routes.iter().enumerate() {
            text += &format!(
                "[routes.r{index}]\npath = \"{path}\"\nupstream = \"u\"\nlimits = {limits:?}\n"
            );
        }
        Self::of(&text)
    }

    /// A folder with this file.
    pub(crate) fn of(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("gateway.toml"), text).unwrap();
        Self { folder }
    }

    /// A file with one limit on every path.
    pub(crate) fn limit(lines: &str) -> Self {
        Self::new(
            &format!("[limits.a]\nby = \"ip\"\n{lines}"),
            &[("/{*rest}", &["a"])],
        )
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a trace into the folder.
    pub(crate) fn trace(self, bytes: impl AsRef<[u8]>) -> Self {
        std::fs::write(self.path().join("trace"), bytes).unwrap();
        self
    }

    /// Replays the trace with further arguments.
    pub(crate) async fn simulate(&self, arguments: &[&str]) -> Finished {
        self.run(&[&["simulate", "trace"], arguments].concat(), b"")
            .await
    }

    /// Runs any command with this on standard input.
    pub(crate) async fn run(&self, arguments: &[&str], input: &[u8]) -> Finished {
        let mut child = command()
            .current_dir(self.path())
            .args(arguments)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // The program may end before it has read everything.
        let _ = stdin.write_all(input).await;
        drop(stdin);
        let patience = Duration::from_secs(if long() { 3_600 } else { 60 });
        let output = timeout(patience, child.wait_with_output()).await;
        let output = output.expect("it ends by itself").unwrap();
        Finished {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// The decisions of a replay, which must succeed.
    pub(crate) async fn decisions(&self, arguments: &[&str]) -> Vec<Value> {
        let arguments = [&["--decisions", "out.jsonl"], arguments].concat();
        let done = self.simulate(&arguments).await;
        assert_eq!(done.code, Some(0), "{done:?}");
        let text = std::fs::read_to_string(self.path().join("out.jsonl")).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// The JSON report of a replay, which must succeed.
    pub(crate) async fn report(&self, arguments: &[&str]) -> Value {
        let done = self.simulate(&[&["--json"], arguments].concat()).await;
        assert_eq!(done.code, Some(0), "{done:?}");
        serde_json::from_str(&done.stdout).unwrap_or_else(|error| panic!("{error}: {done:?}"))
    }
}

/// A trace with requests of one client at these microseconds.
pub(crate) fn at(micros: impl IntoIterator<Item = u64>) -> String {
    micros
        .into_iter()
        .map(|at| {
            let (second, micro) = (at / 1_000_000, at % 1_000_000);
            format!("{{\"ts\":{second}.{micro:06},\"client\":\"203.0.113.9\"}}\n")
        })
        .collect()
}

/// The decisions in words, in order.
pub(crate) fn words(decisions: &[Value]) -> Vec<&str> {
    decisions
        .iter()
        .map(|one| one["decision"].as_str().unwrap())
        .collect()
}

/// The number of decisions with this word.
pub(crate) fn count(decisions: &[Value], word: &str) -> usize {
    words(decisions)
        .into_iter()
        .filter(|said| *said == word)
        .count()
}
