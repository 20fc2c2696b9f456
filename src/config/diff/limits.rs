//! What has changed about limits, and what becomes of their counters.

use super::super::describe::{
    amount, cost, dedupe, exempt, key, missing, on_down, rate, refund, scope, span_as_written,
    tier, unknown,
};
use super::{Change, Outline, collection};
use crate::limit::Preflights;
use crate::limit::clock_window::Anchor;
use crate::limit::{Limit, Mode, Rule};
use std::sync::Arc;

/// Another kind or another key counts elsewhere in the store. Where that has been the limit's before, and not long ago,
/// its counters are still there.
const AFRESH: &str = "counters start afresh, or go on where this limit counted so before";

/// The same kind and key go on.
const KEPT: &str = "counters kept";
/// As much for a limit that is gone, and for one that has come: a name is what counters are kept by.
const GONE: &str = "removed, its counters dropped";
const COME: &str =
    "added, counters start afresh, or go on where a limit of this name counted so before";

/// A limit with all its rates.
type Rates<'a> = &'a [Arc<Limit>];

pub(super) fn limits(old: &Outline, new: &Outline, changes: &mut Vec<Change>) {
    let (old, new) = (by_name(&old.limits), by_name(&new.limits));
    collection(
        "limits",
        (&old, &new),
        |rates| &rates[0].name,
        (GONE, COME),
        |was, is| difference(old[was], new[is]),
        changes,
    );
}

/// The rates of one limit stand side by side.
fn by_name(limits: &[Arc<Limit>]) -> Vec<Rates<'_>> {
    limits.chunk_by(|a, b| a.name == b.name).collect()
}

fn difference(old: Rates<'_>, new: Rates<'_>) -> Option<String> {
    let ((old, before), (new, after)) = (without_candidate(old), without_candidate(new));
    let mut parts = Vec::new();
    let mut push = |what: &str, a: String, b: String| {
        if a != b {
            parts.push(format!("{what} {a} to {b}"));
        }
    };
    let (a, b) = (&*old[0], &*new[0]);
    push(
        "algorithm",
        algorithm(&a.rule).into(),
        algorithm(&b.rule).into(),
    );
    push("by", key(&a.by), key(&b.by));
    push("rate", rates(old), rates(new));
    for ((what, a), (_, b)) in numbers(old).into_iter().zip(numbers(new)) {
        if let (Some(a), Some(b)) = (a, b) {
            push(what, a, b);
        }
    }
    push("cost", cost(a), cost(b));
    push("partial", a.partial.to_string(), b.partial.to_string());
    push("dedupe", dedupe(a), dedupe(b));
    push("exempt", exempt(a), exempt(b));
    push("tiers", tiers(old), tiers(new));
    push("unknown", unknown(&a.by).into(), unknown(&b.by).into());
    push("scope", scope(a.scope).into(), scope(b.scope).into());
    push("on_down", on_down(a).into(), on_down(b).into());
    push("lease", a.leasing.to_string(), b.leasing.to_string());
    push("with", with(a), with(b));
    push("mode", a.mode.as_str().into(), b.mode.as_str().into());
    push("candidate", candidate(before), candidate(after));
    push(
        "refund",
        refund(a.refund_on).into(),
        refund(b.refund_on).into(),
    );
    push(
        "public_name",
        a.public_name().to_string(),
        b.public_name().to_string(),
    );
    push(
        "status",
        a.answers.refusal.to_string(),
        b.answers.refusal.to_string(),
    );
    push(
        "missing_status",
        a.answers.keyless.to_string(),
        b.answers.keyless.to_string(),
    );
    push("preflights", preflights(a).into(), preflights(b).into());
    if a.by.can_be_absent() || b.by.can_be_absent() {
        push(
            "missing",
            missing(a.by.missing).into(),
            missing(b.by.missing).into(),
        );
    }
    if parts.is_empty() {
        return None;
    }
    let mut kept = counters(old, new).to_owned();
    let elsewhere = elsewhere(a, b);
    if kept.starts_with(KEPT) && !elsewhere.is_empty() {
        kept.push_str(&format!(" but for {}", elsewhere.join(" and ")));
    }
    parts.push(kept);
    Some(parts.join(", "))
}

/// A limit's own rates, and those of its candidate, which stand behind them.
fn without_candidate(rates: Rates<'_>) -> (Rates<'_>, Rates<'_>) {
    let own = rates.iter().take_while(|one| one.mode != Mode::Candidate);
    rates.split_at(own.count())
}

/// `at most 8 at once, 16 in the first second, 8 in each later second`, `nothing`.
fn candidate(rates: Rates<'_>) -> String {
    match rates {
        [] => "nothing".into(),
        some => {
            let shown: Vec<String> = some.iter().map(|limit| amount(limit)).collect();
            shown.join(" and ")
        }
    }
}

/// What becomes of the counters: those of a kind go on.
fn counters(old: Rates<'_>, new: Rates<'_>) -> &'static str {
    let kept = |limit: &Limit| {
        let same = |other: &Arc<Limit>| {
            (other.kind, other.scope, &other.with) == (limit.kind, limit.scope, &limit.with)
        };
        old.iter().any(same)
    };
    let many = match old[0].by.parts == new[0].by.parts {
        true => new.iter().filter(|limit| kept(limit)).count(),
        false => 0,
    };
    match many {
        0 => AFRESH,
        many if many == new.len() => KEPT,
        _ => "counters kept for rates over the same time",
    }
}

