//! Keys of a limit that make no sense beside each other.

mod needless;

use crate::config::diagnostic::{Code, Diagnostic};
use crate::config::document::{Algorithm, Anchor, CostSource, Limit, Over, Refund, Words as _};
use crate::config::source::{At, Span};
use crate::config::suggest::all_of;
use crate::config::value::{show_rate, show_span};
use needless::{needless_status, never_away};
use std::time::Duration;

/// Notes keys that make no sense beside each other.
pub(super) fn note(written: &Limit, algorithm: Algorithm, found: &mut Vec<Diagnostic>) {
    let name = &written.name.value;
    let leaky = algorithm == Algorithm::LeakyBucket;
    dear_default(written, found);
    unsettled(written, algorithm, found);
    needless_refund(written, algorithm, found);
    partial_list(written, found);
    repeats(written, algorithm, found);
    needless_status(written, found);
    never_away(written, found);
    let queue = written.queue.at().map(|at| ("queue", &at.span));
    let max_wait = written.max_wait.at().map(|at| ("max_wait", &at.span));
    let over = written.over.at();
    if let (
        false,
        Some(At {
            value: Over::Delay,
            span,
        }),
    ) = (leaky, over)
    {
        let mut diagnostic = Diagnostic::error(
            Code::Conflict,
            format!(
                "limit `{name}` is to delay, which a {} cannot",
                algorithm.word()
            ),
        )
        .at(span, "only a leaky bucket delays")
        .help(leaky_instead(written));
        if let Some(algorithm) = written.algorithm.at() {
            diagnostic = diagnostic.and(&algorithm.span, "this one refuses");
        }
        found.push(diagnostic);
    } else {
        let refuses = over.filter(|at| at.value == Over::Refuse);
        waiting(written, algorithm, refuses, [queue, max_wait], found);
    }
    bursts(written, algorithm, found);
    windows(written, algorithm, found);
    if let (true, Some(wait)) = (leaky, written.max_wait.at().filter(|at| at.value.is_zero())) {
        found.push(
            Diagnostic::error(
                Code::BadDuration,
                format!("limit `{name}` is to delay for no time at all"),
            )
            .at(&wait.span, "must be longer than nothing")
            .help("write `over = \"refuse\"` instead for a bucket that refuses at once"),
        );
    }
}

/// `queue` and `max_wait` where nothing ever waits.
fn waiting(
    written: &Limit,
    algorithm: Algorithm,
    refuses: Option<&At<Over>>,
    keys: [Option<(&str, &Span)>; 2],
    found: &mut Vec<Diagnostic>,
) {
    let keys: Vec<(&str, &Span)> = keys.into_iter().flatten().collect();
    let Some((_, first)) = keys.first() else {
        return;
    };
    let names: Vec<&str> = keys.iter().map(|(key, _)| *key).collect();
    let (name, names) = (&written.name.value, all_of(&names));
    let mut diagnostic = match refuses {
        _ if algorithm != Algorithm::LeakyBucket => Diagnostic::error(
            Code::Conflict,
            format!(
                "limit `{name}` has {names}, but a {} holds nothing back",
                algorithm.word()
            ),
        )
        .at(first, "only a leaky bucket has this")
        .help(leaky_instead(written)),
        Some(refuses) => Diagnostic::error(
            Code::Conflict,
            format!("limit `{name}` refuses at once, and has {names}"),
        )
        .at(first, "for a bucket that delays")
        .and(&refuses.span, "a meter: nothing waits")
        .help(format!("leave {names} out, or `over`")),
        None => return,
    };
    for (_, span) in &keys[1..] {
        diagnostic = diagnostic.and(span, "and this");
    }
    found.push(diagnostic);
}

/// The leaky bucket that somebody who wants a delay should write.
fn leaky_instead(written: &Limit) -> String {
    let rate = written.rate.entries().first().map_or_else(
        || "10/s".into(),
        |entry| show_rate(entry.value.quota.value.rate),
    );
    let queue = written
        .queue
        .get()
        .map(|queue| format!("\nqueue = {queue}"))
        .unwrap_or_default();
    let wait = u64::try_from(written.max_wait().as_micros()).unwrap_or(u64::MAX);
    format!(
        "write\nalgorithm = \"leaky-bucket\"\nrate = \"{rate}\"{queue}\nmax_wait = \"{}\"",
        show_span(wait)
    )
}

