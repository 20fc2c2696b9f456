//! Every key the file can have: one table that unknown keys are held against, and that the reference page and the
//! editors' schema are made from.

mod reference;
mod schema;
mod tables;

pub use reference::reference;
pub use schema::schema;
pub use tables::{
    ADMIN, DEFAULTS, GROUPS, IGNORE_WARNINGS, INCLUDE, INCLUDE_ENTRY, JWT, JWT_KEY,
    LIMIT_CANDIDATE, LIMIT_COST, LIMIT_COST_LATER, LIMIT_DEDUPE, LIMIT_EXEMPT, LIMIT_RATE,
    LIMIT_TIER, LIMITS, LOG, RESPONSE, ROUTE_FIELDS, ROUTE_REDIRECT, ROUTE_RESPOND, ROUTES, SERVER,
    STORE, STORE_SENTINEL, STORE_TLS, TABLES, UPSTREAMS,
};

/// A table of the file.
#[derive(Debug, PartialEq, Eq)]
pub struct Table {
    /// Its name at the top level.
    pub name: &'static str,
    /// Is each of its tables one thing with a name of its own, as in `[limits.NAME]`?
    pub named: bool,
    /// What one of it is called in a sentence.
    pub noun: &'static str,
    /// What it is for.
    pub about: &'static str,
    /// Its keys.
    pub keys: &'static [Key],
    /// Keys that are known by name and not taken in this version.
    pub later: &'static [&'static str],
}

/// A key of a table.
#[derive(Debug, PartialEq, Eq)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// What it takes.
    pub shape: Shape,
    /// What holds without it.
    pub default: Default,
    /// What it does, in one sentence.
    pub about: &'static str,
    /// A value, as written in the file.
    pub example: &'static str,
    /// Taken over by a reload; else it needs a restart.
    pub live: bool,
}

/// What holds where a key is not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Default {
    /// Nothing does: the key must be written.
    Required,
    /// Nothing does: it must be written, or one of these.
    Unless(&'static [&'static str]),
    /// This value, as written in the file.
    Value(&'static str),
    /// What these words say.
    Words(&'static str),
}

/// What a key takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// A text.
    Text,
    /// A text or a list of them.
    Texts,
    /// A file, a table of a file and the id of its keys, or a list of them.
    KeyFiles,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// One of these words, or a list of them.
    Choices(&'static [&'static str]),
    /// A whole number in this range.
    Whole {
        /// From.
        least: u64,
        /// To.
        most: u64,
    },
    /// A number with a unit of time.
    Duration,
    /// A number of bytes in a second, or 0.
    ByteRate,
    /// N/TIME, or a list of them.
    Rate,
    /// Yes or no.
    Flag,
    /// A whole number from 1, or the field that has it.
    Cost,
    /// `auto`, `off`, or how many.
    Lease,
    /// The field with an id, and how long that is remembered.
    Dedupe,
    /// Whom a limit does not hold for.
    Exempt,
    /// Numbers to be counted beside a limit's own.
    Candidate,
    /// Names of groups, each with other numbers of a limit.
    Tiers,
    /// A text, or where to find it.
    Secret,
    /// Names, each with a text or `true`.
    Conditions,
    /// Names of fields, each with a text.
    Lines,
    /// Fields to set, to add and to remove.
    Changes,
    /// Where a redirect leads.
    Redirect,
    /// What is answered.
    Respond,
    /// Files to take in, and what they may do.
    Include,
    /// A table with keys of its own.
    Inner(&'static Table),
}

impl Table {
    /// The key called `name`.
    #[must_use]
    pub fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == name)
    }

    /// `[server]` or `[limits.NAME]`.
    #[must_use]
    pub fn title(&self, name: &str) -> String {
        if self.named {
            format!("[{}.{name}]", self.name)
        } else {
            format!("[{}]", self.name)
        }
    }
}

impl Shape {
    /// The whole numbers it takes, from and to, if any.
    #[must_use]
    pub fn range(self) -> Option<(u64, u64)> {
        match self {
            Self::Whole { least, most } => Some((least, most)),
            Self::Cost => Some((1, u64::from(u32::MAX))),
            Self::Lease => Some((2, 1_000_000)),
            _ => None,
        }
    }

