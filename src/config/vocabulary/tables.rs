//! The tables themselves: name, type, default, meaning and an example of every key.

mod groups;
mod limits;
mod routes;
mod store;

pub use groups::{GROUPS, JWT, JWT_KEY, LIMIT_TIER};
pub use limits::{
    LIMIT_CANDIDATE, LIMIT_COST, LIMIT_COST_LATER, LIMIT_DEDUPE, LIMIT_EXEMPT, LIMIT_RATE, LIMITS,
};
pub use routes::{ROUTE_FIELDS, ROUTE_REDIRECT, ROUTE_RESPOND, ROUTES};
pub use store::{STORE, STORE_SENTINEL, STORE_TLS};

use super::Default::{Required, Value, Words};
use super::{Key, Shape, Table};

/// Every table, in the order of the reference.
pub static TABLES: [&Table; 11] = [
    &SERVER, &LOG, &ADMIN, &STORE, &RESPONSE, &DEFAULTS, &JWT, &GROUPS, &LIMITS, &UPSTREAMS,
    &ROUTES,
];

/// The one key that stands in every table, and in none.
pub static IGNORE_WARNINGS: Key = Key {
    name: "ignore_warnings",
    shape: Shape::Texts,
    default: Words("none"),
    about: "Codes of warnings that are meant: about the table that it stands in, at the top about the whole file. `check` lists what is ignored, and tells a code that does not occur; `--deny-warnings` passes it. Errors cannot be ignored.",
    example: "[\"waits-longer\"]",
    live: true,
};

/// The one key that stands in no table.
pub static INCLUDE: Key = Key {
    name: "include",
    shape: Shape::Include,
    default: Words("none"),
    about: "Files with further `[limits.NAME]`, `[groups.NAME]`, `[upstreams.NAME]` and `[routes.NAME]`, as if they stood behind what this one says (so that groups of this file come first, then those of the included ones in their order); relative paths begin in its folder, `*`, `?`, `[a-z]` and `**` are patterns, and files of a pattern come in the order of their names. A text lets them do nothing but that; a table says what else they may do, and what they may not.",
    example: "[\"routes.d/*.toml\"]",
    live: true,
};

/// An entry of `include` that says what its files may do.
pub static INCLUDE_ENTRY: Table = Table {
    name: "include",
    named: false,
    noun: "an entry of `include`",
    about: "Files, and what they may do.",
    keys: &[
        Key {
            name: "files",
            shape: Shape::Texts,
            default: Required,
            about: "The files, as a text in `include` names them.",
            example: "\"team-a/*.toml\"",
            live: true,
        },
        Key {
            name: "hosts",
            shape: Shape::Texts,
            default: Words("any host"),
            about: "Hosts that their routes may be for, written as in a route: each route says its `host`, which is one of these or below one.",
            example: "[\"a.example.com\"]",
            live: true,
        },
        Key {
            name: "paths",
            shape: Shape::Texts,
            default: Words("any path"),
            about: "Paths that their routes may be for, written as in a route: each route's `path` takes no request that none of these would take.",
            example: "[\"/a/{*rest}\"]",
            live: true,
        },
        Key {
            name: "secrets",
            shape: Shape::Texts,
            default: Words("none"),
            about: "Files that they may read beyond their own folder, as `{ file = \"...\" }`, a group's `file`, or the `body` of a limit: paths from the folder of this file on, with patterns. What counts is where a path leads through all links; a link counts by its own name where it stays in the folder that the pattern begins with.",
            example: "[\"secrets.d/team-a-*\"]",
            live: true,
        },
        Key {
            name: "variables",
            shape: Shape::Texts,
            default: Words("none"),
            about: "Variables that they may read, as `${NAME}` or `{ env = \"NAME\" }`: names, with patterns.",
            example: "[\"TEAM_A_*\"]",
            live: true,
        },
        Key {
            name: "drops",
            shape: Shape::Texts,
            default: Words("none"),
            about: "Limits of `[defaults]` that their routes may drop with `\"!NAME\"`: names, with patterns.",
            example: "[\"per-ip\"]",
            live: true,
        },
    ],
    later: &[],
};

const WHOLE: u64 = u32::MAX as u64;

