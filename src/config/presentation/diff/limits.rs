//! The changes of limits, and their effect on counters.

use super::{Collection, FileChange, Outline, differences};
use crate::config::document::LIMITS;
use crate::config::document::vocabulary::Compare;
use crate::config::presentation::describe::unknown;
use crate::config::presentation::outline::LimitOutline;
use crate::config::report::counted;
use crate::limit::tier::customer_numbers::NumberChanges;
use crate::limit::{Limit, Mode};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// A limit of another kind, or with another key, uses other counters in the store. If the limit recently had the same
/// kind and key, those counters still exist.
const AFRESH: &str = "counters start afresh, or go on where this limit counted so before";

/// Counters of one kind under one key continue.
const KEPT: &str = "counters kept";
/// Counters of buckets whose states carry their numbers continue, in units.
const UNITS: &str = "units used stay used";
/// The reports on a limit that is gone and on one that has come. Counters are kept by the name of a limit.
const GONE: &str = "removed; its counters go on if the limit comes back while they still exist";
const COME: &str =
    "added, counters start afresh, or go on where a limit of this name counted so before";

pub(super) fn limits(old: &Outline, new: &Outline, changes: &mut Vec<FileChange>) {
    let (old, new) = (by_name(old), by_name(new));
    let limits = Collection {
        gone: GONE,
        come: COME,
        ..Collection::new("limits", &old, &new, |limit| limit.first().name.to_string())
    };
    limits.compare(changes, limit);
}

/// Each limit with all its rates, which are adjacent, followed by the rates of its candidate.
fn by_name(outline: &Outline) -> Vec<LimitOutline<'_>> {
    let limits = outline.limits.chunk_by(|a, b| a.name == b.name);
    limits
        .map(|all| {
            let deciding = all.iter().take_while(|one| one.mode != Mode::Candidate);
            let (rates, candidate) = all.split_at(deciding.count());
            LimitOutline {
                rates,
                candidate,
                body: outline.errors.of_limits.get(&*rates[0].name),
            }
        })
        .collect()
}

fn limit(old: &LimitOutline<'_>, new: &LimitOutline<'_>) -> Option<String> {
    let mut parts = differences(&LIMITS, |compare| match compare {
        Compare::Limit(of) => Some((of(old)?, of(new)?)),
        _ => None,
    });
    let numbers = customer_changes(old.first(), new.first());
    parts.extend(numbers.shown());
    if parts.is_empty() {
        return None;
    }
    let mut kept = counters(old.rates, new.rates).to_owned();
    let elsewhere = elsewhere(old.first(), new.first());
    if kept == KEPT && numbers != NumberChanges::default() {
        kept.push_str(" for numbers over the same time");
    }
    if (kept == KEPT || kept == UNITS) && !elsewhere.is_empty() {
        kept.push_str(&format!(" but for {}", elsewhere.join(" and ")));
    }
    parts.push(kept);
    super::joined(&parts)
}

/// How the numbers of single customers differ.
fn customer_changes(old: &Limit, new: &Limit) -> NumberChanges {
    match (&old.customer_numbers, &new.customer_numbers) {
        (Some(old), Some(new)) => new.changes_since(old),
        (None, Some(new)) => NumberChanges {
            more: new.len(),
            ..NumberChanges::default()
        },
        (Some(old), None) => NumberChanges {
            fewer: old.len(),
            ..NumberChanges::default()
        },
        (None, None) => NumberChanges::default(),
    }
}

impl NumberChanges {
    /// `own numbers for 3 customers more, 1 fewer, 2 changed`.
    fn shown(self) -> Option<String> {
        let Self {
            more,
            fewer,
            changed,
        } = self;
        let words = [(more, "more"), (fewer, "fewer"), (changed, "changed")];
        let mut parts = words.into_iter().filter(|(many, _)| *many > 0);
        let (first, word) = parts.next()?;
        let rest: String = parts
            .map(|(many, word)| format!(", {many} {word}"))
            .collect();
        let customers = counted(first, "customer");
        Some(format!("own numbers for {customers} {word}{rest}"))
    }
}

