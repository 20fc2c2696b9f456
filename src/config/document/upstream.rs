//! `[upstreams.NAME]`.

use super::super::outline::{show_list, show_time};
use super::super::value::server;
use super::Items;
use super::fields::Zero;
use super::form::{any, empty_list, filled_texts, texts, time, word};
use super::table::table;
use super::words::words;
use crate::upstream::Server;
use std::time::Duration;

table! {
    /// A named set of servers to forward to.
    Upstream { name, place } = UPSTREAMS, "upstreams", "an upstream", named true, later &["health", "tls", "retry", "protocol"];

    /// `http://host:port` each, taken in turn; `demo:` is a server built into the gateway. A request that a server
    /// closes a kept connection upon goes out once more, on a fresh one: GET, HEAD, OPTIONS, TRACE, PUT and DELETE
    /// without a body; any other only if nothing of it was sent, else 502. A connection is kept for a second less than
    /// the server announces in `Keep-Alive: timeout` (of 1 s a half), 4 s at most; where it announces nothing for 1.5
    /// s.
    servers: Items<Server> = filled_texts(server, empty_list("an upstream has at least one server")), Required, "[\"http://10.1.0.5:3000\", \"http://10.1.0.6:3000\"]",
        Upstream(|one| show_list(&one.upstream.servers));

    /// How a server is chosen.
    balance: Balance = word(), Value("\"round-robin\""), "\"round-robin\"";

    /// Limits in front of this upstream, whichever route leads here; they form one decision with the route's own.
    limits: Items<String> = texts(any), Words("none"), "[\"orders-total\"]", Upstream(|one| show_list(&one.limits));

    /// Longest to wait for a connection to a server.
    connect_timeout: Duration = time(Zero::Refused), Value("\"2s\""), "\"500ms\"",
        Upstream(|one| show_time(one.upstream.connect_timeout));
}

/// How a server is chosen. There is one way so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) enum Balance {
    RoundRobin,
}

words! { Balance: RoundRobin "round-robin"; later "least-requests", "random", "hash" }
