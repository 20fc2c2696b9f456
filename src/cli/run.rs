//! `tollgate run`: reads the file, or builds one from the flags, and runs the gateway.

use super::{BAD, CommandFailure, RunArgs, USAGE, find_file, warn, warn_of};
use crate::config::{self, Compiled, QuickStart};
use crate::listen::handed_sockets::HandedSockets;
use crate::{app, telemetry};
use std::path::PathBuf;

pub(super) fn run(args: RunArgs) -> Result<(), CommandFailure> {
    let handed = HandedSockets::take_all().map_err(|error| {
        let text = format!(
            "the sockets that the process was started with (LISTEN_FDS) cannot be taken: {error}"
        );
        CommandFailure::new(BAD, text)
    })?;
    let (compiled, file) = load(args)?;
    if let Err(error) = telemetry::log::start(compiled.boot.log.level) {
        warn(&format!("warning: {error}"));
    }
    app::run(compiled, file, handed).map_err(|error| CommandFailure::new(BAD, error))
}

/// The configuration to run, and the file to watch.
fn load(args: RunArgs) -> Result<(Compiled, Option<PathBuf>), CommandFailure> {
    let (loaded, file) = if let Some(to) = args.to {
        let flags = QuickStart {
            to: &to,
            limit: args.limit.as_deref(),
            listen: args.listen.as_deref(),
            redis: args.redis.as_deref(),
            tls: args.tls.as_deref(),
        };
        (flags.compile(), None)
    } else {
        let file = args.config.map_or_else(find_file, Ok)?;
        (config::load(&file), Some(file))
    };
    // Without a file the mistake is in the flags.
    let code = if file.is_some() { BAD } else { USAGE };
    let compiled = loaded.map_err(|report| CommandFailure::report(code, &report))?;
    warn_of(&compiled.report());
    Ok((compiled, file))
}
