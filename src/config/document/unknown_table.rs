//! Unknown tables and names: finds the table that was probably meant, and reports the mistake.

use super::foreign_words::ForeignName;
use super::vocabulary::{Default, Table};
use super::{INCLUDE, TABLES, table_named, written_value};
use crate::config::input::{At, Span};
use crate::config::report::{Code, Details as _, Findings, all_of, nearest};
use crate::config::value::{is_name, quoted};
use toml::de::{DeTable, DeValue};

/// The table that an unknown name probably means: the table with the nearest name, or else the table whose required
/// keys are present. A word of others, `foreign`, means only a table that its advice offers.
pub(super) fn meant(
    name: &str,
    value: &DeValue<'_>,
    foreign: Option<&ForeignName>,
) -> Option<&'static Table> {
    let suggestion = nearest(name, TABLES.iter().map(|table| table.name));
    if let Some(suggestion) = suggestion.filter(|_| foreign.is_none()) {
        return table_named(suggestion);
    }
    let DeValue::Table(entries) = value else {
        return None;
    };
    let mut entries = entries.values().map(|entry| entry.get_ref());
    let Some(DeValue::Table(first)) = entries.next() else {
        return None;
    };
    let known = |table: &Table| {
        let keys = first.keys();
        keys.filter(|key| table.key(key.get_ref()).is_some())
            .count()
    };
    // Among equally near tables, the first one wins.
    let likely = TABLES.iter().rev().copied();
    likely
        .filter(|table| table.named && has_required(table, first))
        .filter(|table| foreign.is_none_or(|foreign| foreign.offers(table)))
        .max_by_key(|table| known(table))
}

fn has_required(table: &Table, fields: &DeTable<'_>) -> bool {
    let mut required = table
        .keys
        .iter()
        .filter(|key| matches!(key.default, Default::Required | Default::Unless(_)));
    required.any(|key| fields.contains_key(key.name))
}

/// Notes a table or key at the top level that does not exist. `meant` is the table that was probably meant, `foreign`
/// the meaning of the name at others.
pub(super) fn note_unknown(
    name: &str,
    span: &Span,
    value: &DeValue<'_>,
    meant: Option<&Table>,
    foreign: Option<&ForeignName>,
    found: &mut Findings,
) {
    let is_table = value.is_table();
    let mut tables = TABLES.iter();
    let owner = tables.find(|table| !is_table && table.key(name).is_some());
    let is_include = || nearest(name, [INCLUDE.name]).is_some();
    let foreign = foreign
        .filter(|_| meant.is_none())
        .map(|foreign| foreign.advice(None));
    let help = match (owner, meant) {
        _ if foreign.is_some() => foreign.unwrap_or_default(),
        (None, _) if is_include() => format!("did you mean `{}`?", INCLUDE.name),
        (Some(owner), _) => format!("`{name}` belongs under `{}`", owner.title("NAME")),
        (_, Some(meant)) => format!("did you mean `{}`?", meant.name),
        _ => {
            let names: Vec<&str> = TABLES.iter().map(|table| table.name).collect();
            format!("the tables are {}", all_of(&names))
        }
    };
    let what = if is_table { "table" } else { "key" };
    found
        .error(Code::UnknownKey, format!("unknown {what} {}", quoted(name)))
        .at(span, "")
        .help(help);
}

/// Notes `limits = 3`, `limits = []`, `[[limits]]`.
pub(super) fn note_other_type(
    vocabulary: &Table,
    name: &str,
    value: &DeValue<'_>,
    span: &Span,
    found: &mut Findings,
) {
    let (name, title) = (quoted(name), vocabulary.title("NAME"));
    let message = format!("{name} is a table, not {}", written_value::describe(value));
    found
        .error(Code::WrongType, message)
        .at(span, "")
        .help(format!("write `{title}`, and its keys below it"));
}

/// The advice about a table inside the named table `outer`, as in `[routes.a.b]`.
pub(super) fn dotted_name(
    vocabulary: &Table,
    outer: &str,
    inner: &str,
    value: &DeValue<'_>,
) -> Option<String> {
    let DeValue::Table(keys) = value else {
        return None;
    };
    let mut tables = TABLES.iter();
    let is_top = tables.any(|table| std::ptr::eq(*table, vocabulary));
    let is_key = TABLES.iter().any(|table| table.key(inner).is_some());
    let mut keys = keys.keys();
    let is_alike = keys.any(|key| vocabulary.key(key.get_ref()).is_some());
    let is_dotted = vocabulary.named && is_top && is_alike && !is_key;
    is_dotted.then(|| {
        let table = vocabulary.name;
        format!("a name has no dot: write `[{table}.{outer}-{inner}]`")
    })
}

/// Notes `[routes.a.b]` where `[routes.a]` has only such tables. The dot is then the one mistake, and `[routes.a]` is
/// not looked at.
pub(super) fn note_dotted(
    vocabulary: &Table,
    outer: &At<String>,
    inner: &DeTable<'_>,
    found: &mut Findings,
) -> bool {
    let advice = |name: &str, value: &DeValue<'_>| {
        let advice = dotted_name(vocabulary, &outer.value, name, value)?;
        let names = vocabulary.keys.iter().map(|key| key.name);
        let has_other_advice =
            ForeignName::find(Some(vocabulary), name).is_some() || nearest(name, names).is_some();
        (!has_other_advice).then_some(advice)
    };
    let all = inner.iter().map(|(name, value)| {
        let advice = advice(name.get_ref(), value.get_ref())?;
        Some((name, advice))
    });
    let all: Vec<_> = all.collect::<Option<_>>().unwrap_or_default();
    let title = vocabulary.title(&outer.value);
    for (name, advice) in &all {
        let shown = quoted(name.get_ref());
        found
            .error(
                Code::UnknownKey,
                format!("unknown key {shown} in `{title}`"),
            )
            .at(
                &name.span(),
                format!("not a setting of {}", vocabulary.noun),
            )
            .help(advice.clone());
    }
    !all.is_empty()
}

/// Notes `[limits] rate = ...`: a key where a name belongs.
pub(super) fn note_misplaced(
    vocabulary: &Table,
    name: &At<String>,
    value: &DeValue<'_>,
    found: &mut Findings,
) {
    if vocabulary.key(&name.value).is_none() {
        return note_other_type(vocabulary, &name.value, value, &name.span, found);
    }
    let table = vocabulary.name;
    let message = format!("`{}` belongs in `[{table}]` itself", name.value);
    let noun = vocabulary.noun;
    let one = noun.split_once(' ').map_or(noun, |(_, one)| one);
    found
        .error(Code::WrongType, message)
        .at(&name.span, format!("which {one} is this about?"))
        .help(format!("give it a name: `{}`", vocabulary.title("NAME")));
}

/// Notes a name that response fields, metrics or Redis keys cannot contain.
pub(super) fn check_name(vocabulary: &Table, name: &At<String>, found: &mut Findings) {
    if !is_name(&name.value, b"_-") {
        let shown = quoted(&name.value);
        let message = format!("{shown} cannot be the name of {}", vocabulary.noun);
        let label = "letters, digits, `_` and `-`, at most 64 of them";
        found
            .error(Code::BadName, message)
            .at(&name.span, label)
            .note("names appear in response fields, metrics and Redis keys");
    }
}
