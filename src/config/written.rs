//! What is written in a file, its included files and variables in their places: every key, and a digest of every value. A
//! later reading is held against it without regard to what a key means, so that no key can be forgotten.

use super::value::is_amount;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// What is written in a table.
#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Written {
    keys: BTreeMap<Box<str>, WrittenEntry>,
}

/// What is written behind a key. A single value is a list of one.
#[derive(Debug, PartialEq, Eq, Hash)]
enum WrittenEntry {
    Table(Written),
    Values(Values),
}

#[derive(Debug, Default, PartialEq, Eq, Hash)]
struct Values {
    /// How many of them are amounts: another number in the place of one takes nothing away.
    amounts: usize,
    /// Digests of the others, in order.
    others: Vec<u64>,
}

impl Written {
    pub(super) fn of(table: &DeTable<'_>) -> Self {
        let keys = table.iter();
        let keys =
            keys.map(|(key, value)| (key.get_ref().as_ref().into(), WrittenEntry::of(value)));
        Self {
            keys: keys.collect(),
        }
    }

    /// The first thing that is written here and no more in `later`, in words. Another amount, and what is more than before,
    /// are no loss.
    pub(super) fn first_lost(&self, later: &Self) -> Option<String> {
        self.lost_below("", later)
    }

    fn lost_below(&self, table: &str, later: &Self) -> Option<String> {
        self.keys.iter().find_map(|(name, entry)| {
            let path = match table {
                "" => name.to_string(),
                table => format!("{table}.{name}"),
            };
            match (entry, later.keys.get(name)) {
                (_, None) => Some(format!("`{path}`")),
                (WrittenEntry::Table(before), Some(WrittenEntry::Table(after))) => {
                    before.lost_below(&path, after)
                }
                (WrittenEntry::Values(before), Some(WrittenEntry::Values(after))) => {
                    let what = before.lost(after)?;
                    Some(format!("{what} of `{path}`"))
                }
                (_, Some(_)) => Some(format!("the value of `{path}`")),
            }
        })
    }
}

impl WrittenEntry {
    fn of(value: &Spanned<DeValue<'_>>) -> Self {
        let mut values = Values::default();
        match value.get_ref() {
            DeValue::Table(table) => return Self::Table(Written::of(table)),
            DeValue::Array(list) => list.iter().for_each(|one| values.add(one)),
            _ => values.add(value),
        }
        values.others.sort_unstable();
        Self::Values(values)
    }
}

impl Values {
    fn add(&mut self, value: &Spanned<DeValue<'_>>) {
        let mut digest = DefaultHasher::new();
        match value.get_ref() {
            DeValue::Integer(_) | DeValue::Float(_) => return self.amounts += 1,
            DeValue::String(text) if is_amount(text) => return self.amounts += 1,
            DeValue::String(text) => text.hash(&mut digest),
            DeValue::Boolean(flag) => flag.hash(&mut digest),
            DeValue::Datetime(time) => time.to_string().hash(&mut digest),
            DeValue::Array(_) | DeValue::Table(_) => WrittenEntry::of(value).hash(&mut digest),
        }
        self.others.push(digest.finish());
    }

    /// What of these values is not among the later ones.
    fn lost(&self, later: &Self) -> Option<&'static str> {
        let is_kept = |digest| later.others.binary_search(digest).is_ok();
        if self.amounts <= later.amounts && self.others.iter().all(is_kept) {
            return None;
        }
        match self.amounts + self.others.len() {
            1 => Some("the value"),
            _ => Some("an entry"),
        }
    }
}

#[cfg(test)]
mod tests;
