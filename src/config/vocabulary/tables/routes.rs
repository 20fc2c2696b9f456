//! The keys of `[routes.NAME]`.

use super::super::Default::{Required, Unless, Value, Words};
use super::super::{Key, Shape, Table};

/// `[routes.NAME]`.
pub static ROUTES: Table = Table {
    name: "routes",
    named: true,
    noun: "a route",
    about: "Recognises requests and says where they go. The most specific route wins, never the first: exact host before wildcard before any, then segment by segment literal before parameter before rest, then methods before any, then more conditions (`headers`, `query`, `scheme`) before fewer; where one fails the next is tried.",
    keys: &[
        Key {
            name: "host",
            shape: Shape::Texts,
            default: Words("any host"),
            about: "Hosts it is for: `api.example.com`, or `*.example.com` for all below it.",
            example: "\"api.example.com\"",
            live: true,
        },
        Key {
            name: "path",
            shape: Shape::Text,
            default: Value("\"/{*rest}\""),
            about: "Paths it is for: `{name}` is one segment, `{*rest}` all that follow, none included.",
            example: "\"/v1/orders/{id}\"",
            live: true,
        },
        Key {
            name: "path_case",
            shape: Shape::Choice(&["sensitive", "insensitive"]),
            default: Value("\"sensitive\""),
            about: "Whether `/Admin` is `/admin`: `insensitive` where the upstream takes it for that, or requests in another case meet a more general route with its limits alone. ASCII letters of fixed segments, not of parameters, which limits by `path:NAME` count byte for byte; a route for the very spelling goes before.",
            example: "\"insensitive\"",
            live: true,
        },
        Key {
            name: "methods",
            shape: Shape::Texts,
            default: Words("any method"),
            about: "Methods it is for; `GET` stands for `HEAD` too.",
            example: "[\"GET\", \"POST\"]",
            live: true,
        },
        Key {
            name: "headers",
            shape: Shape::Conditions,
            default: Words("any"),
            about: "Fields that its requests have: with this value, or with any (`true`). Several lines of a field are one value, joined by `, `.",
            example: "{ x-version = \"2\" }",
            live: true,
        },
        Key {
            name: "query",
            shape: Shape::Conditions,
            default: Words("any"),
            about: "Parameters that the query of its requests has: names and values as they are when decoded, or `true` for any value. A parameter that comes several times is one value, joined by `, `.",
            example: "{ v = \"2\" }",
            live: true,
        },
        Key {
            name: "scheme",
            shape: Shape::Choice(&["http", "https"]),
            default: Words("either"),
            about: "How its requests came to the first proxy: `https` where a peer of `trust` says so (in the last word of `X-Forwarded-Proto`, or in `Forwarded` where that is the field it writes, else by the `:scheme` of an HTTP/2 request; over HTTP/1.1 a target of `https` is answered 400), `http` in all other cases.",
            example: "\"https\"",
            live: true,
        },
        Key {
            name: "strip_prefix",
            shape: Shape::Text,
            default: Words("nothing"),
            about: "What its paths begin with and the upstream does not see: `/api/orders` is forwarded as `/orders`. The query stays; limits and the log see the path as it came.",
            example: "\"/api\"",
            live: true,
        },
        Key {
            name: "rewrite",
            shape: Shape::Text,
            default: Words("the path that was matched"),
            about: "The path to forward instead, with the parameters of `path`, each as a whole segment; the query stays. Not beside `strip_prefix`.",
            example: "\"/v2/{*rest}\"",
            live: true,
        },
        Key {
            name: "request_headers",
            shape: Shape::Changes,
            default: Words("none"),
            about: "What becomes of a request's fields on the way to the upstream, after limits have read them: first `remove`, then `set` (one line, whatever was there), then `add` (a line more). Fields that frame the message, belong to one connection, or that Tollgate writes itself cannot be changed.",
            example: "{ set = { x-source = \"tollgate\" } }",
            live: true,
        },
        Key {
            name: "response_headers",
            shape: Shape::Changes,
            default: Words("none"),
            about: "The same for the answer on its way to the client. An error that Tollgate answers itself, a refusal too, gets what it does not have: nothing it says is replaced or removed.",
            example: "{ remove = [\"server\"] }",
            live: true,
        },
        Key {
            name: "upstream",
            shape: Shape::Text,
            default: Unless(&["redirect", "respond"]),
            about: "Name of the upstream that its requests go to.",
            example: "\"orders\"",
            live: true,
        },
        Key {
            name: "redirect",
            shape: Shape::Redirect,
            default: Words("none"),
            about: "Instead of an upstream: leads its requests elsewhere. `to` is a path, or all from `https://` on, with the parameters of `path`; the query goes along. `status` is 301, 302, 303, 307 or 308 (the default). Limits hold before it.",
            example: "{ to = \"/new/{*rest}\" }",
            live: true,
        },
        Key {
            name: "respond",
            shape: Shape::Respond,
            default: Words("none"),
            about: "Instead of an upstream: answers this, with `status` 200, an empty `body`, and `text/plain; charset=utf-8` as `content_type` of a body unless they are written. Limits hold before it.",
            example: "{ status = 410 }",
            live: true,
        },
        Key {
            name: "limits",
            shape: Shape::Texts,
            default: Words("none"),
            about: "Names of the limits its requests are held to, beside those of `[defaults]`, of which `\"!NAME\"` drops one; all of them admit a request, or none is charged.",
            example: "[\"per-key\", \"smooth\"]",
            live: true,
        },
        Key {
            name: "timeout",
            shape: Shape::Duration,
            default: Value("\"30s\""),
            about: "Longest from forwarding, after any hold, to the head of the response; beyond it the answer is 504.",
            example: "\"5s\"",
            live: true,
        },
    ],
    later: &["retry"],
};

