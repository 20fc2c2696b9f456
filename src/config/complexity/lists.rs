//! A file for each list that the schema has.
//!
//! ```text
//! decisions     lists of limits, groups and routes
//! surroundings  lists of listeners, tokens, servers, certificates and included files
//! ```

mod decisions;
mod surroundings;

use decisions::DECISIONS;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use surroundings::SURROUNDINGS;

/// A list, and files in which it is long.
pub(super) struct List {
    /// The list's path in the schema, or the name of a case that the schema lacks.
    pub(super) name: &'static str,
    /// Is such a file valid? A list that can have only a few different entries repeats them, which is a mistake.
    pub(super) is_good: bool,
    text: fn(usize) -> String,
}

impl List {
    /// A file with this number of entries.
    pub(super) fn file(&self, many: usize) -> String {
        (self.text)(many)
    }
}

/// The name under which a path of the schema is tested: a key may take one entry in place of a list of entries.
pub(super) fn one_name(path: &str) -> String {
    let path = path
        .replace("include[].", "include.")
        .replace("listen[].", "listen.");
    path.replace(".client[]", ".client.ca[]")
}

/// Writes the files that the tested files name.
pub(super) fn put_files(folder: &Path) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config");
    for (from, to) in [
        ("tls/api.pem", "c.pem"),
        ("tls/api.key", "k.pem"),
        ("tls/clients.pem", "ca.pem"),
        ("tls/list.pem", "crl.pem"),
        ("jwt/hs.secret", "hs.secret"),
    ] {
        fs::copy(root.join(from), folder.join(to)).unwrap();
    }
    fs::create_dir(folder.join("inc")).unwrap();
    fs::write(folder.join("inc/a.toml"), "").unwrap();
    fs::write(folder.join("keys"), "a-key\n").unwrap();
    fs::write(folder.join("customers"), "acme a-key\n").unwrap();
}

fn each(many: usize, one: impl Fn(usize) -> String) -> String {
    (0..many).map(one).collect()
}

/// `["a", "b"]`
fn array(many: usize, one: impl Fn(usize) -> String) -> String {
    let mut text = "[".to_owned();
    for n in 0..many {
        let _ = write!(text, "\"{}\", ", one(n));
    }
    text.push(']');
    text
}

const UPSTREAM: &str = "[upstreams.u]\nservers = \"127.0.0.1:3000\"\n";
const ROUTE: &str = "[upstreams.u]\nservers = \"127.0.0.1:3000\"\n[routes.r]\nupstream = \"u\"\n";
const LIMITED: &str =
    "[upstreams.u]\nservers = \"127.0.0.1:3000\"\n[routes.r]\nupstream = \"u\"\nlimits = [\"l\"]\n";

fn address(n: usize) -> String {
    format!("10.{}.{}.{}", n >> 16, n >> 8 & 255, n & 255)
}

fn limits(many: usize) -> String {
    each(many, |n| {
        format!("[limits.l{n}]\nby = \"ip\"\nrate = \"1/s\"\n")
    })
}

fn limit_names(many: usize) -> String {
    array(many, |n| format!("l{n}"))
}

const GOOD: bool = true;
const BAD: bool = false;

/// The name of a list, whether its files are valid, and a function that makes a file with a given number of entries.
type Row = (&'static str, bool, fn(usize) -> String);

/// Every list.
pub(super) fn all_lists() -> Vec<List> {
    let all = DECISIONS.iter().chain(SURROUNDINGS);
    let all = all.map(|(name, is_good, text)| List {
        name,
        is_good: *is_good,
        text: *text,
    });
    all.collect()
}

/// Tables with a limit that causes a warning and ignores the warning. Each limit has every key that is compared with
/// other tables.
pub(super) fn ignored_warning(n: usize) -> String {
    format!(
        "[limits.l{n}]\nby = \"ip\"\nrate = \"${{NOT_SET:-{n}}}1/min\"\nburst = 5\nalgorithm = \"leaky-bucket\"\nmax_wait = \"1min\"\n\
         public_name = \"n{n}\"\ncandidate = {{ rate = \"9/min\" }}\nexempt = {{ methods = [\"OPTIONS\"] }}\n\
         ignore_warnings = [\"waits-longer\"]\n\
         [upstreams.u{n}]\nservers = \"a:1\"\n\
         [routes.r{n}]\npath = \"/r{n}\"\nupstream = \"u{n}\"\nlimits = [\"l{n}\"]\n"
    )
}
