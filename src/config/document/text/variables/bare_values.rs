//! Numbers, `true` and `false` from variables: a text that is exactly one variable becomes such a value where its key
//! takes one.

use super::{FilledText, Variables};
use crate::config::document::{ForeignName, Table, ValueShape, table_named, unknown_table};
use std::collections::HashMap;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The values of texts that are exactly one variable, by the places of the texts.
pub(in crate::config) type LoneValues = HashMap<usize, String>;

impl Variables {
    /// The values that can be numbers, `true` or `false`.
    pub(in crate::config) fn lone_values(&self) -> LoneValues {
        let alone = self.filled.iter().filter(|filled| filled.is_one_variable());
        let values = alone.filter_map(|filled| {
            let value = filled.used.first()?.gave.clone();
            Some((filled.span.start, value))
        });
        values.collect()
    }

    /// Replaces texts by numbers, `true` and `false` where the keys of `root` take such values. The name of its
    /// variable does not make such a value a secret.
    pub(in crate::config) fn bare<'v>(&mut self, root: &mut DeTable<'v>, alone: &'v LoneValues) {
        if !alone.is_empty() {
            let found = &mut BareValues {
                alone,
                places: Vec::new(),
            };
            found.top(root);
            self.no_secrets.extend(found.places.drain(..));
        }
    }
}

impl FilledText {
    /// Is the text exactly one variable?
    pub(super) fn is_one_variable(&self) -> bool {
        let inside = self.template.strip_prefix("${");
        inside.is_some_and(|inside| inside.find('}') == Some(inside.len() - 1))
    }
}

/// A walk over the tree.
struct BareValues<'v> {
    alone: &'v LoneValues,
    /// The places of the replaced values.
    places: Vec<usize>,
}

impl<'v> BareValues<'v> {
    fn top(&mut self, root: &mut DeTable<'v>) {
        for (name, value) in root.iter_mut() {
            let (name, inside) = (name.get_ref(), value.get_ref());
            let meant = || {
                let foreign = ForeignName::find(None, name);
                unknown_table::meant(name, inside, foreign.as_ref())
            };
            let table = table_named(name).or_else(meant);
            let (Some(table), DeValue::Table(entries)) = (table, value.get_mut()) else {
                continue;
            };
            if table.named {
                self.named(&[table], entries);
            } else {
                self.keys(&[table], entries);
            }
        }
    }

    fn named(&mut self, tables: &[&'static Table], entries: &mut DeTable<'v>) {
        for (_, entry) in entries.iter_mut() {
            if let DeValue::Table(keys) = entry.get_mut() {
                self.keys(tables, keys);
            }
        }
    }

    /// Walks over the keys of a value that can be one of several tables.
    fn keys(&mut self, tables: &[&'static Table], entries: &mut DeTable<'v>) {
        for (name, value) in entries.iter_mut() {
            let key = tables.iter().find_map(|table| table.key(name.get_ref()));
            if let Some(key) = key {
                self.value(key.shape(), value);
            }
        }
    }

    fn value(&mut self, shape: ValueShape, value: &mut Spanned<DeValue<'v>>) {
        let start = value.span().start;
        match value.get_mut() {
            DeValue::String(_) => {
                let bare = self.alone.get(&start).and_then(|text| bare(shape, text));
                if let Some(bare) = bare {
                    *value.get_mut() = bare;
                    self.places.push(start);
                }
            }
            DeValue::Table(entries)
                if matches!(shape, ValueShape::Tiers(_) | ValueShape::Named(_)) =>
            {
                self.named(&shape.tables(), entries);
            }
            DeValue::Table(entries) => self.keys(&shape.tables(), entries),
            DeValue::Array(items) => items.iter_mut().for_each(|item| {
                if item.get_ref().is_table() {
                    self.value(shape, item);
                }
            }),
            _ => {}
        }
    }
}

/// The number, `true` or `false` in `text`, if a key of this shape takes it.
fn bare(shape: ValueShape, text: &str) -> Option<DeValue<'_>> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"+-_".contains(&byte);
    if !text.bytes().all(is_plain) {
        return None;
    }
    let value = DeValue::parse(text).ok()?.into_inner();
    let is_taken = match value {
        DeValue::Integer(_) => shape.takes_numbers(),
        DeValue::Boolean(_) => shape.takes_flags(),
        _ => false,
    };
    is_taken.then_some(value)
}
