//! `tollgate run`: reads the file, or makes one of the flags, and runs the gateway.

use super::{BAD, Failure, RunArgs, USAGE, find_file, warn, warn_of};
use crate::config::{self, Compiled, QuickStart};
use crate::{app, telemetry};
use std::path::PathBuf;

pub(super) fn run(args: RunArgs) -> Result<(), Failure> {
    let (compiled, file) = load(args)?;
    if let Err(error) = telemetry::log::start(compiled.boot.log.level) {
        warn(&format!("warning: {error}"));
    }
    app::run(compiled, file).map_err(|error| Failure::new(BAD, error))
}

/// The configuration to run, and the file to watch.
fn load(args: RunArgs) -> Result<(Compiled, Option<PathBuf>), Failure> {
    let (loaded, file) = if let Some(to) = args.to {
        let flags = QuickStart {
            to: &to,
            limit: args.limit.as_deref(),
            listen: args.listen.as_deref(),
            redis: args.redis.as_deref(),
        };
        (flags.compile(), None)
    } else {
        let file = args.config.map_or_else(find_file, Ok)?;
        (config::load(&file), Some(file))
    };
    // Without a file the mistake is in the flags.
    let code = if file.is_some() { BAD } else { USAGE };
    let compiled = loaded.map_err(|report| Failure::report(code, &report))?;
    warn_of(&compiled.report());
    Ok((compiled, file))
}
