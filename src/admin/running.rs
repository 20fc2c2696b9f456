//! What the admin listener shows of the file in force. The program knows it: this room sees no file.

use super::answers::limits::LimitDetails;
use super::answers::problem::Problem;
use super::answers::routing::RouteAnswer;
use super::answers::settings::{ConfigAnswer, ReloadAnswer};
use super::answers::status::LastReload;
use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;

/// The outcome of a reload, as it comes.
pub type Reloading<'a> = Pin<Box<dyn Future<Output = Result<ReloadAnswer, Problem>> + Send + 'a>>;

/// The file in force, in short.
#[derive(Debug, Clone)]
pub struct RunningFacts {
    /// The number of the configuration.
    pub generation: u64,
    /// The beginning of SHA-256 of its text.
    pub hash: String,
    /// The instant since which it is in force.
    pub loaded_at: String,
    /// `file` or `flags`.
    pub source: &'static str,
    /// The last reload, if there was one.
    pub last_reload: Option<LastReload>,
}

/// The file in force.
pub trait RunningFile: Debug + Send + Sync {
    /// The file in short. The first call after a reload may take a moment.
    fn facts(&self) -> RunningFacts;
    /// Every limit, in the order of the file.
    fn limits(&self) -> Vec<LimitDetails>;
    /// Every route, in the order of the file.
    fn routes(&self) -> Vec<RouteAnswer>;
    /// The text of the file, as it is understood.
    fn text(&self) -> ConfigAnswer;
    /// Reads the file again.
    fn reload(&self) -> Reloading<'_>;
}
