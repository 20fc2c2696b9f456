//! `[limits.NAME]`.

mod comparison;
mod cost;
mod rate;
mod tier;

pub(in crate::config) use cost::CostSource;
pub(in crate::config) use rate::RateEntry;
pub(in crate::config) use tier::Tier;

use super::super::describe;
use super::super::outline::show;
use super::super::source::At;
use super::super::value::{
    ErrorText, error_text, field, method, network, part, public_name, tag, top, zone,
};
use super::super::vocabulary::{Emptiness, ValueShape};
use super::fields::{Fields, Zero};
use super::form::{
    Form, any, count, custom, filled_texts, flag, inner_table, number, text, text_as, texts, time,
    time_within, whole, word, word_list,
};
use super::server::error_body;
use super::table::{Section as _, table};
use super::words::{Words as _, words};
use super::{Items, Setting};
use crate::key::{KeyPart, MissingKey, Sameness, UnknownKey};
use crate::limit::sliding_window::MAX_PARTS;
use crate::limit::{LeaseSetting, Mode, OnDown, Preflights, Scope};
use comparison::{
    algorithm, anchor, burst, clock, delaying, joined, leaky, over, queue, shown_candidate,
    shown_tiers, sliding,
};
use cost::cost_form;
use http::{HeaderName, Method};
use ipnet::IpNet;
use jiff::tz::TimeZone;
use rate::rate_form;
use std::num::NonZeroU32;
use std::time::Duration;
use tier::{LIMIT_TIER, tiers};
use toml::Spanned;
use toml::de::DeValue;

/// How many requests may be in flight.
fn slots() -> impl Form<u32> {
    number(1, 10_000)
}

/// The report on a key without parts.
const NO_PART: Emptiness = Emptiness {
    message: "names nothing",
    label: "at least one part",
    help: "write `by = \"everyone\"` for one counter that all requests share",
};