/// A burst where nothing bursts, or beside rates that have their own.
fn bursts(written: &Limit, algorithm: Algorithm, found: &mut Vec<Diagnostic>) {
    let name = &written.name.value;
    let entries = written.rate.entries();
    if let (true, Some(burst)) = (entries.len() > 1, written.burst.at()) {
        found.push(
            Diagnostic::error(
                Code::Conflict,
                format!("limit `{name}` has a burst beside a list of rates"),
            )
            .at(&burst.span, "of which of them?")
            .help(
                "write it beside its rate: `rate = [{ rate = \"100/min\", burst = 20 }, \"10/s\"]`",
            ),
        );
    }
    let counted = match algorithm {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => return,
        Algorithm::FixedWindow => "a fixed window",
        Algorithm::SlidingWindow => "a sliding window",
        Algorithm::SlidingLog => "a sliding log",
        Algorithm::Concurrency => "a limit on what is in flight",
    };
    let own = entries.iter().filter_map(|entry| entry.value.burst.at());
    for burst in written.burst.at().into_iter().chain(own) {
        found.push(
            Diagnostic::error(
                Code::Conflict,
                format!("limit `{name}` has a burst, but is {counted}"),
            )
            .at(&burst.span, "it takes all of its count at once")
            .help("leave `burst` out, or count with `algorithm = \"token-bucket\"`"),
        );
    }
}

/// What only one kind of window has, on another.
fn windows(written: &Limit, algorithm: Algorithm, found: &mut Vec<Diagnostic>) {
    let span = |at: Option<&Span>| at.cloned();
    let fixed = [
        ("anchor", span(written.anchor.at().map(|at| &at.span))),
        ("offset", span(written.offset.at().map(|at| &at.span))),
        ("timezone", span(written.timezone.at().map(|at| &at.span))),
    ];
    let sliding = [
        ("buckets", span(written.buckets.at().map(|at| &at.span))),
        ("strict", span(written.strict.at().map(|at| &at.span))),
    ];
    if algorithm != Algorithm::FixedWindow {
        foreign(written, algorithm, &fixed, Algorithm::FixedWindow, found);
    } else if written.anchor() == Anchor::First && !written.anchor.is_bad() {
        unanchored(written, &fixed[1..], found);
    }
    let slots = [
        ("max", span(written.max.at().map(|at| &at.span))),
        ("slot_ttl", span(written.slot_ttl.at().map(|at| &at.span))),
    ];
    if algorithm != Algorithm::Concurrency {
        foreign(written, algorithm, &slots, Algorithm::Concurrency, found);
    } else if let Some(rates) = written.rate.at() {
        found.push(
            Diagnostic::error(
                Code::Conflict,
                format!(
                    "limit `{}` has a rate, but counts what is in flight",
                    written.name.value
                ),
            )
            .at(&rates.span, "nothing is counted over a time")
            .help("leave `rate` out; `max` says how many at once"),
        );
    }
    if algorithm != Algorithm::SlidingWindow {
        foreign(
            written,
            algorithm,
            &sliding,
            Algorithm::SlidingWindow,
            found,
        );
    }
}

fn foreign(
    written: &Limit,
    algorithm: Algorithm,
    keys: &[(&str, Option<Span>)],
    owner: Algorithm,
    found: &mut Vec<Diagnostic>,
) {
    for (key, span) in keys {
        let Some(span) = span else { continue };
        let mut diagnostic = Diagnostic::error(
            Code::Conflict,
            format!(
                "limit `{}` has `{key}`, which a {} does not know",
                written.name.value,
                algorithm.word()
            ),
        )
        .at(span, format!("only a {} has this", owner.word()))
        .help(format!(
            "leave `{key}` out, or count with `algorithm = \"{}\"`",
            owner.word()
        ));
        if let Some(algorithm) = written.algorithm.at() {
            diagnostic = diagnostic.and(&algorithm.span, "this one");
        }
        found.push(diagnostic);
    }
}

/// Several windows would each grant something else.
fn partial_list(written: &Limit, found: &mut Vec<Diagnostic>) {
    let (Some(partial), Some(rates)) = (written.partial.at(), written.rate.at()) else {
        return;
    };
    if !partial.value || rates.value.len() < 2 {
        return;
    }
    found.push(
        Diagnostic::error(
            Code::Conflict,
            format!(
                "limit `{}` grants what is left, and has several rates",
                written.name.value
            ),
        )
        .at(&partial.span, "of which rate?")
        .and(&rates.span, "each may have something else left")
        .help("leave `partial` out, or make the other rates a limit of their own"),
    );
}

/// The longest that an id is remembered.
const LONGEST_TTL: Duration = Duration::from_hours(7 * 24);

/// Repeats where every request counts while it lasts, or that are remembered too long or for no time.
fn repeats(written: &Limit, algorithm: Algorithm, found: &mut Vec<Diagnostic>) {
    let Some(dedupe) = written.dedupe.at() else {
        return;
    };
    let name = &written.name.value;
    if algorithm == Algorithm::Concurrency {
        found.push(
            Diagnostic::error(
                Code::Conflict,
                format!("limit `{name}` lets repeats go free, but counts what is in flight"),
            )
            .at(&dedupe.span, "a repeat is in flight like any other")
            .help("leave `dedupe` out"),
        );
    }
    let Some(ttl) = dedupe.value.ttl.at() else {
        return;
    };
    let (bound, label) = match ttl.value {
        ttl if ttl < Duration::from_millis(1) => ("1ms", "must be at least 1ms"),
        ttl if ttl > LONGEST_TTL => ("7d", "must be 7d at most"),
        _ => return,
    };
    found.push(
        Diagnostic::error(
            Code::BadDuration,
            format!("`ttl` in `[limits.{name}.dedupe]` is out of range"),
        )
        .at(&ttl.span, label)
        .help(format!(
            "write `ttl = \"{bound}\"`; each id costs memory for that long"
        )),
    );
}

