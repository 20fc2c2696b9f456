//! One entry of `include` as it is written: a text, or a table that says what the files may do.

use super::super::super::diagnostic::{Code, Diagnostic};
use super::super::super::files::fence::AllowedPaths;
use super::super::super::grant::Grant;
use super::super::super::source::{At, Source, Span};
use super::super::super::value::{host, path};
use super::super::super::vocabulary::{INCLUDE, INCLUDE_ENTRY};
use super::super::fields::{self, Fields};
use super::super::upstream::not_empty;
use super::super::{List, Variables};
use std::sync::Arc;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Files to take in, and what they may do.
pub(super) struct Listed {
    pub(super) files: Vec<At<String>>,
    pub(super) grant: Arc<Grant>,
}

/// Every entry, as far as it can be read.
pub(super) fn all(
    source: &Source,
    value: &Spanned<DeValue<'_>>,
    variables: &Variables,
    found: &mut Vec<Diagnostic>,
) -> Vec<Listed> {
    let mut one = |item: &Spanned<DeValue<'_>>| match item.get_ref() {
        DeValue::String(_) if variables.has_failed(&item.span()) => None,
        DeValue::String(text) => Some(plain(source, At::new(text.to_string(), item.span()))),
        DeValue::Table(table) => Some(with_grant(source, table, item.span(), variables, found)),
        other => {
            found.push(no_entry(other, &item.span()));
            None
        }
    };
    match value.get_ref() {
        DeValue::Array(items) => items.iter().filter_map(one).collect(),
        _ => one(value).into_iter().collect(),
    }
}

fn no_entry(value: &DeValue<'_>, span: &Span) -> Diagnostic {
    Diagnostic::error(
        Code::WrongType,
        format!(
            "`{}` takes {}, not {}",
            INCLUDE.name,
            INCLUDE.shape.describe(),
            fields::describe(value)
        ),
    )
    .at(span, "")
    .help(format!(
        "for example `{} = {}`",
        INCLUDE.name, INCLUDE.example
    ))
}

/// A text grants nothing.
fn plain(source: &Source, file: At<String>) -> Listed {
    let grant = Grant {
        span: file.span.clone(),
        written: vec![("files", vec![as_written(source, &file.span)])],
        ..Grant::default()
    };
    Listed {
        files: vec![file],
        grant: Arc::new(grant),
    }
}

fn as_written(source: &Source, span: &Span) -> String {
    source
        .text()
        .get(span.clone())
        .unwrap_or_default()
        .to_owned()
}

fn with_grant(
    source: &Source,
    table: &DeTable<'_>,
    span: Span,
    variables: &Variables,
    found: &mut Vec<Diagnostic>,
) -> Listed {
    let mut fields = Fields::new(&INCLUDE_ENTRY, INCLUDE.name, span.clone(), table, found);
    let text = |text: &str| Ok(text.to_owned());
    let files = fields.texts("files", text);
    let files = not_empty(
        &mut fields,
        files,
        "files",
        "leave the entry out for no files",
    );
    let hosts = fields.texts("hosts", host);
    let hosts = not_empty(&mut fields, hosts, "hosts", "leave it out for any host");
    let paths = fields.texts("paths", path);
    let paths = not_empty(&mut fields, paths, "paths", "leave it out for any path");
    let secrets = fields.texts("secrets", text);
    let named = fields.texts("variables", text);
    let drops = fields.texts("drops", text);
    let mut allowed = Vec::new();
    for pattern in secrets.entries() {
        match AllowedPaths::read(&source.beside(pattern.span.start, &pattern.value)) {
            Ok(one) => allowed.push(one),
            Err(why) => fields.note(
                Diagnostic::error(Code::BadPattern, "this is no pattern of files")
                    .at(&pattern.span, why),
            ),
        }
    }
    let grant = Grant {
        span,
        written: written(source, table),
        hosts: (!hosts.is_absent()).then(|| values(&hosts)),
        paths: (!paths.is_absent()).then(|| values(&paths)),
        secrets: allowed,
        variables: values(&named),
        drops: drops.entries().to_vec(),
    };
    let files = files.entries().iter();
    let files = files.filter(|file| !variables.has_failed(&file.span));
    Listed {
        files: files.cloned().collect(),
        grant: Arc::new(grant),
    }
}

fn values<T: Clone>(list: &List<T>) -> Vec<T> {
    list.entries().iter().map(|at| at.value.clone()).collect()
}

/// The keys of an entry with their values as they stand in the file.
fn written(source: &Source, table: &DeTable<'_>) -> Vec<(&'static str, Vec<String>)> {
    let known = INCLUDE_ENTRY.keys.iter();
    let present = known.filter_map(|key| Some((key.name, table.get(key.name)?)));
    present
        .map(|(name, value)| match value.get_ref() {
            DeValue::Array(items) => {
                let items = items.iter().map(|item| as_written(source, &item.span()));
                (name, items.collect())
            }
            _ => (name, vec![as_written(source, &value.span())]),
        })
        .collect()
}
