//! Stars in the texts of a printed file. A variable may be secret because of its name or because of one place of its
//! use; its value has stars in every other place as well.

use super::secret::{is_named, is_path};
use super::{Environment, FilledText, VariableUse, Variables, each_text, expand};
use crate::config::document::are_keys;
use crate::config::secrets::Numbering;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::env::VarError;
use toml::de::DeTable;

impl Variables {
    /// Puts stars in place of secrets into every text of `root` that contains filled-in variables. Returns these texts
    /// without stars, by their places. Different secrets get different stars.
    pub(in crate::config) fn star(
        &self,
        root: &mut DeTable<'_>,
        series: &mut Numbering,
    ) -> HashMap<usize, String> {
        let filled = self.filled.iter();
        let filled: HashMap<usize, &FilledText> = filled.map(|one| (one.span.start, one)).collect();
        let digests = groups_of_keys(root);
        let mut whole = HashMap::new();
        each_text(root, &mut Vec::new(), &mut |trail, text, span| {
            let Some(filled) = filled.get(&span.start) else {
                return;
            };
            if (2..=trail.len()).any(|length| is_other(&trail[..length], &digests)) {
                return;
            }
            let shown = self.starred(filled, text, series);
            if *shown != **text {
                let starred = std::mem::replace(text, Cow::Owned(shown));
                whole.insert(span.start, starred.into_owned());
            }
        });
        whole
    }

    fn starred(&self, filled: &FilledText, whole: &str, series: &mut Numbering) -> String {
        let used = filled.used.iter();
        let shown: Vec<(&VariableUse, String)> = used
            .map(|used| {
                let stars = self.hides(used).then(|| series.stars(&used.gave));
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

/// The groups whose members are shown as digests.
fn groups_of_keys(root: &DeTable<'_>) -> HashSet<String> {
    let groups = root
        .get("groups")
        .and_then(|groups| groups.get_ref().as_table());
    let groups = groups.into_iter().flatten();
    let groups = groups.filter(|(_, group)| group.get_ref().as_table().is_some_and(are_keys));
    groups.map(|(name, _)| name.get_ref().to_string()).collect()
}

/// Does the value under these keys have its own printed form: a path, the address of the store without its password, or
/// the digests of keys?
fn is_other(trail: &[&str], digests: &HashSet<String>) -> bool {
    match trail {
        [.., "url"] => !is_named(trail),
        ["groups", name, "members"] | ["groups", name, "customers", _] => digests.contains(*name),
        _ => is_path(trail),
    }
}
