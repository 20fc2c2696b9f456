//! The written content of a file, with included files merged and variables filled in: every key, and a digest of every
//! value. A later reading is compared with it independent of a key's meaning, so that no key can be forgotten.

use crate::config::value::is_amount;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The written content of a table.
#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub(in crate::config) struct Written {
    keys: BTreeMap<Box<str>, WrittenEntry>,
}

/// The value of a key.
#[derive(Debug, PartialEq, Eq, Hash)]
enum WrittenEntry {
    Table(Written),
    /// A single number, time, size or rate: replacing it by another amount removes nothing.
    Amount(AmountDigest),
    /// Any other single value, or a list.
    Values(Values),
}

/// A digest of an amount. The digest of a table in a list leaves amounts out, so tables that differ only in amounts are
/// equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct AmountDigest(u64);

impl Hash for AmountDigest {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

#[derive(Debug, Default, PartialEq, Eq, Hash)]
struct Values {
    /// Is one of the values an amount?
    has_amount: bool,
    /// Digests of all values, in order. In a list a number is an ordinary entry, such as a status that is retried.
    digests: Vec<u64>,
}

impl Written {
    pub(in crate::config) fn of(table: &DeTable<'_>) -> Self {
        let keys = table.iter();
        let keys =
            keys.map(|(key, value)| (key.get_ref().as_ref().into(), WrittenEntry::of(value)));
        Self {
            keys: keys.collect(),
        }
    }

    /// The first entry that `later` lacks, in words. A different amount is not a loss, and neither is an additional
    /// entry.
    pub(in crate::config) fn first_lost(&self, later: &Self) -> Option<String> {
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
                (WrittenEntry::Amount(_), Some(WrittenEntry::Amount(_))) => None,
                (WrittenEntry::Amount(_), Some(WrittenEntry::Values(after)))
                    if after.has_amount =>
                {
                    None
                }
                (WrittenEntry::Values(before), Some(WrittenEntry::Values(after))) => {
                    let what = before.lost(&after.digests)?;
                    Some(format!("{what} of `{path}`"))
                }
                (WrittenEntry::Values(before), Some(WrittenEntry::Amount(after))) => {
                    let what = before.lost(&[after.0])?;
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
            DeValue::Array(list) => {
                values.has_amount = list.iter().any(is_an_amount);
                values.digests = list.iter().map(digest).collect();
            }
            _ if is_an_amount(value) => return Self::Amount(AmountDigest(digest(value))),
            _ => values.digests.push(digest(value)),
        }
        values.digests.sort_unstable();
        Self::Values(values)
    }
}

fn is_an_amount(value: &Spanned<DeValue<'_>>) -> bool {
    match value.get_ref() {
        DeValue::Integer(_) | DeValue::Float(_) => true,
        DeValue::String(text) => is_amount(text),
        _ => false,
    }
}

fn digest(value: &Spanned<DeValue<'_>>) -> u64 {
    let mut digest = DefaultHasher::new();
    match value.get_ref() {
        DeValue::Integer(number) => number.to_string().hash(&mut digest),
        DeValue::Float(number) => number.to_string().hash(&mut digest),
        DeValue::String(text) => text.hash(&mut digest),
        DeValue::Boolean(flag) => flag.hash(&mut digest),
        DeValue::Datetime(time) => time.to_string().hash(&mut digest),
        DeValue::Array(_) | DeValue::Table(_) => WrittenEntry::of(value).hash(&mut digest),
    }
    digest.finish()
}

impl Values {
    /// The loss from these values to the later values, which are sorted. Tables that differ only in amounts are equal,
    /// and each of these tables needs a separate later table.
    fn lost(&self, later: &[u64]) -> Option<&'static str> {
        let mut later = later.iter();
        if self
            .digests
            .iter()
            .all(|digest| later.any(|one| one == digest))
        {
            return None;
        }
        match self.digests.len() {
            1 => Some("the value"),
            _ => Some("an entry"),
        }
    }
}

#[cfg(test)]
mod tests;