/// Changes of fields: not a table of its own in the file.
pub static ROUTE_FIELDS: Table = Table {
    name: "routes",
    named: true,
    noun: "a change of fields",
    about: "A change of fields.",
    keys: &[
        Key {
            name: "set",
            shape: Shape::Lines,
            default: Words("none"),
            about: "Fields with the one value they are to have; a value may be `{ file = \"...\" }` or `{ env = \"...\" }`.",
            example: "{ x-source = \"tollgate\" }",
            live: true,
        },
        Key {
            name: "add",
            shape: Shape::Lines,
            default: Words("none"),
            about: "Fields that get a line more; values as under `set`.",
            example: "{ vary = \"origin\" }",
            live: true,
        },
        Key {
            name: "remove",
            shape: Shape::Texts,
            default: Words("none"),
            about: "Fields that go.",
            example: "[\"server\"]",
            live: true,
        },
    ],
    later: &[],
};

/// A redirect: not a table of its own in the file.
pub static ROUTE_REDIRECT: Table = Table {
    name: "routes",
    named: true,
    noun: "a redirect",
    about: "A redirect.",
    keys: &[
        Key {
            name: "to",
            shape: Shape::Text,
            default: Required,
            about: "Where it leads.",
            example: "\"https://new.example.com/{*rest}\"",
            live: true,
        },
        Key {
            name: "status",
            shape: Shape::Whole {
                least: 301,
                most: 308,
            },
            default: Value("308"),
            about: "How it is said.",
            example: "307",
            live: true,
        },
    ],
    later: &[],
};

/// An answer: not a table of its own in the file.
pub static ROUTE_RESPOND: Table = Table {
    name: "routes",
    named: true,
    noun: "an answer",
    about: "An answer.",
    keys: &[
        Key {
            name: "status",
            shape: Shape::Whole {
                least: 200,
                most: 599,
            },
            default: Value("200"),
            about: "Its status.",
            example: "410",
            live: true,
        },
        Key {
            name: "body",
            shape: Shape::Text,
            default: Value("\"\""),
            about: "Its body.",
            example: "\"gone\"",
            live: true,
        },
        Key {
            name: "content_type",
            shape: Shape::Text,
            default: Value("\"text/plain; charset=utf-8\""),
            about: "What its body is.",
            example: "\"application/json\"",
            live: true,
        },
    ],
    later: &[],
};
