//! Rules across tables: names resolve, nothing is written for nothing, no two routes claim the same request.

mod routes;

use super::boot::admin_address;
use super::diagnostic::{Code, Diagnostic};
use super::document::{Document, List, Password};
use super::source::{At, Span};
use super::suggest::{all_of, nearest};
use super::value::quoted;
use super::{limits, value};
use crate::limit::Limit;
use crate::route::{Rule, Table};
use crate::store::Source;
use std::collections::HashSet;
use std::fmt::Display;
use std::hash::Hash;
use std::sync::Arc;

/// What the check has made on its way. Complete when no error was found.
#[derive(Debug, Default)]
pub(super) struct Checked {
    /// Every limit, in the order of the file.
    pub(super) limits: Vec<Arc<Limit>>,
    /// Every route's rule, in the order of the file.
    pub(super) rules: Vec<Rule>,
    /// The routes, arranged for finding.
    pub(super) table: Table,
}

/// Holds `document` against the rules.
pub(super) fn check(document: &Document, found: &mut Vec<Diagnostic>) -> Checked {
    if emptiness(document, found) {
        return Checked::default();
    }
    server(document, found);
    store(document, found);
    let compiled = document
        .limits
        .iter()
        .filter_map(|limit| limits::compile(limit, found))
        .collect();
    for upstream in &document.upstreams {
        let title = format!("upstream {}", quoted(&upstream.name.value));
        repeated(
            &upstream.servers,
            |server| format!("{title} has {server} twice"),
            found,
        );
        repeated_limit(&upstream.limits, &title, found);
    }
    names(document, found);
    let (rules, table) = routes::arrange(document, found);
    Checked {
        limits: compiled,
        rules,
        table,
    }
}

/// A file that sends nothing anywhere.
fn emptiness(document: &Document, found: &mut Vec<Diagnostic>) -> bool {
    const SMALLEST: &str = "the smallest file is\n\
        [upstreams.api]\n\
        servers = \"http://127.0.0.1:3000\"\n\
        \n\
        [routes.api]\n\
        upstream = \"api\"";
    if document.torn || !document.routes.is_empty() {
        return false;
    }
    let nothing = found.is_empty() && document.empty;
    // A misspelt or malformed `routes` has been reported.
    let reported = found.iter().any(|one| {
        matches!(one.code, Code::UnknownKey | Code::WrongType) && one.message.contains("route")
    });
    if nothing {
        found.push(Diagnostic::error(Code::EmptyFile, "the file says nothing").help(SMALLEST));
    } else if !reported {
        found.push(
            Diagnostic::error(Code::NoRoutes, "no route says where to send requests").help(
                match document.upstreams.first() {
                    Some(upstream) => {
                        format!("add\n[routes.{0}]\nupstream = \"{0}\"", upstream.name.value)
                    }
                    None => SMALLEST.to_owned(),
                },
            ),
        );
    }
    nothing
}

fn server(document: &Document, found: &mut Vec<Diagnostic>) {
    let listen = &document.server.listen;
    if let Some(at) = listen.at().filter(|at| at.value.is_empty()) {
        found.push(
            Diagnostic::error(Code::EmptyList, "`listen` in `[server]` names no address")
                .at(&at.span, "at least one address")
                .help("leave it out for `\":8080\"`"),
        );
    }
    repeated(
        listen,
        |address| format!("`listen` has {address} twice"),
        found,
    );
    if let (Some(admin), Some(table)) = (admin_address(document), &document.admin)
        && let Some(taken) = listen
            .entries()
            .iter()
            .find(|at| at.value == admin && admin.port() != 0)
    {
        let place = table.listen.at().map_or(&taken.span, |at| &at.span);
        let mut diagnostic = Diagnostic::error(
            Code::Conflict,
            format!("the admin listener and the server are both to listen on {admin}"),
        )
        .at(place, "")
        .help("give `[admin]` an address of its own");
        if place != &taken.span {
            diagnostic = diagnostic.and(&taken.span, "taken here");
        }
        found.push(diagnostic);
    }
    for network in document.server.trust.entries() {
        if network.value.prefix_len() == 0 {
            found.push(
                Diagnostic::warning(
                    Code::TrustsEveryone,
                    "everyone is trusted to say which address they come from",
                )
                .at(&network.span, "every address")
                .help("name the networks of your own proxies only"),
            );
        }
    }
}