/// `[server]`.
pub static SERVER: Table = Table {
    name: "server",
    named: false,
    noun: "the server",
    about: "Where requests come in, and how long a connection may dawdle.",
    keys: &[
        Key {
            name: "listen",
            shape: Shape::Texts,
            default: Value("\":8080\""),
            about: "Addresses to listen on, for HTTP/1.1 and cleartext HTTP/2 alike; `:port` is every IPv4 address, port 0 any free port.",
            example: "[\"127.0.0.1:8080\", \"[::1]:8080\"]",
            live: false,
        },
        Key {
            name: "trust",
            shape: Shape::Texts,
            default: Words("nobody"),
            about: "Networks of proxies in front of this one, whose `Forwarded` and `X-Forwarded-For` are believed, walked from the right.",
            example: "[\"10.0.0.0/8\"]",
            live: true,
        },
        Key {
            name: "trust_field",
            shape: Shape::Choice(&["x-forwarded-for", "forwarded"]),
            default: Words("either"),
            about: "The field in which those proxies say whom they forward for; the other is not read then, nor with `forwarded` any `X-Forwarded-*`. Without it both are, and where they name different clients `X-Forwarded-For` is believed, which also says by `X-Forwarded-Proto` and `-Host` what `Forwarded` else would: behind a proxy that writes `Forwarded` alone, and lets the other pass, it must be named.",
            example: "\"forwarded\"",
            live: true,
        },
        Key {
            name: "workers",
            shape: Shape::Whole {
                least: 0,
                most: 1024,
            },
            default: Value("0"),
            about: "Threads that serve requests; 0 is one for each core.",
            example: "4",
            live: false,
        },
        Key {
            name: "drain",
            shape: Shape::Duration,
            default: Value("\"30s\""),
            about: "Longest that requests under way may take to finish when the gateway is told to stop.",
            example: "\"10s\"",
            live: false,
        },
        Key {
            name: "first_byte",
            shape: Shape::Duration,
            default: Value("\"10s\""),
            about: "Longest a fresh connection may take to show which protocol it speaks.",
            example: "\"5s\"",
            live: false,
        },
        Key {
            name: "head",
            shape: Shape::Duration,
            default: Value("\"10s\""),
            about: "Longest a request's head may take, from its first byte to its last, however they come, and never longer than `idle`: then 408 over HTTP/1.1, and the connection ends.",
            example: "\"5s\"",
            live: false,
        },
        Key {
            name: "idle",
            shape: Shape::Duration,
            default: Value("\"60s\""),
            about: "Longest a connection may say nothing: between requests, between two chunks of a body in either direction.",
            example: "\"2min\"",
            live: false,
        },
        Key {
            name: "min_rate",
            shape: Shape::ByteRate,
            default: Value("\"256B/s\""),
            about: "Least that a client must send of a body, and take of an answer, over `idle`; over HTTP/2 of each stream. Only time counts in which it alone is waited for, never a server that writes or reads slowly, nor a held request. WebSockets and gRPC have `idle` alone; 0 is off.",
            example: "\"1KiB/s\"",
            live: false,
        },
        Key {
            name: "max_connections",
            shape: Shape::Whole {
                least: 1,
                most: WHOLE,
            },
            default: Value("100000"),
            about: "Connections held at once. Beyond it a new one takes the place of the one that has been idle longest between two requests, else of one that has sent nothing, else of one that has sent half a head; where all have a request under way it is closed. Never more than half of the open files that the system allows (`ulimit -Hn`; what it allows at least is raised to that), less 64, so that as many upstream connections fit beside them.",
            example: "20000",
            live: false,
        },
        Key {
            name: "max_connections_per_client",
            shape: Shape::Whole {
                least: 1,
                most: WHOLE,
            },
            default: Words("a tenth of `max_connections`, while more than half of them are taken"),
            about: "Connections of one client, which is an address, in IPv6 a /64. Beyond it a new one takes the place of the client's own that has been idle longest between two requests; where none is, it is closed. Written, it holds always. Peers in `trust` stand for many clients, and it does not hold for them.",
            example: "100",
            live: false,
        },
        Key {
            name: "max_held",
            shape: Shape::Whole {
                least: 1,
                most: WHOLE,
            },
            default: Value("10000"),
            about: "Requests held back by leaky buckets at once, in the whole gateway; beyond it the answer is 503.",
            example: "2000",
            live: true,
        },
        Key {
            name: "max_held_per_client",
            shape: Shape::Whole {
                least: 1,
                most: WHOLE,
            },
            default: Value("1000"),
            about: "Requests held back at once for one client's address, of IPv6 for all of a /64; beyond it the answer is 503.",
            example: "100",
            live: true,
        },
    ],
    later: &["tls", "include"],
};

/// `[log]`.
pub static LOG: Table = Table {
    name: "log",
    named: false,
    noun: "the log",
    about: "What is written about requests (standard output) and about the gateway (standard error).",
    keys: &[
        Key {
            name: "access",
            shape: Shape::Choice(&["json", "short", "combined", "off"]),
            default: Words("`\"json\"`; `\"short\"` on a terminal"),
            about: "Form of the line written for each request.",
            example: "\"json\"",
            live: false,
        },
        Key {
            name: "level",
            shape: Shape::Choice(&["error", "warn", "info", "debug", "trace"]),
            default: Value("\"info\""),
            about: "Least severe message about the gateway itself.",
            example: "\"warn\"",
            live: false,
        },
    ],
    later: &[],
};