/// A slot comes back at the end anyhow, and a place in a queue whose turn has come has been used.
fn needless_refund(written: &Limit, algorithm: Algorithm, found: &mut Vec<Diagnostic>) {
    let name = &written.name.value;
    let queues = algorithm == Algorithm::LeakyBucket && written.over.or(Over::Delay) == Over::Delay;
    for word in written.refund.entries() {
        let diagnostic = match word.value {
            _ if algorithm == Algorithm::Concurrency => Diagnostic::error(
                Code::Conflict,
                format!("limit `{name}` gives back slots, which come back anyhow"),
            )
            .at(&word.span, "at the end of every request")
            .help("leave `refund` out"),
            Refund::Errors if queues => Diagnostic::error(
                Code::Conflict,
                format!("limit `{name}` gives back places in its queue that have been used"),
            )
            .at(&word.span, "the next would go on at the same instant")
            .help("leave `\"5xx\"` out, or write `over = \"refuse\"`"),
            Refund::Errors | Refund::Cancels => continue,
        };
        return found.push(diagnostic);
    }
}

/// A request without the field would take more than any with it.
fn dear_default(written: &Limit, found: &mut Vec<Diagnostic>) {
    let Some(CostSource::Field { default, max, .. }) = written.cost.get() else {
        return;
    };
    let Some(default) = default.at().filter(|at| at.value > max.value) else {
        return;
    };
    let name = &written.name.value;
    found.push(
        Diagnostic::error(
            Code::Conflict,
            format!("the cost of limit `{name}` has a default above its maximum"),
        )
        .at(&default.span, "without the field")
        .and(&max.span, "at most")
        .help("raise `max`, or lower `default`"),
    );
}

/// A cost that the response says, where it could not be settled, or not within its bounds.
fn unsettled(written: &Limit, algorithm: Algorithm, found: &mut Vec<Diagnostic>) {
    let (Some(cost), name) = (written.cost.at(), &written.name.value) else {
        return;
    };
    let CostSource::Later { estimate, max, .. } = &cost.value else {
        return;
    };
    if let (Some(estimate), Some(max)) = (estimate.at(), max.at())
        && estimate.value > max.value
    {
        found.push(
            Diagnostic::error(
                Code::Conflict,
                format!("the cost of limit `{name}` has an estimate above its maximum"),
            )
            .at(&estimate.span, "asked for before")
            .and(&max.span, "at most")
            .help("raise `max`, or lower `estimate`"),
        );
    }
    let delays = written.over.or(Over::Delay) == Over::Delay;
    let why = match algorithm {
        Algorithm::SlidingLog => "a log enters each unit by itself",
        Algorithm::Concurrency => "a slot is one request",
        Algorithm::LeakyBucket if delays => "those behind have been told their wait",
        _ => return partial_later(written, &cost.span, found),
    };
    found.push(
        Diagnostic::error(
            Code::Conflict,
            format!(
                "limit `{name}` learns its cost from the response, which a {} cannot settle",
                algorithm.word()
            ),
        )
        .at(&cost.span, why)
        .help("count with a token bucket, or with a fixed or sliding window"),
    );
}

/// What is left is granted before, and the cost is known afterwards.
fn partial_later(written: &Limit, cost: &Span, found: &mut Vec<Diagnostic>) {
    let Some(partial) = written.partial.at().filter(|partial| partial.value) else {
        return;
    };
    let name = &written.name.value;
    found.push(
        Diagnostic::error(
            Code::Conflict,
            format!("limit `{name}` grants what is left of a cost that it learns afterwards"),
        )
        .at(&partial.span, "granted before")
        .and(cost, "known when the response comes")
        .help("leave `partial` out"),
    );
}

/// An offset or a time zone of a window that starts with a request.
fn unanchored(written: &Limit, keys: &[(&str, Option<Span>)], found: &mut Vec<Diagnostic>) {
    for (key, span) in keys {
        let Some(span) = span else { continue };
        let mut diagnostic = Diagnostic::error(
            Code::Conflict,
            format!(
                "limit `{}` has `{key}`, but its windows start with a request",
                written.name.value
            ),
        )
        .at(span, "for windows that start by the clock")
        .help(format!("add `anchor = \"clock\"`, or leave `{key}` out"));
        if let Some(anchor) = written.anchor.at() {
            diagnostic = diagnostic.and(&anchor.span, "at the first request");
        }
        found.push(diagnostic);
    }
}
