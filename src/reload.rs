//! Takes over changes of the file while the gateway runs: either the whole new file is installed, or the whole old one
//! stays.
//!
//! Events only tell when to read; the content of every file that the configuration names decides. A change is taken
//! once two readings a moment apart agree, because a half-written file can be valid without its limits. A change that
//! removes a restriction waits for a third reading, unless a signal requests it or the files have kept changing for
//! long.
//!
//! ```text
//! folders  watches the folders that paths lead through
//! ```

mod folders;
#[cfg(test)]
mod tests;

use crate::clock;
use crate::config::diff::{Outline, taken_away};
use crate::config::render::Colour;
use crate::config::{self, Compiled, Files, Identities, Report};
use folders::Folders;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, sleep};

/// Two readings at this interval must agree.
const SETTLE: Duration = Duration::from_millis(50);
/// A reading that removes a restriction must be the same after this further time: a file that is written in two steps
/// may be valid without its limits in between.
const SETTLE_LESS: Duration = Duration::from_millis(500);
/// The number of readings in that time, if each takes no time: large files are read less often.
const LOOKS: u32 = 5;
/// The time after which such a file is installed as it is, though it kept changing: otherwise one writer of one of many
/// files could delay changes of all the others.
const NOT_SETTLED: Duration = Duration::from_secs(10);
/// The time after which a file that never stops changing is installed as it is.
const AT_THE_LATEST: Duration = Duration::from_secs(1);
/// The interval at which every file is read independently of events: some file systems send none.
const NET: Duration = Duration::from_secs(30);
/// The interval of readings when there are no events at all.
const POLL: Duration = Duration::from_secs(1);

/// Triggers a reading now. Clones share one trigger.
#[derive(Debug, Clone, Default)]
pub struct Trigger(Arc<Notify>);

impl Trigger {
    /// Makes the watcher read the file again, and log if nothing has changed.
    pub fn pull(&self) {
        self.0.notify_one();
    }
}

/// The receiver of readings.
pub trait ReloadTarget {
    /// Installs a valid file.
    fn apply(&mut self, compiled: Compiled) -> impl Future<Output = ()>;
    /// The outline of the installed file, for the comparison with files that remove restrictions.
    fn in_force(&self) -> Option<&Arc<Outline>> {
        None
    }
    /// Notes that a reading begins.
    fn reading(&mut self) {}
    /// Notes that a file is invalid, which has been reported.
    fn refused(&mut self, report: &Report);
    /// Notes that a signal has requested the reading, after the file was installed or refused.
    fn signalled(&mut self) {}
}

/// The outcome of a reading.
type LoadResult = Result<Compiled, Report>;

/// Causes for which the file is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReadCause {
    /// The file may have changed.
    Event,
    /// A signal requested the reading.
    Signal,
}

/// Watches the file.
#[derive(Debug)]
pub struct Watcher {
    file: PathBuf,
    trigger: Trigger,
    /// The files as they were last read.
    last: Files,
    /// The identities in force.
    identities: Arc<Identities>,
    /// Was the last reading installed?
    taken: bool,
    /// Does the file system report changes?
    has_events: bool,
    /// The interval at which every file is read without an event.
    interval: Duration,
}

impl Watcher {
    /// A watcher of the installed `file`, which was read from `files`, with these identities: a change since then is
    /// noticed too.
    #[must_use]
    pub fn new(file: PathBuf, files: Files, identities: Arc<Identities>, trigger: Trigger) -> Self {
        Self {
            file,
            trigger,
            last: files,
            identities,
            taken: true,
            has_events: true,
            interval: NET,
        }
    }

