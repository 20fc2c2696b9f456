//! The scripts as a library of functions, for operators that want the scripts stored with the data: on disk, and on
//! every replica before its promotion.
//!
//! A function's name is unique in the whole server, so that it contains a digest of the library and the script's own
//! name. Gateways of two versions have separate libraries.

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

/// The command that looks up the library.
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

/// The command that writes the library if missing. The server refuses it if the library is present.
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

/// Does the server answer that the library no longer exists?
pub(crate) fn is_missing(reason: &str) -> bool {
    reason.contains("Function not found")
}

/// Does the server answer that the library already exists?
pub(crate) fn is_there(error: &StoreError) -> bool {
    matches!(error, StoreError::Refused(reason) if reason.contains("already exists"))
}

/// The cause for which a server without functions refuses them.
pub(crate) fn unknown(reason: &str) -> Option<String> {
    let unknown = reason.to_ascii_lowercase().contains("unknown command");
    unknown.then(|| {
        format!("this server has no functions, which Redis 7 and Valkey have: leave `functions` out ({reason})")
    })
}
