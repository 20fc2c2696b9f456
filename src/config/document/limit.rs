//! `[limits.NAME]` as written.

mod cost;
mod lease;

pub(in crate::config) use cost::Cost;
pub(in crate::config) use cost::read as read_cost;

use super::super::diagnostic::{Code, Diagnostic};
use super::super::source::{At, Span};
use super::super::value::{Quota, ValueError, field, method, network, part, rate, tag, top, zone};
use super::super::vocabulary::{LIMIT_CANDIDATE, LIMIT_DEDUPE, LIMIT_EXEMPT, LIMIT_RATE};
use super::fields::{Fields, Zero};
use super::store::on_down;
use super::tier::{Tier, tiers};
use super::told::{self, Told};
use super::{Given, List};
use crate::key::{KeyPart, MissingKey, Sameness, UnknownKey};
use crate::limit::{LeaseSetting, Mode, OnDown, Scope};
use http::{HeaderName, Method};
use ipnet::IpNet;
use jiff::tz::TimeZone;
use std::time::Duration;
use toml::de::DeValue;

/// `[limits.NAME]`.
#[derive(Debug, Clone)]
pub(in crate::config) struct Limit {
    pub(in crate::config) name: At<String>,
    pub(in crate::config) place: Span,
    /// Nothing stands for `everyone`.
    pub(in crate::config) by: List<Option<KeyPart>>,
    pub(in crate::config) missing: Given<MissingKey>,
    pub(in crate::config) rates: List<Entry>,
    pub(in crate::config) burst: Given<u32>,
    pub(in crate::config) algorithm: Given<Algorithm>,
    pub(in crate::config) anchor: Given<Anchor>,
    pub(in crate::config) offset: Given<Duration>,
    pub(in crate::config) timezone: Given<TimeZone>,
    pub(in crate::config) buckets: Given<u32>,
    pub(in crate::config) strict: Given<bool>,
    pub(in crate::config) max: Given<u32>,
    pub(in crate::config) slot_ttl: Given<Duration>,
    pub(in crate::config) queue: Given<u32>,
    pub(in crate::config) max_wait: Given<Duration>,
    pub(in crate::config) over: Given<Over>,
    pub(in crate::config) cost: Given<Cost>,
    pub(in crate::config) refund: List<Refund>,
    pub(in crate::config) partial: Given<bool>,
    pub(in crate::config) dedupe: Given<Dedupe>,
    pub(in crate::config) exempt: Given<Exempt>,
    pub(in crate::config) scope: Given<Scope>,
    pub(in crate::config) on_down: Given<OnDown>,
    pub(in crate::config) lease: Given<LeaseSetting>,
    pub(in crate::config) with: Given<String>,
    pub(in crate::config) told: Told,
    pub(in crate::config) mode: Given<Mode>,
    pub(in crate::config) candidate: Given<Candidate>,
    pub(in crate::config) unknown: Given<UnknownKey>,
    pub(in crate::config) tiers: List<Tier>,
}

/// Numbers that are counted beside a limit's own; those that it does not say are the limit's.
#[derive(Debug, Clone)]
pub(in crate::config) struct Candidate {
    pub(in crate::config) rates: List<Entry>,
    pub(in crate::config) burst: Given<u32>,
    pub(in crate::config) max: Given<u32>,
    pub(in crate::config) queue: Given<u32>,
    pub(in crate::config) max_wait: Given<Duration>,
}

impl Limit {
    /// The limit with the numbers of its candidate, if it has one.
    pub(in crate::config) fn with_candidate(&self) -> Option<Self> {
        let candidate = self.candidate.get()?.clone();
        let mut limit = self.clone();
        if !candidate.rates.is_absent() {
            if candidate.rates.entries().len() > 1 {
                // Each of them has its own.
                limit.burst = Given::No;
            }
            limit.rates = candidate.rates;
        }
        let number = |given: Given<u32>, own: &mut Given<u32>| {
            if !given.is_absent() {
                *own = given;
            }
        };
        number(candidate.burst, &mut limit.burst);
        number(candidate.max, &mut limit.max);
        number(candidate.queue, &mut limit.queue);
        if !candidate.max_wait.is_absent() {
            limit.max_wait = candidate.max_wait;
        }
        Some(limit)
    }
}

