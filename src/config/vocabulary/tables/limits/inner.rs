//! Tables inside `[limits.NAME]`.

use super::super::super::Default::{Required, Unless, Value, Words};
use super::super::super::{Key, Shape, Table};
use super::super::WHOLE;

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
        Key {
            name: "groups",
            shape: Shape::Texts,
            default: Words("none"),
            about: "Groups, with all their members.",
            example: "[\"internal\"]",
            live: true,
        },
    ],
    later: &[],
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
        Key {
            name: "of",
            shape: Shape::Choice(&["request", "path"]),
            default: Value("\"request\""),
            about: "What a repeat has in common with the request that it repeats, beside id, method, cost and key: path, query and the first 16 KiB of the body (`request`), or the `path` alone.",
            example: "\"path\"",
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
    later: &[],
};

/// A cost that a response says: not a table of its own in the file.
pub static LIMIT_COST_LATER: Table = Table {
    name: "limits",
    named: true,
    noun: "a cost that the response says",
    about: "A cost that a response says.",
    keys: &[
        Key {
            name: "response_header",
            shape: Shape::Text,
            default: Unless(&["response_json"]),
            about: "The field of the response that says it.",
            example: "\"x-units\"",
            live: true,
        },
        Key {
            name: "response_json",
            shape: Shape::Text,
            default: Words("none"),
            about: "The member of the JSON body that says it.",
            example: "\"usage.total_tokens\"",
            live: true,
        },
        Key {
            name: "estimate",
            shape: Shape::Whole {
                least: 1,
                most: WHOLE,
            },
            default: Value("1"),
            about: "What is asked for before, and stays where the response says nothing.",
            example: "100",
            live: true,
        },
        Key {
            name: "max",
            shape: Shape::Whole {
                least: 1,
                most: WHOLE,
            },
            default: Words("whatever the response says"),
            about: "The most that a request takes.",
            example: "5000",
            live: true,
        },
        Key {
            name: "on_leave",
            shape: Shape::Choice(&["max", "estimate"]),
            default: Value("\"max\""),
            about: "What a request takes whose client leaves after the body began and before it said a number: `max` (without one all that the limit holds), or the estimate.",
            example: "\"estimate\"",
            live: true,
        },
    ],
    later: &[],
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
