//! The outside view of the gateway: metrics, the access log, the diagnostic log.
//!
//! In: plain values. Out: metrics, the access log, the diagnostic log.
//!
//! ```text
//! metrics      cells of each worker, summed at a scrape
//! access_log   one line a request
//! log          the gateway's reports about itself
//! h2_refusals  heads that the HTTP/2 library refuses
//! h2_words     its debug events, the only report of them
//! printable    text made safe for a terminal
//! urls         URLs without what may be secret
//! ```

pub mod access_log;
pub mod h2_refusals;
pub mod h2_words;
pub mod log;
pub mod metrics;
mod printable;
mod urls;

pub use printable::{excerpt, printable, printable_in_place, printable_json, printable_line};
pub use urls::{query, shown_url, urls, without_queries};

/// The extent and the form of the logs. Read once, at start.
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
    /// No access log.
    Off,
}

/// Severity of the diagnostic log, on standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Only events that need a person.
    Error,
    /// Also events that may need a person.
    Warn,
    /// Also ordinary events.
    Info,
    /// Also the causes of events.
    Debug,
    /// All events.
    Trace,
}
