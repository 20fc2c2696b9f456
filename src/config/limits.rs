//! One limit as written → the limits that count: defaults filled in, contradictions and numbers out of range refused.
//! A limit with a list of rates becomes one limit for each rate, all under its name.

mod contradictions;
mod rates;
mod rules;
mod tiers;

use super::Severity;
use super::diagnostic::{Code, Diagnostic};
use super::document::{CostSource, Limit, RefundCause, Setting};
use super::groups::Groups;
use super::span::{At, Span};
use crate::key::{
    Exemption, IdField, KeyPart, KeyTemplate, KnownValues, Meter, MissingKey, OnLeave, Price,
};
use crate::limit::dedupe::Dedupe;
use crate::limit::rate::{Cost, Rate};
use crate::limit::{self, LeaseSetting, Mode, Policy, RefundCondition, ResponsePolicy, Scope};
use rules::RatedRule;
use std::sync::Arc;

/// The tag of all limits where the store has them together.
const ALL: &str = "together";

/// The limit under `together = true`. A limit with a tag of its own keeps that.
pub(super) fn together(written: &Limit, all: &Setting<bool>) -> Limit {
    let mut written = written.clone();
    if let Some(all) = all.at().filter(|all| all.value)
        && written.with.is_absent()
        && written.scope() == Scope::Cluster
    {
        written.with = Setting::Valid(At::new(ALL.to_owned(), all.span.clone()));
    }
    written
}

/// Compiles one limit with its tiers, and behind it its candidate; none when something about it is wrong, which has been
/// noted then.
pub(super) fn compile(
    written: &Limit,
    groups: &Groups,
    found: &mut Vec<Diagnostic>,
) -> Vec<Arc<limit::Limit>> {
    let name: Arc<str> = written.name.value.as_str().into();
    let before = found.len();
    let limits = untiered(written, &name, groups, found);
    let mut limits = tiers::add(limits, written, groups, found);
    if let Some(candidate) = written.with_candidate() {
        // A mistake of both is reported once.
        let mut more = Vec::new();
        let candidates = untiered(&candidate, &name, groups, &mut more);
        more.retain(|one| !found[before..].contains(one));
        found.extend(more);
        let candidates = candidates.into_iter();
        limits.extend(candidates.map(|limit| limit.edited(|policy| policy.mode = Mode::Candidate)));
    }
    limits.into_iter().map(Arc::new).collect()
}

/// Compiles one limit without its tiers, under `name`.
fn untiered(
    written: &Limit,
    name: &Arc<str>,
    groups: &Groups,
    found: &mut Vec<Diagnostic>,
) -> Vec<limit::Limit> {
    let before = found.len();
    let by = template(written, groups, found);
    if written.algorithm.is_bad() {
        return Vec::new();
    }
    let algorithm = written.algorithm();
    contradictions::note(written, algorithm, found);
    let rules = rules::all(written, algorithm, found);
    let Some(rules) = rules.filter(|_| !has_errors(&found[before..])) else {
        return Vec::new();
    };
    rates::compare(written, &rules, found);
    let Some(by) = by.filter(|_| !has_errors(&found[before..])) else {
        return Vec::new();
    };
    let charge = charge(written);
    let exempt = exempt(written, groups, found);
    warn_of_cost(written, &rules, &charge, found);
    let is_list = rules.len() > 1;
    let limits = rules.into_iter().map(|RatedRule { rate, rule, shown }| {
        let policy = Policy {
            window: is_list.then(|| shown.into()),
            exempt: exempt.clone(),
            ..policy(written, name, &by, rate, &charge)
        };
        limit::Limit::new(policy, rule)
    });
    let limits: Vec<limit::Limit> = limits.collect();
    warn_of_leases(written, &limits, found);
    limits
}

fn has_errors(found: &[Diagnostic]) -> bool {
    found.iter().any(|one| one.severity == Severity::Error)
}

/// What the file says of a limit, but for what is compiled with all limits or rates.
fn policy(
    written: &Limit,
    name: &Arc<str>,
    by: &KeyTemplate,
    rate: Rate,
    charge: &ChargeRule,
) -> Policy {
    Policy {
        mode: written.mode(),
        scope: written.scope(),
        with: written.with.get().map(|tag| tag.as_str().into()),
        cost: charge.cost,
        price: charge.price.clone(),
        meter: charge.meter.clone(),
        partial: written.partial(),
        dedupe: dedupe(written),
        refund_on: refund_on(written),
        on_down: written.on_down.get().copied(),
        leasing: written.lease(),
        answers: answers(written),
        place: written.name.span.start,
        ..Policy::new(Arc::clone(name), by.clone(), rate)
    }
}

