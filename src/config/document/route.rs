//! `[routes.NAME]` as written.

use super::super::diagnostic::{Code, Diagnostic};
use super::super::source::{At, Span};
use super::super::value::{
    Direction, ValueError, condition_field, condition_parameter, condition_value, host, method,
    new_path, path, prefix,
};
use super::answers::{Redirect, Respond, redirect, respond};
use super::changes::changes;
use super::fields::{Fields, Zero};
use super::target::not_empty;
use super::{Given, List};
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
    pub(in crate::config) path: Given<PathPattern>,
    pub(in crate::config) path_case: Given<PathCase>,
    pub(in crate::config) methods: List<Method>,
    /// In fields, in the query, and the scheme: each with its place.
    pub(in crate::config) conditions: [List<Condition>; 3],
    pub(in crate::config) strip_prefix: Given<PathPattern>,
    /// Written as a path is.
    pub(in crate::config) rewrite: Given<String>,
    pub(in crate::config) request_headers: Given<Changes>,
    pub(in crate::config) response_headers: Given<Changes>,
    pub(in crate::config) upstream: Given<String>,
    pub(in crate::config) redirect: Given<Redirect>,
    pub(in crate::config) respond: Given<Respond>,
    pub(in crate::config) limits: List<String>,
    pub(in crate::config) timeout: Given<Duration>,
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
        Given::Yes(At { value, span }) => {
            let condition = At::new(Condition::Https(value), span.clone());
            Given::Yes(At::new(vec![condition], span))
        }
        Given::No => Given::No,
        Given::Bad | Given::Partly(_) => Given::Bad,
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
        Given::Yes(at) if path_case.get() == Some(&PathCase::Insensitive) => {
            Given::Yes(at.map(PathPattern::in_any_case))
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
        return Given::No;
    };
    let DeValue::Table(table) = value else {
        return fields.wrong_type(key, value, &whole);
    };
    let mut read: Vec<(N, Given<Option<V>>, Span)> = Vec::new();
    let mut good = true;
    for (name, value) in table {
        let Given::Yes(At { value: name, span }) =
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
            DeValue::Boolean(true) => Given::Yes(At::new(None, value.span())),
            DeValue::String(text) => match fields.take(read_value(text), value.span()) {
                Given::Yes(at) => Given::Yes(at.map(Some)),
                _ => Given::Bad,
            },
            other => {
                let is_false = matches!(other, DeValue::Boolean(false));
                fields.note(neither(fields.title(), key, is_false, &value.span()));
                Given::Bad
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
        return Given::Bad;
    }
    let made = read
        .into_iter()
        .filter_map(|(name, wanted, span)| match wanted {
            Given::Yes(wanted) => Some(At::new(make(name, wanted.value), span)),
            _ => None,
        });
    let made = At::new(made.collect(), whole);
    match good {
        true => Given::Yes(made),
        false => Given::Partly(made),
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
