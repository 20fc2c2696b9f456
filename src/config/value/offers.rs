//! Every text that a message offers can be read: a test passes each offer of a reader back to the same reader.

use super::{
    ValueError, address, byte_rate, duration, host, method, network, part, path, rate, server,
    store, with_valid_offers,
};
use proptest::prelude::*;

/// The texts between backticks and double quotes.
fn offered(help: &str) -> Vec<&str> {
    help.split('`')
        .skip(1)
        .step_by(2)
        .filter_map(|code| code.strip_prefix('"')?.strip_suffix('"'))
        .collect()
}

fn holds<T>(kind: &str, text: &str, read: impl Fn(&str) -> Result<T, ValueError>) {
    let Err(wrong) = with_valid_offers(text, &read) else {
        return;
    };
    let help = wrong.shown_help().unwrap_or_default();
    for offer in offered(&help) {
        assert!(
            read(offer).is_ok(),
            "{kind} {text:?}: {help}: {offer:?} is wrong as well"
        );
    }
}

fn all_hold(text: &str) {
    holds("path", text, path);
    holds("rate", text, rate);
    holds("duration", text, duration);
    holds("byte rate", text, byte_rate);
    holds("address", text, address);
    holds("network", text, network);
    holds("host", text, host);
    holds("method", text, method);
    holds("part", text, part);
    holds("server", text, server);
    holds("store", text, store);
}

fn help<T>(text: &str, read: impl Fn(&str) -> Result<T, ValueError>) -> String {
    let wrong = with_valid_offers(text, read).err().unwrap();
    wrong.shown_help().unwrap_or_default()
}

#[test]
fn what_is_offered_is_what_was_meant() {
    for (text, offer) in [
        ("v1/{id", "/v1/{id}"),
        ("/v1/id}", "/v1/{id}"),
        ("/v1/:id/x", "/v1/{id}/x"),
        ("/v1/<id>", "/v1/{id}"),
        ("v1/*", "/v1/{*rest}"),
        ("/**", "/{*rest}"),
        ("/a/*/b", "/a/{name}/b"),
        ("http://x/v1?a=b", "/v1"),
        ("http://x", "/"),
        ("/a b", "/a%20b"),
    ] {
        assert_eq!(help(text, path), format!("write `\"{offer}\"`"), "{text}");
    }
    for (text, offer) in [
        ("10 per second", "10/s"),
        ("10rps", "10/s"),
        ("10 rps", "10/s"),
        ("100 rpm", "100/min"),
        ("10r/s", "10/s"),
        ("1,000/s", "1000/s"),
        ("10/1.5s", "10/1500ms"),
        ("10 a month", "10/month"),
    ] {
        assert_eq!(help(text, rate), format!("write `\"{offer}\"`"), "{text}");
    }
    for (text, offer) in [("-5s", "5s"), ("0.5s", "500ms"), ("1.5min", "90s")] {
        assert_eq!(
            help(text, duration),
            format!("write `\"{offer}\"`"),
            "{text}"
        );
    }
    assert_eq!(help("3000", server), "write `\"http://127.0.0.1:3000\"`");
}

const MISTAKES: &[&str] = &[
    "",
    "/",
    "{",
    "}",
    "/{",
    "v1/{id",
    "/v{n}",
    "{a}{b}",
    "/{a}/{a}",
    "a/{*x}/b",
    "/{*}",
    "/%",
    "%zz",
    "/a;b",
    "/..",
    "http://",
    "http:///",
    "http://[::1]:80/x",
    "https://u:p@h/x?y#z",
    "\"",
    "\\",
    "a\"b",
    "/a\"b?",
    "/\n?",
    "/é?x",
    "0",
    "0/s",
    "10",
    "10/",
    "/s",
    "10/0",
    "10/0s",
    "99999999999",
    "99999999999/s",
    "10r/fortnight",
    "1_000/",
    "10/999999999999",
    "999999999999999999999 per s",
    "10 per month",
    "0 rps",
    "9999999999rps",
    "10/99999999month",
    "0.5/s",
    "-1/s",
    "10/-1s",
    "0.0s",
    "0",
    "-",
    "--5s",
    "-5",
    "1.2.3s",
    "99999999999999999999",
    "1.5",
    "184467440737095516.15s",
    "5 parsecs",
    "example.com",
    "99999",
    "80",
    "::1",
    "::ffff:1.2.3.4",
    "::ffff:0:0/0",
    "[::1",
    "1.2.3.4/40",
    "*",
    "a:b",
    "a:b:c",
    "get",
    "gét",
    "CONNECT",
    "connect",
    "GET,POST",
    "x-api-key",
    "heder:x",
    "heder",
    "heder:",
    "x-é",
    "ip/99",
    "basic",
    "basic:x",
    "IP",
    "demo",
    "memory",
];

#[test]
fn offers_can_be_read() {
    for text in MISTAKES {
        all_hold(text);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn whatever_is_written_what_is_offered_can_be_read(
        pieces in proptest::collection::vec(
            prop::sample::select(vec![
                "/", "{", "}", "*", ":", "<", ">", "%", "2f", ";", "?", "#", "..", ".", "a", "é", "id", " ", "\"", "\\", "\n", "10",
                "0", "9999999999", "s", "min", "M", "month", "-", "+", "rps", "per", ",", "_", "http", "://", "@", "[", "]", "::1",
                "1.2.3.4", "get", "header", "ip", "redis", "x-key",
            ]),
            0..8,
        )
    ) {
        all_hold(&pieces.concat());
    }
}