/// `lease` of a limit that gives no leases. Of a list of rates some may be leased.
fn warn_of_leases(written: &Limit, limits: &[limit::Limit], found: &mut Vec<Diagnostic>) {
    let lease = written
        .lease
        .at()
        .filter(|at| at.value != LeaseSetting::Off);
    let whys: Option<Vec<_>> = limits.iter().map(limit::Limit::why_unleased).collect();
    if let (Some(lease), Some(why)) = (lease, whys.and_then(|whys| whys.first().copied())) {
        let message = format!("limit `{}` gives no leases", written.name.value);
        found.push(
            Diagnostic::warning(Code::Conflict, message)
                .at(&lease.span, why)
                .help("leave `lease` out: every request asks Redis"),
        );
    }
}

/// The key template.
fn template(written: &Limit, groups: &Groups, found: &mut Vec<Diagnostic>) -> Option<KeyTemplate> {
    let name = &written.name.value;
    let by = written.by.at()?;
    let before = found.len();
    let everyone = by.value.iter().find(|part| part.value.is_none());
    if let Some(everyone) = everyone.filter(|_| by.value.len() > 1) {
        found.push(
            Diagnostic::conflict(format!(
                "limit `{name}` counts by `everyone` and by something else"
            ))
            .at(&everyone.span, "one key for every request")
            .help("leave `everyone` out"),
        );
    } else if let Some((first, second)) = repeated(&by.value) {
        let message = format!("limit `{name}` counts by the same thing twice");
        found.push(
            Diagnostic::error(Code::Duplicate, message)
                .at(second, "the second time")
                .and(first, "the first time"),
        );
    }
    let mut template = KeyTemplate {
        parts: by.value.iter().filter_map(|at| at.value.clone()).collect(),
        missing: written.missing.or(MissingKey::Refuse),
        unknown: None,
    };
    if let Some(unknown) = written.unknown.at() {
        template.unknown = tiers::known(written, &template.parts, groups, found, unknown);
    }
    let absent = template.can_be_absent();
    if !absent {
        template.missing = MissingKey::Shared;
    }
    match written.missing.at() {
        Some(missing) if !absent => {
            let message = format!("limit `{name}` has `missing`, but every request has its key");
            found.push(
                Diagnostic::warning(Code::NeedlessMissing, message)
                    .at(&missing.span, "has no effect")
                    .and(&by.span, "in every request")
                    .help("leave `missing` out"),
            );
        }
        None if absent && written.missing.is_absent() => {
            found.push(missing_choice(written, by, &template));
        }
        _ => {}
    }
    (!has_errors(&found[before..])).then_some(template)
}

fn repeated(parts: &[At<Option<KeyPart>>]) -> Option<(&Span, &Span)> {
    let same =
        |a: &KeyPart, b: &KeyPart| matches!((a, b), (KeyPart::Ip(_), KeyPart::Ip(_))) || a == b;
    parts.iter().enumerate().find_map(|(index, later)| {
        let earlier =
            parts[..index]
                .iter()
                .find(|earlier| match (&earlier.value, &later.value) {
                    (Some(a), Some(b)) => same(a, b),
                    _ => false,
                })?;
        Some((&earlier.span, &later.span))
    })
}

fn missing_choice(
    written: &Limit,
    by: &At<Vec<At<Option<KeyPart>>>>,
    template: &KeyTemplate,
) -> Diagnostic {
    let absent = template.parts.iter().find(|part| part.can_be_absent());
    let what = match absent {
        Some(KeyPart::Cookie(name)) => format!("cookie `{name}`"),
        Some(KeyPart::Query { name, .. }) => format!("query parameter `{name}`"),
        Some(KeyPart::Header { name, .. }) => format!("header `{name}`"),
        Some(KeyPart::Jwt { claim, .. }) => format!("claim `{claim}`"),
        _ => "something".into(),
    };
    Diagnostic::error(
        Code::MissingChoice,
        format!(
            "limit `{}` counts by {what}, but does not say what to do without it",
            written.name.value
        ),
    )
    .at(&by.span, "a request may lack this")
    .help(
        "add one of\n\
         missing = \"refuse\"  to answer 401\n\
         missing = \"ip\"      to count by client address instead\n\
         missing = \"skip\"    not to limit such requests\n\
         missing = \"shared\"  to count all of them as one",
    )
}