/// `[admin]`.
pub static ADMIN: Table = Table {
    name: "admin",
    named: false,
    noun: "the admin listener",
    about: "Metrics and health on an address of their own. Without this table there is none.",
    keys: &[Key {
        name: "listen",
        shape: Shape::Text,
        default: Value("\"127.0.0.1:9090\""),
        about: "Its address, apart from those of `[server]`; whoever reaches it can read everything it shows.",
        example: "\"127.0.0.1:9090\"",
        live: false,
    }],
    later: &["token"],
};

/// `[response]`.
pub static RESPONSE: Table = Table {
    name: "response",
    named: false,
    noun: "the response",
    about: "What responses say about limits, and what errors look like.",
    keys: &[
        Key {
            name: "headers",
            shape: Shape::Choice(&["both", "standard", "legacy", "none"]),
            default: Value("\"both\""),
            about: "Which fields: `RateLimit` and `RateLimit-Policy` (standard), `X-RateLimit-*` (legacy: of the limit that a refusal names, else of the one with the least left of what it holds: of a bucket's `burst`, a queue's `queue` + `burst`, else of the rate's number), both or none; `Retry-After` stays on every refusal. Of a list of rates each is a policy of its own, `NAME:TIME` (`per-key:min`), as in `violated-policies`; a limit on what is in flight has `qu=\"concurrent-requests\"` and no times, and is in none of the older fields. What an upstream says of its own limits stays: its items of the lists behind ours, and its `X-RateLimit-*` where it has less left.",
            example: "\"standard\"",
            live: true,
        },
        Key {
            name: "body",
            shape: Shape::Text,
            default: Value("\"problem+json\""),
            about: "What errors of the gateway's own look like: `problem+json` (RFC 9457), `text`, `html`, or `accept`, which is the one of these that the request's `Accept` likes best. `file:PATH` (`.html`, `.json`, `.txt` or `.xml`, at most 64 KiB) is sent to those whom a limit refuses, with `{status}`, `{limit}`, `{retry_after}` and `{request_id}` filled in; other errors stay problem documents.",
            example: "\"file:deny.json\"",
            live: true,
        },
        Key {
            name: "jitter",
            shape: Shape::Text,
            default: Value("\"0%\""),
            about: "By how much longer a refusal may say to wait, each time another share of this: those who were refused together do not come back together.",
            example: "\"10%\"",
            live: true,
        },
    ],
    later: &[],
};

/// `[defaults]`.
pub static DEFAULTS: Table = Table {
    name: "defaults",
    named: false,
    noun: "the defaults",
    about: "What holds for every request, whichever route it takes.",
    keys: &[Key {
        name: "limits",
        shape: Shape::Texts,
        default: Words("none"),
        about: "Names of the limits that every request is held to, also where no route matches; they follow the route's own in its one decision. A route drops one with `\"!NAME\"` in its `limits`.",
        example: "[\"per-ip\"]",
        live: true,
    }],
    later: &[],
};

/// `[upstreams.NAME]`.
pub static UPSTREAMS: Table = Table {
    name: "upstreams",
    named: true,
    noun: "an upstream",
    about: "A named set of servers to forward to.",
    keys: &[
        Key {
            name: "servers",
            shape: Shape::Texts,
            default: Required,
            about: "`http://host:port` each, taken in turn; `demo:` is a server built into the gateway. A request that a server closes a kept connection upon goes out once more, on a fresh one: GET, HEAD, OPTIONS, TRACE, PUT and DELETE without a body; any other only if nothing of it was sent, else 502. A connection is kept for a second less than the server announces in `Keep-Alive: timeout` (of 1 s a half), 4 s at most; where it announces nothing for 1.5 s.",
            example: "[\"http://10.1.0.5:3000\", \"http://10.1.0.6:3000\"]",
            live: true,
        },
        Key {
            name: "balance",
            shape: Shape::Choice(&["round-robin"]),
            default: Value("\"round-robin\""),
            about: "How a server is chosen.",
            example: "\"round-robin\"",
            live: true,
        },
        Key {
            name: "limits",
            shape: Shape::Texts,
            default: Words("none"),
            about: "Limits in front of this upstream, whichever route leads here; they form one decision with the route's own.",
            example: "[\"orders-total\"]",
            live: true,
        },
        Key {
            name: "connect_timeout",
            shape: Shape::Duration,
            default: Value("\"2s\""),
            about: "Longest to wait for a connection to a server.",
            example: "\"500ms\"",
            live: true,
        },
    ],
    later: &["health", "tls", "retry", "protocol"],
};