fn store(document: &Document, found: &mut Vec<Diagnostic>) {
    let written = &document.store;
    let in_url = match written.url.at() {
        Some(At {
            value: Source::Redis(target),
            span,
        }) if target.password.is_some() => Some(span),
        _ => None,
    };
    let memory = matches!(written.url.get(), None | Some(Source::Memory)) && !written.url.is_bad();
    match (written.password.at(), in_url) {
        (Some(password), Some(url)) => found.push(
            Diagnostic::error(Code::Conflict, "the store has two passwords")
                .at(&password.span, "one is here")
                .and(url, "the other is in the address")
                .help("take it out of the address"),
        ),
        (Some(password), None) if memory => found.push(
            Diagnostic::error(
                Code::Conflict,
                "the store has a password, but no Redis to give it to",
            )
            .at(&password.span, "")
            .help("write the `url` of the Redis, as `url = \"redis://host:6379/0\"`"),
        ),
        _ => {}
    }
    let literal = written
        .password
        .at()
        .filter(|at| matches!(at.value, Password::Literal(_)))
        .map(|at| &at.span);
    if let Some(span) = literal.or(in_url) {
        found.push(
            Diagnostic::warning(Code::SecretInFile, "a password is written into the file")
                .at(span, "whoever reads the file knows it")
                .help("write `password = { file = \"/run/secrets/redis\" }` or `password = { env = \"REDIS_PASSWORD\" }`"),
        );
    }
}

/// Every name that is used is defined, and the other way round.
fn names(document: &Document, found: &mut Vec<Diagnostic>) {
    let limits: Vec<&At<String>> = document.limits.iter().map(|limit| &limit.name).collect();
    let upstreams: Vec<&At<String>> = document
        .upstreams
        .iter()
        .map(|upstream| &upstream.name)
        .collect();
    let mut used: HashSet<&str> = HashSet::new();
    let mut led_to: HashSet<&str> = HashSet::new();
    let known: HashSet<&str> = limits.iter().map(|name| name.value.as_str()).collect();
    let targets: HashSet<&str> = upstreams.iter().map(|name| name.value.as_str()).collect();
    let users = document
        .routes
        .iter()
        .map(|route| {
            (
                format!("route {}", quoted(&route.name.value)),
                &route.limits,
            )
        })
        .chain(document.upstreams.iter().map(|upstream| {
            (
                format!("upstream {}", quoted(&upstream.name.value)),
                &upstream.limits,
            )
        }));
    let mut unread = document.torn;
    for (user, list) in users {
        unread |= list.is_bad();
        for name in list.entries() {
            used.insert(&name.value);
            if !known.contains(name.value.as_str()) && !document.torn {
                let near = near(name, &limits, found);
                used.extend(near.map(|near| near.value.as_str()));
                found.push(undefined(
                    Code::UnknownLimit,
                    &format!("{user} is held to limit"),
                    "limits",
                    name,
                    near,
                    &limits,
                ));
            }
        }
    }
    for route in &document.routes {
        unread |= route.upstream.is_bad() || route.upstream.is_absent();
        let Some(name) = route.upstream.at() else {
            continue;
        };
        led_to.insert(&name.value);
        if !document.torn && !targets.contains(name.value.as_str()) {
            let near = near(name, &upstreams, found);
            led_to.extend(near.map(|near| near.value.as_str()));
            let user = format!(
                "route {} sends requests to upstream",
                quoted(&route.name.value)
            );
            found.push(undefined(
                Code::UnknownUpstream,
                &user,
                "upstreams",
                name,
                near,
                &upstreams,
            ));
        }
    }
    if unread {
        return;
    }
    for limit in document
        .limits
        .iter()
        .filter(|limit| !used.contains(limit.name.value.as_str()))
    {
        let message = format!("limit {} limits nothing", quoted(&limit.name.value));
        found.push(
            unused(
                Code::UnusedLimit,
                message,
                &limit.place,
                "no route and no upstream names it",
            )
            .help(format!(
                "add it to the `limits` of a route: `limits = [\"{}\"]`",
                limit.name.value
            )),
        );
    }
    for upstream in document
        .upstreams
        .iter()
        .filter(|upstream| !led_to.contains(upstream.name.value.as_str()))
    {
        let message = format!("upstream {} gets no requests", quoted(&upstream.name.value));
        found.push(unused(
            Code::UnusedUpstream,
            message,
            &upstream.place,
            "no route leads here",
        ));
    }
}

