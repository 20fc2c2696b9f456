//! Limits in words and numbers: for `check`, for the start of `run`, and for the changes of a reload.

mod amount;
mod short;
pub mod upstream;

pub use amount::{amount, brief, rounded_up};
pub use short::{algorithm, short};

pub use crate::config::value::show_span;

use crate::config::value::{Quota, show_quota};
use crate::key::{
    KeyCase, KeyPart, KeyTemplate, MOST_COST, MeterPlace, MissingKey, OnLeave, OnSilent, Sameness,
    UnknownKey,
};
use crate::limit::dedupe::Dedupe;
use crate::limit::{
    BlockRule, Limit, Mode, OnDown, Policy, RefundCondition, ResponsePolicy, Scope, Unit,
};
use jiff::Timestamp;
use std::sync::Arc;

/// `at most 20 at once, 120 in the first minute, 100 in each later minute, per x-api-key; 401 without one`. The part
/// about an unavailable Redis appears only if the gateway uses a Redis.
#[must_use]
pub fn limit(limit: &Limit, asks_redis: bool) -> String {
    if limit.mode == Mode::Candidate {
        let amount = amount(limit);
        return format!("candidate: {amount}; counted beside it and reported, never refuses");
    }
    let away = limit.on_down;
    let away = away.filter(|_| asks_redis && limit.scope == Scope::Cluster);
    let unknown = limit.by.unknown.as_ref().map(|known| known.otherwise);
    let answers = &limit.answers;
    let clauses = [
        Some(format!("{}, {}", amount(limit), per(&limit.by))),
        (costs_more(limit) || limit.meter.is_some()).then(|| a_request(limit)),
        limit.partial.then(|| "grants what is left".into()),
        limit.dedupe.as_ref().map(repeats),
        limit.blocking.map(blocks),
        limit
            .exempt
            .as_ref()
            .map(|exempt| format!("not for {exempt}")),
        (limit.scope == Scope::Gateway).then(|| "each gateway by itself".into()),
        away.map(|on_down| match on_down {
            OnDown::Local => "counted by each gateway while Redis is away".into(),
            OnDown::Open => "not at all while Redis is away".into(),
            OnDown::Closed => "503 while Redis is away".into(),
        }),
        limit
            .refund_on
            .ever()
            .then(|| format!("given back after {}", refund(limit.refund_on))),
        limit.by.can_be_absent().then(|| without(limit)),
        (answers.refusal != ResponsePolicy::default().refusal)
            .then(|| format!("{} beyond", answers.refusal)),
        unknown.map(|unknown| match unknown {
            UnknownKey::Ip => "by client address where no group knows it".into(),
            UnknownKey::Refuse => format!("{} where no group knows it", answers.keyless),
            UnknownKey::Skip => "not limited where no group knows it".into(),
            UnknownKey::Shared => "all that no group knows count together".into(),
        }),
        (limit.mode == Mode::Shadow).then(|| "shadow: counts and reports, never refuses".into()),
    ];
    let clauses: Vec<String> = clauses.into_iter().flatten().collect();
    clauses.join("; ")
}

/// Can a request cost more than one unit?
fn costs_more(limit: &Limit) -> bool {
    limit.cost.units() > 1 || limit.price.is_some()
}

fn a_request(limit: &Limit) -> String {
    format!("a request counts {}", cost(limit))
}

/// The numbers of a tier that differ from its limit's: `at most 200 at once, 1200 in the first minute, 1000 in each
/// later minute; a request counts 1`.
#[must_use]
pub fn tier(limit: &Limit) -> String {
    let amount = amount(limit);
    if costs_more(limit) {
        format!("{amount}; {}", a_request(limit))
    } else {
        amount
    }
}

/// The tiers of a limit: `group gold: at most 200 at once, ...`.
#[must_use]
pub fn tiers(limit: &Limit) -> Vec<String> {
    let tiers = limit.tiers.iter();
    tiers
        .map(|one| format!("group {}: {}", one.group.name, tier(&one.limit)))
        .collect()
}

