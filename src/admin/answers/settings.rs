//! `GET /v1/config` and `POST /v1/reload`: the file as it is understood, and what a reload changed.

use serde::Serialize;

/// The configuration in force.
#[derive(Debug, Serialize)]
pub struct ConfigAnswer {
    /// Its number.
    pub generation: u64,
    /// The beginning of SHA-256 of `text`.
    pub hash: String,
    /// The files that it was read from.
    pub files: Vec<String>,
    /// The file as `tollgate check --print` writes it, with stars in place of secrets.
    pub text: String,
}

/// The outcome of a reload.
#[derive(Debug, Serialize)]
pub struct ReloadAnswer {
    /// The number of the configuration in force.
    pub generation: u64,
    /// Was there nothing to take over?
    pub unchanged: bool,
    /// What has changed since the request, reloads that the gateway began by itself included.
    pub changed: Vec<ChangedSetting>,
    /// The outcome in words, a line for each change.
    pub text: String,
    /// Milliseconds from the request to the outcome.
    pub took_ms: f64,
}

/// A difference between two configurations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ChangedSetting {
    /// `limits.per-ip`.
    pub subject: String,
    /// `rate 10/s to 20/s, units used stay used`.
    pub what: String,
    /// Does it take effect only after a restart?
    pub restart: bool,
}
