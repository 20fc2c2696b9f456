//! The losses between two files, for each key of the schema.

use super::*;
use crate::config::document::vocabulary::{Key, Table};
use crate::config::document::{IGNORE_WARNINGS, INCLUDE, TABLES};

fn written(text: &str) -> Written {
    let (root, errors) = DeTable::parse_recoverable(text);
    assert!(errors.is_empty(), "{text}\n{errors:?}");
    Written::of(root.get_ref())
}

fn lost(before: &str, after: &str) -> Option<String> {
    written(before).first_lost(&written(after))
}

/// Every key of the file, with the heading of its table and with its example.
fn every_key() -> impl Iterator<Item = (String, &'static Key)> {
    let of_table = |table: &'static Table| {
        let title = table.title("n") + "\n";
        table.keys.iter().map(move |key| (title.clone(), key))
    };
    let top = [&INCLUDE, &IGNORE_WARNINGS].map(|key| (String::new(), key));
    top.into_iter().chain(TABLES.into_iter().flat_map(of_table))
}

/// The loss of each key of the schema is reported, and so is the loss of each part of its example. The attack: of two
/// rates that differ only in numbers, the second is written later than the first.
#[test]
fn one_of_two_tables_that_differ_in_numbers_is_lost() {
    let both = written("rate = [{ rate = \"100/s\", burst = 100 }, { rate = \"2/h\", burst = 2 }]");
    let one = written("rate = [{ rate = \"100/s\", burst = 100 }]");
    let other = written("rate = [{ rate = \"50/s\", burst = 9 }, { rate = \"3/h\", burst = 2 }]");
    assert!(both.first_lost(&one).is_some());
    assert_eq!(both.first_lost(&other), None);
    assert_eq!(one.first_lost(&both), None);
}

#[test]
fn no_key_is_lost_in_silence() {
    let mut count = 0;
    for (title, key) in every_key() {
        let (name, example) = (key.name, key.example);
        let whole = format!("{title}{name} = {example}\n");
        let without = lost(&whole, &title);
        assert!(
            without.is_some_and(|what| what.contains(name)),
            "{whole} without its key"
        );
        assert_eq!(lost(&title, &whole), None, "{whole} is more");
        assert_eq!(lost(&whole, &whole), None, "{whole}");
        parts(&written(&whole), &mut |less| {
            assert!(
                written(&whole).first_lost(less).is_some(),
                "{whole} without a part"
            );
            count += 1;
        });
    }
    assert!(count > 200, "{count}");
}

/// Calls `visit` with the table less each of its parts, at every depth.
fn parts(whole: &Written, visit: &mut dyn FnMut(&Written)) {
    let with = |name: &str, entry: Option<WrittenEntry>| {
        let others = whole.keys.iter().filter(|(other, _)| &***other != name);
        let mut keys: BTreeMap<_, _> = others
            .map(|(name, one)| (name.clone(), one.copy()))
            .collect();
        keys.extend(entry.map(|entry| (name.into(), entry)));
        Written { keys }
    };
    for (name, entry) in &whole.keys {
        visit(&with(name, None));
        match entry {
            WrittenEntry::Table(inner) => {
                parts(inner, &mut |less| {
                    visit(&with(name, Some(WrittenEntry::Table(less.copy()))))
                });
            }
            WrittenEntry::Amount(_) => {}
            WrittenEntry::Values(values) => {
                for at in 0..values.digests.len() {
                    let (has_amount, mut digests) = (values.has_amount, values.digests.clone());
                    digests.remove(at);
                    let less = Values {
                        has_amount,
                        digests,
                    };
                    visit(&with(name, Some(WrittenEntry::Values(less))));
                }
            }
        }
    }
}

impl Written {
    fn copy(&self) -> Self {
        let keys = self
            .keys
            .iter()
            .map(|(name, one)| (name.clone(), one.copy()));
        Self {
            keys: keys.collect(),
        }
    }
}

impl WrittenEntry {
    fn copy(&self) -> Self {
        match self {
            Self::Table(inner) => Self::Table(inner.copy()),
            Self::Amount(amount) => Self::Amount(*amount),
            Self::Values(values) => Self::Values(Values {
                has_amount: values.has_amount,
                digests: values.digests.clone(),
            }),
        }
    }
}

#[test]
fn what_is_lost_is_told_by_its_key_and_not_by_its_value() {
    for (before, after, expected) in [
        ("a = \"1/s\"", "a = \"9/s\"", None),
        ("a = \"1/s\"", "a = [\"9/s\", \"2/h\"]", None),
        (
            "a = [\"1/s\", \"2/h\"]",
            "a = \"9/s\"",
            Some("an entry of `a`"),
        ),
        ("a = [502, 503]", "a = [429, 503]", Some("an entry of `a`")),
        ("a = [502, 503]", "a = [503, 429, 502]", None),
        ("a = [\"5s\"]", "a = [\"6s\"]", Some("the value of `a`")),
        ("a = [502]", "a = 502", None),
        ("a = [502]", "a = 503", Some("the value of `a`")),
        ("a = 502", "a = [429]", None),
        ("a = 502", "a = [\"connect\"]", Some("the value of `a`")),
        ("a = \"5s\"", "a = false", Some("the value of `a`")),
        ("a = 5", "a = 6", None),
        ("a = true", "a = false", Some("the value of `a`")),
        ("a = \"x\"", "a = [\"y\", \"x\"]", None),
        (
            "a = [\"x\", \"y\"]",
            "a = [\"y\", \"z\"]",
            Some("an entry of `a`"),
        ),
        ("a = \"secret\"", "a = \"other\"", Some("the value of `a`")),
        (
            "a = \"ca.pem\"",
            "a = { ca = \"ca.pem\" }",
            Some("the value of `a`"),
        ),
        ("a.b.c = 1", "a.b.d = 1", Some("`a.b.c`")),
        ("a.b.c = 1", "b = 1", Some("`a`")),
        ("a = [{ b = 1, c = 2 }]", "a = [{ c = 3, b = 1 }]", None),
        (
            "a = [{ b = 1, c = 2 }]",
            "a = [{ b = 1 }]",
            Some("the value of `a`"),
        ),
    ] {
        assert_eq!(
            lost(before, after).as_deref(),
            expected,
            "{before} -> {after}"
        );
    }
}
