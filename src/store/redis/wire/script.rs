//! The scripts of `lua/`, assembled: their text, their digest, and the commands that load and call them.

use bb8_redis::redis::{self, Arg, Cmd, cmd};
use std::sync::LazyLock;

/// The texts of some files of `lua/`.
macro_rules! files {
    ($($name:literal)*) => {
        [$(include_str!(concat!("../../../../lua/", $name, ".lua"))),*]
    };
}

/// The files of every algorithm, then the rest.
macro_rules! every_algorithm {
    ($($rest:literal)*) => {
        files!(
            "prelude" "bucket" "token_bucket" "leaky_bucket" "fixed_window" "clock_window"
            "sliding_window" "sliding_log" "concurrency" $($rest)*
        )
    };
}

/// The line of a file before its refunds: the code that gives charges back follows.
const REFUNDS: &str = "\n-- == refund ==\n";

/// The line in place of which a bucket under other numbers is decided. The code is needed rarely, and then built in the
/// call that needs it.
const CHANGED: &str = "-- == changed ==\n";

/// The line in place of which a limit is decided whose refusals block the key.
const BLOCKING: &str = "-- == blocking ==\n";

/// The code that knows blocked keys, once in a call.
fn with_blocking(script: &str) -> String {
    let [blocking] = files!("blocking");
    script.replace(
        BLOCKING,
        &format!("if not blocking then\n{blocking}\nend\n"),
    )
}

/// The code that decides a bucket under other numbers, once in a call.
fn with_changed(script: &str) -> String {
    let [changed] = files!("changed");
    script.replace(CHANGED, &format!("if not changed then\n{changed}\nend\n"))
}

/// The deciding part of each file: all of it, or the part before its refunds.
fn decisions(files: &[&str]) -> String {
    let parts = files
        .iter()
        .map(|file| file.split_once(REFUNDS).map_or(*file, |(part, _)| part));
    with_changed(&parts.collect::<Vec<_>>().join("\n"))
}

/// The refunding part of each file: all of it, or its refunds.
fn refunds(files: &[&str]) -> String {
    let parts = files
        .iter()
        .map(|file| file.split_once(REFUNDS).map_or(*file, |(_, part)| part));
    parts.collect::<Vec<_>>().join("\n")
}

/// Decides a batch of requests by the algorithms that most limits use. Redis builds a script anew for each call, so
/// that code that a script does not contain costs nothing.
pub(super) static DECIDE: LazyLock<Script> =
    LazyLock::new(|| Script::new(&decisions(&files!("short"))));

/// Decides a batch of requests by any algorithm.
pub(super) static DECIDE_ANY: LazyLock<Script> = LazyLock::new(|| {
    Script::new(&decisions(
        &every_algorithm!("partial" "history" "settlement" "check" "single" "batch" "all" "equal" "decide"),
    ))
});

/// Decides a batch in which some requests have ids that are charged once, or keys that may be blocked.
pub(super) static DECIDE_ONCE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(&with_blocking(&decisions(
        &every_algorithm!("partial" "history" "settlement" "dedupe" "check" "single" "batch" "all" "equal" "decide"),
    )))
});

/// Decides a batch in which some limits do not decide, and are only counted in addition to the deciding limits.
pub(super) static DECIDE_SHADOW: LazyLock<Script> = LazyLock::new(|| {
    Script::new(&with_blocking(&decisions(
        &every_algorithm!("partial" "history" "settlement" "dedupe" "check" "batch" "shadow"),
    )))
});

/// Every script that a connection loads.
pub(crate) static ALL: [&LazyLock<Script>; 5] =
    [&DECIDE, &DECIDE_ANY, &DECIDE_ONCE, &DECIDE_SHADOW, &REFUND];

/// Gives back a batch of charges.
pub(super) static REFUND: LazyLock<Script> = LazyLock::new(|| {
    let refunds = refunds(&files!(
        "prelude" "bucket" "leaky_bucket" "fixed_window" "sliding_window" "sliding_log"
        "concurrency" "history" "settlement" "dedupe" "refund"
    ));
    Script::new(&(decisions(&files!("prelude")) + &refunds))
});

/// Reads and adds what operators have changed. It is called about once a second, so that no connection loads it.
pub(crate) static CHANGES: LazyLock<Script> = LazyLock::new(|| {
    let [changes] = files!("changes");
    Script::new(changes)
});

/// One script in the server's form.
#[derive(Debug)]
pub(crate) struct Script {
    text: String,
    digest: String,
}

impl Script {
    /// Comments are removed: a server reads no more than 16 KiB from a client that has not logged in, and would not
    /// name the cause of its refusal of a longer script.
    fn new(text: &str) -> Self {
        let code = text
            .lines()
            .filter(|line| !line.trim_start().starts_with("--"));
        let text = code.collect::<Vec<_>>().join("\n");
        let digest = redis::Script::new(&text).get_hash().to_owned();
        Self { text, digest }
    }

    /// The script that a call by `EVALSHA` names.
    pub(crate) fn of(call: &Cmd) -> Option<&'static Self> {
        let Arg::Simple(digest) = call.args_iter().nth(1)? else {
            return None;
        };
        let mut all = ALL.iter().map(|script| -> &'static Self { script });
        all.find(|script| script.digest.as_bytes() == digest)
    }

    /// The script's name in a call by `EVALSHA`.
    pub(crate) fn digest(&self) -> &str {
        &self.digest
    }

    /// The script's text.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The command that loads the script, by `SCRIPT LOAD`: newer servers forget scripts that were sent by `EVAL`.
    pub(crate) fn load(&self) -> Cmd {
        let mut command = cmd("SCRIPT");
        command.arg("LOAD").arg(&self.text);
        command
    }

    /// The head of a call with `keys` keys, of about `size` bytes in all. The keys follow, then the arguments.
    pub(crate) fn call(&self, keys: usize, size: usize) -> Cmd {
        let mut command = Cmd::with_capacity(keys + 6, size + self.digest.len() + 16);
        command.arg("EVALSHA").arg(&self.digest).arg(keys);
        command
    }
}
