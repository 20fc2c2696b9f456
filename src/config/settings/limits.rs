//! Compiles one written limit into the limits that count: defaults are filled in, and contradictions and numbers out of
//! range are refused. A limit with a list of rates becomes one limit for each rate, all under the same name.

mod contradictions;
mod customer_numbers;
mod rates;
mod rules;
mod tiers;

use super::groups::{Groups, no_customers};
use super::number_files::NumberFiles;
use crate::config::document::{CostSource, Document, Limit, RefundCause, Setting, ignores};
use crate::config::input::{At, Span};
use crate::config::report::{Code, Details as _, Findings};
use crate::key::{
    Exemption, IdField, KeyCase, KeyPart, KeyTemplate, KnownValues, MOST_COST, Meter, MeterPlace,
    MissingKey, OnLeave, OnSilent, Price, StatusCosts, StatusPattern,
};
use crate::limit::dedupe::Dedupe;
use crate::limit::rate::{Cost, Rate};
use crate::limit::{self, LeaseSetting, Mode, Policy, RefundCondition, ResponsePolicy, Scope};
use rules::RatedRule;
use std::collections::HashMap;
use std::sync::Arc;

/// The tag of all limits under `together = true` of the store.
const ALL: &str = "together";

/// The limit under `together = true`. A limit that has a tag keeps it.
pub(in crate::config) fn together(written: &Limit, all: &Setting<bool>) -> Limit {
    let mut written = written.clone();
    if let Some(all) = all.at().filter(|all| all.value)
        && written.with.is_absent()
        && written.scope() == Scope::Cluster
    {
        written.with = Setting::Valid(At::new(ALL.to_owned(), all.span.clone()));
    }
    written
}

/// The settings of the file outside a limit that affect the limit.
pub(in crate::config) struct Scene<'a> {
    pub(in crate::config) document: &'a Document,
    pub(in crate::config) groups: &'a Groups,
    pub(in crate::config) numbers: &'a NumberFiles,
}

/// Compiles one limit with its tiers and the numbers of single customers, followed by its candidate. Empty if the limit has a mistake, which has been
/// noted.
pub(in crate::config) fn compile(
    written: &Limit,
    scene: &Scene<'_>,
    found: &mut Findings,
) -> Vec<Arc<limit::Limit>> {
    let name: Arc<str> = written.name.value.as_str().into();
    let before = found.len();
    let limits = untiered(written, &name, scene, found);
    let limits = tiers::add(limits, written, scene, found);
    let mut limits = customer_numbers::add(limits, written, scene, found);
    if let Some(candidate) = written.with_candidate() {
        // A mistake of the limit and of its candidate is reported once.
        let mut more = Findings::default();
        let candidates = untiered(&candidate, &name, scene, &mut more);
        more.retain(|one| !found[before..].contains(one));
        found.append(&mut more);
        let candidates = candidates.into_iter();
        limits.extend(candidates.map(|limit| limit.edited(|policy| policy.mode = Mode::Candidate)));
    }
    limits.into_iter().map(Arc::new).collect()
}

/// Compiles one limit without its tiers, under `name`.
fn untiered(
    written: &Limit,
    name: &Arc<str>,
    scene: &Scene<'_>,
    found: &mut Findings,
) -> Vec<limit::Limit> {
    let before = found.len();
    let by = template(written, scene.groups, found);
    if written.algorithm.is_bad() {
        return Vec::new();
    }
    contradictions::note_contradictions(written, found);
    let rules = rules::all_rules(written, found);
    let Some(rules) = rules.filter(|_| !found.has_error_since(before)) else {
        return Vec::new();
    };
    rates::compare(written, &rules, found);
    let Some(by) = by.filter(|_| !found.has_error_since(before)) else {
        return Vec::new();
    };
    let (cost, exempt) = (cost(written), exempt(written, scene, found));
    warn_of_cost(written, &rules, cost, found);
    let is_list = rules.len() > 1;
    let rated = rules.into_iter().enumerate();
    let limits = rated.map(|(rank, RatedRule { rate, rule, shown })| {
        let policy = Policy {
            rank,
            window: is_list.then(|| shown.into()),
            exempt: exempt.clone(),
            meter: meter(written, scene),
            in_cluster: scene.document.store.url().is_cluster(),
            ..policy(written, name, &by, rate)
        };
        limit::Limit::new(policy, rule)
    });
    let limits: Vec<limit::Limit> = limits.collect();
    warn_of_leases(written, &limits, found);
    limits
}

/// The limit's policy as written, without the parts that are compiled from all limits or rates.
fn policy(written: &Limit, name: &Arc<str>, by: &KeyTemplate, rate: Rate) -> Policy {
    Policy {
        mode: written.mode(),
        scope: written.scope(),
        with: written.with.get().map(|tag| tag.as_str().into()),
        cost: cost(written),
        price: price(written),
        partial: written.partial(),
        dedupe: dedupe(written),
        blocking: written.block.get().copied(),
        refund_on: refund_on(written),
        on_down: written.on_down.get().copied(),
        leasing: written.lease(),
        answers: answers(written),
        place: written.name.span.start,
        ..Policy::new(Arc::clone(name), by.clone(), rate)
    }
}