    /// Watches until the program ends.
    pub async fn run(mut self, mut apply: impl ReloadTarget) {
        let changed = Arc::new(Notify::new());
        let mut folders = Folders::new(Arc::clone(&changed));
        let mut ticks = self.watch(&mut folders, None);
        // Covers a change before the watch began.
        let mut cause = ReadCause::Event;
        loop {
            cause = self.look(cause, &mut apply).await;
            if cause == ReadCause::Signal {
                apply.signalled();
            }
            // The paths may lead elsewhere by now, through folders that are not watched yet.
            ticks = self.watch(&mut folders, Some(ticks));
            if reread_files(&self.last).await != self.last {
                // The change came before these folders were watched, so that there will be no event.
                changed.notify_one();
            }
            cause = tokio::select! {
                () = changed.notified() => ReadCause::Event,
                () = self.trigger.0.notified() => ReadCause::Signal,
                _ = ticks.tick() => ReadCause::Event,
            };
        }
    }

    /// Watches the folders on the present way of the paths. Returns the ticks for readings without an event.
    fn watch(&self, folders: &mut Folders, ticks: Option<Interval>) -> Interval {
        let before = ticks.as_ref().map(Interval::period);
        let followed = if self.has_events {
            folders.follow(&self.last)
        } else {
            Ok(())
        };
        let period = match followed {
            Ok(()) => self.interval,
            Err(error) => {
                if before != Some(POLL) {
                    tracing::warn!(
                        "{} cannot be watched ({error}); the file is read every second instead",
                        self.file.display()
                    );
                }
                POLL
            }
        };
        match ticks {
            Some(ticks) if ticks.period() == period => ticks,
            _ => {
                let mut ticks = interval_at(clock::now() + period, period);
                ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
                ticks
            }
        }
    }

    /// Reads until two readings agree, or a third one if required, and installs the file if it is new. Returns the
    /// cause of the installation: a signal may have arrived meanwhile.
    async fn look(&mut self, mut cause: ReadCause, apply: &mut impl ReloadTarget) -> ReadCause {
        apply.reading();
        if reread_files(&self.last).await == self.last {
            self.unchanged(cause);
            return cause;
        }
        let mut less = LessRestricted::new();
        let outcome = loop {
            apply.reading();
            let outcome = self.settled().await;
            if *read_for(&outcome) == self.last {
                less.is_back(&self.file);
                self.unchanged(cause);
                return cause;
            }
            let taken_away = match &outcome {
                Ok(compiled) if cause == ReadCause::Event => {
                    taken_from(apply.in_force(), &compiled.outline).await
                }
                _ => None,
            };
            let Some(what) = taken_away else {
                break outcome;
            };
            if less.is_overdue(&what, self.changed(&outcome)) {
                break outcome;
            }
            let has_stayed = tokio::select! {
                has_stayed = stays(read_for(&outcome)) => has_stayed,
                () = self.trigger.0.notified() => {
                    cause = ReadCause::Signal;
                    false
                }
            };
            if has_stayed {
                break outcome;
            }
        };
        self.last = read_for(&outcome).clone();
        self.take(outcome, apply).await;
        cause
    }

    /// The changed file of the configuration, if exactly one file has changed; else the main file.
    fn changed<'a>(&'a self, outcome: &'a LoadResult) -> &'a Path {
        let mut changed = read_for(outcome).changed_since(&self.last);
        match (changed.next(), changed.next()) {
            (Some(alone), None) => alone,
            _ => &self.file,
        }
    }

    /// Reads until two readings agree, for a second at the most.
    async fn settled(&self) -> LoadResult {
        let deadline = clock::now() + AT_THE_LATEST;
        loop {
            let outcome = self.load().await;
            sleep(SETTLE).await;
            let files = read_for(&outcome);
            if reread_files(files).await == *files || clock::now() >= deadline {
                return outcome;
            }
        }
    }

    /// Compiles the file on a separate thread: a large file would block the control thread's other work.
    async fn load(&self) -> LoadResult {
        let (path, identities) = (self.file.clone(), Arc::clone(&self.identities));
        match spawn_blocking(move || config::reload(&path, &identities)).await {
            Ok(outcome) => outcome,
            Err(error) => {
                let report = config::unreadable(&self.file, &io::Error::other(error));
                Err(report.from_files(reread_files(&self.last).await))
            }
        }
    }

