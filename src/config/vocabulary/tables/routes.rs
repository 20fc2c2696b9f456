//! The keys of `[routes.NAME]`.

use super::super::Default::{Required, Value, Words};
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
            about: "How its requests came to the first proxy: `https` where a peer of `trust` says so (in the last word of `X-Forwarded-Proto`, else by the scheme of the target), `http` in all other cases.",
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
            default: Required,
            about: "Name of the upstream that its requests go to.",
            example: "\"orders\"",
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
            about: "Fields with the one value they are to have.",
            example: "{ x-source = \"tollgate\" }",
            live: true,
        },
        Key {
            name: "add",
            shape: Shape::Lines,
            default: Words("none"),
            about: "Fields that get a line more.",
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
