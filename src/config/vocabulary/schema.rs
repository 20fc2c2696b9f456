//! JSON Schema 2020-12 for editors, made from the vocabulary.

use super::{Default, IGNORE_WARNINGS, INCLUDE, INCLUDE_ENTRY, Key, Shape, TABLES, Table};
use serde_json::{Map, Value, json};

const NAME: &str = "^[A-Za-z0-9_-]{1,64}$";
const BYTE_RATE: &str = "^(0|[0-9]+ ?(B|kB|KB|KiB|MB|MiB|GB|GiB)/s)$|\\$\\{";
const DURATION: &str = "^\\s*([0-9]+\\s*[A-Za-zµμ]+\\s*)+|\\$\\{";
const RATE: &str = "^\\s*[0-9]+\\s*/\\s*([0-9]+\\s*)?[A-Za-zµμ]+\\s*$|\\$\\{";

/// The text of gateway.schema.json.
#[must_use]
pub fn schema() -> String {
    let tables = TABLES.iter();
    let tables = tables.map(|table| (table.name.to_owned(), section(table, [ignore()])));
    let include = (INCLUDE.name.to_owned(), property(&INCLUDE));
    let top = [include, ignore()].into_iter();
    let properties: Map<String, Value> = top.chain(tables).collect();
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "gateway.toml",
        "description": "Configuration of the Tollgate gateway.",
        "type": "object",
        "anyOf": [{ "required": ["routes"] }, { "required": ["include"] }],
        "additionalProperties": false,
        "properties": properties,
    });
    format!("{schema:#}\n")
}

/// What every table of the top level takes.
fn ignore() -> (String, Value) {
    (IGNORE_WARNINGS.name.to_owned(), property(&IGNORE_WARNINGS))
}

fn section(table: &Table, more: impl IntoIterator<Item = (String, Value)>) -> Value {
    let properties: Map<String, Value> = table
        .keys
        .iter()
        .map(|key| (key.name.to_owned(), property(key)))
        .chain(more)
        .collect();
    let required: Vec<_> = table
        .keys
        .iter()
        .filter(|key| key.default == Default::Required)
        .map(|key| key.name)
        .collect();
    let mut object = json!({
        "type": "object",
        "description": table.about,
        "additionalProperties": false,
        "properties": properties,
    });
    if !required.is_empty() {
        object["required"] = json!(required);
    }
    let either = table.keys.iter().find_map(|key| match key.default {
        Default::Unless(others) => Some((key.name, others)),
        _ => None,
    });
    if let Some((name, others)) = either {
        let all = others.iter().chain([&name]);
        object["oneOf"] = all.map(|name| json!({ "required": [name] })).collect();
    }
    if table.named {
        json!({
            "type": "object",
            "description": table.about,
            "propertyNames": { "pattern": NAME },
            "additionalProperties": object,
        })
    } else {
        object
    }
}

fn property(key: &Key) -> Value {
    let mut value = shape(key.shape);
    let (mut about, reload) = (key.about.to_owned(), key.live);
    match key.default {
        Default::Required | Default::Unless(_) => {}
        Default::Value(default) => {
            value["default"] = json_of(default);
        }
        Default::Words(words) => about = format!("{about} Default: {words}."),
    }
    if !reload {
        about.push_str(" Needs a restart.");
    }
    value["description"] = about.into();
    value["examples"] = json!([json_of(key.example)]);
    value
}

