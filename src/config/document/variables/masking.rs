//! Texts of a file that is to be shown: what a variable gave that is a secret, by its name or by a place it is used in, is
//! starred wherever else it stands.

use super::super::super::masking::Numbering;
use super::super::are_keys;
use super::secret::{is_named, is_path};
use super::{Environment, FilledText, VariableUse, Variables, expand};
use std::borrow::Cow;
use std::collections::HashMap;
use std::env::VarError;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

struct Stars<'v> {
    variables: &'v Variables,
    /// The texts, by where they stand.
    filled: HashMap<usize, &'v FilledText>,
    /// What is shown: two that differ stay different.
    series: &'v mut Numbering,
    /// The texts without stars.
    whole: HashMap<usize, String>,
}

impl Variables {
    /// Puts stars in place of secrets into every text of `root`, which these variables have been filled into; returns those
    /// texts as they are without, by where they stand.
    pub(in crate::config) fn star(
        &self,
        root: &mut DeTable<'_>,
        series: &mut Numbering,
    ) -> HashMap<usize, String> {
        let filled = self.filled.iter();
        let mut stars = Stars {
            variables: self,
            filled: filled.map(|one| (one.span.start, one)).collect(),
            series,
            whole: HashMap::new(),
        };
        stars.table(root, &[]);
        stars.whole
    }
}

impl Stars<'_> {
    fn table(&mut self, table: &mut DeTable<'_>, above: &[&str]) {
        let are_digests = are_keys(table);
        for (key, value) in table.iter_mut() {
            let key = key.get_ref().as_ref();
            let trail = [above, &[key]].concat();
            // The address of the store is shown without its password.
            let is_other = key == "url" || (key == "members" && are_digests);
            let is_other = is_other && !above.is_empty() && !is_named(&trail);
            if !is_other && !is_path(&trail) {
                self.value(value, &trail);
            }
        }
    }

    fn value(&mut self, value: &mut Spanned<DeValue<'_>>, trail: &[&str]) {
        let at = value.span().start;
        match value.get_mut() {
            DeValue::String(text) => {
                if let Some(filled) = self.filled.get(&at).copied() {
                    let shown = self.text(filled, text);
                    if *shown != **text {
                        let whole = std::mem::replace(text, Cow::Owned(shown));
                        self.whole.insert(at, whole.into_owned());
                    }
                }
            }
            DeValue::Array(items) => {
                for item in items.iter_mut() {
                    self.value(item, trail);
                }
            }
            DeValue::Table(table) => self.table(table, trail),
            _ => {}
        }
    }

    fn text(&mut self, filled: &FilledText, whole: &str) -> String {
        let used = filled.used.iter();
        let shown: Vec<(&VariableUse, String)> = used
            .map(|used| {
                let is_hidden = self.variables.hides(used);
                let stars = is_hidden.then(|| self.series.stars(&used.gave));
                (used, stars.unwrap_or_else(|| used.gave.clone()))
            })
            .collect();
        let environment: Environment<'_> = &|name| {
            let one = shown.iter().find(|(used, _)| used.name == name);
            match one {
                Some((used, shown)) if !used.is_default || *shown != used.gave => Ok(shown.clone()),
                _ => Err(VarError::NotPresent),
            }
        };
        expand(environment, &filled.template).map_or_else(|_| whole.to_owned(), |(text, _)| text)
    }
}
