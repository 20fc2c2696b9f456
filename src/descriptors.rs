//! Open files: as many as the system allows.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the bound on open files to what the system allows without asking anybody, and returns what it is then; nothing
/// where there is none.
///
/// The lower bound that most systems start a program with is for programs that still ask `select`, which knows no
/// descriptor above 1023. Nothing here does.
#[must_use]
pub fn raise() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return current;
    }
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => maximum,
        // Some systems allow less than they say.
        Err(_) => current,
    }
}
