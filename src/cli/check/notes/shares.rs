//! The bounds that all clients share, as far as a file sets them, and what one client has of each at most.

use crate::config::Compiled;
use crate::config::describe::upstream::most_at_once;
use crate::config::outline::UpstreamOutline;
use crate::key::KeyPart;
use crate::limit::{Limit, Rule};
use crate::listen::dispatch::ConnectionBounds;
use crate::upstream::server_queue;
use serde_json::{Value, json};

/// A bound that clients share.
struct SharedBound {
    /// What is bounded, with the number.
    all: String,
    /// What one client has of it, or why it has no part of its own.
    share: String,
}

/// Notes on servers whose places one client may have all of, and the list of the bounds where there are such servers.
pub(super) fn all(compiled: &Compiled) -> Vec<String> {
    let outlines = compiled.outline.upstreams.iter();
    let bounded: Vec<&UpstreamOutline> =
        outlines.filter(|one| most_at_once(one).is_some()).collect();
    let mut notes: Vec<String> = Vec::new();
    for one in &bounded {
        if let Some(route) = unbounded_route(compiled, one) {
            notes.push(format!(
                "one client may have all places at the servers of upstream {}, by route {route}: a `concurrency` limit by client in front leaves some to others",
                one.upstream.name
            ));
        }
    }
    if !bounded.is_empty() {
        let each: Vec<String> = bounds(compiled)
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
    let each = bounds(compiled).into_iter();
    each.map(|bound| json!({ "all": bound.all, "one_client": bound.share }))
        .collect()
}

/// The first route to servers with a bound in front of which no limit counts what each client has in flight.
fn unbounded_route<'c>(compiled: &'c Compiled, one: &UpstreamOutline) -> Option<&'c str> {
    let snapshot = &compiled.snapshot;
    let mut services = snapshot.services.iter().filter(|service| {
        let upstream = service.upstream.map(|at| &snapshot.upstreams[at].name);
        upstream == Some(&one.upstream.name)
    });
    let open = services.find(|service| !service.limits.iter().any(|limit| is_by_client(limit)));
    open?.route()
}

/// Does the limit bound what a client has in flight?
fn is_by_client(limit: &Limit) -> bool {
    let tells_clients = |part: &KeyPart| {
        !matches!(
            part,
            KeyPart::Method | KeyPart::Host | KeyPart::Route | KeyPart::Path(_)
        )
    };
    limit.mode.decides()
        && matches!(limit.rule, Rule::Concurrency(_))
        && limit.by.parts.iter().any(tells_clients)
}

fn bounds(compiled: &Compiled) -> Vec<SharedBound> {
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
        let share = match unbounded_route(compiled, one) {
            Some(_) => "all of them, since no `concurrency` limit by client is in front",
            None => "what `concurrency` limits leave it",
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
