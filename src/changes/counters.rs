//! The counters of a limit and a key: of every rate of a list, of every tier, of the candidate, and of the key's
//! preflights.

use super::errors::{ChangeError, MOST};
use crate::limit::{Limit, LimitId, Mode, Preflights, Rule};
use crate::snapshot::Snapshot;
use std::collections::HashSet;
use std::sync::Arc;

/// One counter.
#[derive(Debug, Clone)]
pub(super) struct NamedCounter {
    pub(super) limit: Arc<Limit>,
    pub(super) key: Vec<u8>,
}

/// Which counters are meant.
#[derive(Debug, Clone, Copy)]
pub(super) struct CounterChoice<'a> {
    pub(super) limit: &'a str,
    pub(super) key: &'a str,
    pub(super) group: Option<&'a str>,
    pub(super) window: Option<&'a str>,
}

impl CounterChoice<'_> {
    /// The counters under the limits of `snapshot`, the deciding limit's first.
    ///
    /// # Errors
    /// If there are none, too many, or only such that end by themselves.
    pub(super) fn find(&self, snapshot: &Snapshot) -> Result<Vec<NamedCounter>, ChangeError> {
        let mut limits: Vec<&Arc<Limit>> = Vec::new();
        for limit in snapshot.limits().filter(|limit| *limit.name == *self.limit) {
            limits.push(limit);
            limits.extend(limit.tiers.iter().map(|tier| &tier.limit));
            let numbers = limit.customer_numbers.iter();
            limits.extend(numbers.flat_map(|numbers| numbers.limits()));
        }
        if limits.is_empty() {
            return Err(ChangeError::UnknownLimit(format!("`{}`", self.limit)));
        }
        let is_chosen = |limit: &&Arc<Limit>| {
            (self.window.is_none() || limit.window.as_deref() == self.window)
                && (self.group.is_none() || limit.group.as_deref() == self.group)
        };
        limits.retain(is_chosen);
        if limits.is_empty() {
            let of = |word: &str, name: Option<&str>| {
                name.map_or_else(String::new, |name| format!(" with {word} `{name}`"))
            };
            let (window, group) = (of("window", self.window), of("group", self.group));
            let what = format!("`{}`{window}{group}", self.limit);
            return Err(ChangeError::UnknownLimit(what));
        }
        limits.retain(|limit| limit.rule.concurrency().is_none());
        if limits.is_empty() {
            return Err(ChangeError::SlotsEndByThemselves);
        }
        limits.sort_by_key(|limit| limit.mode != Mode::Enforce);
        self.counters_of(&limits)
    }

    fn counters_of(&self, limits: &[&Arc<Limit>]) -> Result<Vec<NamedCounter>, ChangeError> {
        let mut found: Vec<NamedCounter> = Vec::new();
        // Tiers and customers may share a counter.
        let mut ids: HashSet<LimitId> = HashSet::new();
        for limit in limits {
            if !ids.insert(limit.id) {
                continue;
            }
            let counter = |key| NamedCounter {
                limit: Arc::clone(limit),
                key,
            };
            found.push(counter(self.key.as_bytes().to_vec()));
            if limit.answers.preflights == Preflights::Free {
                found.extend(limit.by.preflight_of(self.key.as_bytes()).map(counter));
            }
            if found.len() > MOST {
                return Err(ChangeError::TooManyCounters);
            }
        }
        Ok(found)
    }
}

/// A limit's numbers as text: `10/s, burst 20`.
pub(super) fn numbers_of(limit: &Limit) -> String {
    let (count, period) = (limit.rate.count, limit.rate.period.get());
    let rate = match limit.window.as_deref() {
        Some(window) => window.to_owned(),
        None => match period {
            1_000_000 => format!("{count}/s"),
            60_000_000 => format!("{count}/min"),
            3_600_000_000 => format!("{count}/h"),
            86_400_000_000 => format!("{count}/d"),
            _ if period % 1_000_000 == 0 => format!("{count}/{}s", period / 1_000_000),
            _ => format!("{count}/{period}us"),
        },
    };
    match &limit.rule {
        Rule::TokenBucket(rule) => format!("{rate}, burst {}", rule.burst),
        Rule::LeakyBucket(rule) => format!("{rate}, burst {}, queue {}", rule.burst, rule.queue),
        _ => rate,
    }
}