/// What the limit answers to clients.
fn answers(written: &Limit) -> ResponsePolicy {
    // Statuses are at most 599.
    let status = |status: u32| u16::try_from(status).unwrap_or(u16::MAX);
    ResponsePolicy {
        public_name: written.public_name.get().map(|name| name.as_str().into()),
        refusal: status(written.status()),
        keyless: status(written.missing_status()),
        preflights: written.preflights(),
    }
}

/// The ends of a request after which its charge is refunded.
fn refund_on(written: &Limit) -> RefundCondition {
    let has = |word| written.refund.entries().iter().any(|at| at.value == word);
    RefundCondition {
        errors: has(RefundCause::Errors),
        cancels: has(RefundCause::Cancels),
    }
}

/// The requests that the limit does not count.
fn exempt(written: &Limit, groups: &Groups, found: &mut Vec<Diagnostic>) -> Option<Arc<Exemption>> {
    let at = written.exempt.at()?;
    // A group that is not defined has been noted.
    let named = at.value.groups.entries().iter();
    let named = named.filter_map(|at| Some(Arc::clone(groups.find(&at.value)?.1)));
    let exempt = Exemption {
        networks: at.value.ip.values(),
        methods: at.value.methods.values(),
        paths: at.value.paths.values(),
        groups: named.collect(),
    };
    if exempt.is_everyone() {
        let message = format!("limit `{}` exempts every request", written.name.value);
        found.push(
            Diagnostic::warning(Code::ExemptsEveryone, message)
                .at(&at.span, "covers every request")
                .help("name a smaller network or path, or leave the limit out of the routes"),
        );
    }
    Some(Arc::new(exempt))
}

/// What tells repeats of a request.
fn dedupe(written: &Limit) -> Option<Dedupe> {
    let dedupe = written.dedupe.get()?;
    Some(Dedupe {
        field: IdField(dedupe.header.get()?.clone()),
        ttl: u64::try_from(dedupe.ttl().as_micros()).ok()?,
        repeats: dedupe.repeats(),
        of: dedupe.of(),
    })
}

/// What a request takes, and where it, or its response, states that.
struct ChargeRule {
    cost: Cost,
    price: Option<Price>,
    meter: Option<Meter>,
}

fn charge(written: &Limit) -> ChargeRule {
    let mut charge = ChargeRule {
        cost: Cost::ONE,
        price: None,
        meter: None,
    };
    match written.cost.get() {
        None => {}
        Some(CostSource::Fixed(units)) => charge.cost = Cost::new(*units),
        Some(CostSource::Later {
            place,
            estimate,
            max,
            on_leave,
        }) => {
            charge.cost = Cost::new(estimate.or(1));
            charge.meter = Some(Meter {
                place: place.value.clone(),
                max: max.or(u32::MAX),
                on_leave: on_leave.or(OnLeave::Max),
            });
        }
        Some(CostSource::Field {
            header,
            default,
            max,
            min,
        }) => {
            let default = default.or(1);
            charge.cost = Cost::new(default);
            charge.price = Some(Price {
                header: header.value.clone(),
                default,
                max: max.value,
                may_peek: min.or(1) == 0,
            });
        }
    }
    charge
}

/// A request that costs more than the whole limit never passes, unless it may be granted a part.
fn warn_of_cost(
    written: &Limit,
    rules: &[RatedRule],
    charge: &ChargeRule,
    found: &mut Vec<Diagnostic>,
) {
    let whole = rules.iter().map(|rated| rated.rule.most()).min();
    let Some(whole) = whole.filter(|_| !written.partial()) else {
        return;
    };
    let name = &written.name.value;
    let cost = charge.cost.units();
    let never = u64::from(cost) > whole;
    let most = charge.price.as_ref().map(|price| u64::from(price.max));
    let (message, label, help) = match most {
        _ if never => (
            format!("limit `{name}` never lets a request pass"),
            format!("costs {cost}, and the limit never holds more than {whole}"),
            "lower `cost`, or raise what the limit holds",
        ),
        Some(most) if most > whole => (
            format!("limit `{name}` never lets the dearest requests pass"),
            format!("costs up to {most}, and the limit never holds more than {whole}"),
            "lower `max`, or raise what the limit holds",
        ),
        _ => return,
    };
    let mut diagnostic = Diagnostic::warning(Code::NeverAdmits, message);
    if let Some(at) = written.cost.at() {
        let span = match &at.value {
            CostSource::Field { max, .. } if !never => &max.span,
            _ => &at.span,
        };
        diagnostic = diagnostic.at(span, label);
    }
    found.push(diagnostic.help(help));
}
