//! The test that `openapi.json` has every call, and the members that answers really have: schemas are read off written
//! samples, one with everything in it and one with all that may be missing left out. `UPDATE=1` writes the document.

mod samples;

use super::endpoints::{CallHandler, ENDPOINTS};
use http::Method;
use samples::all_samples;
use serde_json::{Map, Value, json};
use std::fs;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/admin/openapi.json");

/// What each call is for, and the schema of its answer; none for a text.
const CALLS: [(&str, &str, Option<&str>); 15] = [
    ("/metrics", "Metrics, for everybody.", None),
    (
        "/healthz",
        "200 as long as the process answers, for everybody.",
        None,
    ),
    (
        "/readyz",
        "200 while the gateway takes requests, for everybody.",
        None,
    ),
    ("/v1/status", "The gateway in short.", Some("Status")),
    (
        "/v1/limits",
        "The limits of the configuration in force, in the order of the file. A page continues behind the entry that `after` names.",
        Some("Limits"),
    ),
    ("/v1/limits/{}", "One limit.", Some("LimitDetails")),
    (
        "/v1/routes",
        "The routes of the configuration in force, in the order of the file. A page continues behind the entry that `after` names.",
        Some("Routes"),
    ),
    (
        "/v1/upstreams",
        "The servers as they are now.",
        Some("Upstreams"),
    ),
    (
        "/v1/config",
        "The file as it is understood, with stars in place of secrets.",
        Some("Config"),
    ),
    ("/v1/store", "Where the counters are.", Some("Store")),
    ("/v1/openapi.json", "This document.", None),
    (
        "/v1/peek",
        "The units left on counters. Nothing is charged.",
        None,
    ),
    ("/v1/changes", "What operators have changed.", None),
    (
        "/v1/reset",
        "Empties the counters of a limit and a key, at every gateway.",
        None,
    ),
    (
        "/v1/reload",
        "Reads the file again, as SIGHUP does.",
        Some("Reload"),
    ),
];

/// Statuses that a call may answer beside 200, with the words for them.
const REFUSALS: [(&str, &str); 13] = [
    ("400", "A parameter or a body that the call does not know."),
    ("401", "A token is needed, or it is wrong."),
    (
        "403",
        "The request comes from a page of another site, or may not do this.",
    ),
    ("404", "There is no such thing."),
    ("405", "The path has another method."),
    ("408", "The body is late."),
    (
        "409",
        "The gateway has no file, or the change does not fit.",
    ),
    ("413", "The body is too large."),
    ("415", "The body is not announced as JSON."),
    ("421", "The Host is no name of the listener."),
    ("422", "The file has mistakes."),
    ("429", "Too many requests, or wrong tokens."),
    ("503", "Not now."),
];

/// The schema of what both samples are. A member that the bare one lacks need not be there.
fn schema_of(whole: &Value, bare: Option<&Value>) -> Value {
    let kind = match whole {
        Value::Null => panic!("a whole sample has no null"),
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let mut schema = match bare {
        Some(Value::Null) => json!({ "type": [kind, "null"] }),
        _ => json!({ "type": kind }),
    };
    let bare = bare.filter(|bare| !bare.is_null());
    if let Value::Array(items) = whole {
        let first = bare.and_then(|bare| bare.get(0));
        schema["items"] = schema_of(&items[0], first);
    }
    if let Value::Object(members) = whole {
        let is_there = |name: &&String| bare.is_none_or(|bare| bare.get(name.as_str()).is_some());
        let required: Vec<&String> = members.keys().filter(is_there).collect();
        let properties: Map<String, Value> = members
            .iter()
            .map(|(name, value)| {
                let bare = bare.and_then(|bare| bare.get(name));
                (name.clone(), schema_of(value, bare))
            })
            .collect();
        if !properties.is_empty() {
            schema["properties"] = properties.into();
            schema["required"] = json!(required);
        }
    }
    schema
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

fn responses(path: &str, answer: Option<&str>) -> Value {
    let content = match answer {
        Some(name) => json!({ "application/json": { "schema": reference(name) } }),
        None if path.starts_with("/v1") => json!({ "application/json": {} }),
        None => json!({ "text/plain": {} }),
    };
    let mut responses = json!({ "200": { "description": "The answer.", "content": content } });
    if path.starts_with("/v1") {
        let problem = json!({ "application/problem+json": { "schema": reference("Problem") } });
        for (status, words) in REFUSALS {
            responses[status] = json!({ "description": words, "content": problem });
        }
    }
    responses
}

fn document() -> Value {
    let mut paths = json!({});
    for endpoint in &ENDPOINTS {
        let call = CALLS.iter().find(|(path, ..)| *path == endpoint.path);
        let (path, about, answer) = call.unwrap_or_else(|| panic!("{} has no line", endpoint.path));
        let shown = path.replace("{}", "{limit}");
        let (role, security) = match endpoint.handler {
            CallHandler::Open(_) => ("none", json!([])),
            CallHandler::Read(_) => ("read", json!([{}, { "bearer": [] }, { "basic": [] }])),
            CallHandler::Change(..) => ("operate", json!([{ "bearer": [] }])),
        };
        let mut operation = json!({
            "summary": about,
            "responses": responses(path, *answer),
            "x-role": role,
            "security": security,
            "parameters": parameters(&shown, endpoint.parameters),
        });
        if endpoint.method == Method::POST {
            let body = json!({ "application/json": { "schema": { "type": "object" } } });
            operation["requestBody"] = json!({ "content": body });
        }
        let method = endpoint.method.as_str().to_ascii_lowercase();
        paths[shown][method] = operation;
    }
    let schemas: Map<String, Value> = all_samples()
        .iter()
        .map(|one| (one.name.to_owned(), schema_of(&one.whole, Some(&one.bare))))
        .collect();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Tollgate",
            "description": "The admin listener of a Tollgate gateway. Members are added within v1, never removed or changed; readers ignore what they do not know.",
            "version": "1",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "basic": { "type": "http", "scheme": "basic", "description": "Any user, and the token as password. To read." },
                "bearer": { "type": "http", "scheme": "bearer", "description": "The token." },
            },
        },
    })
}

fn parameters(path: &str, known: &[&str]) -> Value {
    let mut all = Vec::new();
    if path.contains('{') {
        let schema = json!({ "type": "string" });
        all.push(json!({ "name": "limit", "in": "path", "required": true, "schema": schema }));
    }
    for name in known {
        let schema = match *name {
            "count" => json!({ "type": "integer", "minimum": 1, "maximum": 500, "default": 50 }),
            _ => json!({ "type": "string" }),
        };
        all.push(json!({ "name": name, "in": "query", "schema": schema }));
    }
    all.into()
}

#[test]
fn the_document_is_made_of_the_calls_and_their_answers() {
    let text = format!("{:#}\n", document());
    if std::env::var_os("UPDATE").is_some() {
        fs::write(FILE, &text).unwrap();
    }
    let kept = fs::read_to_string(FILE).unwrap();
    assert!(
        kept == text,
        "run the tests with UPDATE=1 and read the difference"
    );
    assert_eq!(CALLS.len(), ENDPOINTS.len());
}

#[test]
fn every_reference_leads_somewhere() {
    let document = document();
    let text = document.to_string();
    for piece in text.split("#/components/schemas/").skip(1) {
        let name = piece.split('"').next().unwrap_or_default();
        let there = &document["components"]["schemas"][name];
        assert!(there.is_object(), "{name}");
    }
}
