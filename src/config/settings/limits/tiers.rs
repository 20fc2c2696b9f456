//! Compiles the tiers of a limit with the numbers of a group, and finds the groups that contain a limit's keys.

use super::{Groups, KnownValues, Scene, untiered};
use crate::config::document::{Limit, Setting, Tier as Written};
use crate::config::input::At;
use crate::config::report::{Code, Details as _, Diagnostic, Findings};
use crate::key::{Group, KeyPart, KeyTemplate, MemberForm, MissingKey, UnknownKey};
use crate::limit;
use crate::limit::tier::Tier;
use std::sync::Arc;

/// Returns `limits`, which are compiled from `written`, with their tiers. Returns no limit if one of the tiers has a
/// mistake.
pub(super) fn add(
    limits: Vec<limit::Limit>,
    written: &Limit,
    scene: &Scene<'_>,
    found: &mut Findings,
) -> Vec<limit::Limit> {
    if limits.is_empty() || written.tiers.is_absent() {
        return limits;
    }
    let mut of_groups: Vec<_> = written
        .tiers
        .entries()
        .iter()
        .filter_map(|tier| Some((scene.groups.find(&tier.value.name.value)?, tier)))
        .collect();
    of_groups.sort_by_key(|((position, _), _)| *position);
    if limits[0].by.counts_customers() {
        let tiers = of_groups.iter().map(|((_, group), tier)| (*group, *tier));
        note_others(written, tiers, found);
    }
    let mut tiers: Vec<Vec<Tier>> = limits.iter().map(|_| Vec::new()).collect();
    // A tier is compiled from the limit without tiers.
    let base = Limit {
        tiers: Setting::Absent,
        ..written.clone()
    };
    for ((_, group), tier) in of_groups {
        let Some(compiled) = compile(&limits, &base, tier, scene, found) else {
            return Vec::new();
        };
        for (tiers, limit) in tiers.iter_mut().zip(compiled) {
            tiers.push(Tier {
                group: Arc::clone(group),
                limit: Arc::new(
                    limit.edited(|policy| policy.group = Some(Arc::clone(&group.name))),
                ),
            });
        }
    }
    let tiered = limits.into_iter().zip(tiers);
    tiered
        .map(|(limit, tiers)| limit.edited(|policy| policy.tiers = tiers))
        .collect()
}

/// Compiles one tier, which has as many rates as the limit.
fn compile(
    limits: &[limit::Limit],
    written: &Limit,
    tier: &At<Written>,
    scene: &Scene<'_>,
    found: &mut Findings,
) -> Option<Vec<limit::Limit>> {
    let whole = written.with_tier(&tier.value);
    if whole.rate.entries().len() != written.rate.entries().len() && !written.rate.is_absent() {
        other_list(written, &tier.value, found);
        return None;
    }
    let mut mistakes = Findings::default();
    let compiled = untiered(&whole, &limits[0].name, scene, &mut mistakes);
    // A mistake of the limit itself has been reported.
    mistakes.retain(|one| {
        let span = |one: &Diagnostic| one.primary.as_ref().map(|label| label.span.clone());
        let same = |other: &Diagnostic| other.code == one.code && span(other) == span(one);
        !found.iter().any(same)
    });
    let is_right = !mistakes.has_error_since(0);
    found.append(&mut mistakes);
    (is_right && compiled.len() == limits.len()).then_some(compiled)
}

fn other_list(written: &Limit, tier: &Written, found: &mut Findings) {
    let (name, group) = (&written.name.value, &tier.name.value);
    let rates = |many: usize| match many {
        1 => "one rate".to_owned(),
        many => format!("{many} rates"),
    };
    let rate_count = rates(written.rate.entries().len());
    let others = rates(tier.rate.entries().len());
    let place = tier.rate.span().unwrap_or(&tier.name.span);
    let message =
        format!("limit `{name}` has {rate_count}, and its tier for `{group}` has {others}");
    found
        .conflict(message)
        .at(place, "a tier has as many rates as its limit, one for each")
        .and_if(written.rate.span(), rate_count)
        .help("write as many, in the same order");
}

/// The groups that name customers.
fn naming(groups: &Groups) -> Vec<Arc<Group>> {
    let naming = groups.all.iter().filter(|group| group.names_customers());
    naming.cloned().collect()
}

/// The groups that name customers, for a limit without `unknown`: an unknown credential is worth no more than none.
pub(super) fn known_customers(template: &KeyTemplate, groups: &Groups) -> KnownValues {
    let of_part = |part: &KeyPart| match part {
        KeyPart::Customer => naming(groups),
        _ => Vec::new(),
    };
    KnownValues {
        groups: template.parts.iter().map(of_part).collect(),
        otherwise: match template.missing {
            MissingKey::Refuse => UnknownKey::Refuse,
            MissingKey::Ip => UnknownKey::Ip,
            MissingKey::Skip => UnknownKey::Skip,
            MissingKey::Shared => UnknownKey::Shared,
        },
    }
}

/// Notes tiers of a limit by customer for groups that do not consist of customers. A plan is the customer's, whichever
/// credential a request shows.
fn note_others<'a>(
    written: &Limit,
    tiers: impl Iterator<Item = (&'a Arc<Group>, &'a At<Written>)>,
    found: &mut Findings,
) {
    for (group, tier) in tiers.filter(|(group, _)| group.named().is_none()) {
        let name = &group.name;
        found
            .error(
                Code::TierByOther,
                format!("{written} counts customers, and its tier `{name}` is for others"),
            )
            .at(&tier.value.name.span, format!("members go by `{}`", group.by))
            .help(format!(
                "write `customers` in `[groups.{name}]`, or `by = \"customer\"` there with names as members"
            ));
    }
}

/// The groups that contain values of each of `parts`, for a limit with `unknown`.
pub(super) fn known(
    written: &Limit,
    parts: &[KeyPart],
    groups: &Groups,
    found: &mut Findings,
    unknown: &At<UnknownKey>,
) -> Option<KnownValues> {
    let of_part = |part: &KeyPart| -> Vec<Arc<Group>> {
        if part.is_customer() {
            return naming(groups);
        }
        let same = groups.all.iter().filter(|group| group.by == *part);
        same.filter(|_| !part.is_by_address()).cloned().collect()
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
        .find(|part| !matches!(part.members(), MemberForm::None | MemberForm::Network));
    let help = match example {
        Some(part) => format!(
            "add a group by that part, as\n[groups.known]\nby = \"{part}\"\nfile = \"keys.txt\"\nor leave `unknown` out"
        ),
        None if parts.iter().any(KeyPart::is_unverified_user) => "count customers: `by = \"customer\"`, with a group by `basic` that has `customers`; or leave `unknown` out".to_owned(),
        None => "leave `unknown` out: no client can invent the key of this limit".to_owned(),
    };
    let name = &written.name.value;
    let message = format!("limit `{name}` has `unknown`, but no group knows its keys");
    found
        .conflict(message)
        .at(&unknown.span, "every key would be unknown")
        .and(&by.span, "the key")
        .help(help);
    None
}