table! {
    /// A named rule: what to count by, how much, what happens beyond. The name is the identity of its counters: new
    /// numbers keep them, another name has its own.
    Limit { name, place } = LIMITS, "limits", "a limit", named true;

    /// What to count by: `ip` (IPv6 by /64), `ip/24,64` (bits of IPv4 and IPv6), `header:NAME`, `cookie:NAME`,
    /// `query:NAME`, `path:NAME` (what `{NAME}` of the route's path took), `jwt:CLAIM` (of a token that `[jwt]`
    /// believes, with dots for claims inside others), `method`, `host`, `route`, `everyone`, or a list of parts that
    /// form one key. A field or parameter that came several times with different values is answered with 400, since
    /// Tollgate cannot know which of them the upstream believes; a cookie counts as missing then (with `missing =
    /// "skip"` the client is counted by address: sending two cookies is no way out), and is read as most upstreams do:
    /// without quotes, percents decoded. Cookies, and fields and parameters whose names say that they are secret, leave
    /// the process as digests only; methods outside the standards count as one.
    by: Items<Option<KeyPart>> = filled_texts(part, NO_PART), Required, "\"ip\"",
        Limit(|limit| show(describe::key(&limit.first().by)));

    /// What a request without the key meets: 401, counted by address, not limited, or all of them on one counter. A
    /// request that is answered 401 counts on its other limits.
    missing: MissingKey = word(), Words("must be chosen where `by` names a header, a cookie, a query parameter or a claim"), "\"refuse\"",
        Limit(|limit| show(limit.first().by.missing.word()));

    /// How much in how long: `N/TIME`, the time with an optional number before its unit (us, ms, s, min, h, d, w,
    /// month); a list is several windows checked as one.
    rate: Items<RateEntry> = rate_form(), Words("required, but for `concurrency`, which has none"), "\"100/min\"",
        Limit(|limit| joined(limit.rates, |one| Some(describe::rate(one))));

    /// How many may arrive at once, in a bucket; windows and logs have none.
    burst: u32 = count(), Computed("N of the rate; 1 for `leaky-bucket`", burst), "20",
        Limit(|limit| joined(limit.rates, burst));

    /// How it counts: refilled continuously, drained evenly (and delays), N in each window, N in a window that moves
    /// with time and is seen in parts, N in any stretch of the time, each remembered (at most 10000), or how many are
    /// in flight at once.
    algorithm: Algorithm = word(), Value("\"token-bucket\""), "\"leaky-bucket\"",
        Limit(|limit| show(algorithm(&limit.first().rule).word()));

    /// Where a fixed window starts: at its first admitted request, or at whole multiples of its length by the clock
    /// (UTC), and at midnight or the first for days with a `timezone` and for months. What is left of one window and
    /// the whole of the next may come together: up to twice N at once, where `sliding-log` and a `strict` sliding
    /// window never exceed N.
    anchor: Anchor = word(), Value("\"first\""), "\"clock\"", Limit(|limit| anchor(limit.first()));

    /// How much later than that windows by the clock start: `"8h"` for days that start at eight; less than the window.
    offset: Duration = time(Zero::Allowed), Value("\"0s\""), "\"8h\"",
        Limit(|limit| clock(limit.first()).and_then(|(offset, _)| show(offset)));

    /// Whose days and months they are, for windows by the clock over `d` and `month`; changes of daylight saving make
    /// such a day longer or shorter.
    timezone: TimeZone = text(zone), Value("\"UTC\""), "\"Europe/Berlin\"",
        Limit(|limit| clock(limit.first()).and_then(|(_, zone)| show(zone)));

    /// Parts that a sliding window is seen in; each is a whole number of milliseconds. The part that is leaving counts
    /// in proportion.
    buckets: u32 = number(1, MAX_PARTS), Value("1"), "6",
        Limit(|limit| sliding(limit.first()).and_then(|rule| show(rule.parts)));

    /// Whether the part of a sliding window that is leaving counts whole: then no stretch of the time ever sees more
    /// than N, and some see less.
    strict: bool = flag(), Value("false"), "true",
        Limit(|limit| sliding(limit.first()).and_then(|rule| show(rule.strict)));

    /// How many requests may be in flight at once, from the decision to the last byte, those held back and WebSockets
    /// included.
    max: u32 = slots(), Words("required for `concurrency`"), "20";

    /// How long a slot of `concurrency` in Redis stays taken without a renewal, so how long after a gateway has died;
    /// each slot is renewed every third of that time.
    slot_ttl: Duration = time(Zero::Refused), Value("\"30s\""), "\"10s\"",
        Limit(|limit| limit.first().rule.holds().and_then(|rule| show(describe::show_span(rule.ttl))));

    /// How many requests a leaky bucket holds back at most.
    queue: u32 = count(), Computed("as many as go on within `max_wait`", queue), "100",
        Limit(|limit| queue(limit.first()).and_then(show));

    /// Longest that a leaky bucket holds a request back; a request that would wait longer is refused at once.
    max_wait: Duration = time(Zero::Allowed), Value("\"5s\""), "\"2s\"",
        Limit(|limit| delaying(limit.first()).and_then(|rule| show(describe::show_span(rule.max_wait))));

    /// What happens beyond the limit; only a leaky bucket delays.
    over: Over = word(), Computed("`\"delay\"` for `leaky-bucket`, else `\"refuse\"`", |limit| Some(format!("\"{}\"", over(limit).word()))), "\"refuse\"",
        Limit(|limit| leaky(limit.first()).and_then(|_| show(over(limit.first()).word())));

    /// How much one request takes: a number, or what a field of the request says, `max` at most and `default` (1)
    /// without it. A field that is zero, no number or repeated takes `max`; `min = 0` allows 0, which asks without
    /// taking. Or what the response says, in a field (`response_header = "x-units"`) or a member of its JSON
    /// (`response_json = "usage.total_tokens"`): `estimate` (1) is charged before, and settled when the response has
    /// its number, `max` at most. Where the client leaves after the body began and before the number came, the request
    /// takes `max` (all that the limit holds, without one), or with `on_leave = "estimate"` the estimate. What was too
    /// much comes back; what was too little is charged all the same, so that the key may be in debt and waits longer.
    /// Not for logs, concurrency and buckets that delay.
    cost: CostSource = cost_form(), Value("1"), "5", Limit(|limit| show(describe::cost(limit.first())));

    /// After what a charge goes back: an answer of the upstream's from 500 on, or 502 and 504 for want of one (`5xx`),
    /// or a request given up before anything of it was forwarded (`cancel`). A place in a queue goes back in any case
    /// when its request leaves it.
    refund: Items<RefundCause> = word_list(), Words("nothing"), "[\"5xx\", \"cancel\"]",
        Limit(|limit| show(describe::refund(limit.first().refund_on)));

    /// Whether a request that costs more than is left is granted what is left, at least 1. The upstream reads the grant
    /// in `Tollgate-Granted`; of a request's limits one at most may do so, and the others are charged in full.
    partial: bool = flag(), Value("false"), "true", Limit(|limit| show(limit.first().partial));

    /// Which field says that a request repeats another: the same id with the same method, path (normal form), query,
    /// body (its first 16 KiB), cost and key is charged once within `ttl` (`"10min"`, `"7d"` at most). Its repeats,
    /// `repeats` (3) at most, go free and get the same answer, and are not held back; more are charged. Refused
    /// requests are not remembered. A request without the field, with two of them with an id of more than 256 bytes, or
    /// whose body does not come within 5 s, is charged. `of = "path"` leaves out query and body. A charge on which a
    /// repeat has gone free is not given back.
    dedupe: Dedupe = inner_table(whole), Words("every request is charged"), "{ header = \"idempotency-key\" }",
        Limit(|limit| show(describe::dedupe(limit.first())));

    /// Requests that it does not hold for: those of clients in these networks (`ip`), with exactly these `methods`, for
    /// these `paths` and all below them, in their normal form, or of members of these `groups`. One of them is enough;
    /// what is exempt is not charged and needs no key.
    exempt: Exempt = inner_table(whole), Words("no request"), "{ ip = [\"10.0.0.0/8\"], methods = [\"OPTIONS\"] }",
        Limit(|limit| show(describe::exempt(limit.first())));

    /// Other numbers for groups, as `tiers.gold = { .. }`. What a tier does not say is as
    /// in the limit. A request in several of these groups has the tier of the first of them in the order of `[groups]`.
    /// Each tier has counters of its own: a client that changes tier starts afresh there.
    tiers: Items<Tier> = custom(ValueShape::Tiers(&LIMIT_TIER), tiers), Words("the same for all"), "{ gold = { rate = \"1000/min\", burst = 200 } }",
        Limit(|limit| show(shown_tiers(limit.rates)));

    /// What becomes of keys that no group knows: with `ip` they count by client address, so that inventing keys makes
    /// no counters; with `refuse` they are answered 401, as a missing key is, and no other limit counts by them. Known
    /// is a value that is a member of any group by the same part of the request, and there must be such a group.
    unknown: UnknownKey = word(), Words("every key has a counter of its own"), "\"refuse\"",
        Limit(|limit| show(describe::unknown(&limit.first().by)));

    /// Which gateways count together: all on one Redis, or each gateway by itself, always in memory, so that N gateways
    /// together admit N times as much. Another scope has counters of its own.
    scope: Scope = word(), Value("\"cluster\""), "\"gateway\"", Limit(|limit| show(limit.first().scope.word()));

    /// What it does while Redis is away: `local` counts in each gateway, which admits its share: as one of the gateways
    /// that were there; `open` lets everything pass, `closed` answers 503. A request that one of its limits is closed
    /// for is answered 503; else each of them does its own.
    on_down: OnDown = word(), Words("`on_down` in `[store]`"), "\"closed\"",
        Limit(|limit| show(describe::on_down(limit.first())));

    /// Whether a gateway takes several permits of a busy key from Redis in one call and uses them up itself: `"auto"`,
    /// `"off"`, or how many at once at most. All gateways together never admit more than the limit; permits that are
    /// not used within 100 ms may be lost to it, or come back. Only where it is exact and worth it, see
    /// docs/sparing.md.
    lease: LeaseSetting = custom(ValueShape::Lease, lease), Value("\"auto\""), "\"off\"",
        Limit(|limit| show(limit.first().leasing));

    /// A tag under which its counters live in one slot of a Redis Cluster, together with those of all limits that name
    /// it: what such limits decide of a request is one call, charged all or none. Another tag starts the counters
    /// afresh.
    with: String = text(tag), Words("its own keys, spread over the cluster"), "\"shop\"",
        Limit(|limit| show(limit.first().with.as_deref().unwrap_or("its own keys")));

    /// What clients see instead of its name, in `RateLimit` and in refusals; logs and metrics keep the name.
    public_name: String = text(public_name), Words("the limit's name"), "\"requests\"",
        Limit(|limit| show(limit.first().public_name()));

    /// The status of its refusals; gRPC clients get `RESOURCE_EXHAUSTED` whatever it is.
    status: u32 = number(400, 599), Value("429"), "503", Limit(|limit| show(limit.first().answers.refusal));

    /// What its refusals look like, in the words of [`[response]`](#response): `problem+json`, `text`, `html`, `accept`
    /// or `file:PATH`. A request without the key is answered as `[response]` says.
    body: ErrorText = text_as(ValueShape::ErrorBody, error_text), Words("`body` in `[response]`"), "\"file:slow-down.html\"",
        Limit(|limit| error_body(limit.body));

    /// The status for a request without the key, where `missing` is `"refuse"`, or with a key that no group knows,
    /// where `unknown` is.
    missing_status: u32 = number(400, 599), Value("401"), "403", Limit(|limit| show(limit.first().answers.keyless));

    /// Whether CORS preflights leave its counters alone. A preflight is `OPTIONS` with `Origin` and
    /// `Access-Control-Request-Method`, without body, `Cookie`, `Authorization` and a field that asks for another
    /// method, as browsers send it. `free` preflights count on a counter of their own with the limit's numbers, by
    /// address where the limit counts by what they cannot have, so that no client's own requests are charged for them
    /// and a flood of preflights is refused; a limit on what is in flight counts them with all else. All other
    /// `OPTIONS` are requests as any.
    preflights: Preflights = word(), Value("\"free\""), "\"counted\"",
        Limit(|limit| show(limit.first().answers.preflights.word()));

    /// Whether it decides, or is only counted beside the limits that do: a shadow refuses and delays no request, stands
    /// in no response, and is charged when the request is admitted and it would admit it too. Its verdict is in the
    /// access log, the metrics and `simulate`. A change of the mode keeps the counters.
    mode: Mode = word(), Value("\"enforce\""), "\"shadow\"", Limit(|limit| show(limit.first().mode.as_str()));

    /// Other numbers for the limit, on counters of their own, reported as a shadow's: `rate`, `burst`, `max`, `queue`
    /// and `max_wait`. Those that it does not say, and all else, are the limit's.
    candidate: Candidate = inner_table(whole), Words("none"), "{ rate = \"8/s\" }",
        Limit(|limit| show(shown_candidate(limit.candidate)));
}

