//! The keys of `[limits.NAME]`.

use super::super::Default::{Required, Value, Words};
use super::super::{Key, Shape, Table};
use super::WHOLE;

/// `[limits.NAME]`.
pub static LIMITS: Table = Table {
    name: "limits",
    named: true,
    noun: "a limit",
    about: "A named rule: by whom to count, how much, what happens beyond. The name is the identity of its counters: new numbers keep them, another name has its own.",
    keys: &[
        Key {
            name: "by",
            shape: Shape::Texts,
            default: Required,
            about: "By whom to count: `ip` (IPv6 by /64), `ip/24,64` (bits of IPv4 and IPv6), `header:NAME`, `cookie:NAME`, `query:NAME`, `path:NAME` (what `{NAME}` of the route's path took), `method`, `host`, `route`, `everyone`, or a list of parts that form one key. A field or parameter that came several times with different values is answered with 400, since nobody can know which of them the upstream believes; a cookie counts as missing then. Cookies, and fields and parameters whose names say that they are secret, leave the process as digests only; methods that hardly anybody knows count as one.",
            example: "\"ip\"",
            live: true,
        },
        Key {
            name: "missing",
            shape: Shape::Choice(&["refuse", "ip", "skip", "shared"]),
            default: Words(
                "must be chosen where `by` names a header, a cookie or a query parameter",
            ),
            about: "What a request without the key meets: 401, counted by address, not limited, or all of them on one counter.",
            example: "\"refuse\"",
            live: true,
        },
        Key {
            name: "rate",
            shape: Shape::Rate,
            default: Words("required, but for `concurrency`, which has none"),
            about: "How much in how long: `N/TIME`, the time with an optional number before its unit (us, ms, s, min, h, d, w, month); a list is several windows checked as one.",
            example: "\"100/min\"",
            live: true,
        },
        Key {
            name: "burst",
            shape: Shape::Whole {
                least: 1,
                most: WHOLE,
            },
            default: Words("N of the rate; 1 for `leaky-bucket`"),
            about: "How many may arrive at once, in a bucket; windows and logs have none.",
            example: "20",
            live: true,
        },
        Key {
            name: "algorithm",
            shape: Shape::Choice(&[
                "token-bucket",
                "leaky-bucket",
                "fixed-window",
                "sliding-window",
                "sliding-log",
                "concurrency",
            ]),
            default: Value("\"token-bucket\""),
            about: "How it counts: refilled continuously, drained evenly (and delays), N in each window, N in a window that moves with time and is seen in parts, N in any stretch of the time, each remembered (at most 10000), or how many are in flight at once.",
            example: "\"leaky-bucket\"",
            live: true,
        },
        Key {
            name: "anchor",
            shape: Shape::Choice(&["first", "clock"]),
            default: Value("\"first\""),
            about: "Where a fixed window starts: at its first admitted request, or at whole multiples of its length by the clock (UTC), and at midnight or the first for days with a `timezone` and for months. What is left of one window and the whole of the next may come together: up to twice N at once, where `sliding-log` and a `strict` sliding window never exceed N.",
            example: "\"clock\"",
            live: true,
        },
        Key {
            name: "offset",
            shape: Shape::Duration,
            default: Value("\"0s\""),
            about: "How much later than that windows by the clock start: `\"8h\"` for days that start at eight; less than the window.",
            example: "\"8h\"",
            live: true,
        },
        Key {
            name: "timezone",
            shape: Shape::Text,
            default: Value("\"UTC\""),
            about: "Whose days and months they are, for windows by the clock over `d` and `month`; changes of daylight saving make such a day longer or shorter.",
            example: "\"Europe/Berlin\"",
            live: true,
        },
        Key {
            name: "buckets",
            shape: Shape::Whole {
                least: 1,
                most: crate::limit::sliding_window::MAX_PARTS as u64,
            },
            default: Value("1"),
            about: "Parts that a sliding window is seen in; each is a whole number of milliseconds. The part that is leaving counts in proportion.",
            example: "6",
            live: true,
        },
        Key {
            name: "strict",
            shape: Shape::Flag,
            default: Value("false"),
            about: "Whether the part of a sliding window that is leaving counts whole: then no stretch of the time ever sees more than N, and some see less.",
            example: "true",
            live: true,
        },
        Key {
            name: "max",
            shape: Shape::Whole {
                least: 1,
                most: 10_000,
            },
            default: Words("required for `concurrency`"),
            about: "How many requests may be in flight at once, from the decision to the last byte, those held back and WebSockets included.",
            example: "20",
            live: true,
        },
        Key {
            name: "slot_ttl",
            shape: Shape::Duration,
            default: Value("\"30s\""),
            about: "How long a slot of `concurrency` in Redis stays taken that nobody renews, so how long after a gateway has died; each is renewed every third of it.",
            example: "\"10s\"",
            live: true,
        },
        Key {
            name: "queue",
            shape: Shape::Whole {
                least: 1,
                most: WHOLE,
            },
            default: Words("as many as go on within `max_wait`"),
            about: "How many requests a leaky bucket holds back at most.",
            example: "100",
            live: true,
        },
        Key {
            name: "max_wait",
            shape: Shape::Duration,
            default: Value("\"5s\""),
            about: "Longest that a leaky bucket holds a request back; who would wait longer is refused at once.",
            example: "\"2s\"",
            live: true,
        },
        Key {
            name: "over",
            shape: Shape::Choice(&["refuse", "delay"]),
            default: Words("`\"delay\"` for `leaky-bucket`, else `\"refuse\"`"),
            about: "What happens beyond the limit; only a leaky bucket delays.",
            example: "\"refuse\"",
            live: true,
        },
        Key {
            name: "cost",
            shape: Shape::Cost,
            default: Value("1"),
            about: "How much one request takes: a number, or what a field of the request says, `max` at most and `default` (1) without it. A field that is zero, no number or repeated takes `max`; `min = 0` allows 0, which asks without taking.",
            example: "5",
            live: true,
        },
        Key {
            name: "refund",
            shape: Shape::Choices(&["5xx", "cancel"]),
            default: Words("nothing"),
            about: "After what a charge goes back: an answer of the upstream's from 500 on, or 502 and 504 for want of one (`5xx`), or a request given up before anything of it was forwarded (`cancel`). A place in a queue goes back in any case when its request leaves it.",
            example: "[\"5xx\", \"cancel\"]",
            live: true,
        },
        Key {
            name: "partial",
            shape: Shape::Flag,
            default: Value("false"),
            about: "Whether a request that costs more than is left is granted what is left, at least 1. The upstream is told in `Tollgate-Granted`; of a request's limits one at most may do so, and the others are charged in full.",
            example: "true",
            live: true,
        },
        Key {
            name: "dedupe",
            shape: Shape::Dedupe,
            default: Words("every request is charged"),
            about: "Which field says that a request repeats another: the same id with the same method, path (normal form), cost and key is charged once within `ttl` (`\"10min\"`, `\"7d\"` at most). Its repeats, `repeats` (3) at most, go free and get the same answer, and are not held back; more are charged. Refused requests are not remembered. A request without the field, with two of them or with an id of more than 256 bytes is charged. A charge on which a repeat has gone free is not given back.",
            example: "{ header = \"idempotency-key\" }",
            live: true,
        },
        Key {
            name: "exempt",
            shape: Shape::Exempt,
            default: Words("nobody"),
            about: "Whom it does not hold for: requests of clients in these networks (`ip`), with exactly these `methods`, or for these `paths` and all below them, in their normal form. One of the three is enough; what is exempt is not charged and needs no key.",
            example: "{ ip = [\"10.0.0.0/8\"], methods = [\"OPTIONS\"] }",
            live: true,
        },
        Key {
            name: "scope",
            shape: Shape::Choice(&["cluster", "gateway"]),
            default: Value("\"cluster\""),
            about: "Who counts together: all gateways on one Redis, or each gateway by itself, always in memory, so that N gateways together admit N times as much. Another scope has counters of its own.",
            example: "\"gateway\"",
            live: true,
        },
        Key {
            name: "public_name",
            shape: Shape::Text,
            default: Words("the limit's name"),
            about: "What clients see instead of its name, in `RateLimit` and in refusals; logs and metrics keep the name.",
            example: "\"requests\"",
            live: true,
        },
        Key {
            name: "status",
            shape: Shape::Whole {
                least: 400,
                most: 599,
            },
            default: Value("429"),
            about: "The status of its refusals; gRPC is told `RESOURCE_EXHAUSTED` whatever it is.",
            example: "503",
            live: true,
        },
        Key {
            name: "missing_status",
            shape: Shape::Whole {
                least: 400,
                most: 599,
            },
            default: Value("401"),
            about: "The status for a request without the key, where `missing` is `\"refuse\"`.",
            example: "403",
            live: true,
        },
        Key {
            name: "preflights",
            shape: Shape::Choice(&["free", "counted"]),
            default: Value("\"free\""),
            about: "Whether it counts CORS preflights: `OPTIONS` with `Origin` and `Access-Control-Request-Method`, which browsers send without credentials. An upstream that answers anything else to these had better count them.",
            example: "\"counted\"",
            live: true,
        },
        Key {
            name: "mode",
            shape: Shape::Choice(&["enforce", "shadow"]),
            default: Value("\"enforce\""),
            about: "Whether it decides, or is only counted beside the limits that do: a shadow refuses and delays nobody, stands in no response, and is charged when the request is admitted and it would admit it too. What it would have said is in the access log, the metrics and `simulate`. A change of the mode keeps the counters.",
            example: "\"shadow\"",
            live: true,
        },
        Key {
            name: "candidate",
            shape: Shape::Candidate,
            default: Words("none"),
            about: "Other numbers for the same limit, counted beside its own on counters of their own and reported as a shadow's: `rate`, `burst`, `max`, `queue` and `max_wait`. Those that it does not say, and all else, are the limit's.",
            example: "{ rate = \"8/s\" }",
            live: true,
        },
    ],
    later: &["on_down", "tiers"],
};

