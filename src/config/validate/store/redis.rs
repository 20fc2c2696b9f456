//! Settings for a Redis in a file without one: leases, and `on_down`.

use crate::config::document::{CounterStore, Document, Limit as Written};
use crate::config::input::Span;
use crate::config::report::{Code, Details as _, Findings};
use crate::limit::{LeaseSetting, Limit, Scope};
use std::collections::HashMap;
use std::sync::Arc;

/// Notes settings without effect. `compiled` has the document's limits.
pub(in crate::config::validate) fn note_redis(
    document: &Document,
    compiled: &[Arc<Limit>],
    found: &mut Findings,
) {
    if document.counted != CounterStore::Memory {
        return;
    }
    let mut by_name: HashMap<&str, &Limit> = HashMap::new();
    for limit in compiled {
        by_name.entry(&limit.name).or_insert(limit);
    }
    for written in &document.limits {
        let Some(limit) = by_name.get(written.name.value.as_str()).copied() else {
            continue;
        };
        unleased(written, limit, found);
        if limit.scope == Scope::Cluster {
            let name = &written.name.value;
            never_away(written.on_down.span(), &format!("limit `{name}`"), found);
        }
    }
    never_away(document.store.on_down.span(), "the store", found);
}

fn never_away(on_down: Option<&Span>, owner: &str, found: &mut Findings) {
    if let Some(span) = on_down {
        let message = format!("{owner} has `on_down`, but the file names no Redis");
        found
            .warning(Code::Conflict, message)
            .at(span, "counters are in this process, which is never away")
            .help("leave `on_down` out, or write a Redis as the `url` of `[store]`");
    }
}

/// Notes leases without a Redis that could grant them. A limit that rules out leases has been noted.
fn unleased(written: &Written, limit: &Limit, found: &mut Findings) {
    let asked = written.lease.at();
    let asked = asked.filter(|at| at.value != LeaseSetting::Off);
    if let Some(lease) = asked.filter(|_| limit.why_unleased().is_none()) {
        let name = &written.name.value;
        let label = "counters are in this process, and cost no call";
        found
            .warning(Code::Conflict, format!("limit `{name}` gives no leases"))
            .at(&lease.span, label)
            .help("leave `lease` out");
    }
}
