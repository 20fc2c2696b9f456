//! The differences between two readings of the file, in words.

mod groups;
mod identities;
mod limits;
mod store;
mod taken_away;

#[cfg(test)]
mod tests;

pub use super::outline::Outline;
#[cfg(test)]
pub(crate) use taken_away::COMPARED;
pub use taken_away::taken_away;

use super::outline::{Boot, RouteOutline, ShownValue, TokenOutline, UpstreamOutline, list};
use crate::config::document::vocabulary::{Compare, Table};
use crate::config::document::{JWT, ROUTES, TABLES, UPSTREAMS};
use crate::config::secrets::{Numbering, Secrets};
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

/// One difference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChange {
    /// `limits.per-ip`.
    pub subject: String,
    /// `rate 10/s to 20/s, units used stay used`.
    pub what: String,
    /// The change takes effect only after a restart of the gateway.
    pub restart: bool,
}

impl FileChange {
    fn live(subject: impl Into<String>, what: impl Into<String>) -> Self {
        Self {
            subject: subject.into(),
            what: what.into(),
            restart: false,
        }
    }

    /// A change of a setting that is read once. The value in use is shown, unless the value may be a secret.
    fn restart(subject: impl Into<String>, still: Option<&str>) -> Self {
        let what = "changed, needs a restart";
        Self {
            subject: subject.into(),
            what: still.map_or(what.to_owned(), |still| format!("{what}; still {still}")),
            restart: true,
        }
    }
}

impl fmt::Display for FileChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.subject, self.what)
    }
}

/// The changes from `old` to `new`: identities, groups, limits, upstreams, routes, then other settings.
///
/// `running` has the settings with which the process was started: they apply until a restart, independent of reloads.
#[must_use]
pub fn diff(old: &Outline, new: &Outline, running: &Boot) -> Vec<FileChange> {
    let mut changes = Vec::new();
    identities::identities(old, new, &mut changes);
    groups::groups(old, new, &mut changes);
    limits::limits(old, new, &mut changes);
    upstreams(old, new, &mut changes);
    routes(old, new, &mut changes);
    for (subject, compare) in keys() {
        if let Compare::Gateway(of) = compare
            && let (Some(old), Some(new)) = (of(old), of(new))
            && let Some(what) = difference(&old, &new)
        {
            changes.push(FileChange::live(subject, what));
        }
    }
    if let Some(what) = tokens(old.jwt.as_ref(), new.jwt.as_ref()) {
        changes.push(FileChange::live("jwt", what));
    }
    store::compare(&running.store.source, &new.boot.store.source, &mut changes);
    for (subject, compare) in keys() {
        if let Compare::Restart(of) = compare
            && let (Some(now), Some(new)) = (of(running), of(&new.boot))
            && now != new
        {
            changes.push(FileChange::restart(subject, Some(&now.text)));
        }
    }
    let secrets = [&old.boot, &new.boot, running].map(|boot| &*boot.secrets);
    mask(&Secrets::of_all(&secrets), &mut changes);
    changes
}

/// Every key of the top level, as `server.listen`.
fn keys() -> impl Iterator<Item = (String, Compare)> {
    TABLES.into_iter().flat_map(|table| {
        let keys = table.keys.iter();
        keys.map(|key| (format!("{}.{}", table.name, key.name), key.compare))
    })
}

fn upstreams(old: &Outline, new: &Outline, changes: &mut Vec<FileChange>) {
    let name = |one: &UpstreamOutline| one.upstream.name.to_string();
    let all = Collection::new("upstreams", &old.upstreams, &new.upstreams, name);
    all.compare(changes, |old, new| {
        joined(&differences(&UPSTREAMS, |compare| match compare {
            Compare::Upstream(of) => Some((of(old)?, of(new)?)),
            _ => None,
        }))
    });
}