/// Numbers to be counted beside a limit's own: not a table of its own in the file.
pub static LIMIT_CANDIDATE: Table = Table {
    name: "limits",
    named: true,
    noun: "a candidate",
    about: "Numbers to be counted beside a limit's own.",
    keys: &[
        Key {
            name: "rate",
            shape: Shape::Rate,
            default: Words("the limit's"),
            about: "How much in how long.",
            example: "\"8/s\"",
            live: true,
        },
        Key {
            name: "burst",
            shape: Shape::Whole {
                least: 1,
                most: WHOLE,
            },
            default: Words("the limit's"),
            about: "How many may arrive at once.",
            example: "16",
            live: true,
        },
        Key {
            name: "max",
            shape: Shape::Whole {
                least: 1,
                most: 10_000,
            },
            default: Words("the limit's"),
            about: "How many may be in flight at once.",
            example: "10",
            live: true,
        },
        Key {
            name: "queue",
            shape: Shape::Whole {
                least: 1,
                most: WHOLE,
            },
            default: Words("the limit's"),
            about: "How many a leaky bucket would hold back.",
            example: "50",
            live: true,
        },
        Key {
            name: "max_wait",
            shape: Shape::Duration,
            default: Words("the limit's"),
            about: "Longest that a leaky bucket would hold one back.",
            example: "\"1s\"",
            live: true,
        },
    ],
    later: &[],
};

