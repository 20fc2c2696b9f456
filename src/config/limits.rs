//! One limit as written → the limits that count: defaults filled in, contradictions and numbers out of reach refused.
//! A limit with a list of rates becomes one for each rate, all under its name.

mod contradictions;
mod lease;
mod rates;
mod rules;
mod tiers;

use super::Severity;
use super::diagnostic::{Code, Diagnostic};
use super::document::{self, Algorithm, Limit, Refund, Setting};
use super::groups::Groups;
use super::source::{At, Span};
use super::value::show_quota;
use crate::key::{
    Exemption, IdField, KeyPart, KeyTemplate, KnownValues, Meter, MissingKey, OnLeave, Price,
};
use crate::limit::dedupe::Dedupe;
use crate::limit::rate::Cost;
use crate::limit::{self, Mode, RefundCondition, ResponsePolicy, Rule, Scope};
use std::sync::Arc;

/// The tag of all limits where the store has them together.
const ALL: &str = "together";

/// The limit as it is where all are counted together; one with a tag of its own keeps it.
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

/// Compiles one limit with its tiers, and behind it its candidate; nothing when something about it is wrong, which then
/// has been noted.
pub(super) fn compile(
    written: &Limit,
    groups: &Groups,
    found: &mut Vec<Diagnostic>,
) -> Vec<Arc<limit::Limit>> {
    let name: Arc<str> = written.name.value.as_str().into();
    let before = found.len();
    let limits = alone(written, &name, groups, found);
    let mut limits = tiers::add(limits, written, groups, found);
    if let Some(other) = written.with_candidate() {
        // What is wrong with both is told once.
        let mut more = Vec::new();
        let beside = alone(&other, &name, groups, &mut more);
        more.retain(|one| !found[before..].contains(one));
        found.extend(more);
        let beside = beside.into_iter();
        limits.extend(beside.map(|limit| limit.in_mode(Mode::Candidate)));
    }
    limits.into_iter().map(Arc::new).collect()
}

/// Compiles one limit without its tiers, under `name`.
fn alone(
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
    alone_together(written, found);
    let compiled: Vec<Rule> = written
        .rate
        .entries()
        .iter()
        .filter_map(|entry| rules::compile(written, algorithm, entry, found))
        .collect();
    let wrong = |found: &[Diagnostic]| {
        let mut new = found[before..].iter();
        new.any(|one| one.severity == Severity::Error)
    };
    let entries = written.rate.entries();
    if wrong(found) || compiled.len() != entries.len() {
        return Vec::new();
    }
    rates::compare(written, &compiled, found);
    let Some(by) = by.filter(|_| !wrong(found)) else {
        return Vec::new();
    };
    let (cost, price, meter) = price(written);
    let (refund_on, dedupe) = (refund_on(written), dedupe(written));
    let exempt = exempt(written, groups, found);
    let whole = |limit: limit::Limit| {
        let scope = written.scope();
        let limit = limit.giving_back(refund_on).counted_by(scope);
        let limit = limit.written_at(written.name.span.start);
        let limit = limit.leasing(written.lease());
        let limit = limit.telling(answers(written));
        let limit = limit.in_mode(written.mode());
        let limit = limit.without_store(written.on_down.get().copied());
        let limit = match &exempt {
            Some(exempt) => limit.but_not_for(Arc::clone(exempt)),
            None => limit,
        };
        let limit = match &dedupe {
            Some(dedupe) => limit.charging_once(dedupe.clone()),
            None => limit,
        };
        let limit = match &price {
            Some(price) => limit.priced(price.clone()),
            None => limit,
        };
        let limit = match &meter {
            Some(meter) => limit.metered(meter.clone()),
            None => limit,
        };
        let limit = if written.partial() {
            limit.granting_less()
        } else {
            limit
        };
        match written.with.get() {
            Some(tag) => limit.counted_with(tag.as_str().into()),
            None => limit,
        }
    };
    if algorithm == Algorithm::Concurrency {
        let Some((rate, rule)) = rules::concurrency(written) else {
            return Vec::new();
        };
        warn_of_cost(
            written,
            std::slice::from_ref(&rule),
            (cost, price.as_ref()),
            found,
        );
        let limit = limit::Limit::new(Arc::clone(name), by, rate, rule, cost);
        return lease::unleased(written, vec![whole(limit)], found);
    }
    warn_of_cost(written, &compiled, (cost, price.as_ref()), found);
    let listed = entries.len() > 1;
    let limits = entries.iter().zip(compiled).map(|(entry, rule)| {
        let quota = entry.value.quota.value;
        let limit = limit::Limit::new(Arc::clone(name), by.clone(), quota.rate, rule, cost);
        let limit = whole(limit);
        if listed {
            limit.listed(&show_quota(quota))
        } else {
            limit
        }
    });
    lease::unleased(written, limits.collect(), found)
}

/// A place in the store for what is not counted there.
fn alone_together(written: &Limit, found: &mut Vec<Diagnostic>) {
    if let (Some(with), Some(scope)) = (written.with.at(), written.scope.at())
        && scope.value == Scope::Gateway
    {
        found.push(
            Diagnostic::error(
                Code::Conflict,
                format!(
                    "limit `{}` is counted in each gateway, and with others in the store",
                    written.name.value
                ),
            )
            .at(&with.span, "a place in the store")
            .and(&scope.span, "in memory, always")
            .help("leave `with` out"),
        );
    }
}

