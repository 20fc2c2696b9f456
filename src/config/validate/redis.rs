//! Settings of Redis in a file without one: leases, and `on_down`.

use super::super::diagnostic::{Code, Diagnostic};
use super::super::document::{CounterStore, Document, Limit as Written};
use super::super::source::Span;
use crate::limit::{LeaseSetting, Limit, Scope};
use std::collections::HashMap;
use std::sync::Arc;

/// Notes settings without effect. `compiled` are the document's limits.
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
                "limit `{}` has `on_down`, but the file names no Redis",
                written.name.value
            );
            never_away(written.on_down.at().map(|at| &at.span), says, found);
        }
    }
    if document.counted == CounterStore::Memory {
        let says = "the store has `on_down`, but the file names no Redis".to_owned();
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

/// Leases without a Redis to take them from. A limit that rules leases out by itself has been noted.
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
        let why = "counters are in this process, and cost no call";
        found.push(
            Diagnostic::warning(Code::Conflict, format!("limit `{name}` gives no leases"))
                .at(&lease.span, why)
                .help("leave `lease` out"),
        );
    }
}