/// Whom a limit does not hold for: not a table of its own in the file.
pub static LIMIT_EXEMPT: Table = Table {
    name: "limits",
    named: true,
    noun: "an exemption",
    about: "Requests that a limit does not count.",
    keys: &[
        Key {
            name: "ip",
            shape: Shape::Texts,
            default: Words("none"),
            about: "Networks of clients.",
            example: "[\"10.0.0.0/8\"]",
            live: true,
        },
        Key {
            name: "methods",
            shape: Shape::Texts,
            default: Words("none"),
            about: "Methods.",
            example: "[\"OPTIONS\"]",
            live: true,
        },
        Key {
            name: "paths",
            shape: Shape::Texts,
            default: Words("none"),
            about: "Paths, each with all below it.",
            example: "[\"/healthz\"]",
            live: true,
        },
    ],
    later: &["groups"],
};

/// Ids that are charged once: not a table of its own in the file.
pub static LIMIT_DEDUPE: Table = Table {
    name: "limits",
    named: true,
    noun: "a dedupe",
    about: "Ids that are charged once.",
    keys: &[
        Key {
            name: "header",
            shape: Shape::Text,
            default: Required,
            about: "The field with the id.",
            example: "\"idempotency-key\"",
            live: true,
        },
        Key {
            name: "ttl",
            shape: Shape::Duration,
            default: Value("\"10min\""),
            about: "How long an id is remembered, from its charge on.",
            example: "\"1h\"",
            live: true,
        },
        Key {
            name: "repeats",
            shape: Shape::Whole {
                least: 1,
                most: 1_000,
            },
            default: Value("3"),
            about: "How many repeats go free in that time.",
            example: "5",
            live: true,
        },
    ],
    later: &[],
};

/// A cost that a request says: not a table of its own in the file.
pub static LIMIT_COST: Table = Table {
    name: "limits",
    named: true,
    noun: "a cost",
    about: "A cost that a request says.",
    keys: &[
        Key {
            name: "header",
            shape: Shape::Text,
            default: Required,
            about: "The field that says it.",
            example: "\"x-cost\"",
            live: true,
        },
        Key {
            name: "default",
            shape: Shape::Whole {
                least: 1,
                most: WHOLE,
            },
            default: Value("1"),
            about: "Without the field.",
            example: "1",
            live: true,
        },
        Key {
            name: "max",
            shape: Shape::Whole {
                least: 1,
                most: WHOLE,
            },
            default: Required,
            about: "The most that a request takes.",
            example: "50",
            live: true,
        },
        Key {
            name: "min",
            shape: Shape::Whole { least: 0, most: 1 },
            default: Value("1"),
            about: "0 lets requests ask without taking.",
            example: "0",
            live: true,
        },
    ],
    later: &["response_header"],
};

/// One rate of a list, in its long form: not a table of its own in the file.
pub static LIMIT_RATE: Table = Table {
    name: "limits",
    named: true,
    noun: "a rate in a list",
    about: "A rate in a list.",
    keys: &[
        Key {
            name: "rate",
            shape: Shape::Text,
            default: Required,
            about: "How much in how long.",
            example: "\"100/min\"",
            live: true,
        },
        Key {
            name: "burst",
            shape: Shape::Whole {
                least: 1,
                most: WHOLE,
            },
            default: Words("N of the rate; 1 for `leaky-bucket`"),
            about: "How many may arrive at once.",
            example: "20",
            live: true,
        },
    ],
    later: &[],
};