    fn unchanged(&self, cause: ReadCause) {
        let file = self.file.display();
        match cause {
            ReadCause::Event => {}
            ReadCause::Signal if self.taken => tracing::info!("{file} is unchanged"),
            ReadCause::Signal => tracing::warn!(
                "{file} is unchanged, and its mistakes still keep it from being taken over"
            ),
        }
    }

    /// Logs the cause for which a reading is refused. The log gets one line if only an included file is at fault.
    /// Otherwise each line is logged separately, since a log escapes line breaks.
    fn refuse(&self, report: &Report) {
        match report.file_errors() {
            Some(line) => {
                tracing::error!("not reloaded: {line}; the earlier configuration stays in force");
            }
            None => {
                for line in report.human(Colour::Off).lines() {
                    tracing::error!("{line}");
                }
                tracing::error!("not reloaded: the earlier configuration stays in force");
            }
        }
    }

    async fn take(&mut self, outcome: LoadResult, apply: &mut impl ReloadTarget) {
        match outcome {
            Ok(compiled) => {
                if !compiled.warnings.is_empty() {
                    for line in compiled.report().human(Colour::Off).lines() {
                        tracing::warn!("{line}");
                    }
                }
                self.taken = true;
                self.identities = Arc::clone(&compiled.identities);
                apply.apply(compiled).await;
            }
            Err(report) => {
                self.refuse(&report);
                self.taken = false;
                apply.refused(&report);
            }
        }
    }
}

/// A file that removes a restriction, and is therefore read once more.
struct LessRestricted {
    /// The first reading that differs.
    since: Instant,
    is_reported: bool,
}

impl LessRestricted {
    fn new() -> Self {
        Self {
            since: clock::now(),
            is_reported: false,
        }
    }

    /// Has the time passed after which the file is installed as it is? If so, this is logged.
    fn is_overdue(&mut self, what: &str, file: &Path) -> bool {
        let file = file.display();
        if clock::now() >= self.since + NOT_SETTLED {
            tracing::warn!(
                "{file} or a file that it names changes all the time, and takes away {what}: it is taken over as it is, since within {} s it never stayed the same for {} ms",
                NOT_SETTLED.as_secs(),
                SETTLE_LESS.as_millis()
            );
            return true;
        }
        if !self.is_reported {
            self.is_reported = true;
            tracing::info!(
                "{file} takes away {what}: it is read once more before it is taken over"
            );
        }
        false
    }

    /// Notes that the files equal the installed ones again.
    fn is_back(&self, file: &Path) {
        if self.is_reported {
            tracing::info!(
                "{} and all files that it names are again as they were before: there is nothing to take over",
                file.display()
            );
        }
    }
}

/// The first restriction that a file removes from the installed one, in words. The comparison may involve lists of
/// millions of members and certificates, which would block the control thread.
async fn taken_from(in_force: Option<&Arc<Outline>>, later: &Arc<Outline>) -> Option<String> {
    let (before, after) = (Arc::clone(in_force?), Arc::clone(later));
    let compared = spawn_blocking(move || taken_away(&before, &after)).await;
    compared.unwrap_or_else(|error| Some(format!("parts that cannot be determined ({error})")))
}

/// Do these files stay unchanged long enough to be installed although they remove a restriction? The files are read in
/// between too, since a file that changes and changes back has not stayed.
async fn stays(files: &Files) -> bool {
    let until = clock::now() + SETTLE_LESS;
    while clock::now() < until {
        sleep(SETTLE_LESS / LOOKS).await;
        if reread_files(files).await != *files {
            return false;
        }
    }
    true
}

/// Reads the present content of these files.
async fn reread_files(files: &Files) -> Files {
    let files = files.clone();
    let read = spawn_blocking(move || files.reread()).await;
    read.unwrap_or_default()
}

/// The files that were read for this outcome.
fn read_for(outcome: &LoadResult) -> &Files {
    match outcome {
        Ok(compiled) => &compiled.files,
        Err(report) => &report.files,
    }
}
