//! `[routes.NAME]`.

mod comparison;
mod header_changes;
mod static_reply;

use crate::config::document::{
    Emptiness, Fields, Items, List, Section as _, ValueShape, Words as _, Zero, any, custom,
    empty_list, filled_texts, inner_table, table, text_form, texts, time, time_or_off, whole, word,
    words,
};
use crate::config::input::{At, Span};
use crate::config::presentation::{show, show_list, show_time};
use crate::config::report::{Code, Details as _};
use crate::config::value::{
    Direction, ValueError, condition_field, condition_parameter, condition_value, host,
    identity_field, identity_value, method, new_path, prefix, route_path,
};
use crate::key::IdentityField;
use crate::route::{Condition, HostPattern, PathPattern};
use crate::snapshot::AnswerTimeout;
use crate::snapshot::changes::Changes;
use comparison::{
    conditions, header_changes, identity_fields, show_option, shown_redirect, shown_respond,
    shown_timeout,
};
use header_changes::changes;
use http::Method;
use static_reply::{Redirect, Respond, respond};
use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;
use toml::de::DeValue;

table! {
    /// A rule that recognises requests and leads them to an upstream or an answer. The most specific route wins, never
    /// the first. An exact host goes before a wildcard, and a wildcard before any host. Then segment by segment a
    /// literal goes before a parameter, and a parameter before a rest. Then a route with methods goes before one for
    /// any method, and more conditions (`headers`, `query`, `scheme`, `groups`) before fewer. Where a condition fails, the next
    /// route is tried.
    Route { name, place } = ROUTES, "routes", "a route", named true, later &["retry"];

    /// Hosts of the route's requests: `api.example.com`, or `*.example.com` for all hosts below it.
    host: Items<HostPattern> = filled_texts(host, empty_list("leave it out for any host")), Words("any host"), "\"api.example.com\"",
        Route(|route| show(comparison::any(&route.rule.hosts)));

    /// Paths of the route's requests: `{name}` is one segment, `{*rest}` is all segments that follow, none included.
    path: PathPattern = text_form(route_path), Value("\"/{*rest}\""), "\"/v1/orders/{id}\"",
        Route(|route| show(route.rule.path.description()));

    /// Whether `/Admin` is another path than `/admin`. Choose `insensitive` if the upstream treats both as one path;
    /// otherwise requests in another case take a more general route, with only that route's limits. Only ASCII letters
    /// of fixed segments are compared in this way. Parameters are not: limits by `path:NAME` count them byte for byte.
    /// A route for the exact spelling takes precedence.
    path_case: PathCase = word(), Value("\"sensitive\""), "\"insensitive\"";

    /// Methods of the route's requests. `GET` stands for `HEAD` too.
    methods: Items<Method> = filled_texts(method, empty_list("leave it out for any method")), Words("any method"), "[\"GET\", \"POST\"]",
        Route(|route| show_list(&route.rule.methods));

    /// Fields that the route's requests have, with this value or with any (`true`). Several lines of a field are one
    /// value, joined by `, `.
    headers: Items<Condition> = custom(ValueShape::Conditions, headers), Words("any"), "{ x-version = \"2\" }",
        Route(|route| conditions(&route.rule, |one| matches!(one, Condition::Field(..))));

    /// Parameters in the query of the route's requests, with this value or with any (`true`). Names and values are
    /// compared decoded. A parameter that comes several times is one value, joined by `, `.
    query: Items<Condition> = custom(ValueShape::Conditions, query), Words("any"), "{ v = \"2\" }",
        Route(|route| conditions(&route.rule, |one| matches!(one, Condition::Query(..))));

    /// The scheme in which the route's requests came to the first proxy. A request is `https` where a peer of `trust`
    /// states it: in the last word of `X-Forwarded-Proto`, in `Forwarded` where the peer writes that field, else by the
    /// `:scheme` of an HTTP/2 request. Every other request is `http`. Over HTTP/1.1 a target of `https` is answered
    /// 400.
    scheme: Items<Condition> = custom(ValueShape::Choice(SchemeCondition::WORDS), scheme), Words("either"), "\"https\"",
        Route(|route| conditions(&route.rule, |one| matches!(one, Condition::Https(_))));

    /// Groups whose members the route is for; a client has to be in one of them. The next route takes requests of
    /// clients that are in none of them, or whose token is not trusted. The groups count as one condition, like a
    /// field.
    groups: Items<String> = filled_texts(any, empty_list("leave it out for any client")), Words("any client"), "[\"gold\", \"staff\"]",
        Route(|route| conditions(&route.rule, |one| matches!(one, Condition::Groups(_))));

    /// Whether clients must show a certificate. `required`: a request is answered 403 unless its handshake showed a
    /// trusted certificate, whatever its host is and whichever identity was chosen; identities with `client = { ..,
    /// verify = "optional" }` are sufficient. `none`: clients without a certificate are meant, and `check` does not
    /// warn if the route can be reached without an identity that demands certificates.
    client_cert: ClientCert = word(), Words("as the identity of the request's host demands"), "\"required\"",
        Route(|route| show(route.client_cert.unwrap_or("as the identity demands")));

    /// The beginning of the route's paths that the upstream does not see: `/api/orders` is forwarded as `/orders`. The
    /// query stays. Limits and the log see the path as it came.
    strip_prefix: PathPattern = text_form(prefix), Words("nothing"), "\"/api\"",
        Route(|route| show_option(route.strip_prefix.as_deref()));

    /// The path to forward instead, with the parameters of `path`, each as a whole segment. The query stays. A route
    /// has `rewrite` or `strip_prefix`, not both.
    rewrite: String = text_form(new_path), Words("the path that was matched"), "\"/v2/{*rest}\"",
        Route(|route| show_option(route.rewrite.as_deref()));

    /// Changes to a request's fields, after limits have read them. First `remove` takes lines away, then `set` leaves
    /// one line, then `add` appends a line. Fields that frame the message, belong to one connection, or that Tollgate
    /// writes itself cannot be changed.
    request_headers: Changes = inner_table(|read, fields| changes(read, Direction::Request, fields)), Words("none"), "{ set = { x-source = \"tollgate\" } }",
        Route(|route| header_changes(route.request_headers.as_ref()));

    /// Fields that tell servers who the client is, as templates of verified values: `{jwt:CLAIM}` of a trusted token,
    /// `{tls:subject}` and `{tls:fingerprint}` of the client's certificate, `{tier}`, the group whose tier applies to
    /// the request, `{group}`, the first group of this file that the client is in, and `{customer}`, the name behind its
    /// credential. Only groups by a token, a certificate, a cookie, a password (`basic`), or a secret field or parameter
    /// count here. Such fields are removed if clients send them. A field whose value is not known is not sent. In a
    /// value, bytes that are not visible ASCII are written `%XX`, and so are `%`, `,`, and every byte of the template's
    /// own text except letters and digits. Two values need a text between them that is not only letters and digits.
    forward_identity: Items<IdentityField> = custom(ValueShape::Lines, identity), Words("none"), "{ x-consumer = \"{jwt:sub}\", x-plan = \"{tier}\" }",
        Route(|route| identity_fields(route.identity.as_deref()));

    /// Changes to a response's fields on the way to the client. An error of Tollgate's own, such as a refusal, gets
    /// only fields that it does not have: none of its fields is replaced or removed.
    response_headers: Changes = inner_table(|read, fields| changes(read, Direction::Response, fields)), Words("none"), "{ remove = [\"server\"] }",
        Route(|route| header_changes(route.response_headers.as_ref()));

    /// Name of the upstream that the route's requests go to.
    upstream: String = text_form(any), Unless(&["redirect", "respond"]), "\"orders\"",
        Route(|route| show_option(route.upstream.as_deref()));

    /// Leads the route's requests elsewhere, in place of an upstream. `to` is a path, or a whole address from
    /// `https://` on, with the parameters of `path`; the query goes along. `status` is 301, 302, 303, 307 or 308 (the
    /// default). Limits decide before the redirect.
    redirect: Redirect = inner_table(whole), Words("none"), "{ to = \"/new/{*rest}\" }",
        Route(|route| shown_redirect(route.static_reply.as_ref()));

    /// Answers the route's requests, in place of an upstream. The default `status` is 200, the default `body` is empty,
    /// and the default `content_type` of a body is `text/plain; charset=utf-8`. Limits decide before the answer.
    respond: Respond = inner_table(respond), Words("none"), "{ status = 410 }",
        Route(|route| shown_respond(route.static_reply.as_ref()));

    /// Names of the limits of the route's requests, beside those of `[defaults]`. `"!NAME"` drops a limit of
    /// `[defaults]`. A request is charged only if all limits admit it.
    limits: Items<String> = texts(any), Words("none"), "[\"per-key\", \"smooth\"]",
        Route(|route| show_list(&route.limits));

    /// The longest time that a server may take for the head of its response. It counts from the last byte of the
    /// request's body or, without a body, from forwarding, after any hold. Earlier, time counts only while the server
    /// does not take bytes of the body that have come: `idle` and `min_rate` bound a slow client. Operating systems
    /// report progress in steps. So a server that has let bytes wait gets half of `timeout` more to take some of them,
    /// and the whole `timeout` more to answer, 1 s more at most. All attempts share this time. Beyond it the answer is
    /// 504. With `false` only `idle` applies. The time of a gRPC call is its `grpc-timeout`, or a `timeout` that is
    /// written in the file if that is shorter; without both, `idle` applies.
    timeout: Option<Duration> = time_or_off(), Words("30 s, but for calls of gRPC"), "\"5s\"", Route(|route| shown_timeout(route.timeout));

    /// The longest silence of the route's bodies, in either direction, and of its WebSockets, in place of that of
    /// `[server]`. `min_rate` is then measured over this time. Write a longer one for streams that are silent for long.
    idle: Duration = time(Zero::Refused), Words("that of `[server]`"), "\"10min\"",
        Route(|route| route.idle.map_or_else(|| show("the server's"), show_time));
}

