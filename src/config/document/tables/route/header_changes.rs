//! `request_headers` and `response_headers` of a route.

use crate::config::document::{
    Emptiness, Fields, Items, Section as _, Setting, ValueShape, any, custom, table, texts,
};
use crate::config::input::{At, Span};
use crate::config::report::{Code, Details as _};
use crate::config::value::{Direction, editable_field, field_value};
use crate::snapshot::changes::Changes;
use http::{HeaderName, HeaderValue};
use std::collections::HashMap;
use toml::de::DeValue;

table! {
    /// A change of fields.
    HeaderChanges = ROUTE_FIELDS, "routes", "a change of fields", empty Some(Emptiness {
            message: "changes nothing",
            label: "",
            help: "write what to `set`, to `add` or to `remove`, or leave it out",
        });

    /// Fields that get one line with this value. A value may be `{ file = "..." }` or `{ env = "..." }`.
    set: HeaderLines = custom(ValueShape::Lines, lines), Words("none"), "{ x-source = \"tollgate\" }";

    /// Fields that get a further line, with values as under `set`.
    add: HeaderLines = custom(ValueShape::Lines, lines), Words("none"), "{ vary = \"origin\" }";

    /// Fields that are removed.
    remove: Items<String> = texts(any), Words("none"), "[\"server\"]";
}

/// Names of fields with their values, as written.
type HeaderLines = Vec<(At<String>, At<String>)>;

/// The changes of fields in this direction; `None` if one of the changes is a mistake.
pub(in crate::config::document) fn changes(
    read: HeaderChanges,
    direction: Direction,
    fields: &mut Fields<'_>,
) -> Option<Changes> {
    let set = resolved("set", &read.set, direction, fields);
    let add = resolved("add", &read.add, direction, fields);
    let mut remove = Vec::new();
    for at in read.remove.entries() {
        let name = fields.take(editable_field(direction, "remove", &at.value), &at.span);
        remove.extend(name.map(|name| At::new(name, at.span.clone())));
    }
    let is_whole = !read.is_bad() && remove.len() == read.remove.entries().len();
    let (Some(set), Some(add), true) = (set, add, is_whole) else {
        return None;
    };
    let removed: HashMap<&HeaderName, &Span> =
        remove.iter().map(|at| (&at.value, &at.span)).collect();
    for (name, _) in set.iter().chain(&add) {
        if let Some(also) = removed.get(&name.value) {
            contradiction(name, also, fields);
            return None;
        }
    }
    let plain = |lines: Vec<(At<HeaderName>, HeaderValue)>| {
        let lines = lines.into_iter();
        lines.map(|(name, value)| (name.value, value)).collect()
    };
    let changes = Changes {
        remove: remove.into_iter().map(|at| at.value).collect(),
        set: plain(set),
        add: plain(add),
    };
    if changes == Changes::default() {
        fields.note_empty();
        return None;
    }
    Some(changes)
}

fn contradiction(name: &At<HeaderName>, removed: &Span, fields: &mut Fields<'_>) {
    let title = fields.title();
    let message = format!("`{}` in `{title}` is removed and written", name.value);
    fields
        .error(Code::Conflict, message)
        .at(&name.span, "written")
        .and(removed, "removed")
        .help("only `set` replaces what is there");
}

/// Names with texts.
fn lines(key: &'static str, fields: &mut Fields<'_>) -> Setting<HeaderLines> {
    fields.named(key, |fields, name, value| match value.get_ref() {
        DeValue::String(text) => Some((name, At::new(text.to_string(), value.span()))),
        _ => {
            let message = format!("a field under `{key}` in `{}` takes a text", fields.title());
            fields.error(Code::WrongType, message).at(&value.span(), "");
            None
        }
    })
}

/// The fields and values that `lines` name, each field once; `None` if one of the lines is a mistake.
fn resolved(
    key: &'static str,
    lines: &Setting<HeaderLines>,
    direction: Direction,
    fields: &mut Fields<'_>,
) -> Option<Vec<(At<HeaderName>, HeaderValue)>> {
    let mut resolved: Vec<(At<HeaderName>, HeaderValue)> = Vec::new();
    let mut seen: HashMap<HeaderName, &Span> = HashMap::new();
    let mut good = true;
    for (name, value) in lines.written().into_iter().flatten() {
        let field = fields.take(editable_field(direction, key, &name.value), &name.span);
        let value_read = field_value(direction, &name.value, &value.value);
        let value = fields.take(value_read, &value.span);
        let (Some(field), Some(value)) = (field, value) else {
            good = false;
            continue;
        };
        let first = *seen.entry(field.clone()).or_insert(&name.span);
        if !std::ptr::eq(first, &raw const name.span) {
            fields
                .wrong(key, Code::Duplicate, &format!("has `{field}` twice"))
                .at(&name.span, "the same field, whatever the case")
                .and(first, "the first time");
            good = false;
        }
        resolved.push((At::new(field, name.span.clone()), value));
    }
    good.then_some(resolved)
}