/// The effect on the counters: counters of the same kind continue.
fn counters(old: &[Arc<Limit>], new: &[Arc<Limit>]) -> &'static str {
    // The kinds of a limit's rates differ only in their windows.
    let mut there: HashMap<_, Vec<&Limit>> = HashMap::new();
    for limit in old {
        there.entry(limit.kind).or_default().push(limit);
    }
    let kept = |limit: &Limit| {
        let alike = there.get(&limit.kind);
        let same = |other: &&Limit| (other.scope, &other.with) == (limit.scope, &limit.with);
        alike.into_iter().flatten().any(same)
    };
    let many = if old[0].by.parts == new[0].by.parts {
        new.iter().filter(|limit| kept(limit)).count()
    } else {
        0
    };
    match many {
        0 => AFRESH,
        many if many == new.len() && keep_units(old, new) => UNITS,
        many if many == new.len() => KEPT,
        _ => "counters kept for rates over the same time",
    }
}

/// Have the numbers of buckets changed whose states carry them? A bucket in which requests wait keeps its instant.
fn keep_units(old: &[Arc<Limit>], new: &[Arc<Limit>]) -> bool {
    let numbers = |limit: &Limit| limit.rule.bucket().and_then(|bucket| bucket.numbers);
    let of_limits = |limits: &[Arc<Limit>]| -> Option<Vec<_>> {
        limits.iter().map(|limit| numbers(limit)).collect()
    };
    let of_tiers = |limits: &[Arc<Limit>]| -> HashMap<_, _> {
        let tiers = limits.iter().flat_map(|limit| &limit.tiers);
        let each = tiers.map(|tier| (tier.limit.id, numbers(&tier.limit)));
        each.collect()
    };
    let (Some(before), Some(after)) = (of_limits(old), of_limits(new)) else {
        return false;
    };
    let (tiers_before, tiers_after) = (of_tiers(old), of_tiers(new));
    let mut both = tiers_after
        .iter()
        .map(|(id, is)| (tiers_before.get(id), is));
    before != after
        || both.any(|(was, is)| was.is_some_and(|was| was != is))
        || customer_changes(&old[0], &new[0]) != NumberChanges::default()
}

/// Requests that use other counters than before, while the limit's own counters are kept.
fn elsewhere(old: &Limit, new: &Limit) -> Vec<String> {
    let groups = |limit: &Limit| -> Vec<String> {
        let tiers = limit.tiers.iter();
        tiers.map(|one| one.group.name.to_string()).collect()
    };
    let (before, after) = (groups(old), groups(new));
    let (was, is): (HashSet<&String>, HashSet<&String>) =
        (before.iter().collect(), after.iter().collect());
    let gone = before.iter().filter(|name| !is.contains(name));
    let come = after.iter().filter(|name| !was.contains(name));
    let names: Vec<&str> = gone.chain(come).map(String::as_str).collect();
    let mut requests = Vec::new();
    if !names.is_empty() {
        let names = names.join(" and ");
        requests.push(format!("members of {names}, whose counters start afresh"));
    }
    if old.by.case != new.by.case {
        requests.push("keys with capitals or blanks at the ends, which count otherwise".to_owned());
    }
    if unknown(&old.by) != unknown(&new.by) {
        requests.push("keys that no group knows, which count otherwise".to_owned());
    }
    let absent = old.by.can_be_absent() || new.by.can_be_absent();
    if absent && old.by.missing != new.by.missing {
        requests.push("requests without the key, which count otherwise".to_owned());
    }
    requests
}

#[cfg(test)]
mod tests {
    use crate::config::parse;
    use crate::config::presentation::diff::{diff, taken_away};

    fn changes_between(old: &str, new: &str) -> String {
        let outline = |limit: &str| {
            let text = format!(
                "[groups.gold]\nby = \"header:x-api-key\"\nmembers = \"g\"\n\
                 [groups.blue]\nby = \"header:x-api-key\"\nmembers = \"b\"\n\
                 [limits.a]\nby = \"header:x-api-key\"\n{limit}\n[upstreams.u]\nservers = \"a:1\"\n\
                 [routes.r]\nupstream = \"u\"\nlimits = \"a\"\n"
            );
            parse("gateway.toml", &text).unwrap().outline
        };
        let (old, new) = (outline(old), outline(new));
        let changes = diff(&old, &new, &old.boot);
        let shown: Vec<String> = changes.iter().map(ToString::to_string).collect();
        shown.join("\n")
    }