table! {
    /// Numbers to be counted beside a limit's own.
    Candidate = LIMIT_CANDIDATE, "limits", "a candidate", takes Some("`{ rate = \"8/s\", burst = 16 }`"),
        empty Some(Emptiness {
            message: "changes nothing",
            label: "at least one number",
            help: "leave it out, or write `candidate = { rate = \"8/s\" }`",
        });

    /// How much in how long.
    rate: Items<RateEntry> = rate_form(), Words("the limit's"), "\"8/s\"";

    /// How many may arrive at once.
    burst: u32 = count(), Words("the limit's"), "16";

    /// How many may be in flight at once.
    max: u32 = slots(), Words("the limit's"), "10";

    /// How many a leaky bucket would hold back.
    queue: u32 = count(), Words("the limit's"), "50";

    /// Longest that a leaky bucket would hold one back.
    max_wait: Duration = time(Zero::Allowed), Words("the limit's"), "\"1s\"";
}

table! {
    /// Requests that a limit does not count.
    Exempt = LIMIT_EXEMPT, "limits", "an exemption", takes Some("`{ ip = [\"10.0.0.0/8\"], methods = [\"OPTIONS\"], paths = [\"/healthz\"], groups = [\"internal\"] }`"),
        empty Some(Emptiness {
            message: "exempts no request",
            label: "at least one of `ip`, `methods`, `paths` and `groups`",
            help: "leave it out, or write `exempt = { ip = [\"10.0.0.0/8\"] }`",
        });

    /// Networks of clients.
    ip: Items<IpNet> = texts(network), Words("none"), "[\"10.0.0.0/8\"]";

    /// Methods.
    methods: Items<Method> = texts(method), Words("none"), "[\"OPTIONS\"]";

    /// Paths, each with all below it.
    paths: Items<Box<str>> = texts(top), Words("none"), "[\"/healthz\"]";

    /// Groups, with all their members.
    groups: Items<String> = texts(any), Words("none"), "[\"internal\"]";
}

