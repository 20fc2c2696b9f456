//! What is written of Redis where none is asked, or in vain: leases, and what to do without it.

use super::super::diagnostic::{Code, Diagnostic};
use super::super::document::{CounterStore, Document, Limit as Written};
use super::super::source::Span;
use crate::limit::{LeaseSetting, Limit, Scope};
use std::collections::HashMap;
use std::sync::Arc;

/// Notes all of it. `compiled` are the document's limits.
pub(super) fn note(document: &Document, compiled: &[Arc<Limit>], found: &mut Vec<Diagnostic>) {
    let mut by_name: HashMap<&str, &Limit> = HashMap::new();
    for limit in compiled {
        by_name.entry(&limit.name).or_insert(limit);
    }
    for written in &document.limits {
        let Some(limit) = by_name.get(written.name.value.as_str()).copied() else {
            continue;
        };
        unleased(document, written, limit, found);
        if document.counted == CounterStore::Memory && limit.scope == Scope::Cluster {
            let says = format!(
                "limit `{}` says what to do without Redis, and there is none",
                written.name.value
            );
            never_away(written.on_down.at().map(|at| &at.span), says, found);
        }
    }
    if document.counted == CounterStore::Memory {
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

/// Leases that the limit could give, and no Redis to take them from. What the limit itself rules out has been noted.
fn unleased(document: &Document, written: &Written, limit: &Limit, found: &mut Vec<Diagnostic>) {
    let asked = written
        .lease
        .at()
        .filter(|at| at.value != LeaseSetting::Off);
    let Some(lease) = asked.filter(|_| limit.why_unleased().is_none()) else {
        return;
    };
    let name = &written.name.value;
    if document.counted == CounterStore::Memory {
        let why = "counters are in this process, where nobody need be asked";
        found.push(
            Diagnostic::warning(Code::Conflict, format!("limit `{name}` gives no leases"))
                .at(&lease.span, why)
                .help("leave `lease` out"),
        );
    }
}