/// Whom a limit does not hold for.
#[derive(Debug, Clone)]
pub(in crate::config) struct Exempt {
    pub(in crate::config) ip: List<IpNet>,
    pub(in crate::config) methods: List<Method>,
    pub(in crate::config) paths: List<Box<str>>,
    pub(in crate::config) groups: List<String>,
}

/// Which requests are repeats of others.
#[derive(Debug, Clone)]
pub(in crate::config) struct Dedupe {
    pub(in crate::config) header: At<HeaderName>,
    pub(in crate::config) ttl: Given<Duration>,
    pub(in crate::config) repeats: Given<u32>,
    pub(in crate::config) of: Given<Sameness>,
}

/// After what a charge goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) enum Refund {
    Errors,
    Cancels,
}

/// One of a limit's rates.
#[derive(Debug, Clone)]
pub(in crate::config) struct Entry {
    pub(in crate::config) quota: At<Quota>,
    /// Of this rate alone, in a list.
    pub(in crate::config) burst: Given<u32>,
}

/// Where a fixed window starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) enum Anchor {
    First,
    Clock,
}

/// How a limit counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) enum Algorithm {
    TokenBucket,
    LeakyBucket,
    FixedWindow,
    SlidingWindow,
    SlidingLog,
    Concurrency,
}

impl Algorithm {
    /// As the file writes it.
    pub(in crate::config) fn as_str(self) -> &'static str {
        match self {
            Self::TokenBucket => "token-bucket",
            Self::LeakyBucket => "leaky-bucket",
            Self::FixedWindow => "fixed-window",
            Self::SlidingWindow => "sliding-window",
            Self::SlidingLog => "sliding-log",
            Self::Concurrency => "concurrency",
        }
    }
}

/// What happens beyond a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) enum Over {
    Refuse,
    Delay,
}

pub(super) fn read(name: At<String>, mut fields: Fields<'_>) -> Limit {
    let by = fields.texts("by", part);
    let by = match by.at() {
        Some(at) if at.value.is_empty() => {
            fields.note(
                Diagnostic::error(
                    Code::EmptyList,
                    format!("`by` in `{}` names nothing", fields.title()),
                )
                .at(&at.span, "at least one part")
                .help("write `by = \"everyone\"` for one counter that all requests share"),
            );
            Given::Bad
        }
        _ => by,
    };
    let algorithm = fields.choice(
        "algorithm",
        &[
            ("token-bucket", Algorithm::TokenBucket),
            ("leaky-bucket", Algorithm::LeakyBucket),
            ("fixed-window", Algorithm::FixedWindow),
            ("sliding-window", Algorithm::SlidingWindow),
            ("sliding-log", Algorithm::SlidingLog),
            ("concurrency", Algorithm::Concurrency),
        ],
        &[],
    );
    // Without a word about the algorithm, or with one that nobody knows, it is a bucket that lacks its rate.
    match algorithm.or(Algorithm::TokenBucket) {
        Algorithm::Concurrency => fields.require("max"),
        _ => fields.require("rate"),
    }
    let limit = name.value.clone();
    let rates = rates(&limit, &mut fields);
    Limit {
        place: fields.place(),
        name,
        by,
        rates,
        missing: fields.choice(
            "missing",
            &[
                ("refuse", MissingKey::Refuse),
                ("ip", MissingKey::Ip),
                ("skip", MissingKey::Skip),
                ("shared", MissingKey::Shared),
            ],
            &[],
        ),
        burst: fields.whole("burst"),
        algorithm,
        anchor: fields.choice(
            "anchor",
            &[("first", Anchor::First), ("clock", Anchor::Clock)],
            &[],
        ),
        offset: fields.time("offset", Zero::Allowed),
        timezone: fields.text("timezone", zone),
        buckets: fields.whole("buckets"),
        strict: fields.flag("strict"),
        max: fields.whole("max"),
        slot_ttl: fields.time("slot_ttl", Zero::Refused),
        queue: fields.whole("queue"),
        max_wait: fields.time("max_wait", Zero::Allowed),
        over: fields.choice(
            "over",
            &[("refuse", Over::Refuse), ("delay", Over::Delay)],
            &[],
        ),
        cost: cost::read(&limit, &mut fields),
        refund: fields.texts("refund", refund),
        partial: fields.flag("partial"),
        dedupe: dedupe(&limit, &mut fields),
        exempt: exempt(&limit, &mut fields),
        scope: fields.choice(
            "scope",
            &[("cluster", Scope::Cluster), ("gateway", Scope::Gateway)],
            &[],
        ),
        on_down: on_down(&mut fields),
        lease: lease::read(&mut fields),
        with: fields.text("with", tag),
        told: told::read(&mut fields),
        mode: fields.choice(
            "mode",
            &[("enforce", Mode::Enforce), ("shadow", Mode::Shadow)],
            &[],
        ),
        candidate: candidate(&limit, &mut fields),
        unknown: fields.choice(
            "unknown",
            &[("ip", UnknownKey::Ip), ("refuse", UnknownKey::Refuse)],
            &[],
        ),
        tiers: tiers(&limit, &mut fields),
    }
}

