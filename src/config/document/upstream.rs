//! `[upstreams.NAME]`.

use super::super::describe::upstream::{ejection, probes, queue, retries};
use super::super::outline::{UpstreamOutline, show, show_list, show_time};
use super::super::value::{Balance, server};
use super::balance::{balance_form, queue_form};
use super::fields::Zero;
use super::form::{any, empty_list, filled_texts, texts, time, word};
use super::server_health::{eject_form, health_form, retry_form};
use super::table::table;
use super::{Items, Words as _};
use crate::upstream::Server;
use crate::upstream::balance_rule::{NoneLeft, QueueRule};
use crate::upstream::ejection::EjectionRule;
use crate::upstream::probe_rule::ProbeRule;
use crate::upstream::retry_rule::RetryRule;
use std::time::Duration;

table! {
    /// A named set of servers to forward to.
    Upstream { name, place } = UPSTREAMS, "upstreams", "an upstream", named true, later &["tls", "protocol"];

    /// Servers, each `http://host:port`, taken in turn; `demo:` is a server built into the gateway. A server may close
    /// a kept connection while a request is on it. GET, HEAD, OPTIONS, TRACE, PUT and DELETE without a body then go out
    /// once more, on a fresh connection. Any other request goes out again only if nothing of it was sent; else the
    /// answer is 502. A connection is kept for a second less than the server announces in `Keep-Alive: timeout` (half a
    /// second of 1 s), 4 s at most. Without an announcement a connection is kept for 1.5 s.
    servers: Items<Server> = filled_texts(server, empty_list("an upstream has at least one server")), Required, "[\"http://10.1.0.5:3000\", \"http://10.1.0.6:3000\"]",
        Upstream(|one| show_list(&one.upstream.servers));

    /// How a server is chosen: `round-robin`, in turn by weight; `least-requests`, the one with the fewest requests in
    /// flight for its weight; `random`, by chance and weight; `hash:KEY`, by a key of the request as in `by` of a limit,
    /// so that requests of one key go to one server. A request without the key is given a server in turn.
    balance: Balance = balance_form(), Value("\"round-robin\""), "\"least-requests\"",
        Upstream(|one| show(describe_balance(one)));

    /// Probes: the path that each server is asked for, or a table. A server that fails them gets no requests.
    health: ProbeRule = health_form(), Words("no server is probed"), "\"/healthz\"",
        Upstream(|one| show(one.upstream.rules.health.as_ref().map_or_else(|| "none".into(), probes)));

    /// Ejection of servers that fail requests in a row, on unless it is `false`.
    eject: Option<EjectionRule> = eject_form(), Words("5 in a row, 10 s, at most half"), "{ after = 3 }",
        Upstream(|one| show(one.upstream.rules.eject.as_ref().map_or_else(|| "never".into(), ejection)));

    /// What of the upstream's requests is sent once more after a failure, on unless it is `false`.
    retry: Option<RetryRule> = retry_form(), Words("1 attempt after `connect`, `refused`, `reset`, of 20 % of requests"), "{ attempts = 2 }",
        Upstream(|one| show(one.upstream.rules.retry.as_ref().map_or_else(|| "none".into(), retries)));

    /// Where requests wait while all servers have their `max_requests`.
    queue: QueueRule = queue_form(), Words("100, for 1 s each, where servers have a bound"), "{ max = 50, wait = \"500ms\" }",
        Upstream(|one| show(queue(&one.upstream.rules)));

    /// The time in which the share of a server that is back grows from a tenth to the whole.
    ramp: Duration = time(Zero::Refused), Words("none: it has its whole share at once"), "\"30s\"",
        Upstream(|one| one.upstream.rules.ramp.map_or_else(|| show("none"), show_time));

    /// What becomes of requests while no server is available: all are tried as if all were, or the answer is 503.
    none_left: NoneLeft = word(), Value("\"try-all\""), "\"503\"",
        Upstream(|one| show(one.upstream.rules.none_left.word()));

    /// Limits in front of this upstream, on every route that leads to it. They form one decision with the route's own
    /// limits.
    limits: Items<String> = texts(any), Words("none"), "[\"orders-total\"]", Upstream(|one| show_list(&one.limits));

    /// The longest wait for a connection to a server.
    connect_timeout: Duration = time(Zero::Refused), Value("\"2s\""), "\"500ms\"",
        Upstream(|one| show_time(one.upstream.connect_timeout));
}

/// The choice of a server as the file writes it.
fn describe_balance(one: &UpstreamOutline) -> String {
    super::super::describe::upstream::choice(one.upstream.rules.balance, one.hash.as_ref())
}
