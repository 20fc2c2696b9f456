//! The diagnostic log: the gateway's reports about itself, on standard error, one line for each event.

use super::{Level, h2_words};
use crate::clock;
use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::{self as format, MakeWriter};
use tracing_subscriber::layer::SubscriberExt as _;

/// Overrides the level of the file. A comma separates levels, and levels of modules: `debug`, `info,hyper=debug`.
pub const VARIABLE: &str = "TOLLGATE_LOG";

/// Starts the log for the whole process; a second call changes nothing.
///
/// # Errors
/// If [`VARIABLE`] is set to a text that is not a filter. The log has started nevertheless, at `level`.
pub fn start(level: Level) -> Result<(), BadFilter> {
    let asked = std::env::var(VARIABLE)
        .ok()
        .filter(|asked| !asked.is_empty());
    let filter = asked.as_deref().map(str::parse::<Targets>).transpose();
    let (filter, outcome) = match filter {
        Ok(filter) => (filter, Ok(())),
        Err(error) => (None, Err(BadFilter(error.to_string()))),
    };
    let lines = format::layer()
        .with_target(false)
        .with_ansi(io::stderr().is_terminal() && may_colour())
        .with_writer(StderrLines);
    let filter = filter.map_or_else(|| ordinary(level), |asked| effective(asked, level));
    let subscriber = tracing_subscriber::registry()
        .with(lines.with_filter(filter))
        .with(h2_words::listener());
    // The call fails only if a subscriber exists already: in tests, which share a process.
    let _ = tracing::subscriber::set_global_default(subscriber);
    outcome
}

/// Collects the HTTP/2 library's words, for commands that write no log.
pub fn hear_http2() {
    let subscriber = tracing_subscriber::registry().with(h2_words::listener());
    // As above.
    let _ = tracing::subscriber::set_global_default(subscriber);
}

/// The requested filter. If it has levels of modules alone, all others keep the level of the file: a misspelt word,
/// which is read as the name of a module, silences nothing.
fn effective(asked: Targets, level: Level) -> Targets {
    if asked.default_level().is_some() {
        return asked;
    }
    ordinary(level).with_targets(asked)
}

/// [`VARIABLE`] is not a filter.
#[derive(Debug, thiserror::Error)]
#[error("{VARIABLE} is not a log filter: {0}")]
pub struct BadFilter(String);

/// The filter for events of the gateway at `level`. Of libraries it passes only events that may need a person, since
/// most of their events are not about the gateway. HTTP libraries warn of a client's bytes: a client could fill a disk
/// with such warnings, frame by frame.
fn ordinary(level: Level) -> Targets {
    use tracing::level_filters::LevelFilter as Filter;
    let (ours, theirs, frames) = match level {
        Level::Error => (Filter::ERROR, Filter::ERROR, Filter::ERROR),
        Level::Warn => (Filter::WARN, Filter::WARN, Filter::ERROR),
        Level::Info => (Filter::INFO, Filter::WARN, Filter::ERROR),
        Level::Debug => (Filter::DEBUG, Filter::INFO, Filter::INFO),
        Level::Trace => (Filter::TRACE, Filter::TRACE, Filter::TRACE),
    };
    Targets::new()
        .with_default(theirs)
        .with_target("tollgate", ours)
        .with_targets(["h2", "hyper"].map(|library| (library, frames)))
}

/// Does the user let programs use colours (<https://no-color.org>)?
pub(super) fn may_colour() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Standard error, with one line per event for any values in it.
struct StderrLines;

impl<'a> MakeWriter<'a> for StderrLines {
    type Writer = OneLine<io::Stderr>;

    fn make_writer(&'a self) -> Self::Writer {
        OneLine(io::stderr())
    }
}

/// Takes one event at each write, as the formatter writes them.
///
/// A write never fails: the formatter would report a failure on standard error, and a report panics when that is
/// closed.
struct OneLine<W>(W);

impl<W: Write> Write for OneLine<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = event.strip_suffix(b"\n").unwrap_or(event);
        let _ = if text.iter().any(|byte| matches!(byte, b'\n' | b'\r')) {
            self.0.write_all(&joined(text))
        } else {
            self.0.write_all(event)
        };
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let _ = self.0.flush();
        Ok(())
    }
}

fn joined(text: &[u8]) -> Vec<u8> {
    let mut line = Vec::with_capacity(text.len() + 16);
    for byte in text {
        match byte {
            b'\n' => line.extend(br"\n"),
            b'\r' => line.extend(br"\r"),
            _ => line.push(*byte),
        }
    }
    line.push(b'\n');
    line
}

/// Writes a record of an event to this log, whatever its level.
///
/// # Errors
/// If standard error is closed.
pub fn write_record(event: &str, record: &str) -> io::Result<()> {
    let micros = i64::try_from(clock::wall().micros()).unwrap_or(i64::MAX);
    let now = jiff::Timestamp::from_microsecond(micros).unwrap_or(jiff::Timestamp::MAX);
    let line = format!("{now:.6}  INFO {event}: {}", record.trim_end());
    io::stderr().write_all(&joined(line.as_bytes()))
}

/// Passes one message of a kind in an interval and counts the rest. One `static` for each kind:
///
/// ```
/// # use tollgate::telemetry::log::Throttle;
/// # use std::time::Duration;
/// static STORE_AWAY: Throttle = Throttle::every(Duration::from_secs(1));
/// if let Some(more) = STORE_AWAY.pass() {
///     tracing::warn!("the store does not answer{more}");
/// }
/// ```
#[derive(Debug)]
pub struct Throttle {
    interval: Duration,
    /// The time at which the next message may pass, in microseconds of this process.
    next: AtomicU64,
    held: AtomicU64,
}

