//! A report as SARIF 2.1.0, which code scanning reads.

use super::MOST_LISTED;
use crate::config::input::Source;
use crate::config::report::pages::Page;
use crate::config::report::{Caret, Code, Diagnostic, Report, Severity};
use serde_json::{Value, json};
use std::fmt::Write as _;

impl Report {
    /// One run with every mistake as a result, and every code as a rule.
    #[must_use]
    pub fn sarif(&self) -> String {
        let listed = self.diagnostics.iter().take(MOST_LISTED);
        let results: Vec<Value> = listed.map(|one| result(&self.source, one)).collect();
        let rules: Vec<Value> = Code::ALL.iter().copied().map(rule).collect();
        let driver = json!({
            "name": "tollgate",
            "semanticVersion": env!("CARGO_PKG_VERSION"),
            "rules": rules,
        });
        let log = json!({
            "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
            "version": "2.1.0",
            "runs": [{
                "tool": { "driver": driver },
                "columnKind": "unicodeCodePoints",
                "results": results,
            }],
        });
        format!("{log:#}\n")
    }
}

fn rule(code: Code) -> Value {
    let page = Page::of(code);
    json!({
        "id": code.as_str(),
        "shortDescription": { "text": code.about() },
        "help": { "text": page.text(), "markdown": page.markdown() },
    })
}

fn result(source: &Source, diagnostic: &Diagnostic) -> Value {
    let level = match diagnostic.severity {
        Severity::Error => "error",
        Severity::Warning | Severity::Ignored => "warning",
    };
    let index = Code::ALL.iter().position(|code| *code == diagnostic.code);
    let place = match &diagnostic.primary {
        Some(primary) => location(source, primary),
        None => {
            json!({ "physicalLocation": { "artifactLocation": { "uri": uri(source.name()) } } })
        }
    };
    let mut result = json!({
        "ruleId": diagnostic.code.as_str(),
        "ruleIndex": index,
        "level": level,
        "message": { "text": super::sentences(diagnostic) },
        "locations": [place],
    });
    if diagnostic.severity == Severity::Ignored {
        result["suppressions"] = json!([{ "kind": "inSource" }]);
    }
    if !diagnostic.others.is_empty() {
        let others = diagnostic.others.iter().enumerate().map(|(id, label)| {
            let mut other = location(source, label);
            other["id"] = id.into();
            if !label.text.is_empty() {
                other["message"] = json!({ "text": label.text });
            }
            other
        });
        result["relatedLocations"] = others.collect();
    }
    result
}

fn location(source: &Source, label: &Caret) -> Value {
    let start = source.shown_position(label.span.start);
    let end = source.shown_end(&label.span);
    json!({
        "physicalLocation": {
            "artifactLocation": { "uri": uri(&source.place(label.span.start)) },
            "region": {
                "startLine": start.line,
                "startColumn": start.column,
                "endLine": end.line,
                "endColumn": end.column,
            },
        },
    })
}

/// A relative path stays relative to the working folder of the check.
fn uri(path: &str) -> String {
    let mut uri = String::from(if path.starts_with('/') { "file://" } else { "" });
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            let _ = write!(uri, "%{byte:02X}");
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse;

    #[test]
    fn the_shape_is_that_of_sarif() {
        let text = "[limits.a]\nby = [\"ip\", \"ip/24\"]\nrate = \"10\"\n";
        let report = parse("of mine/gate\u{e9}.toml", text).unwrap_err();
        let log: Value = serde_json::from_str(&report.sarif()).unwrap();
        assert_eq!(log["version"], "2.1.0");
        let run = &log["runs"][0];
        assert_eq!(run["columnKind"], "unicodeCodePoints");
        let driver = &run["tool"]["driver"];
        assert_eq!(driver["name"], "tollgate");
        let rules = driver["rules"].as_array().unwrap();
        assert_eq!(rules.len(), Code::ALL.len());
        for rule in rules {
            assert!(
                rule["shortDescription"]["text"].is_string() && rule["help"]["text"].is_string()
            );
        }
        let results = run["results"].as_array().unwrap();
        assert_eq!(results.len(), report.diagnostics.len());
        for result in results {
            let index = usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap();
            assert_eq!(rules[index]["id"], result["ruleId"]);
            assert!(["error", "warning"].contains(&result["level"].as_str().unwrap()));
            assert!(!result["message"]["text"].as_str().unwrap().is_empty());
            let place = &result["locations"][0]["physicalLocation"];
            assert_eq!(
                place["artifactLocation"]["uri"],
                "of%20mine/gate%C3%A9.toml"
            );
        }
        let twice = results
            .iter()
            .find(|one| one["ruleId"] == "duplicate")
            .unwrap();
        assert_eq!(
            twice["locations"][0]["physicalLocation"]["region"],
            json!({ "startLine": 2, "startColumn": 13, "endLine": 2, "endColumn": 20 })
        );
        assert_eq!(
            twice["relatedLocations"][0]["message"]["text"],
            "the first time"
        );
    }
}
