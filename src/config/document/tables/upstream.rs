//! `[upstreams.NAME]`.

mod balance;
mod server_health;

use crate::config::document::{
    Form, Items, Setting, ValueShape, Words as _, Zero, any, as_written, count, custom, empty_list,
    entry_table, flag, inner_table, number, table, text_as, text_form, texts, time, time_within,
    whole, word, words,
};
use crate::config::input::At;
use crate::config::presentation::describe::upstream::{
    choice, ejection, probes, queue, retries, server_host as host_text, tls,
};
use crate::config::presentation::{show, show_list, show_time};
use crate::config::value::{Balance, pem_path, server, server_host, server_name};
use crate::upstream::balance_rule::{NoneLeft, QueueRule};
use crate::upstream::ejection::EjectionRule;
use crate::upstream::probe_rule::ProbeRule;
use crate::upstream::retry_rule::RetryRule;
use crate::upstream::{Server, ServerHost, ServerProtocol, ServerUrl};
use balance::{balance_form, queue_form};
use server_health::{eject_form, health_form, retry_form};
use std::num::NonZeroU32;
use std::time::Duration;
use toml::de::DeValue;

table! {
    /// A named set of servers to forward to.
    Upstream { name, place } = UPSTREAMS, "upstreams", "an upstream", named true, later &["protocol"];

    /// Servers, taken in turn: `http://host:port`, `https://host:port`, `h2c://host:port` (HTTP/2 without TLS) or
    /// `unix:/path` (a whole path), or a table with more about the server; `demo:` is a server built into the gateway.
    /// Each address of a name is a server of its own, with a part of the name's weight. A server may close a kept
    /// connection while a request is on it. GET, HEAD, OPTIONS, TRACE, PUT and DELETE without a body then go out once
    /// more, on a fresh connection. Any other request goes out again only if nothing of it was sent; else the answer is
    /// 502. A connection is kept for a second less than the server announces in `Keep-Alive: timeout` (half a second of
    /// 1 s), 4 s at most. Without an announcement a connection is kept for 1.5 s.
    servers: Items<ServerEntry> = servers(), Required, "[\"http://10.1.0.5:3000\", \"http://10.1.0.6:3000\"]",
        Upstream(|one| show_list(&one.upstream.servers));

    /// How a server is chosen: `round-robin`, in turn by weight; `least-requests`, the one with the fewest requests in
    /// flight for its weight; `random`, by chance and weight; `hash:KEY`, by a key of the request as in `by` of a limit,
    /// so that requests of one key go to one server. A request without the key is given a server in turn.
    balance: Balance = balance_form(), Value("\"round-robin\""), "\"least-requests\"",
        Upstream(|one| show(choice(one.upstream.rules.balance, one.hash.as_ref())));

    /// Probes: the path that each server is asked for, or a table. A server that fails them gets no requests.
    health: ProbeRule = health_form(), Words("no server is probed"), "\"/healthz\"",
        Upstream(|one| show(one.upstream.rules.health.as_ref().map_or_else(|| "none".into(), probes)));

    /// Ejection of servers that fail requests in a row, on unless it is `false`.
    eject: Option<EjectionRule> = eject_form(), Words("5 in a row, 10 s, at most half"), "{ after = 3 }",
        Upstream(|one| show(one.upstream.rules.eject.as_ref().map_or_else(|| "never".into(), ejection)));

    /// The retries of requests after a failure. They are on unless this is `false`.
    retry: Option<RetryRule> = retry_form(), Words("1 attempt after `connect`, `refused`, `reset`, of 20 % of requests"), "{ attempts = 2 }",
        Upstream(|one| show(one.upstream.rules.retry.as_ref().map_or_else(|| "none".into(), retries)));

    /// Where requests wait while all servers have their `max_requests`.
    queue: QueueRule = queue_form(), Words("100, for 1 s each, where servers have a bound"), "{ max = 50, wait = \"500ms\" }",
        Upstream(|one| show(queue(&one.upstream.rules)));

    /// The time in which the share of a server that is back grows from a tenth to the whole.
    ramp: Duration = time(Zero::Refused), Words("none: it has its whole share at once"), "\"30s\"",
        Upstream(|one| one.upstream.rules.ramp.map_or_else(|| show("none"), show_time));

    /// The treatment of requests while no server is available: all servers are tried anyway, or the answer is 503.
    none_left: NoneLeft = word(), Value("\"try-all\""), "\"503\"",
        Upstream(|one| show(one.upstream.rules.none_left.word()));

    /// Limits in front of this upstream, on every route that leads to it. They form one decision with the route's own
    /// limits.
    limits: Items<String> = texts(any), Words("none"), "[\"orders-total\"]", Upstream(|one| show_list(&one.limits));

    /// The longest wait for a connection to a server, the handshake of TLS included.
    connect_timeout: Duration = time(Zero::Refused), Value("\"2s\""), "\"500ms\"",
        Upstream(|one| show_time(one.upstream.connect_timeout));

    /// The host that is sent to servers: `client`, the host that the client asked for; `upstream`, the host of each
    /// server's URL (`localhost` over a Unix socket); or the written host, with or without a port. `X-Forwarded-Host`
    /// has the client's host in any case. Where the host is not the client's, `Location` and `Content-Location` of
    /// answers that lead to it, or to the server itself, are written anew with the client's scheme and host.
    host: Option<ServerHost> = text_form(server_host), Value("\"client\""), "\"upstream\"",
        Upstream(|one| show(host_text(one.upstream.host.as_ref())));

    /// The protocol that servers are asked in. `auto`: over `https` what the handshake agrees on (ALPN), else HTTP/1.1,
    /// and HTTP/2 over `h2c`. WebSockets go over HTTP/1.1 in any case.
    http: ServerProtocol = word(), Value("\"auto\""), "\"1.1\"", Upstream(|one| show(one.upstream.protocol.word()));

    /// The authorities to trust and the certificate to present, where a server is `https`.
    tls: UpstreamTls = inner_table(as_written), Words("with `https`: the system's authorities, and no certificate"), "{ ca = \"internal-ca.pem\" }",
        Upstream(|one| tls(one.upstream.tls.as_ref()));

    /// The time between two resolutions of the names of servers, at least 1s. An answer that is empty, late or missing
    /// changes nothing. Requests never wait for it.
    resolve: Duration = time_within("1s"..="1d", "names are resolved in the background, and no request waits for it"), Value("\"30s\""), "\"5s\"",
        Upstream(|one| show_time(one.upstream.resolve));

    /// The age from which a connection takes no further request, up to a fifth sooner.
    max_age: Duration = time(Zero::Refused), Words("`10m` with HTTP/2, none with HTTP/1.1"), "\"5m\"",
        Upstream(|one| one.upstream.max_age.map_or_else(|| show("the usual"), show_time));

    /// Whether the upstream gets the certificate that a client has shown, in `Client-Cert` (RFC 9440). It replaces the
    /// value of a trusted proxy. The field is absent where the client has shown none.
    forward_client_cert: bool = flag(), Value("false"), "true", Upstream(|one| show(one.upstream.forward_client_cert));
}

