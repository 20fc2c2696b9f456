//! Rules across tables: names resolve, every table has an effect, no two routes claim the same request.

mod case_bypass;
mod grants;
mod groups;
mod lints;
mod names;
mod redis;
mod rewrites;
mod routes;
mod store;
mod stripped_fields;
mod unreachable;

pub(super) use rewrites::{redirected, template};
pub(super) use stripped_fields::looks_at_method;

use super::boot::admin_address;
use super::diagnostic::{Code, Diagnostic};
use super::document::{Document, List};
use super::groups::Groups;
use super::limits;
use super::source::{self, At};
use super::value::quoted;
use crate::limit::Limit;
use crate::route::{Rule, Table};
use std::fmt::Display;
use std::hash::Hash;
use std::sync::Arc;

/// What validation yields, complete when it found no error.
#[derive(Debug, Default)]
pub(super) struct Validation {
    /// Every limit, in the order of the file.
    pub(super) limits: Vec<Arc<Limit>>,
    /// Every route's rule, in the order of the file.
    pub(super) rules: Vec<Rule>,
    /// The routes, arranged for finding.
    pub(super) table: Table,
}

/// Holds `document` against the rules.
pub(super) fn check(
    document: &Document,
    groups: &Groups,
    source: &source::Source,
    found: &mut Vec<Diagnostic>,
) -> Validation {
    if emptiness(document, found) {
        return Validation::default();
    }
    server(document, found);
    store::store(document, found);
    let compiled: Vec<Arc<Limit>> = document
        .limits
        .iter()
        .map(|limit| limits::together(limit, &document.store.together))
        .flat_map(|limit| limits::compile(&limit, groups, found))
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
    let file = names::WholeFile { document, source };
    names::check(file, found);
    groups::check(file, found);
    grants::check(document, source, found);
    names::one_partial(document, found);
    names::public(document, found);
    names::parameters(document, found);
    rewrites::check(document, found);
    lints::note(document, found);
    stripped_fields::note(document, found);
    redis::note(document, &compiled, found);
    unreachable::note(document, found);
    let (rules, table) = routes::arrange(document, found);
    case_bypass::note(document, &rules, &table, found);
    Validation {
        limits: compiled,
        rules,
        table,
    }
}

/// A file without routes.
fn emptiness(document: &Document, found: &mut Vec<Diagnostic>) -> bool {
    const SMALLEST: &str = "the smallest file is\n\
        [upstreams.api]\n\
        servers = \"http://127.0.0.1:3000\"\n\
        \n\
        [routes.api]\n\
        upstream = \"api\"";
    let lost = document.lost.contains(&("routes", None));
    if lost || !document.torn.is_empty() || !document.routes.is_empty() {
        return false;
    }
    let nothing = found.is_empty() && document.empty;
    // A misspelt or malformed `routes` has been reported.
    let reported = found.iter().any(|one| {
        matches!(one.code, Code::UnknownKey | Code::WrongType) && one.message.contains("route")
    });
    if nothing {
        found.push(Diagnostic::error(Code::EmptyFile, "the file is empty").help(SMALLEST));
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
                    "every client is trusted to state the address that it comes from",
                )
                .at(&network.span, "every address")
                .help("name the networks of your own proxies only"),
            );
        } else if network.value.addr() != network.value.network() {
            found.push(
                Diagnostic::warning(
                    Code::HostBits,
                    format!("{} is more than one address", network.value),
                )
                .at(&network.span, format!("all of {}", network.value.trunc()))
                .help(format!(
                    "write `\"{}\"` for the network, or `\"{}\"` for the address alone",
                    network.value.trunc(),
                    network.value.addr()
                )),
            );
        }
    }
}

/// An entry that a list has twice is an error: one of the two was probably meant to be another.
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

/// A limit that a list names twice counts once. The list may have meant another.
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
