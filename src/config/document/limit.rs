//! `[limits.NAME]` as written.

mod cost;
mod lease;

pub(in crate::config) use cost::CostSource;
pub(in crate::config) use cost::read as read_cost;

use super::super::diagnostic::{Code, Diagnostic};
use super::super::source::{At, Span};
use super::super::value::{Quota, ValueError, field, method, network, part, rate, tag, top, zone};
use super::super::vocabulary::{LIMIT_CANDIDATE, LIMIT_DEDUPE, LIMIT_EXEMPT, LIMIT_RATE};
use super::fields::{Fields, Zero};
use super::store::on_down;
use super::tier::{Tier, tiers};
use super::told::{self, Told};
use super::{List, Setting};
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
    pub(in crate::config) missing: Setting<MissingKey>,
    pub(in crate::config) rates: List<RateEntry>,
    pub(in crate::config) burst: Setting<u32>,
    pub(in crate::config) algorithm: Setting<Algorithm>,
    pub(in crate::config) anchor: Setting<Anchor>,
    pub(in crate::config) offset: Setting<Duration>,
    pub(in crate::config) timezone: Setting<TimeZone>,
    pub(in crate::config) buckets: Setting<u32>,
    pub(in crate::config) strict: Setting<bool>,
    pub(in crate::config) max: Setting<u32>,
    pub(in crate::config) slot_ttl: Setting<Duration>,
    pub(in crate::config) queue: Setting<u32>,
    pub(in crate::config) max_wait: Setting<Duration>,
    pub(in crate::config) over: Setting<Over>,
    pub(in crate::config) cost: Setting<CostSource>,
    pub(in crate::config) refund: List<Refund>,
    pub(in crate::config) partial: Setting<bool>,
    pub(in crate::config) dedupe: Setting<Dedupe>,
    pub(in crate::config) exempt: Setting<Exempt>,
    pub(in crate::config) scope: Setting<Scope>,
    pub(in crate::config) on_down: Setting<OnDown>,
    pub(in crate::config) lease: Setting<LeaseSetting>,
    pub(in crate::config) with: Setting<String>,
    pub(in crate::config) told: Told,
    pub(in crate::config) mode: Setting<Mode>,
    pub(in crate::config) candidate: Setting<Candidate>,
    pub(in crate::config) unknown: Setting<UnknownKey>,
    pub(in crate::config) tiers: List<Tier>,
}

/// Numbers that are counted beside a limit's own; those that it does not say are the limit's.
#[derive(Debug, Clone)]
pub(in crate::config) struct Candidate {
    pub(in crate::config) rates: List<RateEntry>,
    pub(in crate::config) burst: Setting<u32>,
    pub(in crate::config) max: Setting<u32>,
    pub(in crate::config) queue: Setting<u32>,
    pub(in crate::config) max_wait: Setting<Duration>,
}

impl Limit {
    /// The limit with the numbers of its candidate, if it has one.
    pub(in crate::config) fn with_candidate(&self) -> Option<Self> {
        let candidate = self.candidate.get()?.clone();
        let mut limit = self.clone();
        if !candidate.rates.is_absent() {
            if candidate.rates.entries().len() > 1 {
                // Each of them has its own.
                limit.burst = Setting::Absent;
            }
            limit.rates = candidate.rates;
        }
        let number = |given: Setting<u32>, own: &mut Setting<u32>| {
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
    pub(in crate::config) ttl: Setting<Duration>,
    pub(in crate::config) repeats: Setting<u32>,
    pub(in crate::config) of: Setting<Sameness>,
}

/// After what a charge goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) enum Refund {
    Errors,
    Cancels,
}

/// One of a limit's rates.
#[derive(Debug, Clone)]
pub(in crate::config) struct RateEntry {
    pub(in crate::config) quota: At<Quota>,
    /// Of this rate alone, in a list.
    pub(in crate::config) burst: Setting<u32>,
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
            Setting::Invalid
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
pub(super) fn rates(name: &str, fields: &mut Fields<'_>) -> List<RateEntry> {
    let Some((value, whole)) = fields.value("rate") else {
        return Setting::Absent;
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
            DeValue::String(text) => (fields.take(rate(text), span.clone()), Setting::Absent),
            DeValue::Table(table) if listed => {
                let (name, place) = (format!("{name}.rate"), span.clone());
                fields.inner(&LIMIT_RATE, &name, (table, place), |mut inner| {
                    (inner.text("rate", rate), inner.whole("burst"))
                })
            }
            other => (fields.wrong_type("rate", other, &span), Setting::Absent),
        };
        if let Setting::Valid(quota) = quota
            && !burst.is_bad()
        {
            entries.push(At::new(RateEntry { quota, burst }, span));
        }
    }
    match entries.len() == many && many > 0 {
        true => Setting::Valid(At::new(entries, whole)),
        false => Setting::Invalid,
    }
}

/// The field with the id, and how long it is remembered.
fn dedupe(name: &str, fields: &mut Fields<'_>) -> Setting<Dedupe> {
    let Some((value, whole)) = fields.value("dedupe") else {
        return Setting::Absent;
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
        let Setting::Valid(header) = header else {
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
        Some(dedupe) => Setting::Valid(At::new(dedupe, whole)),
        None => Setting::Invalid,
    }
}

/// Numbers to be counted beside the limit's own.
fn candidate(name: &str, fields: &mut Fields<'_>) -> Setting<Candidate> {
    let Some((value, whole)) = fields.value("candidate") else {
        return Setting::Absent;
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
        return Setting::Invalid;
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
        Some(candidate) => Setting::Valid(At::new(candidate, whole)),
        None => Setting::Invalid,
    }
}

/// Whom it does not hold for.
fn exempt(name: &str, fields: &mut Fields<'_>) -> Setting<Exempt> {
    let Some((value, whole)) = fields.value("exempt") else {
        return Setting::Absent;
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
        return Setting::Invalid;
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
        Some(exempt) => Setting::Valid(At::new(exempt, whole)),
        None => Setting::Invalid,
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
