//! JSON Schema 2020-12 for editors, generated from the vocabulary.

use crate::config::document::vocabulary::{Default, Key, Table, ValueShape};
use crate::config::document::{IGNORE_WARNINGS, INCLUDE, TABLES};
use crate::limit::rate::MOST_UNITS;
use serde_json::{Map, Value, json};

const NAME: &str = "^[A-Za-z0-9_-]{1,64}$";
const BYTE_RATE: &str = "^(0|[0-9]+ ?(B|kB|KB|KiB|MB|MiB|GB|GiB)/s)$|\\$\\{";
const DURATION: &str = "^\\s*([0-9]+\\s*[A-Za-zµμ]+\\s*)+|\\$\\{";
/// A text that is exactly one variable, and so can become a number, `true` or `false`.
const VARIABLE: &str = "^\\$\\{[^}]+\\}$";
const RATE: &str = "^\\s*[0-9]+\\s*/\\s*([0-9]+\\s*)?[A-Za-zµμ]+\\s*$|\\$\\{";

/// The text of gateway.schema.json.
pub(super) fn schema() -> String {
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

/// The key that every table of the top level takes.
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
        .filter(|key| matches!(key.default, Default::Required))
        .map(|key| key.name)
        .collect();
    let mut object = json!({
        "type": "object",
        "description": table.about,
        "additionalProperties": false,
        "properties": properties,
    });
    if table.empty.is_some() {
        object["minProperties"] = json!(1);
    }
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
    let mut value = shape(key.shape());
    let (mut about, reload) = (key.about.to_owned(), key.is_live());
    match key.default {
        Default::Required | Default::Unless(_) => {}
        Default::Value(default) => {
            value["default"] = json_of(default);
        }
        Default::Words(words) | Default::Computed(words, _) | Default::Compiled(words, _) => {
            about = format!("{about} Default: {words}.")
        }
    }
    if !reload {
        about.push_str(" Needs a restart.");
    }
    value["description"] = about.into();
    value["examples"] = json!([json_of(key.example)]);
    value
}

