//! The scripts as a library of functions, for operators that want the scripts kept with the data: on disk, and on every
//! replica before it becomes the master.
//!
//! A function's name is unique in the whole server, so it carries a digest of the library and the script's own name.
//! Gateways of two versions keep their libraries beside each other.

use super::script;
use crate::store::error::StoreError;
use bb8_redis::redis::{Arg, Cmd};
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;
use std::sync::LazyLock;

static LIBRARY: LazyLock<Library> = LazyLock::new(Library::new);

struct Library {
    /// Letters, digits and `_`, the characters that servers allow.
    name: String,
    text: String,
}

impl Library {
    fn new() -> Self {
        let mut digest = Sha256::new();
        for script in script::ALL {
            digest.update(script.digest());
        }
        let mut name = "tollgate_".to_owned();
        for byte in digest.finalize().iter().take(8) {
            // Writing into a string cannot fail.
            let _ = write!(name, "{byte:02x}");
        }
        let mut text = format!("#!lua name={name}\n");
        for script in script::ALL {
            let _ = writeln!(
                text,
                "redis.register_function('{name}_{}', function(KEYS, ARGV)\n{}\nend)",
                script.digest(),
                script.text(),
            );
        }
        Self { name, text }
    }
}

/// The command that asks for the library.
pub(crate) fn find() -> Cmd {
    let mut command = Cmd::new();
    command.arg("FUNCTION").arg("LIST");
    command.arg("LIBRARYNAME").arg(&LIBRARY.name);
    command
}

/// The command that writes the library. Another gateway that does so at the same time writes the same text.
pub(crate) fn load() -> Cmd {
    let mut command = Cmd::new();
    command.arg("FUNCTION").arg("LOAD");
    command.arg("REPLACE").arg(&LIBRARY.text);
    command
}

/// The command that writes the library where it is missing. The server refuses it where the library is there.
pub(crate) fn remind() -> Cmd {
    let mut command = Cmd::new();
    command.arg("FUNCTION").arg("LOAD").arg(&LIBRARY.text);
    command
}

/// A call of a script as the call of its function.
pub(crate) fn call(script: &Cmd) -> Cmd {
    let mut words = script.args_iter().map(|word| match word {
        Arg::Simple(word) => word,
        _ => b"",
    });
    let _ = words.next();
    let digest = words.next().unwrap_or_default();
    let mut function = format!("{}_", LIBRARY.name).into_bytes();
    function.extend_from_slice(digest);
    let mut command = Cmd::new();
    command.arg("FCALL").arg(function);
    for word in words {
        command.arg(word);
    }
    command
}

/// Does the server answer that the library is not there any more?
pub(crate) fn is_missing(reason: &str) -> bool {
    reason.contains("Function not found")
}

/// Does the server answer that the library is there already?
pub(crate) fn is_there(error: &StoreError) -> bool {
    matches!(error, StoreError::Refused(reason) if reason.contains("already exists"))
}

/// The cause for which a server that knows no functions refuses them.
pub(crate) fn unknown(reason: &str) -> Option<String> {
    let unknown = reason.to_ascii_lowercase().contains("unknown command");
    unknown.then(|| {
        format!("this server has no functions, which Redis 7 and Valkey have: leave `functions` out ({reason})")
    })
}
