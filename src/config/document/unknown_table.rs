//! Tables and names that are not what they should be: what is meant, and what to say.

use super::super::diagnostic::{Code, Diagnostic};
use super::super::source::{At, Span};
use super::super::suggest::{all_of, nearest};
use super::super::value::quoted;
use super::super::vocabulary::{Default, Table};
use super::{INCLUDE, TABLES, fields};
use toml::de::{DeTable, DeValue};

/// The table that one of an unknown name stands for: the nearest by name, or else the one whose required keys it has.
pub(super) fn meant(name: &str, value: &DeValue<'_>) -> Option<&'static Table> {
    let table = |meant: &str| TABLES.iter().find(|table| table.name == meant).copied();
    if let Some(near) = nearest(name, TABLES.iter().map(|table| table.name)) {
        return table(near);
    }
    let DeValue::Table(entries) = value else {
        return None;
    };
    let mut entries = entries.values().map(|entry| entry.get_ref());
    let Some(DeValue::Table(first)) = entries.next() else {
        return None;
    };
    let known = |table: &Table| {
        first
            .keys()
            .filter(|key| table.key(key.get_ref()).is_some())
            .count()
    };
    // Of equals the first.
    let likely = TABLES.iter().rev().copied();
    likely
        .filter(|table| table.named && has_required(table, first))
        .max_by_key(|table| known(table))
}

fn has_required(table: &Table, fields: &DeTable<'_>) -> bool {
    let mut required = table
        .keys
        .iter()
        .filter(|key| matches!(key.default, Default::Required | Default::Unless(_)));
    required.any(|key| fields.contains_key(key.name))
}

/// A table or key at the top level that does not exist; `meant` is the one it probably stands for.
pub(super) fn table(
    name: &str,
    span: &Span,
    value: &DeValue<'_>,
    meant: Option<&Table>,
) -> Diagnostic {
    let what = if matches!(value, DeValue::Table(_)) {
        "table"
    } else {
        "key"
    };
    let owner = TABLES
        .iter()
        .find(|table| what == "key" && table.key(name).is_some());
    let near_include = || nearest(name, [INCLUDE.name]).is_some();
    let help = match (owner, meant) {
        (None, _) if near_include() => format!("did you mean `{}`?", INCLUDE.name),
        (Some(owner), _) => format!("`{name}` belongs under `{}`", owner.title("NAME")),
        (_, Some(meant)) => format!("did you mean `{}`?", meant.name),
        _ => {
            let names: Vec<&str> = TABLES.iter().map(|table| table.name).collect();
            format!("the tables are {}", all_of(&names))
        }
    };
    Diagnostic::error(Code::UnknownKey, format!("unknown {what} {}", quoted(name)))
        .at(span, "")
        .help(help)
}

/// `limits = 3`, `limits = []`, `[[limits]]`.
pub(super) fn not_a_table(
    vocabulary: &Table,
    name: &str,
    value: &DeValue<'_>,
    span: &Span,
) -> Diagnostic {
    Diagnostic::error(
        Code::WrongType,
        format!(
            "{} is a table, not {}",
            quoted(name),
            fields::describe(value)
        ),
    )
    .at(span, "")
    .help(format!(
        "write `{}`, and its keys below it",
        vocabulary.title("NAME")
    ))
}

/// `[limits] rate = ...`: a key where a name belongs.
pub(super) fn misplaced(vocabulary: &Table, name: &At<String>, value: &DeValue<'_>) -> Diagnostic {
    if vocabulary.key(&name.value).is_none() {
        return not_a_table(vocabulary, &name.value, value, &name.span);
    }
    Diagnostic::error(
        Code::WrongType,
        format!("`{}` stands in `[{}]` itself", name.value, vocabulary.name),
    )
    .at(
        &name.span,
        format!(
            "which {} is this about?",
            vocabulary.name.trim_end_matches('s')
        ),
    )
    .help(format!("give it a name: `{}`", vocabulary.title("NAME")))
}

/// Names go into response fields, metrics and Redis keys.
pub(super) fn check_name(vocabulary: &Table, name: &At<String>, found: &mut Vec<Diagnostic>) {
    let good = (1..=64).contains(&name.value.len())
        && name
            .value
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
    if !good {
        found.push(
            Diagnostic::error(
                Code::BadName,
                format!(
                    "{} cannot be the name of {}",
                    quoted(&name.value),
                    vocabulary.noun
                ),
            )
            .at(
                &name.span,
                "letters, digits, `_` and `-`, at most 64 of them",
            )
            .note("names appear in response fields, metrics and Redis keys"),
        );
    }
}