table! {
    /// Ids that are charged once.
    Dedupe = LIMIT_DEDUPE, "limits", "a dedupe", takes Some("`{ header = \"idempotency-key\", ttl = \"10min\", repeats = 3 }`");

    /// The field with the id.
    header: HeaderName = text(field), Required, "\"idempotency-key\"";

    /// How long an id is remembered, from its charge on.
    ttl: Duration = time_within("1ms"..="7d", "each id costs memory for that long"), Value("\"10min\""), "\"1h\"";

    /// How many repeats go free in that time.
    repeats: u32 = number(1, 1_000), Value("3"), "5";

    /// What a repeat has in common with the request that it repeats, beside id, method, cost and key: path, query and
    /// the first 16 KiB of the body (`request`), or the `path` alone.
    of: Sameness = word(), Value("\"request\""), "\"path\"";
}

/// After what a charge goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) enum RefundCause {
    Errors,
    Cancels,
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

/// What happens beyond a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) enum Over {
    Refuse,
    Delay,
}

words! { RefundCause: Errors "5xx", Cancels "cancel" }
words! { Anchor: First "first", Clock "clock" }
words! {
    Algorithm: TokenBucket "token-bucket", LeakyBucket "leaky-bucket", FixedWindow "fixed-window",
    SlidingWindow "sliding-window", SlidingLog "sliding-log", Concurrency "concurrency"
}
words! { Over: Refuse "refuse", Delay "delay" }
words! { MissingKey: Refuse "refuse", Ip "ip", Skip "skip", Shared "shared" }
words! { UnknownKey: Ip "ip", Refuse "refuse" }
words! { Scope: Cluster "cluster", Gateway "gateway" }
words! { Preflights: Free "free", Counted "counted" }
words! { Mode: Enforce "enforce", Shadow "shadow" }
words! { Sameness: Request "request", Path "path" }
words! { LeaseSetting: Auto "auto", Off "off" }

