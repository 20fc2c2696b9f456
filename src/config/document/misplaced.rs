//! Keys in a table that does not have them: the advice names the table that has the key.

use super::foreign_words::ForeignName;
use super::vocabulary::{Key, Table};
use super::{IGNORE_WARNINGS, INCLUDE, TABLES};
use crate::config::report::{all_of, nearest, one_of};

/// The advice about `name`, which `table` does not have; `foreign` is its meaning at others, `suggestion` the key of the
/// table that is probably meant.
pub(super) fn advice(
    table: &Table,
    name: &str,
    foreign: Option<&ForeignName>,
    suggestion: Option<&Key>,
) -> String {
    if let Some(foreign) = foreign {
        return foreign.advice(Some(table));
    }
    if let Some(key) = suggestion {
        return format!("did you mean `{}`? {}", key.name, key.about);
    }
    if let Some(advice) = clarification(table, name) {
        return advice.to_owned();
    }
    let mut outer = table.keys.iter();
    let outer = outer.find(|key| {
        let mut inner = key.shape().tables().into_iter();
        inner.any(|table| table.key(name).is_some())
    });
    let owners = TABLES.iter().filter(|table| table.key(name).is_some());
    let owners: Vec<String> = owners.map(|owner| owner.title("NAME")).collect();
    match (outer, owners.as_slice()) {
        (Some(outer), _) => format!("`{name}` belongs in a table of `{}`", outer.name),
        (None, []) => elsewhere(table, name),
        (None, owners) => format!("`{name}` belongs under {}", one_of(owners)),
    }
}

/// The advice about keys that have another meaning in other tables.
fn clarification(table: &Table, name: &str) -> Option<&'static str> {
    match (table.name, name) {
        ("routes" | "limits" | "groups" | "defaults" | "response" | "admin" | "log", "tls") => {
            Some(
                "towards clients TLS is a listener's: `listen = { address = \":443\", tls = true }` in `[server]`, with certificates in `[tls.NAME]`; towards servers it is `tls` of `[upstreams.NAME]`",
            )
        }
        ("log", "file") => Some(
            "the log is written to standard output and standard error: the program that starts the gateway can write it to files",
        ),
        _ => None,
    }
}

/// The advice about a name that no table has.
fn elsewhere(table: &Table, name: &str) -> String {
    if name == INCLUDE.name {
        return "`include` belongs at the top of the file, before the first table".to_owned();
    }
    if nearest(name, [IGNORE_WARNINGS.name]).is_some() {
        let name = IGNORE_WARNINGS.name;
        return format!("`{name}` belongs in tables of the top level, or at the top of the file");
    }
    let names: Vec<&str> = table.keys.iter().map(|key| key.name).collect();
    format!("{} has {}", table.noun, all_of(&names))
}