/// Notes `lease` of a limit that gives no leases. In a list of rates, some rates may have leases.
fn warn_of_leases(written: &Limit, limits: &[limit::Limit], found: &mut Findings) {
    let lease = written.lease.at();
    let whys: Option<Vec<_>> = limits.iter().map(limit::Limit::why_unleased).collect();
    let why = whys.and_then(|whys| whys.first().copied());
    if let (Some(lease), Some(why)) = (lease, why)
        && lease.value != LeaseSetting::Off
    {
        let name = &written.name.value;
        found
            .warning(Code::Conflict, format!("limit `{name}` gives no leases"))
            .at(&lease.span, why)
            .help("leave `lease` out: every request asks Redis");
    }
}

/// The key template.
fn template(written: &Limit, groups: &Groups, found: &mut Findings) -> Option<KeyTemplate> {
    let name = &written.name.value;
    let by = written.by.at()?;
    let before = found.len();
    let everyone = by.value.iter().find(|part| part.value.is_none());
    if let Some(everyone) = everyone.filter(|_| by.value.len() > 1) {
        let message = format!("limit `{name}` counts by `everyone` and by something else");
        found
            .conflict(message)
            .at(&everyone.span, "one key for every request")
            .help("leave `everyone` out");
    } else if let Some((first, second)) = repeated(&by.value) {
        let message = format!("limit `{name}` counts by the same thing twice");
        found
            .error(Code::Duplicate, message)
            .at(second, "the second time")
            .and(first, "the first time");
    }
    let mut template = KeyTemplate {
        parts: by.value.iter().filter_map(|at| at.value.clone()).collect(),
        missing: written.missing.or(MissingKey::Refuse),
        unknown: None,
        case: written.key_case(),
    };
    template.unknown = known_values(written, &template, groups, found);
    if template.counts_customers() && template.credentials().next().is_none() {
        no_customers(&format!("limit `{name}`"), &by.span, found);
    }
    let absent = template.can_be_absent();
    if !absent {
        template.missing = MissingKey::Shared;
    }
    match written.missing.at() {
        Some(missing) if !absent => {
            let message = format!("limit `{name}` has `missing`, but every request has its key");
            found
                .warning(Code::NeedlessMissing, message)
                .at(&missing.span, "has no effect")
                .and(&by.span, "in every request")
                .help("leave `missing` out");
        }
        None if absent && written.missing.is_absent() => {
            missing_choice(name, &by.span, &template, found);
        }
        _ => {}
    }
    (!found.has_error_since(before)).then_some(template)
}

/// The values that groups know, where `unknown` is written or customers are counted.
fn known_values(
    written: &Limit,
    template: &KeyTemplate,
    groups: &Groups,
    found: &mut Findings,
) -> Option<KnownValues> {
    let Some(unknown) = written.unknown.at() else {
        let counts_customers = template.counts_customers();
        return counts_customers.then(|| tiers::known_customers(template, groups));
    };
    if let Some(case) = written.key_case.at()
        && case.value == KeyCase::Insensitive
    {
        let name = &written.name.value;
        let message = format!("limit `{name}` has `unknown`, and keys without case");
        found
            .conflict(message)
            .at(&unknown.span, "groups know a key as it is written")
            .and(&case.span, "")
            .help("leave one of them out");
    }
    tiers::known(written, &template.parts, groups, found, unknown)
}

/// The places of two equal parts.
fn repeated(parts: &[At<Option<KeyPart>>]) -> Option<(&Span, &Span)> {
    let mut seen = HashMap::new();
    parts.iter().find_map(|later| {
        // Two address parts with different network sizes count as the same part.
        let part = Some(later.value.as_ref()?).filter(|part| !part.is_by_address());
        let earlier = *seen.entry(part).or_insert(later);
        (!std::ptr::eq(earlier, later)).then_some((&earlier.span, &later.span))
    })
}

fn missing_choice(name: &str, by: &Span, template: &KeyTemplate, found: &mut Findings) {
    let absent = template.parts.iter().find(|part| part.can_be_absent());
    let what = absent.map_or_else(|| "something".into(), KeyPart::lacked);
    let message =
        format!("limit `{name}` counts by {what}, but does not say what to do without it");
    found
        .error(Code::MissingChoice, message)
        .at(by, "a request may lack this")
        .help(
            "add one of\n\
             missing = \"refuse\"  to answer 401\n\
             missing = \"ip\"      to count by client address instead\n\
             missing = \"skip\"    not to limit such requests\n\
             missing = \"shared\"  to count all of them as one",
        );
}

/// The limit's answers to clients.
fn answers(written: &Limit) -> ResponsePolicy {
    // Statuses are at most 599.
    let status = |status: u32| u16::try_from(status).unwrap_or(u16::MAX);
    ResponsePolicy {
        public_name: written.public_name.get().map(|name| name.as_str().into()),
        is_shown: written.shown(),
        refusal: status(written.status()),
        keyless: status(written.missing_status()),
        preflights: written.preflights(),
    }
}