    /// Does it take this number?
    #[must_use]
    pub fn holds(self, number: u64) -> bool {
        self.range()
            .is_some_and(|(least, most)| (least..=most).contains(&number))
    }

    /// In a sentence: "takes ...".
    #[must_use]
    pub fn describe(self) -> String {
        match self {
            Self::Text => "a text".into(),
            Self::Texts => "a text or a list of texts".into(),
            Self::KeyFiles => "a file, `{ file = \"2026.pem\", kid = \"2026\" }`, or a list of them".into(),
            Self::Choice(words) => super::suggest::one_of(words),
            Self::Choices(words) => format!("a list of {}", super::suggest::all_of(words)),
            Self::Whole { least, most } if most >= u64::from(u32::MAX) => {
                format!("a whole number from {least}")
            }
            Self::Whole { least, most } => format!("a whole number from {least} to {most}"),
            Self::Duration => "a time with its unit, as `\"250ms\"` or `\"1m30s\"`".into(),
            Self::ByteRate => "bytes in a second, as `\"256B/s\"` or `\"4KiB/s\"`, or 0".into(),
            Self::Rate => "a rate, as `\"100/min\"`, or a list of rates".into(),
            Self::Flag => "`true` or `false`".into(),
            Self::Cost => "a whole number from 1, `{ header = \"x-cost\", max = 50 }`, `{ response_header = \"x-units\" }` or `{ response_json = \"usage.total_tokens\" }`".into(),
            Self::Lease => "`auto`, `off`, or how many permits, from 2 to 1000000".into(),
            Self::Dedupe => {
                "`{ header = \"idempotency-key\", ttl = \"10min\", repeats = 3 }`".into()
            }
            Self::Exempt => {
                "`{ ip = [\"10.0.0.0/8\"], methods = [\"OPTIONS\"], paths = [\"/healthz\"], groups = [\"internal\"] }`"
                    .into()
            }
            Self::Candidate => "`{ rate = \"8/s\", burst = 16 }`".into(),
            Self::Tiers => {
                "a table of groups, each with other numbers, as `{ gold = { rate = \"1000/min\" } }`".into()
            }
            Self::Lines => {
                "a table of names, each with a text, as `{ x-source = \"tollgate\" }`".into()
            }
            Self::Redirect => "a table of `to` and `status`".into(),
            Self::Respond => "a table of `status`, `body` and `content_type`".into(),
            Self::Changes => "a table of `set`, `add` and `remove`".into(),
            Self::Conditions => {
                "a table of names, each with its value or `true`, as `{ x-version = \"2\" }`".into()
            }
            Self::Inner(table) => {
                let names: Vec<&str> = table.keys.iter().map(|key| key.name).collect();
                format!("a table of {}", super::suggest::all_of(&names))
            }
            Self::Include => {
                "a text, a table of `files` and what they may do, or a list of these".into()
            }
            Self::Secret => "a text, `{ file = \"...\" }` or `{ env = \"...\" }`".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With `UPDATE` set the file is written instead.
    fn committed(path: &str, generated: &str) {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
        if std::env::var_os("UPDATE").is_some() {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, generated).unwrap();
        }
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(found, generated, "run the tests with UPDATE=1");
    }

    #[test]
    fn the_committed_reference_is_the_generated_one() {
        committed("docs/configuration.md", &reference());
    }

    #[test]
    fn the_committed_pages_are_the_generated_ones() {
        committed("docs/diagnostics.md", &super::super::pages::diagnostics());
    }

    #[test]
    fn the_committed_schema_is_the_generated_one() {
        committed("gateway.schema.json", &schema());
    }

    #[test]
    fn every_key_is_explained_and_sorted_out() {
        for table in TABLES {
            for key in table.keys {
                assert!(key.about.ends_with('.') && !key.example.is_empty());
                assert!(!table.later.contains(&key.name));
                if let Shape::Inner(inner) = key.shape {
                    assert_eq!(inner.name, format!("{}.{}", table.name, key.name));
                }
            }
        }
    }
}
