//! Keys of a limit that contradict each other, or have no effect beside each other.

use crate::config::diagnostic::{Code, Diagnostic};
use crate::config::document::{
    Algorithm, Anchor, CostSource, Limit, Over, RefundCause, Words as _,
};
use crate::config::span::{At, Span};
use crate::config::suggest::all_of;
use crate::config::value::{show_rate, show_span};
use crate::key::{MissingKey, UnknownKey};
use crate::limit::Scope;
use std::time::Duration;

/// The longest that an id is remembered.
const LONGEST_TTL: Duration = Duration::from_hours(7 * 24);

/// Notes keys that make no sense beside each other.
pub(super) fn note(limit: &Limit, algorithm: Algorithm, found: &mut Vec<Diagnostic>) {
    let name = &limit.name.value;
    let mut check = Contradictions {
        limit,
        name,
        algorithm,
        found,
    };
    check.default_above_max();
    check.unsettled_cost();
    check.refunds();
    check.partial_of_several();
    check.repeats();
    check.needless_status();
    check.needless_on_down();
    check.shared_tag();
    check.delays();
    check.bursts();
    check.foreign_keys();
}

struct Contradictions<'a> {
    limit: &'a Limit,
    name: &'a str,
    algorithm: Algorithm,
    found: &'a mut Vec<Diagnostic>,
}

