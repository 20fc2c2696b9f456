//! `[limits.NAME]`.

mod block;
mod comparison;
mod cost;
mod cost_by_status;
mod rate;
mod response_json;
mod tier;

pub(in crate::config) use cost::CostSource;
pub(in crate::config) use rate::RateEntry;
pub(in crate::config) use tier::Tier;

use super::server::error_body;
use crate::config::document::{
    Emptiness, Fields, Form, Items, Section as _, Setting, ValueShape, Words as _, Zero, any,
    count, custom, filled_texts, flag, inner_table, number, table, text_as, text_form, texts,
    texts_as, time, time_within, units, whole, word, words,
};
use crate::config::input::At;
use crate::config::presentation::{describe, show};
use crate::config::value::{
    ErrorText, ValueError, error_text, field, method, network, part, public_name, status_pattern,
    tag, top, zone,
};
use crate::key::{KeyCase, KeyPart, MissingKey, Sameness, StatusPattern, UnknownKey};
use crate::limit::sliding_window::MAX_PARTS;
use crate::limit::{BlockRule, LeaseSetting, Mode, OnDown, Preflights, Scope};
use block::block_form;
use comparison::{
    algorithm, anchor, burst, clock, joined, over, queue, shown_candidate, shown_tiers, sliding,
    timezone,
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

/// The number of requests that may be in flight.
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
    /// A named rule: the key to count by, the rate, and the answer beyond it. The name identifies the limit's counters:
    /// new numbers keep the counters, another name has counters of its own.
    Limit { name, place } = LIMITS, "limits", "a limit", named true;

    /// The parts of a request that form the key of a counter, as one part or a list. The parts are `ip` (IPv6 by /64),
    /// `ip/24,64` (bits of IPv4 and IPv6), `header:NAME`, `cookie:NAME`, `query:NAME`, `path:NAME` (the text that
    /// `{NAME}` of the route's path matches), `jwt:CLAIM` (of a token that `[jwt]` trusts, with dots for claims inside
    /// others), `tls:subject` and `tls:fingerprint` (of the certificate that the client shows in its handshake),
    /// `basic:user` (the user of Basic authentication, whose password is not verified), `customer` (the name behind a
    /// credential, as groups with `customers` state it), `method`, `host`, `route` and `everyone`. Credentials of two
    /// customers are answered 400, and an address names a customer only where no credential does. A request that
    /// repeats a field or a parameter with different values is answered 400, since Tollgate cannot know which value the
    /// upstream uses; so is a malformed Basic credential, which some servers can read. A cookie that is repeated with
    /// different values counts as missing; with `missing = "skip"` such a request is counted by address, so that a
    /// client cannot avoid the limit by two cookies. Cookies are read as most upstreams read them: without quotes, with
    /// percents decoded. Values of cookies leave the process only as digests, and so do values of fields and parameters
    /// with the name of a secret. All methods outside the standards count as one method.
    by: Items<Option<KeyPart>> = filled_texts(part, NO_PART), Required, "\"ip\"",
        Limit(|limit| show(describe::key_parts(&limit.first().by)));

    /// Whether texts of the key that differ in case are different keys. With `"insensitive"` they count in Unicode's
    /// lower case, without blanks at either end: `ANNA` is `anna`. Parts with one spelling (`ip`, `host`, `route`,
    /// `method` and `tls:fingerprint`) stay, and a key of such parts alone has no `key_case`. Groups compare members as
    /// they are written, so that such a limit has no `unknown`.
    key_case: KeyCase = word(), Value("\"sensitive\""), "\"insensitive\"",
        Limit(|limit| show(limit.first().by.case.word()));

    /// The treatment of a request without the key. `refuse` answers 401, `ip` counts the request by client address,
    /// `skip` does not limit it, and `shared` counts all such requests on one counter. A request that is answered 401
    /// counts on its other limits.
    missing: MissingKey = word(), Words("must be chosen where `by` names a header, a cookie, a query parameter, a claim or a certificate"), "\"refuse\"",
        Limit(|limit| show(limit.first().by.missing.word()));

    /// The requests that are allowed in a time: `N/TIME`. The time may have a number before its unit (us, ms, s, min,
    /// h, d, w, month). The rates of a list are checked as one.
    rate: Items<RateEntry> = rate_form(), Words("required, but for `concurrency`, which has none"), "\"100/min\"",
        Limit(|limit| joined(limit.rates, |one| Some(describe::rate(one))));

    /// The number of requests that may arrive at once in a bucket. Windows and logs have no burst.
    burst: u64 = units(), Computed("N of the rate; 1 for `leaky-bucket`", burst), "20",
        Limit(|limit| joined(limit.rates, burst));

    /// How the limit counts. A `token-bucket` is refilled continuously. A `leaky-bucket` drains evenly and delays
    /// requests. A `fixed-window` admits N in each window. A `sliding-window` admits N in a window that moves with time
    /// and is seen in parts. A `sliding-log` admits N (at most 10000) in any stretch of the time and remembers each
    /// request. `concurrency` bounds the requests in flight at once.
    algorithm: Algorithm = word(), Value("\"token-bucket\""), "\"leaky-bucket\"",
        Limit(|limit| show(algorithm(&limit.first().rule).word()));

    /// The start of a fixed window. With `first` a window starts at its first admitted request. With `clock` windows
    /// start at whole multiples of their length by the clock (UTC), weeks on Thursday. With a `timezone` days start at
    /// midnight and weeks on Monday; months start on the first. The rest of one window and the whole of the next may be
    /// admitted together: up to twice N at once. `sliding-log` and a `strict` sliding window never exceed N.
    anchor: AnchorWord = word(), Value("\"first\""), "\"clock\"", Limit(|limit| anchor(limit.first()));

    /// The delay of the starts of windows by the clock: `"8h"` for days that start at eight. The offset is less than
    /// the window.
    offset: Duration = time(Zero::Allowed), Value("\"0s\""), "\"8h\"",
        Limit(|limit| clock(limit.first()).and_then(|(offset, _)| show(offset)));

    /// The time zone of days, weeks and months, for windows by the clock over `d`, `w` and `month`. A written one
    /// begins weeks on Monday, 00:00 there. Changes of daylight saving make such a day longer or shorter.
    timezone: TimeZone = text_form(zone), Value("\"UTC\""), "\"Europe/Berlin\"",
        Limit(|limit| timezone(limit.first()));

    /// The number of equal parts into which a sliding window is divided. Each part is a whole number of milliseconds.
    /// The oldest part, which lies only partly in the window, counts in proportion.
    buckets: u32 = number(1, MAX_PARTS), Value("1"), "6",
        Limit(|limit| sliding(limit.first()).and_then(|rule| show(rule.parts)));

    /// Whether the oldest part of a sliding window, which lies only partly in the window, counts whole. If so, no
    /// stretch of the time ever sees more than N requests, and some stretches see less.
    strict: bool = flag(), Value("false"), "true",
        Limit(|limit| sliding(limit.first()).and_then(|rule| show(rule.strict)));

    /// The number of requests that may be in flight at once. A request is in flight from the decision to the last byte;
    /// requests that are held back and WebSockets are included.
    max: u32 = slots(), Words("required for `concurrency`"), "20";

    /// How long a slot of `concurrency` in Redis stays taken without a renewal. A gateway that dies leaves its slots
    /// taken for this time. Each slot is renewed every third of this time.
    slot_ttl: Duration = time(Zero::Refused), Value("\"30s\""), "\"10s\"",
        Limit(|limit| limit.first().rule.concurrency().and_then(|rule| show(describe::show_span(rule.ttl))));

    /// The number of requests that a leaky bucket holds back at most.
    queue: u32 = count(), Computed("as many as go on within `max_wait`", queue), "100",
        Limit(|limit| queue(limit.first()).and_then(show));

    /// The longest time for which a leaky bucket holds a request back. A request that would wait longer is refused at
    /// once.
    max_wait: Duration = time(Zero::Allowed), Value("\"5s\""), "\"2s\"",
        Limit(|limit| limit.first().rule.queue().and_then(|rule| show(describe::show_span(rule.max_wait))));

    /// What happens beyond the limit; only a leaky bucket delays.
    over: Over = word(), Computed("`\"delay\"` for `leaky-bucket`, else `\"refuse\"`", |limit| Some(format!("\"{}\"", over(limit).word()))), "\"refuse\"",
        Limit(|limit| limit.first().rule.leaky_bucket().and_then(|_| show(over(limit.first()).word())));

    /// The cost of one request: a number, a field of the request, a number in the response, or the answer's status. A
    /// field of the request (`header`) gives `max` at most. A request without the field costs `default` (1). A field
    /// that is zero, no number or repeated costs `max`; `min = 0` allows 0, which asks without taking. A response gives
    /// its cost in a field (`response_header = "x-units"`) or in members of its JSON
    /// (`response_json = "usage.total_tokens"`). The request is charged `estimate` (1) before the response, and the
    /// charge is settled when the response has its number, `max` at most. Where the client leaves after the body began
    /// and before the number came, the request costs `max` (the whole size of the limit, without a `max`); with
    /// `on_leave = "estimate"` it costs the estimate. An excess of the charge comes back. A shortfall is charged even
    /// where the limit has too little left, so that the key may be in debt and waits longer. With `status` the status
    /// of the answer decides: `status = { "401" = 1, else = 0 }` counts failed logins. Logs, concurrency and buckets
    /// that delay have no `cost`.
    cost: CostSource = cost_form(), Value("1"), "5", Limit(|limit| show(describe::cost(limit.first())));

    /// The causes for which a charge goes back: `cancel`, a class of statuses (`4xx`), a status (`401`), or a status of
    /// gRPC (`grpc-14`). `5xx` is an answer of the upstream from 500 on, or 502 and 504 for want of an answer; of calls
    /// of gRPC it is 2, 4, 13, 14 and 15. Other statuses and classes are those of the final answer, the gateway's own
    /// included; a call of gRPC has the status of its head only if it ended by `grpc-0`. The head of the answer
    /// decides, or the trailers with the `grpc-status`. Nothing goes back for a refusal, or for a 401 or 400 of the
    /// gateway about a key. Nothing goes back if the client has kept its body back for 200 ms or longer when the server
    /// ends the request or answers with an error. Nothing goes back if the client ended the request: by leaving, by an
    /// upload that breaks off, or by the deadline of its gRPC call. `cancel` is a request that is given up before
    /// anything of it was forwarded. A place in a queue goes back in any case when its request leaves the queue.
    refund: Items<RefundCause> = texts_as(ValueShape::RefundCauses, refund_cause), Words("nothing"), "[\"5xx\", \"cancel\"]",
        Limit(|limit| show(describe::refund(limit.first().refund_on)));

    /// Whether a request that costs more than is left is granted the rest, at least 1. The upstream reads the grant in
    /// `Tollgate-Granted`. At most one limit of a request may be partial; the others are charged in full.
    partial: bool = flag(), Value("false"), "true", Limit(|limit| show(limit.first().partial));

    /// The field that marks a request as a repeat of another. Requests with the same id, method, path (normal form),
    /// query, body (its first 16 KiB), cost and key are charged once within `ttl` (`"10min"`, `"7d"` at most). At most
    /// `repeats` (3) repeats are free, get the same answer and are not delayed; further repeats are charged. Refused
    /// requests are not remembered. A request is charged if the field is absent, is there twice or has an id of more
    /// than 256 bytes, or if the body does not come within 5 s. `of = "path"` leaves out query and body. A charge is
    /// not given back once a repeat of it was free.
    dedupe: Dedupe = inner_table(whole), Words("every request is charged"), "{ header = \"idempotency-key\" }",
        Limit(|limit| show(describe::dedupe(limit.first())));

    /// How long a refusal blocks its key, on all gateways. After the limit's own count has refused a request, every
    /// request of that key is refused for the time, even when the limit would have room again. Refusals of a blocked
    /// key do not lengthen the block. `Retry-After` and the `RateLimit` fields give the time until a request can pass.
    /// With `{ for = "1min", up_to = "1d" }` a block that soon follows another lasts twice as long. A cost above the
    /// whole limit blocks nothing, and neither do a shadow and a candidate. Each limit that would refuse a request
    /// blocks its key. While Redis is away, a gateway knows only the blocks that it has met itself. A reset of the counter
    /// ends its block. A limit with `block` has no leases.
    block: BlockRule = block_form(), Words("a refusal blocks nothing"), "\"15min\"",
        Limit(|limit| show(describe::block(limit.first())));

    /// The requests that the limit does not count. They come from clients in these networks (`ip`), have exactly these
    /// `methods`, ask for these `paths` or a path below them (in normal form), or come from members of these `groups`.
    /// One match is enough. An exempt request is not charged and needs no key.
    exempt: Exempt = inner_table(whole), Words("no request"), "{ ip = [\"10.0.0.0/8\"], methods = [\"OPTIONS\"] }",
        Limit(|limit| show(describe::exempt(limit.first())));

    /// Other numbers for groups, as `tiers.gold = { .. }`. A number that a tier leaves out is the limit's. A request in
    /// several of these groups has the tier of the first of them in the order of `[groups]`. Each tier has counters of
    /// its own: a client that changes tier starts afresh there. But where `by` has `customer`, each tier is for a group
    /// of customers, and all tiers share one counter: a change of plan keeps the units used.
    tiers: Items<Tier> = custom(ValueShape::Tiers(&LIMIT_TIER), tiers), Words("the same for all"), "{ gold = { rate = \"1000/min\", burst = 200 } }",
        Limit(|limit| show(shown_tiers(limit.rates)));

    /// A file with other numbers for single customers, where `by` has `customer`. A line is
    /// `NAME RATE[,RATE] [burst=N] [max=N] [queue=N] [max_wait=TIME]`, and a file has 100000 lines at most. The numbers
    /// that a line leaves out come from the customer's tier, then from the limit. Customers with a line, all tiers and
    /// all other customers of the limit count in the same way: new numbers keep the units used. The file is watched as
    /// this one is; a file that is gone or has a mistake changes nothing. A `candidate` does not read it.
    own: String = text_as(ValueShape::File, any), Words("none"), "\"own-month.txt\"";

    /// The treatment of keys that no group knows. With `ip` such keys count by client address, so that invented keys
    /// make no counters. With `refuse` they are answered 401, as a missing key is, and no other limit counts by them. A
    /// key is known if its value is a member of any group that looks up the same part of the request; at least one such
    /// group must be defined.
    unknown: UnknownKey = word(), Words("every key has a counter of its own; where `by` has `customer`, as `missing` says"), "\"refuse\"",
        Limit(|limit| show(describe::unknown(&limit.first().by)));

    /// Which gateways count together. With `cluster` all gateways on one Redis do. With `gateway` each gateway counts
    /// by itself, always in memory, so that N gateways together admit N times as much. Each scope has counters of its
    /// own.
    scope: Scope = word(), Value("\"cluster\""), "\"gateway\"", Limit(|limit| show(limit.first().scope.word()));

    /// What the limit does while Redis is away. With `local` each gateway counts by itself and admits its share, as one
    /// of the gateways that were last known. `open` lets every request pass, `closed` answers 503. A request with one
    /// closed limit is answered 503; otherwise each of its limits acts by its own `on_down`.
    on_down: OnDown = word(), Words("`on_down` in `[store]`"), "\"closed\"",
        Limit(|limit| show(describe::on_down(limit.first())));

    /// Whether a gateway takes several permits of a busy key from Redis in one call. The value is `"auto"`, `"off"`, or
    /// the largest number of permits at once. The gateway uses the permits up itself. All gateways together never admit
    /// more than the limit. Permits that are not used within 100 ms may be lost to the limit, or come back. Leases are
    /// taken only where they are exact and worth it, see docs/sparing.md.
    lease: LeaseSetting = custom(ValueShape::Lease, lease), Value("\"auto\""), "\"off\"",
        Limit(|limit| show(limit.first().leasing));

    /// A tag that keeps the limit's counters in one slot of a Redis Cluster, with those of all limits of the same tag.
    /// A decision about limits of one tag is one call, charged all or none. Another tag starts the counters afresh.
    with: String = text_form(tag), Words("its own keys, spread over the cluster"), "\"shop\"",
        Limit(|limit| show(limit.first().with.as_deref().unwrap_or("its own keys")));

    /// The name that clients see in `RateLimit` and in refusals. Logs and metrics keep the limit's own name.
    public_name: String = text_form(public_name), Words("the limit's name"), "\"requests\"",
        Limit(|limit| show(limit.first().public_name()));

    /// Whether the fields about limits state the limit. With `false` it is in no field, unless it refuses the request:
    /// then it is the only one there. Its name is in the body of its refusals in any case.
    shown: bool = flag(), Value("true"), "false", Limit(|limit| show(limit.first().answers.is_shown));

    /// The status of the limit's refusals. gRPC clients get `RESOURCE_EXHAUSTED` with every status.
    status: u32 = number(400, 599), Value("429"), "503", Limit(|limit| show(limit.first().answers.refusal));

    /// The form of the limit's refusals, in the words of [`[response]`](#response): `problem+json`, `text`, `html`,
    /// `accept` or `file:PATH`. A request without the key is answered in the form of `[response]`.
    body: ErrorText = text_as(ValueShape::ErrorBody, error_text), Words("`body` in `[response]`"), "\"file:slow-down.html\"",
        Limit(|limit| error_body(limit.body));

    /// The status for a request without the key where `missing = "refuse"`. The same status answers a key that no group
    /// knows where `unknown = "refuse"`.
    missing_status: u32 = number(400, 599), Value("401"), "403", Limit(|limit| show(limit.first().answers.keyless));

    /// Whether CORS preflights leave the limit's counters alone. A preflight is `OPTIONS` as browsers send it: with
    /// `Origin` and `Access-Control-Request-Method`, without body, `Cookie`, `Authorization` and a field that asks for
    /// another method. `free` preflights count on a counter of their own with the limit's numbers. They count by
    /// address where the limit's key has parts that preflights cannot have. So no client's own requests are charged for
    /// preflights, and a flood of preflights is refused. A limit on requests in flight counts preflights with all
    /// others. Every other `OPTIONS` request is an ordinary request.
    preflights: Preflights = word(), Value("\"free\""), "\"counted\"",
        Limit(|limit| show(limit.first().answers.preflights.word()));

    /// Whether the limit decides, or only counts beside the limits that decide. A shadow refuses and delays no request,
    /// and appears in no response. The shadow is charged where the request is admitted and the shadow would admit the
    /// request too. The shadow's verdict is in the access log, the metrics and `simulate`. A change of the mode keeps
    /// the counters.
    mode: Mode = word(), Value("\"enforce\""), "\"shadow\"", Limit(|limit| show(limit.first().mode.as_str()));

    /// Other numbers for the limit, on counters of their own, reported as a shadow's. A candidate may give `rate`,
    /// `burst`, `max`, `queue` and `max_wait`. The numbers that it leaves out, and all other settings, are the limit's.
    candidate: Candidate = inner_table(whole), Words("none"), "{ rate = \"8/s\" }",
        Limit(|limit| show(shown_candidate(limit.candidate)));
}

