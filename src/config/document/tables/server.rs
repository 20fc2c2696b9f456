//! `[server]`, `[log]`, `[response]` and `[defaults]`.

use super::listen::{ListenEntry, listeners};
use crate::client::Nat64;
use crate::config::document::{
    Form, Items, ValueShape, Words as _, Zero, any, bytes_in_a_second, count, custom, entry_table,
    inner_table, number, table, text_as, text_form, texts, time, time_within, whole, word, words,
};
use crate::config::presentation::{ShownValue, show, show_list, show_time, time_text};
use crate::config::value::{
    ErrorText, error_text, error_word, naming_field, network, percent, translator,
};
use crate::key::client_ip::NamingField;
use crate::listen::keep_alive::KeepAlive;
use crate::snapshot::errors::ErrorBody;
use crate::snapshot::{FieldStyle, ResetForm};
use crate::telemetry::{AccessFormat, Level};
use ipnet::{IpNet, Ipv6Net};
use std::time::Duration;
use toml::de::DeValue;

table! {
    /// The addresses that requests come in on, and the deadlines and bounds of their connections.
    ServerTable = SERVER, "server", "the server";

    /// Addresses to listen on, for HTTP/1.1 and HTTP/2 alike. `:port` is every address, of IPv4 and of IPv6; port 0 is
    /// any free port. `:port` is every address of IPv4 alone where the system has no IPv6, or where an address of IPv6
    /// with the same port is also in the list; `0.0.0.0:port` always is. `[::]:port` is every address too, and every
    /// address of IPv6 alone where `:port` is also in the list. `unix:/path` is the file of a Unix socket, from the
    /// file's folder where it has no slash in front; `systemd:NAME` are the sockets that systemd opens under this
    /// `FileDescriptorName`. A table has further settings of a listener; `{ address = ":8080" }` is the same as
    /// `":8080"`.
    listen: Items<ListenEntry> = listeners(), Value("\":8080\""), "[\"127.0.0.1:8080\", \"[::1]:8080\"]",
        Restart(|boot| show_list(&boot.listen.listeners));

    /// Networks of the proxies in front of Tollgate. Their `Forwarded` and `X-Forwarded-For` are trusted, and read from
    /// the right. An entry `{ file = "cdn-networks.txt" }` is a file with one network on a line, which is watched. A
    /// file has at most 2000 networks and 1 MiB. A file that has no network, or a line that is none, changes nothing in
    /// a reload; at the start it is an error.
    trust: Items<TrustEntry> = trusted(), Words("no peer"), "[\"10.0.0.0/8\", { file = \"cdn-networks.txt\" }]",
        Gateway(|file| show_list(&file.trust));

    /// The field in which the proxies of `trust` name the client: `x-forwarded-for`, `forwarded`, or any field with one
    /// address, such as `cf-connecting-ip` or `x-real-ip`. No other field names the client then; with `forwarded` no
    /// `X-Forwarded-*` is read either. A field of one address is read of one line, of the direct peer, with or without
    /// a port and brackets; anything else names nobody, and the peer is the client. The field is dropped from all other
    /// peers. Without `trust_field` both fields are read, and where they name different clients `X-Forwarded-For` is
    /// trusted. `X-Forwarded-Proto` and `X-Forwarded-Host` then also replace the scheme and host of `Forwarded`. Behind
    /// a proxy that writes `Forwarded` alone and lets `X-Forwarded-For` pass, `trust_field` must be set.
    trust_field: NamingField = text_form(naming_field), Words("either of the first two"), "\"cf-connecting-ip\"",
        Gateway(|file| show(file.trust_field.as_ref().map_or("either", NamingField::name)));

    /// Networks of translators between IPv6 and IPv4 (NAT64), each a /96, beside `64:ff9b::/96`. An address in them
    /// counts as the IPv4 address inside, everywhere an address is read. Private and other special addresses inside
    /// `64:ff9b::/96` count as IPv6.
    nat64: Items<Ipv6Net> = texts(translator), Words("`64:ff9b::/96` alone"), "[\"2001:db8:64::/96\"]",
        Gateway(|file| show_list(&file.nat64));

    /// Threads that serve requests; 0 is one for each core.
    workers: u32 = number(0, 1024), Value("0"), "4", Restart(|boot| show(boot.workers));

    /// The longest time that requests under way may take to finish when the gateway stops. It begins after
    /// `drain_delay`. A successor that SIGUSR2 has started must begin to serve within the same time, or within 5s if
    /// that is longer.
    drain: Duration = time(Zero::Allowed), Value("\"30s\""), "\"10s\"", Restart(|boot| show_time(boot.drain));

    /// The time after the signal to stop in which connections are still accepted, for load balancers that notice late.
    /// `/readyz` is 503 from the signal on, and each answer over HTTP/1.1 says `Connection: close`. Without
    /// `drain_delay` the time is 0.2s, and it ends earlier once no connection is open.
    drain_delay: Duration = time(Zero::Allowed), Value("\"0s\""), "\"5s\"", Restart(|boot| show_time(boot.drain_delay));

    /// The longest time that a fresh connection may take to show its protocol.
    first_byte: Duration = time(Zero::Refused), Value("\"10s\""), "\"5s\"",
        Restart(|boot| show_time(boot.listen.first_byte));

    /// The longest time from accepting a connection until its protocol begins, however its bytes come: for the header
    /// of the PROXY protocol, and for the TLS handshake.
    handshake: Duration = time(Zero::Refused), Value("\"10s\""), "\"5s\"",
        Restart(|boot| show_time(boot.listen.handshake));

    /// The longest time for a request's head, from its first byte to its last, however its bytes come. The time is
    /// never longer than `idle`. A head that takes longer is answered 408 over HTTP/1.1, and the connection ends.
    head: Duration = time(Zero::Refused), Value("\"10s\""), "\"5s\"", Restart(|boot| show_time(boot.listen.head));

    /// The longest silence of a connection inside a request: between two chunks of a body in either direction.
    idle: Duration = time(Zero::Refused), Value("\"60s\""), "\"2min\"", Restart(|boot| show_time(boot.listen.idle));

    /// The longest time of a connection without a request: between two requests of HTTP/1.1, or while no stream is
    /// open. A balancer in front must close its idle connections sooner, or it sends requests on connections that are
    /// being closed.
    keep_alive: Duration = time_within("1s"..="1d", "a connection is kept for at least a second"),
        Compiled("`idle` where that is written, else `\"75s\"`", |file| format!("\"{}\"", time_text(file.keep_alive))),
        "\"75s\"", Gateway(|file| show_time(file.keep_alive));

    /// The least rate, over `idle`, at which a client must send a body and take an answer. Over HTTP/2 the rate applies
    /// to each stream. Only time in which the gateway waits for the client counts. The time of a server that writes or
    /// reads slowly does not count, nor the time of a held request. Only `idle` applies to WebSockets and gRPC; 0
    /// switches the rate off. A slow upload keeps a place at its server (`max_requests`) for as long as this rate
    /// allows, since `timeout` of a route counts only the server's own time: write a higher rate where places are few.
    min_rate: u64 = bytes_in_a_second(), Value("\"256B/s\""), "\"1KiB/s\"",
        Restart(|boot| show(format!("{}B/s", boot.listen.min_rate)));

    /// The number of connections at once. Beyond it a new connection takes the place of another: of the one that has
    /// been idle longest between two requests, else of one that has sent nothing, else of one that has sent half a
    /// head. Where all connections have a request under way, the new one is closed. The number is never more than half
    /// of the open files that the system allows (`ulimit -Hn`, to which Tollgate raises `ulimit -Sn`), less 64, so that
    /// as many upstream connections fit beside them.
    max_connections: u32 = count(), Value("100000"), "20000", Restart(|boot| show(boot.listen.max_connections));

    /// The number of connections of one client: an address, in IPv6 a /64. Beyond it a new connection takes the place
    /// of the client's own one that has been idle longest between two requests; where no connection is idle, the new
    /// one is closed. A number that is written applies always. Peers in `trust` stand for many clients and have no such
    /// bound.
    max_connections_per_client: u32 = count(), Words("a tenth of `max_connections`, while more than half of them are taken"), "100",
        Restart(|boot| show(shown_share(boot.listen.max_connections_per_client)));

    /// Requests that leaky buckets hold back at once, in the whole gateway. Beyond this number the answer is 503.
    max_held: u32 = count(), Value("10000"), "2000", Gateway(|file| show(file.holds.total));

    /// Requests of one client's address (in IPv6 a /64) that are held back at once. Beyond this number the answer is
    /// 503.
    max_held_per_client: u32 = count(), Value("1000"), "100", Gateway(|file| show(file.holds.per_client));
}

