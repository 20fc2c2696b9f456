//! The notes on counting: queues that never fill, weeks that begin on Thursday, counters that a restart loses, failures
//! that use up a limit of a few requests a day, blocks that strangers can bring about.

use crate::config::{Code, Compiled, describe};
use crate::limit::clock_window::Anchor;
use crate::limit::{Limit, Rule, Scope};
use std::collections::HashSet;
use std::sync::Arc;

/// A limit whose quota returns in this time or later loses much if its counters are lost.
const DAY: u64 = 86_400_000_000;
const WEEK: u64 = 7 * DAY;
/// A limit on which a request counts for this time or longer admits a few a day.
const LONG_FOR_ONE: u64 = 3_600_000_000;

/// All these notes.
pub(super) fn list_notes(compiled: &Compiled) -> Vec<String> {
    let mut notes = queues_never_full(compiled);
    notes.extend(weeks(compiled));
    notes.extend(forgotten(compiled));
    notes.extend(few_a_day(compiled));
    notes.extend(shut_out(compiled));
    notes
}

/// A limit and its tiers, each with its name for people, derived from the limit's.
pub(super) fn with_tiers(
    name: String,
    limit: &Arc<Limit>,
) -> impl Iterator<Item = (String, &Arc<Limit>)> {
    let tiers: Vec<_> = limit
        .tiers
        .iter()
        .map(|tier| {
            let name = format!("{name} (group {})", tier.group.name);
            (name, &tier.limit)
        })
        .collect();
    std::iter::once((name, limit)).chain(tiers)
}

/// Queues with places that no request reaches within `max_wait`.
fn queues_never_full(compiled: &Compiled) -> Vec<String> {
    let limits = compiled.outline.limits.iter();
    let limits = limits.flat_map(|limit| with_tiers(limit.shown().to_string(), limit));
    let queues = limits.filter_map(|(name, limit)| {
        let rule = limit.rule.queue()?;
        let (queue, most) = (rule.queue, rule.most_waiting());
        let whole = rule.bucket.interval.times(u64::from(queue)).ceil();
        let is_reported = !compiled.ignores(Code::QueueNeverFull, limit);
        (is_reported && most < u64::from(queue)).then(|| {
            format!(
                "queue-never-full: limit {name} has a queue of {queue}, and `max_wait` lets at most {most} wait: `queue = {most}` means the same; to let the whole queue wait, write `max_wait = \"{}\"`",
                describe::rounded_up(whole)
            )
        })
    });
    queues.collect()
}

/// Weeks by the clock that begin on Thursday, as 1970 did.
fn weeks(compiled: &Compiled) -> Vec<String> {
    let limits = compiled.outline.limits.iter();
    let limits = limits.flat_map(|limit| with_tiers(limit.shown().to_string(), limit));
    let on_thursday = limits.filter(|(_, limit)| match &limit.rule {
        Rule::ClockWindow(rule) => {
            matches!(rule.anchor, Anchor::Clock { window, offset: 0 } if window.is_multiple_of(WEEK))
        }
        _ => false,
    });
    let notes = on_thursday.map(|(name, limit)| {
        format!(
            "limit {name} counts weeks from Thursday 00:00 UTC; `rate = \"{}\"` with `timezone = \"UTC\"` begins on Monday",
            describe::rate(limit)
        )
    });
    notes.collect()
}

/// Limits over a day and more, whose store does not keep counters that long.
fn forgotten(compiled: &Compiled) -> Vec<String> {
    let asks = compiled.asks_redis();
    let is_shared = |limit: &Limit| asks && limit.scope == Scope::Cluster;
    let long = |shared: bool| {
        let mut seen: HashSet<String> = HashSet::new();
        let mut names: Vec<String> = Vec::new();
        let all = compiled.outline.limits.iter();
        for (name, limit) in all.flat_map(|limit| with_tiers(limit.name.to_string(), limit)) {
            let is_long = limit.rule.concurrency().is_none() && limit.refill >= DAY;
            // All rates of a limit share one name.
            if is_long && is_shared(limit) == shared && seen.insert(name.clone()) {
                names.push(name);
            }
        }
        (!names.is_empty()).then(|| names.join(", "))
    };
    let in_memory = long(false).map(|names| {
        let instead = if asks {
            "`scope = \"cluster\"` counts them in the store"
        } else {
            "name a [store] to keep it"
        };
        format!(
            "counted in memory over a day and more: {names}; a restart forgets what was used, and each client has the whole limit again: {instead}"
        )
    });
    let in_redis = long(true).map(|names| {
        format!(
            "counted in Redis over a day and more: {names}; Redis must write to disk (`appendonly yes`), or its restart forgets what was used"
        )
    });
    in_memory.into_iter().chain(in_redis).collect()
}

/// Limits of a few requests a day in front of servers whose failures are charged.
fn few_a_day(compiled: &Compiled) -> Vec<String> {
    let services = compiled.snapshot.services.iter();
    let forwarded = services.filter(|service| service.upstream.is_some());
    // Routes share the limits of `[defaults]`.
    let mut looked_at: HashSet<*const Limit> = HashSet::new();
    let limits = forwarded.flat_map(|service| &service.limits);
    let limits = limits.filter(|limit| looked_at.insert(Arc::as_ptr(limit)));
    let mut seen: HashSet<String> = HashSet::new();
    let mut names: Vec<String> = Vec::new();
    for limit in limits {
        for (name, limit) in with_tiers(limit.name.to_string(), limit) {
            if uses_up_a_day(limit) && seen.insert(name.clone()) {
                names.push(name);
            }
        }
    }
    let notes = names.into_iter().map(|name| {
        format!(
            "limit {name} lets a few requests a day through and gives nothing back after a 502: with `refund = \"5xx\"` a client does not pay for a server's failure"
        )
    });
    notes.collect()
}

/// Limits whose keys anybody can name, so that anybody can have them blocked.
fn shut_out(compiled: &Compiled) -> Vec<String> {
    let limits = compiled.outline.limits.iter();
    let limits = limits.filter(|limit| limit.blocking.is_some() && !is_of_client(limit));
    let mut names: Vec<&str> = limits.map(|limit| &*limit.name).collect();
    names.dedup();
    let notes = names.into_iter().map(|name| {
        format!(
            "limit {name} blocks keys that any client can name: a stranger can shut their owners out; with `ip` beside, as `by = [\"ip\", ..]`, the stranger shuts out itself"
        )
    });
    notes.collect()
}

/// Does a part of the key tell clients apart by something that others cannot claim?
fn is_of_client(limit: &Limit) -> bool {
    let mut parts = limit.by.parts.iter();
    parts.any(|part| {
        part.is_by_address()
            || part.is_of_certificate()
            || part.is_credential()
            || part.is_proof()
            || part.claim().is_some()
    })
}

/// Does a request that a server fails cost its client an hour or more?
fn uses_up_a_day(limit: &Limit) -> bool {
    let cost = limit.cost.units();
    let (count, period) = (limit.rate.count.get(), limit.rate.period.get());
    limit.mode.decides()
        && limit.rule.concurrency().is_none()
        && !limit.refund_on.errors
        && period.saturating_mul(cost) / count >= LONG_FOR_ONE
}
