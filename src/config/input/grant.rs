//! The grant of an `include` entry to the files that it includes. An included file belongs to a team, not to the
//! operator: the file can read, drop and claim only the items that its entry grants.

pub(in crate::config) mod refusal;

use super::files::fence::AllowedPaths;
use super::files::glob;
use super::span::{At, Span};
use crate::route::{HostPattern, PathPattern};
use std::collections::HashSet;

/// The grant of one entry. An entry that is a plain text grants nothing and bounds nothing.
#[derive(Debug, Clone, Default)]
pub(in crate::config) struct Grant {
    /// The entry, in the main file.
    pub(in crate::config) span: Span,
    /// The keys of the entry and their values as written, in the order of the file.
    pub(in crate::config) written: Vec<(&'static str, Vec<String>)>,
    /// Hosts that the routes of the files can match; `None` means any host.
    pub(in crate::config) hosts: Option<Vec<HostPattern>>,
    /// Paths that the routes of the files can match; `None` means any path.
    pub(in crate::config) paths: Option<Vec<PathPattern>>,
    /// Files outside the files' own folders that the files can read.
    pub(in crate::config) secrets: Vec<AllowedPaths>,
    /// Patterns of the variables that the files can read.
    pub(in crate::config) variables: GrantedNames,
    /// Patterns of the `[defaults]` limits that the routes of the files can drop.
    pub(in crate::config) drops: GrantedNames,
    /// Patterns of the upstreams of other files that the routes of the files can use.
    pub(in crate::config) upstreams: GrantedNames,
    /// Sockets outside the files' own folders on which the files' servers can listen.
    pub(in crate::config) sockets: Vec<AllowedPaths>,
}

impl Grant {
    /// May the files read the variable with this name?
    pub(in crate::config) fn reads_variable(&self, name: &str) -> bool {
        self.variables.has(name)
    }

    /// May the routes of the files drop the limit with this name?
    pub(in crate::config) fn drops(&self, name: &str) -> bool {
        self.drops.has(name)
    }

    /// May the routes of the files use the upstream with this name, which is defined in another file?
    pub(in crate::config) fn leads_to(&self, name: &str) -> bool {
        self.upstreams.has(name)
    }

    /// Does the entry only name files?
    pub(in crate::config) fn is_plain(&self) -> bool {
        self.written.iter().all(|(key, _)| *key == "files")
    }

    /// The entry that would grant `value` under `key`.
    pub(in crate::config) fn with(&self, key: &'static str, value: &str) -> String {
        self.with_all(key, [value])
    }

    /// The entry that would grant all `values` under `key`.
    pub(in crate::config) fn with_all<'v>(
        &self,
        key: &'static str,
        values: impl IntoIterator<Item = &'v str>,
    ) -> String {
        let values = values.into_iter();
        let values = values.map(|value| format!("{:?}", value.replace('$', "$$")));
        let mut keys = self.written.clone();
        match keys.iter_mut().find(|(known, _)| *known == key) {
            Some((_, there)) => there.extend(values),
            None => keys.push((key, values.collect())),
        }
        entry(&keys)
    }

    /// The entry without its bound on `key`.
    pub(in crate::config) fn without(&self, key: &str) -> String {
        let mut keys = self.written.clone();
        keys.retain(|(known, _)| *known != key);
        entry(&keys)
    }
}

/// Names that are granted, some of them patterns.
#[derive(Debug, Clone, Default)]
pub(in crate::config) struct GrantedNames {
    /// All of them, in the order of the file.
    written: Vec<At<String>>,
    /// The names that are not patterns.
    plain: HashSet<String>,
    patterns: Vec<String>,
}

impl GrantedNames {
    pub(in crate::config) fn new(written: Vec<At<String>>) -> Self {
        let names = written.iter().map(|at| at.value.clone());
        let (patterns, plain): (Vec<String>, Vec<String>) =
            names.partition(|name| glob::is_pattern(name));
        Self {
            written,
            plain: plain.into_iter().collect(),
            patterns,
        }
    }

    fn has(&self, name: &str) -> bool {
        let mut patterns = self.patterns.iter();
        self.plain.contains(name) || patterns.any(|pattern| glob::matches(pattern, name))
    }

    /// The granted names that match none of the `defined` names.
    pub(in crate::config) fn without_effect<'g>(
        &'g self,
        defined: &HashSet<&str>,
    ) -> impl Iterator<Item = &'g At<String>> {
        let is_one = |at: &&At<String>| {
            if glob::is_pattern(&at.value) {
                defined.iter().any(|name| glob::matches(&at.value, name))
            } else {
                defined.contains(at.value.as_str())
            }
        };
        self.written.iter().filter(move |at| !is_one(at))
    }
}

fn entry(keys: &[(&'static str, Vec<String>)]) -> String {
    let keys = keys.iter().map(|(key, values)| match values.as_slice() {
        [only] if *key == "files" => format!("{key} = {only}"),
        values => format!("{key} = [{}]", values.join(", ")),
    });
    let keys: Vec<String> = keys.collect();
    format!("{{ {} }}", keys.join(", "))
}