/// By whom it counts.
fn template(written: &Limit, groups: &Groups, found: &mut Vec<Diagnostic>) -> Option<KeyTemplate> {
    let name = &written.name.value;
    let by = written.by.at()?;
    let before = found.len();
    let everyone = by.value.iter().find(|part| part.value.is_none());
    if let Some(everyone) = everyone.filter(|_| by.value.len() > 1) {
        found.push(
            Diagnostic::error(
                Code::Conflict,
                format!("limit `{name}` counts by `everyone` and by something else"),
            )
            .at(&everyone.span, "tells nobody apart")
            .help("leave `everyone` out"),
        );
    } else if let Some((first, second)) = repeated(&by.value) {
        found.push(
            Diagnostic::error(
                Code::Duplicate,
                format!("limit `{name}` counts by the same thing twice"),
            )
            .at(second, "the second time")
            .and(first, "the first time"),
        );
    }
    let parts: Vec<KeyPart> = by
        .value
        .iter()
        .filter_map(|part| part.value.clone())
        .collect();
    let mut template = KeyTemplate {
        parts,
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
        Some(missing) if !absent => found.push(
            Diagnostic::warning(
                Code::NeedlessMissing,
                format!("limit `{name}` says what to do without its key, which every request has"),
            )
            .at(&missing.span, "never comes to pass")
            .and(&by.span, "always there")
            .help("leave `missing` out"),
        ),
        None if absent && written.missing.is_absent() => {
            found.push(missing_choice(written, by, &template))
        }
        _ => {}
    }
    let errors = found[before..]
        .iter()
        .filter(|one| one.severity == super::Severity::Error);
    (errors.count() == 0).then_some(template)
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

/// What it tells clients.
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

/// After what charges go back.
fn refund_on(written: &Limit) -> RefundCondition {
    let has = |word| written.refund.entries().iter().any(|at| at.value == word);
    RefundCondition {
        errors: has(Refund::Errors),
        cancels: has(Refund::Cancels),
    }
}

/// Whom it does not hold for.
fn exempt(written: &Limit, groups: &Groups, found: &mut Vec<Diagnostic>) -> Option<Arc<Exemption>> {
    let at = written.exempt.at()?;
    let exempt = Exemption {
        networks: at.value.ip.entries().iter().map(|at| at.value).collect(),
        methods: at
            .value
            .methods
            .entries()
            .iter()
            .map(|at| at.value.clone())
            .collect(),
        paths: at
            .value
            .paths
            .entries()
            .iter()
            .map(|at| at.value.clone())
            .collect(),
        // Those that are not there have been noted.
        groups: at
            .value
            .groups
            .entries()
            .iter()
            .filter_map(|at| Some(Arc::clone(groups.find(&at.value)?.1)))
            .collect(),
    };
    if exempt.is_everyone() {
        let message = format!("limit `{}` holds for nobody", written.name.value);
        found.push(
            Diagnostic::warning(Code::ExemptsEveryone, message)
                .at(&at.span, "exempts every request")
                .help("name a smaller network or path, or leave the limit out of the routes"),
        );
    }
    Some(Arc::new(exempt))
}

/// Which requests are repeats of others.
fn dedupe(written: &Limit) -> Option<Dedupe> {
    let dedupe = written.dedupe.get()?;
    Some(Dedupe {
        field: IdField(dedupe.header.get()?.clone()),
        ttl: u64::try_from(dedupe.ttl().as_micros()).ok()?,
        repeats: dedupe.repeats(),
        of: dedupe.of(),
    })
}

/// What a request takes, and where it, or its response, says so.
fn price(written: &Limit) -> (Cost, Option<Price>, Option<Meter>) {
    match written.cost.get() {
        None => (Cost::ONE, None, None),
        Some(document::CostSource::Fixed(units)) => (Cost::new(*units), None, None),
        Some(document::CostSource::Later {
            place,
            estimate,
            max,
            on_leave,
        }) => {
            let meter = Meter {
                place: place.value.clone(),
                max: max.or(u32::MAX),
                on_leave: on_leave.or(OnLeave::Max),
            };
            (Cost::new(estimate.or(1)), None, Some(meter))
        }
        Some(document::CostSource::Field {
            header,
            default,
            max,
            min,
        }) => {
            let default = default.or(1);
            let price = Price {
                header: header.value.clone(),
                default,
                max: max.value,
                may_peek: min.or(1) == 0,
            };
            (Cost::new(default), Some(price), None)
        }
    }
}

/// A request that costs more than the whole limit never passes, unless it may be granted a part.
fn warn_of_cost(
    written: &Limit,
    rules: &[Rule],
    (cost, price): (Cost, Option<&Price>),
    found: &mut Vec<Diagnostic>,
) {
    let whole = rules.iter().map(Rule::most).min();
    let Some(whole) = whole.filter(|_| !written.partial()) else {
        return;
    };
    let name = &written.name.value;
    let never = u64::from(cost.units()) > whole;
    let most = price.map(|price| u64::from(price.max));
    let (message, label, help) = match most {
        Some(most) if most > whole && !never => (
            format!("limit `{name}` never lets the dearest requests pass"),
            format!("costs up to {most}, and the limit never holds more than {whole}"),
            "lower `max`, or raise what the limit holds",
        ),
        _ if never => (
            format!("limit `{name}` never lets a request pass"),
            format!(
                "costs {}, and the limit never holds more than {whole}",
                cost.units()
            ),
            "lower `cost`, or raise what the limit holds",
        ),
        _ => return,
    };
    let mut diagnostic = Diagnostic::warning(Code::NeverAdmits, message);
    if let Some(at) = written.cost.at() {
        let span = match &at.value {
            document::CostSource::Field { max, .. } if !never => &max.span,
            _ => &at.span,
        };
        diagnostic = diagnostic.at(span, label);
    }
    found.push(diagnostic.help(help));
}
