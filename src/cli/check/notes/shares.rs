//! The bounds that all clients share, as the file sets them, and the most that one client may use of each.

use crate::config::Compiled;
use crate::config::describe::upstream::most_at_once;
use crate::config::outline::UpstreamOutline;
use crate::config::suggest::counted;
use crate::key::{KeyPart, MissingKey};
use crate::limit::Limit;
use crate::listen::dispatch::ConnectionBounds;
use crate::upstream::server_queue;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;

/// A bound that clients share.
struct SharedBound {
    /// The bounded quantity, with the number.
    all: String,
    /// The most that one client may use, or the reason why clients have no bound of their own.
    share: String,
}

/// Notes on servers all of whose places one client may use, and the list of the bounds if there are such servers, or if
/// the file bounds a client's connections.
pub(super) fn list_notes(compiled: &Compiled) -> Vec<String> {
    let parts = places(compiled);
    let outlines = compiled.outline.upstreams.iter();
    let open = outlines.filter_map(|one| parts.get(&*one.upstream.name)?.note(one));
    let mut notes: Vec<String> = open.collect();
    let is_asked = compiled.boot.listen.max_connections_per_client.is_some();
    if is_asked || !parts.is_empty() {
        let each: Vec<String> = bounds(compiled, &parts)
            .into_iter()
            .map(|bound| format!("{}: {}", bound.all, bound.share))
            .collect();
        notes.push(format!(
            "the share of one client (an address, in IPv6 a /64) in resources that all clients use: {}; docs/hardening.md lists the bounds that no file sets",
            each.join("; ")
        ));
    }
    notes
}

/// The bounds, for programs.
pub(in crate::cli::check) fn as_json(compiled: &Compiled) -> Value {
    let each = bounds(compiled, &places(compiled)).into_iter();
    each.map(|bound| json!({ "all": bound.all, "one_client": bound.share }))
        .collect()
}

/// The places at the servers of an upstream, and the number that one client may use.
struct PlaceShares<'a> {
    all: u64,
    /// The limits that leave some places to others, each once.
    bounding: Vec<&'a Limit>,
    /// The first route on which no limit leaves any places to others.
    open: Option<OpenRoute<'a>>,
    /// The share that each route leaves a client.
    shares: Vec<RouteShare<'a>>,
}

/// A route by which one client may use all places.
struct OpenRoute<'a> {
    route: &'a str,
    /// The limit by client that allows one client the fewest.
    closest: Option<&'a Limit>,
    /// A `concurrency` limit that would bound clients if it applied to all requests.
    exempting: Option<&'a str>,
}

/// For each upstream whose servers have a bound, the places there that one client may use.
fn places(compiled: &Compiled) -> HashMap<&str, PlaceShares<'_>> {
    let outlines = compiled.outline.upstreams.iter();
    let bounded = outlines.filter_map(|one| Some((&*one.upstream.name, most_at_once(one)?)));
    let none_yet = |all| PlaceShares {
        all,
        bounding: Vec::new(),
        open: None,
        shares: Vec::new(),
    };
    let mut found: HashMap<&str, PlaceShares<'_>> =
        bounded.map(|(name, all)| (name, none_yet(all))).collect();
    let snapshot = &compiled.snapshot;
    for service in &snapshot.services {
        let upstream = service.upstream.map(|at| &*snapshot.upstreams[at].name);
        let (Some(name), Some(route)) = (upstream, service.route()) else {
            continue;
        };
        if let Some(places) = found.get_mut(name) {
            places.add(route, &service.limits);
        }
    }
    found
}