pub(super) fn read(mut fields: Fields<'_>) -> Limit {
    let limit = Limit::read(&mut fields);
    // Without a word about the algorithm, or with an unknown one, it is a bucket that lacks its rate.
    match limit.algorithm() {
        Algorithm::Concurrency => fields.require("max"),
        _ => fields.require("rate"),
    }
    limit
}

impl Limit {
    /// Does it hold requests back?
    pub(in crate::config) fn delays(&self) -> bool {
        self.algorithm() == Algorithm::LeakyBucket && self.over.or(Over::Delay) == Over::Delay
    }

    /// The limit with the numbers of its candidate, if it has one.
    pub(in crate::config) fn with_candidate(&self) -> Option<Self> {
        let candidate = self.candidate.get()?;
        // Each rate of a list has its own burst.
        let burst = match candidate.rate.entries().len() {
            0 | 1 => self.burst.clone(),
            _ => Setting::Absent,
        };
        Some(Self {
            rate: candidate.rate.or_else(&self.rate),
            burst: candidate.burst.or_else(&burst),
            max: candidate.max.or_else(&self.max),
            queue: candidate.queue.or_else(&self.queue),
            max_wait: candidate.max_wait.or_else(&self.max_wait),
            ..self.clone()
        })
    }

    /// The limit with the numbers of a tier, under a name of its own.
    pub(in crate::config) fn with_tier(&self, tier: &Tier) -> Self {
        let name = format!("{}.tiers.{}", self.name.value, tier.name.value);
        Self {
            name: At::new(name, self.name.span.clone()),
            rate: tier.rate.or_else(&self.rate),
            burst: tier.burst.or_else(&self.burst),
            max: tier.max.or_else(&self.max),
            queue: tier.queue.or_else(&self.queue),
            max_wait: tier.max_wait.or_else(&self.max_wait),
            cost: tier.cost.or_else(&self.cost),
            ..self.clone()
        }
    }
}

/// A word, or how many permits.
fn lease(key: &'static str, fields: &mut Fields<'_>) -> Setting<LeaseSetting> {
    match fields.value(key).map(Spanned::get_ref) {
        Some(DeValue::Integer(_)) => {
            let most = fields.whole(key, 2..=1_000_000);
            most.and_then(|most, _| NonZeroU32::new(most).map(LeaseSetting::Most))
        }
        _ => fields.choice(key),
    }
}
