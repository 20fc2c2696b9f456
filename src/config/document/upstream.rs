//! `[upstreams.NAME]`.

use super::super::outline::show;
use super::super::outline::{show_list, show_time};
use super::super::value::server;
use super::Items;
use super::fields::Zero;
use super::form::{any, empty_list, filled_texts, flag, texts, time, word};
use super::table::table;
use super::words::words;
use crate::upstream::Server;
use std::time::Duration;

table! {
    /// A named set of servers to forward to.
    Upstream { name, place } = UPSTREAMS, "upstreams", "an upstream", named true, later &["health", "tls", "retry", "protocol"];

    /// Servers, each `http://host:port`, taken in turn; `demo:` is a server built into the gateway. A server may close
    /// a kept connection while a request is on it. GET, HEAD, OPTIONS, TRACE, PUT and DELETE without a body then go out
    /// once more, on a fresh connection. Any other request goes out again only if nothing of it was sent; else the
    /// answer is 502. A connection is kept for a second less than the server announces in `Keep-Alive: timeout` (half a
    /// second of 1 s), 4 s at most. Without an announcement a connection is kept for 1.5 s.
    servers: Items<Server> = filled_texts(server, empty_list("an upstream has at least one server")), Required, "[\"http://10.1.0.5:3000\", \"http://10.1.0.6:3000\"]",
        Upstream(|one| show_list(&one.upstream.servers));

    /// How a server is chosen.
    balance: Balance = word(), Value("\"round-robin\""), "\"round-robin\"";

    /// Limits in front of this upstream, on every route that leads to it. They form one decision with the route's own
    /// limits.
    limits: Items<String> = texts(any), Words("none"), "[\"orders-total\"]", Upstream(|one| show_list(&one.limits));

    /// The longest wait for a connection to a server.
    connect_timeout: Duration = time(Zero::Refused), Value("\"2s\""), "\"500ms\"",
        Upstream(|one| show_time(one.upstream.connect_timeout));

    /// Does the upstream get the certificate that a client has shown? It comes in `Client-Cert` (RFC 9440), in place of
    /// what a trusted proxy wrote there. The field is absent where the client has shown none.
    forward_client_cert: bool = flag(), Value("false"), "true", Upstream(|one| show(one.upstream.forward_client_cert));
}

/// The choice of a server. There is one way so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) enum Balance {
    RoundRobin,
}

words! { Balance: RoundRobin "round-robin"; later "least-requests", "random", "hash" }
