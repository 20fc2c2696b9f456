//! Words of others for values of keys, and variables in other spellings.

use super::fold;
use crate::config::document::vocabulary::Table;
use crate::config::value::ValueError;

/// The name of a table, and a key of it or of a table inside it.
pub(super) type KeyPlace = (&'static str, &'static str);

/// Words of others for a value, and what to write.
pub(super) struct ForeignValue {
    /// Keys, each with its table.
    pub(super) places: &'static [KeyPlace],
    /// Words. In the last of the word `*` is any text.
    pub(super) words: &'static [&'static str],
    /// What is different here, if the value alone does not say it.
    pub(super) about: &'static str,
    /// The value to write, with `*` for that text.
    pub(super) offer: Option<&'static str>,
}

const fn row(
    places: &'static [KeyPlace],
    words: &'static [&'static str],
    about: &'static str,
    offer: &'static str,
) -> ForeignValue {
    let offer = if offer.is_empty() { None } else { Some(offer) };
    ForeignValue {
        places,
        words,
        about,
        offer,
    }
}

const BY: &[KeyPlace] = &[("limits", "by"), ("groups", "by")];
/// The second is `by` of a table `balance`.
const BALANCE: &[KeyPlace] = &[("upstreams", "balance"), ("upstreams", "by")];
const ALGORITHM: &[KeyPlace] = &[("limits", "algorithm")];
const ON_DOWN: &[KeyPlace] = &[("limits", "on_down"), ("store", "on_down")];
const SERVERS: &[KeyPlace] = &[("upstreams", "servers"), ("upstreams", "url")];

/// How a regular expression begins.
const REGULAR: &[&str] = &["~*", "^*", "regex:*"];

pub(super) static VALUES: &[ForeignValue] = &[
    row(
        BY,
        &[
            "$binary_remote_addr",
            "$remote_addr",
            "remote_ip",
            "remote_addr",
            "client_ip",
            "remote_address",
            "source_ip",
            "{remote_host}",
            "{http.request.remote.host}",
        ],
        "",
        "ip",
    ),
    row(
        BY,
        &["$http_*", "request_header_*", "http.header.*", "header_*"],
        "",
        "header:*",
    ),
    row(BY, &["$cookie_*"], "", "cookie:*"),
    row(BY, &["$arg_*"], "", "query:*"),
    row(
        BY,
        &["consumer", "consumer_name", "credential", "user"],
        "the name behind a credential, as `customers` of a group states it",
        "customer",
    ),
    row(
        BY,
        &["form:*", "json:*", "jsonpath", "jsonpath:*", "body:*"],
        "no key of a limit is read from a body: write a part of the request's head, as `\"query:user\"` or `\"header:x-user\"`",
        "",
    ),
    row(
        &[("limits", "by")],
        &["$remote_user", "remote_user", "{http.auth.user.id}"],
        "the user, whose password is not verified",
        "basic:user",
    ),
    row(
        &[("groups", "by")],
        &[
            "$remote_user",
            "remote_user",
            "{http.auth.user.id}",
            "htpasswd",
        ],
        "users with their passwords",
        "basic",
    ),
    row(
        BALANCE,
        &["leastconn", "least_conn", "least_request", "p2c"],
        "",
        "least-requests",
    ),
    row(
        BALANCE,
        &["roundrobin", "round_robin", "wrr", "weighted"],
        "",
        "round-robin",
    ),
    row(
        BALANCE,
        &[
            "ketama",
            "maglev",
            "consistent_hash",
            "source",
            "chash",
            "ip_hash",
        ],
        "",
        "hash:ip",
    ),
    row(ON_DOWN, &["allow", "fail-open"], "", "open"),
    row(ON_DOWN, &["deny", "fail-closed"], "", "closed"),
    row(
        &[("limits", "missing"), ("limits", "unknown")],
        &["deny", "reject", "401"],
        "",
        "refuse",
    ),
    row(
        ALGORITHM,
        &["sliding", "sliding_window_counter"],
        "",
        "sliding-window",
    ),
    row(ALGORITHM, &["gcra"], "", "token-bucket"),
    row(ALGORITHM, &["leaky"], "", "leaky-bucket"),
    row(
        ALGORITHM,
        &["local", "cluster"],
        "where a limit counts is said by `scope = \"gateway\"` or `scope = \"cluster\"`",
        "",
    ),
    row(
        &[("routes", "host")],
        REGULAR,
        "there are no regular expressions: write `host = [\"a.example\", \"*.b.example\"]`",
        "",
    ),
    row(
        &[("routes", "path")],
        REGULAR,
        "there are no regular expressions: a path has `{name}` for a segment and `{*rest}` for the rest, and several routes say more",
        "",
    ),
    row(
        SERVERS,
        &["ws://*"],
        "WebSockets pass over HTTP/1.1",
        "http://*",
    ),
    row(
        SERVERS,
        &["wss://*"],
        "WebSockets pass over HTTP/1.1",
        "https://*",
    ),
];

impl ForeignValue {
    /// The text that stands for `*`, if `text` is one of the words; without a `*` it is empty.
    fn tail<'t>(&self, text: &'t str) -> Option<&'t str> {
        self.words.iter().find_map(|word| {
            let Some(front) = word.strip_suffix('*') else {
                return (fold(word) == fold(text)).then_some("");
            };
            let (head, tail) = text.split_at_checked(front.len())?;
            (head.eq_ignore_ascii_case(front) && !tail.is_empty()).then_some(tail)
        })
    }
}

/// The advice for a value of `key` in `table` that `read` has refused. A value is offered only if `read` accepts it.
pub(in crate::config::document) fn value_advice<T>(
    table: &Table,
    key: &str,
    text: &str,
    read: impl Fn(&str) -> Result<T, ValueError>,
) -> Option<String> {
    let is_here = |place: &KeyPlace| *place == (table.name, key);
    let mut rows = VALUES.iter().filter(|row| row.places.iter().any(is_here));
    let found = rows.find_map(|row| Some((row, row.tail(text)?)));
    let Some((row, tail)) = found else {
        return variable(key, text);
    };
    let Some(offer) = row.offer else {
        return Some(row.about.to_owned());
    };
    let is_field = offer.starts_with("header:");
    let tail = if is_field {
        tail.replace('_', "-").to_ascii_lowercase()
    } else {
        tail.to_owned()
    };
    let offer = offer.replace('*', &tail);
    let is_good = read(&offer).is_ok() && !offer.contains(['"', '\\']);
    is_good.then(|| match row.about {
        "" => format!("write `\"{offer}\"`"),
        about => format!("{about}: write `\"{offer}\"`"),
    })
}

/// Keys whose texts may have parts of the path.
const WITH_PARTS: [&str; 4] = ["rewrite", "redirect", "to", "path"];

/// The advice about a variable in the spelling of another program. In `by` it stands for a part of the request, and no
/// variable of the environment is meant.
fn variable(key: &str, text: &str) -> Option<String> {
    if key == "by" {
        return None;
    }
    let starts = ["{{", "{$", "{env.", "$"];
    let start = starts.into_iter().find(|start| text.contains(start))?;
    let (_, rest) = text.split_once(start)?;
    let rest = rest.trim_start();
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let name = &rest[..end.unwrap_or(rest.len())];
    match name.as_bytes().first()? {
        b'0'..=b'9' => WITH_PARTS.contains(&key).then(|| {
            "a part of the path has a name: `/{id}` in `path` is `{id}` in `rewrite` and `redirect`"
                .to_owned()
        }),
        _ => Some(format!(
            "a variable of the environment is written `${{{name}}}`"
        )),
    }
}
