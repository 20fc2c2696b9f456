//! `tollgate run`: reads the file, or makes one of the flags, and runs the gateway.

use super::{BAD, GOOD, RunArgs, find_file, no_file, tell};
use crate::config::{self, Compiled};
use crate::{app, telemetry};
use std::path::PathBuf;

pub(super) fn run(args: RunArgs) -> u8 {
    let Some((compiled, file)) = load(args) else {
        return BAD;
    };
    if let Err(error) = telemetry::log::start(compiled.boot.log.level) {
        tell(&format!("error: {error}"));
        return BAD;
    }
    match app::run(compiled, file) {
        Ok(()) => GOOD,
        Err(error) => {
            tell(&format!("error: {error}"));
            BAD
        }
    }
}

/// What to run, and the file to watch; the mistakes have been told when there is nothing.
fn load(args: RunArgs) -> Option<(Compiled, Option<PathBuf>)> {
    let (loaded, file) = if let Some(to) = args.to {
        let quick = config::quick(
            &to,
            args.limit.as_deref(),
            args.listen.as_deref(),
            args.redis.as_deref(),
        );
        (quick, None)
    } else {
        let Some(file) = args.config.or_else(find_file) else {
            no_file();
            return None;
        };
        (config::load(&file), Some(file))
    };
    match loaded {
        Ok(compiled) => {
            for warning in &compiled.warnings {
                tell(&warning.to_string());
            }
            Some((compiled, file))
        }
        Err(report) => {
            tell(report.to_string().trim_end());
            None
        }
    }
}
