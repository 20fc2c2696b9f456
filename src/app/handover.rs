//! Starts a successor of this gateway, hands over the listening sockets, and lets the successor serve.

pub(super) mod bequest;
pub(super) mod channel;
pub(super) mod program;

use super::sockets::KeptSockets;
use crate::clock;
use crate::listen::handed_sockets::{BEQUEATHS, COUNT, NAMES, PREDECESSOR, PROCESS};
use bequest::Bequest;
use channel::{HandoverChannel, INHERIT, READY, SERVE, SERVING};
use command_fds::{CommandFdExt as _, FdMapping};
use program::Program;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, kill_process, waitid};
use std::cell::Cell;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, ExitStatus};
use std::rc::Rc;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// The number of the first descriptor that is handed over (`sd_listen_fds(3)`).
const FIRST: i32 = 3;
/// Longest time from `serve` until the successor serves.
const SERVING_WITHIN: Duration = Duration::from_secs(5);
/// The time in which a successor that has closed its channel may exit by itself.
const ENDED_WITHIN: Duration = Duration::from_secs(1);
/// Longest wait for a process that was killed.
const KILLED_WITHIN: Duration = Duration::from_secs(5);
/// The interval of checks whether a process has ended.
const LOOK: Duration = Duration::from_millis(10);
/// The interval of such checks on a successor that serves.
const WATCH: Duration = Duration::from_millis(200);

/// Causes for which a successor does not serve.
#[derive(Debug, thiserror::Error)]
pub(super) enum SuccessorFailure {
    /// The system cannot start the program.
    #[error("{} cannot be started: {source}", .path.display())]
    Start {
        /// The program.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The successor has ended.
    #[error("the successor has ended before it served ({0})")]
    Ended(ExitStatus),
    /// The successor has closed its channel, or sent a line that no gateway sends.
    #[error("the successor is not a gateway that can take over; it was ended")]
    Strange,
    /// The successor has not answered.
    #[error("the successor did not serve within {0:?}; it was ended")]
    Silent(Duration),
}

/// A successor, from its start until it serves.
#[derive(Debug)]
pub(super) struct Successor {
    process: Child,
    channel: HandoverChannel,
    /// The successor was sent `serve`, and may have connections.
    is_released: Rc<Cell<bool>>,
}

impl Successor {
    /// Starts `program` with `sockets`.
    ///
    /// # Errors
    /// If the system cannot start the program.
    pub(super) fn start(
        program: &Program,
        sockets: &KeptSockets,
    ) -> Result<Self, SuccessorFailure> {
        spawn(program, sockets).map_err(|source| SuccessorFailure::Start {
            path: program.path().to_owned(),
            source,
        })
    }

    /// The number of the successor's process.
    pub(super) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Shows, now and later, whether the successor was sent `serve`.
    pub(super) fn is_released(&self) -> Rc<Cell<bool>> {
        Rc::clone(&self.is_released)
    }

    /// Sends the successor a signal.
    pub(super) fn signal(&self, signal: Signal) {
        // A successor that has ended needs no signal.
        let _ = self.pid().map(|process| kill_process(process, signal));
    }

    fn pid(&self) -> Option<Pid> {
        i32::try_from(self.id()).ok().and_then(Pid::from_raw)
    }

    /// Resolves when the serving successor has failed, with a description of its end. A successor that ends well was
    /// stopped, or has a successor of its own.
    ///
    /// The process is not reaped here: systemd must learn of its end after this process has ended too.
    pub(super) async fn failed(&self) -> String {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        loop {
            let ended = self.pid().map(|process| waitid(WaitId::Pid(process), look));
            match ended {
                Some(Ok(None)) => sleep(WATCH).await,
                Some(Ok(Some(status))) if status.exit_status() != Some(0) => return words(&status),
                _ => std::future::pending().await,
            }
        }
    }

    /// Waits until the successor is ready, at most for `within`, and lets it serve. Until then the successor may
    /// request `bequest`. Returns the positions of the handed sockets that the successor does not use.
    ///
    /// # Errors
    /// If the successor does not reach serving. The caller must then end it.
    pub(super) async fn serves(
        &mut self,
        within: Duration,
        bequest: &Bequest,
    ) -> Result<Vec<usize>, Option<Duration>> {
        let ready = timeout(within, self.ready(bequest)).await;
        let ready = ready.map_err(|_| Some(within))?.ok_or(None)?;
        let unused = unused_in(&ready).ok_or(None)?;
        self.is_released.set(true);
        self.channel.say(SERVE).await.map_err(|_| None)?;
        let serving = timeout(SERVING_WITHIN, self.channel.hear()).await;
        let serving = serving.map_err(|_| Some(SERVING_WITHIN))?;
        serving
            .filter(|line| line == SERVING)
            .map(|_| unused)
            .ok_or(None)
    }

