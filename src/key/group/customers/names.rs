//! The names of customers, each once.

use crate::key::percent;
use foldhash::fast::RandomState;
use hashbrown::HashTable;
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;
use std::hash::BuildHasher as _;

/// The longest name, in bytes.
const LONGEST_NAME: usize = 128;

/// What a text that is no name is told.
pub const NAME_FORM: &str =
    "a name is 1 to 128 letters, digits and `.`, `_`, `-`, `@`, `+`, `:`, `/`";

/// The number of a name among the names of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CustomerIndex(u32);

impl CustomerIndex {
    pub(in crate::key::group) fn of(position: u32) -> Self {
        Self(position)
    }

    /// The number, from 0.
    #[must_use]
    pub fn position(self) -> usize {
        self.0 as usize
    }
}

/// Is the text a name: 1 to 128 letters, digits and `. _ - @ + : /`?
#[must_use]
pub fn is_name(text: &[u8]) -> bool {
    (1..=LONGEST_NAME).contains(&text.len()) && text.iter().copied().all(is_of_name)
}

fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"._-@+:/".contains(&byte)
}

/// The name that a verified value is: other bytes are escaped, and a long value is replaced by its digest.
pub(super) fn claimed_name(value: &[u8]) -> String {
    let mut name = String::with_capacity(value.len());
    // A value that looks like the digest of another one is not that one's name.
    let like_digest = value.starts_with(b"sha256:");
    for byte in value {
        if is_of_name(*byte) && !(like_digest && *byte == b':') {
            name.push(char::from(*byte));
        } else {
            name.extend(percent::escape(*byte).map(char::from));
        }
    }
    if name.len() > LONGEST_NAME {
        name.clear();
        name.push_str("sha256:");
        for byte in Sha256::digest(value) {
            // Writing into a text cannot fail.
            let _ = write!(name, "{byte:02x}");
        }
    }
    name
}

/// Names one behind another, with the end of each, and a table that finds them.
#[derive(Default)]
pub(super) struct CustomerNames {
    texts: String,
    ends: Vec<u32>,
    found: HashTable<u32>,
    hasher: RandomState,
}

impl CustomerNames {
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn text(&self, index: CustomerIndex) -> &str {
        name_at(&self.texts, &self.ends, index.0)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &str> {
        let all = (0..self.ends.len()).filter_map(|at| u32::try_from(at).ok());
        all.map(|index| self.text(CustomerIndex(index)))
    }

    pub(super) fn find(&self, name: &str) -> Option<CustomerIndex> {
        let hash = self.hasher.hash_one(name);
        let same = |index: &u32| name_at(&self.texts, &self.ends, *index) == name;
        self.found.find(hash, same).copied().map(CustomerIndex)
    }

    /// The number of `name`, which is added if it is new; `None` if all names together are longer than 4 GiB.
    pub(super) fn add(&mut self, name: &str) -> Option<CustomerIndex> {
        if let Some(known) = self.find(name) {
            return Some(known);
        }
        let index = u32::try_from(self.ends.len()).ok()?;
        let end = u32::try_from(self.texts.len() + name.len()).ok()?;
        self.texts.push_str(name);
        self.ends.push(end);
        let (texts, ends, hasher) = (&self.texts, &self.ends, &self.hasher);
        let hash = hasher.hash_one(name);
        self.found.insert_unique(hash, index, |index| {
            hasher.hash_one(name_at(texts, ends, *index))
        });
        Some(CustomerIndex(index))
    }

    pub(super) fn shrink(&mut self) {
        self.texts.shrink_to_fit();
        self.ends.shrink_to_fit();
    }
}

fn name_at<'t>(texts: &'t str, ends: &[u32], index: u32) -> &'t str {
    let index = index as usize;
    let end = ends.get(index).map_or(0, |end| *end as usize);
    let start = match index.checked_sub(1) {
        Some(before) => ends.get(before).map_or(0, |end| *end as usize),
        None => 0,
    };
    texts.get(start..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_kept_once_and_found_by_its_text() {
        let mut names = CustomerNames::default();
        let numbers: Vec<_> = (0..1000)
            .map(|number| names.add(&format!("customer-{number}")).unwrap())
            .collect();
        for (number, index) in numbers.iter().enumerate() {
            let name = format!("customer-{number}");
            assert_eq!(names.text(*index), name);
            assert_eq!(names.find(&name), Some(*index));
            assert_eq!(names.add(&name), Some(*index));
        }
        assert_eq!((names.len(), names.find("customer-")), (1000, None));
    }

    #[test]
    fn a_verified_value_becomes_a_name_and_no_two_values_one_name() {
        for (value, name) in [
            ("acme", "acme"),
            ("a b", "a%20b"),
            ("a%20b", "a%2520b"),
            ("\u{e9}", "%C3%A9"),
            ("CN=anna,O=Acme", "CN%3Danna%2CO%3DAcme"),
            ("sha256:00", "sha256%3A00"),
        ] {
            assert_eq!(claimed_name(value.as_bytes()), name);
        }
        let long = claimed_name(&[b'a'; 129]);
        assert!(long.starts_with("sha256:") && long.len() == 71, "{long}");
        assert_eq!(claimed_name(&[b'a'; 128]), "a".repeat(128));
    }

    #[test]
    fn names_are_letters_digits_and_a_few_signs() {
        assert!(is_name(b"acme") && is_name(b"a.b_c-d@e+f:g/h"));
        for other in [&b""[..], b"a b", b"a%20", "\u{e9}".as_bytes(), &[b'a'; 129]] {
            assert!(!is_name(other), "{other:?}");
        }
    }
}