table! {
    /// One server.
    ServerEntry = SERVER, "upstreams", "a server";

    /// Where the server listens, as in an entry that is a text.
    url: ServerUrl = text_form(server), Required, "\"http://10.1.0.5:3000\"";

    /// The server's share of the requests, relative to the others, 0 to 1000. With 0 it gets none.
    weight: u32 = number(0, 1000), Value("1"), "2";

    /// The most requests that the server has at once, from all workers of this gateway. A slow upload holds a place for as
    /// long as `idle` and `min_rate` of `[server]` let it.
    max_requests: u32 = count(), Words("no bound"), "100";

    /// The most connections to the server, of all workers of this gateway.
    max_connections: u32 = count(), Words("no bound"), "50";
}

table! {
    /// The authorities to trust and the certificate to present in handshakes with servers. Files are PEM, and watched:
    /// connections that are made after a change use the new files.
    UpstreamTls = UPSTREAM_TLS, "upstreams", "TLS to servers";

    /// File with the certificates of the authorities to trust, instead of the system's.
    ca: String = text_as(ValueShape::File, pem_path), Words("the system's authorities"), "\"internal-ca.pem\"";

    /// Name that the server's certificate must have, which the handshake also asks for (SNI).
    name: String = text_form(server_name), Words("the host of the server's URL"), "\"orders.internal\"";

    /// File with the certificate to show, and the certificates between it and its authority.
    cert: String = text_as(ValueShape::File, pem_path), Words("none"), "\"gateway.pem\"";

    /// File with the key of `cert`, without a passphrase.
    key: String = text_as(ValueShape::File, pem_path), Words("none"), "\"gateway.key\"";

    /// Whether any certificate is trusted, whoever signed it: then anybody on the way can read and change everything.
    insecure: bool = flag(), Value("false"), "true";
}

words! { ServerProtocol: Auto "auto", Http1 "1.1", Http2 "2" }

/// The text of a server, a table of a server, or a list of these. An empty list is a mistake.
fn servers() -> impl Form<Items<ServerEntry>> {
    custom(ValueShape::Servers(&SERVER), |key, fields| {
        let list = fields.items(key, |fields, item| match item.get_ref() {
            DeValue::Table(table) => entry_table(key, fields, table, item.span(), whole),
            _ => {
                let url = fields.text_item(key, item, server)?;
                Some(ServerEntry {
                    url: Setting::Valid(At::new(url, item.span())),
                    ..ServerEntry::default()
                })
            }
        });
        fields.filled(
            key,
            list,
            &empty_list("an upstream has at least one server"),
        )
    })
}

impl ServerEntry {
    /// The server of an entry without mistakes.
    pub(in crate::config) fn compiled(&self) -> Option<Server> {
        Some(Server {
            url: self.url.get()?.clone(),
            weight: u16::try_from(self.weight()).unwrap_or(1),
            max_requests: self.max_requests.get().copied().and_then(NonZeroU32::new),
            max_connections: self
                .max_connections
                .get()
                .copied()
                .and_then(NonZeroU32::new),
            socket_fence: None,
        })
    }
}
