//! The keys of `[jwt]`, of `[groups.NAME]`, and what of a limit is other for a group.

use super::super::Default::{Required, Value, Words};
use super::super::{Key, Shape, Table};
use super::WHOLE;

/// `[jwt]`.
pub static JWT: Table = Table {
    name: "jwt",
    named: false,
    noun: "the tokens",
    about: "Whose JSON Web Tokens are believed, for `by = \"jwt:CLAIM\"`. A token is verified once for a request, when a limit of its route asks for a claim: signature, `exp`, and `nbf` where it has one. A token that is there and not believed is answered 401, whatever `missing` says. A claim that is neither a text nor a number is none: `missing` says what then; only groups look into lists. No key and no claim is shown in the log of the gateway.",
    keys: &[
        Key {
            name: "keys",
            shape: Shape::KeyFiles,
            default: Words("none, beside those of `jwks`"),
            about: "Files with public keys in PEM (several in one file are all believed), or each with one shared secret where `algorithms` are HS256, HS384 or HS512. A table gives its keys an id, which tokens name them by (`kid`); of those without one at most 4 are for one algorithm. Paths start at this file's folder; the files are watched as this file is.",
            example: "[\"issuer.pem\", { file = \"2026.pem\", kid = \"2026\" }]",
            live: true,
        },
        Key {
            name: "jwks",
            shape: Shape::Texts,
            default: Words("none, beside `keys`"),
            about: "Files with JSON Web Key Sets. A token that names its key (`kid`) is held against keys of that name, and against those that have none; one that names none, against 4 keys at most.",
            example: "\"jwks.json\"",
            live: true,
        },
        Key {
            name: "algorithms",
            shape: Shape::Choices(&[
                "HS256", "HS384", "HS512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512",
                "ES256", "ES384", "EdDSA",
            ]),
            default: Required,
            about: "How tokens may be signed, and no other way, whatever they say: with private keys, or with shared secrets, not both.",
            example: "[\"RS256\"]",
            live: true,
        },
        Key {
            name: "issuer",
            shape: Shape::Texts,
            default: Words("anybody"),
            about: "Who must have issued it (`iss`), one of these.",
            example: "\"https://id.example.com\"",
            live: true,
        },
        Key {
            name: "audience",
            shape: Shape::Texts,
            default: Words("anybody"),
            about: "For whom it must be (`aud`), one of these.",
            example: "\"orders-api\"",
            live: true,
        },
        Key {
            name: "leeway",
            shape: Shape::Duration,
            default: Value("\"0s\""),
            about: "How far clocks may differ: so much later `exp` and so much earlier `nbf` still count, in whole seconds, `\"1h\"` at most.",
            example: "\"30s\"",
            live: true,
        },
        Key {
            name: "require_exp",
            shape: Shape::Flag,
            default: Value("true"),
            about: "A token that says no end of its time (`exp`) is not believed; with `false` it is, for as long as its key is.",
            example: "false",
            live: true,
        },
        Key {
            name: "header",
            shape: Shape::Text,
            default: Value("\"authorization\""),
            about: "The field with the token: behind `Bearer` in `Authorization`, with or without it in others.",
            example: "\"x-token\"",
            live: true,
        },
    ],
    later: &[],
};

/// A file in `keys` of `[jwt]`.
pub static JWT_KEY: Table = Table {
    name: "jwt",
    named: false,
    noun: "a file with keys",
    about: "A file with keys of tokens.",
    keys: &[
        Key {
            name: "file",
            shape: Shape::Text,
            default: Required,
            about: "The file.",
            example: "\"2026.pem\"",
            live: true,
        },
        Key {
            name: "kid",
            shape: Shape::Text,
            default: Words("none"),
            about: "What tokens call its keys.",
            example: "\"2026\"",
            live: true,
        },
    ],
    later: &[],
};

/// `[groups.NAME]`.
pub static GROUPS: Table = Table {
    name: "groups",
    named: true,
    noun: "a group",
    about: "Who belongs together, for `tiers`, `exempt` and `unknown` of limits. Members are what the gateway has read itself: a list, files, networks; at most 1000000. A request in several groups has the tier of the first of them in this file. The log of a reload says how many members came and went, and nothing shows one.",
    keys: &[
        Key {
            name: "by",
            shape: Shape::Text,
            default: Required,
            about: "What of a request is looked up among the members, as in a limit's `by`: `header:NAME`, `cookie:NAME`, `query:NAME`, `path:NAME`, `jwt:CLAIM`, `host`, or `ip` for networks.",
            example: "\"header:x-api-key\"",
            live: true,
        },
        Key {
            name: "members",
            shape: Shape::Texts,
            default: Words("none, beside those of `file`"),
            about: "The members themselves: values, or `sha256:HEX` of one; blanks around a claim, a query's value, a cookie or a part of the path count. With `by = \"ip\"` addresses and networks.",
            example: "[\"sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\"]",
            live: true,
        },
        Key {
            name: "file",
            shape: Shape::Texts,
            default: Words("none, beside `members`"),
            about: "Files with one member on a line, written as in `members`; empty lines, blanks at either end, and what follows a `#` at the start of a line or behind a blank, do not count. Paths start at this file's folder. They are watched as this file is, and a file that is gone or has a mistake changes nothing.",
            example: "\"gold-keys.txt\"",
            live: true,
        },
    ],
    later: &[],
};

/// What of a limit is other for a group: not a table of its own in the file.
pub static LIMIT_TIER: Table = Table {
    name: "limits",
    named: true,
    noun: "a tier",
    about: "What of a limit is other for a group.",
    keys: &[
        Key {
            name: "rate",
            shape: Shape::Rate,
            default: Words("the limit's"),
            about: "How much in how long; a list where the limit has a list, of as many.",
            example: "\"1000/min\"",
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
            example: "200",
            live: true,
        },
        Key {
            name: "max",
            shape: Shape::Whole {
                least: 1,
                most: WHOLE,
            },
            default: Words("the limit's"),
            about: "How many may be in flight at once.",
            example: "50",
            live: true,
        },
        Key {
            name: "queue",
            shape: Shape::Whole {
                least: 1,
                most: WHOLE,
            },
            default: Words("the limit's"),
            about: "How many may wait.",
            example: "100",
            live: true,
        },
        Key {
            name: "max_wait",
            shape: Shape::Duration,
            default: Words("the limit's"),
            about: "Longest that one waits.",
            example: "\"10s\"",
            live: true,
        },
        Key {
            name: "cost",
            shape: Shape::Cost,
            default: Words("the limit's"),
            about: "What one request takes.",
            example: "2",
            live: true,
        },
    ],
    later: &[],
};
