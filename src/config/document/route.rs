//! `[routes.NAME]`.

mod comparison;

use super::super::diagnostic::{Code, Details as _};
use super::super::outline::{show, show_list, show_time};
use super::super::source::{At, Span};
use super::super::value::{
    Direction, ValueError, condition_field, condition_parameter, condition_value, host, method,
    new_path, path, prefix,
};
use super::super::vocabulary::{Emptiness, ValueShape};
use super::fields::{Fields, Zero};
use super::form::{
    any, custom, empty_list, filled_texts, inner_table, text, texts, time, whole, word,
};
use super::header_changes::changes;
use super::static_reply::{Redirect, Respond, respond};
use super::table::{Section as _, table};
use super::words::{Words as _, words};
use super::{Items, List};
use crate::route::{Condition, HostPattern, PathPattern};
use crate::snapshot::changes::Changes;
use comparison::{conditions, header_changes, show_option, shown_redirect, shown_respond};
use http::Method;
use std::time::Duration;
use toml::de::DeValue;

table! {
    /// Recognises requests and says where they go. The most specific route wins, never the first: exact host before
    /// wildcard before any, then segment by segment literal before parameter before rest, then methods before any, then
    /// more conditions (`headers`, `query`, `scheme`) before fewer; where one fails the next is tried.
    Route { name, place } = ROUTES, "routes", "a route", named true, later &["retry"];

    /// Hosts it is for: `api.example.com`, or `*.example.com` for all below it.
    host: Items<HostPattern> = filled_texts(host, empty_list("leave it out for any host")), Words("any host"), "\"api.example.com\"",
        Route(|route| show(comparison::any(&route.rule.hosts)));

    /// Paths it is for: `{name}` is one segment, `{*rest}` all that follow, none included.
    path: PathPattern = text(path), Value("\"/{*rest}\""), "\"/v1/orders/{id}\"",
        Route(|route| show(route.rule.path.told()));

    /// Whether `/Admin` is `/admin`: `insensitive` where the upstream takes it for that, or requests in another case
    /// meet a more general route with its limits alone. ASCII letters of fixed segments, not of parameters, which
    /// limits by `path:NAME` count byte for byte; a route for the very spelling goes before.
    path_case: PathCase = word(), Value("\"sensitive\""), "\"insensitive\"";

    /// Methods it is for; `GET` stands for `HEAD` too.
    methods: Items<Method> = filled_texts(method, empty_list("leave it out for any method")), Words("any method"), "[\"GET\", \"POST\"]",
        Route(|route| show_list(&route.rule.methods));

    /// Fields that its requests have: with this value, or with any (`true`). Several lines of a field are one value,
    /// joined by `, `.
    headers: Items<Condition> = custom(ValueShape::Conditions, headers), Words("any"), "{ x-version = \"2\" }",
        Route(|route| conditions(&route.rule, |one| matches!(one, Condition::Field(..))));

    /// Parameters that the query of its requests has: names and values as they are when decoded, or `true` for any
    /// value. A parameter that comes several times is one value, joined by `, `.
    query: Items<Condition> = custom(ValueShape::Conditions, query), Words("any"), "{ v = \"2\" }",
        Route(|route| conditions(&route.rule, |one| matches!(one, Condition::Query(..))));

    /// How its requests came to the first proxy: `https` where a peer of `trust` says so (in the last word of
    /// `X-Forwarded-Proto`, or in `Forwarded` where that is the field it writes, else by the `:scheme` of an HTTP/2
    /// request; over HTTP/1.1 a target of `https` is answered 400), `http` in all other cases.
    scheme: Items<Condition> = custom(ValueShape::Choice(Scheme::WORDS), scheme), Words("either"), "\"https\"",
        Route(|route| conditions(&route.rule, |one| matches!(one, Condition::Https(_))));

    /// What its paths begin with and the upstream does not see: `/api/orders` is forwarded as `/orders`. The query
    /// stays; limits and the log see the path as it came.
    strip_prefix: PathPattern = text(prefix), Words("nothing"), "\"/api\"",
        Route(|route| show_option(route.strip_prefix.as_deref()));

    /// The path to forward instead, with the parameters of `path`, each as a whole segment; the query stays. Not beside
    /// `strip_prefix`.
    rewrite: String = text(new_path), Words("the path that was matched"), "\"/v2/{*rest}\"",
        Route(|route| show_option(route.rewrite.as_deref()));

    /// Changes to a request's fields, after limits have read them: first `remove`, then `set` (one line, whatever was
    /// there), then `add` (a line more). Fields that frame the message, belong to one connection, or that Tollgate
    /// writes itself cannot be changed.
    request_headers: Changes = inner_table(|read, fields| changes(read, Direction::Request, fields)), Words("none"), "{ set = { x-source = \"tollgate\" } }",
        Route(|route| header_changes(route.request_headers.as_ref()));

    /// What becomes of a response's fields on the way to the client. An error that Tollgate answers itself, a refusal too, gets
    /// what it does not have: nothing it says is replaced or removed.
    response_headers: Changes = inner_table(|read, fields| changes(read, Direction::Response, fields)), Words("none"), "{ remove = [\"server\"] }",
        Route(|route| header_changes(route.response_headers.as_ref()));

    /// Name of the upstream that its requests go to.
    upstream: String = text(any), Unless(&["redirect", "respond"]), "\"orders\"",
        Route(|route| show_option(route.upstream.as_deref()));

    /// Instead of an upstream: leads its requests elsewhere. `to` is a path, or all from `https://` on, with the
    /// parameters of `path`; the query goes along. `status` is 301, 302, 303, 307 or 308 (the default). Limits hold
    /// before it.
    redirect: Redirect = inner_table(whole), Words("none"), "{ to = \"/new/{*rest}\" }",
        Route(|route| shown_redirect(route.own.as_ref()));

    /// Instead of an upstream: answers this, with `status` 200, an empty `body`, and `text/plain; charset=utf-8` as
    /// `content_type` of a body unless they are written. Limits hold before it.
    respond: Respond = inner_table(respond), Words("none"), "{ status = 410 }",
        Route(|route| shown_respond(route.own.as_ref()));

    /// Names of the limits its requests are held to, beside those of `[defaults]`, of which `"!NAME"` drops one; all of
    /// them admit a request, or none is charged.
    limits: Items<String> = texts(any), Words("none"), "[\"per-key\", \"smooth\"]",
        Route(|route| show_list(&route.limits));

    /// Longest from forwarding, after any hold, to the head of the response; beyond it the answer is 504.
    timeout: Duration = time(Zero::Refused), Value("\"30s\""), "\"5s\"", Route(|route| show_time(route.timeout));
}

