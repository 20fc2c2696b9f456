//! What is seen from outside: metrics, the access log, the diagnostic log.

pub mod access_log;
pub mod log;
pub mod metrics;
mod printable;

pub use printable::{printable, printable_in_place, printable_json};

/// How much the logs have, and in which form. Read once, at start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogSettings {
    /// Form of the access log.
    pub access: AccessFormat,
    /// Least severe event of the diagnostic log.
    pub level: Level,
}

/// Form of the access log, on standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessFormat {
    /// One JSON object a line.
    Json,
    /// One short line for people.
    Short,
    /// Apache combined.
    Combined,
    /// Nothing.
    Off,
}

/// Severity of the diagnostic log, on standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Only what needs a person.
    Error,
    /// What may need one.
    Warn,
    /// What happened.
    Info,
    /// Why.
    Debug,
    /// Everything.
    Trace,
}