/// One rate, or a list of rates of which each may have a burst of its own.
pub(super) fn rates(name: &str, fields: &mut Fields<'_>) -> List<Entry> {
    let Some((value, whole)) = fields.value("rate") else {
        return Given::No;
    };
    let items: Vec<(&DeValue<'_>, Span)> = match value {
        DeValue::Array(items) => items
            .iter()
            .map(|item| (item.get_ref(), item.span()))
            .collect(),
        single => vec![(single, whole.clone())],
    };
    if items.is_empty() {
        fields.note(
            Diagnostic::error(
                Code::EmptyList,
                format!("`rate` in `{}` names no rate", fields.title()),
            )
            .at(&whole, "at least one")
            .help("write one as `rate = \"100/min\"`"),
        );
    }
    let listed = matches!(value, DeValue::Array(_));
    let (mut entries, many) = (Vec::new(), items.len());
    for (item, span) in items {
        let (quota, burst) = match item {
            DeValue::String(text) => (fields.take(rate(text), span.clone()), Given::No),
            DeValue::Table(table) if listed => {
                let (name, place) = (format!("{name}.rate"), span.clone());
                fields.inner(&LIMIT_RATE, &name, (table, place), |mut inner| {
                    (inner.text("rate", rate), inner.whole("burst"))
                })
            }
            other => (fields.wrong_type("rate", other, &span), Given::No),
        };
        if let Given::Yes(quota) = quota
            && !burst.is_bad()
        {
            entries.push(At::new(Entry { quota, burst }, span));
        }
    }
    match entries.len() == many && many > 0 {
        true => Given::Yes(At::new(entries, whole)),
        false => Given::Bad,
    }
}

/// The field with the id, and how long it is remembered.
fn dedupe(name: &str, fields: &mut Fields<'_>) -> Given<Dedupe> {
    let Some((value, whole)) = fields.value("dedupe") else {
        return Given::No;
    };
    let DeValue::Table(table) = value else {
        return fields.wrong_type("dedupe", value, &whole);
    };
    let name = format!("{name}.dedupe");
    let read = |mut inner: Fields<'_>| {
        let (header, ttl) = (
            inner.text("header", field),
            inner.time("ttl", Zero::Refused),
        );
        let repeats = inner.whole("repeats");
        let words = [("request", Sameness::Request), ("path", Sameness::Path)];
        let of = inner.choice("of", &words, &[]);
        let Given::Yes(header) = header else {
            return None;
        };
        (!ttl.is_bad() && !repeats.is_bad() && !of.is_bad()).then_some(Dedupe {
            header,
            ttl,
            repeats,
            of,
        })
    };
    match fields.inner(&LIMIT_DEDUPE, &name, (table, whole.clone()), read) {
        Some(dedupe) => Given::Yes(At::new(dedupe, whole)),
        None => Given::Bad,
    }
}