/// Whose requests count on other counters than before, though the limit's are kept.
fn elsewhere(old: &Limit, new: &Limit) -> Vec<String> {
    let groups = |limit: &Limit| -> Vec<String> {
        let tiers = limit.tiers.iter();
        tiers.map(|one| one.group.name.to_string()).collect()
    };
    let (before, after) = (groups(old), groups(new));
    let gone = before.iter().filter(|name| !after.contains(name));
    let come = after.iter().filter(|name| !before.contains(name));
    let names: Vec<&str> = gone.chain(come).map(String::as_str).collect();
    let mut whose = Vec::new();
    if !names.is_empty() {
        let names = names.join(" and ");
        whose.push(format!("members of {names}, who start on others"));
    }
    if unknown(&old.by) != unknown(&new.by) {
        whose.push("keys that no group knows, which count otherwise".to_owned());
    }
    let absent = old.by.can_be_absent() || new.by.can_be_absent();
    if absent && missing(old.by.missing) != missing(new.by.missing) {
        whose.push("requests without the key, which count otherwise".to_owned());
    }
    whose
}

/// Under which tag it is counted.
fn with(limit: &Limit) -> String {
    limit.with.as_deref().unwrap_or("its own keys").to_owned()
}

fn preflights(limit: &Limit) -> &'static str {
    match limit.answers.preflights {
        Preflights::Free => "free",
        Preflights::Counted => "counted",
    }
}

fn rates(limits: Rates<'_>) -> String {
    let shown: Vec<String> = limits.iter().map(|limit| rate(limit)).collect();
    shown.join(" and ")
}

/// `gold (at most 200 at once, ...) and internal (...)`.
fn tiers(limits: Rates<'_>) -> String {
    let of = |limit: &Arc<Limit>| -> Vec<String> {
        let tiers = limit.tiers.iter();
        tiers
            .map(|one| format!("{} ({})", one.group.name, tier(&one.limit)))
            .collect()
    };
    let shown: Vec<String> = limits.iter().flat_map(of).collect();
    match shown.is_empty() {
        true => "none".to_owned(),
        false => shown.join(" and "),
    }
}

fn algorithm(rule: &Rule) -> &'static str {
    match rule {
        Rule::TokenBucket(_) => "token-bucket",
        Rule::LeakyBucket(_) => "leaky-bucket",
        Rule::FixedWindow(_) | Rule::ClockWindow(_) => "fixed-window",
        Rule::SlidingWindow(_) => "sliding-window",
        Rule::SlidingLog(_) => "sliding-log",
        Rule::Concurrency(_) => "concurrency",
    }
}

/// What an algorithm has beside its rate; where either has none of it there is nothing to compare.
fn numbers(limits: Rates<'_>) -> [(&'static str, Option<String>); 10] {
    let mut burst = None;
    let (mut queue, mut max_wait, mut over) = (None, None, None);
    let (mut anchor, mut offset, mut timezone) = (None, None, None);
    let (mut buckets, mut strict, mut slot_ttl) = (None, None, None);
    let bursts = |of: &dyn Fn(&Rule) -> Option<u32>| {
        let all: Vec<String> = limits
            .iter()
            .filter_map(|limit| of(&limit.rule))
            .map(|burst| burst.to_string())
            .collect();
        Some(all.join(" and "))
    };
    match &limits[0].rule {
        Rule::TokenBucket(_) => {
            burst = bursts(&|rule| match rule {
                Rule::TokenBucket(rule) => Some(rule.burst.get()),
                _ => None,
            });
        }
        Rule::LeakyBucket(rule) => {
            burst = bursts(&|rule| match rule {
                Rule::LeakyBucket(rule) => Some(rule.burst.get()),
                _ => None,
            });
            let delays = rule.queue > 0;
            over = Some(if delays { "delay" } else { "refuse" }.into());
            queue = delays.then(|| rule.queue.to_string());
            max_wait = delays.then(|| span_as_written(rule.max_wait));
        }
        Rule::FixedWindow(_) => anchor = Some("first".into()),
        Rule::ClockWindow(rule) => {
            anchor = Some("clock".into());
            let (later, zone) = match &rule.anchor {
                Anchor::Clock { offset, .. } => (*offset, "UTC"),
                Anchor::Calendar(calendar) => (calendar.offset, &*calendar.zone_name),
            };
            offset = Some(span_as_written(later));
            timezone = Some(zone.into());
        }
        Rule::SlidingWindow(rule) => {
            buckets = Some(rule.parts.to_string());
            strict = Some(rule.strict.to_string());
        }
        Rule::Concurrency(rule) => slot_ttl = Some(span_as_written(rule.ttl)),
        Rule::SlidingLog(_) => {}
    }
    [
        ("burst", burst),
        ("queue", queue),
        ("max_wait", max_wait),
        ("over", over),
        ("anchor", anchor),
        ("offset", offset),
        ("timezone", timezone),
        ("buckets", buckets),
        ("strict", strict),
        ("slot_ttl", slot_ttl),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::diff;
    use crate::config::parse;

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
            said.ends_with(", counters kept but for members of gold, who start on others"),
            "{said}"
        );
        let said = changes_between(&gold, &limit("tiers.blue = { rate = \"20/s\" }"));
        assert!(
            said.ends_with(", counters kept but for members of gold and blue, who start on others"),
            "{said}"
        );
        let said = changes_between(&gold, &limit("tiers.gold = { rate = \"30/s\" }"));
        assert!(said.ends_with(", counters kept"), "{said}");
        assert_eq!(
            changes_between(&plain, &limit("unknown = \"ip\"").replace("refuse", "ip")),
            "limits.a: unknown counted like others to ip, missing refuse to ip, counters kept \
             but for keys that no group knows, which count otherwise \
             and requests without the key, which count otherwise"
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
