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

/// Of each upstream whose servers have a bound, the routes by which one client may have all places there: the first one on
/// which no limit bounds it, or the first one and those that together leave none to others.
fn open_routes(compiled: &Compiled) -> HashMap<&str, String> {
    let outlines = compiled.outline.upstreams.iter();
    let places = outlines.filter_map(|one| Some((&*one.upstream.name, most_at_once(one)?)));
    let places: HashMap<&str, u64> = places.collect();
    let snapshot = &compiled.snapshot;
    let mut routes: HashMap<&str, Vec<RouteShare<'_>>> = HashMap::new();
    for service in &snapshot.services {
        let upstream = service.upstream.map(|at| &*snapshot.upstreams[at].name);
        let bounded = upstream.and_then(|name| places.get_key_value(name));
        if let (Some((name, _)), Some(route)) = (bounded, service.route()) {
            let share = RouteShare::of(route, &service.limits);
            routes.entry(*name).or_default().push(share);
        }
    }
    let mut open = HashMap::new();
    for (name, shares) in routes {
        let unbound = shares.iter().find(|share| share.most() >= places[name]);
        if let Some(share) = unbound {
            open.insert(name, share.route.to_owned());
        } else if most_of_all(&shares) >= places[name] {
            let others = match shares.len() - 1 {
                1 => "1 other".to_owned(),
                many => format!("{many} others"),
            };
            open.insert(name, format!("{} with {others}", shares[0].route));
        }
    }
    open
}

/// What one client may have in flight on a route, by the limits that bound each client.
struct RouteShare<'a> {
    route: &'a str,
    /// By those that count each route by itself; no bound where there is none.
    alone: u64,
    /// By those that count over routes.
    over_routes: Vec<&'a Arc<Limit>>,
}

impl<'a> RouteShare<'a> {
    fn of(route: &'a str, limits: &'a [Arc<Limit>]) -> Self {
        let bounds = limits.iter().filter(|limit| bounds_each_client(limit));
        let (alone, over_routes): (Vec<_>, Vec<_>) =
            bounds.partition(|limit| limit.by.parts.contains(&KeyPart::Route));
        let alone = alone.into_iter().map(|limit| most_of(limit)).min();
        Self {
            route,
            alone: alone.unwrap_or(u64::MAX),
            over_routes,
        }
    }

    /// The most on this route alone.
    fn most(&self) -> u64 {
        let over_routes = self.over_routes.iter().map(|limit| most_of(limit));
        over_routes.fold(self.alone, u64::min)
    }
}

/// The most that one client may have in flight on all these routes together. A limit that counts over routes counts once,
/// where that is less than what its routes have alone.
fn most_of_all(shares: &[RouteShare<'_>]) -> u64 {
    let mut limited: HashMap<&str, (&Limit, Vec<usize>)> = HashMap::new();
    for (at, share) in shares.iter().enumerate() {
        for limit in &share.over_routes {
            let entry = limited.entry(&*limit.name);
            entry.or_insert((&***limit, Vec::new())).1.push(at);
        }
    }
    let mut limited: Vec<_> = limited.into_iter().collect();
    limited.sort_by_key(|(name, (limit, _))| (most_of(limit), *name));
    let mut alone: Vec<u64> = shares.iter().map(|share| share.alone).collect();
    let mut all = 0_u64;
    for (_, (limit, routes)) in limited {
        let apart = routes.iter().map(|at| alone[*at]);
        if most_of(limit) < apart.fold(0, u64::saturating_add) {
            all = all.saturating_add(most_of(limit));
            for at in routes {
                alone[at] = 0;
            }
        }
    }
    alone.into_iter().fold(all, u64::saturating_add)
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

fn bounds(compiled: &Compiled, open: &HashMap<&str, String>) -> Vec<SharedBound> {
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
