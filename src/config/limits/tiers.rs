//! Tiers of a limit: the limit itself, compiled with what a group has otherwise; and which keys groups know.

use super::{Groups, KnownValues, alone};
use crate::config::Severity;
use crate::config::diagnostic::{Code, Diagnostic};
use crate::config::document::{Limit, Setting, Tier as Written};
use crate::config::source::At;
use crate::key::{Group, KeyPart, UnknownKey};
use crate::limit;
use crate::limit::tier::Tier;
use std::sync::Arc;

/// Gives `limits`, which `written` has been compiled to, their tiers. Nothing is left when one of them is wrong.
pub(super) fn add(
    limits: Vec<limit::Limit>,
    written: &Limit,
    groups: &Groups,
    found: &mut Vec<Diagnostic>,
) -> Vec<limit::Limit> {
    if limits.is_empty() || written.tiers.is_absent() {
        return limits;
    }
    let mut of_groups: Vec<_> = written
        .tiers
        .entries()
        .iter()
        .filter_map(|tier| Some((groups.find(&tier.value.name.value)?, tier)))
        .collect();
    of_groups.sort_by_key(|((position, _), _)| *position);
    let mut tiers: Vec<Vec<Tier>> = limits.iter().map(|_| Vec::new()).collect();
    // What each of them is made from, without all the others.
    let base = Limit {
        tiers: Setting::Absent,
        ..written.clone()
    };
    for ((_, group), tier) in of_groups {
        let Some(compiled) = compile(&limits, &base, tier, (group, groups), found) else {
            return Vec::new();
        };
        for (tiers, limit) in tiers.iter_mut().zip(compiled) {
            tiers.push(Tier {
                group: Arc::clone(group),
                limit: Arc::new(limit.for_group(group)),
            });
        }
    }
    let tiered = limits.into_iter().zip(tiers);
    tiered.map(|(limit, tiers)| limit.tiered(tiers)).collect()
}

/// One tier, of as many rates as the limit.
fn compile(
    limits: &[limit::Limit],
    written: &Limit,
    tier: &At<Written>,
    (group, groups): (&Group, &Groups),
    found: &mut Vec<Diagnostic>,
) -> Option<Vec<limit::Limit>> {
    let whole = written.with_tier(&tier.value);
    if whole.rate.entries().len() != written.rate.entries().len() && !written.rate.is_absent() {
        found.push(other_list(written, &tier.value));
        return None;
    }
    let mut mistakes = Vec::new();
    let compiled = alone(&whole, &limits[0].name, groups, &mut mistakes);
    // What is wrong with the limit itself has been said once.
    mistakes.retain(|one| {
        let span = |one: &Diagnostic| one.primary.as_ref().map(|label| label.span.clone());
        let same = |other: &Diagnostic| other.code == one.code && span(other) == span(one);
        !found.iter().any(same)
    });
    let wrong = mistakes.iter().any(|one| one.severity == Severity::Error);
    found.append(&mut mistakes);
    (!wrong && compiled.len() == limits.len() && *group.name == *tier.value.name.value)
        .then_some(compiled)
}

fn other_list(written: &Limit, tier: &Written) -> Diagnostic {
    let (name, group) = (&written.name.value, &tier.name.value);
    let (own, theirs) = (written.rate.entries().len(), tier.rate.entries().len());
    let rates = |many: usize| match many {
        1 => "one rate".to_owned(),
        many => format!("{many} rates"),
    };
    let place = tier.rate.at().map_or(&tier.name.span, |at| &at.span);
    let mut diagnostic = Diagnostic::error(
        Code::Conflict,
        format!(
            "limit `{name}` has {}, and its tier for `{group}` {}",
            rates(own),
            rates(theirs)
        ),
    )
    .at(place, "a tier has as many rates as its limit, one for each");
    if let Some(rates) = written.rate.at() {
        diagnostic = diagnostic.and(&rates.span, rates_of(own));
    }
    diagnostic.help("write as many, in the same order")
}

fn rates_of(many: usize) -> &'static str {
    match many {
        1 => "one",
        _ => "these",
    }
}

/// The groups that know the values of each of `parts`, for a limit whose unknown keys count otherwise.
pub(super) fn known(
    written: &Limit,
    parts: &[KeyPart],
    groups: &Groups,
    found: &mut Vec<Diagnostic>,
    unknown: &At<UnknownKey>,
) -> Option<KnownValues> {
    let of_part = |part: &KeyPart| -> Vec<Arc<Group>> {
        let same = groups.all.iter().filter(|group| group.by == *part);
        same.filter(|_| !matches!(part, KeyPart::Ip(_)))
            .cloned()
            .collect()
    };
    let known: Vec<Vec<Arc<Group>>> = parts.iter().map(of_part).collect();
    if known.iter().any(|groups| !groups.is_empty()) {
        return Some(KnownValues {
            groups: known,
            otherwise: unknown.value,
        });
    }
    let by = written.by.at()?;
    let example = parts
        .iter()
        .find(|part| !matches!(part, KeyPart::Ip(_) | KeyPart::Method | KeyPart::Route));
    let help = match example {
        Some(part) => format!(
            "add a group by the same, as\n[groups.known]\nby = \"{part}\"\nfile = \"keys.txt\"\nor leave `unknown` out"
        ),
        None => "leave `unknown` out: nobody can invent what this limit counts by".to_owned(),
    };
    found.push(
        Diagnostic::error(
            Code::Conflict,
            format!(
                "limit `{}` tells unknown keys apart, and no group knows any",
                written.name.value
            ),
        )
        .at(&unknown.span, "every key would be unknown")
        .and(&by.span, "counted by this")
        .help(help),
    );
    None
}
