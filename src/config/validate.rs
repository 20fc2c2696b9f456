//! Rules across tables: names resolve, every table has an effect, and no two routes claim the same request.
//!
//! In: a document. Out: diagnostics. Its rules, by subject:
//!
//! ```text
//! names                             every name that is used is defined, and every defined one is used
//! listeners                         entries of `listen`: their files, and what they expect
//! listeners/listen_addresses        two sockets for one address, upstreams that are this gateway
//! listeners/listen_addresses/place  where the gateway listens, arranged for that question
//! identities                        identities, and the listeners that offer them
//! identities/authorities            identities that are ordered, and their authorities
//! identities/unasked_certificates   limits by certificates, in a file that asks for none
//! store                             settings that contradict the store's address
//! store/redis                       settings of Redis in a file without one
//! groups                            every group is defined and used
//! routes                            two rules of equal rank for one request
//! routes/unreachable                settings that no request reaches
//! routes/case_bypass                a path in another case that reaches laxer limits
//! routes/rewrites                   a route has one end, and its path its parameters
//! routes/grpc                       calls of gRPC need servers of HTTP/2
//! routes/stripped_fields            fields that the file reads and the gateway drops
//! routes/forwarded_identity         `forward_identity` names what is verified
//! upstreams                         no server twice, no settings of TLS without TLS
//! upstreams/upstream_rules          rules of upstreams that have no effect
//! grants                            what included files may claim
//! grants/granted_upstreams          upstreams of other files
//! lints                             settings that are allowed and hardly intended
//! probe_request                     a request that a route would take, made up to see which others would
//! asked_store                       warnings that only a probe of the store finds
//! ```

mod asked_store;
mod grants;
mod groups;
mod identities;
mod lints;
mod listeners;
mod names;
pub mod probe_request;
mod routes;
mod store;
mod upstreams;

pub(super) use routes::rewrites::{redirected, template};
pub(super) use routes::stripped_fields::looks_at_method;

use super::SMALLEST;
use super::document::{Document, List};
use super::input::{At, source};
use super::report::{Code, Details as _, Findings};
use super::settings::groups::Groups;
use super::settings::limits;
use super::settings::number_files::NumberFiles;
use super::value::quoted;
use crate::limit::Limit;
use crate::route::{Rule, Table};
use std::collections::HashMap;
use std::fmt::Display;
use std::hash::Hash;
use std::sync::Arc;

/// The result of validation, complete when validation found no error.
#[derive(Debug, Default)]
pub(super) struct Validation {
    /// Every limit, in the order of the file.
    pub(super) limits: Vec<Arc<Limit>>,
    /// Every route's rule, in the order of the file.
    pub(super) rules: Vec<Rule>,
    /// The routes, arranged for lookups.
    pub(super) table: Table,
}

/// Applies the rules to `document`.
pub(super) fn check_document(
    document: &Document,
    groups: &Groups,
    numbers: &NumberFiles,
    source: &source::Source,
    found: &mut Findings,
) -> Validation {
    if emptiness(document, found) {
        return Validation::default();
    }
    listeners::check_listeners(document, found);
    listeners::listen_addresses::check_listen_addresses(document, source, found);
    store::store(document, found);
    let scene = limits::Scene {
        document,
        groups,
        numbers,
    };
    let compiled: Vec<Arc<Limit>> = document
        .limits
        .iter()
        .map(|limit| limits::together(limit, &document.store.together))
        .flat_map(|limit| limits::compile(&limit, &scene, found))
        .collect();
    for upstream in &document.upstreams {
        upstreams::check_upstream(upstream, found);
    }
    let file = names::WholeFile { document, source };
    names::check_names(file, found);
    groups::check_groups(file, found);
    routes::forwarded_identity::check_forwarded_identity(document, found);
    identities::check_identities(file, found);
    identities::authorities::check_authorities(file, found);
    grants::check_grants(document, source, found);
    grants::granted_upstreams::check_granted_upstreams(file, found);
    names::one_partial(document, found);
    names::public(document, found);
    names::parameters(document, found);
    routes::rewrites::check_rewrites(document, found);
    upstreams::upstream_rules::check_upstream_rules(document, found);
    lints::note_lints(document, found);
    routes::grpc::note_grpc(document, found);
    routes::stripped_fields::note_stripped_fields(document, found);
    identities::unasked_certificates::note_unasked(document, found);
    store::redis::note_redis(document, &compiled, found);
    routes::unreachable::note_unreachable(document, found);
    let (rules, table) = routes::arrange(document, found);
    routes::case_bypass::note_bypasses(document, &rules, &table, found);
    Validation {
        limits: compiled,
        rules,
        table,
    }
}

/// Notes a file without routes.
fn emptiness(document: &Document, found: &mut Findings) -> bool {
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
        found
            .error(Code::EmptyFile, "the file is empty")
            .help(SMALLEST);
    } else if !reported {
        let help = match document.upstreams.first() {
            Some(upstream) => {
                format!("add\n[routes.{0}]\nupstream = \"{0}\"", upstream.name.value)
            }
            None => SMALLEST.to_owned(),
        };
        found
            .error(Code::NoRoutes, "no route says where to send requests")
            .help(help);
    }
    nothing
}

/// Notes a repeated entry of a list, which is an error: one of the two was probably meant to be another entry.
fn repeated<'a, T: Eq + Hash + 'a>(
    list: impl IntoIterator<Item = &'a At<T>>,
    message: impl Fn(&T) -> String,
    found: &mut Findings,
) {
    for (first, second) in pairs(list) {
        found
            .error(Code::Duplicate, message(&second.value))
            .at(&second.span, "the second time")
            .and(&first.span, "the first time");
    }
}

/// A limit that a list names twice counts once. The list may have been meant to name another limit.
fn repeated_limit(list: &List<String>, owner: impl Display, found: &mut Findings) {
    for (first, second) in pairs(list.entries()) {
        let message = format!("{owner} names limit {} twice", quoted(&second.value));
        found
            .warning(Code::Duplicate, message)
            .at(&second.span, "the second time; it counts once")
            .and(&first.span, "the first time");
    }
}

/// The repeated entries of a list, each with the first equal entry.
fn pairs<'a, T: Eq + Hash + 'a>(
    list: impl IntoIterator<Item = &'a At<T>>,
) -> Vec<(&'a At<T>, &'a At<T>)> {
    let mut seen = HashMap::new();
    let pairs = list.into_iter().filter_map(|entry| {
        let first = *seen.entry(&entry.value).or_insert(entry);
        (!std::ptr::eq(first, entry)).then_some((first, entry))
    });
    pairs.collect()
}
