//! `tollgate run`: reads the file, or makes one of the flags, and runs the gateway.

use super::{BAD, GOOD, RunArgs, USAGE, find_file, no_file, tell, told};
use crate::config::{self, Compiled, QuickStart};
use crate::{app, telemetry};
use std::path::PathBuf;

pub(super) fn run(args: RunArgs) -> u8 {
    let (compiled, file) = match load(args) {
        Ok(loaded) => loaded,
        Err(code) => return code,
    };
    if let Err(error) = telemetry::log::start(compiled.boot.log.level) {
        tell(&format!("warning: {error}"));
    }
    match app::run(compiled, file) {
        Ok(()) => GOOD,
        Err(error) => {
            tell(&format!("error: {error}"));
            BAD
        }
    }
}

/// What to run, and the file to watch; or the exit code, and the mistakes have been told.
fn load(args: RunArgs) -> Result<(Compiled, Option<PathBuf>), u8> {
    let (loaded, file) = if let Some(to) = args.to {
        let flags = QuickStart {
            to: &to,
            limit: args.limit.as_deref(),
            listen: args.listen.as_deref(),
            redis: args.redis.as_deref(),
        };
        (flags.compile(), None)
    } else {
        let Some(file) = args.config.or_else(find_file) else {
            no_file();
            return Err(BAD);
        };
        (config::load(&file), Some(file))
    };
    match loaded {
        Ok(compiled) => {
            if !compiled.warnings.is_empty() {
                told(&compiled.report());
            }
            Ok((compiled, file))
        }
        Err(report) => {
            told(&report);
            // Without a file the mistake is in the flags.
            Err(if file.is_some() { BAD } else { USAGE })
        }
    }
}
