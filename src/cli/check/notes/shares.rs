//! The bounds that all clients share, as far as a file sets them, and what one client has of each at most.

use crate::config::Compiled;
use crate::config::describe::upstream::most_at_once;
use crate::key::{KeyPart, Mask, MissingKey};
use crate::limit::{Limit, Rule};
use crate::listen::dispatch::ConnectionBounds;
use crate::upstream::server_queue;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;

/// A bound that clients share.
struct SharedBound {
    /// What is bounded, with the number.
    all: String,
    /// What one client has of it, or why it has no part of its own.
    share: String,
}

/// Notes on servers whose places one client may have all of, and the list of the bounds where there are such servers.
pub(super) fn all(compiled: &Compiled) -> Vec<String> {
    let open = open_routes(compiled);
    let mut bounded = compiled.outline.upstreams.iter();
    let mut notes: Vec<String> = Vec::new();
    for one in &compiled.outline.upstreams {
        let name = &one.upstream.name;
        if let Some(route) = open.get(&**name) {
            notes.push(format!(
                "one client may have all places at the servers of upstream {name}, by route {route}: a `concurrency` limit by client in front leaves some to others"
            ));
        }
    }
    if bounded.any(|one| most_at_once(one).is_some()) {
        let each: Vec<String> = bounds(compiled, &open)
            .into_iter()
            .map(|bound| format!("{}: {}", bound.all, bound.share))
            .collect();
        notes.push(format!(
            "what one client (an address, in IPv6 a /64) has of what all share: {}; docs/hardening.md has the bounds that no file sets",
            each.join("; ")
        ));
    }
    notes
}

/// The bounds, for programs.
pub(in crate::cli::check) fn as_json(compiled: &Compiled) -> Value {
    let each = bounds(compiled, &open_routes(compiled)).into_iter();
    each.map(|bound| json!({ "all": bound.all, "one_client": bound.share }))
        .collect()
}

/// Of each upstream whose servers have a bound, the first route on which no limit leaves places there to other clients.
fn open_routes(compiled: &Compiled) -> HashMap<&str, &str> {
    let outlines = compiled.outline.upstreams.iter();
    let places = outlines.filter_map(|one| Some((&*one.upstream.name, most_at_once(one)?)));
    let places: HashMap<&str, u64> = places.collect();
    let snapshot = &compiled.snapshot;
    let mut open = HashMap::new();
    for service in &snapshot.services {
        let upstream = service.upstream.map(|at| &*snapshot.upstreams[at].name);
        let Some((name, places)) = upstream.and_then(|name| places.get_key_value(name)) else {
            continue;
        };
        let leaves_some =
            |limit: &Arc<Limit>| bounds_each_client(limit) && most_of(limit) < *places;
        if let Some(route) = service.route()
            && !open.contains_key(name)
            && !service.limits.iter().any(leaves_some)
        {
            open.insert(*name, route);
        }
    }
    open
}

/// Does the limit bound what any client has in flight? It holds for every request, and a client has one key, which is not of
/// its own making.
fn bounds_each_client(limit: &Limit) -> bool {
    let by = &limit.by;
    let is_known = by.unknown.is_some();
    let is_of_one_client = |part: &KeyPart| match part {
        KeyPart::Ip(mask) => mask.v6 <= Mask::DEFAULT.v6,
        KeyPart::Jwt { .. } | KeyPart::TlsSubject | KeyPart::TlsFingerprint => true,
        KeyPart::Header { .. } | KeyPart::Cookie(_) | KeyPart::Query { .. } => is_known,
        KeyPart::Method | KeyPart::Host | KeyPart::Route | KeyPart::Path(_) => false,
    };
    // A part that a client chooses gives it as many keys as it chooses; those of the name of a route are few.
    let mut others = by.parts.iter().filter(|part| **part != KeyPart::Route);
    limit.mode.decides()
        && matches!(limit.rule, Rule::Concurrency(_))
        && limit.exempt.is_none()
        && by.parts.iter().any(is_of_one_client)
        && others.all(is_of_one_client)
        && !(by.missing == MissingKey::Skip && by.can_be_absent())
}

/// The most that a client may have in flight by the limit, in whatever tier.
fn most_of(limit: &Limit) -> u64 {
    let tiers = limit.tiers.iter().map(|tier| tier.limit.quota);
    tiers.fold(limit.quota, u64::max)
}

fn bounds(compiled: &Compiled, open: &HashMap<&str, &str>) -> Vec<SharedBound> {
    let listen = &compiled.boot.listen;
    let connections = ConnectionBounds {
        most: listen.max_connections,
        per_client: listen.max_connections_per_client,
    };
    let own = connections.of_client(connections.most);
    let own = match connections.per_client {
        Some(_) => own.to_string(),
        None => format!("{own}, while more than half are taken"),
    };
    let holds = compiled.snapshot.holds;
    let mut all = vec![
        SharedBound {
            all: format!("{} connections", connections.most),
            share: own,
        },
        SharedBound {
            all: format!("{} held requests", holds.total),
            share: holds.per_client.to_string(),
        },
    ];
    for one in &compiled.outline.upstreams {
        let (name, queue) = (&one.upstream.name, one.upstream.rules.queue.max as usize);
        let Some(places) = most_at_once(one) else {
            continue;
        };
        if queue > 0 {
            all.push(SharedBound {
                all: format!("{queue} places in the queue of upstream {name}"),
                share: server_queue::share(queue).to_string(),
            });
        }
        let share = if open.contains_key(&**name) {
            "all of them, since no `concurrency` limit by client is in front"
        } else {
            "what `concurrency` limits leave it"
        };
        let places = match places {
            1 => "1 place".to_owned(),
            many => format!("{many} places"),
        };
        all.push(SharedBound {
            all: format!("{places} at the servers of upstream {name}"),
            share: share.to_owned(),
        });
    }
    all.push(SharedBound {
        all: format!("{} counters in memory", compiled.boot.store.max_keys),
        share: "no part of its own, since its limits have theirs".to_owned(),
    });
    all
}