/// The numbers of single customers: `own numbers for 37, from 5000 to 20000000`. `None` without a file of them.
#[must_use]
pub fn customer_numbers(limit: &Limit) -> Option<String> {
    let numbers = limit.customer_numbers.as_ref()?;
    let many = numbers.len();
    let each_second = |one: &&Arc<Limit>, other: &&Arc<Limit>| {
        let scaled = |one: &Limit, by: &Limit| {
            u128::from(one.rate.count.get()) * u128::from(by.rate.period.get())
        };
        scaled(one, other).cmp(&scaled(other, one))
    };
    let shown = |one: &Arc<Limit>| {
        if one.rate.period == limit.rate.period {
            one.rate.count.to_string()
        } else {
            rate(one)
        }
    };
    let least = numbers.limits().min_by(each_second).map(shown);
    let most = numbers.limits().max_by(each_second).map(shown);
    Some(match (least, most) {
        (Some(least), Some(most)) if least != most => {
            format!("own numbers for {many}, from {least} to {most}")
        }
        _ => format!("own numbers for {many}"),
    })
}

/// `unknown` in the words of the file.
#[must_use]
pub fn unknown(by: &KeyTemplate) -> &'static str {
    match by.unknown.as_ref().map(|known| known.otherwise) {
        Some(UnknownKey::Ip) => "ip",
        Some(UnknownKey::Refuse) => "refuse",
        Some(UnknownKey::Skip) => "skip",
        Some(UnknownKey::Shared) => "shared",
        None => "counted like others",
    }
}

/// `per client address and route`.
fn per(by: &KeyTemplate) -> String {
    if by.parts.is_empty() {
        return "for everyone together".into();
    }
    let parts: Vec<String> = by.parts.iter().map(KeyPart::counted).collect();
    format!("per {}", parts.join(" and "))
}

/// The treatment of requests that lack the key.
fn without(limit: &Limit) -> String {
    match limit.by.missing {
        MissingKey::Refuse => format!("{} without one", limit.answers.keyless),
        MissingKey::Ip => "by client address without one".into(),
        MissingKey::Skip => "not limited without one".into(),
        MissingKey::Shared => "all without one count together".into(),
    }
}

/// `the same idempotency-key within 10min counts once, and 3 repeats go free`.
fn repeats(dedupe: &Dedupe) -> String {
    let go = match dedupe.repeats {
        1 => "1 repeat goes".to_owned(),
        many => format!("{many} repeats go"),
    };
    let of = match dedupe.of {
        Sameness::Request => "",
        Sameness::Path => " and path",
    };
    format!(
        "the same {}{of} within {} counts once, and {go} free",
        dedupe.field.0,
        show_span(dedupe.ttl)
    )
}

/// `idempotency-key/10min/3` (field, time and repeats), followed by `/path` if query and body do not matter; or
/// `nothing`.
#[must_use]
pub fn dedupe(limit: &Limit) -> String {
    limit.dedupe.as_ref().map_or("nothing".into(), |dedupe| {
        let ttl = show_span(dedupe.ttl);
        let of = match dedupe.of {
            Sameness::Request => "",
            Sameness::Path => "/path",
        };
        format!("{}/{ttl}/{}{of}", dedupe.field.0, dedupe.repeats)
    })
}

/// `a refusal blocks its key for 15min`, `a refusal blocks its key for 1min, soon after another block for twice as long,
/// up to 1d`.
fn blocks(rule: BlockRule) -> String {
    let first = show_span(rule.shortest());
    let text = format!("a refusal blocks its key for {first}");
    if rule.grows() {
        let most = show_span(rule.longest());
        return format!("{text}, soon after another block for twice as long, up to {most}");
    }
    text
}