table! {
    /// Other numbers that are counted beside a limit's own.
    Candidate = LIMIT_CANDIDATE, "limits", "a candidate", takes Some("`{ rate = \"8/s\", burst = 16 }`"),
        empty Some(Emptiness {
            message: "changes nothing",
            label: "at least one number",
            help: "leave it out, or write `candidate = { rate = \"8/s\" }`",
        });

    /// The requests that are allowed in a time.
    rate: Items<RateEntry> = rate_form(), Words("the limit's"), "\"8/s\"";

    /// The number of requests that may arrive at once.
    burst: u64 = units(), Words("the limit's"), "16";

    /// The number of requests that may be in flight at once.
    max: u32 = slots(), Words("the limit's"), "10";

    /// The number of requests that a leaky bucket would hold back.
    queue: u32 = count(), Words("the limit's"), "50";

    /// The longest time for which a leaky bucket would hold a request back.
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

    /// Networks of exempt clients.
    ip: Items<IpNet> = texts(network), Words("none"), "[\"10.0.0.0/8\"]";

    /// Exempt methods.
    methods: Items<Method> = texts(method), Words("none"), "[\"OPTIONS\"]";

    /// Exempt paths, each with all paths below it.
    paths: Items<Box<str>> = texts(top), Words("none"), "[\"/healthz\"]";

    /// Exempt groups, with all their members.
    groups: Items<String> = texts(any), Words("none"), "[\"internal\"]";
}

