//! `tollgate check`: is the file right, and what does it mean? (Being built: only errors are told.)

use std::path::Path;

/// How to report.
#[derive(Debug, Clone, Copy)]
pub enum Format {
    /// For people.
    Human,
    /// For programs.
    Json,
}

/// Checks `file`; returns the exit code.
pub fn check(file: &Path, _format: Format, _deny_warnings: bool) -> u8 {
    match crate::config::load(file) {
        Ok(_) => 0,
        Err(report) => {
            super::tell(&report.human(crate::config::render::Colour::of_stderr()));
            1
        }
    }
}