table! {
    /// A file of networks.
    NetworkFile = NETWORK_FILE, "server", "a file of networks";

    /// The file, with one network on a line; a `#` begins a comment.
    file: String = text_as(ValueShape::File, any), Required, "\"cdn-networks.txt\"";
}

/// An entry of `trust`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::config) enum TrustEntry {
    /// A network.
    Network(IpNet),
    /// The path of a file of networks.
    File(String),
}

/// Networks, and files of networks.
fn trusted() -> impl Form<Items<TrustEntry>> {
    custom(ValueShape::Networks(&NETWORK_FILE), |key, fields| {
        fields.items(key, |fields, item| match item.get_ref() {
            DeValue::Table(table) => {
                let read: NetworkFile = entry_table(key, fields, table, item.span(), whole)?;
                Some(TrustEntry::File(read.file.get()?.clone()))
            }
            _ => fields
                .text_item(key, item, network)
                .map(TrustEntry::Network),
        })
    })
}

impl ServerTable {
    /// The networks whose addresses contain translated IPv4 addresses.
    pub(in crate::config) fn translators(&self) -> Nat64 {
        let networks = self.nat64.entries().iter();
        Nat64::of(networks.map(|at| at.value.addr()))
    }

    /// Does the file set the keep-alive time of connections, or the idle time from which it is derived?
    pub(in crate::config) fn names_keep_alive(&self) -> bool {
        !self.keep_alive.is_absent() || !self.idle.is_absent()
    }

