//! Texts of a file that is to be shown: what a variable gave that is a secret, by its name or by a place it is used in, is
//! starred wherever else it stands.

use super::{Environment, Filled, Used, Variables, expand};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::env::VarError;
use toml::de::{DeTable, DeValue};

/// Keys under which paths stand, which lead to secrets and are none.
const PATHS: [&str; 6] = ["file", "keys", "jwks", "ca", "cert", "key"];

struct Stars<'v> {
    /// The texts, by where they stand.
    filled: HashMap<usize, &'v Filled>,
    /// The variables that give secrets, each with what is shown: two that differ stay different.
    names: HashMap<&'v str, String>,
}

impl Variables {
    /// Puts stars in place of secrets into every text of `root`, which these variables have been filled into.
    pub(in crate::config) fn star(&self, root: &mut DeTable<'_>) {
        let mut elsewhere = HashSet::new();
        for (_, value) in root.iter() {
            places(value.get_ref(), &mut elsewhere);
        }
        let mut given: Vec<&str> = Vec::new();
        let mut names = HashMap::new();
        for filled in &self.filled {
            for used in filled.used.iter().filter(|used| !used.is_default) {
                let is_one = filled.in_secret_place
                    || used.is_secret()
                    || elsewhere.contains(used.name.as_str());
                if is_one && !names.contains_key(used.name.as_str()) {
                    names.insert(used.name.as_str(), stars(&used.gave, &mut given));
                }
            }
        }
        let stars = Stars {
            filled: self
                .filled
                .iter()
                .map(|one| (one.span.start, one))
                .collect(),
            names,
        };
        stars.table(root, true);
    }
}

/// Variables that a table names as the place of a secret.
fn places(value: &DeValue<'_>, found: &mut HashSet<String>) {
    match value {
        DeValue::Table(table) => {
            if let (1, Some(DeValue::String(name))) =
                (table.len(), table.get("env").map(|name| name.get_ref()))
            {
                found.insert(name.to_string());
            }
            table
                .values()
                .for_each(|inner| places(inner.get_ref(), found));
        }
        DeValue::Array(items) => items.iter().for_each(|item| places(item.get_ref(), found)),
        _ => {}
    }
}

fn stars<'v>(gave: &'v str, given: &mut Vec<&'v str>) -> String {
    let at = given.iter().position(|known| *known == gave);
    let at = at.unwrap_or_else(|| {
        given.push(gave);
        given.len() - 1
    });
    match at {
        0 => "***".to_owned(),
        at => format!("***{}", at + 1),
    }
}

impl Stars<'_> {
    fn table(&self, table: &mut DeTable<'_>, is_top: bool) {
        // Members that are keys are shown by their digests.
        let by = table.get("by").and_then(|by| by.get_ref().as_str());
        let are_digests = by.is_some_and(|by| {
            let kinds = ["header:", "cookie:", "query:"];
            kinds.iter().any(|kind| by.starts_with(kind))
        });
        for (key, value) in table.iter_mut() {
            let key = key.get_ref().as_ref();
            // The address of the store is shown without its password.
            let is_other =
                PATHS.contains(&key) || key == "url" || (key == "members" && are_digests);
            if is_top || !is_other {
                let at = value.span().start;
                self.value(value.get_mut(), at);
            }
        }
    }

    fn value(&self, value: &mut DeValue<'_>, at: usize) {
        match value {
            DeValue::String(text) => {
                if let Some(filled) = self.filled.get(&at) {
                    *text = Cow::Owned(self.text(filled, text));
                }
            }
            DeValue::Array(items) => {
                for item in items.iter_mut() {
                    let at = item.span().start;
                    self.value(item.get_mut(), at);
                }
            }
            DeValue::Table(table) => self.table(table, false),
            _ => {}
        }
    }

    fn text(&self, filled: &Filled, whole: &str) -> String {
        let shown = |used: &Used| match (used.is_default, self.names.get(used.name.as_str())) {
            (true, _) => Err(VarError::NotPresent),
            (false, Some(stars)) => Ok(stars.clone()),
            (false, None) => Ok(used.gave.clone()),
        };
        let environment: Environment<'_> = &|name| {
            let used = filled.used.iter().find(|used| used.name == name);
            used.map_or(Err(VarError::NotPresent), shown)
        };
        expand(environment, &filled.template).map_or_else(|_| whole.to_owned(), |(text, _)| text)
    }
}