fn shape(shape: ValueShape) -> Value {
    match shape {
        ValueShape::Text
        | ValueShape::ListenAddress
        | ValueShape::File
        | ValueShape::FolderOr(_)
        | ValueShape::ErrorBody
        | ValueShape::StoreUrl => {
            json!({ "type": "string" })
        }
        ValueShape::Customers => json!({
            "oneOf": [
                { "const": true },
                texts(),
                { "type": "object", "minProperties": 1, "additionalProperties": texts() },
            ]
        }),
        ValueShape::Destination => json!({ "type": "string", "pattern": "^(https?://|/)" }),
        ValueShape::Texts
        | ValueShape::Files
        | ValueShape::Members
        | ValueShape::ListenAddresses => texts(),
        ValueShape::KeyFiles(table)
        | ValueShape::Servers(table)
        | ValueShape::Listeners(table)
        | ValueShape::Networks(table) => {
            let one = json!({ "oneOf": [{ "type": "string" }, section(table, [])] });
            json!({ "anyOf": [one, { "type": "array", "items": one }] })
        }
        ValueShape::Authorities(table) => json!({ "oneOf": [texts(), section(table, [])] }),
        ValueShape::ListenerTls(table) => {
            json!({ "oneOf": [{ "const": true }, texts(), section(table, [])] })
        }
        ValueShape::Numbers(numbers) => or_variable(json!({ "enum": numbers })),
        ValueShape::Choice(words) => choice(words),
        ValueShape::Choices(words) => json!({
            "oneOf": [
                choice(words),
                { "type": "array", "items": choice(words) },
            ]
        }),
        ValueShape::Whole { least, most } => {
            or_variable(json!({ "type": "integer", "minimum": least, "maximum": most }))
        }
        ValueShape::Duration => json!({ "type": "string", "pattern": DURATION }),
        ValueShape::DurationOrOff => json!({
            "oneOf": [{ "const": false }, { "type": "string", "pattern": DURATION }]
        }),
        ValueShape::ByteRate => json!({
            "oneOf": [
                { "const": 0 },
                { "type": "string", "pattern": BYTE_RATE },
            ]
        }),
        ValueShape::Rate(table) => {
            let rate = json!({ "type": "string", "pattern": RATE });
            let one = json!({ "oneOf": [rate, section(table, [])] });
            json!({ "oneOf": [rate, { "type": "array", "minItems": 1, "items": one }] })
        }
        ValueShape::Flag => or_variable(json!({ "type": "boolean" })),
        ValueShape::FlagOrTexts => json!({
            "oneOf": [
                { "type": "boolean" },
                { "type": "string" },
                { "type": "array", "items": { "type": "string" } },
            ]
        }),
        ValueShape::Cost(tables) => {
            let number = json!({ "type": "integer", "minimum": 1, "maximum": MOST_UNITS });
            let tables = tables.iter().map(|table| section(table, []));
            let numbers = [number, variable()].into_iter();
            let all: Vec<Value> = numbers.chain(tables).collect();
            json!({ "oneOf": all })
        }
        ValueShape::Lease => json!({
            "oneOf": [
                choice(&["auto", "off"]),
                { "type": "integer", "minimum": 2, "maximum": 1_000_000 },
            ]
        }),
        ValueShape::Tiers(table) => {
            let mut tier = section(table, []);
            tier["minProperties"] = json!(1);
            json!({
                "type": "object", "minProperties": 1,
                "propertyNames": { "pattern": NAME },
                "additionalProperties": tier,
            })
        }
        ValueShape::Named(table) => json!({
            "type": "object", "minProperties": 1,
            "propertyNames": { "pattern": NAME },
            "additionalProperties": section(table, []),
        }),
        ValueShape::RefundCauses => {
            let one = json!({ "type": "string", "pattern": format!("^(cancel|{STATUS})$") });
            json!({ "oneOf": [one, { "type": "array", "items": one }] })
        }
        ValueShape::StatusCosts => json!({
            "type": "object", "minProperties": 1,
            "propertyNames": { "pattern": format!("^(else|{STATUS})$") },
            "additionalProperties": { "type": "integer", "minimum": 0, "maximum": MOST_UNITS },
        }),
        ValueShape::JsonMembers => json!({
            "oneOf": [
                { "type": "string" },
                { "type": "array", "minItems": 1, "items": { "type": "string" } },
                { "type": "object", "minProperties": 1,
                  "additionalProperties": { "type": "number", "minimum": -1000, "maximum": 1000 } },
            ]
        }),
        ValueShape::Conditions => json!({
            "type": "object", "minProperties": 1,
            "additionalProperties": { "oneOf": [{ "type": "string" }, { "const": true }] },
        }),
        ValueShape::Lines => {
            json!({ "type": "object", "additionalProperties": self::shape(ValueShape::Secret) })
        }
        ValueShape::Include(table) => {
            let one = json!({ "oneOf": [{ "type": "string" }, section(table, [])] });
            json!({ "oneOf": [{ "type": "string" }, section(table, []), { "type": "array", "items": one }] })
        }
        ValueShape::Inner(table) => section(table, []),
        ValueShape::TextOrInner(table) => {
            json!({ "oneOf": [{ "type": "string" }, section(table, [])] })
        }
        ValueShape::OffOrInner(table) => {
            json!({ "oneOf": [{ "const": false }, variable(), section(table, [])] })
        }
        ValueShape::Secret | ValueShape::UserName => json!({
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

/// A status of an answer, or a class of statuses.
const STATUS: &str = "[2-5]xx|[2-5][0-9][0-9]|grpc-([0-9]|1[0-6])";

fn texts() -> Value {
    json!({
        "oneOf": [
            { "type": "string" },
            { "type": "array", "items": { "type": "string" } },
        ]
    })
}

/// A value that is not a text, or a variable that gives such a value.
fn or_variable(value: Value) -> Value {
    json!({ "anyOf": [value, variable()] })
}

fn variable() -> Value {
    json!({ "type": "string", "pattern": VARIABLE })
}

/// A word, or a variable that gives a word.
fn choice(words: &[&str]) -> Value {
    json!({ "anyOf": [{ "enum": words }, { "type": "string", "pattern": "\\$\\{" }] })
}

/// A value of the file in JSON, or else in the spelling of the file.
fn json_of(toml: &str) -> Value {
    json_value(toml).unwrap_or_else(|| toml.into())
}

/// TOML and JSON agree on texts, numbers and lists. Inline tables of one key are rewritten.
fn json_value(toml: &str) -> Option<Value> {
    let inside = toml
        .strip_prefix("{ ")
        .and_then(|rest| rest.strip_suffix(" }"));
    match inside.and_then(|pair| pair.split_once(" = ")) {
        Some((key, value)) => Some(json!({ key: json_value(value)? })),
        None => serde_json::from_str(toml).ok(),
    }
}