    #[test]
    fn whose_counters_are_not_kept_is_told() {
        let limit = |more: &str| format!("missing = \"refuse\"\nrate = \"10/s\"\n{more}");
        let (plain, gold) = (limit(""), limit("tiers.gold = { rate = \"20/s\" }"));
        let said = changes_between(&plain, &gold);
        assert!(
            said.ends_with(", counters kept but for members of gold, whose counters start afresh"),
            "{said}"
        );
        let said = changes_between(&gold, &limit("tiers.blue = { rate = \"20/s\" }"));
        assert!(
            said.ends_with(
                ", counters kept but for members of gold and blue, whose counters start afresh"
            ),
            "{said}"
        );
        let said = changes_between(&gold, &limit("tiers.gold = { rate = \"30/s\" }"));
        assert!(said.ends_with(", units used stay used"), "{said}");
        assert_eq!(
            changes_between(&plain, &limit("unknown = \"ip\"").replace("refuse", "ip")),
            "limits.a: missing refuse to ip, unknown counted like others to ip, counters kept \
             but for keys that no group knows, which count otherwise \
             and requests without the key, which count otherwise"
        );
    }

    #[test]
    fn customers_whose_numbers_came_and_went_are_counted_and_never_named() {
        let outline = |numbers: &str, own: &str| {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join("own.txt"), numbers).unwrap();
            let text = format!(
                "[groups.keys]\nby = \"header:x-api-key\"\n\
                 customers = {{ acme = \"1\", beta = \"2\", gamma = \"3\" }}\n\
                 [limits.a]\nby = \"customer\"\nmissing = \"refuse\"\nrate = \"10/s\"\n{own}\n\
                 [upstreams.u]\nservers = \"a:1\"\n[routes.r]\nupstream = \"u\"\nlimits = \"a\"\n"
            );
            let path = folder.path().join("gateway.toml");
            parse(path.to_str().unwrap(), &text).unwrap().outline
        };
        let own = "own = \"own.txt\"";
        let old = outline("acme 20/s\nbeta 30/s\n", own);
        for (new, own, said, less) in [
            ("beta 30/s # beta\nacme  20/s\n", own, None, false),
            (
                "acme 20/s\nbeta 1800/min\n",
                own,
                Some("1 customer changed, units used stay used"),
                false,
            ),
            (
                "acme 20/s\nbeta 30/s burst=7\ngamma 5/s",
                own,
                Some("1 customer more, 1 changed, units used stay used"),
                false,
            ),
            (
                "beta 30/s\n",
                own,
                Some("1 customer fewer, units used stay used"),
                true,
            ),
            (
                "",
                "",
                Some("2 customers fewer, units used stay used"),
                true,
            ),
        ] {
            let new = outline(new, own);
            let changes = diff(&old, &new, &old.boot);
            let shown: Vec<String> = changes.iter().map(ToString::to_string).collect();
            let said = said.map(|said| format!("limits.a: own numbers for {said}"));
            assert_eq!(shown, Vec::from_iter(said));
            assert_eq!(taken_away(&old, &new).is_some(), less, "{shown:?}");
        }
    }

    #[test]
    fn keys_that_count_otherwise_by_their_case_are_told() {
        let limit = |more: &str| format!("missing = \"refuse\"\nrate = \"10/s\"\n{more}");
        assert_eq!(
            changes_between(&limit(""), &limit("key_case = \"insensitive\"")),
            "limits.a: key_case sensitive to insensitive, counters kept \
             but for keys with capitals or blanks at the ends, which count otherwise"
        );
    }

    #[test]
    fn how_long_a_refusal_blocks_is_told() {
        let limit = |more: &str| format!("missing = \"refuse\"\nrate = \"10/s\"\n{more}");
        assert_eq!(
            changes_between(&limit(""), &limit("block = \"15min\"")),
            "limits.a: block nothing to 15min, counters kept"
        );
        assert_eq!(
            changes_between(
                &limit("block = \"15min\""),
                &limit("block = { for = \"1min\", up_to = \"1d\" }")
            ),
            "limits.a: block 15min to 1min up to 1d, counters kept"
        );
    }

    #[test]
    fn how_long_a_slot_lives_is_told() {
        let limit = |more: &str| {
            format!("missing = \"skip\"\nalgorithm = \"concurrency\"\nmax = 5\n{more}")
        };
        assert_eq!(
            changes_between(&limit(""), &limit("slot_ttl = \"1min\"")),
            "limits.a: slot_ttl 30s to 1min, counters kept"
        );
    }
}
