//! Causes for an early answer, put into a request one after another, so that their order becomes visible.

use super::dice::Dice;
use super::draw_request::DrawnRequest;

/// Every cause that a raw connection can have: its name, its weight in draws, and the reason if `explain` cannot be
/// given it.
const CAUSES: [(&str, u32, Option<&str>); 35] = [
    ("length and coding", 3, None),
    ("fragment", 3, None),
    ("many fields", 2, None),
    ("large field", 2, None),
    ("long target", 2, None),
    ("no host", 2, Some("a request without Host")),
    ("empty host", 2, None),
    ("two hosts", 3, None),
    ("bad host", 4, None),
    ("authority form", 2, None),
    ("asterisk", 3, None),
    ("options asterisk", 4, None),
    ("connect", 2, None),
    ("absolute form", 3, None),
    ("absolute form of another host", 3, None),
    ("foreign scheme", 3, None),
    ("scheme of none", 2, None),
    ("user information", 3, None),
    ("coding", 3, None),
    ("chunked twice", 3, None),
    ("bad length", 2, None),
    ("two lengths", 2, None),
    ("equal lengths", 2, None),
    ("many connection names", 3, None),
    ("no version", 1, Some("a first line that is none")),
    ("other version", 1, Some("a first line that is none")),
    ("bad byte", 1, None),
    (
        "raw quote",
        2,
        Some("a byte that must be encoded in a target"),
    ),
    ("no target", 1, None),
    ("bad field name", 1, Some("a field that is none")),
    ("http 1.0", 3, Some("another version of HTTP")),
    ("http 1.0 without host", 2, Some("another version of HTTP")),
    ("last hop", 5, None),
    ("bad path", 6, None),
    ("bad deadline of a call", 2, None),
];

/// The names of all causes.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    CAUSES.iter().map(|(name, ..)| *name)
}

/// Puts one cause into the request.
pub(super) fn put(dice: &mut Dice, request: &mut DrawnRequest) {
    let weights: Vec<u32> = CAUSES.iter().map(|(_, weight, _)| *weight).collect();
    let (name, _, untellable) = CAUSES[dice.weighed(&weights)];
    if request.early.contains(&name) {
        return;
    }
    request.early.push(name);
    request.untellable = request.untellable.or(untellable);
    let first = request.fields.first().filter(|(name, _)| name == "Host");
    let host = first.map_or(String::new(), |(_, host)| host.clone());
    match name {
        "no host" | "http 1.0 without host" => request.fields.retain(|(name, _)| name != "Host"),
        "empty host" => set_host(request, ""),
        "two hosts" => request.fields.insert(
            1.min(request.fields.len()),
            ("Host".into(), "b.test".into()),
        ),
        "bad host" => set_host(
            request,
            dice.pick(&[
                "a..test",
                "a_b!",
                "[::1",
                "a.test:x",
                "a.test:99999",
                "a%2etest",
                "u@a.test",
            ]),
        ),
        "authority form" => request.target = "a.test:80".into(),
        "asterisk" => request.target = "*".into(),
        "options asterisk" => {
            request.method = "OPTIONS".into();
            request.target = "*".into();
        }
        "connect" => {
            request.method = "CONNECT".into();
            request.target = dice.pick(&["a.test:443", "/one"]).into();
        }
        "absolute form" => prefix(request, &format!("{}://{host}", scheme(request))),
        "absolute form of another host" => {
            prefix(request, &format!("{}://b.test", scheme(request)))
        }
        "foreign scheme" => {
            let other = if request.tls.is_some() {
                "http"
            } else {
                "https"
            };
            prefix(request, &format!("{other}://{host}"));
        }
        "scheme of none" => prefix(request, "ftp://a.test"),
        "user information" => prefix(request, &format!("{}://u:p@a.test", scheme(request))),
        "http 1.0" | "other version" | "no version" | "no target" | "fragment" | "long target"
        | "bad byte" | "raw quote" | "bad path" => line(dice, request, name),
        _ => field(dice, request, name),
    }
    if name.starts_with("http 1.0") {
        request.version = "HTTP/1.0";
    }
}

fn line(dice: &mut Dice, request: &mut DrawnRequest, name: &str) {
    match name {
        "other version" => request.version = dice.pick(&["HTTP/1.2x", "HTP/1.1", "HTTP/1.1 x"]),
        "no version" => request.version = "",
        "no target" => request.target = "one/two".into(),
        "fragment" => request.target += "#part",
        "long target" => request.target = format!("/{}", "a".repeat(16 * 1024 + 1)),
        "bad byte" => request.target = "/one\u{1}two".into(),
        "raw quote" => request.target += dice.pick(&["?q=\"x\"", "?q=<x>", "?q=a|b"]),
        "bad path" => {
            let path = dice.pick(&[
                "/%00",
                "/../x",
                "/%2e%2e/%2e%2e/x",
                "/%zz",
                "/a%",
                "/a\\b",
                "/%5cx",
                "/a/%2e%2e%2f/b",
            ]);
            let query = request
                .target
                .split_once('?')
                .map(|(_, query)| query.to_owned());
            request.target = query.map_or(path.to_owned(), |query| format!("{path}?{query}"));
        }
        _ => {}
    }
}

fn field(dice: &mut Dice, request: &mut DrawnRequest, name: &str) {
    match name {
        "length and coding" => {
            for (name, value) in [("Content-Length", "5"), ("Transfer-Encoding", "chunked")] {
                if !request.has(name) {
                    request.add(name, value);
                }
            }
        }
        "many fields" => {
            for number in 0..101 {
                request.add(&format!("X-Many-{number}"), "1");
            }
        }
        "large field" => request.add("X-Large", &"a".repeat(66 * 1024)),
        "coding" => request.add(
            "Transfer-Encoding",
            dice.pick(&["gzip", "gzip, chunked", "identity"]),
        ),
        "chunked twice" => request.add(
            "Transfer-Encoding",
            dice.pick(&["chunked, chunked", "chunked,", ","]),
        ),
        "bad length" => request.add(
            "Content-Length",
            dice.pick(&["abc", "-1", "5x", "", "99999999999999999999"]),
        ),
        "two lengths" => {
            request.add("Content-Length", "0");
            request.add("Content-Length", "1");
        }
        "equal lengths" => {
            if !request.has("content-length") && !request.has("transfer-encoding") {
                request.add("Content-Length", "0");
                request.add("Content-Length", "0");
            }
        }
        "many connection names" => {
            let names: Vec<String> = (0..101).map(|number| format!("x-n{number}")).collect();
            request.add("Connection", &names.join(", "));
        }
        "bad field name" => request.add("bad name", "x"),
        "last hop" => {
            request.method = dice.pick(&["OPTIONS", "TRACE", "GET"]).into();
            request.fields.retain(|(name, _)| name != "Max-Forwards");
            request.add("Max-Forwards", "0");
        }
        _ => {
            request.add("Content-Type", "application/grpc");
            request.add("Grpc-Timeout", "1 fortnight");
        }
    }
}

fn set_host(request: &mut DrawnRequest, host: &str) {
    for (name, value) in &mut request.fields {
        if name == "Host" {
            host.clone_into(value);
        }
    }
}

fn scheme(request: &DrawnRequest) -> &'static str {
    if request.tls.is_some() {
        "https"
    } else {
        "http"
    }
}

fn prefix(request: &mut DrawnRequest, origin: &str) {
    if request.target.starts_with('/') {
        request.target.insert_str(0, origin);
    }
}
