//! Takes changes of the file over while the gateway runs. (Being built: only the door is here.)

use crate::config::Compiled;
use std::future::Future;
use std::path::PathBuf;

/// Asks for a reading now.
#[derive(Debug)]
pub struct Trigger;

impl Trigger {
    /// Reads the file again, changed or not.
    pub fn pull(&self) {}
}

/// A trigger and what hears it.
#[must_use]
pub fn trigger() -> (Trigger, ()) {
    (Trigger, ())
}

/// What becomes of a reading.
pub trait Apply {
    /// A good one.
    fn apply(&mut self, compiled: Compiled) -> impl Future<Output = ()>;
    /// A bad one; it has been reported.
    fn refused(&mut self);
}

/// Watches the file.
#[derive(Debug)]
pub struct Watcher;

impl Watcher {
    /// Of `file`.
    #[must_use]
    pub fn new(_file: PathBuf, _pulled: ()) -> Self {
        Self
    }

    /// Until the program ends.
    pub async fn run(self, _apply: impl Apply) {}
}