fn routes(old: &Outline, new: &Outline, changes: &mut Vec<FileChange>) {
    let name = |one: &RouteOutline| one.rule.name.to_string();
    let all = Collection::new("routes", &old.routes, &new.routes, name);
    all.compare(changes, |old, new| {
        joined(&differences(&ROUTES, |compare| match compare {
            Compare::Route(of) => Some((of(old)?, of(new)?)),
            _ => None,
        }))
    });
}

/// Replaces secrets by stars; the stars of a new secret differ from the stars of the secret that it replaced.
fn mask(secrets: &Secrets, changes: &mut [FileChange]) {
    let mut numbering = Numbering::default();
    for change in changes {
        if let Cow::Owned(shown) = secrets.number(&change.what, &mut numbering) {
            change.what = shown;
        }
    }
}

fn to(old: &dyn fmt::Display, new: &dyn fmt::Display) -> String {
    format!("{old} to {new}")
}

/// `10/s to 20/s`; `changed: a file` if the shown texts are equal but the whole values differ.
fn difference(old: &ShownValue, new: &ShownValue) -> Option<String> {
    if old.text != new.text {
        Some(to(&old.text, &new.text))
    } else if old.whole != new.whole {
        Some(format!("changed: {}", new.text))
    } else {
        None
    }
}

/// `rate 10/s to 20/s` for each key whose two values in `both` differ.
fn differences(
    table: &Table,
    both: impl Fn(Compare) -> Option<(ShownValue, ShownValue)>,
) -> Vec<String> {
    let keys = table.keys.iter();
    keys.filter_map(|key| {
        let (old, new) = both(key.compare)?;
        Some(format!("{} {}", key.name, difference(&old, &new)?))
    })
    .collect()
}

fn joined(parts: &[String]) -> Option<String> {
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// The named tables of one kind from two readings.
struct Collection<'a, T> {
    table: &'static str,
    old: &'a [T],
    new: &'a [T],
    name: fn(&T) -> String,
    /// The report on a removed table.
    gone: &'static str,
    /// The report on an added table.
    come: &'static str,
}

impl<'a, T> Collection<'a, T> {
    fn new(table: &'static str, old: &'a [T], new: &'a [T], name: fn(&T) -> String) -> Self {
        Self {
            table,
            old,
            new,
            name,
            gone: "removed",
            come: "added",
        }
    }

    /// Notes the removed and the added tables, and the report of `compare` on each table that both readings have.
    fn compare(&self, changes: &mut Vec<FileChange>, compare: impl Fn(&T, &T) -> Option<String>) {
        let by_name = |list: &'a [T]| -> HashMap<String, &'a T> {
            list.iter().map(|one| ((self.name)(one), one)).collect()
        };
        let (before, after) = (by_name(self.old), by_name(self.new));
        let mut push = |name: &str, what: String| {
            changes.push(FileChange::live(format!("{}.{name}", self.table), what));
        };
        for name in self.old.iter().map(self.name) {
            if !after.contains_key(&name) {
                push(&name, self.gone.to_owned());
            }
        }
        for one in self.new {
            let name = (self.name)(one);
            let what = match before.get(&name) {
                None => Some(self.come.to_owned()),
                Some(old) => compare(old, one),
            };
            if let Some(what) = what {
                push(&name, what);
            }
        }
    }
}

/// The changes of `[jwt]`.
fn tokens(old: Option<&TokenOutline>, new: Option<&TokenOutline>) -> Option<String> {
    let (old, new) = match (old, new) {
        (None, None) => return None,
        (None, Some(_)) => return Some("added".to_owned()),
        (Some(_), None) => return Some("removed".to_owned()),
        (Some(old), Some(new)) => (old, new),
    };
    let mut parts = differences(&JWT, |compare| match compare {
        Compare::Tokens(of) => Some((of(old)?, of(new)?)),
        _ => None,
    });
    if old.digest != new.digest {
        let files = list(&new.files);
        parts.push(if old.files == new.files {
            format!("the contents of {files} have changed")
        } else {
            format!("keys {}", to(&list(&old.files), &files))
        });
    }
    joined(&parts)
}
