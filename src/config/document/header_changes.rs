//! `request_headers` and `response_headers` of a route as written.

use super::super::diagnostic::{Code, Diagnostic};
use super::super::source::{At, Span};
use super::super::value::{Direction, editable_field, field_value};
use super::super::vocabulary::ROUTE_FIELDS;
use super::Setting;
use super::fields::Fields;
use crate::snapshot::changes::Changes;
use http::{HeaderName, HeaderValue};
use toml::de::DeValue;

/// What stands under `key`.
pub(super) fn changes(
    route: &str,
    key: &'static str,
    side: Direction,
    fields: &mut Fields<'_>,
) -> Setting<Changes> {
    let Some((value, whole)) = fields.value(key) else {
        return Setting::Absent;
    };
    let DeValue::Table(table) = value else {
        return fields.wrong_type(key, value, &whole);
    };
    let name = format!("{route}.{key}");
    let read = fields.inner(&ROUTE_FIELDS, &name, (table, whole.clone()), |mut inner| {
        let set = lines("set", side, &mut inner);
        let add = lines("add", side, &mut inner);
        let remove = inner.texts("remove", |text| editable_field(side, text));
        let (Some(set), Some(add)) = (set, add) else {
            return None;
        };
        if remove.is_bad() {
            return None;
        }
        let removed = remove.entries();
        for (name, _) in set.iter().chain(&add) {
            if let Some(also) = removed.iter().find(|at| at.value == name.value) {
                contradiction(name, &also.span, &mut inner);
                return None;
            }
        }
        let plain = |lines: Vec<(At<HeaderName>, HeaderValue)>| {
            let lines = lines.into_iter();
            lines.map(|(name, value)| (name.value, value)).collect()
        };
        Some(Changes {
            remove: removed.iter().map(|at| at.value.clone()).collect(),
            set: plain(set),
            add: plain(add),
        })
    });
    match read {
        Some(changes) if changes == Changes::default() => {
            let nothing = Diagnostic::error(
                Code::EmptyList,
                format!("`{key}` in `{}` changes nothing", fields.title()),
            )
            .at(&whole, "")
            .help("write what to `set`, to `add` or to `remove`, or leave it out");
            fields.note(nothing);
            Setting::Invalid
        }
        Some(changes) => Setting::Valid(At::new(changes, whole)),
        None => Setting::Invalid,
    }
}

fn contradiction(name: &At<HeaderName>, removed: &Span, fields: &mut Fields<'_>) {
    let diagnostic = Diagnostic::error(
        Code::Conflict,
        format!(
            "`{}` in `{}` is removed and written",
            name.value,
            fields.title()
        ),
    )
    .at(&name.span, "written")
    .and(removed, "removed")
    .help("`set` alone replaces what is there");
    fields.note(diagnostic);
}

/// Names with their values; nothing when one of them is a mistake.
fn lines(
    key: &'static str,
    side: Direction,
    fields: &mut Fields<'_>,
) -> Option<Vec<(At<HeaderName>, HeaderValue)>> {
    let Some((value, whole)) = fields.value(key) else {
        return Some(Vec::new());
    };
    let DeValue::Table(table) = value else {
        let _: Setting<()> = fields.wrong_type(key, value, &whole);
        return None;
    };
    let mut lines: Vec<(At<HeaderName>, HeaderValue)> = Vec::new();
    let mut good = true;
    for (name, value) in table {
        let written = name.get_ref().as_ref();
        let name = fields.take(editable_field(side, written), name.span());
        let value = match value.get_ref() {
            DeValue::String(text) => fields.take(field_value(side, written, text), value.span()),
            _ => {
                let wrong = Diagnostic::error(
                    Code::WrongType,
                    format!("a field under `{key}` in `{}` takes a text", fields.title()),
                )
                .at(&value.span(), "");
                fields.note(wrong);
                Setting::Invalid
            }
        };
        let (Setting::Valid(name), Setting::Valid(value)) = (name, value) else {
            good = false;
            continue;
        };
        if let Some((first, _)) = lines.iter().find(|(other, _)| other.value == name.value) {
            let twice = Diagnostic::error(
                Code::Duplicate,
                format!("`{key}` in `{}` has `{}` twice", fields.title(), name.value),
            )
            .at(&name.span, "the same field, whatever the case")
            .and(&first.span, "the first time");
            fields.note(twice);
            good = false;
        }
        lines.push((name, value.value));
    }
    good.then_some(lines)
}