/// Are two spellings of a path that differ in case two paths?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) enum PathCase {
    Sensitive,
    Insensitive,
}

/// How requests came to the first proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) enum Scheme {
    Http,
    Https,
}

words! { PathCase: Sensitive "sensitive", Insensitive "insensitive" }
words! { Scheme: Http "http", Https "https" }

pub(super) fn read(mut fields: Fields<'_>) -> Route {
    let mut route = Route::read(&mut fields);
    if route.path_case.get() == Some(&PathCase::Insensitive) {
        route.path = route.path.map(PathPattern::in_any_case);
    }
    route
}

impl Route {
    /// What it asks of fields, of the query, and of the scheme.
    pub(in crate::config) fn conditions(&self) -> impl Iterator<Item = &At<Condition>> {
        let all = [&self.headers, &self.query, &self.scheme];
        all.into_iter().flat_map(|list| list.entries())
    }
}

fn headers(key: &'static str, fields: &mut Fields<'_>) -> List<Condition> {
    let (name, value) = (condition_field, condition_value);
    conditions_of(key, name, value, Condition::Field, fields)
}

fn query(key: &'static str, fields: &mut Fields<'_>) -> List<Condition> {
    let text = condition_parameter;
    conditions_of(key, text, text, Condition::Query, fields)
}

fn scheme(key: &'static str, fields: &mut Fields<'_>) -> List<Condition> {
    let scheme = fields.choice::<Scheme>(key);
    scheme.and_then(|scheme, span| {
        let condition = Condition::Https(scheme == Scheme::Https);
        Some(vec![At::new(condition, span.clone())])
    })
}

/// The report on a table that asks for nothing.
const NO_CONDITION: Emptiness = Emptiness {
    message: "asks for nothing",
    label: "at least one name",
    help: "leave it out where nothing is asked",
};

/// Names, each with the value it is to have, or `true` for any.
fn conditions_of<N: PartialEq + Clone, V>(
    key: &'static str,
    read_name: impl Fn(&str) -> Result<N, ValueError>,
    read_value: impl Fn(&str) -> Result<V, ValueError>,
    make: impl Fn(N, Option<V>) -> Condition,
    fields: &mut Fields<'_>,
) -> List<Condition> {
    let mut seen: Vec<(N, Span)> = Vec::new();
    let conditions = fields.named(key, |fields, At { value: name, span }, value| {
        let name = fields.take(read_name(&name), &span)?;
        if let Some((_, first)) = seen.iter().find(|(other, _)| *other == name) {
            fields
                .wrong(key, Code::Duplicate, "has a name twice")
                .at(&span, "the same name, whatever the case")
                .and(first, "the first time");
            return None;
        }
        seen.push((name.clone(), span.clone()));
        let wanted = match value.get_ref() {
            DeValue::Boolean(true) => None,
            DeValue::String(text) => Some(fields.take(read_value(text), &value.span())?),
            other => {
                let is_false = matches!(other, DeValue::Boolean(false));
                neither(key, is_false, &value.span(), fields);
                return None;
            }
        };
        Some(At::new(make(name, wanted), span))
    });
    fields.filled(key, conditions, &NO_CONDITION)
}

/// Notes what stands for a value and is none.
fn neither(key: &str, is_false: bool, span: &Span, fields: &mut Fields<'_>) {
    let title = fields.title();
    let message = format!("a name under `{key}` in `{title}` takes a text, or `true`");
    fields
        .error(Code::WrongType, message)
        .at(span, "")
        .help(if is_false {
            "to take requests without it, leave it out: a route with more conditions is tried first"
        } else {
            "write the value in quotes, or `true` for any"
        });
}
