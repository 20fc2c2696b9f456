//! The keys of the schema: each key is drawn, or has no influence on the order of a request's steps, and no key is
//! unknown here.

use super::dice::Dice;
use super::draw_file::DrawnFile;
use super::draw_limits::{EVERYONE, OF_GROUPS, SOURCES};
use super::world::World;
use serde_json::Value;
use std::collections::BTreeSet;

/// Keys that are not drawn, with those below them, and why they have no influence. `*` stands for any name.
const WITHOUT_INFLUENCE: [(&str, &str); 54] = [
    (
        "acme",
        "orders run beside requests; the path of a challenge is drawn, and no text is known",
    ),
    ("admin", "another listener; its address is drawn"),
    ("defaults.ignore_warnings", WARNINGS),
    ("groups.*.ignore_warnings", WARNINGS),
    ("ignore_warnings", WARNINGS),
    ("include", "files are one before anything is made of them"),
    (
        "jwt.ca",
        "how a server of keys is believed; the one here is read in clear text",
    ),
    ("jwt.ignore_warnings", WARNINGS),
    ("limits.*.body", "the words of a refusal"),
    ("limits.*.ignore_warnings", WARNINGS),
    ("limits.*.lease", REDIS),
    ("limits.*.on_down", REDIS),
    ("limits.*.public_name", "a name in answers alone"),
    ("limits.*.refund", "what comes back after the answer"),
    ("limits.*.scope", REDIS),
    ("limits.*.slot_ttl", REDIS),
    ("limits.*.timezone", "where a day begins"),
    ("limits.*.with", REDIS),
    ("limits.*.candidate.burst", NUMBERS),
    ("limits.*.candidate.max", NUMBERS),
    ("limits.*.candidate.max_wait", NUMBERS),
    ("limits.*.candidate.queue", NUMBERS),
    ("limits.*.tiers.*.burst", NUMBERS),
    ("limits.*.tiers.*.max", NUMBERS),
    ("limits.*.tiers.*.max_wait", NUMBERS),
    ("limits.*.tiers.*.queue", NUMBERS),
    (
        "limits.*.tiers.*.cost.default",
        "as in the limit's own cost, where it is drawn",
    ),
    (
        "limits.*.tiers.*.cost.min",
        "as in the limit's own cost, where it is drawn",
    ),
    ("limits.*.tiers.*.cost.estimate", RESPONSE),
    ("limits.*.tiers.*.cost.on_leave", RESPONSE),
    ("limits.*.tiers.*.cost.on_silent", RESPONSE),
    ("limits.*.tiers.*.cost.response_header", RESPONSE),
    ("limits.*.tiers.*.cost.response_json", RESPONSE),
    ("limits.*.tiers.*.cost.status", RESPONSE),
    ("log", "its form is the one that can be read back"),
    ("response", "the form of answers"),
    ("routes.*.idle", "how long bodies may be silent"),
    ("routes.*.ignore_warnings", WARNINGS),
    ("routes.*.response_headers", "changes of answers"),
    ("routes.*.timeout", "how long a server may owe its answer"),
    ("server.drain", SOCKETS),
    ("server.drain_delay", SOCKETS),
    ("server.first_byte", SOCKETS),
    ("server.handshake", SOCKETS),
    ("server.head", SOCKETS),
    ("server.idle", SOCKETS),
    ("server.ignore_warnings", WARNINGS),
    ("server.keep_alive", SOCKETS),
    ("server.max_connections", SOCKETS),
    ("server.max_connections_per_client", SOCKETS),
    ("server.max_held", SOCKETS),
    ("server.max_held_per_client", SOCKETS),
    ("server.min_rate", SOCKETS),
    ("store", REDIS),
];

const WARNINGS: &str = "a word to `check`";
const REDIS: &str = "where and how the store counts, behind the one question to it";
const NUMBERS: &str = "a number of the algorithm";
const ELSEWHERE: &str = "where a text stands that is drawn in the file itself";
const RESPONSE: &str = "learnt behind the answer";
const SOCKETS: &str = "times and bounds of connections";

/// More of them: what stands in front of requests and behind the decision.
const WITHOUT_INFLUENCE_TOO: [(&str, &str); 21] = [
    (
        "limits.*.block",
        "a block is of an earlier request, and each case has one",
    ),
    ("limits.*.candidate.rate.burst", NUMBERS),
    ("limits.*.candidate.rate.rate", NUMBERS),
    ("limits.*.shown", "where answers state the limit"),
    ("limits.*.tiers.*.rate.burst", NUMBERS),
    ("limits.*.tiers.*.rate.rate", NUMBERS),
    ("routes.*.forward_identity.*", ELSEWHERE),
    ("routes.*.request_headers.add.*", ELSEWHERE),
    ("routes.*.request_headers.set.*", ELSEWHERE),
    ("server.listen.mode", "who may open a socket"),
    (
        "server.listen.proxy_protocol",
        "a client's address in front of all bytes, as a peer's own",
    ),
    ("server.listen.tls.cert", "another way to write an identity"),
    ("server.listen.tls.key", "another way to write an identity"),
    ("server.trust.file", "another way to write networks"),
    ("tls.*.acme", "an identity whose certificate comes later"),
    ("tls.*.alpn", "the protocols of a handshake"),
    ("tls.*.client.crl", "what makes a handshake fail"),
    ("tls.*.hosts", "the names of the certificate, as drawn"),
    ("tls.*.ignore_warnings", WARNINGS),
    ("tls.*.min", "the protocols of a handshake"),
    (
        "upstreams",
        "servers and the ways to them, behind the walk; one is drawn",
    ),
];