    /// The time for which idle connections are kept: `keep_alive`, or else `idle`.
    pub(in crate::config) fn kept_alive(&self) -> Duration {
        let written = self.keep_alive.get().or(self.idle.get());
        written.copied().unwrap_or(KeepAlive::USUAL)
    }
}

table! {
    /// The lines about requests (standard output) and the messages about the gateway (standard error).
    Log = LOG, "log", "the log";

    /// The form of the line for each request.
    access: AccessFormat = word(), Words("`\"json\"`; `\"short\"` on a terminal"), "\"json\"",
        Restart(|boot| show(boot.log.access.word()));

    /// The least severe messages about the gateway that are written.
    level: Level = word(), Value("\"info\""), "\"warn\"", Restart(|boot| show(boot.log.level.word()));
}

table! {
    /// The fields of responses that state limits, and the form of errors.
    ResponseTable = RESPONSE, "response", "the response";

    /// The fields that state limits. `standard` is `RateLimit` and `RateLimit-Policy`, `legacy` is `X-RateLimit-*`.
    /// `Retry-After` stays on every refusal. `X-RateLimit-*` states the limit that a refusal names, and no other. On
    /// other answers it states the limit that has the smallest part of its size left. The size is a bucket's `burst`, a
    /// queue's `burst` and the places that can be waited for within `max_wait`, or else the rate's number. Each rate of
    /// a list is a policy of its own, `NAME:TIME` (`per-key:min`), as in `violated-policies`. A limit on requests in
    /// flight has `qu="concurrent-requests"` and no times, and is in none of the older fields. `docs/fields.md` has the
    /// names, units and instants of all fields. Fields of an upstream's own limits stay: the items of its lists come
    /// after the gateway's items, and its `X-RateLimit-*` stay where it has fewer units left.
    headers: FieldStyle = word(), Value("\"both\""), "\"standard\"", Gateway(|file| show(file.fields.style.word()));

    /// The meaning of the older fields: `{ reset = "seconds" }` makes `X-RateLimit-Reset` the seconds until all units
    /// are back, as some clients expect it, in place of the second since 1970 (`"unix"`).
    x_ratelimit: OlderFields = inner_table(whole), Words("`{ reset = \"unix\" }`"), "{ reset = \"seconds\" }",
        Gateway(|file| show(format!("reset {}", file.fields.reset.word())));

    /// The form of the gateway's own errors: `problem+json` (RFC 9457), `text`, `html`, or `accept`. With `accept` the
    /// form is the one of these that the request's `Accept` prefers. `file:PATH` (`.html`, `.json`, `.txt` or `.xml`,
    /// at most 64 KiB) is sent to clients that a limit refuses, with `{status}`, `{limit}`, `{retry_after}` and
    /// `{request_id}` filled in. Other errors stay problem documents.
    body: ErrorText = text_as(ValueShape::ErrorBody, error_text), Value("\"problem+json\""), "\"file:deny.json\"",
        Gateway(|file| error_body(Some(&file.errors.everywhere)));

    /// The largest share by which a refusal lengthens the wait that it states. Each refusal takes another share up to
    /// it, so that clients that were refused together do not come back together.
    jitter: u8 = text_form(percent), Value("\"0%\""), "\"10%\"", Gateway(|file| show(format!("{}%", file.jitter)));
}

