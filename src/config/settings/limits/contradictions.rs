//! Keys of a limit that contradict each other, or that have no effect together.

use crate::config::document::{
    Algorithm, AnchorWord, CostSource, Limit, Over, RefundCause, Words as _,
};
use crate::config::input::{At, Span};
use crate::config::presentation::time_text;
use crate::config::report::{Code, Details as _, Diagnostic, Findings, all_of};
use crate::config::value::show_rate;
use crate::key::{KeyPart, MissingKey, UnknownKey};
use crate::limit::Scope;

/// Notes keys that make no sense together.
pub(super) fn note_contradictions(limit: &Limit, found: &mut Findings) {
    let mut check = Contradictions { limit, found };
    check.cost();
    check.refunds();
    check.partial();
    check.repeats();
    check.blocks();
    check.needless_status();
    check.of_each_gateway();
    check.delays();
    check.bursts();
    check.foreign_keys();
    check.clock();
    check.rate_of_slots();
    check.case();
}

/// May two values of this part differ in case alone?
fn has_case(part: &KeyPart) -> bool {
    match part {
        KeyPart::Header { .. }
        | KeyPart::Cookie(_)
        | KeyPart::Query { .. }
        | KeyPart::Path(_)
        | KeyPart::Jwt { .. }
        | KeyPart::TlsSubject
        | KeyPart::BasicUser
        | KeyPart::Customer => true,
        KeyPart::Ip(_)
        | KeyPart::TlsFingerprint
        | KeyPart::Basic
        | KeyPart::Method
        | KeyPart::Host
        | KeyPart::Route => false,
    }
}

struct Contradictions<'a> {
    limit: &'a Limit,
    found: &'a mut Findings,
}

/// A key of the limit, and its place.
type WrittenKey<'a> = (&'static str, Option<&'a Span>);