/// The outcomes of a request after which its charge is refunded.
fn refund_on(written: &Limit) -> RefundCondition {
    let mut refund_on = RefundCondition::default();
    for cause in written.refund.entries() {
        match cause.value {
            RefundCause::Cancels => refund_on.cancels = true,
            RefundCause::Status(StatusPattern::SERVER_ERRORS) => refund_on.errors = true,
            RefundCause::Status(pattern) => refund_on.statuses.insert(pattern),
        }
    }
    refund_on
}

/// The requests that the limit does not count.
fn exempt(written: &Limit, scene: &Scene<'_>, found: &mut Findings) -> Option<Arc<Exemption>> {
    let at = written.exempt.at()?;
    // An undefined group has been noted.
    let named = at.value.groups.entries().iter();
    let named = named.filter_map(|at| Some(Arc::clone(scene.groups.find(&at.value)?.1)));
    let nat64 = scene.document.server.translators();
    let networks = at.value.ip.entries().iter();
    let exempt = Exemption {
        networks: networks.flat_map(|at| nat64.networks(at.value)).collect(),
        methods: at.value.methods.values(),
        paths: at.value.paths.values(),
        groups: named.collect(),
    };
    if exempt.is_everyone() {
        let message = format!("limit `{}` exempts every request", written.name.value);
        found
            .warning(Code::ExemptsEveryone, message)
            .at(&at.span, "covers every request")
            .help("name a smaller network or path, or leave the limit out of the routes");
    }
    Some(Arc::new(exempt))
}

/// The settings that recognise repeated requests.
fn dedupe(written: &Limit) -> Option<Dedupe> {
    let dedupe = written.dedupe.get()?;
    Some(Dedupe {
        field: IdField(dedupe.header.get()?.clone()),
        ttl: u64::try_from(dedupe.ttl().as_micros()).ok()?,
        repeats: dedupe.repeats(),
        of: dedupe.of(),
    })
}

/// The cost of a request if neither the request nor its response states a cost.
fn cost(written: &Limit) -> Cost {
    match written.cost.get() {
        None => Cost::ONE,
        Some(CostSource::Fixed(units)) => Cost::new(*units),
        Some(CostSource::Request(cost)) => Cost::new(cost.default()),
        Some(CostSource::Response(cost)) => Cost::new(cost.estimate()),
        Some(CostSource::Status(cost)) => {
            let greatest = cost.status.get().map(|costs| costs.greatest());
            greatest.map_or(Cost::ONE, Cost::new)
        }
    }
}

/// The place in a request that states the cost.
fn price(written: &Limit) -> Option<Price> {
    let Some(CostSource::Request(cost)) = written.cost.get() else {
        return None;
    };
    Some(Price {
        header: cost.header.get()?.clone(),
        default: cost.default(),
        max: *cost.max.get()?,
        may_peek: cost.min() == 0,
    })
}

/// The place in a response that states the cost of its request.
fn meter(written: &Limit, scene: &Scene<'_>) -> Option<Meter> {
    let cost = match written.cost.get()? {
        CostSource::Response(cost) => cost,
        CostSource::Status(cost) => return cost.status.get().map(by_status),
        CostSource::Fixed(_) | CostSource::Request(_) => return None,
    };
    Some(Meter {
        place: cost.place()?,
        max: cost.max.or(MOST_COST),
        on_leave: cost.on_leave(),
        on_silent: cost.on_silent(),
        tells_silence: !ignores(
            &scene.document.ignored,
            Code::CostNeverSaid,
            &written.name.span,
        ),
    })
}

/// The place of a cost that the status decides.
fn by_status(costs: &Arc<StatusCosts>) -> Meter {
    Meter {
        max: costs.greatest(),
        place: MeterPlace::Status(Arc::clone(costs)),
        on_leave: OnLeave::Max,
        on_silent: OnSilent::Estimate,
        // Every answer has a status.
        tells_silence: false,
    }
}

/// Warns of a request that costs more than the whole limit: it never passes, unless the limit can grant a part.
fn warn_of_cost(written: &Limit, rules: &[RatedRule], cost: Cost, found: &mut Findings) {
    let whole = rules.iter().map(|rated| rated.rule.most()).min();
    let Some(whole) = whole.filter(|_| !written.partial()) else {
        return;
    };
    let (cost, span) = (cost.units(), written.cost.span());
    let dearest = match written.cost.get() {
        Some(CostSource::Request(cost)) => cost.max.at(),
        _ => None,
    };
    let (passes, costs, span, key) = match dearest {
        _ if cost > whole => ("a request pass", format!("{cost}"), span, "cost"),
        Some(most) if most.value > whole => {
            let costs = format!("up to {}", most.value);
            (
                "its most expensive requests pass",
                costs,
                Some(&most.span),
                "max",
            )
        }
        _ => return,
    };
    let name = &written.name.value;
    let message = format!("limit `{name}` never lets {passes}");
    let help = format!("lower `{key}`, or raise the size of the limit");
    let warning = found.warning(Code::NeverAdmits, message).help(help);
    if let Some(span) = span {
        let label = format!("costs {costs}, and the limit never admits more than {whole} at once");
        warning.at(span, label);
    }
}