/// `15min`, `1min up to 1d`, `nothing`. A limit that does not decide keeps the times for when it does.
#[must_use]
pub fn block(limit: &Limit) -> String {
    let policy: &Policy = limit;
    match policy.blocking {
        None => "nothing".into(),
        Some(rule) if rule.grows() => {
            let (first, most) = (show_span(rule.shortest()), show_span(rule.longest()));
            format!("{first} up to {most}")
        }
        Some(rule) => show_span(rule.shortest()),
    }
}

/// `on_down` in the words of the file.
#[must_use]
pub fn on_down(limit: &Limit) -> &'static str {
    limit.on_down.map_or("as the store", OnDown::as_str)
}

/// `5`, `what x-cost says (1 without it, at most 50)`.
#[must_use]
pub fn cost(limit: &Limit) -> String {
    if let Some(meter) = &limit.meter {
        let (name, estimate) = (meter.name(), limit.cost.units());
        let most = match meter.max {
            MOST_COST => String::new(),
            max => format!(", at most {max}"),
        };
        if let MeterPlace::Status(costs) = &meter.place {
            return format!("{costs} ({estimate} before the answer)");
        }
        let left = match meter.on_leave {
            OnLeave::Max => "",
            OnLeave::Estimate => ", and where the client leaves",
        };
        let silent = match meter.on_silent {
            OnSilent::Max => ", which a silent answer costs",
            OnSilent::Estimate => "",
        };
        return format!("what {name} of the response says ({estimate} before{left}{most}{silent})");
    }
    match &limit.price {
        None => limit.cost.units().to_string(),
        Some(price) => {
            let zero = if price.may_peek { ", 0 allowed" } else { "" };
            format!(
                "what {} says ({} without it, at most {}{zero})",
                price.header, price.default, price.max
            )
        }
    }
}

/// `10.0.0.0/8, OPTIONS`, `nobody`.
#[must_use]
pub fn exempt(limit: &Limit) -> String {
    let exempt = limit.exempt.as_ref();
    exempt.map_or("nobody".into(), ToString::to_string)
}

/// `5xx`, `5xx or cancel`, `nothing`.
#[must_use]
pub fn refund(refund_on: RefundCondition) -> String {
    let statuses = refund_on.statuses.patterns().map(|one| one.to_string());
    let errors = refund_on.errors.then(|| "5xx".to_owned());
    let cancels = refund_on.cancels.then(|| "cancel".to_owned());
    let causes: Vec<String> = statuses.chain(errors).chain(cancels).collect();
    match causes.split_last() {
        None => "nothing".into(),
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
    }
}

/// A key template as the file writes it: `ip`, `header:x-api-key + route`.
#[must_use]
pub fn key(by: &KeyTemplate) -> String {
    let parts = key_parts(by);
    match by.case {
        KeyCase::Sensitive => parts,
        KeyCase::Insensitive => format!("{parts} (in any case)"),
    }
}

/// The parts of a key template as the file writes them, without their case.
#[must_use]
pub fn key_parts(by: &KeyTemplate) -> String {
    if by.parts.is_empty() {
        return "everyone".into();
    }
    let parts: Vec<String> = by.parts.iter().map(KeyPart::to_string).collect();
    parts.join(" + ")
}

/// A time in seconds since 1970, as RFC 3339 writes it.
#[must_use]
pub fn show_instant(seconds: i64) -> String {
    Timestamp::from_second(seconds)
        .map_or_else(|_| format!("second {seconds}"), |at| at.to_string())
}

/// A limit's rate as the file writes it, including rates over months.
#[must_use]
pub fn rate(limit: &Limit) -> String {
    if let Some(rule) = limit.rule.concurrency() {
        return format!("{} at once", rule.max);
    }
    let months = limit.months();
    show_quota(Quota {
        rate: limit.rate,
        calendar: months.map(|many| (Unit::Month, many)),
    })
}