impl Throttle {
    /// A throttle that lets one message in `interval` through.
    #[must_use]
    pub const fn every(interval: Duration) -> Self {
        Self {
            interval,
            next: AtomicU64::new(0),
            held: AtomicU64::new(0),
        }
    }

    /// `None` if this message must be left out; else the number of messages left out since the last that passed.
    pub fn pass(&self) -> Option<More> {
        self.pass_at(clock::uptime())
    }

    fn pass_at(&self, now: u64) -> Option<More> {
        let next = self.next.load(Ordering::Relaxed);
        let interval = clock::micros(self.interval);
        let after = now.saturating_add(interval);
        let won = now >= next
            && self
                .next
                .compare_exchange(next, after, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if won {
            Some(More(self.held.swap(0, Ordering::Relaxed)))
        } else {
            self.held.fetch_add(1, Ordering::Relaxed);
            None
        }
    }
}

/// A throttle for each cause of one kind of message:
///
/// ```
/// # use tollgate::telemetry::log::Throttles;
/// # use std::time::Duration;
/// static REFUSALS: Throttles<2> = Throttles::every(Duration::from_secs(60));
/// if let Some(more) = REFUSALS.pass(1) {
///     tracing::warn!("the second cause{more}");
/// }
/// ```
#[derive(Debug)]
pub struct Throttles<const CAUSES: usize>([Throttle; CAUSES]);

impl<const CAUSES: usize> Throttles<CAUSES> {
    /// Throttles that each let one message in `interval` through.
    #[must_use]
    pub const fn every(interval: Duration) -> Self {
        let mut all = [const { Throttle::every(Duration::ZERO) }; CAUSES];
        let mut at = 0;
        while at < CAUSES {
            all[at].interval = interval;
            at += 1;
        }
        Self(all)
    }

    /// [`Throttle::pass`] of this cause. Causes after the last one share its throttle.
    pub fn pass(&self, cause: usize) -> Option<More> {
        self.0.get(cause).or(self.0.last())?.pass()
    }
}

/// The number of messages that were left out; shown as ` (3 more like this)`, or as an empty text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct More(pub u64);

impl fmt::Display for More {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            more => write!(f, " ({more} more like this)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_in_an_interval_passes_and_tells_of_the_others() {
        let throttle = Throttle::every(Duration::from_secs(1));
        assert_eq!(throttle.pass_at(0), Some(More(0)));
        assert_eq!(throttle.pass_at(10), None);
        assert_eq!(throttle.pass_at(999_999), None);
        let more = throttle.pass_at(1_000_000).unwrap();
        assert_eq!(more.to_string(), " (2 more like this)");
        assert_eq!(throttle.pass_at(2_000_000), Some(More(0)));
        assert_eq!(More(0).to_string(), "");
    }

    #[test]
    fn each_cause_is_told_by_itself() {
        let throttles: Throttles<2> = Throttles::every(Duration::from_secs(1000));
        assert_eq!(throttles.pass(0), Some(More(0)));
        assert_eq!(throttles.pass(1), Some(More(0)));
        assert_eq!(throttles.pass(0), None);
        assert_eq!(throttles.pass(9), None);
    }

    #[test]
    fn an_event_is_one_line() {
        let mut out = Vec::new();
        OneLine(&mut out).write_all(b"a\nb\r\nc\n").unwrap();
        OneLine(&mut out).write_all(b"d\n").unwrap();
        assert_eq!(out, b"a\\nb\\r\\nc\nd\n");
    }

    #[test]
    fn libraries_are_heard_of_less_than_the_gateway() {
        use tracing::Level as Event;
        for (level, target, most) in [
            (Level::Error, "tollgate::telemetry::log", Event::ERROR),
            (Level::Info, "tollgate::telemetry::log", Event::INFO),
            (Level::Info, "rustls", Event::WARN),
            (Level::Info, "hyper::proto::h1", Event::ERROR),
            (Level::Warn, "h2::codec", Event::ERROR),
            (Level::Debug, "hyper::proto::h1", Event::INFO),
            (Level::Trace, "h2::codec", Event::TRACE),
        ] {
            let filter = ordinary(level);
            let loudest = [
                Event::TRACE,
                Event::DEBUG,
                Event::INFO,
                Event::WARN,
                Event::ERROR,
            ]
            .into_iter()
            .find(|event| filter.would_enable(target, event));
            assert_eq!(loudest, Some(most), "{level:?} {target}");
        }
    }

    #[test]
    fn a_filter_is_a_level_and_levels_of_modules() {
        let filter: Targets = "info,hyper=debug".parse().unwrap();
        assert!(filter.would_enable("tollgate::telemetry", &tracing::Level::INFO));
        assert!(!filter.would_enable("tollgate::telemetry", &tracing::Level::DEBUG));
        assert!(filter.would_enable("hyper::proto", &tracing::Level::DEBUG));
        assert!("info,hyper=loud".parse::<Targets>().is_err());
    }

    #[test]
    fn a_word_that_is_no_level_silences_nothing() {
        for asked in ["nonsense", "hyper=debug"] {
            let filter = effective(asked.parse().unwrap(), Level::Warn);
            assert!(filter.would_enable("tollgate::telemetry", &tracing::Level::WARN));
            assert!(!filter.would_enable("tollgate::telemetry", &tracing::Level::INFO));
        }
        let filter = effective("error,hyper=debug".parse().unwrap(), Level::Warn);
        assert!(!filter.would_enable("tollgate::telemetry", &tracing::Level::WARN));
    }
}
