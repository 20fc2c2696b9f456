//! Takes changes of the file over while the gateway runs: the whole new file, or the whole old one stays.
//!
//! Events only say when to look; what counts is the content. A change is taken once two readings a moment apart agree,
//! because a half-written file can be valid without its limits.

mod folders;
#[cfg(test)]
mod tests;

use crate::config::render::Colour;
use crate::config::{self, Compiled, Report};
use folders::Folders;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, sleep};

/// Two readings this far apart must agree.
const SETTLE: Duration = Duration::from_millis(50);
/// A file that never stops changing is taken as it is after so long.
const AT_THE_LATEST: Duration = Duration::from_secs(1);
/// The net under the events: some file systems send none.
const NET: Duration = Duration::from_secs(30);
/// How often the file is looked at when there are no events at all.
const POLL: Duration = Duration::from_secs(1);

/// Asks for a reading now.
#[derive(Debug, Clone)]
pub struct Trigger(Arc<Notify>);

/// What hears a [`Trigger`].
#[derive(Debug)]
pub struct Pulled(Arc<Notify>);

impl Trigger {
    /// Reads the file again, and says so when nothing has changed.
    pub fn pull(&self) {
        self.0.notify_one();
    }
}

/// A trigger and what hears it.
#[must_use]
pub fn trigger() -> (Trigger, Pulled) {
    let notify = Arc::new(Notify::new());
    (Trigger(Arc::clone(&notify)), Pulled(notify))
}

/// What becomes of a reading.
pub trait Apply {
    /// A good one.
    fn apply(&mut self, compiled: Compiled) -> impl Future<Output = ()>;
    /// A bad one; it has been reported.
    fn refused(&mut self);
}

/// What a reading found: the bytes, or why there are none.
type Reading = Result<Vec<u8>, String>;

/// Why the file is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// It may have changed.
    Event,
    /// Somebody asked.
    Asked,
}

/// Watches the file.
#[derive(Debug)]
pub struct Watcher {
    file: PathBuf,
    pulled: Pulled,
    last: Reading,
    /// Was the last reading taken over?
    taken: bool,
}

impl Watcher {
    /// Of `file`, which is in force as it is now.
    #[must_use]
    pub fn new(file: PathBuf, pulled: Pulled) -> Self {
        let mut watcher = Self {
            file,
            pulled,
            last: Err(String::new()),
            taken: true,
        };
        watcher.last = watcher.read();
        watcher
    }

    /// Of a file that was loaded with this text: a change between then and now is seen too.
    #[must_use]
    pub fn since(mut self, text: &str) -> Self {
        self.last = Ok(text.as_bytes().to_vec());
        self
    }

    /// Until the program ends.
    pub async fn run(mut self, mut apply: impl Apply) {
        let changed = Arc::new(Notify::new());
        let mut folders = Folders::new(Arc::clone(&changed));
        let mut ticks = self.watch(&mut folders, None);
        // What happened before anybody watched.
        self.look(Cause::Event, &mut apply).await;
        loop {
            let cause = tokio::select! {
                () = changed.notified() => Cause::Event,
                () = self.pulled.0.notified() => Cause::Asked,
                _ = ticks.tick() => Cause::Event,
            };
            self.look(cause, &mut apply).await;
            // The path may lead elsewhere by now, through folders nobody has watched yet.
            ticks = self.watch(&mut folders, Some(ticks));
        }
    }

    /// Watches where the path leads now; returns when to look without being told.
    fn watch(&self, folders: &mut Folders, ticks: Option<Interval>) -> Interval {
        let before = ticks.as_ref().map(Interval::period);
        let period = match folders.follow(&self.file) {
            Ok(()) => NET,
            Err(error) => {
                if before != Some(POLL) {
                    tracing::warn!(
                        "{} cannot be watched ({error}); it is read every second instead",
                        self.file.display()
                    );
                }
                POLL
            }
        };
        match ticks {
            Some(ticks) if ticks.period() == period => ticks,
            _ => {
                let mut ticks = interval_at(Instant::now() + period, period);
                ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
                ticks
            }
        }
    }

    /// Reads until two readings agree, and takes what is new.
    async fn look(&mut self, cause: Cause, apply: &mut impl Apply) {
        let deadline = Instant::now() + AT_THE_LATEST;
        let mut reading = self.read();
        while reading != self.last {
            sleep(SETTLE).await;
            let again = self.read();
            let settled = again == reading || Instant::now() >= deadline;
            reading = again;
            if settled {
                break;
            }
        }
        if reading != self.last {
            self.last = reading.clone();
            self.take(reading, apply).await;
        } else if cause == Cause::Asked {
            let file = self.file.display();
            if self.taken {
                tracing::info!("{file} is unchanged");
            } else {
                tracing::warn!("{file} is unchanged, and still not taken");
            }
        }
    }

    async fn take(&mut self, reading: Reading, apply: &mut impl Apply) {
        let compiled = match reading {
            Ok(bytes) => config::decode(&self.file, bytes),
            Err(error) => Err(config::unreadable(
                &self.file,
                &std::io::Error::other(error),
            )),
        };
        match compiled {
            Ok(compiled) => {
                if !compiled.warnings.is_empty() {
                    for line in lines(&compiled.report()) {
                        tracing::warn!("{line}");
                    }
                }
                self.taken = true;
                apply.apply(compiled).await;
            }
            Err(report) => {
                for line in lines(&report) {
                    tracing::error!("{line}");
                }
                tracing::error!("not reloaded: what is in force stays in force");
                self.taken = false;
                apply.refused();
            }
        }
    }

    /// The bytes, without a byte order mark so that they compare with the text they make. Small and local: read in
    /// place.
    fn read(&self) -> Reading {
        const MARK: &[u8] = "\u{feff}".as_bytes();
        match config::read(&self.file) {
            Ok(bytes) => Ok(bytes
                .strip_prefix(MARK)
                .map(<[u8]>::to_vec)
                .unwrap_or(bytes)),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// What `check` would say, a line at a time: a log escapes line breaks.
fn lines(report: &Report) -> Vec<String> {
    report
        .human(Colour::Off)
        .lines()
        .map(str::to_owned)
        .collect()
}