fn unused(code: Code, message: String, place: &Span, label: &str) -> Diagnostic {
    Diagnostic::warning(code, message).at(place, label)
}

/// The definition that was probably meant. Not sought once there are more mistakes than anybody reads: it takes time.
fn near<'a>(
    name: &At<String>,
    defined: &[&'a At<String>],
    found: &[Diagnostic],
) -> Option<&'a At<String>> {
    const ENOUGH: usize = 100;
    if found.len() > ENOUGH {
        return None;
    }
    let near = nearest(
        &name.value,
        defined.iter().map(|defined| defined.value.as_str()),
    )?;
    defined
        .iter()
        .find(|defined| defined.value == near)
        .copied()
}

fn undefined(
    code: Code,
    user: &str,
    table: &str,
    name: &At<String>,
    near: Option<&At<String>>,
    defined: &[&At<String>],
) -> Diagnostic {
    const MOST: usize = 8;
    let diagnostic = Diagnostic::error(
        code,
        format!("{user} {}, which does not exist", quoted(&name.value)),
    )
    .at(
        &name.span,
        format!(
            "there is no `[{table}.{}]`",
            value::quoted(&name.value).trim_matches('`')
        ),
    );
    match near {
        Some(near) => diagnostic
            .and(
                &near.span,
                format!("{} is defined here", quoted(&near.value)),
            )
            .help(format!("did you mean {}?", quoted(&near.value))),
        None if defined.is_empty() => diagnostic.help(format!("define it: `[{table}.NAME]`")),
        None => {
            let names: Vec<&str> = defined
                .iter()
                .take(MOST)
                .map(|name| name.value.as_str())
                .collect();
            let more = if defined.len() > MOST {
                " and more"
            } else {
                ""
            };
            diagnostic.help(format!("defined are {}{more}", all_of(&names)))
        }
    }
}

/// An entry of a list that stands in it twice is an error: one of the two was meant to be another.
fn repeated<T: Eq + Hash + Display>(
    list: &List<T>,
    message: impl Fn(&T) -> String,
    found: &mut Vec<Diagnostic>,
) {
    for (first, second) in pairs(list) {
        found.push(
            Diagnostic::error(Code::Duplicate, message(&second.value))
                .at(&second.span, "the second time")
                .and(&first.span, "the first time"),
        );
    }
}

/// A limit named twice is checked once: nothing is lost, but something else may have been meant.
fn repeated_limit(list: &List<String>, title: &str, found: &mut Vec<Diagnostic>) {
    for (first, second) in pairs(list) {
        found.push(
            Diagnostic::warning(
                Code::Duplicate,
                format!("{title} names limit {} twice", quoted(&second.value)),
            )
            .at(&second.span, "the second time; it counts once")
            .and(&first.span, "the first time"),
        );
    }
}

fn pairs<T: Eq + Hash>(list: &List<T>) -> Vec<(&At<T>, &At<T>)> {
    let mut seen = std::collections::HashMap::new();
    let mut pairs = Vec::new();
    for entry in list.entries() {
        match seen.get(&entry.value) {
            Some(first) => pairs.push((*first, entry)),
            None => {
                seen.insert(&entry.value, entry);
            }
        }
    }
    pairs
}