    /// The line of a successor that is ready.
    async fn ready(&mut self, bequest: &Bequest) -> Option<String> {
        let first = self.channel.hear().await?;
        if first != INHERIT {
            return Some(first);
        }
        self.channel.send_bequest(&bequest.line()).await.ok()?;
        self.channel.hear().await
    }

    /// Ends a successor that does not serve, and returns the cause: it was silent for a time, or closed its channel.
    pub(super) async fn fail(mut self, silent: Option<Duration>) -> SuccessorFailure {
        if let Some(silent) = silent {
            self.kill().await;
            return SuccessorFailure::Silent(silent);
        }
        if let Some(status) = self.ended(ENDED_WITHIN).await {
            return SuccessorFailure::Ended(status);
        }
        self.kill().await;
        SuccessorFailure::Strange
    }

    /// Ends the successor at once, and waits for it.
    pub(super) async fn kill(&mut self) {
        // A process that has ended already cannot be killed.
        let _ = self.process.kill();
        if self.ended(KILLED_WITHIN).await.is_none() {
            tracing::warn!("process {} does not end though it was killed", self.id());
        }
    }

    async fn ended(&mut self, within: Duration) -> Option<ExitStatus> {
        let until = clock::now() + within;
        loop {
            match self.process.try_wait() {
                Ok(None) if clock::now() < until => sleep(LOOK).await,
                outcome => return outcome.ok().flatten(),
            }
        }
    }
}

fn words(status: &WaitIdStatus) -> String {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(status), _) => format!("exit status: {status}"),
        (None, Some(signal)) => format!("signal: {signal}"),
        (None, None) => "unknown cause".to_owned(),
    }
}

/// The positions in the line of a successor that is ready.
fn unused_in(line: &str) -> Option<Vec<usize>> {
    let mut words = line.split(' ');
    (words.next() == Some(READY)).then_some(())?;
    words.map(|word| word.parse().ok()).collect()
}

/// Starts `program` with the sockets, and with one end of a channel behind them. LISTEN_PID is left out, since the
/// process's number is not known before the process runs.
fn spawn(program: &Program, sockets: &KeptSockets) -> io::Result<Successor> {
    let (ours, theirs) = UnixStream::pair()?;
    let mut names = sockets.names();
    // The last name has no socket: it announces what the connection before it supports.
    names.extend([PREDECESSOR, BEQUEATHS]);
    let mut descriptors = sockets.descriptors()?;
    descriptors.push(theirs.into());
    let count = descriptors.len();
    let last = FIRST + i32::try_from(count).unwrap_or(i32::MAX - FIRST);
    let _fill = fill(&descriptors, last)?;
    let mut command = program.command();
    command
        .env(COUNT, count.to_string())
        .env(NAMES, names.join(":"))
        .env_remove(PROCESS);
    let mappings = descriptors.into_iter().zip(FIRST..);
    let mappings = mappings.map(|(parent_fd, child_fd)| FdMapping {
        parent_fd,
        child_fd,
    });
    let mapped = command.fd_mappings(mappings.collect());
    mapped.map_err(io::Error::other)?;
    Ok(Successor {
        channel: HandoverChannel::to_successor(ours)?,
        process: command.spawn()?,
        is_released: Rc::default(),
    })
}

/// Descriptors that take every free number below `last`, until they are dropped. Otherwise the pipe by which std learns
/// that a program could not be started would get such a number, and be overwritten in the new process.
fn fill(descriptors: &[OwnedFd], last: i32) -> io::Result<Vec<OwnedFd>> {
    let mut fill = Vec::new();
    if let Some(one) = descriptors.first() {
        loop {
            let next = one.try_clone()?;
            let is_beyond = next.as_raw_fd() >= last;
            fill.push(next);
            if is_beyond {
                break;
            }
        }
    }
    Ok(fill)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_sockets_without_a_use() {
        assert_eq!(unused_in("ready"), Some(vec![]));
        assert_eq!(unused_in("ready 0 12"), Some(vec![0, 12]));
        assert_eq!(unused_in("ready x"), None);
        assert_eq!(unused_in("readily 1"), None);
    }
}