/// Numbers to be counted beside the limit's own.
fn candidate(name: &str, fields: &mut Fields<'_>) -> Given<Candidate> {
    let Some((value, whole)) = fields.value("candidate") else {
        return Given::No;
    };
    let DeValue::Table(table) = value else {
        return fields.wrong_type("candidate", value, &whole);
    };
    if table.is_empty() {
        fields.note(
            Diagnostic::error(
                Code::EmptyList,
                format!("`candidate` in `{}` changes nothing", fields.title()),
            )
            .at(&whole, "at least one number")
            .help("leave it out, or write `candidate = { rate = \"8/s\" }`"),
        );
        return Given::Bad;
    }
    let name = format!("{name}.candidate");
    let read = |mut inner: Fields<'_>| {
        let candidate = Candidate {
            rates: rates(&name, &mut inner),
            burst: inner.whole("burst"),
            max: inner.whole("max"),
            queue: inner.whole("queue"),
            max_wait: inner.time("max_wait", Zero::Allowed),
        };
        let numbers = [&candidate.burst, &candidate.max, &candidate.queue];
        let bad = candidate.rates.is_bad()
            || candidate.max_wait.is_bad()
            || numbers.iter().any(|number| number.is_bad());
        (!bad).then_some(candidate)
    };
    match fields.inner(&LIMIT_CANDIDATE, &name, (table, whole.clone()), read) {
        Some(candidate) => Given::Yes(At::new(candidate, whole)),
        None => Given::Bad,
    }
}

/// Whom it does not hold for.
fn exempt(name: &str, fields: &mut Fields<'_>) -> Given<Exempt> {
    let Some((value, whole)) = fields.value("exempt") else {
        return Given::No;
    };
    let DeValue::Table(table) = value else {
        return fields.wrong_type("exempt", value, &whole);
    };
    if table.is_empty() {
        fields.note(
            Diagnostic::error(
                Code::EmptyList,
                format!("`exempt` in `{}` exempts nobody", fields.title()),
            )
            .at(
                &whole,
                "at least one of `ip`, `methods`, `paths` and `groups`",
            )
            .help("leave it out, or write `exempt = { ip = [\"10.0.0.0/8\"] }`"),
        );
        return Given::Bad;
    }
    let name = format!("{name}.exempt");
    let read = |mut inner: Fields<'_>| {
        let (ip, methods) = (inner.texts("ip", network), inner.texts("methods", method));
        let paths = inner.texts("paths", top);
        let groups = inner.texts("groups", |text| Ok(text.to_owned()));
        let bad = [
            ip.is_bad(),
            methods.is_bad(),
            paths.is_bad(),
            groups.is_bad(),
        ];
        (!bad.contains(&true)).then_some(Exempt {
            ip,
            methods,
            paths,
            groups,
        })
    };
    match fields.inner(&LIMIT_EXEMPT, &name, (table, whole.clone()), read) {
        Some(exempt) => Given::Yes(At::new(exempt, whole)),
        None => Given::Bad,
    }
}

/// One word of `refund`.
fn refund(text: &str) -> Result<Refund, ValueError> {
    match text {
        "5xx" => Ok(Refund::Errors),
        "cancel" => Ok(Refund::Cancels),
        other => Err(ValueError::choice("refund", other, &["5xx", "cancel"])),
    }
}