fn without_influence(key: &str) -> bool {
    let all = WITHOUT_INFLUENCE.iter().chain(&WITHOUT_INFLUENCE_TOO);
    all.map(|(name, _)| *name).any(|name| {
        key == name
            || key
                .strip_prefix(name)
                .is_some_and(|rest| rest.starts_with('.'))
    })
}

/// The paths of all keys below `schema`, with `*` for names that a file makes up.
fn keys_of(schema: &Value, path: &str, out: &mut BTreeSet<String>) {
    let below = |name: &str| {
        if path.is_empty() {
            name.to_owned()
        } else {
            format!("{path}.{name}")
        }
    };
    for (name, value) in schema["properties"].as_object().into_iter().flatten() {
        out.insert(below(name));
        keys_of(value, &below(name), out);
    }
    let any = &schema["additionalProperties"];
    if any.is_object() {
        // Names of fields and parameters have one value each, and no keys.
        keys_of(any, &below("*"), out);
    }
    keys_of_all(&schema["items"], path, out);
    for word in ["oneOf", "anyOf", "allOf"] {
        for value in schema[word].as_array().into_iter().flatten() {
            keys_of(value, path, out);
        }
    }
}

fn keys_of_all(items: &Value, path: &str, out: &mut BTreeSet<String>) {
    if items.is_object() {
        keys_of(items, path, out);
    }
}

/// The paths of the keys in a file, in the same form.
fn keys_in(value: &toml::Value, path: &str, schema: &BTreeSet<String>, out: &mut BTreeSet<String>) {
    match value {
        toml::Value::Table(table) => {
            for (name, value) in table {
                let join = |name: &str| {
                    if path.is_empty() {
                        name.to_owned()
                    } else {
                        format!("{path}.{name}")
                    }
                };
                let own = join(name);
                let own = if schema.contains(&own) {
                    own
                } else {
                    join("*")
                };
                out.insert(own.clone());
                keys_in(value, &own, schema, out);
            }
        }
        toml::Value::Array(list) => {
            for value in list {
                keys_in(value, path, schema, out);
            }
        }
        _ => {}
    }
}

fn schema() -> Value {
    serde_json::from_str(include_str!("../../gateway.schema.json")).unwrap()
}

/// Each new key of the schema must be drawn, or be listed above with its reason.
#[tokio::test]
async fn every_key_of_the_schema_is_drawn_or_has_no_influence() {
    let world = World::build().await;
    let schema = schema();
    let mut keys = BTreeSet::new();
    keys_of(&schema, "", &mut keys);
    assert!(
        keys.contains("limits.*.exempt.paths") && keys.contains("routes.*.scheme"),
        "{keys:?}"
    );
    let mut drawn = BTreeSet::new();
    for seed in 0..1500 {
        let file = DrawnFile::draw(&mut Dice::of(seed), &world, [8001, 8002, 8003]);
        let table: toml::Value =
            toml::from_str(&file.text).unwrap_or_else(|error| panic!("{error}\n{}", file.text));
        keys_in(&table, "", &keys, &mut drawn);
    }
    // A table with made-up names counts as drawn if one of its names was drawn.
    let is_drawn = |key: &String| drawn.contains(key);
    let missing: Vec<_> = keys
        .iter()
        .filter(|key| !is_drawn(key) && !without_influence(key))
        .collect();
    assert!(
        missing.is_empty(),
        "draw these keys in tests/one_walk, or list them in schema.rs with the reason why they have no influence on a \
         request's way: {missing:?}"
    );
    let gone: Vec<_> = WITHOUT_INFLUENCE
        .iter()
        .chain(&WITHOUT_INFLUENCE_TOO)
        .filter(|(name, _)| {
            let below = format!("{}.", name.trim_end_matches(".*"));
            !keys.contains(*name) && !keys.iter().any(|key| key.starts_with(&below))
        })
        .collect();
    assert!(gone.is_empty(), "no such key is left: {gone:?}");
}

/// The schema describes the sources of keys only in words.
#[test]
fn every_key_source_of_the_schema_is_drawn() {
    let schema = schema();
    let by = |table: &str| {
        schema["properties"][table]["additionalProperties"]["properties"]["by"]["description"]
            .clone()
    };
    for (table, before) in [("limits", "The parts are "), ("groups", "It is ")] {
        let text = by(table);
        let text = text.as_str().unwrap();
        let (_, list) = text.split_once(before).unwrap();
        // The list ends with its sentence. Words in brackets describe a part.
        let (list, _) = list.split_once(". ").unwrap_or((list, ""));
        let mut words = Vec::new();
        let mut depth = 0;
        for (index, piece) in list.split('`').enumerate() {
            if index % 2 == 1 && depth == 0 {
                words.push(piece);
            }
            if index % 2 == 0 {
                depth += piece.matches('(').count();
                depth -= piece.matches(')').count();
            }
        }
        assert!(words.len() > 5, "{words:?}");
        for word in words {
            let name = word
                .split_once(':')
                .filter(|(_, rest)| rest.chars().all(|c| c.is_ascii_uppercase()));
            let source = name.map_or(word, |(source, _)| source);
            let is_word = source == EVERYONE || (table == "groups" && source == OF_GROUPS);
            let is_drawn = is_word || SOURCES.iter().any(|(own, _)| *own == source);
            assert!(
                is_drawn,
                "draw the key source `{source}` of {table} in tests/one_walk/draw_limits.rs"
            );
        }
    }
}