impl Contradictions<'_> {
    /// `over`, `queue` and `max_wait` of a limit that delays no request.
    fn delays(&mut self) {
        let (limit, name) = (self.limit, self.name);
        let is_leaky = self.algorithm == Algorithm::LeakyBucket;
        let over = limit.over.at();
        match over {
            Some(over) if over.value == Over::Delay && !is_leaky => {
                let algorithm = self.algorithm.word();
                self.found.push(
                    Diagnostic::conflict(format!(
                        "limit `{name}` is to delay, which a {algorithm} cannot"
                    ))
                    .at(&over.span, "only a leaky bucket delays")
                    .help(leaky_instead(limit))
                    .and_if(limit.algorithm.span(), "this algorithm refuses"),
                );
            }
            _ => self.waiting(over.filter(|over| over.value == Over::Refuse)),
        }
        let max_wait = limit.max_wait.at().filter(|at| at.value.is_zero());
        if let Some(wait) = max_wait.filter(|_| is_leaky) {
            let message = format!("limit `{name}` has a `max_wait` of zero");
            self.found.push(
                Diagnostic::error(Code::BadDuration, message)
                    .at(&wait.span, "must be longer than zero")
                    .help("write `over = \"refuse\"` instead for a bucket that refuses at once"),
            );
        }
    }

    /// `queue` and `max_wait` where no request waits.
    fn waiting(&mut self, refuses: Option<&At<Over>>) {
        let (limit, name) = (self.limit, self.name);
        let keys = [
            ("queue", limit.queue.span()),
            ("max_wait", limit.max_wait.span()),
        ];
        let keys = keys.iter().filter_map(|(key, span)| Some((*key, (*span)?)));
        let (names, spans): (Vec<&str>, Vec<&Span>) = keys.unzip();
        let Some((first, others)) = spans.split_first() else {
            return;
        };
        let names = all_of(&names);
        let mut diagnostic = match refuses {
            _ if self.algorithm != Algorithm::LeakyBucket => Diagnostic::conflict(format!(
                "limit `{name}` has {names}, but a {} holds no request back",
                self.algorithm.word()
            ))
            .at(first, "only a leaky bucket has this")
            .help(leaky_instead(limit)),
            Some(refuses) => {
                Diagnostic::conflict(format!("limit `{name}` refuses at once, and has {names}"))
                    .at(first, "for a bucket that delays")
                    .and(&refuses.span, "a meter: no request waits")
                    .help(format!("leave {names} out, or `over`"))
            }
            None => return,
        };
        for span in others {
            diagnostic = diagnostic.and(span, "and this");
        }
        self.found.push(diagnostic);
    }

    /// `burst` beside a list of rates, or of a limit without bursts.
    fn bursts(&mut self) {
        let (limit, name) = (self.limit, self.name);
        let entries = limit.rate.entries();
        if let Some(burst) = limit.burst.at().filter(|_| entries.len() > 1) {
            self.found.push(
                Diagnostic::conflict(format!("limit `{name}` has a burst beside a list of rates"))
                    .at(&burst.span, "the burst of which rate?")
                    .help("write it beside its rate: `rate = [{ rate = \"100/min\", burst = 20 }, \"10/s\"]`"),
            );
        }
        let counted = match self.algorithm {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => return,
            Algorithm::FixedWindow => "a fixed window",
            Algorithm::SlidingWindow => "a sliding window",
            Algorithm::SlidingLog => "a sliding log",
            Algorithm::Concurrency => "a limit on what is in flight",
        };
        let own = entries.iter().filter_map(|entry| entry.value.burst.at());
        for burst in limit.burst.at().into_iter().chain(own) {
            self.found.push(
                Diagnostic::conflict(format!("limit `{name}` has a burst, but is {counted}"))
                    .at(&burst.span, "the limit admits all of its count at once")
                    .help("leave `burst` out, or count with `algorithm = \"token-bucket\"`"),
            );
        }
    }

    /// Keys that belong to one algorithm, on a limit of another; keys of the clock without `anchor = "clock"`.
    fn foreign_keys(&mut self) {
        let (limit, name) = (self.limit, self.name);
        let clock = [
            ("offset", limit.offset.span()),
            ("timezone", limit.timezone.span()),
        ];
        if self.algorithm != Algorithm::FixedWindow {
            self.foreign(&[("anchor", limit.anchor.span())], Algorithm::FixedWindow);
            self.foreign(&clock, Algorithm::FixedWindow);
        } else if limit.anchor() == Anchor::First && !limit.anchor.is_bad() {
            for (key, span) in clock {
                let Some(span) = span else { continue };
                let message =
                    format!("limit `{name}` has `{key}`, but its windows start with a request");
                self.found.push(
                    Diagnostic::conflict(message)
                        .at(span, "for windows that start by the clock")
                        .help(format!("add `anchor = \"clock\"`, or leave `{key}` out"))
                        .and_if(limit.anchor.span(), "at the first request"),
                );
            }
        }
        if self.algorithm != Algorithm::Concurrency {
            let slots = [
                ("max", limit.max.span()),
                ("slot_ttl", limit.slot_ttl.span()),
            ];
            self.foreign(&slots, Algorithm::Concurrency);
        } else if let Some(rates) = limit.rate.span() {
            let message = format!("limit `{name}` has a rate, but counts what is in flight");
            self.found.push(
                Diagnostic::conflict(message)
                    .at(rates, "requests in flight have no rate")
                    .help("leave `rate` out; `max` says how many at once"),
            );
        }
        if self.algorithm != Algorithm::SlidingWindow {
            let sliding = [
                ("buckets", limit.buckets.span()),
                ("strict", limit.strict.span()),
            ];
            self.foreign(&sliding, Algorithm::SlidingWindow);
        }
    }

    fn foreign(&mut self, keys: &[(&str, Option<&Span>)], owner: Algorithm) {
        let (name, owner) = (self.name, owner.word());
        for (key, span) in keys {
            let Some(span) = span else { continue };
            let algorithm = self.algorithm.word();
            self.found.push(
                Diagnostic::conflict(format!(
                    "limit `{name}` has `{key}`, which a {algorithm} does not know"
                ))
                .at(span, format!("only a {owner} has this"))
                .help(format!(
                    "leave `{key}` out, or count with `algorithm = \"{owner}\"`"
                ))
                .and_if(self.limit.algorithm.span(), "this algorithm"),
            );
        }
    }

    /// `partial` beside a list of rates: each rate would grant another number.
    fn partial_of_several(&mut self) {
        let partial = self.limit.partial.at().filter(|partial| partial.value);
        let rates = self.limit.rate.at().filter(|rates| rates.value.len() > 1);
        if let (Some(partial), Some(rates)) = (partial, rates) {
            let name = self.name;
            self.found.push(
                Diagnostic::conflict(format!(
                    "limit `{name}` grants what is left, and has several rates"
                ))
                .at(&partial.span, "of which rate?")
                .and(&rates.span, "each rate may have another number left")
                .help("leave `partial` out, or make the other rates a limit of their own"),
            );
        }
    }

    /// `dedupe` of a limit on what is in flight, or with a `ttl` out of range.
    fn repeats(&mut self) {
        let Some(dedupe) = self.limit.dedupe.at() else {
            return;
        };
        let name = self.name;
        if self.algorithm == Algorithm::Concurrency {
            let message =
                format!("limit `{name}` lets repeats go free, but counts what is in flight");
            self.found.push(
                Diagnostic::conflict(message)
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
        let message = format!("`ttl` in `[limits.{name}.dedupe]` is out of range");
        self.found.push(
            Diagnostic::error(Code::BadDuration, message)
                .at(&ttl.span, label)
                .help(format!(
                    "write `ttl = \"{bound}\"`; each id costs memory for that long"
                )),
        );
    }

    /// `refund` of a slot, which every request frees, or of a place in a queue whose turn has come.
    fn refunds(&mut self) {
        let (limit, name) = (self.limit, self.name);
        let is_slot = self.algorithm == Algorithm::Concurrency;
        let queues =
            self.algorithm == Algorithm::LeakyBucket && limit.over.or(Over::Delay) == Over::Delay;
        let wrong =
            |word: &&At<RefundCause>| is_slot || queues && word.value == RefundCause::Errors;
        let Some(word) = limit.refund.entries().iter().find(wrong) else {
            return;
        };
        self.found.push(if is_slot {
            Diagnostic::conflict(format!(
                "limit `{name}` refunds slots, which requests free anyhow"
            ))
            .at(&word.span, "every request frees its slot at its end")
            .help("leave `refund` out")
        } else {
            Diagnostic::conflict(format!(
                "limit `{name}` refunds places in its queue that have been used"
            ))
            .at(
                &word.span,
                "the next request would go on at the same instant",
            )
            .help("leave `\"5xx\"` out, or write `over = \"refuse\"`")
        });
    }

    /// A request without the field of its cost would pay more than any request with it.
    fn default_above_max(&mut self) {
        let Some(CostSource::Field { default, max, .. }) = self.limit.cost.get() else {
            return;
        };
        if let Some(default) = default.at().filter(|at| at.value > max.value) {
            let name = self.name;
            self.found.push(
                Diagnostic::conflict(format!(
                    "the cost of limit `{name}` has a default above its maximum"
                ))
                .at(&default.span, "without the field")
                .and(&max.span, "at most")
                .help("raise `max`, or lower `default`"),
            );
        }
    }

    /// A cost that the response states, of a limit that cannot settle it, or outside its bounds.
    fn unsettled_cost(&mut self) {
        let (limit, name) = (self.limit, self.name);
        let Some(cost) = limit.cost.at() else { return };
        let CostSource::Later { estimate, max, .. } = &cost.value else {
            return;
        };
        if let (Some(estimate), Some(max)) = (estimate.at(), max.at())
            && estimate.value > max.value
        {
            self.found.push(
                Diagnostic::conflict(format!(
                    "the cost of limit `{name}` has an estimate above its maximum"
                ))
                .at(&estimate.span, "charged before the response")
                .and(&max.span, "at most")
                .help("raise `max`, or lower `estimate`"),
            );
        }
        let delays = limit.over.or(Over::Delay) == Over::Delay;
        let why = match self.algorithm {
            Algorithm::SlidingLog => "a log enters each unit by itself",
            Algorithm::Concurrency => "a slot is one request",
            Algorithm::LeakyBucket if delays => "the requests behind already know their wait",
            _ => return self.partial_of_later(&cost.span),
        };
        let algorithm = self.algorithm.word();
        self.found.push(
            Diagnostic::conflict(format!(
                "limit `{name}` learns its cost from the response, which a {algorithm} cannot settle"
            ))
            .at(&cost.span, why)
            .help("count with a token bucket, or with a fixed or sliding window"),
        );
    }

    /// `partial` grants before the response, and the cost is known after it.
    fn partial_of_later(&mut self, cost: &Span) {
        if let Some(partial) = self.limit.partial.at().filter(|partial| partial.value) {
            let name = self.name;
            self.found.push(
                Diagnostic::conflict(format!(
                    "limit `{name}` grants what is left of a cost that it learns afterwards"
                ))
                .at(&partial.span, "granted before the response")
                .and(cost, "known after the response")
                .help("leave `partial` out"),
            );
        }
    }

    /// `missing_status` of a limit that answers no request for a missing key.
    fn needless_status(&mut self) {
        let (limit, name) = (self.limit, self.name);
        let refuses_unknown = limit.unknown.get() == Some(&UnknownKey::Refuse);
        if let (Some(status), Some(missing)) = (limit.missing_status.span(), limit.missing.at())
            && missing.value != MissingKey::Refuse
            && !refuses_unknown
        {
            let message = format!("limit `{name}` never answers that its key is missing");
            self.found.push(
                Diagnostic::warning(Code::NeedlessMissing, message)
                    .at(status, "never sent")
                    .and(&missing.span, "only `\"refuse\"` answers")
                    .help("leave `missing_status` out"),
            );
        }
    }

    /// `on_down` of a limit that never asks the store.
    fn needless_on_down(&mut self) {
        if let Some(scope) = self.of_each_gateway()
            && let Some(on_down) = self.limit.on_down.span()
        {
            let name = self.name;
            let message = format!("limit `{name}` has `on_down`, but never asks Redis");
            self.found.push(
                Diagnostic::warning(Code::Conflict, message)
                    .at(on_down, "has no effect")
                    .and(scope, "counted in each gateway")
                    .help("leave `on_down` out"),
            );
        }
    }

    /// `with`, a place in the store, of a limit that is not counted there.
    fn shared_tag(&mut self) {
        if let Some(scope) = self.of_each_gateway()
            && let Some(with) = self.limit.with.span()
        {
            let name = self.name;
            let message = format!("limit `{name}` has `with`, but is counted in each gateway");
            self.found.push(
                Diagnostic::conflict(message)
                    .at(with, "a tag of counters in the store")
                    .and(scope, "counters in memory")
                    .help("leave `with` out"),
            );
        }
    }

    /// The place of `scope = "gateway"`.
    fn of_each_gateway(&self) -> Option<&Span> {
        let scope = self.limit.scope.at()?;
        (scope.value == Scope::Gateway).then_some(&scope.span)
    }
}

/// The leaky bucket to write for a limit that delays.
fn leaky_instead(limit: &Limit) -> String {
    let rate = limit.rate.entries().first();
    let rate = rate.map_or_else(
        || "10/s".into(),
        |entry| show_rate(entry.value.quota.value.rate),
    );
    let queue = limit.queue.get().map(|queue| format!("\nqueue = {queue}"));
    let queue = queue.unwrap_or_default();
    let wait = u64::try_from(limit.max_wait().as_micros()).unwrap_or(u64::MAX);
    let wait = show_span(wait);
    format!("write\nalgorithm = \"leaky-bucket\"\nrate = \"{rate}\"{queue}\nmax_wait = \"{wait}\"")
}
