//! What is written of Redis where none is asked, or in vain: leases that no request can have, and what to do without it.

use super::super::diagnostic::{Code, Diagnostic};
use super::super::document::{Counted, Document, Limit as Written};
use super::super::leases;
use super::super::source::Span;
use crate::limit::{Leasing, Limit, Scope};
use std::sync::Arc;

/// Notes all of it. `compiled` are the document's limits.
pub(super) fn note(document: &Document, compiled: &[Arc<Limit>], found: &mut Vec<Diagnostic>) {
    for written in &document.limits {
        let own = |limit: &&Arc<Limit>| *limit.name == *written.name.value;
        let Some(limit) = compiled.iter().find(own) else {
            continue;
        };
        unleased(document, written, (limit, compiled), found);
        if document.counted == Counted::Here && limit.scope == Scope::Cluster {
            let says = format!(
                "limit `{}` says what to do without Redis, and there is none",
                written.name.value
            );
            never_away(written.on_down.at().map(|at| &at.span), says, found);
        }
    }
    if document.counted == Counted::Here {
        let says = "the store says what to do without Redis, and there is none".to_owned();
        never_away(document.store.on_down.at().map(|at| &at.span), says, found);
    }
}

fn never_away(on_down: Option<&Span>, says: String, found: &mut Vec<Diagnostic>) {
    if let Some(span) = on_down {
        found.push(
            Diagnostic::warning(Code::Conflict, says)
                .at(span, "counters are in this process, which is never away")
                .help("leave `on_down` out, or write a Redis as the `url` of `[store]`"),
        );
    }
}

/// Leases that the limit could give, and no request that could have one. What the limit itself rules out has been noted.
fn unleased(
    document: &Document,
    written: &Written,
    (limit, compiled): (&Limit, &[Arc<Limit>]),
    found: &mut Vec<Diagnostic>,
) {
    let asked = written.lease.at().filter(|at| at.value != Leasing::Off);
    let Some(lease) = asked.filter(|_| limit.why_unleased().is_none()) else {
        return;
    };
    let name = &written.name.value;
    let warning = |why: &str| {
        Diagnostic::warning(Code::Conflict, format!("limit `{name}` gives no leases"))
            .at(&lease.span, why)
    };
    if document.counted == Counted::Here {
        let why = "counters are in this process, where nobody need be asked";
        return found.push(warning(why).help("leave `lease` out"));
    }
    if let Some(candidate) = written.candidate.at() {
        let why = "permits are for requests that one limit alone counts";
        return found.push(
            warning(why)
                .and(&candidate.span, "counted with each request")
                .help("leave `lease` out, or the candidate"),
        );
    }
    if let Some(other) = always_beside(document, limit, compiled) {
        let written = document.limits.iter();
        let mut written = written.filter(|one| *one.name.value == *other.name);
        let why = "permits are for requests that one limit alone counts";
        let mut vain = warning(why).help("leave `lease` out: every request asks Redis");
        if let Some(written) = written.next() {
            vain = vain.and(
                &written.name.span,
                "every request that it counts has this one, too",
            );
        }
        found.push(vain);
    }
}

/// A limit beside this one, where every request that it counts has another.
fn always_beside<'a>(
    document: &Document,
    limit: &Limit,
    compiled: &'a [Arc<Limit>],
) -> Option<&'a Arc<Limit>> {
    let mut beside = None;
    let routes = document.routes.iter().map(|route| {
        document
            .limits_of(route)
            .map(|at| &at.value)
            .collect::<Vec<_>>()
    });
    let unrouted = document
        .defaults
        .limits
        .entries()
        .iter()
        .map(|at| &at.value)
        .collect();
    for names in routes.chain([unrouted]) {
        if !names.iter().any(|name| **name == *limit.name) {
            continue;
        }
        let all: Vec<Arc<Limit>> = compiled
            .iter()
            .filter(|one| names.iter().any(|name| **name == *one.name))
            .cloned()
            .collect();
        let other = leases::always_beside(limit, &all)?;
        beside = compiled.iter().find(|one| one.id == other.id);
    }
    beside
}
