//! `[routes.NAME]` as written.

use super::super::diagnostic::{Code, Diagnostic};
use super::super::source::{At, Span};
use super::super::value::{
    Direction, ValueError, condition_field, condition_parameter, condition_value, host, method,
    new_path, path, prefix,
};
use super::fields::{Fields, Zero};
use super::header_changes::changes;
use super::static_reply::{Redirect, Respond, redirect, respond};
use super::upstream::not_empty;
use super::{List, Setting};
use crate::route::{Condition, HostPattern, PathPattern};
use crate::snapshot::changes::Changes;
use http::Method;
use std::time::Duration;
use toml::de::DeValue;

/// Are two spellings of a path that differ in case two paths?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) enum PathCase {
    Sensitive,
    Insensitive,
}

/// `[routes.NAME]`.
#[derive(Debug)]
pub(in crate::config) struct Route {
    pub(in crate::config) name: At<String>,
    pub(in crate::config) place: Span,
    pub(in crate::config) host: List<HostPattern>,
    pub(in crate::config) path: Setting<PathPattern>,
    pub(in crate::config) path_case: Setting<PathCase>,
    pub(in crate::config) methods: List<Method>,
    /// In fields, in the query, and the scheme: each with its place.
    pub(in crate::config) conditions: [List<Condition>; 3],
    pub(in crate::config) strip_prefix: Setting<PathPattern>,
    /// Written as a path is.
    pub(in crate::config) rewrite: Setting<String>,
    pub(in crate::config) request_headers: Setting<Changes>,
    pub(in crate::config) response_headers: Setting<Changes>,
    pub(in crate::config) upstream: Setting<String>,
    pub(in crate::config) redirect: Setting<Redirect>,
    pub(in crate::config) respond: Setting<Respond>,
    pub(in crate::config) limits: List<String>,
    pub(in crate::config) timeout: Setting<Duration>,
}

pub(super) fn route(name: At<String>, mut fields: Fields<'_>) -> Route {
    let host = fields.texts("host", host);
    let host = not_empty(&mut fields, host, "host", "leave it out for any host");
    let methods = fields.texts("methods", method);
    let methods = not_empty(
        &mut fields,
        methods,
        "methods",
        "leave it out for any method",
    );
    let headers = conditions(
        &mut fields,
        "headers",
        condition_field,
        condition_value,
        Condition::Field,
    );
    let query = conditions(
        &mut fields,
        "query",
        condition_parameter,
        condition_parameter,
        Condition::Query,
    );
    let scheme = fields.choice("scheme", &[("http", false), ("https", true)], &[]);
    let scheme = match scheme {
        Setting::Valid(At { value, span }) => {
            let condition = At::new(Condition::Https(value), span.clone());
            Setting::Valid(At::new(vec![condition], span))
        }
        Setting::Absent => Setting::Absent,
        Setting::Invalid | Setting::Partial(_) => Setting::Invalid,
    };
    let [request_headers, response_headers] = [
        ("request_headers", Direction::Request),
        ("response_headers", Direction::Response),
    ]
    .map(|(key, side)| changes(&name.value, key, side, &mut fields));
    let (redirect, respond) = (
        redirect(&name.value, &mut fields),
        respond(&name.value, &mut fields),
    );
    let cases = [
        ("sensitive", PathCase::Sensitive),
        ("insensitive", PathCase::Insensitive),
    ];
    let path_case = fields.choice("path_case", &cases, &[]);
    let path = match fields.text("path", path) {
        Setting::Valid(at) if path_case.get() == Some(&PathCase::Insensitive) => {
            Setting::Valid(at.map(PathPattern::in_any_case))
        }
        path => path,
    };
    Route {
        place: fields.place(),
        name,
        host,
        path,
        path_case,
        methods,
        conditions: [headers, query, scheme],
        strip_prefix: fields.text("strip_prefix", prefix),
        rewrite: fields.text("rewrite", new_path),
        request_headers,
        response_headers,
        redirect,
        respond,
        upstream: fields.text("upstream", |text| Ok(text.to_owned())),
        limits: fields.texts("limits", |text| Ok(text.to_owned())),
        timeout: fields.time("timeout", Zero::Refused),
    }
}

/// Names, each with the value it is to have, or `true` for any.
fn conditions<N: PartialEq, V>(
    fields: &mut Fields<'_>,
    key: &'static str,
    read_name: impl Fn(&str) -> Result<N, ValueError>,
    read_value: impl Fn(&str) -> Result<V, ValueError>,
    make: impl Fn(N, Option<V>) -> Condition,
) -> List<Condition> {
    let Some((value, whole)) = fields.value(key) else {
        return Setting::Absent;
    };
    let DeValue::Table(table) = value else {
        return fields.wrong_type(key, value, &whole);
    };
    let mut read: Vec<(N, Setting<Option<V>>, Span)> = Vec::new();
    let mut good = true;
    for (name, value) in table {
        let Setting::Valid(At { value: name, span }) =
            fields.take(read_name(name.get_ref()), name.span())
        else {
            good = false;
            continue;
        };
        if let Some((_, _, first)) = read.iter().find(|(other, ..)| *other == name) {
            let twice = Diagnostic::error(
                Code::Duplicate,
                format!("`{key}` in `{}` has a name twice", fields.title()),
            )
            .at(&span, "the same name, whatever the case")
            .and(first, "the first time");
            fields.note(twice);
            good = false;
            continue;
        }
        let wanted = match value.get_ref() {
            DeValue::Boolean(true) => Setting::Valid(At::new(None, value.span())),
            DeValue::String(text) => match fields.take(read_value(text), value.span()) {
                Setting::Valid(at) => Setting::Valid(at.map(Some)),
                _ => Setting::Invalid,
            },
            other => {
                let is_false = matches!(other, DeValue::Boolean(false));
                fields.note(neither(fields.title(), key, is_false, &value.span()));
                Setting::Invalid
            }
        };
        good &= !wanted.is_bad();
        read.push((name, wanted, span));
    }
    if read.is_empty() && good {
        let nothing = Diagnostic::error(
            Code::EmptyList,
            format!("`{key}` in `{}` asks for nothing", fields.title()),
        )
        .at(&whole, "at least one name")
        .help("leave it out where nothing is asked");
        fields.note(nothing);
        return Setting::Invalid;
    }
    let made = read
        .into_iter()
        .filter_map(|(name, wanted, span)| match wanted {
            Setting::Valid(wanted) => Some(At::new(make(name, wanted.value), span)),
            _ => None,
        });
    let made = At::new(made.collect(), whole);
    match good {
        true => Setting::Valid(made),
        false => Setting::Partial(made),
    }
}

/// What stands for a value and is none.
fn neither(title: &str, key: &str, is_false: bool, span: &Span) -> Diagnostic {
    let diagnostic = Diagnostic::error(
        Code::WrongType,
        format!("a name under `{key}` in `{title}` takes a text, or `true`"),
    )
    .at(span, "");
    match is_false {
        true => diagnostic.help(
            "to take requests without it, leave it out: a route with more conditions is tried first",
        ),
        false => diagnostic.help("write the value in quotes, or `true` for any"),
    }
}
