//! The scripts of `lua/`, put together: their text, their digest, and the commands that load and call them.

use bb8_redis::redis::{self, Cmd, cmd};
use std::sync::LazyLock;

/// Decides a batch of requests by the algorithms that most limits have. A script is built anew for each call, so that
/// what it does not contain costs nothing.
pub(super) static DECIDE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(
        include_str!("../../../lua/prelude.lua"),
        include_str!("../../../lua/bucket.lua"),
        include_str!("../../../lua/token_bucket.lua"),
        include_str!("../../../lua/leaky_bucket.lua"),
        include_str!("../../../lua/fixed_window.lua"),
        include_str!("../../../lua/decide.lua"),
    ))
});

/// Decides a batch of requests by any algorithm.
pub(super) static DECIDE_ANY: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(
        include_str!("../../../lua/prelude.lua"),
        include_str!("../../../lua/bucket.lua"),
        include_str!("../../../lua/token_bucket.lua"),
        include_str!("../../../lua/leaky_bucket.lua"),
        include_str!("../../../lua/fixed_window.lua"),
        include_str!("../../../lua/clock_window.lua"),
        include_str!("../../../lua/sliding_window.lua"),
        include_str!("../../../lua/sliding_log.lua"),
        include_str!("../../../lua/concurrency.lua"),
        include_str!("../../../lua/partial.lua"),
        include_str!("../../../lua/decide.lua"),
    ))
});

/// Decides a batch in which some requests have ids that are charged once.
pub(super) static DECIDE_ONCE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(
        include_str!("../../../lua/prelude.lua"),
        include_str!("../../../lua/bucket.lua"),
        include_str!("../../../lua/token_bucket.lua"),
        include_str!("../../../lua/leaky_bucket.lua"),
        include_str!("../../../lua/fixed_window.lua"),
        include_str!("../../../lua/clock_window.lua"),
        include_str!("../../../lua/sliding_window.lua"),
        include_str!("../../../lua/sliding_log.lua"),
        include_str!("../../../lua/concurrency.lua"),
        include_str!("../../../lua/partial.lua"),
        include_str!("../../../lua/dedupe.lua"),
        include_str!("../../../lua/decide.lua"),
    ))
});

/// Every script: what a connection loads.
pub(super) static ALL: [&LazyLock<Script>; 4] = [&DECIDE, &DECIDE_ANY, &DECIDE_ONCE, &REFUND];

/// Gives back a batch of charges.
pub(super) static REFUND: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(
        include_str!("../../../lua/prelude.lua"),
        include_str!("../../../lua/refund.lua"),
    ))
});

/// One script as the server knows it.
#[derive(Debug)]
pub(super) struct Script {
    text: &'static str,
    digest: String,
}

impl Script {
    fn new(text: &'static str) -> Self {
        let digest = redis::Script::new(text).get_hash().to_owned();
        Self { text, digest }
    }

    /// By `SCRIPT LOAD`: newer servers forget scripts that came by `EVAL`.
    pub(super) fn load(&self) -> Cmd {
        let mut command = cmd("SCRIPT");
        command.arg("LOAD").arg(self.text);
        command
    }

    /// The head of a call with `keys` keys; they follow, then the arguments, of about `size` bytes in all.
    pub(super) fn call(&self, keys: usize, size: usize) -> Cmd {
        let mut command = Cmd::with_capacity(keys + 6, size + self.digest.len() + 16);
        command.arg("EVALSHA").arg(&self.digest).arg(keys);
        command
    }
}