impl<'a> PlaceShares<'a> {
    /// Adds a route to these servers.
    fn add(&mut self, route: &'a str, limits: &'a [Arc<Limit>]) {
        self.shares.push(RouteShare::of(route, limits));
        let limits = limits.iter().map(|limit| &**limit);
        let by_client: Vec<&Limit> = limits.filter(|limit| bounds_each_client(limit)).collect();
        let for_all = by_client.iter().filter(|limit| limit.exempt.is_none());
        let closest = for_all.min_by_key(|limit| most_of(limit)).copied();
        match closest.filter(|limit| most_of(limit) < self.all) {
            Some(one) => {
                let is_known = self.bounding.iter().any(|known| known.name == one.name);
                if !is_known && self.bounding.len() <= MOST_NAMED {
                    self.bounding.push(one);
                }
            }
            None => {
                self.open.get_or_insert_with(|| OpenRoute {
                    route,
                    closest,
                    exempting: by_client.first().map(|limit| &*limit.name),
                });
            }
        }
    }

    /// The note on a route by which one client may use all places.
    fn note(&self, one: &UpstreamOutline) -> Option<String> {
        let Some(open) = &self.open else {
            return Some(format!(
                "one client may have all places at the servers of upstream {}, by route {}: a `concurrency` limit by client that counts over routes leaves some to others",
                one.upstream.name,
                self.together()?
            ));
        };
        let act = match (open.closest, open.exempting) {
            (Some(limit), _) => too_many(limit, self.all),
            (None, Some(limit)) => {
                format!("`{limit}` does not bound the requests that it exempts: leave `exempt` out")
            }
            (None, None) => {
                "a `concurrency` limit by client in front leaves some to others".to_owned()
            }
        };
        Some(format!(
            "one client may have all places at the servers of upstream {}, by route {}: {act}",
            one.upstream.name, open.route
        ))
    }

    /// The routes whose limits together let a client use all places, though no single route does.
    fn together(&self) -> Option<String> {
        let others = self.shares.len().checked_sub(1).filter(|many| *many > 0)?;
        let others = counted(others, "other");
        let is_all = self.open.is_none() && most_of_all(&self.shares) >= self.all;
        is_all.then(|| format!("{} with {others}", self.shares[0].route))
    }

    /// The places that one client may use.
    fn share(&self) -> String {
        if let Some(routes) = self.together() {
            return format!("all of them, by route {routes}");
        }
        let Some(open) = &self.open else {
            return match self.bounding.as_slice() {
                all if all.is_empty() || all.len() > MOST_NAMED => {
                    "as many as `concurrency` limits leave to it".to_owned()
                }
                all => all
                    .iter()
                    .map(|limit| left_by(limit))
                    .collect::<Vec<_>>()
                    .join(" and "),
            };
        };
        match (open.closest, open.exempting) {
            (Some(limit), _) => {
                let (name, most) = (&limit.name, most_of(limit));
                format!("all of them, since `{name}` lets one client have {most}")
            }
            (None, Some(limit)) => format!("all of them, by requests that `{limit}` exempts"),
            (None, None) => {
                "all of them, since no `concurrency` limit by client is in front".to_owned()
            }
        }
    }
}

/// The requests in flight that one client may have on a route, by the limits that bound each client.
struct RouteShare<'a> {
    route: &'a str,
    /// The bound by limits that count each route separately; the highest number if there are no such limits.
    alone: u64,
    /// By the limits that count over several routes.
    over_routes: Vec<&'a Arc<Limit>>,
}

impl<'a> RouteShare<'a> {
    fn of(route: &'a str, limits: &'a [Arc<Limit>]) -> Self {
        let bounds = limits
            .iter()
            .filter(|limit| limit.exempt.is_none() && bounds_each_client(limit));
        let (alone, over_routes): (Vec<_>, Vec<_>) =
            bounds.partition(|limit| limit.by.parts.iter().any(KeyPart::is_route));
        let alone = alone.into_iter().map(|limit| most_of(limit)).min();
        Self {
            route,
            alone: alone.unwrap_or(u64::MAX),
            over_routes,
        }
    }
}