fn shape(shape: Shape) -> Value {
    match shape {
        Shape::Text => json!({ "type": "string" }),
        Shape::Texts => json!({
            "oneOf": [
                { "type": "string" },
                { "type": "array", "items": { "type": "string" } },
            ]
        }),
        Shape::KeyFiles => {
            let one = json!({ "oneOf": [{ "type": "string" }, {
                "type": "object", "required": ["file"], "additionalProperties": false,
                "properties": { "file": { "type": "string" }, "kid": { "type": "string" } },
            }] });
            json!({ "anyOf": [one, { "type": "array", "items": one }] })
        }
        Shape::Choice(words) => choice(words),
        Shape::Choices(words) => json!({
            "oneOf": [
                choice(words),
                { "type": "array", "items": choice(words) },
            ]
        }),
        Shape::Whole { least, most } => {
            json!({ "type": "integer", "minimum": least, "maximum": most })
        }
        Shape::Duration => json!({ "type": "string", "pattern": DURATION }),
        Shape::ByteRate => json!({
            "oneOf": [
                { "const": 0 },
                { "type": "string", "pattern": BYTE_RATE },
            ]
        }),
        Shape::Rate => {
            let rate = json!({ "type": "string", "pattern": RATE });
            json!({
                "oneOf": [rate, { "type": "array", "minItems": 1, "items": { "oneOf": [rate, {
                    "type": "object", "required": ["rate"], "additionalProperties": false,
                    "properties": { "rate": rate, "burst": { "type": "integer", "minimum": 1 } },
                }] } }]
            })
        }
        Shape::Flag => json!({ "type": "boolean" }),
        Shape::Cost => json!({
            "oneOf": [
                { "type": "integer", "minimum": 1, "maximum": u32::MAX },
                { "type": "object", "required": ["header", "max"], "additionalProperties": false,
                  "properties": {
                      "header": { "type": "string" },
                      "default": { "type": "integer", "minimum": 1, "maximum": u32::MAX },
                      "max": { "type": "integer", "minimum": 1, "maximum": u32::MAX },
                      "min": { "type": "integer", "minimum": 0, "maximum": 1 },
                  } },
                later("response_header"),
                later("response_json"),
            ]
        }),
        Shape::Lease => json!({
            "oneOf": [
                choice(&["auto", "off"]),
                { "type": "integer", "minimum": 2, "maximum": 1_000_000 },
            ]
        }),
        Shape::Dedupe => json!({
            "type": "object", "required": ["header"], "additionalProperties": false,
            "properties": {
                "header": { "type": "string" },
                "ttl": { "type": "string", "pattern": DURATION, "default": "10min" },
                "repeats": { "type": "integer", "minimum": 1, "maximum": 1000, "default": 3 },
                "of": { "enum": ["request", "path"], "default": "request" },
            },
        }),
        Shape::Exempt => {
            let texts = json!({ "oneOf": [{ "type": "string" }, { "type": "array", "items": { "type": "string" } }] });
            json!({
                "type": "object", "minProperties": 1, "additionalProperties": false,
                "properties": { "ip": texts, "methods": texts, "paths": texts, "groups": texts },
            })
        }
        Shape::Tiers => {
            let number = json!({ "type": "integer", "minimum": 1 });
            json!({
                "type": "object", "minProperties": 1,
                "propertyNames": { "pattern": NAME },
                "additionalProperties": {
                    "type": "object", "minProperties": 1, "additionalProperties": false,
                    "properties": {
                        "rate": self::shape(Shape::Rate), "cost": self::shape(Shape::Cost),
                        "burst": number, "max": number, "queue": number,
                        "max_wait": self::shape(Shape::Duration),
                    },
                },
            })
        }
        Shape::Candidate => {
            let whole = json!({ "type": "integer", "minimum": 1, "maximum": u32::MAX });
            json!({
                "type": "object", "minProperties": 1, "additionalProperties": false,
                "properties": {
                    "rate": self::shape(Shape::Rate), "burst": whole, "queue": whole,
                    "max": { "type": "integer", "minimum": 1, "maximum": 10_000 },
                    "max_wait": self::shape(Shape::Duration),
                },
            })
        }
        Shape::Conditions => json!({
            "type": "object", "minProperties": 1,
            "additionalProperties": { "oneOf": [{ "type": "string" }, { "const": true }] },
        }),
        Shape::Lines => {
            json!({ "type": "object", "additionalProperties": { "type": "string" } })
        }
        Shape::Changes => {
            let lines =
                json!({ "type": "object", "additionalProperties": self::shape(Shape::Secret) });
            json!({
                "type": "object", "minProperties": 1, "additionalProperties": false,
                "properties": { "set": lines, "add": lines, "remove": self::shape(Shape::Texts) },
            })
        }
        Shape::Redirect => json!({
            "type": "object", "required": ["to"], "additionalProperties": false,
            "properties": {
                "to": { "type": "string", "pattern": "^(https?://|/)" },
                "status": { "enum": [301, 302, 303, 307, 308] },
            },
        }),
        Shape::Respond => json!({
            "type": "object", "minProperties": 1, "additionalProperties": false,
            "properties": {
                "status": { "type": "integer", "minimum": 200, "maximum": 599 },
                "body": { "type": "string" },
                "content_type": { "type": "string" },
            },
        }),
        Shape::Include => {
            let entry = json!({ "oneOf": [{ "type": "string" }, section(&INCLUDE_ENTRY, [])] });
            json!({ "oneOf": [{ "type": "string" }, section(&INCLUDE_ENTRY, []), { "type": "array", "items": entry }] })
        }
        Shape::Inner(table) => section(table, []),
        Shape::Secret => json!({
            "oneOf": [
                { "type": "string" },
                { "type": "object", "required": ["file"], "additionalProperties": false,
                  "properties": { "file": { "type": "string" } } },
                { "type": "object", "required": ["env"], "additionalProperties": false,
                  "properties": { "env": { "type": "string" } } },
            ]
        }),
    }
}

/// A cost that stands in this place of the response.
fn later(place: &str) -> Value {
    let whole = json!({ "type": "integer", "minimum": 1, "maximum": u32::MAX });
    json!({
        "type": "object", "required": [place], "additionalProperties": false,
        "properties": { place: { "type": "string" }, "estimate": whole, "max": whole,
                        "on_leave": choice(&["max", "estimate"]) },
    })
}

/// A word, or a variable that gives one.
fn choice(words: &[&str]) -> Value {
    json!({ "anyOf": [{ "enum": words }, { "type": "string", "pattern": "\\$\\{" }] })
}

/// A value of the file in JSON, or else as the file writes it.
fn json_of(toml: &str) -> Value {
    json_value(toml).unwrap_or_else(|| toml.into())
}

/// The two agree on texts, numbers and lists; inline tables of one key are turned.
fn json_value(toml: &str) -> Option<Value> {
    let inside = toml
        .strip_prefix("{ ")
        .and_then(|rest| rest.strip_suffix(" }"));
    match inside.and_then(|pair| pair.split_once(" = ")) {
        Some((key, value)) => Some(json!({ key: json_value(value)? })),
        None => serde_json::from_str(toml).ok(),
    }
}
