//! The tollgate program as a process: run to its end, signalled, and watched.

use super::PATIENCE;
use std::ffi::OsStr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;
use tokio::time::timeout;

/// The exit code and the outputs of a finished process.
#[derive(Debug)]
pub(crate) struct Finished {
    /// The exit code. A process that a signal ended has none.
    pub(crate) code: Option<i32>,
    /// Standard output.
    pub(crate) stdout: String,
    /// Standard error.
    pub(crate) stderr: String,
}

/// The binary under test, without a terminal and without colours.
pub(crate) fn command() -> Command {
    command_of(Path::new(env!("CARGO_BIN_EXE_tollgate")))
}

/// The program at `path`, without a terminal and without colours.
pub(crate) fn command_of(path: &Path) -> Command {
    quiet(Command::new(path))
}

/// The binary under test, in a shell that has run `before`.
pub(crate) fn command_after(before: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("{before}; exec \"$0\" \"$@\"")])
        .arg(env!("CARGO_BIN_EXE_tollgate"))
        .args(arguments);
    quiet(command)
}

fn quiet(mut command: Command) -> Command {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .env("NO_COLOR", "1")
        .env_remove("RUST_LOG")
        .kill_on_drop(true);
    command
}

/// Runs `tollgate` in `folder` to its end.
pub(crate) async fn tollgate(folder: &Path, arguments: &[impl AsRef<OsStr>]) -> Finished {
    let running = command().current_dir(folder).args(arguments).output();
    let output = timeout(PATIENCE, running)
        .await
        .expect("it ends by itself")
        .unwrap();
    Finished {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Sends `signal` ("TERM", "HUP") to a process.
pub(crate) fn signal(pid: u32, signal: &str) {
    // The shell's own `kill` exists on every machine, with or without procps.
    let status = std::process::Command::new("sh")
        .args(["-c", &format!("kill -{signal} {pid}")])
        .status()
        .unwrap();
    assert!(status.success(), "kill -{signal} {pid}: {status}");
}

/// Does the process run? A process that has ended, and whose parent has not collected it yet, does not run.
pub(crate) fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").map(|(_, rest)| rest.as_bytes());
    state.is_some_and(|rest| !matches!(rest.first(), Some(b'Z' | b'X')))
}

/// The processor time of a process.
pub(crate) fn worked(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, rest) = stat.rsplit_once(") ").expect("a name in brackets");
    let ticks = rest.split(' ').skip(11).take(2);
    let ticks: u64 = ticks.map(|ticks| ticks.parse::<u64>().unwrap()).sum();
    // Linux counts processor time in hundredths of a second.
    Duration::from_millis(10 * ticks)
}

/// Kills a gateway that is not a child of the test, if it runs.
pub(crate) fn kill(pid: u32) {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    if name.trim() == "tollgate" && runs(pid) {
        signal(pid, "KILL");
    }
}

/// Resident memory of a process in bytes.
pub(crate) fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .expect("Linux tells VmRSS");
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().unwrap();
    kib * 1024
}

/// The number of files that a process has open.
pub(crate) fn open_files(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .count()
}