table! {
    /// The meaning of `X-RateLimit-*`.
    OlderFields = OLDER_FIELDS, "response", "the older fields", takes Some("`{ reset = \"seconds\" }`");

    /// The value of `X-RateLimit-Reset`: the second since 1970 at which all units are back, or the seconds until then.
    reset: ResetForm = word(), Value("\"unix\""), "\"seconds\"";
}

impl ResponseTable {
    /// The meaning of `X-RateLimit-Reset`.
    pub(in crate::config) fn reset_form(&self) -> ResetForm {
        self.x_ratelimit
            .get()
            .map_or(ResetForm::Unix, OlderFields::reset)
    }
}

table! {
    /// The settings of every request, on any route.
    Defaults = DEFAULTS, "defaults", "the defaults";

    /// Names of the limits that every request is held to, also where no route matches. They follow the route's own
    /// limits in the same decision. A route drops one with `"!NAME"` in its `limits`.
    limits: Items<String> = texts(any), Words("none"), "[\"per-ip\"]", Gateway(|file| show_list(&file.defaults));
}

words! { AccessFormat: Json "json", Short "short", Combined "combined", Off "off" }
words! { Level: Error "error", Warn "warn", Info "info", Debug "debug", Trace "trace" }
words! { ResetForm: Unix "unix", Seconds "seconds" }
words! { FieldStyle: Both "both", Standard "standard", Legacy "legacy", None "none" }

fn shown_share(most: Option<usize>) -> String {
    most.map_or("a tenth of max_connections".to_owned(), |most| {
        most.to_string()
    })
}

/// The form of error bodies. The text of a template is compared but not shown.
pub(in crate::config::document) fn error_body(body: Option<&ErrorBody>) -> Option<ShownValue> {
    let Some(body) = body else {
        return show("as in [response]");
    };
    let whole = matches!(body, ErrorBody::File(_)).then(|| format!("{body:?}"));
    Some(ShownValue {
        text: error_word(body).unwrap_or("a file").to_owned(),
        whole,
    })
}
