//! The pages and the schema generated from the declarations of keys and diagnostics, and the table generated from
//! bounds; all are committed. With `UPDATE` set the tests write them.

mod one_client;
mod reference;
mod schema;

use super::document::TABLES;
use super::report::Code;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

const HEAD: &str = "\
<!-- Generated from src/config/report/pages. Change it there, then run the tests with UPDATE=1. -->

# Diagnostics

Every mistake in `gateway.toml` has a code in brackets after `error` or `warning`. Codes are stable; `tollgate explain
CODE` shows its page. Examples leave out what is not their point: a route, or an upstream named `api`.
";

/// The text of docs/diagnostics.md.
fn diagnostics() -> String {
    let mut out = HEAD.to_owned();
    for code in Code::ALL {
        let _ = write!(
            out,
            "\n## {code}\n\n{}\n\n{}\n",
            code.about(),
            code.page().trim()
        );
    }
    out
}

fn in_tree(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Compares a committed file with the generated text.
fn committed(path: &str, generated: &str) {
    let path = in_tree(path);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, generated).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(found, generated, "run the tests with UPDATE=1");
}

#[test]
fn the_committed_reference_is_the_generated_one() {
    committed("docs/configuration.md", &reference::reference());
}

#[test]
fn the_committed_pages_are_the_generated_ones() {
    committed("docs/diagnostics.md", &diagnostics());
}

#[test]
fn the_committed_table_of_what_one_client_may_cost_is_the_generated_one() {
    let page = std::fs::read_to_string(in_tree(one_client::PAGE)).unwrap();
    committed(one_client::PAGE, &one_client::renewed(&page));
}

#[test]
fn the_committed_schema_is_the_generated_one() {
    committed("gateway.schema.json", &schema::schema());
}

#[test]
fn every_key_has_a_meaning_and_an_example() {
    for key in TABLES.iter().flat_map(|table| table.keys) {
        assert!(
            key.about.ends_with('.') && !key.example.is_empty(),
            "{}",
            key.name
        );
    }
}