/// The default time within which a server must answer.
const OWED: Duration = Duration::from_secs(30);

/// Whether two spellings of a path that differ only in case are different paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) enum PathCase {
    Sensitive,
    Insensitive,
}

/// The scheme of requests at the first proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) enum SchemeCondition {
    Http,
    Https,
}

/// Whether clients of a route must show a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) enum ClientCert {
    Required,
    None,
}

words! { ClientCert: Required "required", None "none" }
words! { PathCase: Sensitive "sensitive", Insensitive "insensitive" }
words! { SchemeCondition: Http "http", Https "https" }

pub(in crate::config::document) fn read_route(mut fields: Fields<'_>) -> Route {
    let mut route = Route::read(&mut fields);
    if route.path_case.get() == Some(&PathCase::Insensitive) {
        route.path = route.path.map(PathPattern::in_any_case);
    }
    route
}

impl Route {
    /// The longest time within which its servers must answer.
    pub(in crate::config) fn answer_timeout(&self) -> AnswerTimeout {
        match self.timeout.get() {
            None => AnswerTimeout::Unwritten(OWED),
            Some(None) => AnswerTimeout::Idle,
            Some(Some(time)) => AnswerTimeout::Written(*time),
        }
    }

    /// The route's conditions on fields, the query and the scheme.
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

/// Notes a name of `key` that came before, perhaps in another case.
fn come_once<N: Eq + Hash + Clone>(
    seen: &mut HashMap<N, Span>,
    key: &str,
    name: &At<N>,
    fields: &mut Fields<'_>,
) -> Option<()> {
    let Some(first) = seen.insert(name.value.clone(), name.span.clone()) else {
        return Some(());
    };
    fields
        .wrong(key, Code::Duplicate, "has a name twice")
        .at(&name.span, "the same name, whatever the case")
        .and(&first, "the first time");
    seen.insert(name.value.clone(), first);
    None
}

/// Names of fields, each with the template of its value.
fn identity(key: &'static str, fields: &mut Fields<'_>) -> List<IdentityField> {
    let mut seen = HashMap::new();
    let entries = fields.named(key, |fields, At { value: name, span }, value| {
        let name = At::new(fields.take(identity_field(&name), &span)?, span);
        come_once(&mut seen, key, &name, fields)?;
        let DeValue::String(text) = value.get_ref() else {
            let title = fields.title();
            let message = format!("a field under `{key}` in `{title}` takes a text");
            fields.error(Code::WrongType, message).at(&value.span(), "");
            return None;
        };
        let pieces = fields.take(identity_value(text), &value.span())?;
        Some(name.map(|name| IdentityField::new(name, pieces)))
    });
    fields.filled(key, entries, &NO_IDENTITY)
}

/// The report on a table without fields.
const NO_IDENTITY: Emptiness = Emptiness {
    message: "tells nothing of clients",
    label: "at least one field",
    help: "leave it out where servers need not know their clients",
};

fn scheme(key: &'static str, fields: &mut Fields<'_>) -> List<Condition> {
    let scheme = fields.choice::<SchemeCondition>(key);
    scheme.and_then(|scheme, span| {
        let condition = Condition::Https(scheme == SchemeCondition::Https);
        Some(vec![At::new(condition, span.clone())])
    })
}

/// The report on a table without conditions.
const NO_CONDITION: Emptiness = Emptiness {
    message: "asks for nothing",
    label: "at least one name",
    help: "leave it out where nothing is asked",
};

/// Names, each with a value, or with `true` for any value.
fn conditions_of<N: Eq + Hash + Clone, V>(
    key: &'static str,
    read_name: impl Fn(&str) -> Result<N, ValueError>,
    read_value: impl Fn(&str) -> Result<V, ValueError>,
    make: impl Fn(N, Option<V>) -> Condition,
    fields: &mut Fields<'_>,
) -> List<Condition> {
    let mut seen = HashMap::new();
    let conditions = fields.named(key, |fields, At { value: name, span }, value| {
        let name = At::new(fields.take(read_name(&name), &span)?, span);
        come_once(&mut seen, key, &name, fields)?;
        let wanted = match value.get_ref() {
            DeValue::Boolean(true) => None,
            DeValue::String(text) => Some(fields.take(read_value(text), &value.span())?),
            other => {
                let is_false = matches!(other, DeValue::Boolean(false));
                neither(key, is_false, &value.span(), fields);
                return None;
            }
        };
        Some(name.map(|name| make(name, wanted)))
    });
    fields.filled(key, conditions, &NO_CONDITION)
}

/// Notes a value that is neither a text nor `true`.
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