table! {
    /// Ids that are charged once.
    Dedupe = LIMIT_DEDUPE, "limits", "a dedupe", takes Some("`{ header = \"idempotency-key\", ttl = \"10min\", repeats = 3 }`");

    /// The field with the id of a request.
    header: HeaderName = text_form(field), Required, "\"idempotency-key\"";

    /// How long an id is remembered, counted from its charge.
    ttl: Duration = time_within("1ms"..="7d", "each id costs memory for that long"), Value("\"10min\""), "\"1h\"";

    /// The number of repeats that go free within `ttl`.
    repeats: u32 = number(1, 1_000), Value("3"), "5";

    /// The parts that a repeat shares with the request that it repeats, beside id, method, cost and key. `request` is
    /// path, query and the first 16 KiB of the body; `path` is the path alone.
    of: Sameness = word(), Value("\"request\""), "\"path\"";
}

/// The outcomes of a request after which its charge is refunded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) enum RefundCause {
    Cancels,
    Status(StatusPattern),
}

/// The start of a fixed window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) enum AnchorWord {
    First,
    Clock,
}

/// The counting algorithm of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) enum Algorithm {
    TokenBucket,
    LeakyBucket,
    FixedWindow,
    SlidingWindow,
    SlidingLog,
    Concurrency,
}