impl Contradictions<'_> {
    /// Notes a setting and the reason why the setting cannot apply: "has a burst, but is a sliding window".
    fn conflict(&mut self, does: &str) -> &mut Diagnostic {
        self.error(Code::Conflict, does)
    }

    fn error(&mut self, code: Code, does: &str) -> &mut Diagnostic {
        let name = &self.limit.name.value;
        self.found.error(code, format!("limit `{name}` {does}"))
    }

    fn warning(&mut self, code: Code, does: &str) -> &mut Diagnostic {
        let name = &self.limit.name.value;
        self.found.warning(code, format!("limit `{name}` {does}"))
    }

    /// `key_case` of a limit whose key has no text, or texts of one spelling.
    fn case(&mut self) {
        let limit = self.limit;
        let (Some(case), Some(by)) = (limit.key_case.at(), limit.by.at()) else {
            return;
        };
        let mut parts = by.value.iter().filter_map(|part| part.value.as_ref());
        if limit.by.is_bad() || parts.any(has_case) {
            return;
        }
        self.conflict("has `key_case`, which changes no part of its key")
            .at(&case.span, "has no effect")
            .and(&by.span, "has one spelling")
            .help("leave it out");
    }

    /// `over`, `queue` and `max_wait` of a limit that delays no request.
    fn delays(&mut self) {
        let limit = self.limit;
        let is_leaky = self.limit.algorithm() == Algorithm::LeakyBucket;
        match limit.over.at() {
            Some(over) if over.value == Over::Delay && !is_leaky => {
                let algorithm = self.limit.algorithm().word();
                self.conflict(&format!(
                    "should delay requests, which a {algorithm} cannot"
                ))
                .at(&over.span, "only a leaky bucket delays")
                .help(leaky_instead(limit))
                .and_if(limit.algorithm.span(), "this algorithm refuses");
            }
            over => self.waiting(over.filter(|over| over.value == Over::Refuse)),
        }
        let max_wait = limit.max_wait.at().filter(|at| at.value.is_zero());
        if let Some(wait) = max_wait.filter(|_| is_leaky) {
            self.error(Code::BadDuration, "has a `max_wait` of zero")
                .at(&wait.span, "must be longer than zero")
                .help("write `over = \"refuse\"` instead for a bucket that refuses at once");
        }
    }

    /// `queue` and `max_wait` if no request waits.
    fn waiting(&mut self, refuses: Option<&At<Over>>) {
        let limit = self.limit;
        let keys: [WrittenKey<'_>; 2] = [
            ("queue", limit.queue.span()),
            ("max_wait", limit.max_wait.span()),
        ];
        let keys = keys.iter().filter_map(|(key, span)| Some((*key, (*span)?)));
        let (names, spans): (Vec<&str>, Vec<&Span>) = keys.unzip();
        let Some((first, others)) = spans.split_first() else {
            return;
        };
        let names = all_of(&names);
        let diagnostic = if self.limit.algorithm() != Algorithm::LeakyBucket {
            let algorithm = self.limit.algorithm().word();
            self.conflict(&format!("has {names}, but a {algorithm} delays no request"))
                .at(first, "only a leaky bucket has this")
                .help(leaky_instead(limit))
        } else if let Some(refuses) = refuses {
            self.conflict(&format!("refuses at once, but has {names}"))
                .at(first, "for a bucket that delays")
                .and(&refuses.span, "a meter: no request waits")
                .help(format!("leave {names} out, or `over`"))
        } else {
            return;
        };
        for span in others {
            diagnostic.and(span, "and this");
        }
    }

    /// `burst` together with a list of rates, or on a limit without bursts.
    fn bursts(&mut self) {
        let limit = self.limit;
        let entries = limit.rate.entries();
        if let Some(burst) = limit.burst.span().filter(|_| entries.len() > 1) {
            self.conflict("has a burst beside a list of rates")
                .at(burst, "the burst of which rate?")
                .help("write it beside its rate: `rate = [{ rate = \"100/min\", burst = 20 }, \"10/s\"]`");
        }
        let counted = match self.limit.algorithm() {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => return,
            Algorithm::FixedWindow => "a fixed window",
            Algorithm::SlidingWindow => "a sliding window",
            Algorithm::SlidingLog => "a sliding log",
            Algorithm::Concurrency => "a limit on what is in flight",
        };
        let of_entries = entries.iter().filter_map(|entry| entry.value.burst.span());
        for burst in limit.burst.span().into_iter().chain(of_entries) {
            self.conflict(&format!("has a burst, but is {counted}"))
                .at(burst, "the limit admits all of its count at once")
                .help("leave `burst` out, or count with `algorithm = \"token-bucket\"`");
        }
    }

    /// Keys of one algorithm on a limit with another algorithm.
    fn foreign_keys(&mut self) {
        let limit = self.limit;
        let owned: [(Algorithm, WrittenKey<'_>); 7] = [
            (Algorithm::FixedWindow, ("anchor", limit.anchor.span())),
            (Algorithm::FixedWindow, ("offset", limit.offset.span())),
            (Algorithm::FixedWindow, ("timezone", limit.timezone.span())),
            (Algorithm::Concurrency, ("max", limit.max.span())),
            (Algorithm::Concurrency, ("slot_ttl", limit.slot_ttl.span())),
            (Algorithm::SlidingWindow, ("buckets", limit.buckets.span())),
            (Algorithm::SlidingWindow, ("strict", limit.strict.span())),
        ];
        for (owner, (key, span)) in owned {
            let Some(span) = span.filter(|_| owner != self.limit.algorithm()) else {
                continue;
            };
            let (algorithm, owner) = (self.limit.algorithm().word(), owner.word());
            self.conflict(&format!("has `{key}`, which a {algorithm} does not know"))
                .at(span, format!("only a {owner} has this"))
                .help(format!(
                    "leave `{key}` out, or count with `algorithm = \"{owner}\"`"
                ))
                .and_if(limit.algorithm.span(), "this algorithm");
        }
    }

    /// Keys of clock windows without `anchor = "clock"`.
    fn clock(&mut self) {
        let limit = self.limit;
        let by_request = self.limit.algorithm() == Algorithm::FixedWindow
            && limit.anchor() == AnchorWord::First
            && !limit.anchor.is_bad();
        let keys: [WrittenKey<'_>; 2] = [
            ("offset", limit.offset.span()),
            ("timezone", limit.timezone.span()),
        ];
        for (key, span) in keys {
            let Some(span) = span.filter(|_| by_request) else {
                continue;
            };
            self.conflict(&format!(
                "has `{key}`, but its windows start with a request"
            ))
            .at(span, "for windows that start by the clock")
            .help(format!("add `anchor = \"clock\"`, or leave `{key}` out"))
            .and_if(limit.anchor.span(), "at the first request");
        }
    }

    /// `rate` of a limit on requests in flight.
    fn rate_of_slots(&mut self) {
        let is_slots = self.limit.algorithm() == Algorithm::Concurrency;
        if let Some(rates) = self.limit.rate.span().filter(|_| is_slots) {
            self.conflict("has a rate, but counts what is in flight")
                .at(rates, "requests in flight have no rate")
                .help("leave `rate` out; `max` says how many at once");
        }
    }

    /// `partial` together with a list of rates, or together with a cost that only the response states. Each rate of a
    /// list would grant a different number.
    fn partial(&mut self) {
        let limit = self.limit;
        let Some(partial) = limit.partial.at().filter(|partial| partial.value) else {
            return;
        };
        if let Some(rates) = limit.rate.at().filter(|rates| rates.value.len() > 1) {
            self.conflict("grants the remaining units (`partial`), but has several rates")
                .at(&partial.span, "of which rate?")
                .and(&rates.span, "each rate may have another number left")
                .help("leave `partial` out, or make the other rates a limit of their own");
        }
        let cost = limit.cost.at();
        let later = cost.filter(|cost| is_later(&cost.value));
        if let Some(cost) = later.filter(|_| why_unsettled(limit).is_none()) {
            self.conflict(
                "grants the remaining units (`partial`), but learns the cost only afterwards",
            )
            .at(&partial.span, "granted before the response")
            .and(&cost.span, "known after the response")
            .help("leave `partial` out");
        }
    }

    /// `dedupe` of a limit on requests in flight.
    fn repeats(&mut self) {
        let is_slots = self.limit.algorithm() == Algorithm::Concurrency;
        if let Some(dedupe) = self.limit.dedupe.span().filter(|_| is_slots) {
            self.conflict("lets repeats go free, but counts what is in flight")
                .at(dedupe, "a repeat is in flight like any other")
                .help("leave `dedupe` out");
        }
    }

    /// `block` of a limit on requests in flight.
    fn blocks(&mut self) {
        let is_slots = self.limit.algorithm() == Algorithm::Concurrency;
        if let Some(block) = self.limit.block.span().filter(|_| is_slots) {
            self.error(
                Code::BlocksSlots,
                "blocks its keys, but counts what is in flight",
            )
            .at(block, "too many at once are no offence in time")
            .help("leave `block` out, or write it on a limit with a rate");
        }
    }

    /// `refund` on a slot, which every request frees, or on a queue place whose turn has come.
    fn refunds(&mut self) {
        let limit = self.limit;
        let mut words = limit.refund.entries().iter();
        if self.limit.algorithm() == Algorithm::Concurrency {
            let Some(word) = words.next() else { return };
            self.conflict("refunds slots, which requests free anyhow")
                .at(&word.span, "every request frees its slot at its end")
                .help("leave `refund` out");
        } else if limit.delays() {
            let Some(word) = words.find(|word| word.value != RefundCause::Cancels) else {
                return;
            };
            let label = "the next request would go on at the same instant";
            self.conflict("refunds places in its queue that have been used")
                .at(&word.span, label)
                .help("leave all but `\"cancel\"` out, or write `over = \"refuse\"`");
        }
    }

    /// A cost that the response states on a limit that cannot settle the cost; a `default` or an `estimate` above
    /// `max`.
    fn cost(&mut self) {
        let Some(cost) = self.limit.cost.at() else {
            return;
        };
        let bounds = match &cost.value {
            CostSource::Fixed(_) | CostSource::Status(_) => (None, None),
            CostSource::Request(cost) => (cost.default.at(), cost.max.at()),
            CostSource::Response(cost) => (cost.estimate.at(), cost.max.at()),
        };
        if let (Some(first), Some(max)) = bounds
            && first.value > max.value
        {
            let (what, key, label) = match &cost.value {
                CostSource::Response(_) => {
                    ("an estimate", "estimate", "charged before the response")
                }
                _ => ("a default", "default", "without the field"),
            };
            let name = &self.limit.name.value;
            self.found
                .conflict(format!(
                    "the cost of limit `{name}` has {what} above its maximum"
                ))
                .at(&first.span, label)
                .and(&max.span, "at most")
                .help(format!("raise `max`, or lower `{key}`"));
        }
        if let (true, Some(why)) = (is_later(&cost.value), why_unsettled(self.limit)) {
            let algorithm = self.limit.algorithm().word();
            self.conflict(&format!(
                "learns its cost from the response, which a {algorithm} cannot settle"
            ))
            .at(&cost.span, why)
            .help("count with a token bucket, or with a fixed or sliding window");
        }
    }

    /// `missing_status` on a limit that answers no request because of a missing key.
    fn needless_status(&mut self) {
        let limit = self.limit;
        let refuses_unknown = limit.unknown.get() == Some(&UnknownKey::Refuse);
        if let (Some(status), Some(missing)) = (limit.missing_status.span(), limit.missing.at())
            && missing.value != MissingKey::Refuse
            && !refuses_unknown
        {
            let does = "never answers that its key is missing";
            self.warning(Code::NeedlessMissing, does)
                .at(status, "never sent")
                .and(&missing.span, "only `\"refuse\"` answers")
                .help("leave `missing_status` out");
        }
    }

    /// `on_down` and `with`, which concern the store, on a limit that never uses the store.
    fn of_each_gateway(&mut self) {
        let limit = self.limit;
        let Some(scope) = limit.scope.at().filter(|at| at.value == Scope::Gateway) else {
            return;
        };
        if let Some(on_down) = limit.on_down.span() {
            self.warning(Code::Conflict, "has `on_down`, but never asks Redis")
                .at(on_down, "has no effect")
                .and(&scope.span, "counted in each gateway")
                .help("leave `on_down` out");
        }
        if let Some(with) = limit.with.span() {
            self.conflict("has `with`, but is counted in each gateway")
                .at(with, "a tag of counters in the store")
                .and(&scope.span, "counters in memory")
                .help("leave `with` out");
        }
    }
}

/// Is the cost known only after the response?
fn is_later(cost: &CostSource) -> bool {
    matches!(cost, CostSource::Response(_) | CostSource::Status(_))
}

/// The reason why a limit cannot settle a cost that the response states.
fn why_unsettled(limit: &Limit) -> Option<&'static str> {
    match limit.algorithm() {
        Algorithm::SlidingLog => Some("a log enters each unit by itself"),
        Algorithm::Concurrency => Some("a slot is one request"),
        Algorithm::LeakyBucket if limit.delays() => {
            Some("the requests behind it already have their waits")
        }
        _ => None,
    }
}

/// The leaky bucket that the advice suggests for a limit that delays.
fn leaky_instead(limit: &Limit) -> String {
    let rate = limit.rate.entries().first();
    let rate = rate.map_or_else(
        || "10/s".into(),
        |entry| show_rate(entry.value.quota.value.rate),
    );
    let queue = limit.queue.get().map(|queue| format!("\nqueue = {queue}"));
    let queue = queue.unwrap_or_default();
    let wait = time_text(limit.max_wait());
    format!("write\nalgorithm = \"leaky-bucket\"\nrate = \"{rate}\"{queue}\nmax_wait = \"{wait}\"")
}