#[cfg(test)]
mod tests {
    use crate::config::parse;

    fn described(limit: &str) -> String {
        let text = format!(
            "[limits.l]\n{limit}\n[upstreams.u]\nservers = \"a:1\"\n[routes.r]\nupstream = \"u\"\nlimits = \"l\"\n"
        );
        let compiled = parse("gateway.toml", &text)
            .map_err(|report| report.human(crate::config::render::Colour::Off));
        super::limit(&compiled.unwrap().outline.limits[0], true)
    }

    #[test]
    fn a_limit_is_said_in_numbers() {
        for (limit, said) in [
            (
                "by = \"header:x-api-key\"\nmissing = \"refuse\"\nrate = \"100/min\"\nburst = 20",
                "at most 20 at once, 120 in the first minute, 100 in each later minute, per x-api-key; 401 without one",
            ),
            (
                "by = [\"ip/24,48\", \"route\"]\nrate = \"7/3s\"\ncost = 2",
                "at most 7 at once, 14 in the first 3s, 7 in each later 3s, per client network (/24 of IPv4, /48 of IPv6) and route; a request counts 2",
            ),
            (
                "by = \"ip\"\nrate = \"7/3s\"\ncost = { header = \"X-Cost\", max = 5, min = 0 }\npartial = true\nrefund = \"5xx\"",
                "at most 7 at once, 14 in the first 3s, 7 in each later 3s, per client address; a request counts what x-cost says (1 without it, at most 5, 0 allowed); grants what is left; given back after 5xx",
            ),
            (
                "by = \"ip\"\nrate = \"7/3s\"\nscope = \"gateway\"\ndedupe = { header = \"Idempotency-Key\" }",
                "at most 7 at once, 14 in the first 3s, 7 in each later 3s, per client address; the same idempotency-key within 10min counts once, and 3 repeats go free; each gateway by itself",
            ),
            (
                "by = \"ip\"\nrate = \"7/3s\"\ndedupe = { header = \"X-Id\", of = \"path\", repeats = 1 }",
                "at most 7 at once, 14 in the first 3s, 7 in each later 3s, per client address; the same x-id and path within 10min counts once, and 1 repeat goes free",
            ),
            (
                "by = \"ip\"\nrate = \"7/3s\"\nblock = \"15min\"",
                "at most 7 at once, 14 in the first 3s, 7 in each later 3s, per client address; a refusal blocks its key for 15min",
            ),
            (
                "by = \"ip\"\nrate = \"7/3s\"\nblock = { for = \"1min\", up_to = \"1d\" }",
                "at most 7 at once, 14 in the first 3s, 7 in each later 3s, per client address; a refusal blocks its key for 1min, soon after another block for twice as long, up to 1d",
            ),
            (
                "by = \"ip\"\nrate = \"7/3s\"\nblock = \"15min\"\nmode = \"shadow\"",
                "at most 7 at once, 14 in the first 3s, 7 in each later 3s, per client address; shadow: counts and reports, never refuses",
            ),
            (
                "by = \"everyone\"\nrate = \"50/s\"\nalgorithm = \"leaky-bucket\"\nmax_wait = \"2s\"",
                "50 a second evenly; up to 100 more wait, at most 2s each, for everyone together",
            ),
            (
                "by = \"ip\"\nrate = \"50/h\"\nalgorithm = \"leaky-bucket\"\nover = \"refuse\"\nburst = 3",
                "at most 3 at once, 53 in the first hour, 50 in each later hour, per client address",
            ),
            (
                "by = \"ip\"\nrate = \"50/h\"\nalgorithm = \"fixed-window\"",
                "at most 50 in each hour, from its first request on, 99 within an hour that lies across two, per client address",
            ),
            (
                "by = \"everyone\"\nrate = \"10/s\"\nalgorithm = \"leaky-bucket\"\nqueue = 5\nburst = 3",
                "at most 3 at once, 13 in the first second, 10 in each later second, evenly; up to 5 more wait, at most 500ms each, for everyone together",
            ),
            (
                "by = \"everyone\"\nrate = \"7/s\"\nalgorithm = \"leaky-bucket\"\nqueue = 5",
                "7 a second evenly; up to 5 more wait, at most 715ms each, for everyone together",
            ),
            (
                "by = \"everyone\"\nrate = \"50/s\"\nalgorithm = \"leaky-bucket\"\nqueue = 100\nmax_wait = \"1s\"",
                "50 a second evenly; up to 50 more wait, at most 1s each, for everyone together",
            ),
            (
                "by = \"ip\"\nrate = \"1/h\"\nalgorithm = \"fixed-window\"",
                "at most 1 in each hour, from its first request on, per client address",
            ),
            (
                "by = \"ip\"\nrate = \"50/min\"\nalgorithm = \"sliding-window\"",
                "at most 50 in the last minute, seen in one part and the one before it by weight (at worst 99 in a minute), per client address",
            ),
            (
                "by = \"ip\"\nrate = \"50/d\"\nalgorithm = \"fixed-window\"\nanchor = \"clock\"\noffset = \"8h\"",
                "at most 50 in each day by the clock, starting 8h late, 100 within a day that lies across two, per client address",
            ),
            (
                "by = \"ip\"\nrate = \"5000/3months\"\nalgorithm = \"fixed-window\"\nanchor = \"clock\"\ntimezone = \"europe/berlin\"",
                "at most 5000 in each 3 months of the calendar (Europe/Berlin), 10000 within 3 months that lie across two, per client address",
            ),
            (
                "by = \"ip\"\nrate = \"50/min\"\nalgorithm = \"sliding-window\"\nbuckets = 6",
                "at most 50 in the last minute, seen in 6 parts and the one before them by weight (at worst 99 in a minute, 50 in 50s), per client address",
            ),
            (
                "by = \"ip\"\nrate = \"50/min\"\nalgorithm = \"sliding-window\"\nstrict = true",
                "at most 50 in any minute, seen in one part and the one before it whole (in the long run 50 in 2min), per client address",
            ),
            (
                "by = \"ip\"\nrate = \"7/3s\"\ncost = { response_header = \"X-Units\", estimate = 2, max = 5 }",
                "at most 7 at once, 14 in the first 3s, 7 in each later 3s, per client address; a request counts what x-units of the response says (2 before, at most 5)",
            ),
            (
                "by = \"ip\"\nrate = \"5/h\"\ncost = { status = { \"4xx\" = 2, \"401\" = 1, else = 0 } }\nrefund = [\"cancel\", \"5xx\", \"409\", \"grpc-14\"]",
                "at most 5 at once, 10 in the first hour, 5 in each later hour, per client address; a request counts 1 after 401, 2 after 4xx, else 0 (2 before the answer); given back after grpc-14, 409, 5xx or cancel",
            ),
            (
                "by = \"ip\"\nrate = \"7/3s\"\ncost = { response_json = { \"u.i|m.u.i\" = 1, \"u.o\" = 2.5 }, max = 5, on_silent = \"max\" }",
                "at most 7 at once, 14 in the first 3s, 7 in each later 3s, per client address; a request counts what u.i|m.u.i + 2.5 x u.o of the response says (1 before, at most 5, which a silent answer costs)",
            ),
            (
                "by = \"ip\"\nrate = \"7/3s\"\nmode = \"shadow\"",
                "at most 7 at once, 14 in the first 3s, 7 in each later 3s, per client address; shadow: counts and reports, never refuses",
            ),
            (
                "by = \"ip\"\nrate = \"7/3s\"\nalgorithm = \"sliding-log\"",
                "at most 7 in any 3s, per client address",
            ),
        ] {
            assert_eq!(described(limit), said);
        }
    }
}