/// The most that one client may have in flight on all these routes together. A limit that counts over routes counts
/// once, if it allows less than the routes' own limits.
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
        let per_route = routes.iter().map(|at| alone[*at]);
        if most_of(limit) < per_route.fold(0, u64::saturating_add) {
            all = all.saturating_add(most_of(limit));
            for at in routes {
                alone[at] = 0;
            }
        }
    }
    alone.into_iter().fold(all, u64::saturating_add)
}

/// The most limits that are named with their shares.
const MOST_NAMED: usize = 3;

/// The share of one client under a limit: `5 (in-flight)`.
fn left_by(limit: &Limit) -> String {
    let (name, most) = (&limit.name, most_of(limit));
    if limit.by.parts.iter().any(KeyPart::is_route) {
        format!("{most} on each route ({name})")
    } else {
        format!("{most} ({name})")
    }
}

/// The sentence that a limit leaves none of this number of places to other clients, with a number that does.
fn too_many(limit: &Limit, places: u64) -> String {
    let (name, most) = (&limit.name, most_of(limit));
    let in_tiers = if limit.tiers.is_empty() {
        ""
    } else {
        ", in its tiers too"
    };
    match places {
        1 => format!("`{name}` lets one client have the only place"),
        _ => format!(
            "`{name}` lets one client have {most} of the {places} places: write `max = {}`{in_tiers}",
            places - 1
        ),
    }
}

/// Does the limit bound the requests in flight of every client, except those that it exempts? A client has one key,
/// which it cannot choose.
fn bounds_each_client(limit: &Limit) -> bool {
    let by = &limit.by;
    let is_known = by.unknown.is_some();
    let is_of_one_client = |part: &KeyPart| part.is_of_one_client(is_known);
    // A part that a client chooses gives the client any number of keys; routes' names are few.
    let mut others = by.parts.iter().filter(|part| !part.is_route());
    limit.mode.decides()
        && limit.rule.concurrency().is_some()
        && by.parts.iter().any(is_of_one_client)
        && others.all(is_of_one_client)
        && !(by.missing == MissingKey::Skip && by.can_be_absent())
}

/// The most requests in flight that a client may have under the limit, in any tier, or by numbers of its own.
fn most_of(limit: &Limit) -> u64 {
    let tiers = limit.tiers.iter().map(|tier| tier.limit.quota);
    let customers = limit.customer_numbers.iter();
    let customers = customers.flat_map(|numbers| numbers.limits());
    let all = tiers.chain(customers.map(|limit| limit.quota));
    all.fold(limit.quota, u64::max)
}

fn bounds(compiled: &Compiled, parts: &HashMap<&str, PlaceShares<'_>>) -> Vec<SharedBound> {
    let listen = &compiled.boot.listen;
    let connections = ConnectionBounds {
        most: listen.max_connections,
        per_client: listen.max_connections_per_client,
    };
    let places = connections.of_client(connections.most);
    let places = match connections.per_client {
        Some(_) => places.to_string(),
        None => format!("{places}, while more than half are taken"),
    };
    let holds = compiled.snapshot.holds;
    let mut all = vec![
        SharedBound {
            all: format!("{} connections", connections.most),
            share: places,
        },
        SharedBound {
            all: format!("{} held requests", holds.total),
            share: holds.per_client.to_string(),
        },
    ];
    for one in &compiled.outline.upstreams {
        let (name, queue) = (&one.upstream.name, one.upstream.rules.queue.max as usize);
        let Some(places) = parts.get(&**name) else {
            continue;
        };
        if queue > 0 {
            all.push(SharedBound {
                all: format!("{queue} places in the queue of upstream {name}"),
                share: server_queue::share(queue).to_string(),
            });
        }
        let of_servers = match places.all {
            1 => "1 place".to_owned(),
            many => format!("{many} places"),
        };
        all.push(SharedBound {
            all: format!("{of_servers} at the servers of upstream {name}"),
            share: places.share(),
        });
    }
    all.push(SharedBound {
        all: format!("{} counters in memory", compiled.boot.store.max_keys),
        share: "no bound for a client; each limit keeps a part".to_owned(),
    });
    all
}