/// The treatment of requests above a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) enum Over {
    Refuse,
    Delay,
}

words! { AnchorWord: First "first", Clock "clock" }
words! {
    Algorithm: TokenBucket "token-bucket", LeakyBucket "leaky-bucket", FixedWindow "fixed-window",
    SlidingWindow "sliding-window", SlidingLog "sliding-log", Concurrency "concurrency"
}
words! { Over: Refuse "refuse", Delay "delay" }
words! { MissingKey: Refuse "refuse", Ip "ip", Skip "skip", Shared "shared" }
words! { KeyCase: Sensitive "sensitive", Insensitive "insensitive" }
words! { UnknownKey: Ip "ip", Refuse "refuse" }
words! { Scope: Cluster "cluster", Gateway "gateway" }
words! { Preflights: Free "free", Counted "counted" }
words! { Mode: Enforce "enforce", Shadow "shadow" }
words! { Sameness: Request "request", Path "path" }
words! { LeaseSetting: Auto "auto", Off "off" }

/// An outcome after which the charge is refunded.
fn refund_cause(text: &str) -> Result<RefundCause, ValueError> {
    const CANCEL: &str = "cancel";
    if text == CANCEL {
        return Ok(RefundCause::Cancels);
    }
    status_pattern(text, CANCEL).map(RefundCause::Status)
}

pub(in crate::config::document) fn read_limit(mut fields: Fields<'_>) -> Limit {
    let limit = Limit::read(&mut fields);
    // Without an algorithm, or with an unknown algorithm, the limit counts as a token bucket that lacks its rate.
    match limit.algorithm() {
        Algorithm::Concurrency => fields.require("max"),
        _ => fields.require("rate"),
    }
    limit
}

impl Limit {
    /// Does the limit delay requests?
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

    /// The limit with the numbers of a tier, under a separate name.
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

/// A word, or a number of permits.
fn lease(key: &'static str, fields: &mut Fields<'_>) -> Setting<LeaseSetting> {
    match fields.value(key).map(Spanned::get_ref) {
        Some(DeValue::Integer(_)) => {
            let most = fields.whole(key, 2..=1_000_000);
            most.and_then(|most, _| NonZeroU32::new(most).map(LeaseSetting::Most))
        }
        _ => fields.choice(key),
    }
}
